//! Joins the actors to the client of the Actions service: calls, sources and metrics.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::services::ActionsIo;
use crate::actions::{Clients, Observer, Sources};
use crate::kube_io::{Fence, KubeIo};
use crate::messages::{ActionsAnswer, ActionsError, ActionsRequest, KubeError};
use crate::metrics::Metrics;

impl ActionsIo for Clients {
    fn run(
        &self,
        request: ActionsRequest,
    ) -> BoxFuture<'static, Result<ActionsAnswer, ActionsError>> {
        let clients = self.clone();
        Box::pin(async move { Self::run(&clients, request).await })
    }
}

/// Calls the Actions service while this process may write. A call that the fence holds back is
/// never answered.
pub struct Fenced {
    /// The service.
    pub actions: Arc<dyn ActionsIo>,
    /// What calls pass.
    pub fence: Fence,
}

impl ActionsIo for Fenced {
    fn run(
        &self,
        request: ActionsRequest,
    ) -> BoxFuture<'static, Result<ActionsAnswer, ActionsError>> {
        let (actions, fence) = (self.actions.clone(), self.fence.clone());
        Box::pin(async move {
            let _writing = fence.pass().await;
            actions.run(request).await
        })
    }
}

/// Reads credentials and certificates from the API server.
pub struct KubeSources(pub KubeIo);

impl Sources for KubeSources {
    fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<Secret>, KubeError>> {
        let (kube, namespace, name) = (self.0.clone(), namespace.to_owned(), name.to_owned());
        Box::pin(async move {
            let secret = kube.secret(&namespace, &name).await?;
            Ok(secret.map(Arc::unwrap_or_clone))
        })
    }

    fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<ConfigMap>, KubeError>> {
        let (kube, namespace, name) = (self.0.clone(), namespace.to_owned(), name.to_owned());
        Box::pin(async move {
            let map = kube.config_map(&namespace, &name).await?;
            Ok(map.map(Arc::unwrap_or_clone))
        })
    }
}

/// Counts calls to the Actions service.
pub struct CallMetrics(pub Arc<Metrics>);

impl Observer for CallMetrics {
    fn request(&self, call: &'static str, outcome: &str, duration: Duration) {
        self.0.actions.ended(&[call, outcome], duration);
    }
}
