//! What the controller was started with, as far as objects and decisions depend on it.

use std::time::Duration;

use crate::api::Policy;

/// Settings of one controller process. Resolved once, at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Namespace the controller runs in; its AutoscalingListeners live there.
    pub namespace: String,
    /// The listener's image.
    pub listener_image: String,
    /// Names of the Secrets to pull that image with.
    pub image_pull_secrets: Vec<String>,
    /// Command of the listener's container.
    pub listener_entrypoint: String,
    /// Address the listeners serve metrics on, `host:port` or `:port`; empty or `0` turns them
    /// off.
    pub listener_metrics_addr: String,
    /// Path the listeners serve metrics under.
    pub listener_metrics_endpoint: String,
    /// Log level handed to the listeners.
    pub log_level: String,
    /// Log format handed to the listeners.
    pub log_format: String,
    /// Labels of a scale set with one of these prefixes are not passed down.
    pub excluded_label_prefixes: Vec<String>,
    /// Value of the version label, and part of the user agents.
    pub version: String,
    /// How often sources that cannot be watched are read again.
    pub sync_period: Duration,
    /// After how long a pod that hangs in deletion on a lost node is removed with grace 0.
    pub force_delete_lost_pods_after: Option<Duration>,
    /// Every host is treated as a GitHub Enterprise Server, by the listeners as well.
    pub force_ghes: bool,
    /// What scale sets may ask for in the controller's namespace and of its identity.
    pub policy: Policy,
}

impl ControllerSettings {
    /// Address the listeners serve metrics on; `None` when they serve none. ARC's chart passes
    /// `0` for none.
    #[must_use]
    pub fn listener_metrics_address(&self) -> Option<&str> {
        match self.listener_metrics_addr.as_str() {
            "" | "0" => None,
            address => Some(address),
        }
    }

    /// Port of that address, where it has one.
    #[must_use]
    pub fn listener_metrics_port(&self) -> Option<u16> {
        let (_, port) = self.listener_metrics_address()?.rsplit_once(':')?;
        port.parse().ok().filter(|port| *port != 0)
    }
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            namespace: "impresario".to_owned(),
            listener_image: format!("impresario:{}", env!("CARGO_PKG_VERSION")),
            image_pull_secrets: Vec::new(),
            listener_entrypoint: "/ghalistener".to_owned(),
            listener_metrics_addr: String::new(),
            listener_metrics_endpoint: String::new(),
            log_level: "info".to_owned(),
            log_format: "text".to_owned(),
            excluded_label_prefixes: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sync_period: Duration::from_secs(60),
            force_delete_lost_pods_after: None,
            force_ghes: false,
            policy: Policy::default(),
        }
    }
}
