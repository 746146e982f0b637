//! What the operator of a shared cluster lets an AutoscalingRunnerSet ask for, beyond what its
//! author has rights to: a pod in the controller's namespace, the controller's identity at a
//! vault, and requests from the controller's network.
//!
//! Pure. The default allows all that ARC allows; `docs/security.md` tells when that is enough.

mod listener_template;

use std::fmt;
use std::str::FromStr;

use super::validation::{FieldProblem, ValidationErrors};
use super::{AutoscalingListenerSpec, AutoscalingRunnerSet, ConfigUrl, VaultConfig};

/// What scale sets may ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What a listener's template may contain.
    pub listener_template: ListenerTemplatePolicy,
    /// Hosts that a config URL may name.
    pub config_hosts: AllowedHosts,
    /// Hosts of the vaults that the controller's certificate may be shown to.
    pub vaults: AllowedHosts,
}

/// What a listener's template may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListenerTemplatePolicy {
    /// Everything, as with ARC: who may write an AutoscalingRunnerSet may run any pod in the
    /// controller's namespace.
    #[default]
    Compatible,
    /// Nothing that reaches beyond the listener's own pod.
    Restricted,
}

impl FromStr for ListenerTemplatePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" | "compatible" => Ok(Self::Compatible),
            "restricted" => Ok(Self::Restricted),
            _ => Err(format!(
                "\"{text}\" is no policy; use compatible or restricted"
            )),
        }
    }
}

/// Hosts that are allowed; without any, all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<HostPattern>);

/// A host (`ghes.acme.io`, with `:8443` only that port) or all below a domain (`*.ghe.com`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// In lower case, without the star.
    host: String,
    port: Option<u16>,
    is_domain: bool,
}

impl FromIterator<HostPattern> for AllowedHosts {
    fn from_iter<I: IntoIterator<Item = HostPattern>>(patterns: I) -> Self {
        Self(patterns.into_iter().collect())
    }
}

impl AllowedHosts {
    /// Whether a host is allowed. `port` is the one in effect, also where the URL leaves it to
    /// its scheme.
    #[must_use]
    pub fn allow(&self, host: &str, port: Option<u16>) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(&host, port))
    }
}

impl HostPattern {
    fn matches(&self, host: &str, port: Option<u16>) -> bool {
        let is_host = if self.is_domain {
            host.strip_suffix(self.host.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.host
        };
        is_host && (self.port.is_none() || self.port == port)
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || {
            format!(
                "\"{text}\" is no host; use a host as ghes.acme.io, one port of it as \
                 ghes.acme.io:8443, or all below a domain as *.ghe.com"
            )
        };
        let (is_domain, rest) = match text.trim().strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        // an IPv6 address stands in brackets
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| error())?))
            }
            _ => (rest, None),
        };
        let is_address = host.starts_with('[') && host.ends_with(']') && !is_domain;
        let is_name = !host.is_empty()
            && !host.starts_with('.')
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
        if !is_name && !is_address {
            return Err(error());
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
            is_domain,
        })
    }
}

impl fmt::Display for AllowedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pattern) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let star = if pattern.is_domain { "*." } else { "" };
            write!(f, "{separator}{star}{}", pattern.host)?;
            if let Some(port) = pattern.port {
                write!(f, ":{port}")?;
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Judges what a scale set asks for.
    ///
    /// # Errors
    ///
    /// All fields that ask for what is not allowed, each with what to do.
    pub fn check(&self, scale_set: &AutoscalingRunnerSet) -> Result<(), ValidationErrors> {
        let spec = &scale_set.spec;
        let mut problems = Vec::new();
        self.config_url(&spec.github_config_url, &mut problems);
        self.vault(spec.vault_config.as_ref(), &mut problems);
        if self.listener_template == ListenerTemplatePolicy::Restricted {
            if let Some(template) = &spec.listener_template {
                listener_template::restrict("spec.listenerTemplate", template, &mut problems);
            }
            let metadata = spec.listener_service_account_metadata.as_ref();
            if metadata.is_some_and(|given| *given != Default::default()) {
                problems.push(FieldProblem {
                    path: "spec.listenerServiceAccountMetadata".to_owned(),
                    message: "is set, and can give the listener's ServiceAccount an identity in \
                              a cloud; remove it"
                        .to_owned(),
                });
            }
        }
        ValidationErrors::of(problems)
    }

    /// Whether a listener that was made earlier asks only for what is allowed now.
    #[must_use]
    pub fn allows_listener(&self, listener: &AutoscalingListenerSpec) -> bool {
        let mut problems = Vec::new();
        self.config_url(&listener.github_config_url, &mut problems);
        self.vault(listener.vault_config.as_ref(), &mut problems);
        if self.listener_template == ListenerTemplatePolicy::Restricted {
            if let Some(template) = &listener.template {
                listener_template::restrict("spec.template", template, &mut problems);
            }
            let metadata = listener.service_account_metadata.as_ref();
            if metadata.is_some_and(|given| *given != Default::default()) {
                return false;
            }
        }
        problems.is_empty()
    }

    /// Whether calls to the service of this config URL are allowed.
    ///
    /// # Errors
    ///
    /// What to do when they are not.
    pub fn check_config_url(&self, url: &ConfigUrl) -> Result<(), String> {
        if self.config_hosts.allow(url.host(), url.port()) {
            return Ok(());
        }
        Err(format!(
            "the host {} is not among those that the controller may call ({}); use one of them, or \
             have it added to the controller's --allowed-config-hosts",
            url.authority, self.config_hosts
        ))
    }

    /// Whether the controller may show its certificate for a vault.
    ///
    /// # Errors
    ///
    /// What to do when it may not.
    pub fn check_vault(&self, vault: &VaultConfig) -> Result<(), String> {
        let url = vault
            .azure_key_vault
            .as_ref()
            .and_then(|azure| azure.parsed_url());
        // a URL that is none is another finding
        let Some((url, host)) = url
            .as_ref()
            .and_then(|url| url.host_str().map(|host| (url, host)))
        else {
            return Ok(());
        };
        if self.vaults.allow(host, url.port_or_known_default()) {
            return Ok(());
        }
        Err(format!(
            "the vault {host} is not among those that the controller may read ({}); use one of \
             them, or have it added to the controller's --allowed-vaults",
            self.vaults
        ))
    }

    fn config_url(&self, url: &str, problems: &mut Vec<FieldProblem>) {
        // a URL that is none is another finding
        let Ok(url) = ConfigUrl::parse(url) else {
            return;
        };
        if let Err(message) = self.check_config_url(&url) {
            problems.push(FieldProblem {
                path: "spec.githubConfigUrl".to_owned(),
                message,
            });
        }
    }

    fn vault(&self, vault: Option<&VaultConfig>, problems: &mut Vec<FieldProblem>) {
        if let Some(Err(message)) = vault.map(|vault| self.check_vault(vault)) {
            problems.push(FieldProblem {
                path: "spec.vaultConfig.azureKeyVault.url".to_owned(),
                message,
            });
        }
    }
}

#[cfg(test)]
mod tests;
