//! Tenants against the embedded service, with Secrets and ConfigMaps from a map.

use crate::simulation::transports;
use futures::FutureExt as _;
use k8s_openapi::ByteString;
use secrecy::ExposeSecret as _;

use super::*;
use crate::actions::{Transport, TransportError};
use crate::api::{TlsCertificateSource, TlsConfig, VaultConfig};
use crate::messages::{ActionsCall, KubeErrorKind};
use embedded_actions::{ActionsService, Options};

#[derive(Default)]
struct Cluster(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    secrets: BTreeMap<(String, String), Secret>,
    config_maps: BTreeMap<(String, String), ConfigMap>,
    failure: Option<KubeError>,
    silent: bool,
    reads: u32,
}

impl Cluster {
    fn put_secret(&self, name: &str, pairs: &[(&str, &str)]) {
        let pairs = pairs.iter();
        let data = pairs.map(|(key, value)| {
            let value = ByteString(value.as_bytes().to_vec());
            ((*key).to_owned(), value)
        });
        let secret = Secret {
            data: Some(data.collect()),
            ..Secret::default()
        };
        let key = ("team-a".to_owned(), name.to_owned());
        self.0.lock().unwrap().secrets.insert(key, secret);
    }

    fn put_config_map(&self, name: &str, key: &str, value: &str) {
        let map = ConfigMap {
            data: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
            ..ConfigMap::default()
        };
        let key = ("team-a".to_owned(), name.to_owned());
        self.0.lock().unwrap().config_maps.insert(key, map);
    }

    fn fail(&self, kind: Option<KubeErrorKind>) {
        self.0.lock().unwrap().failure = kind.map(|kind| KubeError {
            kind,
            message: "the server says no".to_owned(),
            retry_after: None,
        });
    }

    fn reads(&self) -> u32 {
        self.0.lock().unwrap().reads
    }

    fn read<T: Send + 'static>(
        &self,
        find: impl FnOnce(&Objects) -> Option<T>,
    ) -> BoxFuture<'static, Result<Option<T>, KubeError>> {
        let mut objects = self.0.lock().unwrap();
        objects.reads += 1;
        let found = match &objects.failure {
            Some(error) => Err(error.clone()),
            None => Ok(find(&objects)),
        };
        let silent = objects.silent;
        async move {
            if silent {
                std::future::pending().await
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            found
        }
        .boxed()
    }
}

impl Sources for Cluster {
    fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<Secret>, KubeError>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.read(|objects| objects.secrets.get(&key).cloned())
    }

    fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<ConfigMap>, KubeError>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.read(|objects| objects.config_maps.get(&key).cloned())
    }
}

/// Transports that remember the options they were made with.
struct Recorded {
    inner: Arc<dyn Transports>,
    options: Mutex<Vec<TransportOptions>>,
}

impl Transports for Recorded {
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        self.options.lock().unwrap().push(options.clone());
        if options.root_ca.as_deref() == Some(b"no pem") {
            let problem = "the root certificate is not usable";
            return Err(TransportError::new(
                crate::actions::TransportErrorKind::Options,
                problem,
            ));
        }
        self.inner.transport(options)
    }
}

struct World {
    service: ActionsService,
    cluster: Arc<Cluster>,
    transports: Arc<Recorded>,
    clients: Clients,
}

fn world() -> World {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let service = ActionsService::new(Options::new(clock.clone()));
    service.accept_only(["ghp_one"]);
    let cluster = Arc::new(Cluster::default());
    cluster.put_secret("github", &[("github_token", "ghp_one\n")]);
    let transports = Arc::new(Recorded {
        inner: transports(&service),
        options: Mutex::default(),
    });
    let clients = Clients::new(
        cluster.clone(),
        transports.clone(),
        clock,
        ClientsOptions::default(),
    );
    World {
        service,
        cluster,
        transports,
        clients,
    }
}

