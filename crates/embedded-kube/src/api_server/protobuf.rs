//! Reading Kubernetes' protobuf, in which kubectl sends what it makes from its command line
//! (`kubectl create secret`, `kubectl auth can-i`). Answers are always JSON, which every
//! client takes.
//!
//! Only a few kinds are read; the field numbers are those of Kubernetes'
//! `generated.proto` files. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::object;
use wall_clock::Timestamp;

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// It is not what the media type says.
    #[error("the body is not Kubernetes protobuf: {0}")]
    Malformed(&'static str),
    /// Its kind is not one that is read.
    #[error("{0}, Kind={1} is not read as protobuf here: send JSON or YAML, as kubectl apply does")]
    UnknownKind(String, String),
}

/// Four bytes that every such body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Reads a body as the object that it encodes.
///
/// # Errors
/// When it is malformed or of a kind that is not known here.
pub fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(ProtobufError::Malformed(
        "it does not start with its magic number",
    ))?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Wire::Bytes(type_meta)) => {
                for field in Fields(type_meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => api_version = string(text),
                        (2, Wire::Bytes(text)) => kind = string(text),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let known = KINDS
        .iter()
        .find(|known| known.0 == api_version && known.1 == kind);
    // options of a delete carry the version of what is deleted
    let delete_options = (kind == "DeleteOptions").then_some(DELETE_OPTIONS);
    let message = known.map(|known| known.2).or(delete_options);
    let Some(message) = message else {
        return Err(ProtobufError::UnknownKind(api_version, kind));
    };
    let mut object = read(message, raw)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(Value::Object(object))
}

/// A value as it is on the wire.
enum Wire<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The fields of a message, by number.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self
                .0
                .split_first()
                .ok_or(ProtobufError::Malformed("it ends early"))?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Malformed("a number is too long"))
    }

    fn bytes(&mut self, length: usize) -> Result<&'b [u8], ProtobufError> {
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(ProtobufError::Malformed("it ends early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u64, Wire<'b>), ProtobufError> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Bytes(self.bytes(8)?),
            2 => {
                let length = usize::try_from(self.varint()?)
                    .map_err(|_| ProtobufError::Malformed("it ends early"))?;
                Wire::Bytes(self.bytes(length)?)
            }
            5 => Wire::Bytes(self.bytes(4)?),
            _ => return Err(ProtobufError::Malformed("a field has an unknown wire type")),
        };
        Ok((tag >> 3, value))
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(u64, Wire<'b>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The fields of a type: number, name and kind of each.
type Message = &'static [(u64, &'static str, Kind)];

/// What a field holds.
#[derive(Clone, Copy)]
enum Kind {
    /// A string; empty means absent.
    Text,
    /// A list of strings.
    Texts,
    /// A truth value.
    Bool,
    /// An integer.
    Integer,
    /// An integer of which zero means absent.
    Count,
    /// A point in time; empty means absent.
    Time,
    /// Another message.
    One(Message),
    /// A list of messages.
    Many(Message),
    /// A map of strings to strings.
    TextMap,
    /// A map of strings to bytes, base64 in JSON.
    BytesMap,
    /// A map of strings to quantities, which are messages of one string.
    Quantities,
}

fn read(message: Message, bytes: &[u8]) -> Result<Map<String, Value>, ProtobufError> {
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, wire) = field?;
        let Some((_, name, kind)) = message.iter().find(|known| known.0 == number) else {
            continue;
        };
        match (kind, wire) {
            (Kind::Bool, Wire::Number(value)) => {
                object.insert((*name).into(), json!(value != 0));
            }
            (Kind::Count, Wire::Number(0)) => {}
            (Kind::Integer | Kind::Count, Wire::Number(value)) => {
                object.insert((*name).into(), json!(value.cast_signed()));
            }
            (kind, Wire::Bytes(bytes)) => read_bytes(&mut object, name, *kind, bytes)?,
            _ => {
                return Err(ProtobufError::Malformed(
                    "a field has another type than it should",
                ));
            }
        }
    }
    Ok(object)
}

