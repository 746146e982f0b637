//! Who may do what.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{World, object, refusal};

const USER: &str = "mona";

/// Gives a user rules in the world's namespace.
async fn grant(world: &World, rules: Value) {
    let roles: Api<Role> = Api::namespaced(world.client.clone(), &world.namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), &world.namespace);
    let role: Role = object(json!({ "metadata": { "name": "granted" }, "rules": rules }));
    roles.create(&PostParams::default(), &role).await.unwrap();
    let binding: RoleBinding = object(json!({
        "metadata": { "name": "granting" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "granted" },
        "subjects": [{ "kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io" }],
    }));
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    world.wait_until_allowed(USER, "get", "configmaps").await;
}

fn maps(world: &World) -> Api<ConfigMap> {
    Api::namespaced(world.client_of(USER), &world.namespace)
}

pub async fn without_a_role_nothing_is_allowed(world: World) {
    let map: ConfigMap = object(json!({ "metadata": { "name": "m" } }));
    let refused = refusal(maps(&world).create(&PostParams::default(), &map).await);
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message,
        format!(
            "configmaps is forbidden: User \"mona\" cannot create resource \"configmaps\" in API \
             group \"\" in the namespace {:?}",
            world.namespace
        )
    );
    let refused = refusal(maps(&world).get("m").await);
    assert!(
        refused
            .message
            .starts_with("configmaps \"m\" is forbidden: User \"mona\" cannot get resource"),
        "{}",
        refused.message
    );
    let everywhere: Api<ConfigMap> = Api::all(world.client_of(USER));
    let refused = refusal(everywhere.list(&ListParams::default()).await);
    assert!(
        refused.message.ends_with("at the cluster scope"),
        "{}",
        refused.message
    );
}

pub async fn a_role_allows_what_it_names(world: World) {
    world
        .create_map(json!({ "metadata": { "name": "this" } }))
        .await;
    world
        .create_map(json!({ "metadata": { "name": "that" } }))
        .await;
    grant(
        &world,
        json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["this"] }]),
    )
    .await;
    maps(&world).get("this").await.unwrap();
    assert_eq!(refusal(maps(&world).get("that").await).code, 403);
    assert_eq!(
        refusal(maps(&world).list(&ListParams::default()).await).code,
        403
    );
    let secrets: Api<Secret> = Api::namespaced(world.client_of(USER), &world.namespace);
    assert_eq!(refusal(secrets.get("this").await).code, 403);
}

pub async fn a_role_does_not_reach_beyond_its_namespace(world: World) {
    grant(
        &world,
        json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]),
    )
    .await;
    maps(&world).list(&ListParams::default()).await.unwrap();
    let elsewhere: Api<ConfigMap> = Api::namespaced(world.client_of(USER), "kube-system");
    assert_eq!(
        refusal(elsewhere.list(&ListParams::default()).await).code,
        403
    );
}

pub async fn nobody_grants_what_he_has_not(world: World) {
    grant(
        &world,
        json!([
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"] },
        ]),
    )
    .await;
    let roles: Api<Role> = Api::namespaced(world.client_of(USER), &world.namespace);
    let role = |name: &str, resource: &str| -> Role {
        object(json!({
            "metadata": { "name": name },
            "rules": [{ "apiGroups": [""], "resources": [resource], "verbs": ["get"] }],
        }))
    };
    roles
        .create(&PostParams::default(), &role("own", "configmaps"))
        .await
        .unwrap();
    let refused = refusal(
        roles
            .create(&PostParams::default(), &role("more", "secrets"))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert!(
        refused
            .message
            .contains("is attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.message
    );
}

pub async fn whoever_may_change_a_role_may_release_it(world: World) {
    grant(
        &world,
        json!([
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
            { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["patch"] },
        ]),
    )
    .await;
    let all: Api<Role> = Api::namespaced(world.client.clone(), &world.namespace);
    let held: Role = object(json!({
        "metadata": { "name": "held", "finalizers": ["test.impresario.dev/hold"] },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }],
    }));
    all.create(&PostParams::default(), &held).await.unwrap();
    let theirs: Api<Role> = Api::namespaced(world.client_of(USER), &world.namespace);
    let patch = async |body: Value| {
        let parameters = PatchParams::default();
        theirs.patch("held", &parameters, &Patch::Merge(body)).await
    };
    let wider =
        json!({ "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] }] });
    assert_eq!(refusal(patch(wider).await).code, 403);
    let released = patch(json!({ "metadata": { "finalizers": null } }))
        .await
        .unwrap();
    assert_eq!(
        released.metadata.finalizers.unwrap_or_default(),
        Vec::<String>::new()
    );
}
