//! What a restricted listener template may not contain: whatever reaches beyond the listener's
//! own pod, into the node, other objects of the controller's namespace, or a cloud.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Capabilities, Container, EnvFromSource, EnvVar, PodSecurityContext, PodSpec,
    PodTemplateSpec, SeccompProfile, SecurityContext, Volume, VolumeProjection,
    WindowsSecurityContextOptions,
};

use crate::api::validation::FieldProblem;

/// Adds what the template may not contain to the problems.
pub(super) fn restrict(path: &str, template: &PodTemplateSpec, problems: &mut Vec<FieldProblem>) {
    if let Some(spec) = &template.spec {
        let mut review = Review { problems };
        review.pod(&format!("{path}.spec"), spec);
    }
}

struct Review<'a> {
    problems: &'a mut Vec<FieldProblem>,
}

impl Review<'_> {
    fn refuse(&mut self, path: impl Into<String>, what: &str) {
        self.problems.push(FieldProblem {
            path: path.into(),
            message: format!(
                "{what}, which the controller's --listener-template-policy=restricted does not \
                 allow; remove it"
            ),
        });
    }

    fn refuse_if(&mut self, refused: bool, path: impl Into<String>, what: &str) {
        if refused {
            self.refuse(path, what);
        }
    }

    /// Taken apart without `..`, so that a field that Kubernetes adds is judged before it is
    /// let through.
    fn pod(&mut self, path: &str, spec: &PodSpec) {
        let PodSpec {
            active_deadline_seconds: _,
            affinity: _,
            automount_service_account_token: _,
            containers,
            dns_config: _,
            dns_policy: _,
            enable_service_links: _,
            ephemeral_containers,
            host_aliases: _,
            host_ipc,
            host_network,
            host_pid,
            host_users: _,
            hostname: _,
            hostname_override: _,
            image_pull_secrets,
            init_containers,
            node_name,
            node_selector: _,
            os: _,
            overhead: _,
            preemption_policy: _,
            priority: _,
            priority_class_name: _,
            readiness_gates: _,
            resource_claims,
            resources: _,
            restart_policy: _,
            runtime_class_name: _,
            scheduler_name: _,
            scheduling_gates: _,
            scheduling_group: _,
            security_context,
            service_account,
            service_account_name,
            set_hostname_as_fqdn: _,
            share_process_namespace: _,
            subdomain: _,
            termination_grace_period_seconds: _,
            tolerations: _,
            topology_spread_constraints: _,
            volumes,
        } = spec;
        for (field, value) in [
            ("hostNetwork", host_network),
            ("hostPID", host_pid),
            ("hostIPC", host_ipc),
        ] {
            let shared = *value == Some(true);
            self.refuse_if(shared, format!("{path}.{field}"), "shares the node's");
        }
        for (field, value) in [
            ("serviceAccountName", service_account_name),
            ("serviceAccount", service_account),
        ] {
            let given = value.as_deref().is_some_and(|name| !name.is_empty());
            self.refuse_if(given, format!("{path}.{field}"), "is another's identity");
        }
        let placed = node_name.as_deref().is_some_and(|name| !name.is_empty());
        self.refuse_if(
            placed,
            format!("{path}.nodeName"),
            "passes the scheduler by",
        );
        for (index, secret) in image_pull_secrets.iter().flatten().enumerate() {
            let path = format!("{path}.imagePullSecrets[{index}]");
            let what = format!(
                "uses the Secret {} of the controller's namespace",
                secret.name
            );
            self.refuse(path, &what);
        }
        let claims = resource_claims.as_ref().is_some_and(|all| !all.is_empty());
        self.refuse_if(claims, format!("{path}.resourceClaims"), "takes devices");
        let debugged = ephemeral_containers
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        let what = "is for debugging a pod that runs";
        self.refuse_if(debugged, format!("{path}.ephemeralContainers"), what);
        if let Some(context) = security_context {
            self.pod_security(&format!("{path}.securityContext"), context);
        }
        for (index, volume) in volumes.iter().flatten().enumerate() {
            self.volume(&format!("{path}.volumes[{index}]"), volume);
        }
        for (field, list) in [
            ("initContainers", init_containers.as_deref()),
            ("containers", Some(containers.as_slice())),
        ] {
            for (index, container) in list.into_iter().flatten().enumerate() {
                self.container(&format!("{path}.{field}[{index}]"), container);
            }
        }
    }

    fn pod_security(&mut self, path: &str, context: &PodSecurityContext) {
        let PodSecurityContext {
            app_armor_profile,
            fs_group: _,
            fs_group_change_policy: _,
            run_as_group: _,
            run_as_non_root: _,
            run_as_user: _,
            se_linux_change_policy: _,
            se_linux_options,
            seccomp_profile,
            supplemental_groups: _,
            supplemental_groups_policy: _,
            sysctls,
            windows_options,
        } = context;
        self.confinement(path, app_armor_profile.as_ref(), seccomp_profile.as_ref());
        self.windows(path, windows_options.as_ref());
        let relabelled = se_linux_options.is_some();
        let what = "changes what confines the pod";
        self.refuse_if(relabelled, format!("{path}.seLinuxOptions"), what);
        let tuned = sysctls.as_ref().is_some_and(|all| !all.is_empty());
        self.refuse_if(tuned, format!("{path}.sysctls"), "changes the kernel");
    }

    fn container(&mut self, path: &str, container: &Container) {
        let Container {
            args: _,
            command: _,
            env,
            env_from,
            image: _,
            image_pull_policy: _,
            lifecycle: _,
            liveness_probe: _,
            name: _,
            ports,
            readiness_probe: _,
            resize_policy: _,
            resources: _,
            restart_policy: _,
            restart_policy_rules: _,
            security_context,
            startup_probe: _,
            stdin: _,
            stdin_once: _,
            termination_message_path: _,
            termination_message_policy: _,
            tty: _,
            volume_devices,
            volume_mounts: _,
            working_dir: _,
        } = container;
        for (index, variable) in env.iter().flatten().enumerate() {
            self.variable(&format!("{path}.env[{index}]"), variable);
        }
        for (index, source) in env_from.iter().flatten().enumerate() {
            self.variables(&format!("{path}.envFrom[{index}]"), source);
        }
        for (index, port) in ports.iter().flatten().enumerate() {
            let taken = port.host_port.is_some_and(|port| port != 0);
            let path = format!("{path}.ports[{index}].hostPort");
            self.refuse_if(taken, path, "takes a port of the node");
        }
        let devices = volume_devices.as_ref().is_some_and(|all| !all.is_empty());
        self.refuse_if(devices, format!("{path}.volumeDevices"), "takes devices");
        if let Some(context) = security_context {
            self.container_security(&format!("{path}.securityContext"), context);
        }
    }

    fn container_security(&mut self, path: &str, context: &SecurityContext) {
        let SecurityContext {
            allow_privilege_escalation,
            app_armor_profile,
            capabilities,
            privileged,
            proc_mount,
            read_only_root_filesystem: _,
            run_as_group: _,
            run_as_non_root: _,
            run_as_user: _,
            se_linux_options,
            seccomp_profile,
            windows_options,
        } = context;
        let yes = |value: &Option<bool>| *value == Some(true);
        let rules = "has all rights on the node";
        self.refuse_if(yes(privileged), format!("{path}.privileged"), rules);
        let escalates = yes(allow_privilege_escalation);
        let what = "lets a process gain rights";
        self.refuse_if(escalates, format!("{path}.allowPrivilegeEscalation"), what);
        let added = capabilities
            .as_ref()
            .and_then(|Capabilities { add, drop: _ }| add.as_ref())
            .is_some_and(|add| !add.is_empty());
        self.refuse_if(added, format!("{path}.capabilities.add"), "adds rights");
        let open = proc_mount
            .as_deref()
            .is_some_and(|kind| !matches!(kind, "" | "Default"));
        let what = "shows the node's processes";
        self.refuse_if(open, format!("{path}.procMount"), what);
        let relabelled = se_linux_options.is_some();
        let what = "changes what confines the container";
        self.refuse_if(relabelled, format!("{path}.seLinuxOptions"), what);
        self.confinement(path, app_armor_profile.as_ref(), seccomp_profile.as_ref());
        self.windows(path, windows_options.as_ref());
    }

    fn confinement(
        &mut self,
        path: &str,
        app_armor: Option<&AppArmorProfile>,
        seccomp: Option<&SeccompProfile>,
    ) {
        let free = |kind: &str| kind == "Unconfined";
        let what = "takes off what confines it";
        let open = app_armor.is_some_and(|profile| free(&profile.type_));
        self.refuse_if(open, format!("{path}.appArmorProfile"), what);
        let open = seccomp.is_some_and(|profile| free(&profile.type_));
        self.refuse_if(open, format!("{path}.seccompProfile"), what);
    }

    fn windows(&mut self, path: &str, options: Option<&WindowsSecurityContextOptions>) {
        // a gMSA is an identity of the domain
        self.refuse_if(
            options.is_some(),
            format!("{path}.windowsOptions"),
            "can give the node's rights or another's identity",
        );
    }

    fn variable(&mut self, path: &str, variable: &EnvVar) {
        let secret = variable
            .value_from
            .as_ref()
            .and_then(|source| source.secret_key_ref.as_ref());
        if let Some(secret) = secret {
            let what = format!(
                "reads the Secret {} of the controller's namespace",
                secret.name
            );
            self.refuse(format!("{path}.valueFrom.secretKeyRef"), &what);
        }
    }

    fn variables(&mut self, path: &str, source: &EnvFromSource) {
        if let Some(secret) = &source.secret_ref {
            let what = format!(
                "reads the Secret {} of the controller's namespace",
                secret.name
            );
            self.refuse(format!("{path}.secretRef"), &what);
        }
    }

    /// Only what is allowed is named, so that a kind of volume that Kubernetes adds is not.
    fn volume(&mut self, path: &str, volume: &Volume) {
        let allowed = Volume {
            name: volume.name.clone(),
            empty_dir: volume.empty_dir.clone(),
            projected: volume.projected.clone(),
            ..Volume::default()
        };
        if *volume != allowed {
            let what = "is a volume of another kind than emptyDir or projected";
            return self.refuse(path, what);
        }
        let sources = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        for (index, source) in sources.enumerate() {
            let allowed = VolumeProjection {
                cluster_trust_bundle: source.cluster_trust_bundle.clone(),
                config_map: source.config_map.clone(),
                ..VolumeProjection::default()
            };
            let what = "projects something else than a ConfigMap or ClusterTrustBundle";
            let path = format!("{path}.projected.sources[{index}]");
            self.refuse_if(*source != allowed, path, what);
        }
    }
}
