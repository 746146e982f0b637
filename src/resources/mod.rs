//! Builders of the objects we want to exist: pure functions, one file per object.
//!
//! A builder gets the owner and what was read for it, and answers with the whole object as
//! it should be, the same for the same input to the last byte. It may know [`crate::api`] and
//! the vocabulary of [`crate::messages`]; it does no I/O and knows no time and no chance.

mod autoscaling_listener;
mod ephemeral_runner;
mod ephemeral_runner_set;
mod error;
mod jit_secret;
mod labels;
mod listener_access;
mod listener_pod;
mod listener_secrets;
mod listener_template;
mod metadata;
pub mod names;
mod proxy;
mod runner_pod;
mod scale_set;
mod settings;
mod sources;
#[cfg(test)]
pub(crate) mod test_support;

pub use autoscaling_listener::autoscaling_listener;
pub use ephemeral_runner::ephemeral_runner;
pub use ephemeral_runner_set::{ephemeral_runner_set, ephemeral_runner_spec, runner_metadata};
pub use error::ConfigError;
pub use jit_secret::{JitRecord, jit_secret, read_jit_secret};
pub use labels::{owned_labels, url_labels};
pub use listener_access::{listener_role, listener_role_binding, listener_service_account};
pub use listener_pod::listener_pod;
pub use listener_secrets::{listener_config_secret, listener_proxy_secret};
pub use metadata::{metadata_patch, owner_reference, provide_annotation};
pub use names::{
    listener_config_secret_name, listener_name, listener_proxy_secret_name, runner_name,
    runner_proxy_secret_name,
};
pub use proxy::{ProxyCredentials, proxy_env_data, runner_proxy_secret};
pub use runner_pod::{has_container_hooks, runner_pod, work_folder};
pub use scale_set::{scale_set_labels, scale_set_name, tenant_of_runner, tenant_of_set};
pub use settings::ControllerSettings;
pub use sources::{Sources, listener_sources, runner_proxy_sources};
