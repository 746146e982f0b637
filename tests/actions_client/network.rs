//! Over real connections on loopback: a port, proxies, and servers with certificates.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use impresario::actions::{Clients, ClientsOptions, Sources};
use impresario::messages::{
    ActionsAnswer, ActionsCall, ActionsErrorKind, ActionsRequest, KubeError, Tenant,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpListener;

use crate::loopback::{Proxy, proxy, tls_service};
use crate::world::*;

#[tokio::test]
async fn the_same_service_is_reached_over_a_port() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(service.clone().serve(listener));
    let url = ConfigUrl::parse(&format!("http://{address}/acme")).unwrap();
    let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let client = Client::new(options, transport.unwrap(), Clock::system()).unwrap();

    let set = client
        .create_scale_set("ci", 1, &["ci".to_owned()])
        .await
        .unwrap();
    let session = client.open_session(set.id, "listener-0").await.unwrap();
    let job = service.queue_job(JobSpec::on("ci"));
    let polled = client.get_message(&session, 0, 3).await.unwrap();
    let Polled::Message(message) = polled else {
        panic!("{polled:?}");
    };
    assert_eq!(kinds(&message), [("available", job)]);
    let acquired = client.acquire_jobs(set.id, &session, &[job]).await;
    assert_eq!(acquired, Ok(vec![job]));
    client.delete_message(&session, message.id).await.unwrap();

    service
        .faults()
        .always("get_scale_set", Outcome::LoseAnswer);
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let request = http::Request::get(format!(
        "http://{address}/tenants/1/_apis/runtime/runnerscalesets/1"
    ));
    let lost = transport
        .unwrap()
        .send(request.body(Bytes::new()).unwrap())
        .await;
    assert_eq!(lost.unwrap_err().kind, TransportErrorKind::Broken);

    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let request = http::Request::get(format!("http://user:s3cret@{address}/"));
    let refused = transport
        .unwrap()
        .send(request.body(Bytes::new()).unwrap())
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, TransportErrorKind::Connect, "{refused}");
    assert!(!refused.message.contains("s3cret"), "{refused}");
}

/// The config URL of a server that is reached through a proxy only: loopback never is.
const GHES: &str = "https://ghes.acme.test/acme/widgets";
const USER: &str = "us@er";
/// Every kind of character that a URL treats in its own way, and a `%` that is none.
const PASSWORD: &str = "p%41:/?#[]@!$&'()*+,;= \u{fc}~-._\\\"<>^`{|}";

fn client_with(url: &str, options: &TransportOptions) -> Client {
    let url = ConfigUrl::parse(url).unwrap();
    let options_of_client = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let transport = ReqwestTransports.transport(options).unwrap();
    Client::new(options_of_client, transport, Clock::system()).unwrap()
}

fn through(proxy: &Proxy, password: Option<&str>) -> Proxies {
    let server = ProxyServer::parse(&format!("http://{}", proxy.server.address)).unwrap();
    let server = match password {
        Some(password) => server.credentials(USER.to_owned(), password.into()),
        None => server,
    };
    Proxies::new(Some(server.clone()), Some(server), [])
}

