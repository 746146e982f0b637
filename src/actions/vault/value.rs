//! The vault's JSON: its answers, and the value of a secret. Pure. Problems tell what is
//! wrong and nothing of what the text holds.

use k8s_openapi::ByteString;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use crate::actions::credentials::Fields;
use crate::actions::error::redact_secret;

/// The value in the answer to a request for a secret.
pub(super) fn of_answer(body: &[u8]) -> Result<SecretString, &'static str> {
    let Ok(Value::Object(mut answer)) = serde_json::from_slice(body) else {
        return Err("cannot be read: the answer is no JSON object; check the vault's url");
    };
    match answer.remove("value") {
        Some(Value::String(value)) => Ok(value.into()),
        _ => Err("is not in the answer; check the vault's url"),
    }
}

/// What the vault says about a refusal, in one line. `secret` is what the request was authorized
/// with: should the vault repeat it, it is left out.
pub(super) fn error_of(body: &[u8], secret: &str) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str);
    let code = text("/error/innererror/code").or_else(|| text("/error/code"));
    let line = match (code, text("/error/message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => "it does not say why".to_owned(),
    };
    redact_secret(&line, secret)
}

/// The fields of a secret whose value is a JSON object.
pub(super) fn fields(value: &SecretString) -> Result<Fields, String> {
    const EXPECTED: &str = "it is to be a JSON object with the fields of a credentials Secret, \
                            as {\"github_token\": \"…\"}";
    let text = value.expose_secret().trim_start_matches('\u{feff}');
    let object: Map<String, Value> = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err(format!("is no JSON object: {EXPECTED}")),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            return Err(format!(
                "is no JSON (at line {line}, column {column}): {EXPECTED}"
            ));
        }
    };
    let mut fields = Fields::new();
    for (name, value) in object {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            // as good as absent
            Value::Null => continue,
            _ => {
                return Err(format!(
                    "has a field {name} that is neither text nor a number"
                ));
            }
        };
        fields.insert(name, ByteString(text.into_bytes()));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Credentials;

    #[test]
    fn an_app_in_a_vault_is_read_like_one_in_a_secret() {
        let value = r#"{"github_app_id": 12, "github_app_installation_id": 345,
            "github_app_private_key": "line one\nline two", "github_token": null}"#;
        let fields = fields(&value.into()).unwrap();
        let Ok(Credentials::App {
            app_id,
            installation_id,
            private_key,
        }) = Credentials::from_data(&fields)
        else {
            panic!("no app")
        };
        assert_eq!((app_id.as_str(), installation_id), ("12", 345));
        assert_eq!(private_key.expose_secret(), "line one\nline two");
    }

    #[test]
    fn a_value_of_another_form_is_told_without_showing_it() {
        for (value, expected) in [
            ("ghp_s3cret", "is no JSON (at line 1, column 1)"),
            ("\"ghp_s3cret\"", "is no JSON object"),
            ("{\"github_token\": \"s3cret", "is no JSON"),
            (
                "{\"github_token\": [\"s3cret\"]}",
                "field github_token that is neither",
            ),
        ] {
            let problem = fields(&value.into()).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn the_inner_code_of_a_refusal_says_more_than_the_outer() {
        let body = br#"{"error":{"code":"Forbidden","message":"Caller is not authorized.\r\nx",
            "innererror":{"code":"ForbiddenByPolicy"}}}"#;
        assert_eq!(
            error_of(body, ""),
            "ForbiddenByPolicy: Caller is not authorized. x"
        );
        assert_eq!(error_of(b"<html>", ""), "it does not say why");
    }
}
