//! A client whose requests and answers take their time, for tests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tower::{BoxError, service_fn};

/// How late a request reaches the server, and its answer the client.
pub type Delays = Arc<Mutex<dyn FnMut(&Method) -> (Duration, Duration) + Send>>;

/// Delays that are drawn for each request.
pub fn delays(draw: impl FnMut(&Method) -> (Duration, Duration) + Send + 'static) -> Delays {
    Arc::new(Mutex::new(draw))
}

/// No delays.
pub fn in_time() -> Delays {
    delays(|_| (Duration::ZERO, Duration::ZERO))
}

/// The client with these delays.
pub fn late(client: Client, delays: Delays) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (before, after) = {
            let mut draw = delays.lock().unwrap_or_else(PoisonError::into_inner);
            draw(request.method())
        };
        let client = client.clone();
        // a request that was sent arrives, also when nobody waits for its answer any more
        let sent = tokio::spawn(async move {
            tokio::time::sleep(before).await;
            let answer = client.send(request).await;
            tokio::time::sleep(after).await;
            answer
        });
        async move { sent.await.map_err(BoxError::from)?.map_err(BoxError::from) }
    });
    Client::new(service, "default")
}
