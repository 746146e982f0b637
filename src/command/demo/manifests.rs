//! The manifests of a demonstration: read, looked over as a whole, and applied. Whatever is
//! wrong is told with the file, line and object it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use serde_json::Value;

use crate::api::constants::keys;
use crate::api::{
    AutoscalingRunnerSet, Credentials, ManifestObject, ProxyServerConfig, read_manifests,
};
use crate::simulation::FAULT_ANNOTATION;
use crate::simulation::cluster::Cluster;
use embedded_kube::kubelet::PodFault;

/// The sample that is played when no file is given.
const SAMPLES: [(&str, &str); 3] = [
    (
        "config/samples/namespace.yaml",
        include_str!("../../../config/samples/namespace.yaml"),
    ),
    (
        "config/samples/secret.yaml",
        include_str!("../../../config/samples/secret.yaml"),
    ),
    (
        "config/samples/scale_set.yaml",
        include_str!("../../../config/samples/scale_set.yaml"),
    ),
];

/// Where objects without a namespace go, as with kubectl.
const DEFAULT_NAMESPACE: &str = "default";

/// What is to be applied.
#[derive(Debug)]
pub struct Manifests {
    objects: Vec<Placed>,
    scale_sets: Vec<(usize, AutoscalingRunnerSet)>,
}

/// An object, and the file it is in.
#[derive(Debug)]
struct Placed {
    file: String,
    object: ManifestObject,
}

/// A scale set that jobs are queued for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleSet {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What a job asks for in `runs-on`.
    pub label: String,
    /// Most runners at one time.
    pub max: Option<i64>,
}

impl Manifests {
    /// Reads files, or the sample when there are none.
    ///
    /// # Errors
    ///
    /// All that is wrong in the files, or that there is nothing to run.
    pub fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut texts = Vec::new();
        for path in files {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).with_context(|| {
                format!("{name} cannot be read; check that the file is there and is text")
            })?;
            texts.push((name, text));
        }
        if files.is_empty() {
            texts.extend(SAMPLES.map(|(name, text)| (name.to_owned(), text.to_owned())));
        }
        Self::parse(&texts)
    }

    fn parse(texts: &[(String, String)]) -> anyhow::Result<Self> {
        let mut objects = Vec::new();
        let mut problems = Vec::new();
        for (file, text) in texts {
            match read_manifests(text, file) {
                Ok(read) => objects.extend(read.into_iter().map(|object| Placed {
                    file: file.clone(),
                    object,
                })),
                Err(error) => problems.push(error.to_string()),
            }
        }
        if !problems.is_empty() {
            bail!(problems.join("\n"));
        }
        let mut scale_sets = Vec::new();
        for (index, placed) in objects.iter().enumerate() {
            // of several with one name, the last counts, as with kubectl
            let same = |later: &Placed| {
                later.namespace() == placed.namespace()
                    && later.object.name() == placed.object.name()
            };
            let mut later = objects[index + 1..].iter();
            if placed.is(AUTOSCALING_RUNNER_SET)
                && !later.any(|later| later.is(AUTOSCALING_RUNNER_SET) && same(later))
            {
                let scale_set = placed.object.decode().with_context(|| placed.to_string())?;
                scale_sets.push((index, scale_set));
            }
        }
        if scale_sets.is_empty() {
            let files: Vec<&str> = texts.iter().map(|(file, _)| file.as_str()).collect();
            bail!(
                "{}: no AutoscalingRunnerSet in there, so there is nothing to run; add one",
                files.join(", ")
            );
        }
        Ok(Self {
            objects,
            scale_sets,
        })
    }

    /// The scale sets, in the order of the files.
    pub fn scale_sets(&self) -> Vec<ScaleSet> {
        self.scale_sets
            .iter()
            .map(|(index, set)| ScaleSet {
                namespace: self.objects[*index].namespace().to_owned(),
                name: set.metadata.name.clone().unwrap_or_default(),
                label: crate::resources::scale_set_name(set),
                max: set.spec.max_runners,
            })
            .collect()
    }

    /// The runner groups that the scale sets name. In GitHub a person has made them.
    pub fn runner_groups(&self) -> BTreeSet<&str> {
        self.scale_sets
            .iter()
            .map(|(_, set)| set.spec.runner_group.as_str())
            .filter(|group| !group.is_empty() && !group.eq_ignore_ascii_case("default"))
            .collect()
    }

    /// What scale sets refer to and the files do not hold as it has to be: one line each. It
    /// can still be mended in the running cluster.
    pub fn loose_ends(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (index, scale_set) in &self.scale_sets {
            let placed = &self.objects[*index];
            let ends = LooseEnds {
                manifests: self,
                namespace: placed.namespace(),
            };
            let problems = ends.of(scale_set);
            found.extend(problems.into_iter().map(|text| format!("{placed}: {text}")));
        }
        found
    }

    /// Applies all objects in the order of the files.
    ///
    /// # Errors
    ///
    /// What the API server refuses, with its place.
    pub async fn apply(&self, cluster: &Cluster) -> anyhow::Result<()> {
        for placed in &self.objects {
            let applied = cluster.apply(&placed.object.value).await;
            applied.with_context(|| placed.place())?;
        }
        Ok(())
    }

    fn find(&self, kind: (&str, &str), namespace: &str, name: &str) -> Option<&Placed> {
        self.objects.iter().rev().find(|placed| {
            placed.is(kind) && placed.namespace() == namespace && placed.object.name() == name
        })
    }
}

