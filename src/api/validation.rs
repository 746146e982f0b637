//! Whether a scale set makes sense as a whole: what a schema cannot say.
//!
//! Pure. All problems are found at once, each with the path of its field and what to do,
//! since a person who mends one at a time needs as many rounds as there are problems.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, io};

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use serde::Serialize;
use url::Url;

use super::common::{
    AZURE_KEY_VAULT, AzureKeyVaultConfig, HistogramMetric, ProxyConfig, ResourceMeta, TlsConfig,
    VaultConfig,
};
use super::constants::RUNNER_CONTAINER;
use super::names::{key_problem, label_value_problem, subdomain_problem};
use super::{AutoscalingRunnerSet, ConfigUrl};

/// Longest name of a scale set. The listener's name adds 18 characters to it and is the
/// value of a label, of which Kubernetes takes 63.
pub const MAX_SCALE_SET_NAME: usize = 45;
/// Longest name or label that jobs use in `runs-on`.
const MAX_RUNS_ON: usize = 256;

/// Most labels of a scale set beside its name.
const MAX_LABELS: usize = 1_000;
/// Longest pod template, as JSON. Each runner carries it, in the API server and in our memory.
const MAX_TEMPLATE: usize = 256 << 10;
/// Longest text about all problems together; a condition takes 32 768 characters.
const MAX_TEXT: usize = 4_096;

/// One field that does not make sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldProblem {
    /// The field, as `spec.template.spec.containers[0].name`.
    pub path: String,
    /// What is wrong with it and what to do.
    pub message: String,
}

/// All that does not make sense in one object; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ValidationErrors {
    problems: Vec<FieldProblem>,
}

impl ValidationErrors {
    /// As an error, if there are any.
    pub(super) fn of(problems: Vec<FieldProblem>) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(Self { problems })
    }

    /// The problems, in the order of the fields.
    #[must_use]
    pub fn problems(&self) -> &[FieldProblem] {
        &self.problems
    }
}

/// The problems in one line, apart by semicolons, as many as make a text of bearable length.
impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = MAX_TEXT;
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            let text = format!("{separator}{problem}");
            match text.char_indices().nth(left) {
                None => f.write_str(&text)?,
                Some((end, _)) => {
                    let more = self.problems.len() - index - 1;
                    return write!(f, "{}… and {more} more problems", &text[..end]);
                }
            }
            left -= text.chars().count();
        }
        Ok(())
    }
}

impl AutoscalingRunnerSet {
    /// Judges the scale set as a whole.
    ///
    /// # Errors
    ///
    /// All fields that do not make sense.
    pub fn validate(&self) -> Result<(), ValidationErrors> {
        let mut check = Check::default();
        check.identity(self);
        check.source(self);
        check.counts(self.spec.min_runners, self.spec.max_runners);
        check.runner_template(&self.spec.template);
        if let Some(template) = &self.spec.listener_template {
            check.template("spec.listenerTemplate", template);
        }
        if let Some(metrics) = &self.spec.listener_metrics {
            check.buckets(&metrics.histograms);
        }
        check.owned_metadata(self);
        check.end()
    }
}

/// Problems found so far.
#[derive(Default)]
struct Check {
    problems: Vec<FieldProblem>,
}

impl Check {
    fn end(self) -> Result<(), ValidationErrors> {
        ValidationErrors::of(self.problems)
    }

    fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(FieldProblem {
            path: path.into(),
            message: message.into(),
        });
    }

    /// Its names, in Kubernetes and in GitHub.
    fn identity(&mut self, scale_set: &AutoscalingRunnerSet) {
        let name = scale_set.metadata.name.as_deref().unwrap_or_default();
        if name.len() > MAX_SCALE_SET_NAME {
            self.problem(
                "metadata.name",
                format!(
                    "\"{name}\" has {} characters; use at most {MAX_SCALE_SET_NAME}, so that \
                     the names made from it fit",
                    name.len()
                ),
            );
        }
        let spec = &scale_set.spec;
        if !spec.runner_scale_set_name.is_empty() {
            self.runs_on("spec.runnerScaleSetName", &spec.runner_scale_set_name);
        }
        let labels = &spec.runner_scale_set_labels;
        if labels.len() > MAX_LABELS {
            let message = format!("has {} labels; use at most {MAX_LABELS}", labels.len());
            self.problem("spec.runnerScaleSetLabels", message);
        }
        // a label that is there twice is registered once
        for (index, label) in labels.iter().take(MAX_LABELS).enumerate() {
            let path = format!("spec.runnerScaleSetLabels[{index}]");
            if label.is_empty() {
                self.problem(path, "is empty; give the label a name or remove it");
            } else {
                self.runs_on(&path, label);
            }
        }
    }

    /// A name that jobs use in `runs-on`.
    fn runs_on(&mut self, path: &str, text: &str) {
        if text.trim() != text || text.contains(|character: char| character.is_control()) {
            let message = format!(
                "{text:?} has white space at an end or control characters; remove them, since \
                 no job can name it in runs-on"
            );
            self.problem(path, message);
        }
        if text.len() > MAX_RUNS_ON {
            let message = format!("has {} characters; use at most {MAX_RUNS_ON}", text.len());
            self.problem(path, message);
        }
    }

    /// Whose jobs, and the way to GitHub.
    fn source(&mut self, scale_set: &AutoscalingRunnerSet) {
        let spec = &scale_set.spec;
        if spec.github_config_url.is_empty() {
            let message = "is not set; give the URL of an enterprise, organization or repository";
            self.problem("spec.githubConfigUrl", message);
        } else if let Err(error) = ConfigUrl::parse(&spec.github_config_url) {
            self.problem("spec.githubConfigUrl", error.without_field());
        }
        if spec.github_config_secret.is_empty() {
            let message = if spec.vault_config.is_some() {
                "is not set; give the key of the GitHub credentials in the vault"
            } else {
                "is not set; give the name of the Secret with the GitHub credentials"
            };
            self.problem("spec.githubConfigSecret", message);
        } else if spec.vault_config.is_none() {
            self.name("spec.githubConfigSecret", &spec.github_config_secret);
        } else if let Some(problem) =
            AzureKeyVaultConfig::secret_name_problem(&spec.github_config_secret)
        {
            let message = format!("\"{}\" {problem}", spec.github_config_secret);
            self.problem("spec.githubConfigSecret", message);
        }
        if let Some(proxy) = &spec.proxy {
            self.proxy("spec.proxy", proxy);
        }
        if let Some(tls) = &spec.github_server_tls {
            self.tls(tls);
        }
        if let Some(vault) = &spec.vault_config {
            self.vault(vault);
        }
    }

    fn name(&mut self, path: &str, name: &str) {
        if let Some(problem) = subdomain_problem(name) {
            self.problem(path, problem);
        }
    }

    fn proxy(&mut self, path: &str, proxy: &ProxyConfig) {
        for (scheme, server) in [("http", &proxy.http), ("https", &proxy.https)] {
            let Some(server) = server else { continue };
            if server.url.is_empty() {
                let message = "is not set; give the proxy's URL, as http://HOST:PORT";
                self.problem(format!("{path}.{scheme}.url"), message);
            } else if !is_http_url(&server.url) {
                // not shown: it may hold a password
                let message =
                    "is not the URL of a proxy; use http://HOST:PORT or https://HOST:PORT";
                self.problem(format!("{path}.{scheme}.url"), message);
            }
            if !server.credential_secret_ref.is_empty() {
                let path = format!("{path}.{scheme}.credentialSecretRef");
                self.name(&path, &server.credential_secret_ref);
            }
        }
    }

    fn tls(&mut self, tls: &TlsConfig) {
        let path = "spec.githubServerTLS.certificateFrom.configMapKeyRef";
        let reference = tls
            .certificate_from
            .as_ref()
            .and_then(|source| source.config_map_key_ref.as_ref());
        let Some(reference) = reference else {
            let message = "is not set; name the ConfigMap and its key that hold the certificate";
            return self.problem(path, message);
        };
        if reference.name.is_empty() {
            let message = "is not set; give the name of the ConfigMap with the certificate";
            self.problem(format!("{path}.name"), message);
        } else {
            self.name(&format!("{path}.name"), &reference.name);
        }
        if reference.key.is_empty() {
            let message = "is not set; give the key of the certificate in the ConfigMap";
            self.problem(format!("{path}.key"), message);
        }
    }

    fn vault(&mut self, vault: &VaultConfig) {
        let path = "spec.vaultConfig";
        if vault.vault_type != AZURE_KEY_VAULT {
            let message = format!(
                "\"{}\" is not a kind of vault; use {AZURE_KEY_VAULT}",
                vault.vault_type
            );
            self.problem(format!("{path}.type"), message);
        }
        if let Some(azure) = &vault.azure_key_vault {
            for (field, problem) in azure.problems() {
                self.problem(format!("{path}.azureKeyVault.{field}"), problem);
            }
        } else {
            let message = "is not set; give url, tenantId, clientId and certificatePath";
            self.problem(format!("{path}.azureKeyVault"), message);
        }
        if let Some(proxy) = &vault.proxy {
            self.proxy(&format!("{path}.proxy"), proxy);
        }
    }

    fn counts(&mut self, min: Option<i64>, max: Option<i64>) {
        for (path, count) in [("spec.minRunners", min), ("spec.maxRunners", max)] {
            if let Some(count) = count.filter(|count| *count < 0) {
                self.problem(path, format!("is {count}; use 0 or more"));
            }
        }
        if let (Some(min @ 0..), Some(max @ 0..)) = (min, max)
            && min > max
        {
            let message = format!(
                "is {min}, more than spec.maxRunners, which is {max}; lower the one or raise \
                 the other"
            );
            self.problem("spec.minRunners", message);
        }
    }

    fn runner_template(&mut self, template: &PodTemplateSpec) {
        let path = "spec.template";
        let containers = template.spec.iter().flat_map(|pod| &pod.containers);
        if !containers
            .into_iter()
            .any(|container| container.name == RUNNER_CONTAINER)
        {
            let message = format!(
                "has no container named \"{RUNNER_CONTAINER}\"; add one with the runner's image"
            );
            self.problem(format!("{path}.spec.containers"), message);
        }
        self.template(path, template);
    }

    /// What holds for any pod template.
    fn template(&mut self, path: &str, template: &PodTemplateSpec) {
        if is_longer_than(MAX_TEMPLATE, template) {
            let message = format!(
                "is longer than {} KiB; move what is long in it into a ConfigMap, a Secret or the \
                 image",
                MAX_TEMPLATE >> 10
            );
            self.problem(path, message);
        }
        if let Some(metadata) = &template.metadata {
            let path = format!("{path}.metadata");
            self.labels(&path, metadata.labels.iter().flatten());
            self.annotations(&path, metadata.annotations.iter().flatten());
        }
        let Some(pod) = &template.spec else { return };
        let path = format!("{path}.spec");
        let mut seen = BTreeSet::new();
        let init = pod.init_containers.as_deref().unwrap_or_default();
        self.containers(&format!("{path}.initContainers"), init, &mut seen);
        self.containers(&format!("{path}.containers"), &pod.containers, &mut seen);
        let mut seen = BTreeSet::new();
        for (index, volume) in pod.volumes.iter().flatten().enumerate() {
            if !seen.insert(&volume.name) {
                let message = format!(
                    "\"{}\" is the name of another volume; give it a name of its own",
                    volume.name
                );
                self.problem(format!("{path}.volumes[{index}].name"), message);
            }
        }
    }

    fn containers<'a>(
        &mut self,
        path: &str,
        containers: &'a [Container],
        seen: &mut BTreeSet<&'a str>,
    ) {
        for (index, container) in containers.iter().enumerate() {
            let path = format!("{path}[{index}].name");
            if container.name.is_empty() {
                self.problem(path, "is not set; name the container");
            } else if !seen.insert(&container.name) {
                let message = format!(
                    "\"{}\" is the name of another container; give it a name of its own",
                    container.name
                );
                self.problem(path, message);
            }
        }
    }

    fn buckets(&mut self, histograms: &BTreeMap<String, HistogramMetric>) {
        for (name, histogram) in histograms {
            let grow = histogram
                .buckets
                .windows(2)
                .all(|pair| matches!(pair, [low, high] if low < high));
            if !grow || histogram.buckets.iter().any(|bound| !bound.is_finite()) {
                self.problem(
                    format!("spec.listenerMetrics.histograms.{name}.buckets"),
                    "do not grow; list the bounds from the smallest to the largest",
                );
            }
        }
    }

    /// Labels and annotations for the objects that the controller makes.
    fn owned_metadata(&mut self, scale_set: &AutoscalingRunnerSet) {
        let spec = &scale_set.spec;
        let all: [(&str, &Option<ResourceMeta>); 8] = [
            ("autoscalingListener", &spec.autoscaling_listener),
            (
                "listenerServiceAccountMetadata",
                &spec.listener_service_account_metadata,
            ),
            ("listenerRoleMetadata", &spec.listener_role_metadata),
            (
                "listenerRoleBindingMetadata",
                &spec.listener_role_binding_metadata,
            ),
            (
                "listenerConfigSecretMetadata",
                &spec.listener_config_secret_metadata,
            ),
            (
                "ephemeralRunnerSetMetadata",
                &spec.ephemeral_runner_set_metadata,
            ),
            ("ephemeralRunnerMetadata", &spec.ephemeral_runner_metadata),
            (
                "ephemeralRunnerConfigSecretMetadata",
                &spec.ephemeral_runner_config_secret_metadata,
            ),
        ];
        for (field, metadata) in all {
            let Some(metadata) = metadata else { continue };
            let path = format!("spec.{field}");
            self.labels(&path, metadata.labels.iter());
            self.annotations(&path, metadata.annotations.iter());
        }
    }

    fn labels<'a>(&mut self, path: &str, labels: impl Iterator<Item = (&'a String, &'a String)>) {
        for (key, value) in labels {
            let path = format!("{path}.labels[{key}]");
            if let Some(problem) = key_problem(key) {
                self.problem(&path, format!("the key cannot stay: {problem}"));
            }
            if let Some(problem) = label_value_problem(value) {
                self.problem(path, format!("the value cannot stay: {problem}"));
            }
        }
    }

    fn annotations<'a>(
        &mut self,
        path: &str,
        annotations: impl Iterator<Item = (&'a String, &'a String)>,
    ) {
        for (key, _) in annotations {
            // as Kubernetes does: annotation keys are judged in lower case
            if let Some(problem) = key_problem(&key.to_lowercase()) {
                let path = format!("{path}.annotations[{key}]");
                self.problem(path, format!("the key cannot stay: {problem}"));
            }
        }
    }
}

fn is_http_url(text: &str) -> bool {
    Url::parse(text)
        .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
}

/// Whether it takes more bytes as JSON.
fn is_longer_than(limit: usize, value: &impl Serialize) -> bool {
    struct Room(usize);
    impl io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(limit), value).is_err()
}

#[cfg(test)]
mod tests;