fn read_bytes(
    object: &mut Map<String, Value>,
    name: &str,
    kind: Kind,
    bytes: &[u8],
) -> Result<(), ProtobufError> {
    let value = match kind {
        Kind::Text if bytes.is_empty() => return Ok(()),
        Kind::Text => json!(string(bytes)),
        Kind::One(message) => Value::Object(read(message, bytes)?),
        Kind::Time => match time(bytes)? {
            Some(time) => json!(time),
            None => return Ok(()),
        },
        Kind::Texts => return push(object, name, json!(string(bytes))),
        Kind::Many(message) => return push(object, name, Value::Object(read(message, bytes)?)),
        Kind::TextMap | Kind::BytesMap | Kind::Quantities => {
            let (key, value) = entry(bytes)?;
            let value = match kind {
                Kind::BytesMap => BASE64.encode(value),
                Kind::Quantities => match Fields(value).next() {
                    Some(Ok((1, Wire::Bytes(text)))) => string(text),
                    _ => String::new(),
                },
                _ => string(value),
            };
            let map = object.entry(name).or_insert_with(|| json!({}));
            map[key] = json!(value);
            return Ok(());
        }
        Kind::Bool | Kind::Integer | Kind::Count => {
            return Err(ProtobufError::Malformed(
                "a field has another type than it should",
            ));
        }
    };
    object.insert(name.into(), value);
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), ProtobufError> {
    match object.entry(name).or_insert_with(|| json!([])) {
        Value::Array(items) => {
            items.push(value);
            Ok(())
        }
        _ => Err(ProtobufError::Malformed(
            "a field has another type than it should",
        )),
    }
}

