//! The two ways in: a tower service for the kube client in process, and a port.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpListener;

use super::http::{Body, BodyError, refusal};
use super::status::ApiError;
use super::{ApiServer, Identity};

/// Largest request body: the real server's limit is about the same.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

impl ApiServer {
    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_of(Identity::admin(), None)
    }

    /// A client that may do everything and gives its name, by which its requests are counted.
    #[must_use]
    pub fn client_named(&self, user_agent: &'static str) -> kube::Client {
        let user_agent = HeaderValue::from_static(user_agent);
        self.client_of(Identity::admin(), Some(user_agent))
    }

    /// A client for whom the roles in the store decide.
    #[must_use]
    pub fn client_as(&self, user: &str, groups: &[&str]) -> kube::Client {
        self.client_of(Identity::new(user, groups), None)
    }

    /// A client that calls itself as its user unless another name is given.
    fn client_of(&self, identity: Identity, user_agent: Option<HeaderValue>) -> kube::Client {
        let user_agent = user_agent.or_else(|| HeaderValue::from_str(&identity.user).ok());
        let service = InProcess {
            server: self.clone(),
            user_agent,
            identity: Arc::new(identity),
        };
        kube::Client::new(service, "default")
    }

    /// Serves HTTP/1.1 until accepting connections fails. Whoever connects may do
    /// everything, or what the user named by impersonation headers may.
    ///
    /// # Errors
    /// When no more connections can be accepted.
    pub fn serve(
        &self,
        listener: TcpListener,
    ) -> impl Future<Output = io::Result<Infallible>> + Send + 'static {
        let server = self.clone();
        embedded_http::serve(listener, move |request| receive(server.clone(), request))
    }
}

/// The server as a service of the kube client.
#[derive(Clone)]
struct InProcess {
    server: ApiServer,
    identity: Arc<Identity>,
    user_agent: Option<HeaderValue>,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Body>;
    type Error = BodyError;
    type Future = BoxFuture<'static, Result<Response<Body>, BodyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            if let Some(user_agent) = &this.user_agent {
                let headers = &mut parts.headers;
                headers.entry(USER_AGENT).or_insert(user_agent.clone());
            }
            let body = body.collect_bytes().await?;
            let request = Request::from_parts(parts, body);
            Ok(this.server.answer(request, &this.identity).await?)
        })
    }
}

async fn receive(
    server: ApiServer,
    request: Request<hyper::body::Incoming>,
) -> Result<Response<Body>, BodyError> {
    let request = match embedded_http::read_whole(request, LARGEST_BODY).await {
        Ok(request) => request,
        Err(error) => {
            let text = format!("Request entity too large or broken: {error}");
            return Ok(refusal(&ApiError::new(413, "RequestEntityTooLarge", text)));
        }
    };
    let identity = impersonated(request.headers()).unwrap_or_else(Identity::admin);
    Ok(server.answer(request, &identity).await?)
}

fn impersonated(headers: &HeaderMap) -> Option<Identity> {
    let user = headers.get("impersonate-user")?.to_str().ok()?;
    let groups = headers.get_all("impersonate-group").iter();
    let groups: Vec<&str> = groups.filter_map(|value| value.to_str().ok()).collect();
    Some(Identity::new(user, &groups))
}
