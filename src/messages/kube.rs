//! Requests to the API server, and its answers.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::object::{Kind, Object, ObjectRef};

/// One request to the API server.
#[derive(Clone, PartialEq)]
pub enum KubeRequest {
    /// Reads an object from etcd, never from a cache.
    Get(ObjectRef),
    /// Reads the objects of a kind in a namespace that carry the label.
    List {
        /// What to list.
        kind: Kind,
        /// Where.
        namespace: String,
        /// Label selector, as `kubectl -l` takes it.
        selector: String,
    },
    /// Creates the object.
    Create(Object),
    /// Applies a JSON merge patch.
    Patch {
        /// What to patch.
        target: ObjectRef,
        /// The patch.
        body: Value,
        /// Whether the status subresource is patched, and not the object itself.
        status: bool,
        /// The resourceVersion that the object must still have, for an optimistic lock.
        lock: Option<String>,
    },
    /// Takes a finalizer off an object of Kubernetes' own kinds, whatever else it holds: a right
    /// to patch is enough. One that does not hold it stays as it is.
    DropFinalizer {
        /// What holds it.
        target: ObjectRef,
        /// The finalizer.
        finalizer: &'static str,
    },
    /// Deletes the object.
    Delete {
        /// What to delete.
        target: ObjectRef,
        /// The uid it must still have; guards a successor of the same name.
        uid: Option<String>,
        /// The resourceVersion that the object must still have, for an optimistic lock.
        lock: Option<String>,
        /// Grace period in seconds; `None` leaves it to the object.
        grace: Option<u32>,
    },
}

impl KubeRequest {
    /// The verb, as RBAC and the metrics call it.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Get(_) => "get",
            Self::List { .. } => "list",
            Self::Create(_) => "create",
            Self::Patch { .. } | Self::DropFinalizer { .. } => "patch",
            Self::Delete { .. } => "delete",
        }
    }

    /// The kind it is about.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Get(target)
            | Self::Patch { target, .. }
            | Self::DropFinalizer { target, .. }
            | Self::Delete { target, .. } => target.kind,
            Self::List { kind, .. } => *kind,
            Self::Create(object) => object.kind(),
        }
    }

    /// The namespace it is about.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Get(target)
            | Self::Patch { target, .. }
            | Self::DropFinalizer { target, .. }
            | Self::Delete { target, .. } => &target.namespace,
            Self::List { namespace, .. } => namespace,
            Self::Create(object) => object.meta().namespace.as_deref().unwrap_or_default(),
        }
    }

    /// A merge patch of an object itself, without a lock.
    #[must_use]
    pub const fn patch(target: ObjectRef, body: Value) -> Self {
        Self::Patch {
            target,
            body,
            status: false,
            lock: None,
        }
    }

    /// A merge patch of an object's status, without a lock.
    #[must_use]
    pub const fn patch_status(target: ObjectRef, body: Value) -> Self {
        Self::Patch {
            target,
            body,
            status: true,
            lock: None,
        }
    }

    /// A delete of exactly this object, with its own grace period.
    #[must_use]
    pub fn delete(object: &Object) -> Self {
        Self::Delete {
            target: object.reference(),
            uid: object.meta().uid.clone(),
            lock: None,
            grace: None,
        }
    }
}

#[cfg(test)]
impl KubeRequest {
    /// What every write that is decided on has, whatever it is about: a delete names the uid, or
    /// it might hit a successor; and a patch that replaces a list names the version that was
    /// read, or what somebody has added since is lost.
    pub fn assert_guarded(&self) {
        match self {
            Self::Delete { uid, .. } => {
                assert!(uid.is_some(), "it may hit a successor: {self:?}");
            }
            Self::Patch { body, lock, .. } => {
                let lists = ["finalizers", "ownerReferences"];
                let replaces = lists
                    .iter()
                    .any(|list| body["metadata"].get(list).is_some());
                assert!(
                    !replaces || lock.is_some(),
                    "it may undo another's: {self:?}"
                );
            }
            _ => {}
        }
    }
}

