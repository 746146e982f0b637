//! Clears a real cluster, so that several scenarios can use one server, one after the other.

use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet,
};
use k8s_openapi::api::core::v1::{Event, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Known, Stage};

impl Stage {
    /// Kills the controller, and removes what it and the scenario have made, whatever holds it.
    /// Namespaces and the controller's rights stay.
    pub async fn clear(&self) {
        self.kill_controller();
        self.until("nothing is left", async || self.remove_all().await == 0)
            .await;
    }

    /// How many there were.
    async fn remove_all(&self) -> usize {
        let of_listener = |name: String| name.ends_with("-listener");
        self.remove::<AutoscalingRunnerSet>(|_| true).await
            + self.remove::<AutoscalingListener>(|_| true).await
            + self.remove::<EphemeralRunnerSet>(|_| true).await
            + self.remove::<EphemeralRunner>(|_| true).await
            + self.remove::<Pod>(|_| true).await
            + self.remove::<Secret>(|_| true).await
            + self.remove::<Event>(|_| true).await
            + self
                .remove::<ServiceAccount>(|one| of_listener(one.name_any()))
                .await
            + self.remove::<Role>(|one| of_listener(one.name_any())).await
            + self
                .remove::<RoleBinding>(|one| of_listener(one.name_any()))
                .await
    }

    async fn remove<K: Known>(&self, wanted: impl Fn(&K) -> bool) -> usize {
        let mut objects = self.all::<K>().await;
        objects.retain(wanted);
        for object in &objects {
            let namespace = object.namespace().unwrap_or_default();
            let api = Api::<K>::namespaced(self.client.clone(), &namespace);
            let (name, params) = (object.name_any(), DeleteParams::default().grace_period(0));
            let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            if !object.finalizers().is_empty() {
                gone(api.patch(&name, &PatchParams::default(), &let_go).await);
            }
            gone(api.delete(&name, &params).await);
        }
        objects.len()
    }
}

/// The garbage collector may have been faster.
fn gone<T>(answer: kube::Result<T>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        answer => drop(answer.unwrap()),
    }
}
