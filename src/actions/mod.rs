//! Client of the GitHub Actions service.
//!
//! [`Clients`] runs the calls that actors ask for: it reads a tenant's credentials, proxies
//! and root certificate and shares one [`Client`] among all that have the same. A
//! [`Client`] knows the protocol: the chain of tokens, deadlines, retries, and what each
//! refusal means. The HTTP itself is behind [`Transport`], so that a simulation needs no
//! socket.
//!
//! ```text
//!  ActionsRequest ─► Clients ─► Client ─► Transport ─► reqwest, or the embedded service
//!                      │           └ tokens: credentials ─► registration ─► tenant
//!                      └ CredentialSource: Secrets of Kubernetes, or a KeyVault
//! ```
//!
//! No secret reaches a log, an error or a `Debug` text.

mod app_key;
mod client;
mod clients;
mod credentials;
mod error;
mod exchange;
mod options;
mod proxy;
mod retry;
mod session;
mod tokens;
mod transport;
mod trouble;
mod vault;
mod wire;

pub use client::Client;
pub use clients::{Clients, ClientsOptions, Sources};
pub use credentials::{
    CredentialSource, Fields, SourceError, SourceErrorKind, read_credentials, same_credentials,
};
pub use error::{Error, ErrorKind, Ids};
pub use options::{COMMIT, ClientOptions, Observer, UserAgent};
pub use proxy::{Proxies, ProxyError, ProxyServer};
pub use session::{JobDetails, JobMessage, Message, Polled, Session, Statistics};
pub use transport::{
    AnswerLimit, ReqwestTransport, ReqwestTransports, Transport, TransportError,
    TransportErrorKind, TransportOptions, Transports,
};
pub use vault::{KeyVault, VaultError};
