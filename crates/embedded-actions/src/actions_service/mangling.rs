//! What becomes of an answer on its way: bodies that are empty, garbage or not what the
//! protocol says they are.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Response};
use serde_json::{Value, json};

/// What is done to an answer. The call has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mangling {
    /// A byte order mark stands before the body.
    ByteOrderMark,
    /// There is no body.
    Empty,
    /// It does not say what its body is.
    NoContentType,
    /// The body has this many mebibytes, the further ones white space: JSON is as good with them.
    Long(u16),
    /// The body is said to be packed, and is not.
    Packed,
    /// The body breaks off in the middle.
    Garbage,
    /// The body is the page of a proxy that is in trouble.
    HtmlPage,
    /// The statistics of a session or message are null.
    NullStatistics,
    /// The statistics of a session or message are all zero, whatever else it says.
    ZeroStatistics,
    /// The message is of a type that nobody knows.
    UnknownMessageType,
    /// Before what the message tells, it tells something of a type that nobody knows.
    UnknownElement,
    /// What the message tells is no JSON.
    BodyNotJson,
}

/// A type that the protocol has no use for.
const UNKNOWN_TYPE: &str = "RunnerScaleSetWeatherReport";

impl Mangling {
    /// Does it. An answer that has nothing of the kind stays as it is.
    pub(super) fn apply(self, response: &mut Response<Bytes>) {
        match self {
            Self::ByteOrderMark => {
                let body = [b"\xef\xbb\xbf", &response.body()[..]].concat();
                *response.body_mut() = body.into();
            }
            Self::NoContentType => {
                response.headers_mut().remove(CONTENT_TYPE);
            }
            Self::Long(mebibytes) => {
                let mut body = response.body().to_vec();
                body.resize(body.len().max(usize::from(mebibytes) << 20), b' ');
                *response.body_mut() = body.into();
            }
            Self::Packed => {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(CONTENT_ENCODING, gzip);
            }
            Self::Empty => *response.body_mut() = Bytes::new(),
            Self::Garbage => {
                let half = response.body().len() / 2;
                response.body_mut().truncate(half);
            }
            Self::HtmlPage => {
                let page = "<html><body><h1>Something went wrong</h1></body></html>\n";
                *response.body_mut() = Bytes::from_static(page.as_bytes());
                let html = HeaderValue::from_static("text/html");
                response.headers_mut().insert(CONTENT_TYPE, html);
            }
            Self::NullStatistics => edit(response, "statistics", |_| Value::Null),
            Self::ZeroStatistics => edit(response, "statistics", zeros),
            Self::UnknownMessageType => edit(response, "messageType", |_| UNKNOWN_TYPE.into()),
            Self::UnknownElement => edit(response, "body", with_stranger),
            Self::BodyNotJson => edit(response, "body", |_| "[{\"messageType\":".into()),
        }
    }
}

/// Changes a field of a JSON object that has it.
fn edit(response: &mut Response<Bytes>, field: &str, change: impl FnOnce(&Value) -> Value) {
    let Ok(mut body) = serde_json::from_slice::<Value>(response.body()) else {
        return;
    };
    if let Some(value) = body.get_mut(field) {
        *value = change(value);
        *response.body_mut() = body.to_string().into();
    }
}

fn zeros(statistics: &Value) -> Value {
    let fields = statistics.as_object().into_iter().flatten();
    fields.map(|(name, _)| (name.clone(), json!(0))).collect()
}

fn with_stranger(body: &Value) -> Value {
    let told = body
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    let mut told: Vec<Value> = told.unwrap_or_default();
    told.insert(0, json!({"messageType": UNKNOWN_TYPE, "outlook": "cloudy"}));
    Value::Array(told).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"body":"[{\"messageType\":\"JobAvailable\"}]","messageId":7,"messageType":"RunnerScaleSetJobMessages","statistics":{"totalAssignedJobs":3}}"#;

    fn mangled(mangling: Mangling) -> String {
        let mut response = Response::new(Bytes::from_static(MESSAGE.as_bytes()));
        mangling.apply(&mut response);
        String::from_utf8(response.body().to_vec()).unwrap()
    }

    #[test]
    fn each_mangling_changes_what_it_says_and_nothing_else() {
        let swap = |from: &str, to: &str| MESSAGE.replace(from, to);
        let type_name = "RunnerScaleSetJobMessages";
        let statistics = r#"{"totalAssignedJobs":3}"#;
        for (mangling, expected) in [
            (Mangling::ByteOrderMark, format!("\u{feff}{MESSAGE}")),
            (Mangling::Empty, String::new()),
            (Mangling::Garbage, MESSAGE[..MESSAGE.len() / 2].to_owned()),
            (Mangling::NullStatistics, swap(statistics, "null")),
            (Mangling::ZeroStatistics, swap("3}", "0}")),
            (Mangling::UnknownMessageType, swap(type_name, UNKNOWN_TYPE)),
        ] {
            assert_eq!(mangled(mangling), expected, "{mangling:?}");
        }
        assert!(mangled(Mangling::HtmlPage).starts_with("<html>"));
        let body = |mangling| -> Value {
            let message: Value = serde_json::from_str(&mangled(mangling)).unwrap();
            message["body"].clone()
        };
        let told: Value =
            serde_json::from_str(body(Mangling::UnknownElement).as_str().unwrap()).unwrap();
        assert_eq!(told[0]["messageType"], UNKNOWN_TYPE);
        assert_eq!(told[1], json!({"messageType": "JobAvailable"}));
        let broken = body(Mangling::BodyNotJson);
        let read = serde_json::from_str::<Value>(broken.as_str().unwrap());
        assert!(read.is_err(), "{broken}");
    }

    #[test]
    fn an_answer_without_the_field_stays_as_it_is() {
        for body in ["", "[]", "{}", "no JSON"] {
            let mut response = Response::new(Bytes::from_static(body.as_bytes()));
            for mangling in [Mangling::NullStatistics, Mangling::UnknownElement] {
                mangling.apply(&mut response);
            }
            assert_eq!(response.body(), body);
        }
    }
}
