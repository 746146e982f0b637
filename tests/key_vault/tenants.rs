//! Tenants whose credentials are in a vault, as the controller's calls have them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{ActionsService, KeyVault, Options, Outcome};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use impresario::actions::{
    Clients, ClientsOptions, Proxies, ProxyServer, Sources, Transport, TransportError,
    TransportOptions, Transports,
};
use impresario::api::{AZURE_KEY_VAULT, ProxyConfig, ProxyServerConfig, VaultConfig};
use impresario::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, KubeError, Tenant,
};
use impresario::simulation::{transports, with_key_vault};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::time::{Instant, sleep};

use crate::world::{NAME, TOKEN, World, value};

/// Secrets of one namespace.
#[derive(Default)]
struct Secrets(Mutex<BTreeMap<String, Secret>>);

impl Secrets {
    fn put(&self, name: &str, secret: Secret) {
        self.0.lock().unwrap().insert(name.to_owned(), secret);
    }
}

impl Sources for Secrets {
    fn secret(
        &self,
        _namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<Secret>, KubeError>> {
        let found = self.0.lock().unwrap().get(name).cloned();
        async move { Ok(found) }.boxed()
    }

    fn config_map(
        &self,
        _namespace: &str,
        _name: &str,
    ) -> BoxFuture<'static, Result<Option<ConfigMap>, KubeError>> {
        async move { Ok(None) }.boxed()
    }
}

struct Tenants {
    world: World,
    service: ActionsService,
    secrets: Arc<Secrets>,
    clients: Clients,
    /// The proxies by which vault and login were called, in order.
    ways: Arc<Mutex<Vec<Proxies>>>,
}

/// Notes the proxies of the transports that calls of the vault come over.
struct Ways<T: ?Sized> {
    vault: KeyVault,
    inner: Arc<T>,
    taken: Arc<Mutex<Vec<Proxies>>>,
}

/// One of these transports.
struct Way {
    ways: Ways<dyn Transport>,
    proxies: Proxies,
}

impl Transports for Ways<dyn Transports> {
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(Way {
            ways: Ways {
                vault: self.vault.clone(),
                inner: self.inner.transport(options)?,
                taken: Arc::clone(&self.taken),
            },
            proxies: options.proxies.clone(),
        }))
    }
}

impl Transport for Way {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>> {
        if self.ways.vault.answers_for(request.uri().host()) {
            self.ways.taken.lock().unwrap().push(self.proxies.clone());
        }
        self.ways.inner.send(request)
    }
}

impl Tenants {
    fn new() -> Self {
        Self::with(ClientsOptions::default())
    }

    fn with(options: ClientsOptions) -> Self {
        let world = World::new();
        let service = ActionsService::new(Options::new(world.clock.clone()));
        service.accept_only([TOKEN]);
        let secrets = Arc::new(Secrets::default());
        let ways = Arc::default();
        let transports = Arc::new(Ways {
            vault: world.vault.clone(),
            inner: with_key_vault(&world.vault, transports(&service)),
            taken: Arc::clone(&ways),
        });
        let clients = Clients::new(secrets.clone(), transports, world.clock.clone(), options);
        Self {
            world,
            service,
            secrets,
            clients,
            ways,
        }
    }

    fn tenant(&self) -> Tenant {
        Tenant {
            config_url: "https://github.com/acme".to_owned(),
            namespace: "team-a".to_owned(),
            secret: NAME.to_owned(),
            proxy: None,
            tls: None,
            vault: Some(VaultConfig {
                vault_type: AZURE_KEY_VAULT.to_owned(),
                azure_key_vault: Some(self.world.config.clone()),
                proxy: None,
            }),
        }
    }

    async fn call(&self, tenant: Tenant) -> Result<ActionsAnswer, ActionsError> {
        let name = "default".to_owned();
        let call = ActionsCall::GetRunnerGroup { name };
        self.clients.run(ActionsRequest { tenant, call }).await
    }
}

