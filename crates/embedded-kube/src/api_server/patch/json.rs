//! JSON patch (RFC 6902), with the real server's refusals.

use serde_json::Value;

use crate::api_server::status::ApiError;

/// Applies a JSON patch to an object.
///
/// # Errors
/// 400 when it is no JSON patch, 422 when one of its operations cannot be carried out.
pub fn apply(object: &Value, patch: &[u8]) -> Result<Value, ApiError> {
    let patch: json_patch::Patch = serde_json::from_slice(patch)
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    let mut patched = object.clone();
    match json_patch::patch(&mut patched, &patch) {
        Ok(()) => Ok(patched),
        Err(error) => {
            let text = "the server rejected our request due to an error in our request";
            let refused = ApiError::new(422, "Invalid", text);
            Err(refused.because("UnexpectedServerResponse", &error.to_string(), ""))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_test_operation_refuses_the_whole_patch() {
        let object = json!({ "spec": { "replicas": 1 } });
        let patch = json!([
            { "op": "replace", "path": "/spec/replicas", "value": 2 },
            { "op": "test", "path": "/spec/replicas", "value": 3 },
        ]);
        let refusal = apply(&object, patch.to_string().as_bytes()).unwrap_err();
        assert_eq!((refusal.code, refusal.reason), (422, "Invalid"));
    }

    #[test]
    fn something_else_than_a_patch_is_a_bad_request() {
        assert_eq!(apply(&json!({}), b"{}").unwrap_err().code, 400);
    }
}