/// A map's entry.
fn entry(bytes: &[u8]) -> Result<(String, &[u8]), ProtobufError> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in Fields(bytes) {
        match field? {
            (1, Wire::Bytes(bytes)) => key = string(bytes),
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

fn time(bytes: &[u8]) -> Result<Option<String>, ProtobufError> {
    let mut seconds = None;
    for field in Fields(bytes) {
        if let (1, Wire::Number(value)) = field? {
            seconds = Some(value.cast_signed());
        }
    }
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    let time = Timestamp::from_second(seconds)
        .map_err(|_| ProtobufError::Malformed("a time is out of range"))?;
    Ok(Some(object::time(time)))
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The kinds that are read.
const KINDS: &[(&str, &str, Message)] = &[
    ("v1", "Secret", SECRET),
    ("v1", "ConfigMap", CONFIG_MAP),
    ("v1", "ServiceAccount", SERVICE_ACCOUNT),
    ("v1", "Namespace", NAMESPACE),
    ("v1", "ResourceQuota", RESOURCE_QUOTA),
    (RBAC, "Role", ROLE),
    (RBAC, "ClusterRole", ROLE),
    (RBAC, "RoleBinding", ROLE_BINDING),
    (RBAC, "ClusterRoleBinding", ROLE_BINDING),
    (
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
        ACCESS_REVIEW,
    ),
    ("policy/v1", "Eviction", EVICTION),
];

const OBJECT_META: Message = &[
    (1, "name", Kind::Text),
    (2, "generateName", Kind::Text),
    (3, "namespace", Kind::Text),
    (5, "uid", Kind::Text),
    (6, "resourceVersion", Kind::Text),
    (7, "generation", Kind::Count),
    (8, "creationTimestamp", Kind::Time),
    (9, "deletionTimestamp", Kind::Time),
    (10, "deletionGracePeriodSeconds", Kind::Integer),
    (11, "labels", Kind::TextMap),
    (12, "annotations", Kind::TextMap),
    (13, "ownerReferences", Kind::Many(OWNER_REFERENCE)),
    (14, "finalizers", Kind::Texts),
];
const OWNER_REFERENCE: Message = &[
    (1, "kind", Kind::Text),
    (3, "name", Kind::Text),
    (4, "uid", Kind::Text),
    (5, "apiVersion", Kind::Text),
    (6, "controller", Kind::Bool),
    (7, "blockOwnerDeletion", Kind::Bool),
];
const SECRET: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (2, "data", Kind::BytesMap),
    (3, "type", Kind::Text),
    (4, "stringData", Kind::TextMap),
    (5, "immutable", Kind::Bool),
];
const CONFIG_MAP: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (2, "data", Kind::TextMap),
    (3, "binaryData", Kind::BytesMap),
    (4, "immutable", Kind::Bool),
];
const SERVICE_ACCOUNT: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (
        3,
        "imagePullSecrets",
        Kind::Many(&[(1, "name", Kind::Text)]),
    ),
    (4, "automountServiceAccountToken", Kind::Bool),
];
const NAMESPACE: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (2, "spec", Kind::One(&[(1, "finalizers", Kind::Texts)])),
];
const RESOURCE_QUOTA: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (
        2,
        "spec",
        Kind::One(&[(1, "hard", Kind::Quantities), (2, "scopes", Kind::Texts)]),
    ),
];
const ROLE: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (2, "rules", Kind::Many(POLICY_RULE)),
];
const POLICY_RULE: Message = &[
    (1, "verbs", Kind::Texts),
    (2, "apiGroups", Kind::Texts),
    (3, "resources", Kind::Texts),
    (4, "resourceNames", Kind::Texts),
    (5, "nonResourceURLs", Kind::Texts),
];
const ROLE_BINDING: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (2, "subjects", Kind::Many(SUBJECT)),
    (3, "roleRef", Kind::One(ROLE_REFERENCE)),
];
const SUBJECT: Message = &[
    (1, "kind", Kind::Text),
    (2, "apiGroup", Kind::Text),
    (3, "name", Kind::Text),
    (4, "namespace", Kind::Text),
];
const ROLE_REFERENCE: Message = &[
    (1, "apiGroup", Kind::Text),
    (2, "kind", Kind::Text),
    (3, "name", Kind::Text),
];
const ACCESS_REVIEW: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (
        2,
        "spec",
        Kind::One(&[
            (1, "resourceAttributes", Kind::One(RESOURCE_ATTRIBUTES)),
            (
                2,
                "nonResourceAttributes",
                Kind::One(&[(1, "path", Kind::Text), (2, "verb", Kind::Text)]),
            ),
        ]),
    ),
];
const RESOURCE_ATTRIBUTES: Message = &[
    (1, "namespace", Kind::Text),
    (2, "verb", Kind::Text),
    (3, "group", Kind::Text),
    (4, "version", Kind::Text),
    (5, "resource", Kind::Text),
    (6, "subresource", Kind::Text),
    (7, "name", Kind::Text),
];
const EVICTION: Message = &[
    (1, "metadata", Kind::One(OBJECT_META)),
    (2, "deleteOptions", Kind::One(DELETE_OPTIONS)),
];
const DELETE_OPTIONS: Message = &[
    (1, "gracePeriodSeconds", Kind::Integer),
    (
        2,
        "preconditions",
        Kind::One(&[(1, "uid", Kind::Text), (2, "resourceVersion", Kind::Text)]),
    ),
    (3, "orphanDependents", Kind::Bool),
    (4, "propagationPolicy", Kind::Text),
    (5, "dryRun", Kind::Texts),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        field.extend_from_slice(bytes);
        field
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn a_secret_is_read_with_its_bytes() {
        let meta = [
            field(1, b"s1"),
            field(2, b""),
            field(8, b""),
            vec![7 << 3, 0],
        ]
        .concat();
        let data = [field(1, b"token"), field(2, b"abc")].concat();
        let raw = [field(1, &meta), field(2, &data), field(3, b"Opaque")].concat();
        assert_eq!(
            decode(&body("v1", "Secret", &raw)).unwrap(),
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s1"},
                "data": {"token": "YWJj"}, "type": "Opaque",
            })
        );
    }

    #[test]
    fn lists_keep_their_order_and_a_zero_grace_period_counts() {
        let rule = [
            field(1, b"get"),
            field(1, b"list"),
            field(2, b""),
            field(3, b"pods"),
        ]
        .concat();
        let role = decode(&body(RBAC, "Role", &field(2, &rule))).unwrap();
        assert_eq!(
            role["rules"],
            json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])
        );
        let options = decode(&body("v1", "DeleteOptions", &[1 << 3, 0])).unwrap();
        assert_eq!(options["gracePeriodSeconds"], 0);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_reason() {
        assert!(matches!(decode(b"{}"), Err(ProtobufError::Malformed(_))));
        let cut = body("v1", "Secret", b"abcdef");
        assert!(matches!(
            decode(&cut[..cut.len() - 2]),
            Err(ProtobufError::Malformed(_))
        ));
        let error = decode(&body("v1", "Pod", b"")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("v1, Kind=Pod is not read as protobuf"),
            "{error}"
        );
    }

    #[test]
    fn any_bytes_are_answered() {
        for length in 0..64_u8 {
            let noise: Vec<u8> = (0..length).map(|at| at.wrapping_mul(97) ^ length).collect();
            let _ = decode(&body("v1", "Secret", &noise));
        }
    }
}
