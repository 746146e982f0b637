//! What people get wrong, and what they are told.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use embedded_actions::{Outcome, Refusal};
use impresario::actions::{CredentialSource as _, KeyVault, SourceErrorKind, TransportOptions};
use impresario::api::AzureKeyVaultConfig;

use crate::world::{ANOTHER, APPLICATION, CLIENT, ELLIPTIC, NAME, World, value};

/// The part of a PEM text from this label on.
fn section(pem: &str, label: &str) -> String {
    let from = pem.find(&format!("-----BEGIN {label}")).unwrap();
    let end = format!("-----END {label}-----\n");
    let to = pem[from..].find(&end).unwrap();
    pem[from..from + to + end.len()].to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_file_without_a_usable_certificate_says_what_is_wrong_with_it() {
    let mut world = World::new();
    let certificate = section(APPLICATION, "CERTIFICATE");
    let key = section(APPLICATION, "PRIVATE KEY");
    let strangers = section(ANOTHER, "RSA PRIVATE KEY");
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE \
                     KEY-----\n";
    let binary = [0x30, 0x82, 0x09, 0xff];
    for (content, expected) in [
        (certificate.as_bytes(), "a certificate but no private key"),
        (key.as_bytes(), "a private key but no certificate"),
        (
            format!("{strangers}{certificate}").as_bytes(),
            "belongs to none of its certificates",
        ),
        (ELLIPTIC.as_bytes(), "is not an RSA key"),
        (
            format!("{certificate}{encrypted}").as_bytes(),
            "an encrypted private key",
        ),
        (binary.as_slice(), "not a PEM file but a binary one"),
        (b"hello", "neither certificate nor private key"),
        (b"", "neither certificate nor private key"),
        (
            b"-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n",
            "not a sound PEM file",
        ),
    ] {
        let path = world.file("bad.pem", content);
        world.config.certificate_path = path.to_str().unwrap().to_owned();
        let error = world.refusal().await;
        assert_eq!(error.kind, SourceErrorKind::Config, "{error}");
        assert!(error.message.contains("certificatePath"), "{error}");
        assert!(error.message.contains("bad.pem"), "{error}");
        assert!(error.message.contains(expected), "{expected}: {error}");
        assert!(!error.message.contains("MII"), "{error}");
    }
    assert_eq!(world.vault.calls("vault_login"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_not_there_has_to_be_mounted() {
    let mut world = World::new();
    for (path, expected) in [
        ("/nowhere/application.pem", "does not exist"),
        ("/", "is not a file"),
        ("/dev/zero", "is not a file"),
    ] {
        world.config.certificate_path = path.to_owned();
        let error = world.refusal().await;
        assert!(error.message.contains(expected), "{error}");
        assert!(error.message.contains("listenerTemplate"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_chain_the_certificate_that_belongs_to_the_key_signs_in() {
    let mut world = World::new();
    let chain = [
        section(APPLICATION, "PRIVATE KEY"),
        section(ANOTHER, "CERTIFICATE"),
        section(APPLICATION, "CERTIFICATE"),
    ];
    let path = world.file("chain.pem", chain.concat().as_bytes());
    world.config.certificate_path = path.to_str().unwrap().to_owned();
    world.client().fields(NAME).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_login_is_told_with_its_code_and_what_to_do() {
    for (change, code, advice) in [
        (
            &(|config: &mut AzureKeyVaultConfig| config.tenant_id = "acme.example".to_owned())
                as &dyn Fn(&mut AzureKeyVaultConfig),
            "AADSTS90002",
            "correct tenantId",
        ),
        (
            &|config| config.client_id = "nobody".to_owned(),
            "AADSTS700016",
            "correct clientId",
        ),
    ] {
        let mut world = World::new();
        change(&mut world.config);
        let error = world.refusal().await;
        assert_eq!(error.kind, SourceErrorKind::Refused, "{error}");
        for part in [code, advice, "login.microsoftonline.com"] {
            assert!(error.message.contains(part), "{part}: {error}");
        }
        assert_eq!(world.vault.calls("vault_login"), 1, "asked again in vain");
    }
    let mut world = World::new();
    let path = world.file("another.pem", ANOTHER.as_bytes());
    world.config.certificate_path = path.to_str().unwrap().to_owned();
    let error = world.refusal().await;
    for part in ["AADSTS700027", "add the certificate", CLIENT] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_is_wrong_is_told_so() {
    let world = World::new();
    let client = {
        // the application's clock, an hour behind the tenant's
        let transport = world.transports().transport(&TransportOptions::default());
        let clock = impresario::clock::Clock::simulated("2026-03-04T04:06:07Z".parse().unwrap());
        KeyVault::new(&world.config, transport.unwrap(), clock, None).unwrap()
    };
    let error = client.fields(NAME).await.unwrap_err();
    assert!(error.message.contains("AADSTS700024"), "{error}");
    assert!(error.message.contains("clock of this node"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn no_right_no_secret_and_no_sense_are_told_apart() {
    let world = World::new();
    world.vault.close(true);
    let error = world.refusal().await;
    assert_eq!(error.kind, SourceErrorKind::Refused, "{error}");
    for part in ["ForbiddenByRbac", "Key Vault Secrets User", CLIENT, NAME] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    world.vault.close(false);

    world.vault.remove(NAME);
    let error = world.refusal().await;
    assert_eq!(error.kind, SourceErrorKind::Unusable, "{error}");
    for part in [
        "acme.vault.azure.net has no secret",
        NAME,
        "githubConfigSecret",
    ] {
        assert!(error.message.contains(part), "{part}: {error}");
    }

    world.vault.put(NAME, "ghp_S3cret");
    let error = world.refusal().await;
    assert_eq!(error.kind, SourceErrorKind::Unusable, "{error}");
    assert!(error.message.contains("is no JSON"), "{error}");
    assert!(!error.message.contains("S3cret"), "{error}");

    let page = Outcome::Replace(200, "<html>".into());
    world.vault.faults().always("vault_secret", page.clone());
    let error = world.refusal().await;
    assert!(error.message.contains("check the vault's url"), "{error}");
    world.vault.faults().clear("vault_secret");
    world.vault.faults().always("vault_login", page);
    let error = world.refusal().await;
    assert!(
        error.message.contains("let us in without a token"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn settings_are_judged_before_anything_is_sent() {
    let world = World::new();
    let judged = |change: &dyn Fn(&mut AzureKeyVaultConfig)| {
        let mut config = world.config.clone();
        change(&mut config);
        let transport = world.transports().transport(&TransportOptions::default());
        let made = KeyVault::new(&config, transport.unwrap(), world.clock.clone(), None);
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    for (change, expected) in [
        (
            &(|config: &mut AzureKeyVaultConfig| config.url = "http://acme.vault.azure.net".into())
                as &dyn Fn(&mut AzureKeyVaultConfig),
            "url is not the URL of a vault",
        ),
        (&|config| config.url.clear(), "url is not set"),
        (
            &|config| config.tenant_id = "../x".into(),
            "tenantId is not the id",
        ),
        (&|config| config.client_id.clear(), "clientId is not set"),
        (
            &|config| config.certificate_path.clear(),
            "certificatePath is not set",
        ),
    ] {
        let error = judged(change);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = world.client().fields("Not/A_Name").await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Config);
    assert!(error.message.contains("Not/A_Name"), "{error}");
    assert_eq!(world.vault.calls("vault_secret"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_shows_neither_token_nor_assertion() {
    let world = World::new();
    world.vault.put(NAME, &value("ghp_S3cret"));
    let client = world.client();
    client.fields(NAME).await.unwrap();
    let shown = format!("{client:?}");
    assert!(!shown.contains("akv-"), "{shown}");
    // a vault that repeats what it was sent
    let token = "akv-0001";
    for said in [
        format!("{token} is no good"),
        STANDARD.encode(token),
        "akv%2D0001".to_owned(),
    ] {
        let refusal = Refusal::new(403, "Forbidden", said);
        world.vault.faults().next("vault_secret", refusal);
        let error = client.fields(NAME).await.unwrap_err();
        assert!(error.message.contains("[redacted]"), "{error}");
        assert!(!error.message.contains(token), "{error}");
    }
    world.vault.close(true);
    let error = client.fields(NAME).await.unwrap_err();
    let private = section(APPLICATION, "PRIVATE KEY");
    let private = private.lines().nth(1).unwrap();
    for secret in [
        "akv-",
        "eyJ",
        "S3cret",
        private,
        &STANDARD.encode("ghp_S3cret"),
    ] {
        assert!(!error.message.contains(secret), "{error}");
    }
}
