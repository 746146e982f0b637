//! Why something is as it is: a code, which decisions are made on, and a sentence for people,
//! which none is.
//!
//! Every code of ours is declared here once, and means the same on every object: in conditions,
//! in the status of runners, in Events. Other codes are the words that Kubernetes has for the end
//! of a container or a pod, such as `OOMKilled`; they are passed on as they are.

use std::borrow::Cow;
use std::fmt;

use super::{ActionsErrorKind, KubeErrorKind};

/// A code and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// One word in UpperCamelCase.
    pub code: Cow<'static, str>,
    /// A sentence that says what to do, where something is to be done.
    pub message: String,
}

impl Reason {
    /// Puts the two together.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $code;)*

        /// All codes, for tests and documents.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

/// The codes.
pub mod codes {
    codes! {
        // === what holds ===
        /// The Actions service knows the scale set.
        REGISTERED = "Registered";
        /// The listener runs.
        LISTENER_RUNNING = "ListenerRunning";
        /// Runners can be made.
        RUNNERS_READY = "RunnersReady";
        /// Jobs are taken.
        READY = "Ready";

        // === what is on its way ===
        /// Something is being set up for the first time.
        STARTING = "Starting";
        /// The scale set is being registered.
        REGISTERING = "Registering";
        /// An object is being created.
        CREATING = "Creating";
        /// An object is being replaced.
        REPLACING = "Replacing";
        /// Something is being deleted.
        DELETING = "Deleting";
        /// Something stands still because the scale set is parked.
        STOPPED = "Stopped";
        /// A revision of the runner spec is wanted that is not applied yet.
        APPLYING_REVISION = "ApplyingRevision";

        // === what is in the way of a scale set ===
        /// The Actions service rejects the version of the runners: the scale set is parked.
        OUTDATED = "Outdated";
        /// The spec cannot be carried out.
        INVALID_SPEC = "InvalidSpec";
        /// The policy of this controller forbids something in the spec.
        NOT_ALLOWED = "NotAllowed";
        /// Something else has the name of an object that is to be made.
        FOREIGN_OBJECT = "ForeignObject";
        /// An object cannot be written.
        NOT_WRITABLE = "NotWritable";
        /// The AutoscalingListener is not as it should be, because the API server refuses it.
        LISTENER_NOT_APPLIED = "ListenerNotApplied";
        /// The same of the EphemeralRunnerSet.
        RUNNER_SET_NOT_APPLIED = "RunnerSetNotApplied";
        /// More than one AutoscalingRunnerSet has the scale set.
        SCALE_SET_SHARED = "ScaleSetShared";
        /// The chart is of a version that this controller was not tested with.
        UNTESTED_VERSION = "UntestedVersion";
        /// The CustomResourceDefinitions lack fields that are written.
        FIELDS_MISSING = "FieldsMissing";
        /// A Secret or ConfigMap that the listener's configuration is made from is of no use.
        SOURCE_UNUSABLE = "SourceUnusable";

        // === the Actions service ===
        /// The credentials are missing, or not readable as such.
        CREDENTIALS_UNUSABLE = "CredentialsUnusable";
        /// The controller may not read the credentials.
        CREDENTIALS_FORBIDDEN = "CredentialsForbidden";
        /// The service does not accept the credentials.
        CREDENTIALS_REFUSED = "CredentialsRefused";
        /// What the configuration says of the service cannot be used.
        CONFIG_INVALID = "ConfigInvalid";
        /// The service has no such runner group.
        GROUP_NOT_FOUND = "GroupNotFound";
        /// The service has no such scale set.
        SCALE_SET_NOT_FOUND = "ScaleSetNotFound";
        /// The service does not answer, or not now.
        SERVICE_UNAVAILABLE = "ServiceUnavailable";
        /// Another runner has the name.
        RUNNER_NAME_TAKEN = "RunnerNameTaken";
        /// The service refused for another reason.
        REGISTRATION_FAILED = "RegistrationFailed";

        // === the API server ===
        /// A right is missing.
        FORBIDDEN = "Forbidden";
        /// The API server finds an object invalid.
        INVALID = "Invalid";
        /// A quota leaves no room.
        QUOTA_EXCEEDED = "QuotaExceeded";
        /// The namespace is being deleted.
        NAMESPACE_TERMINATING = "NamespaceTerminating";
        /// The API server does not answer, or not now.
        API_SERVER_UNAVAILABLE = "ApiServerUnavailable";
        /// The API server refused for another reason.
        REQUEST_FAILED = "RequestFailed";

        // === runners ===
        /// The API server refuses the EphemeralRunner.
        RUNNER_REFUSED = "RunnerRefused";
        /// The proxy's credentials may not be read.
        PROXY_FORBIDDEN = "ProxyForbidden";
        /// The proxy's credentials are of no use.
        PROXY_INVALID = "ProxyInvalid";
        /// The API server does not allow the pod.
        POD_FORBIDDEN = "PodForbidden";
        /// It finds the pod invalid.
        POD_INVALID = "PodInvalid";
        /// It finds the Secret invalid.
        SECRET_INVALID = "SecretInvalid";
        /// The pod was deleted from outside.
        POD_VANISHED = "PodVanished";
        /// The pod was not seen to start in time.
        START_TIMEOUT = "StartTimeout";
        /// The node of the pod is gone.
        NODE_LOST = "NodeLost";
        /// An init container failed.
        INIT_CONTAINER_FAILED = "InitContainerFailed";
        /// The pod failed, and says no more.
        POD_FAILED = "PodFailed";
        /// The service rejected the runner's version.
        RUNNER_VERSION_REJECTED = "RunnerVersionRejected";
        /// The job has ended, and the runner has not.
        RUNNER_DID_NOT_END = "RunnerDidNotEnd";
        /// The runner ended well, and its container may start again.
        COMPLETED = "Completed";
        /// Something else has the name of the runner's pod.
        POD_NAME_TAKEN = "PodNameTaken";
        /// Something else has the name of its Secret.
        SECRET_NAME_TAKEN = "SecretNameTaken";
        /// The runner is to go and waits for its job.
        WAITS_FOR_JOB = "WaitsForJob";
    }
}

/// The code of a call of the Actions service that failed.
#[must_use]
pub const fn code_of_call(kind: ActionsErrorKind) -> &'static str {
    match kind {
        ActionsErrorKind::Credentials => codes::CREDENTIALS_UNUSABLE,
        ActionsErrorKind::Denied => codes::CREDENTIALS_FORBIDDEN,
        ActionsErrorKind::Unauthorized => codes::CREDENTIALS_REFUSED,
        ActionsErrorKind::Config => codes::CONFIG_INVALID,
        ActionsErrorKind::GroupNotFound => codes::GROUP_NOT_FOUND,
        ActionsErrorKind::ScaleSetNotFound => codes::SCALE_SET_NOT_FOUND,
        ActionsErrorKind::RunnerExists => codes::RUNNER_NAME_TAKEN,
        ActionsErrorKind::Unavailable => codes::SERVICE_UNAVAILABLE,
        _ => codes::REGISTRATION_FAILED,
    }
}

