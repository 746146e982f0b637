use serde_json::{Value, json};

use super::*;

fn scale_set() -> Value {
    json!({
        "metadata": {"name": "linux", "namespace": "ci"},
        "spec": {
            "githubConfigUrl": "https://github.com/acme",
            "githubConfigSecret": "github-auth",
            "minRunners": 1,
            "maxRunners": 4,
            "template": {"spec": {"containers": [{"name": "runner", "image": "r:1"}]}},
        },
    })
}

/// The problems of the scale set above with one value put in, as `path: message`.
fn problems(pointer: &str, value: Value) -> Vec<String> {
    let mut object = scale_set();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    let scale_set: AutoscalingRunnerSet = serde_json::from_value(object).unwrap();
    match scale_set.validate() {
        Ok(()) => Vec::new(),
        Err(errors) => errors.problems().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_scale_set_that_makes_sense_has_no_problem() {
    for (pointer, value) in [
        ("/spec/minRunners", json!(4)),
        ("/spec/minRunners", json!(0)),
        ("/spec/maxRunners", Value::Null),
        ("/spec/runnerScaleSetName", json!("gpu large_2")),
        ("/spec/runnerScaleSetLabels", json!(["a", "b"])),
        (
            "/spec/proxy",
            json!({"http": {"url": "http://proxy:3128", "credentialSecretRef": "cred"},
                   "https": {"url": "https://u:p@proxy"}, "noProxy": ["example.com"]}),
        ),
        (
            "/spec/githubServerTLS",
            json!({"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}}),
        ),
        (
            "/spec/vaultConfig",
            json!({"type": "azure_key_vault", "azureKeyVault": {
                "url": "https://v.vault.azure.net", "tenantId": "t", "clientId": "c",
                "certificatePath": "/certs/a.pem"}}),
        ),
        (
            "/spec/listenerTemplate",
            json!({"spec": {"containers": [{"name": "side"}]}}),
        ),
        (
            "/spec/ephemeralRunnerMetadata",
            json!({"labels": {"acme.io/team": "a"}, "annotations": {"Acme.io/Note": "any text"}}),
        ),
        (
            "/spec/listenerMetrics",
            json!({"histograms": {"gha_x": {"labels": [], "buckets": [0.5, 1, 2]}}}),
        ),
        ("/metadata/name", json!("n".repeat(45))),
    ] {
        assert_eq!(problems(pointer, value), Vec::<String>::new(), "{pointer}");
    }
}

#[test]
fn each_problem_names_its_field_and_what_to_do() {
    for (pointer, value, path, words) in [
        (
            "/metadata/name",
            json!("n".repeat(46)),
            "metadata.name",
            "at most 45",
        ),
        (
            "/spec/githubConfigUrl",
            json!(""),
            "spec.githubConfigUrl",
            "is not set",
        ),
        (
            "/spec/githubConfigUrl",
            json!("github.com/acme"),
            "spec.githubConfigUrl",
            "https://HOST/OWNER/REPOSITORY",
        ),
        (
            "/spec/githubConfigSecret",
            json!(""),
            "spec.githubConfigSecret",
            "the name of the Secret",
        ),
        (
            "/spec/githubConfigSecret",
            json!("My_Secret"),
            "spec.githubConfigSecret",
            "lower case letters",
        ),
        (
            "/spec/minRunners",
            json!(-1),
            "spec.minRunners",
            "use 0 or more",
        ),
        (
            "/spec/maxRunners",
            json!(-2),
            "spec.maxRunners",
            "use 0 or more",
        ),
        (
            "/spec/minRunners",
            json!(5),
            "spec.minRunners",
            "more than spec.maxRunners, which is 4",
        ),
        (
            "/spec/runnerScaleSetName",
            json!(" linux"),
            "spec.runnerScaleSetName",
            "white space",
        ),
        (
            "/spec/runnerScaleSetName",
            json!("x".repeat(257)),
            "spec.runnerScaleSetName",
            "at most 256",
        ),
        (
            "/spec/runnerScaleSetLabels",
            json!([""]),
            "spec.runnerScaleSetLabels[0]",
            "is empty",
        ),
        (
            "/spec/proxy",
            json!({"https": {"url": "proxy:3128"}}),
            "spec.proxy.https.url",
            "use http://HOST:PORT",
        ),
        (
            "/spec/proxy",
            json!({"http": {}}),
            "spec.proxy.http.url",
            "is not set",
        ),
        (
            "/spec/proxy",
            json!({"http": {"url": "http://p:1", "credentialSecretRef": "a b"}}),
            "spec.proxy.http.credentialSecretRef",
            "lower case letters",
        ),
        (
            "/spec/githubServerTLS",
            json!({}),
            "spec.githubServerTLS.certificateFrom.configMapKeyRef",
            "name the ConfigMap",
        ),
        (
            "/spec/githubServerTLS",
            json!({"certificateFrom": {"configMapKeyRef": {"name": "", "key": "k"}}}),
            "spec.githubServerTLS.certificateFrom.configMapKeyRef.name",
            "is not set",
        ),
        (
            "/spec/githubServerTLS",
            json!({"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": ""}}}),
            "spec.githubServerTLS.certificateFrom.configMapKeyRef.key",
            "is not set",
        ),
        (
            "/spec/vaultConfig",
            json!({"type": "azure_key_vault"}),
            "spec.vaultConfig.azureKeyVault",
            "tenantId",
        ),
        (
            "/spec/template",
            json!({"spec": {"containers": [{"name": "build"}]}}),
            "spec.template.spec.containers",
            "no container named \"runner\"",
        ),
        (
            "/spec/template",
            json!({}),
            "spec.template.spec.containers",
            "runner",
        ),
        (
            "/spec/template/spec/initContainers",
            json!([{"name": "runner"}]),
            "spec.template.spec.containers[0].name",
            "another container",
        ),
        (
            "/spec/template/spec/volumes",
            json!([{"name": "w"}, {"name": "w"}]),
            "spec.template.spec.volumes[1].name",
            "another volume",
        ),
        (
            "/spec/template/metadata",
            json!({"labels": {"team": "two words"}}),
            "spec.template.metadata.labels[team]",
            "the value cannot stay",
        ),
        (
            "/spec/ephemeralRunnerSetMetadata",
            json!({"annotations": {"a b": ""}}),
            "spec.ephemeralRunnerSetMetadata.annotations[a b]",
            "the key cannot stay",
        ),
        (
            "/spec/listenerMetrics",
            json!({"histograms": {"gha_x": {"labels": [], "buckets": [2, 1]}}}),
            "spec.listenerMetrics.histograms.gha_x.buckets",
            "smallest",
        ),
    ] {
        let found = problems(pointer, value);
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert!(found[0].starts_with(&format!("{path}: ")), "{found:?}");
        assert!(found[0].contains(words), "{found:?}");
    }
}

#[test]
fn with_a_vault_the_secret_is_the_name_of_a_secret_in_it() {
    let vault = json!({"type": "azure_key_vault", "azureKeyVault": {
        "url": "https://v", "tenantId": "t", "clientId": "c", "certificatePath": "/c"}});
    let mut object = scale_set();
    object["spec"]["vaultConfig"] = vault;
    let mut judged = |name: &str| {
        object["spec"]["githubConfigSecret"] = json!(name);
        let set: AutoscalingRunnerSet = serde_json::from_value(object.clone()).unwrap();
        set.validate().map_err(|errors| errors.to_string())
    };
    assert_eq!(judged("Any-Key-7"), Ok(()));
    let empty = judged("").unwrap_err();
    assert!(empty.contains("in the vault"), "{empty}");
    for name in ["Any_Key", "a/b", "..", &"x".repeat(128)] {
        let error = judged(name).unwrap_err();
        let expected = format!("spec.githubConfigSecret: \"{name}\" is not the name of a secret");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn settings_that_no_vault_can_have_are_named() {
    for (field, value, words) in [
        (
            "url",
            "v.vault.azure.net",
            "use https://VAULT.vault.azure.net",
        ),
        // tokens do not cross a network in the open
        (
            "url",
            "http://v.vault.azure.net",
            "use https://VAULT.vault.azure.net",
        ),
        ("tenantId", "../common", "letters, digits, dots and dashes"),
    ] {
        let mut azure = json!({"url": "https://v.vault.azure.net", "tenantId": "t.example",
            "clientId": "c", "certificatePath": "/c"});
        azure[field] = json!(value);
        let found = problems(
            "/spec/vaultConfig",
            json!({"type": "azure_key_vault", "azureKeyVault": azure}),
        );
        assert_eq!(found.len(), 1, "{found:?}");
        let path = format!("spec.vaultConfig.azureKeyVault.{field}: ");
        assert!(
            found[0].starts_with(&path) && found[0].contains(words),
            "{found:?}"
        );
    }
    // an emulator on this machine
    let found = problems(
        "/spec/vaultConfig",
        json!({"type": "azure_key_vault", "azureKeyVault": {"url": "http://localhost:8080",
            "tenantId": "t", "clientId": "c", "certificatePath": "/c"}}),
    );
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_missing_setting_of_a_vault_is_named() {
    let found = problems(
        "/spec/vaultConfig",
        json!({"type": "hashicorp", "azureKeyVault": {
            "url": "", "tenantId": "", "clientId": "", "certificatePath": ""}}),
    );
    let paths: Vec<&str> = found
        .iter()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.vaultConfig.type",
            "spec.vaultConfig.azureKeyVault.url",
            "spec.vaultConfig.azureKeyVault.tenantId",
            "spec.vaultConfig.azureKeyVault.clientId",
            "spec.vaultConfig.azureKeyVault.certificatePath",
        ]
    );
}

#[test]
fn an_empty_scale_set_shows_all_its_problems_in_one_line() {
    let errors = AutoscalingRunnerSet::default().validate().unwrap_err();
    assert_eq!(
        errors.to_string(),
        "spec.githubConfigUrl: is not set; give the URL of an enterprise, organization or \
         repository; spec.githubConfigSecret: is not set; give the name of the Secret with the \
         GitHub credentials; spec.template.spec.containers: has no container named \"runner\"; \
         add one with the runner's image"
    );
}

#[test]
fn a_password_in_a_proxy_url_is_not_shown() {
    let found = problems(
        "/spec/proxy",
        json!({"http": {"url": "socks5://me:hunter2@proxy"}}),
    );
    assert_eq!(found.len(), 1);
    assert!(!found[0].contains("hunter2"), "{found:?}");
}

#[test]
fn more_than_anybody_needs_is_refused_by_name() {
    let labels = |count: usize| -> Value { (0..count).map(|n| format!("label-{n}")).collect() };
    assert_eq!(
        problems("/spec/runnerScaleSetLabels", labels(1_000)),
        [] as [String; 0]
    );
    let told = problems("/spec/runnerScaleSetLabels", labels(100_000));
    assert_eq!(
        told,
        ["spec.runnerScaleSetLabels: has 100000 labels; use at most 1000"]
    );
    let template = |length: usize| {
        json!({"spec": {"containers": [{"name": "runner", "image": "r:1",
            "env": [{"name": "LONG", "value": "x".repeat(length)}]}]}})
    };
    for field in ["template", "listenerTemplate"] {
        let pointer = format!("/spec/{field}");
        assert_eq!(problems(&pointer, template(255 << 10)), [] as [String; 0]);
        let told = problems(&pointer, template(1 << 20));
        assert_eq!(told.len(), 1, "{told:?}");
        let expected = format!("spec.{field}: is longer than 256 KiB");
        assert!(told[0].starts_with(&expected), "{told:?}");
    }
}

#[test]
fn problems_without_number_make_a_text_of_bearable_length() {
    let mut object = scale_set();
    object["spec"]["runnerScaleSetLabels"] = (0..900)
        .map(|n| format!(" {}", "\u{e4}".repeat(n)))
        .collect();
    let scale_set: AutoscalingRunnerSet = serde_json::from_value(object).unwrap();
    let errors = scale_set.validate().unwrap_err();
    let text = errors.to_string();
    assert!(text.chars().count() < 4_200, "{}", text.len());
    assert!(text.starts_with("spec.runnerScaleSetLabels[0]: "), "{text}");
    assert!(text.ends_with(" more problems"), "{text}");
}
