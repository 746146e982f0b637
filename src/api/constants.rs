//! Names that form a contract with ARC, its charts and its users: finalizers, annotations,
//! labels, keys and environment variables.

/// API group of the custom resources.
pub const GROUP: &str = "actions.github.com";
/// API version of the custom resources.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of the custom resources.
pub const API_VERSION: &str = "actions.github.com/v1alpha1";

/// Exit code of a listener whose scale set the Actions service does not know (any more).
pub const SCALE_SET_GONE_EXIT_CODE: u8 = 44;

/// Finalizers.
pub mod finalizers {
    /// Held on an AutoscalingRunnerSet by the controller.
    pub const AUTOSCALING_RUNNER_SET: &str = "autoscalingrunnerset.actions.github.com/finalizer";
    /// Held on an AutoscalingListener by the controller.
    pub const AUTOSCALING_LISTENER: &str = "autoscalinglistener.actions.github.com/finalizer";
    /// Held on an EphemeralRunnerSet by the controller.
    pub const EPHEMERAL_RUNNER_SET: &str = "ephemeralrunnerset.actions.github.com/finalizer";
    /// Held on an EphemeralRunner while its pod and Secret may exist.
    pub const EPHEMERAL_RUNNER: &str = "ephemeralrunner.actions.github.com/finalizer";
    /// Held on an EphemeralRunner while it may be registered in the Actions service.
    pub const EPHEMERAL_RUNNER_REGISTRATION: &str =
        "ephemeralrunner.actions.github.com/runner-registration-finalizer";
    /// Held by the chart on its own objects; removed at the end of a deletion.
    pub const CLEANUP_PROTECTION: &str = "actions.github.com/cleanup-protection";
}

/// Annotations.
pub mod annotations {
    /// Id of the scale set in the Actions service, on the AutoscalingRunnerSet.
    pub const RUNNER_SCALE_SET_ID: &str = "runner-scale-set-id";
    /// Name of the scale set in the Actions service, on the AutoscalingRunnerSet.
    pub const RUNNER_SCALE_SET_NAME: &str = "actions.github.com/runner-scale-set-name";
    /// Name of the runner group, on the AutoscalingRunnerSet.
    pub const RUNNER_GROUP_NAME: &str = "actions.github.com/runner-group-name";
    /// Config URL at which the scale set was registered, on the AutoscalingRunnerSet. Ours: ARC
    /// does not know it.
    pub const CONFIG_URL: &str = "actions.github.com/runner-scale-set-config-url";
    /// Patch id under which an EphemeralRunner was made.
    pub const PATCH_ID: &str = "actions.github.com/patch-id";
    /// Revision of the runner spec that an EphemeralRunner was made from.
    pub const ACTIONABLE_REVISION: &str = "actions.github.com/actionable-revision";
    /// Written by our listener on the EphemeralRunnerSet, in the same patch as `replicas`: an RFC
    /// 3339 time. `replicas` was computed without every job whose runner has a `jobFinishedAt`
    /// not after it, so the places of those runners are to be filled at once. ARC's listener
    /// writes none; then the rule of `finishedRunnerCleanupPatchID` alone holds.
    pub const JOBS_COUNTED_UNTIL: &str = "impresario.dev/jobs-counted-until";
    /// Written by our listener on the EphemeralRunnerSet in each patch, which it names: see
    /// [`listener_patch`](crate::api::listener_patch). So a patch of any other is told from ours.
    pub const LISTENER_PATCH: &str = "impresario.dev/listener-patch";
    /// On an AutoscalingListener or EphemeralRunnerSet of ours that has no other annotation: ARC's
    /// controllers write into the annotations of these, and panic where there are none.
    pub const MADE_BY: &str = "impresario.dev/made-by";
    /// resourceVersion of the config Secret that a listener pod was built from.
    pub const LISTENER_CONFIG_RESOURCE_VERSION: &str =
        "actions.github.com/listener-config-resource-version";
    /// Left on objects by older controllers; ignored.
    pub const INTEGRITY_HASH: &str = "actions.github.com/integrity-hash";
    /// Hash of a chart's values; set by the chart.
    pub const VALUES_HASH: &str = "actions.github.com/values-hash";

    /// Annotations on an AutoscalingRunnerSet that name the chart's protected objects.
    pub mod cleanup {
        /// RoleBinding of kubernetes mode.
        pub const KUBERNETES_MODE_ROLE_BINDING: &str =
            "actions.github.com/cleanup-kubernetes-mode-role-binding-name";
        /// Role of kubernetes mode.
        pub const KUBERNETES_MODE_ROLE: &str =
            "actions.github.com/cleanup-kubernetes-mode-role-name";
        /// ServiceAccount of kubernetes mode.
        pub const KUBERNETES_MODE_SERVICE_ACCOUNT: &str =
            "actions.github.com/cleanup-kubernetes-mode-service-account-name";
        /// ServiceAccount without permissions.
        pub const NO_PERMISSION_SERVICE_ACCOUNT: &str =
            "actions.github.com/cleanup-no-permission-service-account-name";
        /// Secret with the GitHub credentials.
        pub const GITHUB_SECRET: &str = "actions.github.com/cleanup-github-secret-name";
        /// RoleBinding that lets the controller work in the namespace.
        pub const MANAGER_ROLE_BINDING: &str = "actions.github.com/cleanup-manager-role-binding";
        /// Role that lets the controller work in the namespace.
        pub const MANAGER_ROLE: &str = "actions.github.com/cleanup-manager-role-name";
    }
}