const AUTOSCALING_RUNNER_SET: (&str, &str) =
    (crate::api::constants::API_VERSION, "AutoscalingRunnerSet");
const SECRET: (&str, &str) = ("v1", "Secret");
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

impl Placed {
    fn is(&self, (api_version, kind): (&str, &str)) -> bool {
        self.object.api_version() == api_version && self.object.kind() == kind
    }

    fn namespace(&self) -> &str {
        match self.object.namespace() {
            "" => DEFAULT_NAMESPACE,
            namespace => namespace,
        }
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file, self.object.line)
    }
}

/// The place and the object, for messages.
impl std::fmt::Display for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, name) = (self.object.kind(), self.object.name());
        write!(f, "{}: {kind} {}/{name}", self.place(), self.namespace())
    }
}

/// Follows the references of one scale set.
struct LooseEnds<'a> {
    manifests: &'a Manifests,
    namespace: &'a str,
}

impl LooseEnds<'_> {
    fn of(&self, scale_set: &AutoscalingRunnerSet) -> Vec<String> {
        let spec = &scale_set.spec;
        let mut found = Vec::new();
        if spec.vault_config.is_none() {
            found.extend(self.credentials(&spec.github_config_secret));
        }
        if let Some(proxy) = &spec.proxy {
            for (scheme, server) in [("http", &proxy.http), ("https", &proxy.https)] {
                let server = server.as_ref();
                found.extend(server.and_then(|server| self.proxy_login(scheme, server)));
            }
        }
        let template = spec.template.metadata.as_ref();
        let annotations = template.and_then(|metadata| metadata.annotations.as_ref());
        let fault = annotations.and_then(|annotations| annotations.get(FAULT_ANNOTATION));
        if let Some(Err(error)) = fault.map(|fault| fault.parse::<PodFault>()) {
            found.push(format!("spec.template.metadata.annotations: {error}"));
        }
        let tls = spec.github_server_tls.as_ref();
        let source = tls.and_then(|tls| tls.certificate_from.as_ref());
        let selector = source.and_then(|source| source.config_map_key_ref.as_ref());
        let needed = selector.filter(|selector| selector.optional != Some(true));
        found.extend(needed.and_then(|needed| self.certificate(&needed.name, &needed.key)));
        found
    }

    fn credentials(&self, name: &str) -> Option<String> {
        let field = "spec.githubConfigSecret";
        match self.secret(field, name) {
            Err(missing) => Some(missing),
            Ok((secret, data)) => Credentials::from_data(&data)
                .err()
                .map(|problem| format!("{field}: {secret} is not usable: {problem}")),
        }
    }

    fn proxy_login(&self, scheme: &str, server: &ProxyServerConfig) -> Option<String> {
        let name = server.credential_secret_ref.as_str();
        if name.is_empty() {
            return None;
        }
        let field = format!("spec.proxy.{scheme}.credentialSecretRef");
        match self.secret(&field, name) {
            Err(missing) => Some(missing),
            Ok((secret, data)) => [keys::USERNAME, keys::PASSWORD]
                .into_iter()
                .find(|key| !data.contains_key(*key))
                .map(|key| format!("{field}: {secret} has no key {key}; add it")),
        }
    }

    fn certificate(&self, name: &str, key: &str) -> Option<String> {
        let field = "spec.githubServerTLS.certificateFrom.configMapKeyRef";
        let Some(map) = self.manifests.find(CONFIG_MAP, self.namespace, name) else {
            return Some(format!("{field}.name: {}", self.absent("ConfigMap", name)));
        };
        let has = |data: &str| map.object.value[data].get(key).is_some();
        (!has("data") && !has("binaryData"))
            .then(|| format!("{field}.key: {map} has no key {key}; add it"))
    }

    /// A Secret with its data, or that the files do not hold it.
    fn secret(
        &self,
        field: &str,
        name: &str,
    ) -> Result<(&Placed, BTreeMap<String, ByteString>), String> {
        let found = self.manifests.find(SECRET, self.namespace, name);
        let secret = found.ok_or_else(|| format!("{field}: {}", self.absent("Secret", name)))?;
        Ok((secret, data_of(&secret.object.value)))
    }

    fn absent(&self, kind: &str, name: &str) -> String {
        let namespace = self.namespace;
        format!("{kind} {namespace}/{name} is in none of the files; add it, or correct the field")
    }
}

