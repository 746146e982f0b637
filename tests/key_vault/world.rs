//! An embedded vault, and a file with a certificate that opens it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_actions::KeyVault as EmbeddedVault;
use embedded_actions::{ActionsService, Options};
use impresario::actions::{
    CredentialSource as _, Fields, KeyVault, Observer, SourceError, TransportOptions, Transports,
};
use impresario::api::AzureKeyVaultConfig;
use impresario::clock::Clock;
use impresario::simulation::{transports, with_key_vault};
use tempfile::TempDir;
use url::Url;

pub const APPLICATION: &str = include_str!("application.pem");
pub const ANOTHER: &str = include_str!("another.pem");
pub const ELLIPTIC: &str = include_str!("elliptic.pem");

pub const URL: &str = "https://acme.vault.azure.net/";
pub const TENANT: &str = "c0ffee00-1111-2222-3333-444455556666";
pub const CLIENT: &str = "0badcafe-7777-8888-9999-aaaabbbbcccc";
pub const NAME: &str = "github-auth";
pub const TOKEN: &str = "ghp_InTheVault";

/// The value of a secret with a personal access token.
pub fn value(token: &str) -> String {
    serde_json::json!({"github_token": token}).to_string()
}

pub struct World {
    pub vault: EmbeddedVault,
    pub clock: Clock,
    pub calls: Arc<Calls>,
    pub config: AzureKeyVaultConfig,
    folder: TempDir,
}

/// The requests that were made: call and outcome.
#[derive(Default)]
pub struct Calls(pub Mutex<Vec<(&'static str, String)>>);

impl Observer for Calls {
    fn request(&self, call: &'static str, outcome: &str, _duration: Duration) {
        self.0.lock().unwrap().push((call, outcome.to_owned()));
    }
}

impl World {
    pub fn new() -> Self {
        let clock = Clock::simulated("2026-03-04T05:06:07Z".parse().unwrap());
        Self::with(clock, URL)
    }

    pub fn with(clock: Clock, url: &str) -> Self {
        let vault = EmbeddedVault::new(clock.clone(), &Url::parse(url).unwrap());
        let pem = APPLICATION.as_bytes();
        vault.register(TENANT, CLIENT, pem).unwrap();
        vault.put(NAME, &value(TOKEN));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("application.pem");
        std::fs::write(&path, APPLICATION).unwrap();
        let config = AzureKeyVaultConfig {
            url: url.to_owned(),
            tenant_id: TENANT.to_owned(),
            client_id: CLIENT.to_owned(),
            certificate_path: path.to_str().unwrap().to_owned(),
        };
        Self {
            vault,
            clock,
            calls: Arc::default(),
            config,
            folder,
        }
    }

    /// A file in the world's folder.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn transports(&self) -> Arc<dyn Transports> {
        let service = ActionsService::new(Options::new(self.clock.clone()));
        with_key_vault(&self.vault, transports(&service))
    }

    /// The client of the vault, with the world's settings.
    pub fn client(&self) -> KeyVault {
        let transport = self.transports().transport(&TransportOptions::default());
        let (clock, calls) = (self.clock.clone(), self.calls.clone());
        KeyVault::new(&self.config, transport.unwrap(), clock, Some(calls)).unwrap()
    }

    pub async fn refusal(&self) -> SourceError {
        self.client().fields(NAME).await.unwrap_err()
    }

    /// The requests so far, and forgets them.
    pub fn take_calls(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.calls.0.lock().unwrap());
        let calls = calls.into_iter();
        calls
            .map(|(call, outcome)| format!("{call} {outcome}"))
            .collect()
    }
}

/// The token that was read.
pub fn token(fields: &Fields) -> &str {
    std::str::from_utf8(&fields["github_token"].0).unwrap()
}
