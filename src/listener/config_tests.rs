//! What a configuration is resolved to, and what it is refused for.

use secrecy::ExposeSecret;

use super::*;
use crate::api::ListenerVault;

fn config() -> ListenerConfig {
    ListenerConfig {
        configure_url: "https://github.com/acme/widgets".to_owned(),
        github_token: "ghp_s3cret".to_owned(),
        ephemeral_runner_set_namespace: "ci".to_owned(),
        ephemeral_runner_set_name: "linux-set".to_owned(),
        max_runners: 10,
        min_runners: 2,
        runner_scale_set_id: 11,
        runner_scale_set_name: "linux".to_owned(),
        metrics_addr: ":8080".to_owned(),
        ..ListenerConfig::default()
    }
}

fn faults_of(change: impl FnOnce(&mut ListenerConfig)) -> String {
    let mut config = config();
    change(&mut config);
    Settings::resolve(&config).unwrap_err().to_string()
}

#[test]
fn numbers_at_the_edge_of_their_range_are_taken() {
    for (min, max) in [(0, 0), (3, 3), (0, i64::from(i32::MAX))] {
        let mut config = config();
        (config.min_runners, config.max_runners) = (min, max);
        let settings = Settings::resolve(&config).unwrap();
        let taken = (settings.min_runners, settings.max_runners);
        assert_eq!(taken, (min, max));
    }
    let mut config = config();
    config.runner_scale_set_id = 1;
    assert_eq!(Settings::resolve(&config).unwrap().scale_set_id, 1);
    for (min, max) in [(-1, 0), (0, -1), (4, 3)] {
        let faults = faults_of(|config| (config.min_runners, config.max_runners) = (min, max));
        assert!(faults.contains("_runners"), "{min} {max}: {faults}");
    }
    for id in [0, -1] {
        let faults = faults_of(|config| config.runner_scale_set_id = id);
        assert!(faults.contains("runner_scale_set_id"), "{id}: {faults}");
    }
}

/// A name becomes a part of a path, and must not lead elsewhere.
#[test]
fn only_names_of_objects_are_names() {
    let longest = "a".repeat(253);
    for name in ["a", "7", "a-b.c", "0a", "a--b", longest.as_str()] {
        assert!(is_object_name(name), "{name:?}");
    }
    let too_long = "a".repeat(254);
    for text in [
        "",
        "-a",
        "a-",
        ".a",
        "a.",
        "..",
        "-",
        "A",
        "a/b",
        "a b",
        "a%2f",
        "a_b",
        "\u{e4}",
        too_long.as_str(),
    ] {
        assert!(!is_object_name(text), "{text:?}");
    }
}

#[test]
fn the_metrics_path_is_a_plain_one_of_its_own() {
    for (text, path) in [("", "/metrics"), ("/metrics", "/metrics"), ("/a/b", "/a/b")] {
        assert_eq!(metrics_path(text).as_deref(), Ok(path));
    }
    for text in ["metrics", "/a?b", "/a#b", "/{a}", "/*", "/a:b", "/a b"] {
        let fault = metrics_path(text).unwrap_err();
        assert!(fault.contains("is no path"), "{text}: {fault}");
    }
    for text in RESERVED_PATHS {
        let fault = metrics_path(text).unwrap_err();
        assert!(
            fault.contains("is taken by the health checks"),
            "{text}: {fault}"
        );
    }
}

#[test]
fn a_sound_configuration_is_resolved_with_its_defaults() {
    let settings = Settings::resolve(&config()).unwrap();
    assert_eq!(settings.url.repository(), "widgets");
    let CredentialsFrom::File(Credentials::Token(token)) = &settings.credentials else {
        panic!("not a token")
    };
    assert_eq!(token.expose_secret(), "ghp_s3cret");
    assert_eq!(settings.scale_set_id, 11);
    assert_eq!(settings.namespace, "ci");
    assert_eq!(settings.runner_set, "linux-set");
    assert_eq!((settings.min_runners, settings.max_runners), (2, 10));
    assert_eq!(settings.metrics_path, "/metrics");
    assert_eq!(
        settings.log,
        LogSettings {
            level: "info",
            format: "text"
        }
    );
}