fn tenant() -> Tenant {
    Tenant {
        config_url: "https://github.com/acme".to_owned(),
        namespace: "team-a".to_owned(),
        secret: "github".to_owned(),
        proxy: None,
        tls: None,
        vault: None,
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

fn root_ca(name: &str, key: &str) -> Option<TlsConfig> {
    Some(TlsConfig {
        certificate_from: Some(TlsCertificateSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                name: name.to_owned(),
                key: key.to_owned(),
                optional: None,
            }),
        }),
    })
}

impl World {
    async fn call(&self, tenant: Tenant) -> Result<ActionsAnswer, ActionsError> {
        let name = "default".to_owned();
        let call = ActionsCall::GetRunnerGroup { name };
        self.clients.run(ActionsRequest { tenant, call }).await
    }

    async fn refusal(&self, tenant: Tenant) -> ActionsError {
        self.call(tenant).await.unwrap_err()
    }
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_burst_share_a_read_of_the_sources_and_a_client() {
    let world = world();
    for _ in 0..5 {
        world.call(tenant()).await.unwrap();
    }
    assert_eq!(world.cluster.reads(), 1);
    tokio::time::sleep(BURST).await;
    world.call(tenant()).await.unwrap();
    assert_eq!(world.cluster.reads(), 2);
    assert_eq!(world.transports.options.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_credential_is_used_by_the_next_call_though_the_old_one_still_works() {
    let world = world();
    world.service.accept_only(["ghp_one", "ghp_two"]);
    world.call(tenant()).await.unwrap();
    world
        .cluster
        .put_secret("github", &[("github_token", "ghp_two")]);
    tokio::time::sleep(BURST).await;
    world.call(tenant()).await.unwrap();
    assert_eq!(world.transports.options.lock().unwrap().len(), 2);
    // the old client is let go, and its credential with it
    world.service.accept_only(["ghp_two"]);
    world.call(tenant()).await.unwrap();
    world.clients.0.forget_unused();
    let clients = world.clients.0.clients.lock().unwrap();
    let [(identity, _)] = clients.as_slice() else {
        panic!("{} clients", clients.len());
    };
    let Credentials::Token(token) = &identity.credentials else {
        panic!("not a token");
    };
    assert_eq!(token.expose_secret(), "ghp_two");
}

#[tokio::test(start_paused = true)]
async fn an_app_can_take_the_place_of_a_token_and_a_token_that_of_an_app() {
    let world = world();
    world.call(tenant()).await.unwrap();
    let key = include_str!("../../../tests/actions_client/key_files.rs");
    let (from, to) = (
        key.find("-----BEGIN PRIVATE").unwrap(),
        key.find("-----END PRIVATE").unwrap(),
    );
    let key = format!("{}-----END PRIVATE KEY-----", &key[from..to]);
    let app = [
        ("github_app_id", "123"),
        ("github_app_installation_id", "4711"),
        ("github_app_private_key", key.as_str()),
    ];
    world.cluster.put_secret("github", &app);
    world.service.accept_only([""; 0]);
    world.call(tenant()).await.unwrap();
    world.service.accept_only(["ghp_two"]);
    tokio::time::sleep(BURST).await;
    world.call(tenant()).await.unwrap();
    world
        .cluster
        .put_secret("github", &[("github_token", "ghp_two")]);
    tokio::time::sleep(BURST).await;
    world.call(tenant()).await.unwrap();
    assert_eq!(world.transports.options.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_makes_no_call_any_more_is_forgotten() {
    let world = world();
    world
        .cluster
        .put_secret("other", &[("github_token", "ghp_one")]);
    let mut other = tenant();
    other.secret = "other".to_owned();
    other.config_url.push_str("/widgets");
    world.call(tenant()).await.unwrap();
    world.call(other.clone()).await.unwrap();
    for _ in 0..2 {
        tokio::time::sleep(IDLE - BURST).await;
        world.call(other.clone()).await.unwrap();
        tokio::time::sleep(BURST).await;
        world.call(other.clone()).await.unwrap();
    }
    assert_eq!(world.clients.0.tenants.lock().unwrap().known.len(), 1);
    world.clients.0.forget_unused();
    assert_eq!(world.clients.0.clients.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_come_together_read_the_sources_once() {
    let world = world();
    let calls = (0..20).map(|_| world.call(tenant()));
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(world.cluster.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_credential_is_used_by_the_call_that_finds_the_old_one_refused() {
    let world = world();
    world.call(tenant()).await.unwrap();
    world.service.accept_only(["ghp_two"]);
    world
        .cluster
        .put_secret("github", &[("github_token", "ghp_two")]);
    world.call(tenant()).await.unwrap();
    assert_eq!(world.cluster.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_credential_that_did_not_change_is_told() {
    let world = world();
    world.service.accept_only(["ghp_two"]);
    let error = world.refusal(tenant()).await;
    assert_eq!(error.kind, ActionsErrorKind::Unauthorized);
    assert!(!error.message.contains("ghp_one"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn tenants_with_the_same_credentials_share_a_client() {
    let world = world();
    world
        .cluster
        .put_secret("copy", &[("github_token", "ghp_one")]);
    let mut other = tenant();
    other.secret = "copy".to_owned();
    world.call(tenant()).await.unwrap();
    world.call(other).await.unwrap();
    assert_eq!(world.transports.options.lock().unwrap().len(), 1);
    let mut repository = tenant();
    repository.config_url.push_str("/widgets");
    world.call(repository).await.unwrap();
    assert_eq!(world.transports.options.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named_with_what_to_do() {
    let world = world();
    world.cluster.put_secret("empty", &[("token", "s3cret")]);
    world.cluster.put_secret("half", &[("username", "s3cret")]);
    let app = [
        ("github_app_id", "123"),
        ("github_app_installation_id", "4711"),
        ("github_app_private_key", "-----BEGIN PUBLIC KEY-----s3cret"),
    ];
    world.cluster.put_secret("app", &app);
    world.cluster.put_config_map("ca", "ca.crt", "pem");
    let with = |change: &dyn Fn(&mut Tenant)| {
        let mut tenant = tenant();
        change(&mut tenant);
        tenant
    };
    for (tenant, parts) in [
        (
            with(&|tenant| tenant.secret = "none".to_owned()),
            ["team-a/none", "githubConfigSecret", "create it"],
        ),
        (
            with(&|tenant| tenant.secret = "empty".to_owned()),
            ["team-a/empty", "holds no credentials", "set github_token"],
        ),
        (
            with(&|tenant| tenant.secret = "app".to_owned()),
            [
                "Secret team-a/app",
                "github_app_private_key",
                "is a public key",
            ],
        ),
        (
            with(&|tenant| tenant.proxy = Some(proxy("http://p:1", "half"))),
            ["team-a/half", "proxy.https.credentialSecretRef", "password"],
        ),
        (
            with(&|tenant| tenant.proxy = Some(proxy("http://p:1", "none"))),
            [
                "team-a/none",
                "proxy.https.credentialSecretRef",
                "create it",
            ],
        ),
        (
            with(&|tenant| tenant.tls = root_ca("none", "ca.crt")),
            ["team-a/none", "githubServerTLS", "ca.crt"],
        ),
        (
            with(&|tenant| tenant.tls = root_ca("ca", "root.pem")),
            ["team-a/ca", "githubServerTLS", "root.pem"],
        ),
    ] {
        let error = world.refusal(tenant).await;
        assert_eq!(error.kind, ActionsErrorKind::Credentials, "{error}");
        for part in parts {
            assert!(error.message.contains(part), "{part}: {error}");
        }
        assert!(!error.message.contains("s3cret"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_leaves_the_client_in_use() {
    let world = world();
    world.call(tenant()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let given_up = tokio::time::timeout(Duration::from_millis(5), world.call(tenant()));
    assert!(given_up.await.is_err(), "reading the sources takes longer");
    world.cluster.fail(Some(KubeErrorKind::Unavailable));
    world.call(tenant()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_told_as_such() {
    let world = world();
    let mut bad_url = tenant();
    bad_url.config_url = "https://github.com".to_owned();
    let mut vault = tenant();
    vault.vault = Some(VaultConfig::default());
    let mut bad_proxy = tenant();
    bad_proxy.proxy = Some(proxy("socks5://p:1", ""));
    world.cluster.put_config_map("ca", "ca.crt", "no pem");
    let mut bad_certificate = tenant();
    bad_certificate.tls = root_ca("ca", "ca.crt");
    for (tenant, part) in [
        (
            bad_certificate,
            "key ca.crt of ConfigMap team-a/ca, named by githubServerTLS: the root certificate",
        ),
        (bad_url, "githubConfigUrl"),
        (vault, "vaultConfig.type \"\" is not a kind of vault"),
        (bad_proxy, "proxy.https"),
    ] {
        let error = world.refusal(tenant).await;
        assert_eq!(error.kind, ActionsErrorKind::Config, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_appears_is_used_by_the_next_call() {
    let world = world();
    let mut late = tenant();
    late.secret = "late".to_owned();
    world.refusal(late.clone()).await;
    world
        .cluster
        .put_secret("late", &[("github_token", "ghp_one")]);
    world.call(late).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_out_of_order_leaves_the_client_in_use() {
    let world = world();
    world.cluster.fail(Some(KubeErrorKind::Unavailable));
    let error = world.refusal(tenant()).await;
    assert_eq!(error.kind, ActionsErrorKind::Unavailable);
    assert!(
        error
            .message
            .contains("Secret team-a/github cannot be read"),
        "{error}"
    );
    world.cluster.fail(None);
    world.call(tenant()).await.unwrap();
    world.cluster.fail(Some(KubeErrorKind::Unavailable));
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.call(tenant()).await.unwrap();
    world.cluster.fail(Some(KubeErrorKind::Forbidden));
    tokio::time::sleep(Duration::from_secs(61)).await;
    let error = world.refusal(tenant()).await;
    assert_eq!(error.kind, ActionsErrorKind::Denied);
    // a Secret that goes with its namespace does not come back
    world
        .cluster
        .fail(Some(KubeErrorKind::NamespaceTerminating));
    tokio::time::sleep(Duration::from_secs(61)).await;
    let error = world.refusal(tenant()).await;
    assert_eq!(error.kind, ActionsErrorKind::Credentials);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_holds_up_one_call_and_no_other() {
    let world = world();
    let quiet = |silent| world.cluster.0.lock().unwrap().silent = silent;
    quiet(true);
    let begun = Instant::now();
    let error = world.refusal(tenant()).await;
    assert_eq!(error.kind, ActionsErrorKind::Unavailable);
    assert!(error.message.contains("could not be read"), "{error}");
    assert_eq!(begun.elapsed(), PATIENCE);
    quiet(false);
    world.call(tenant()).await.unwrap();
    quiet(true);
    tokio::time::sleep(BURST).await;
    let begun = Instant::now();
    for _ in 0..10 {
        world.call(tenant()).await.unwrap();
        tokio::time::sleep(BURST).await;
    }
    assert_eq!(begun.elapsed(), IN_USE + 10 * BURST);
}

#[tokio::test(start_paused = true)]
async fn the_transport_gets_the_certificate_and_the_proxy_with_its_credentials() {
    let world = world();
    let login = [("username", "proxy-user"), ("password", "s3cret")];
    world.cluster.put_secret("login", &login);
    world
        .cluster
        .put_config_map("ca", "ca.crt", "a certificate");
    let mut tenant = tenant();
    tenant.proxy = Some(proxy("http://proxy.acme.io:3128", "login"));
    tenant.tls = root_ca("ca", "ca.crt");
    world.call(tenant).await.unwrap();
    let server = ProxyServer::parse("http://proxy-user:s3cret@proxy.acme.io:3128");
    let expected = TransportOptions {
        root_ca: Some(b"a certificate".to_vec()),
        proxies: Proxies::new(None, server.ok(), []),
    };
    assert_eq!(*world.transports.options.lock().unwrap(), [expected]);
}

/// A proxy that knows one password.
struct Guarded {
    inner: Arc<dyn Transports>,
    accepted: Mutex<ProxyServer>,
}

struct Refusing;

impl Transport for Refusing {
    fn send(
        &self,
        _: http::Request<bytes::Bytes>,
    ) -> BoxFuture<'static, Result<http::Response<bytes::Bytes>, TransportError>> {
        let kind = crate::actions::TransportErrorKind::ProxyRefused;
        std::future::ready(Err(TransportError::new(kind, "the proxy refuses"))).boxed()
    }
}

impl Transports for Guarded {
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        let accepted = Proxies::new(None, Some(self.accepted.lock().unwrap().clone()), []);
        if options.proxies == accepted {
            self.inner.transport(options)
        } else {
            Ok(Arc::new(Refusing))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rotated_proxy_password_is_used_by_the_call_that_finds_the_old_one_refused() {
    let World {
        service, cluster, ..
    } = world();
    let server = |url: &str| ProxyServer::parse(url).unwrap();
    let guarded = Arc::new(Guarded {
        inner: transports(&service),
        accepted: Mutex::new(server("http://me:old@p:1")),
    });
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let options = ClientsOptions::default();
    let clients = Clients::new(cluster.clone(), guarded.clone(), clock, options);
    let call = || {
        let mut tenant = tenant();
        tenant.proxy = Some(proxy("http://p:1", "login"));
        let name = "default".to_owned();
        let call = ActionsCall::GetRunnerGroup { name };
        clients.run(ActionsRequest { tenant, call })
    };
    cluster.put_secret("login", &[("username", "me"), ("password", "old")]);
    call().await.unwrap();
    *guarded.accepted.lock().unwrap() = server("http://me:new@p:1");
    cluster.put_secret("login", &[("username", "me"), ("password", "new")]);
    tokio::time::sleep(BURST).await;
    call().await.unwrap();
    cluster.put_secret("login", &[("username", "me"), ("password", "wrong")]);
    tokio::time::sleep(BURST).await;
    let error = call().await.unwrap_err();
    assert_eq!(error.kind, ActionsErrorKind::Credentials);
    cluster.put_secret("login", &[("username", "me"), ("password", "new")]);
    call().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_or_vault_that_is_not_allowed_is_neither_called_nor_shown_a_credential() {
    let mut world = world();
    world.clients = Clients::new(
        world.cluster.clone(),
        world.transports.clone(),
        Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap()),
        ClientsOptions {
            policy: Policy {
                config_hosts: ["github.com".parse().unwrap()].into_iter().collect(),
                vaults: ["ours.vault.azure.net".parse().unwrap()]
                    .into_iter()
                    .collect(),
                ..Policy::default()
            },
            ..ClientsOptions::default()
        },
    );
    world.call(tenant()).await.unwrap();
    let made = world.transports.options.lock().unwrap().len();
    let reads = world.cluster.reads();

    let elsewhere = Tenant {
        config_url: "https://ghes.evil.io/acme".to_owned(),
        ..tenant()
    };
    let error = world.refusal(elsewhere).await;
    assert_eq!(error.kind, ActionsErrorKind::Config);
    assert!(error.message.contains("--allowed-config-hosts"), "{error}");

    let vault = Tenant {
        vault: Some(VaultConfig {
            vault_type: AZURE_KEY_VAULT.to_owned(),
            azure_key_vault: Some(AzureKeyVaultConfig {
                url: "https://theirs.vault.azure.net".to_owned(),
                ..AzureKeyVaultConfig::default()
            }),
            ..VaultConfig::default()
        }),
        ..tenant()
    };
    let error = world.refusal(vault).await;
    assert_eq!(error.kind, ActionsErrorKind::Config);
    assert!(error.message.contains("--allowed-vaults"), "{error}");

    assert_eq!(world.transports.options.lock().unwrap().len(), made);
    assert_eq!(world.cluster.reads(), reads);
}
