//! What the server answers when it refuses: Kubernetes' `Status` object.
//!
//! The texts are the real server's, since people read them and programs match on them.
//! Knows nothing but JSON.

use serde_json::{Value, json};

/// A refusal, as code, reason, text and details of a `Status` object.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`; empty where the real server gives none.
    pub reason: &'static str,
    /// Human-readable text.
    pub message: String,
    /// `Status.details`; null when there are none.
    pub details: Value,
}

/// Group and plural name of a resource, as errors name it.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl std::fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        qualified(f, self.plural, self.group)
    }
}

fn qualified(f: &mut std::fmt::Formatter<'_>, name: &str, group: &str) -> std::fmt::Result {
    if group.is_empty() {
        f.write_str(name)
    } else {
        write!(f, "{name}.{group}")
    }
}

impl ApiError {
    /// An error with a text and no details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
        }
    }

    fn about(mut self, resource: Resource<'_>, name: &str) -> Self {
        let mut details = serde_json::Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !resource.group.is_empty() {
            details.insert("group".into(), resource.group.into());
        }
        details.insert("kind".into(), resource.plural.into());
        self.details = Value::Object(details);
        self
    }

    /// 400: the request itself makes no sense.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 404: no such object.
    #[must_use]
    pub fn not_found(resource: Resource<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {name:?} not found")).about(resource, name)
    }

    /// 404: no such path, as for a kind that is not installed.
    #[must_use]
    pub fn no_such_path() -> Self {
        let mut error = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        error.details = json!({});
        error
    }

    /// 409: an object of that name exists.
    #[must_use]
    pub fn already_exists(resource: Resource<'_>, name: &str) -> Self {
        let message = format!("{resource} {name:?} already exists");
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// 409: the write does not fit the object as it is; `why` completes the sentence.
    #[must_use]
    pub fn conflict(resource: Resource<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409: the object changed since it was read.
    #[must_use]
    pub fn stale(resource: Resource<'_>, name: &str) -> Self {
        const WHY: &str = "the object has been modified; please apply your changes to the latest \
                           version and try again";
        Self::conflict(resource, name, WHY)
    }

    /// 403: not allowed, for a reason; without a name the resource as a whole is meant.
    #[must_use]
    pub fn forbidden(resource: Resource<'_>, name: &str, why: &str) -> Self {
        let message = match (resource.plural, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} {name:?} is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 422: the object breaks rules of its kind.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, faults: &[FieldError]) -> Self {
        let resource = Resource {
            group,
            plural: kind,
        };
        let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(
            422,
            "Invalid",
            format!("{resource} {name:?} is invalid: {text}"),
        )
        .about(resource, name);
        error.details["causes"] = faults.iter().map(FieldError::cause).collect();
        error
    }

    /// 410: the history that the request needs is gone.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 410 for a watch, which names both revisions.
    #[must_use]
    pub fn too_old(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 405: the resource does not do that.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        const TEXT: &str = "the server does not allow this method on the requested resource";
        let mut error = Self::new(405, "MethodNotAllowed", TEXT);
        error.details = json!({});
        error
    }

    /// 415: the body's media type is not one the request can have.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 406: none of the media types asked for can be given.
    #[must_use]
    pub fn not_acceptable(offered: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            offered.join(", ")
        );
        Self::new(406, "NotAcceptable", message)
    }

    /// 500: the server cannot go on.
    #[must_use]
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(500, "InternalError", message)
    }

    /// Adds a cause to the details.
    #[must_use]
    pub fn because(mut self, reason: &str, message: &str, field: &str) -> Self {
        let cause = json!({ "reason": reason, "message": message, "field": field });
        if self.details.is_null() {
            self.details = json!({});
        }
        match self.details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => self.details["causes"] = json!([cause]),
        }
        self
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path of the field, such as `spec.containers[0].image`.
    pub field: String,
    /// Kind of fault.
    pub fault: Fault,
    /// Explanation; may be empty.
    pub detail: String,
}

