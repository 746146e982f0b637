//! Objects of the ten kinds that actors deal with, under one type, and their names.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet};

/// A Kubernetes type that can stand in an [`Object`].
pub trait KubeObject: Sized + Send + Sync + 'static {
    /// Its kind.
    const KIND: Kind;
    /// Its metadata.
    fn meta(&self) -> &ObjectMeta;
    /// Puts it under the common type.
    fn into_object(self: Arc<Self>) -> Object;
    /// Takes it out of the common type; `None` when that holds another kind.
    fn from_object(object: &Object) -> Option<Arc<Self>>;

    /// Its kind, namespace and name.
    fn reference(&self) -> ObjectRef {
        let meta = self.meta();
        ObjectRef::new(
            Self::KIND,
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

macro_rules! kinds {
    ($($kind:ident $api_version:literal $plural:literal),* $(,)?) => {
        /// The kinds that actors deal with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each is the Kubernetes kind of that name")]
        pub enum Kind { $($kind),* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The kind as Kubernetes writes it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind)),* }
            }

            /// The `apiVersion` of its objects.
            #[must_use]
            pub const fn api_version(self) -> &'static str {
                match self { $(Self::$kind => $api_version),* }
            }

            /// Its plural name, as in URLs and RBAC rules.
            #[must_use]
            pub const fn plural(self) -> &'static str {
                match self { $(Self::$kind => $plural),* }
            }
        }

        /// An object of one of the kinds, shared. Comparing two compares what they hold.
        #[derive(Clone, PartialEq)]
        #[allow(missing_docs, reason = "each holds the Kubernetes kind of that name")]
        pub enum Object { $($kind(Arc<$kind>)),* }

        impl Object {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),* }
            }

            /// Its metadata.
            #[must_use]
            pub fn meta(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata),* }
            }
        }

        $(
            impl KubeObject for $kind {
                const KIND: Kind = Kind::$kind;
                fn meta(&self) -> &ObjectMeta {
                    &self.metadata
                }
                fn into_object(self: Arc<Self>) -> Object {
                    Object::$kind(self)
                }
                fn from_object(object: &Object) -> Option<Arc<Self>> {
                    match object {
                        Object::$kind(inner) => Some(inner.clone()),
                        _ => None,
                    }
                }
            }

            impl From<$kind> for Object {
                fn from(object: $kind) -> Self {
                    Self::$kind(Arc::new(object))
                }
            }
        )*
    };
}

kinds! {
    AutoscalingRunnerSet "actions.github.com/v1alpha1" "autoscalingrunnersets",
    AutoscalingListener "actions.github.com/v1alpha1" "autoscalinglisteners",
    EphemeralRunnerSet "actions.github.com/v1alpha1" "ephemeralrunnersets",
    EphemeralRunner "actions.github.com/v1alpha1" "ephemeralrunners",
    Pod "v1" "pods",
    Secret "v1" "secrets",
    ConfigMap "v1" "configmaps",
    ServiceAccount "v1" "serviceaccounts",
    Role "rbac.authorization.k8s.io/v1" "roles",
    RoleBinding "rbac.authorization.k8s.io/v1" "rolebindings",
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Object {
    /// Its kind, namespace and name.
    #[must_use]
    pub fn reference(&self) -> ObjectRef {
        let meta = self.meta();
        ObjectRef::new(
            self.kind(),
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    /// Its uid; empty before it was created.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    /// Takes out the object if it is of kind `K`.
    #[must_use]
    pub fn get<K: KubeObject>(&self) -> Option<Arc<K>> {
        K::from_object(self)
    }
}

/// Names the object and its version, never what it holds: a Secret may be in it, and this
/// ends up in logs.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.meta().resource_version.as_deref().unwrap_or("new");
        write!(f, "{}@{version}", self.reference())
    }
}

/// Kind, namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Kind.
    pub kind: Kind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// Puts the three together.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