fn proxy(url: &str, secret: &str) -> ProxyConfig {
    ProxyConfig {
        https: Some(ProxyServerConfig {
            url: url.to_owned(),
            credential_secret_ref: secret.to_owned(),
        }),
        ..ProxyConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_uses_the_credentials_from_the_vault() {
    let tenants = Tenants::new();
    tenants.call(tenants.tenant()).await.unwrap();
    tenants.call(tenants.tenant()).await.unwrap();
    assert_eq!(tenants.world.vault.calls("vault_secret"), 2);
    sleep(Duration::from_secs(60)).await;
    tenants.call(tenants.tenant()).await.unwrap();
    assert_eq!(tenants.world.vault.calls("vault_secret"), 3);
    assert_eq!(tenants.world.vault.calls("vault_login"), 1);
}

#[tokio::test(start_paused = true)]
async fn tenants_of_one_vault_share_its_token() {
    let tenants = Tenants::new();
    let calls = (0..10).map(|number| {
        let mut tenant = tenants.tenant();
        tenant.namespace = format!("team-{number}");
        tenants.call(tenant)
    });
    for answer in join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(tenants.world.vault.calls("vault_login"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_credential_is_used_by_the_call_that_finds_the_old_one_refused() {
    let tenants = Tenants::new();
    tenants.call(tenants.tenant()).await.unwrap();
    tenants.service.accept_only(["ghp_Rotated"]);
    tenants.world.vault.put(NAME, &value("ghp_Rotated"));
    tenants.call(tenants.tenant()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_vault_out_of_order_leaves_the_client_in_use() {
    let tenants = Tenants::new();
    tenants.call(tenants.tenant()).await.unwrap();
    for outcome in [Outcome::Unreachable, Outcome::Hang] {
        let faults = tenants.world.vault.faults();
        faults.always("vault_secret", outcome);
        sleep(Duration::from_secs(61)).await;
        let began = Instant::now();
        tenants.call(tenants.tenant()).await.unwrap();
        let waited = began.elapsed();
        assert!(waited <= Duration::from_secs(5), "{waited:?}");
        let began = Instant::now();
        tenants.call(tenants.tenant()).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO, "only one call waits");
        faults.clear("vault_secret");
    }
}

#[tokio::test(start_paused = true)]
async fn the_vaults_own_proxy_leads_to_vault_and_login_and_nowhere_else() {
    let fallback = ProxyServer::parse("http://fallback.proxy:1").ok();
    let fallback = Proxies::new(None, fallback, []);
    let tenants = Tenants::with(ClientsOptions {
        default_proxies: fallback.clone(),
        ..ClientsOptions::default()
    });
    let login = [("username", "us@er"), ("password", "s3cret")];
    let data = login.map(|(key, value)| (key.to_owned(), ByteString(value.into())));
    let secret = Secret {
        data: Some(data.into()),
        ..Secret::default()
    };
    tenants.secrets.put("vault-login", secret);

    let mut tenant = tenants.tenant();
    tenant.proxy = Some(proxy("http://github.proxy:2", ""));
    tenants.call(tenant.clone()).await.unwrap();
    assert_eq!(*tenants.ways.lock().unwrap(), vec![fallback; 3]);

    let vault = tenant.vault.as_mut().unwrap();
    vault.proxy = Some(proxy("http://vault.proxy:3", "vault-login"));
    tenants.call(tenant.clone()).await.unwrap();
    let own = ProxyServer::parse("http://us%40er:s3cret@vault.proxy:3").ok();
    let own = Proxies::new(None, own, []);
    assert_eq!(tenants.ways.lock().unwrap()[3..], vec![own; 3]);

    let vault = tenant.vault.as_mut().unwrap();
    vault.proxy = Some(proxy("http://vault.proxy:3", "nobody"));
    let error = tenants.call(tenant).await.unwrap_err();
    assert_eq!(error.kind, ActionsErrorKind::Credentials);
    let field = "vaultConfig.proxy.https.credentialSecretRef";
    assert!(error.message.contains(field), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_had_says_by_its_kind_who_mends_it() {
    let tenants = Tenants::new();
    let vault = &tenants.world.vault;
    let refusal = async |tenant: Tenant| tenants.call(tenant).await.unwrap_err();

    let mut unknown = tenants.tenant();
    unknown.vault.as_mut().unwrap().vault_type = "hashicorp".to_owned();
    let error = refusal(unknown).await;
    assert_eq!(error.kind, ActionsErrorKind::Config);
    assert!(error.message.contains("hashicorp"), "{error}");

    let mut empty = tenants.tenant();
    empty.vault.as_mut().unwrap().azure_key_vault = None;
    let error = refusal(empty).await;
    assert_eq!(error.kind, ActionsErrorKind::Config);
    assert!(
        error.message.contains("azureKeyVault is not set"),
        "{error}"
    );

    vault.put(NAME, r#"{"github_app_id": 1}"#);
    let error = refusal(tenants.tenant()).await;
    assert_eq!(error.kind, ActionsErrorKind::Credentials);
    let parts = [
        "secret github-auth of the vault acme.vault.azure.net",
        "installation_id",
    ];
    for part in parts {
        assert!(error.message.contains(part), "{part}: {error}");
    }

    vault.close(true);
    assert_eq!(
        refusal(tenants.tenant()).await.kind,
        ActionsErrorKind::Unauthorized
    );
    vault.close(false);
    vault.faults().always("vault_login", Outcome::Unreachable);
    vault.revoke_tokens();
    assert_eq!(
        refusal(tenants.tenant()).await.kind,
        ActionsErrorKind::Unavailable
    );
    vault.faults().clear("vault_login");
    vault.put(NAME, &value(TOKEN));
    tenants.call(tenants.tenant()).await.unwrap();
}
