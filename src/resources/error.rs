//! Why an object cannot be built from what it refers to.

use crate::api::CredentialsError;
use crate::messages::ObjectRef;

/// What a person has to mend before an object can be built. Names the object and the key, and
/// holds no value of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An object that the scale set refers to does not exist.
    #[error("{object}, named by {field}, does not exist: create it or correct the field")]
    Missing {
        /// Which.
        object: ObjectRef,
        /// The field that names it.
        field: &'static str,
    },
    /// A key that the scale set refers to is not in its object.
    #[error("{object} has no key {key}: add it or correct {field}")]
    MissingKey {
        /// The object.
        object: ObjectRef,
        /// The key.
        key: String,
        /// The field that refers to it.
        field: &'static str,
    },
    /// A key's value is not usable.
    #[error("key {key} of {object} {problem}")]
    InvalidKey {
        /// The object.
        object: ObjectRef,
        /// The key.
        key: String,
        /// What is wrong with its value.
        problem: &'static str,
    },
    /// A Secret holds no usable credentials for GitHub.
    #[error("{object} is not usable: {problem}")]
    Credentials {
        /// The Secret.
        object: ObjectRef,
        /// Why.
        #[source]
        problem: CredentialsError,
    },
    /// A field has a value that is not usable.
    #[error("{field} {problem}")]
    Field {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The configuration cannot be written down.
    #[error("the listener's configuration cannot be written as JSON: {problem}")]
    Encoding {
        /// Why.
        problem: String,
    },
}