/// The code of a request to the API server that failed.
#[must_use]
pub const fn code_of_request(kind: KubeErrorKind) -> &'static str {
    match kind {
        KubeErrorKind::Forbidden => codes::FORBIDDEN,
        KubeErrorKind::Invalid => codes::INVALID,
        KubeErrorKind::QuotaExceeded => codes::QUOTA_EXCEEDED,
        KubeErrorKind::NamespaceTerminating => codes::NAMESPACE_TERMINATING,
        KubeErrorKind::Unavailable | KubeErrorKind::Unanswered => codes::API_SERVER_UNAVAILABLE,
        KubeErrorKind::NotFound
        | KubeErrorKind::AlreadyExists
        | KubeErrorKind::Conflict
        | KubeErrorKind::Other => codes::REQUEST_FAILED,
    }
}

/// Whether a runner with that code in its status waits for something that keeps its pod from being
/// made; it is over once the pod is there. `CredentialsMissing` is what the first release
/// wrote for [`codes::CREDENTIALS_UNUSABLE`].
#[must_use]
pub fn keeps_from_pod(code: &str) -> bool {
    matches!(
        code,
        codes::QUOTA_EXCEEDED
            | codes::NAMESPACE_TERMINATING
            | codes::FORBIDDEN
            | codes::API_SERVER_UNAVAILABLE
            | codes::REQUEST_FAILED
            | codes::CREDENTIALS_UNUSABLE
            | codes::CREDENTIALS_FORBIDDEN
            | codes::CREDENTIALS_REFUSED
            | codes::CONFIG_INVALID
            | codes::RUNNER_NAME_TAKEN
            | codes::SCALE_SET_NOT_FOUND
            | codes::SERVICE_UNAVAILABLE
            | codes::REGISTRATION_FAILED
            | "CredentialsMissing"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_is_declared_once_and_is_a_word() {
        let different: BTreeSet<_> = codes::ALL.iter().collect();
        assert_eq!(different.len(), codes::ALL.len());
        for code in codes::ALL {
            let is_word = code.starts_with(|c: char| c.is_ascii_uppercase())
                && code.chars().all(|c| c.is_ascii_alphanumeric());
            assert!(is_word, "{code}");
        }
    }
}
