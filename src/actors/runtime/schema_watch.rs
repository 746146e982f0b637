//! Keeps an eye on the schemas that the cluster serves: says what they lack, and moves what
//! stands in annotations into its fields when these are there.

use std::sync::Arc;

use actix::Addr;
use tokio::time::{Instant, sleep_until};

use super::controller::{Controller, SchemasChanged};
use super::services::Services;
use crate::api::MissingFields;
use crate::kube_io::{Reading, SchemaReader};

/// Reads the schemas at the start and once in a sync period.
pub struct SchemaWatch {
    services: Arc<Services>,
    reader: SchemaReader,
    /// What was last said to be missing.
    said: Arc<MissingFields>,
    /// Whether the schemas could not be read the last time.
    unreadable: bool,
}

impl SchemaWatch {
    /// Reads the schemas for the first time.
    pub async fn begin(services: Arc<Services>) -> Self {
        let mut watch = Self {
            reader: SchemaReader::new(services.kube.client().clone()),
            services,
            said: Arc::default(),
            unreadable: false,
        };
        watch.read().await;
        watch
    }

    /// Goes on for ever.
    pub async fn run(mut self, controller: Addr<Controller>) {
        let period = self.services.settings.sync_period;
        let mut next = Instant::now() + period;
        loop {
            self.say(&controller);
            self.move_into_fields().await;
            tokio::select! {
                biased;
                () = self.services.kube.served().news() => {}
                () = sleep_until(next) => {
                    self.read().await;
                    next = Instant::now() + period;
                }
            }
        }
    }

    async fn read(&mut self) {
        match self.reader.read().await {
            Reading::Unchanged => {}
            Reading::Read(missing) => {
                self.unreadable = false;
                self.services.kube.served().told(missing);
            }
            Reading::Unreadable(problem) => {
                if !std::mem::replace(&mut self.unreadable, true) {
                    tracing::warn!(
                        problem,
                        "the schemas of the custom resources cannot be read from /openapi; which \
                         fields are missing will show when they are written"
                    );
                }
            }
        }
    }

    /// Says what is missing where that has changed.
    fn say(&mut self, controller: &Addr<Controller>) {
        let missing = self.services.kube.served().missing();
        if missing == self.said {
            return;
        }
        if missing.is_empty() {
            tracing::info!("the CustomResourceDefinitions have every field now");
        } else {
            tracing::warn!("{missing}");
        }
        let gauge = &self.services.metrics.missing_fields;
        for field in self.said.iter().filter(|field| !missing.contains(*field)) {
            // it was set when it was said
            let _removed = gauge.remove_label_values(&[field.kind(), &field.path()]);
        }
        for field in missing.iter() {
            gauge
                .with_label_values(&[field.kind(), &field.path()])
                .set(1);
        }
        controller.do_send(SchemasChanged(missing.clone()));
        // what a write has shown may differ from what the schemas said last
        self.reader.forget();
        self.said = missing;
    }

    async fn move_into_fields(&self) {
        let kube = &self.services.kube;
        for object in kube.served().movable() {
            match kube.move_into_fields(&object).await {
                Ok(moved) => tracing::debug!(%object, moved, "annotations moved into fields"),
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    kube.served().stands_in(&object, Vec::new());
                }
                // its next event or the next look at the schemas brings it up again
                Err(error) => tracing::debug!(%object, %error, "annotations not moved"),
            }
        }
    }
}
