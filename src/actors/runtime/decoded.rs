//! Objects of a watch, decoded one by one, so that one that is not of its type cannot stop
//! the whole list: one without a spec, which the schema allows, say.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::api::{Field, stand_in};
use crate::messages::KubeObject;

/// An object as it came, and what it decodes to.
#[derive(Clone, Debug)]
pub struct Decoded<K> {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The object, or why it is none of its type.
    pub decoded: Result<K, String>,
    /// Fields for which annotations stood in; they are in their fields by now.
    pub stand_ins: Vec<Field>,
}

#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl<'de, K: DeserializeOwned + KubeObject> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // through a value, since a watch event may name its object before its type
        let value = Value::deserialize(deserializer)?;
        match stand_in::decode::<K>(K::KIND.as_str(), &value) {
            Ok((object, stand_ins)) => Ok(Self {
                // shared with nobody, and small beside the object
                metadata: object.meta().clone(),
                decoded: Ok(object),
                stand_ins,
            }),
            Err(problem) => {
                let only = OnlyMetadata::deserialize(&value).map_err(D::Error::custom)?;
                Ok(Self {
                    metadata: only.metadata,
                    decoded: Err(problem.to_string()),
                    stand_ins: Vec::new(),
                })
            }
        }
    }
}

impl<K: Resource> Resource for Decoded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }
    fn api_version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(dt)
    }
    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::WatchEvent;

    use super::*;
    use crate::api::EphemeralRunner;

    #[test]
    fn an_object_of_another_shape_keeps_its_name_and_says_what_is_wrong() {
        let text = r#"{"kind":"EphemeralRunner","metadata":{"name":"a","namespace":"ci"}}"#;
        let read: Decoded<EphemeralRunner> = serde_json::from_str(text).unwrap();
        assert_eq!(read.metadata.name.as_deref(), Some("a"));
        assert!(read.decoded.unwrap_err().contains("spec"));
    }

    #[test]
    fn the_object_may_come_before_the_type_of_its_event() {
        let object = r#"{"kind":"Pod","metadata":{"name":"a"}}"#;
        for text in [
            format!(r#"{{"object":{object},"type":"ADDED"}}"#),
            format!(r#"{{"type":"ADDED","object":{object}}}"#),
        ] {
            let event: WatchEvent<Decoded<Pod>> = serde_json::from_str(&text).unwrap();
            let WatchEvent::Added(pod) = event else {
                panic!("{event:?}");
            };
            assert!(pod.decoded.is_ok());
        }
    }
}