fn shows_no(secret: &str, text: &str) {
    let encoded = [
        secret.to_owned(),
        STANDARD.encode(secret),
        STANDARD.encode(format!("{USER}:{secret}")),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
    ];
    for form in encoded {
        assert!(!text.contains(&form), "{text}");
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_when_it_is_named_and_refused_otherwise() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let (server, authority) = tls_service(&service, &["localhost", "127.0.0.1"]).await;
    let url = format!("https://{}/acme", server.address);
    let trusting = TransportOptions {
        root_ca: Some(authority.into_bytes()),
        ..TransportOptions::default()
    };
    let client = client_with(&url, &trusting);
    let labels = ["ci".to_owned()];
    let set = client.create_scale_set("ci", 1, &labels).await.unwrap();
    assert_eq!(client.get_scale_set(set.id).await, Ok(Some(set)));

    let client = client_with(&url, &TransportOptions::default());
    let error = client.get_scale_set(1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    let text = error.to_string();
    for part in ["127.0.0.1", "is not trusted", "githubServerTLS"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_with_the_reason() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let (server, authority) = tls_service(&service, &["other.acme.test"]).await;
    let trusting = TransportOptions {
        root_ca: Some(authority.into_bytes()),
        ..TransportOptions::default()
    };
    let client = client_with(&format!("https://{}/acme", server.address), &trusting);
    let error = client.get_scale_set(1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    assert!(error.message.contains("cannot be accepted"), "{error}");
}

#[tokio::test]
async fn a_proxy_with_a_password_connects_to_a_server_of_a_private_authority() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let (server, authority) = tls_service(&service, &["ghes.acme.test"]).await;
    let proxy = proxy(USER, PASSWORD, server.address).await;
    let both = TransportOptions {
        root_ca: Some(authority.into_bytes()),
        proxies: through(&proxy, Some(PASSWORD)),
    };
    let client = client_with(GHES, &both);
    let labels = ["ci".to_owned()];
    let set = client.create_scale_set("ci", 1, &labels).await.unwrap();
    let session = client.open_session(set.id, "listener-0").await.unwrap();
    let job = service.queue_job(JobSpec::on("ci"));
    let polled = client.get_message(&session, 0, 3).await.unwrap();
    let Polled::Message(message) = polled else {
        panic!("{polled:?}");
    };
    assert_eq!(kinds(&message), [("available", job)]);
    let served = proxy.served.lock().unwrap().clone();
    let connect = |line: &String| line == "CONNECT ghes.acme.test:443 HTTP/1.1";
    assert!(
        !served.is_empty() && served.iter().all(connect),
        "{served:?}"
    );

    // the proxy alone does not make the authority trusted
    let untrusting = TransportOptions {
        root_ca: None,
        ..both
    };
    let error = client_with(GHES, &untrusting).get_scale_set(1).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    assert!(error.message.contains("ghes.acme.test"), "{error}");
    shows_no(PASSWORD, &format!("{error} {error:?}"));
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_with_what_to_do_and_without_the_password() {
    let (_nobody, target) = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    };
    let proxy = proxy(USER, PASSWORD, target).await;
    let wrong = "wr%6fng/p@ss";
    for (password, advice) in [
        (Some(wrong), "refuses the user and password"),
        (None, "asks for a user and password"),
    ] {
        let options = TransportOptions {
            root_ca: None,
            proxies: through(&proxy, password),
        };
        // over TLS the proxy refuses to connect, without it the request itself
        for url in [GHES, "http://ghes.acme.test/acme/widgets"] {
            let error = client_with(url, &options).get_scale_set(1).await;
            let error = error.unwrap_err();
            assert_eq!(error.kind, ErrorKind::ProxyRefused, "{error}");
            let text = format!("{error} {error:?}");
            for part in [
                &proxy.server.address.to_string(),
                advice,
                "credentialSecretRef",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
            shows_no(wrong, &text);
        }
    }
    assert!(proxy.served.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let server = ProxyServer::parse(&format!("http://u:{TOKEN}@{gone}")).unwrap();
    let options = TransportOptions {
        root_ca: None,
        proxies: Proxies::new(None, Some(server), []),
    };
    let transport = ReqwestTransports.transport(&options).unwrap();
    let request = http::Request::get("https://ghes.acme.test/api/v3/x");
    let error = transport.send(request.body(Bytes::new()).unwrap()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::Connect, "{error}");
    let named = format!("ghes.acme.test cannot be reached through the proxy {gone}");
    assert!(error.message.contains(&named), "{error}");
    shows_no(TOKEN, &format!("{error} {error:?}"));
}

#[tokio::test]
async fn a_request_through_a_proxy_without_tls_names_its_target() {
    let (_nobody, target) = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    };
    let proxy = proxy(USER, PASSWORD, target).await;
    let options = TransportOptions {
        root_ca: None,
        proxies: through(&proxy, Some(PASSWORD)),
    };
    let transport = ReqwestTransports.transport(&options).unwrap();
    let request = http::Request::get("http://ghes.acme.test/api/v3/x");
    let answer = transport.send(request.body(Bytes::new()).unwrap()).await;
    assert_eq!(answer.unwrap().body(), "{}");
    let served = proxy.served.lock().unwrap();
    assert_eq!(*served, ["GET http://ghes.acme.test/api/v3/x HTTP/1.1"]);
}

/// Secrets and ConfigMaps of one namespace.
#[derive(Default)]
struct Objects {
    secrets: Mutex<BTreeMap<String, Secret>>,
    config_maps: Mutex<BTreeMap<String, ConfigMap>>,
}

impl Objects {
    fn secret(&self, name: &str, pairs: &[(&str, &str)]) {
        let pairs = pairs.iter().map(|(key, value)| {
            let value = ByteString(value.as_bytes().to_vec());
            ((*key).to_owned(), value)
        });
        let secret = Secret {
            data: Some(pairs.collect()),
            ..Secret::default()
        };
        self.secrets.lock().unwrap().insert(name.to_owned(), secret);
    }

    fn authority(&self, pem: &str) {
        let map = ConfigMap {
            data: Some(BTreeMap::from([("ca.crt".to_owned(), pem.to_owned())])),
            ..ConfigMap::default()
        };
        let mut maps = self.config_maps.lock().unwrap();
        maps.insert("authority".to_owned(), map);
    }
}

impl Sources for Objects {
    fn secret(&self, _: &str, name: &str) -> BoxFuture<'static, Result<Option<Secret>, KubeError>> {
        let found = self.secrets.lock().unwrap().get(name).cloned();
        std::future::ready(Ok(found)).boxed()
    }

    fn config_map(
        &self,
        _: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<ConfigMap>, KubeError>> {
        let found = self.config_maps.lock().unwrap().get(name).cloned();
        std::future::ready(Ok(found)).boxed()
    }
}

/// From the Secret and the ConfigMap that a scale set names, through a real proxy, to a real
/// server. What is wrong is mended where it is, and the next call goes well.
#[tokio::test]
async fn password_and_authority_come_from_secret_and_config_map_and_can_be_mended_there() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let (server, authority) = tls_service(&service, &["ghes.acme.test"]).await;
    let (_other, foreign) = tls_service(&service, &["ghes.acme.test"]).await;
    let proxy = proxy(USER, PASSWORD, server.address).await;
    let objects = Arc::new(Objects::default());
    objects.secret("github", &[("github_token", TOKEN)]);
    objects.secret("login", &[("username", USER), ("password", "wrong")]);
    objects.authority(&foreign);
    let tenant: Tenant = Tenant {
        config_url: GHES.to_owned(),
        namespace: "team-a".to_owned(),
        secret: "github".to_owned(),
        proxy: serde_json::from_value(serde_json::json!({"https": {
            "url": format!("http://{}", proxy.server.address),
            "credentialSecretRef": "login",
        }}))
        .unwrap(),
        tls: serde_json::from_value(serde_json::json!({"certificateFrom": {
            "configMapKeyRef": {"name": "authority", "key": "ca.crt"},
        }}))
        .unwrap(),
        vault: None,
    };
    let clients = Clients::new(
        objects.clone(),
        Arc::new(ReqwestTransports),
        Clock::system(),
        ClientsOptions::default(),
    );
    let call = async || {
        let name = "default".to_owned();
        let request = ActionsRequest {
            tenant: tenant.clone(),
            call: ActionsCall::GetRunnerGroup { name },
        };
        clients.run(request).await
    };
    let error = call().await.unwrap_err();
    assert_eq!(error.kind, ActionsErrorKind::Credentials, "{error}");
    assert!(error.message.contains("credentialSecretRef"), "{error}");

    objects.secret("login", &[("username", USER), ("password", PASSWORD)]);
    let error = call().await.unwrap_err();
    assert_eq!(error.kind, ActionsErrorKind::Config, "{error}");
    assert!(error.message.contains("is not trusted"), "{error}");
    shows_no(PASSWORD, &format!("{error:?}"));

    objects.authority(&authority);
    assert!(matches!(call().await, Ok(ActionsAnswer::Group(_))));
}