/// What a Secret will hold once applied. What is not base64 is the API server's to refuse.
fn data_of(secret: &Value) -> BTreeMap<String, ByteString> {
    let fields = |name: &str| secret[name].as_object().into_iter().flatten();
    let encoded = fields("data").filter_map(|(key, value)| {
        let bytes = STANDARD.decode(value.as_str()?).ok()?;
        Some((key.clone(), ByteString(bytes)))
    });
    let plain = fields("stringData").filter_map(|(key, value)| {
        let bytes = value.as_str()?.as_bytes().to_vec();
        Some((key.clone(), ByteString(bytes)))
    });
    encoded.chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE_SET: &str = "\
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata: {name: linux, namespace: ci}
spec:
  githubConfigUrl: https://github.com/acme
  githubConfigSecret: github-auth
  minRunners: 2
  maxRunners: 7
  template: {spec: {containers: [{name: runner, image: runner}]}}
";

    fn read(texts: &[&str]) -> anyhow::Result<Manifests> {
        let named: Vec<_> = (1..)
            .zip(texts)
            .map(|(number, text)| (format!("{number}.yaml"), (*text).to_owned()))
            .collect();
        Manifests::parse(&named)
    }

    fn secret(data: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: github-auth, namespace: ci}}\n{data}\n"
        )
    }

    #[test]
    fn the_sample_is_whole() {
        let sample = Manifests::read(&[]).unwrap();
        assert_eq!(sample.loose_ends(), [""; 0]);
        assert_eq!(sample.scale_sets()[0].name, "linux");
    }

    #[test]
    fn the_objects_may_be_spread_over_files() {
        let manifests = read(&[SCALE_SET, &secret("data: {github_token: dG9rZW4=}")]).unwrap();
        assert_eq!(manifests.loose_ends(), [""; 0]);
        let expected = ScaleSet {
            namespace: "ci".into(),
            name: "linux".into(),
            label: "linux".into(),
            max: Some(7),
        };
        assert_eq!(manifests.scale_sets(), [expected]);
    }

    #[test]
    fn of_two_scale_sets_with_one_name_the_last_counts() {
        let later = SCALE_SET.replace("maxRunners: 7", "maxRunners: 9");
        let sets = read(&[SCALE_SET, &later]).unwrap().scale_sets();
        assert_eq!(sets.len(), 1);
        assert_eq!(sets[0].max, Some(9));
    }

    #[test]
    fn problems_of_all_files_are_told_at_once() {
        let wrong = SCALE_SET.replace("maxRunners: 7", "maxRunners: many");
        let error = read(&[&wrong, "a: [", "kind: Secret"])
            .unwrap_err()
            .to_string();
        for part in ["1.yaml:8:", "spec.maxRunners", "2.yaml:1:", "3.yaml:1:"] {
            assert!(error.contains(part), "no {part} in {error}");
        }
    }

    #[test]
    fn files_without_a_scale_set_are_named() {
        let error = read(&[&secret("")]).unwrap_err().to_string();
        assert!(
            error.contains("1.yaml") && error.contains("AutoscalingRunnerSet"),
            "{error}"
        );
    }

    #[test]
    fn credentials_that_will_not_do_are_named_with_field_and_place() {
        let missing = read(&[SCALE_SET]).unwrap().loose_ends();
        assert_eq!(
            missing,
            [
                "1.yaml:1: AutoscalingRunnerSet ci/linux: spec.githubConfigSecret: Secret \
              ci/github-auth is in none of the files; add it, or correct the field"
            ]
        );
        for (data, problem) in [
            ("stringData: {other: x}", "holds no credentials"),
            (
                "stringData: {github_token: s3cr3t, github_app_id: '1'}",
                "holds both",
            ),
            (
                "stringData: {github_app_id: '1'}",
                "github_app_installation_id",
            ),
        ] {
            let ends = read(&[SCALE_SET, &secret(data)]).unwrap().loose_ends();
            let text = ends.join("\n");
            for part in [
                "1.yaml:1:",
                "spec.githubConfigSecret",
                "2.yaml:1: Secret ci/github-auth",
            ] {
                assert!(text.contains(part), "no {part} in {text}");
            }
            assert!(text.contains(problem) && !text.contains("s3cr3t"), "{text}");
        }
    }

    #[test]
    fn a_fault_that_nobody_knows_is_named_with_those_there_are() {
        let ends = |fault: &str| {
            let annotation =
                format!("template: {{metadata: {{annotations: {{impresario.dev/fault: {fault}}}}}");
            let scale_set = SCALE_SET.replacen("template: {", &format!("{annotation}, "), 1);
            assert_ne!(scale_set, SCALE_SET);
            let credentials = secret("stringData: {github_token: t}");
            read(&[&scale_set, &credentials]).unwrap().loose_ends()
        };
        assert_eq!(ends("exit=7"), Vec::<String>::new());
        let problem = ends("exti=7").join("\n");
        assert!(
            problem.contains("unknown fault \"exti=7\"; known are exit=CODE"),
            "{problem}"
        );
    }

    #[test]
    fn what_proxy_and_certificate_refer_to_is_looked_for() {
        let more = "  proxy: {https: {url: 'http://proxy:3128', credentialSecretRef: proxy-auth}}\n  \
                    githubServerTLS: {certificateFrom: {configMapKeyRef: {name: ca, key: ca.crt}}}\n";
        let scale_set = format!("{SCALE_SET}{more}");
        let credentials = secret("stringData: {github_token: t}");
        let ends = read(&[&scale_set, &credentials])
            .unwrap()
            .loose_ends()
            .join("\n");
        for part in [
            "spec.proxy.https.credentialSecretRef: Secret ci/proxy-auth is in none",
            "spec.githubServerTLS.certificateFrom.configMapKeyRef.name: ConfigMap ci/ca is in none",
        ] {
            assert!(ends.contains(part), "no {part} in {ends}");
        }
        let others = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca, namespace: ci}\n\
                      data: {other: x}\n---\napiVersion: v1\nkind: Secret\n\
                      metadata: {name: proxy-auth, namespace: ci}\nstringData: {username: u}\n";
        let ends = read(&[&scale_set, &credentials, others])
            .unwrap()
            .loose_ends()
            .join("\n");
        for part in ["has no key password", "has no key ca.crt"] {
            assert!(ends.contains(part), "no {part} in {ends}");
        }
    }
}