#[test]
fn each_fault_names_its_key() {
    type Change = fn(&mut ListenerConfig);
    let cases: [(Change, &str); 16] = [
        (|c| c.configure_url.clear(), "configure_url"),
        (|c| c.github_token.clear(), "github_token"),
        (|c| c.github_app_id = "7".into(), "github_app_id"),
        (
            |c| c.vault_type = "hashicorp".into(),
            "vault_type \"hashicorp\"",
        ),
        (
            |c| c.vault_type = "azure_key_vault".into(),
            "vault_lookup_key is missing",
        ),
        (
            |c| c.azure_key_vault = Some(ListenerVault::default()),
            "vault_type is missing",
        ),
        (
            |c| c.ephemeral_runner_set_namespace.clear(),
            "ephemeral_runner_set_namespace is missing",
        ),
        (
            |c| c.ephemeral_runner_set_name = "../x".into(),
            "ephemeral_runner_set_name \"../x\"",
        ),
        (|c| c.runner_scale_set_id = 0, "runner_scale_set_id is 0"),
        (|c| c.min_runners = -1, "min_runners is -1"),
        (
            |c| c.max_runners = 1,
            "min_runners is 2 and max_runners is 1",
        ),
        (
            |c| c.metrics_addr = "8080".into(),
            "metrics_addr is \"8080\"",
        ),
        (
            |c| c.metrics_addr = ":eighty".into(),
            "metrics_addr is \":eighty\"",
        ),
        (
            |c| c.metrics_endpoint = "/healthz".into(),
            "metrics_endpoint \"/healthz\"",
        ),
        (|c| c.log_level = "loud".into(), "log_level \"loud\""),
        (|c| c.log_format = "xml".into(), "log_format \"xml\""),
    ];
    for (change, expected) in cases {
        let text = faults_of(change);
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

fn with_vault() -> ListenerConfig {
    ListenerConfig {
        github_token: String::new(),
        vault_type: "azure_key_vault".to_owned(),
        vault_lookup_key: "github-auth".to_owned(),
        azure_key_vault: Some(ListenerVault {
            url: "https://acme.vault.azure.net".to_owned(),
            tenant_id: "tenant".to_owned(),
            client_id: "client".to_owned(),
            certificate_path: "/certificates/a.pem".to_owned(),
            proxy: None,
        }),
        ..config()
    }
}

#[test]
fn a_vault_is_read_as_the_other_program_writes_it() {
    let mut written = serde_json::to_value(with_vault()).unwrap();
    written["azure_key_vault"]["proxy"] = serde_json::json!({
        "HTTPProxy": "", "HTTPSProxy": "http://u:p@vault.proxy:1", "NoProxy": ".acme.io",
        "CGI": false,
    });
    let text = serde_json::to_vec(&written).unwrap();
    let config = parse(&text, Path::new("config.json")).unwrap();
    let settings = Settings::resolve(&config).unwrap();
    let CredentialsFrom::Vault(vault) = settings.credentials else {
        panic!("not from a vault")
    };
    assert_eq!(vault.key, "github-auth");
    assert_eq!(vault.config.certificate_path, "/certificates/a.pem");
    let server = ProxyServer::parse("http://u:p@vault.proxy:1").ok();
    assert_eq!(
        vault.proxies,
        Some(Proxies::new(None, server, [".acme.io"]))
    );
}

#[test]
fn each_fault_of_a_vault_names_its_key() {
    type Change = fn(&mut ListenerConfig, &mut ListenerVault);
    let cases: [(Change, &str); 7] = [
        (
            |c, _| c.vault_lookup_key = "a/b".into(),
            "vault_lookup_key \"a/b\"",
        ),
        (|_, v| v.url = "acme".into(), "azure_key_vault.url is not"),
        (|_, v| v.tenant_id.clear(), "azure_key_vault.tenant_id is"),
        (|_, v| v.client_id.clear(), "azure_key_vault.client_id is"),
        (
            |_, v| v.certificate_path.clear(),
            "azure_key_vault.certificate_path is",
        ),
        (
            |_, v| {
                v.proxy = Some(ListenerVaultProxy {
                    https: "socks5://u:s3cret@p:1".to_owned(),
                    ..ListenerVaultProxy::default()
                });
            },
            "azure_key_vault.proxy.HTTPSProxy: ",
        ),
        (|c, _| c.github_app_id = "7".into(), ""),
    ];
    for (change, expected) in cases {
        let mut config = with_vault();
        let mut vault = config.azure_key_vault.take().unwrap();
        change(&mut config, &mut vault);
        config.azure_key_vault = Some(vault);
        let resolved = Settings::resolve(&config).map(drop);
        if expected.is_empty() {
            // what is in the file beside a vault does not count
            assert_eq!(resolved, Ok(()));
            continue;
        }
        let text = resolved.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    let mut config = with_vault();
    config.azure_key_vault = None;
    let text = Settings::resolve(&config).unwrap_err().to_string();
    assert!(text.contains("azure_key_vault is missing"), "{text}");
}

#[test]
fn all_faults_are_told_at_once() {
    let text = faults_of(|config| {
        config.runner_scale_set_id = -3;
        config.metrics_addr = "x".into();
    });
    assert!(text.contains("runner_scale_set_id is -3"), "{text}");
    assert!(text.contains("metrics_addr is \"x\""), "{text}");
}

#[test]
fn no_address_and_0_turn_the_metrics_off() {
    assert_eq!(address(""), Ok(None));
    assert_eq!(address("0"), Ok(None));
    assert_eq!(address(":8080").unwrap().unwrap().port(), 8080);
    assert!(address(":70000").is_err());
}

#[test]
fn a_broken_file_is_located_and_not_quoted() {
    let path = Path::new("/etc/gha-listener/config.json");
    let text = parse(b"{\n  \"github_token\": \"s3cret\",,\n}", path)
        .unwrap_err()
        .to_string();
    assert!(text.contains("/etc/gha-listener/config.json"), "{text}");
    assert!(text.contains("line 2, column 28"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn a_value_of_the_wrong_type_names_its_key_and_is_not_quoted() {
    let path = Path::new("config.json");
    let text = parse(
        br#"{"github_token": {"a": "s3cret"}, "max_runners": "many", "min_runners": 1}"#,
        path,
    )
    .unwrap_err()
    .to_string();
    assert!(text.contains("github_token has a value"), "{text}");
    assert!(text.contains("max_runners has a value"), "{text}");
    assert!(!text.contains("min_runners"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn keys_of_a_later_version_are_ignored() {
    let config = parse(br#"{"max_runners": 4, "brand_new": [1]}"#, Path::new("c")).unwrap();
    assert_eq!(config.max_runners, 4);
}

#[test]
fn a_missing_file_is_named() {
    let text = load(Path::new("/nowhere/config.json"))
        .unwrap_err()
        .to_string();
    assert!(text.contains("/nowhere/config.json"), "{text}");
    assert!(text.contains("LISTENER_CONFIG_PATH"), "{text}");
}