/// A patch of a Secret is shown without its body: this ends up in logs.
impl fmt::Debug for KubeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get(target) => write!(f, "get {target}"),
            Self::List {
                kind,
                namespace,
                selector,
            } => write!(f, "list {kind} {namespace} -l {selector}"),
            Self::Create(object) => write!(f, "create {}", object.reference()),
            Self::Patch {
                target,
                body,
                status,
                lock,
            } => {
                write!(f, "patch {target}")?;
                if *status {
                    f.write_str(" status")?;
                }
                if let Some(lock) = lock {
                    write!(f, " at {lock}")?;
                }
                match target.kind {
                    Kind::Secret => f.write_str(" [redacted]"),
                    _ => write!(f, " {body}"),
                }
            }
            Self::DropFinalizer { target, finalizer } => {
                write!(f, "patch {target} without finalizer {finalizer}")
            }
            Self::Delete { target, grace, .. } => {
                write!(f, "delete {target}")?;
                match grace {
                    Some(seconds) => write!(f, " grace {seconds}s"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// What the API server answered when it accepted a request.
#[derive(Clone, Debug, PartialEq)]
pub enum KubeAnswer {
    /// The object as it now is; after a delete, one that lingers (grace, finalizers).
    Object(Object),
    /// The objects listed.
    Objects(Vec<Object>),
    /// The object is gone.
    Deleted,
}

impl KubeAnswer {
    /// The object, when the answer is one.
    #[must_use]
    pub const fn object(&self) -> Option<&Object> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

/// Why a request to the API server failed. The message is the server's own and holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct KubeError {
    /// What it means for the one who asked.
    pub kind: KubeErrorKind,
    /// The server's message, or that of the connection.
    pub message: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

/// What a failed request means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KubeErrorKind {
    /// There is no such object (404).
    NotFound,
    /// There is an object of that name (409 on create).
    AlreadyExists,
    /// The object has changed since it was read (409).
    Conflict,
    /// The object is refused as it is (400, 422).
    Invalid,
    /// A quota is used up (403).
    QuotaExceeded,
    /// The namespace is being deleted (403): nothing can be created in it.
    NamespaceTerminating,
    /// The caller has no permission, or admission refuses the object (403).
    Forbidden,
    /// The server is busy or out of order (429, 5xx); the request did not take effect.
    Unavailable,
    /// No answer came: the request may have taken effect, so read before it is repeated.
    Unanswered,
    /// Anything else.
    Other,
}

impl KubeErrorKind {
    /// The kind's name, for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::QuotaExceeded => "quota_exceeded",
            Self::NamespaceTerminating => "namespace_terminating",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
            Self::Unanswered => "unanswered",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_secret_holds_is_not_shown() {
        let patch = |kind| {
            let target = ObjectRef::new(kind, "ci", "s");
            let request = KubeRequest::Patch {
                target,
                body: json!({"data": {"token": "the-token"}}),
                status: false,
                lock: Some("7".to_owned()),
            };
            format!("{request:?}")
        };
        assert_eq!(patch(Kind::Secret), "patch Secret ci/s at 7 [redacted]");
        assert!(patch(Kind::ConfigMap).contains("the-token"), "it is none");
        let secret = Object::from(k8s_openapi::api::core::v1::Secret {
            string_data: Some([("token".to_owned(), "the-token".to_owned())].into()),
            ..Default::default()
        });
        for text in [
            format!("{:?}", KubeRequest::Create(secret.clone())),
            format!("{secret:?}"),
            format!("{:?}", KubeAnswer::Object(secret.clone())),
            format!("{:?}", KubeAnswer::Objects(vec![secret])),
        ] {
            assert!(!text.contains("the-token"), "{text}");
        }
    }
}
