//! Ways of our clients to the embedded services, within the process.

use std::sync::Arc;

use bytes::Bytes;
use embedded_actions::{ActionsService, KeyVault, Lost};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};

use crate::actions::{Transport, TransportError, TransportErrorKind, TransportOptions, Transports};

type Sent = BoxFuture<'static, Result<Response<Bytes>, TransportError>>;

/// Transports to this service, whatever the host of a request.
#[must_use]
pub fn transports(service: &ActionsService) -> Arc<dyn Transports> {
    Arc::new(ToService(service.clone()))
}

/// Transports to this vault and its tenant, and for all other hosts over the other ones.
#[must_use]
pub fn with_key_vault(vault: &KeyVault, others: Arc<dyn Transports>) -> Arc<dyn Transports> {
    Arc::new(ToVault {
        vault: vault.clone(),
        others,
    })
}

#[derive(Clone)]
struct ToService(ActionsService);

impl Transports for ToService {
    fn transport(&self, _options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Transport for ToService {
    fn send(&self, request: Request<Bytes>) -> Sent {
        let service = self.0.clone();
        async move { service.handle(request).await.map_err(broken) }.boxed()
    }
}

/// Transports, or one of them, with a vault in front.
struct ToVault<T: ?Sized> {
    vault: KeyVault,
    others: Arc<T>,
}

impl Transports for ToVault<dyn Transports> {
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(ToVault {
            vault: self.vault.clone(),
            others: self.others.transport(options)?,
        }))
    }
}

impl Transport for ToVault<dyn Transport> {
    fn send(&self, request: Request<Bytes>) -> Sent {
        if !self.vault.answers_for(request.uri().host()) {
            return self.others.send(request);
        }
        let vault = self.vault.clone();
        async move { vault.handle(request).await.map_err(broken) }.boxed()
    }
}

fn broken(lost: Lost) -> TransportError {
    let kind = match lost {
        Lost::Unreachable => TransportErrorKind::Connect,
        Lost::Request | Lost::Answer => TransportErrorKind::Broken,
    };
    TransportError::new(kind, lost.to_string())
}