/// Labels.
pub mod labels {
    /// The product that an object belongs to.
    pub const PART_OF: &str = "app.kubernetes.io/part-of";
    /// Value of [`PART_OF`].
    pub const PART_OF_VALUE: &str = "gha-runner-scale-set";
    /// The part that an object plays.
    pub const COMPONENT: &str = "app.kubernetes.io/component";
    /// [`COMPONENT`] of an AutoscalingRunnerSet.
    pub const COMPONENT_SCALE_SET: &str = "autoscaling-runner-set";
    /// [`COMPONENT`] of a listener and what it owns.
    pub const COMPONENT_LISTENER: &str = "runner-scale-set-listener";
    /// [`COMPONENT`] of an EphemeralRunnerSet.
    pub const COMPONENT_RUNNER_SET: &str = "runner-set";
    /// [`COMPONENT`] of an EphemeralRunner and what it owns.
    pub const COMPONENT_RUNNER: &str = "runner";
    /// Version of the chart or controller that made an object.
    pub const VERSION: &str = "app.kubernetes.io/version";
    /// Name of the AutoscalingRunnerSet that an object belongs to.
    pub const SCALE_SET_NAME: &str = "actions.github.com/scale-set-name";
    /// Namespace of the AutoscalingRunnerSet that an object belongs to.
    pub const SCALE_SET_NAMESPACE: &str = "actions.github.com/scale-set-namespace";
    /// Enterprise in the config URL.
    pub const ENTERPRISE: &str = "actions.github.com/enterprise";
    /// Organization or owner in the config URL.
    pub const ORGANIZATION: &str = "actions.github.com/organization";
    /// Repository in the config URL.
    pub const REPOSITORY: &str = "actions.github.com/repository";
    /// Marks a runner's pod.
    pub const EPHEMERAL_RUNNER: &str = "actions-ephemeral-runner";
    /// Value of [`EPHEMERAL_RUNNER`].
    pub const EPHEMERAL_RUNNER_VALUE: &str = "True";
    /// On a listener's Role and RoleBinding: the AutoscalingListener's namespace.
    pub const LISTENER_NAMESPACE: &str = "auto-scaling-listener-namespace";
    /// On a listener's Role and RoleBinding: the AutoscalingListener's name.
    pub const LISTENER_NAME: &str = "auto-scaling-listener-name";
    /// On objects that a container hook made: the name of the runner's pod.
    pub const RUNNER_POD: &str = "runner-pod";
}

/// Name of the container that is the runner.
pub const RUNNER_CONTAINER: &str = "runner";
/// Name of the container that is the listener.
pub const LISTENER_CONTAINER: &str = "listener";
/// `maxRunners` of a listener when the scale set gives none.
pub const UNLIMITED_RUNNERS: i64 = 2_147_483_647;
/// Exit code of a runner whose version the Actions service rejected.
pub const EXIT_CODE_OUTDATED: i32 = 7;

/// Keys of the Secrets that we write and read.
pub mod keys {
    /// JIT configuration, in a runner's Secret.
    pub const JIT_TOKEN: &str = "jitToken";
    /// Runner's name, in a runner's Secret.
    pub const RUNNER_NAME: &str = "runnerName";
    /// Runner's id, in a runner's Secret.
    pub const RUNNER_ID: &str = "runnerId";
    /// Scale set's id, in a runner's Secret.
    pub const SCALE_SET_ID: &str = "scaleSetId";
    /// The listener's configuration, in its Secret.
    pub const LISTENER_CONFIG: &str = "config.json";
    /// Personal access token, in a credentials Secret.
    pub const GITHUB_TOKEN: &str = "github_token";
    /// App id or client id, in a credentials Secret.
    pub const GITHUB_APP_ID: &str = "github_app_id";
    /// Installation id, in a credentials Secret.
    pub const GITHUB_APP_INSTALLATION_ID: &str = "github_app_installation_id";
    /// Private key in PEM form, in a credentials Secret.
    pub const GITHUB_APP_PRIVATE_KEY: &str = "github_app_private_key";
    /// `http_proxy`, in a proxy Secret.
    pub const HTTP_PROXY: &str = "http_proxy";
    /// `https_proxy`, in a proxy Secret.
    pub const HTTPS_PROXY: &str = "https_proxy";
    /// `no_proxy`, in a proxy Secret.
    pub const NO_PROXY: &str = "no_proxy";
    /// User, in a proxy's credential Secret.
    pub const USERNAME: &str = "username";
    /// Password, in a proxy's credential Secret.
    pub const PASSWORD: &str = "password";
}

/// Environment variables.
pub mod env {
    /// The listener's image, in the controller's environment.
    pub const CONTROLLER_IMAGE: &str = "CONTROLLER_MANAGER_CONTAINER_IMAGE";
    /// The controller's namespace.
    pub const CONTROLLER_NAMESPACE: &str = "CONTROLLER_MANAGER_POD_NAMESPACE";
    /// Command of the listener's container.
    pub const LISTENER_ENTRYPOINT: &str = "LISTENER_ENTRYPOINT";
    /// Path of the listener's configuration.
    pub const LISTENER_CONFIG_PATH: &str = "LISTENER_CONFIG_PATH";
    /// JIT configuration of a runner.
    pub const RUNNER_JIT_CONFIG: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";
    /// Addition to a runner's user agent.
    pub const RUNNER_USER_AGENT: &str = "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT";
    /// Asks a runner to exit with code 7 when its version is rejected.
    pub const RUNNER_DEPRECATED_EXIT_CODE: &str =
        "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE";
    /// Path of a runner's container hooks; set by the chart in kubernetes mode.
    pub const RUNNER_CONTAINER_HOOKS: &str = "ACTIONS_RUNNER_CONTAINER_HOOKS";
    /// Makes every host count as a GitHub Enterprise Server.
    pub const FORCE_GHES: &str = "GITHUB_ACTIONS_FORCE_GHES";
}
