//! What `kubectl get` prints: objects as rows of a `meta.k8s.io/v1` Table, with the columns
//! of a real server for built-in kinds and a CRD's `additionalPrinterColumns` for custom ones.
//!
//! Pure: the age of things is measured against an argument.

use serde_json::{Map, Value, json};

use wall_clock::Timestamp;

mod age;
mod builtin;
mod jsonpath;
mod pods;

/// What of each object a row carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// Its metadata, which is what kubectl needs.
    #[default]
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

impl IncludeObject {
    /// Reads the `includeObject` parameter; `None` when it has no known value.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Option<Self> {
        match value {
            None | Some("" | "Metadata") => Some(Self::Metadata),
            Some("Object") => Some(Self::Object),
            Some("None") => Some(Self::None),
            Some(_) => None,
        }
    }
}

/// A column's head.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    type_: String,
    format: String,
    description: String,
    /// Above zero it is shown with `-o wide` only.
    priority: i64,
}

impl Column {
    fn new(name: &str, type_: &str, format: &str, priority: i64) -> Self {
        Self {
            name: name.to_owned(),
            type_: type_.to_owned(),
            format: format.to_owned(),
            description: String::new(),
            priority,
        }
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.type_,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// How objects of one resource become rows.
pub struct Printer {
    columns: Vec<Column>,
    rows: Rows,
}

enum Rows {
    Builtin(builtin::Cells),
    Custom(Vec<(String, jsonpath::Path)>),
}

impl Printer {
    /// The printer of a built-in resource, by group and plural name. Any that it does not
    /// know shows name and age.
    #[must_use]
    pub fn builtin(group: &str, plural: &str) -> Self {
        let (columns, cells) = builtin::printer(group, plural);
        Self {
            columns,
            rows: Rows::Builtin(cells),
        }
    }

    /// The printer that a CustomResourceDefinition describes for one of its versions.
    #[must_use]
    pub fn of_crd(crd: &Value, version: &str) -> Self {
        let described = crd
            .pointer("/spec/versions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .find(|candidate| candidate["name"] == version)
            .and_then(|version| version["additionalPrinterColumns"].as_array())
            .filter(|columns| !columns.is_empty());
        let Some(described) = described else {
            return Self::builtin("", "");
        };
        let mut columns = vec![Column::new("Name", "string", "name", 0)];
        let mut paths = Vec::new();
        for column in described {
            let text = |name: &str| column[name].as_str().unwrap_or_default().to_owned();
            columns.push(Column {
                name: text("name"),
                type_: text("type"),
                format: text("format"),
                description: text("description"),
                priority: column["priority"].as_i64().unwrap_or(0),
            });
            paths.push((text("type"), jsonpath::Path::parse(&text("jsonPath"))));
        }
        Self {
            columns,
            rows: Rows::Custom(paths),
        }
    }

    /// An object, or a list of objects, as a Table. `now` gives the ages.
    #[must_use]
    pub fn table(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let columns: Vec<Value> = self.columns.iter().map(Column::definition).collect();
        let items = object.get("items").and_then(Value::as_array);
        let rows: Vec<Value> = match items {
            Some(items) => items
                .iter()
                .map(|item| self.row(item, row_object(item, object, include), now))
                .collect(),
            None => vec![self.row(object, row_object(object, object, include), now)],
        };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": list_metadata(object),
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    fn row(&self, object: &Value, carried: Option<Value>, now: Timestamp) -> Value {
        let cells = match &self.rows {
            Rows::Builtin(cells) => cells(object, now),
            Rows::Custom(columns) => std::iter::once(object["metadata"]["name"].clone())
                .chain(
                    columns
                        .iter()
                        .map(|(type_, path)| cell(type_, path.first(object), now)),
                )
                .collect(),
        };
        let mut row = Map::new();
        row.insert("cells".into(), Value::Array(cells));
        if let Some(carried) = carried {
            row.insert("object".into(), carried);
        }
        Value::Object(row)
    }
}

/// What a row carries of its object, which comes from `whole`: a list, or the object itself.
fn row_object(object: &Value, whole: &Value, include: IncludeObject) -> Option<Value> {
    match include {
        IncludeObject::None => None,
        IncludeObject::Metadata => Some(json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"],
        })),
        IncludeObject::Object => {
            let mut object = object.clone();
            // the elements of a list do not say what they are, a row's object does
            if object.get("kind").is_none() {
                let kind = whole["kind"].as_str().unwrap_or_default();
                object["kind"] = json!(kind.strip_suffix("List").unwrap_or(kind));
                object["apiVersion"] = whole["apiVersion"].clone();
            }
            Some(object)
        }
    }
}

/// What of a list's (or single object's) metadata belongs to a Table.
fn list_metadata(object: &Value) -> Value {
    let mut metadata = Map::new();
    for name in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = object["metadata"].get(name) {
            metadata.insert(name.into(), value.clone());
        }
    }
    Value::Object(metadata)
}

/// A custom column's value as the server gives it; null is printed as nothing.
fn cell(type_: &str, value: Option<&Value>, now: Timestamp) -> Value {
    let Some(value) = value else {
        return Value::Null;
    };
    match (type_, value) {
        (_, Value::Null) => Value::Null,
        ("integer" | "number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => match time.parse::<Timestamp>() {
            Ok(time) => json!(age::since(time, now)),
            Err(_) => json!("<invalid>"),
        },
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => json!(other.to_string()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