/// The kinds of faults that Kubernetes knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    Required,
    Forbidden,
    Invalid(Value),
    Duplicate(Value),
    NotSupported(Value),
    NotFound(Value),
    TooLong,
    TooMany(u64),
    TypeInvalid(Value),
}

impl FieldError {
    /// A field that must be there and is not.
    #[must_use]
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, Fault::Required, detail)
    }

    /// A field that may not be set or changed.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, Fault::Forbidden, detail)
    }

    /// A value that is not acceptable.
    #[must_use]
    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(field, Fault::Invalid(value.into()), detail)
    }

    /// A value that may occur once only.
    #[must_use]
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, Fault::Duplicate(value.into()), "")
    }

    /// A value that is not one of a few.
    #[must_use]
    pub fn not_supported(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let quoted: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(field, Fault::NotSupported(value.into()), detail)
    }

    /// A reference to something that is not there.
    #[must_use]
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(field, Fault::NotFound(value.into()), "")
    }

    /// A fault of any kind.
    #[must_use]
    pub fn new(field: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            fault,
            detail: detail.into(),
        }
    }

    fn body(&self) -> String {
        let head = match &self.fault {
            Fault::Required => "Required value".to_owned(),
            Fault::Forbidden => "Forbidden".to_owned(),
            Fault::TooLong => "Too long".to_owned(),
            Fault::TooMany(count) => format!("Too many: {count}"),
            Fault::Invalid(value) | Fault::TypeInvalid(value) => format!("Invalid value: {value}"),
            Fault::Duplicate(value) => format!("Duplicate value: {value}"),
            Fault::NotSupported(value) => format!("Unsupported value: {value}"),
            Fault::NotFound(value) => format!("Not found: {value}"),
        };
        if self.detail.is_empty() {
            head
        } else {
            format!("{head}: {}", self.detail)
        }
    }

    fn cause(&self) -> Value {
        let reason = match self.fault {
            Fault::Required => "FieldValueRequired",
            Fault::Forbidden => "FieldValueForbidden",
            Fault::Invalid(_) => "FieldValueInvalid",
            Fault::Duplicate(_) => "FieldValueDuplicate",
            Fault::NotSupported(_) => "FieldValueNotSupported",
            Fault::NotFound(_) => "FieldValueNotFound",
            Fault::TooLong => "FieldValueTooLong",
            Fault::TooMany(_) => "FieldValueTooMany",
            Fault::TypeInvalid(_) => "FieldValueTypeInvalid",
        };
        json!({ "reason": reason, "message": self.body(), "field": self.field })
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: Resource<'_> = Resource {
        group: "",
        plural: "pods",
    };

    #[test]
    fn texts_are_the_real_servers() {
        let runners = Resource {
            group: "actions.github.com",
            plural: "ephemeralrunners",
        };
        assert_eq!(
            ApiError::not_found(runners, "r-1").message,
            "ephemeralrunners.actions.github.com \"r-1\" not found"
        );
        assert_eq!(
            ApiError::stale(PODS, "x").message,
            "Operation cannot be fulfilled on pods \"x\": the object has been modified; please \
             apply your changes to the latest version and try again"
        );
    }

    #[test]
    fn an_invalid_object_lists_every_fault_with_its_path() {
        let faults = [
            FieldError::required("spec.containers", ""),
            FieldError::invalid("metadata.name", "A", "must be lower case"),
        ];
        let error = ApiError::invalid("", "Pod", "A", &faults);
        assert_eq!(
            error.message,
            "Pod \"A\" is invalid: [spec.containers: Required value, metadata.name: Invalid \
             value: \"A\": must be lower case]"
        );
        assert_eq!(
            error.to_status()["details"]["causes"][1],
            json!({
                "reason": "FieldValueInvalid",
                "message": "Invalid value: \"A\": must be lower case",
                "field": "metadata.name",
            })
        );
    }
}
