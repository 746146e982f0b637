//! A scale set as the Actions service is told of it, and whose calls are made for it.

use crate::api::{AutoscalingRunnerSet, EphemeralRunner};
use crate::messages::Tenant;

/// Name of the scale set in the Actions service: what jobs put into `runs-on`.
#[must_use]
pub fn scale_set_name(ars: &AutoscalingRunnerSet) -> String {
    let given = ars.spec.runner_scale_set_name.as_str();
    if given.is_empty() {
        ars.metadata.name.clone().unwrap_or_default()
    } else {
        given.to_owned()
    }
}

/// Labels of the scale set in the Actions service: its name first, then those of the spec
/// without repeats. GitHub does not tell labels apart by case, so neither do we.
#[must_use]
pub fn scale_set_labels(ars: &AutoscalingRunnerSet) -> Vec<String> {
    let mut labels = vec![scale_set_name(ars)];
    for label in ars.spec.runner_scale_set_labels.iter().map(|l| l.trim()) {
        let known = labels.iter().any(|known| known.eq_ignore_ascii_case(label));
        if !known && !label.is_empty() {
            labels.push(label.to_owned());
        }
    }
    labels
}

/// Whose calls are made for a scale set.
#[must_use]
pub fn tenant_of_set(ars: &AutoscalingRunnerSet) -> Tenant {
    let spec = &ars.spec;
    Tenant {
        config_url: spec.github_config_url.clone(),
        namespace: ars.metadata.namespace.clone().unwrap_or_default(),
        secret: spec.github_config_secret.clone(),
        proxy: spec.proxy.clone(),
        tls: spec.github_server_tls.clone(),
        vault: spec.vault_config.clone(),
    }
}

/// Whose calls are made for a runner.
#[must_use]
pub fn tenant_of_runner(er: &EphemeralRunner) -> Tenant {
    let spec = &er.spec;
    Tenant {
        config_url: spec.github_config_url.clone(),
        namespace: er.metadata.namespace.clone().unwrap_or_default(),
        secret: spec.github_config_secret.clone(),
        proxy: spec.proxy.clone(),
        tls: spec.github_server_tls.clone(),
        vault: spec.vault_config.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{ars, runner};
    use super::*;

    #[test]
    fn the_name_is_the_objects_unless_the_spec_gives_one() {
        let mut ars = ars();
        assert_eq!(scale_set_name(&ars), "pool");
        ars.spec.runner_scale_set_name = "fast".to_owned();
        assert_eq!(scale_set_name(&ars), "fast");
    }

    #[test]
    fn the_name_is_the_first_label_and_no_label_comes_twice() {
        let mut ars = ars();
        ars.spec.runner_scale_set_labels = ["linux", "POOL", " x64 ", "Linux", ""]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(scale_set_labels(&ars), ["pool", "linux", "x64"]);
    }

    #[test]
    fn calls_for_a_set_and_for_its_runners_share_a_tenant() {
        let tenant = tenant_of_set(&ars());
        assert_eq!(tenant.config_url, "https://github.com/acme/widgets");
        assert_eq!(tenant.namespace, "runners");
        assert_eq!(tenant.secret, "github-secret");
        assert_eq!(tenant.proxy, ars().spec.proxy);
        assert_eq!(tenant.tls, ars().spec.github_server_tls);
        assert_eq!(tenant, tenant_of_runner(&runner()));
    }

    #[test]
    fn a_vault_is_part_of_the_tenant() {
        let mut ars = ars();
        ars.spec.vault_config = Some(crate::api::VaultConfig::default());
        assert_eq!(tenant_of_set(&ars).vault, ars.spec.vault_config);
        let mut runner = runner();
        runner.spec.vault_config.clone_from(&ars.spec.vault_config);
        assert_eq!(tenant_of_runner(&runner).vault, ars.spec.vault_config);
    }
}
