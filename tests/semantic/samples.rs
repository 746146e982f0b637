//! Random JSON values of a shape, and changes to them: of spelling, of meaning, and what a
//! server and its admission do.

use std::collections::BTreeSet;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Map, Value, json};

use super::reference::key_of;
use super::shapes::{Field, Shape, Shapes};

/// Quantities and their value in thousandths; those without one are no quantities.
const QUANTITIES: [(&str, Option<i128>); 20] = [
    ("1", Some(1_000)),
    ("1000m", Some(1_000)),
    ("1.0", Some(1_000)),
    ("1e0", Some(1_000)),
    ("0.5", Some(500)),
    ("500m", Some(500)),
    ("500000u", Some(500)),
    ("1Gi", Some(1_073_741_824_000)),
    ("1024Mi", Some(1_073_741_824_000)),
    ("1073741824", Some(1_073_741_824_000)),
    ("1.5Ki", Some(1_536_000)),
    ("1536", Some(1_536_000)),
    ("1.536k", Some(1_536_000)),
    ("1G", Some(1_000_000_000_000)),
    ("1e9", Some(1_000_000_000_000)),
    ("0", Some(0)),
    ("0Gi", Some(0)),
    ("-0", Some(0)),
    ("a lot", None),
    ("1KB", None),
];

/// Times and their second since 1970.
const TIMES: [(&str, i64); 5] = [
    ("2026-03-01T10:00:00Z", 1_772_359_200),
    ("2026-03-01T12:00:00+02:00", 1_772_359_200),
    ("2026-03-01T10:00:00.000Z", 1_772_359_200),
    ("2026-03-01T10:00:01Z", 1_772_359_201),
    ("2025-12-31T23:59:59Z", 1_767_225_599),
];

const TEXTS: [&str; 6] = ["", "a", "b", "TCP", "UDP", "ghcr.io/acme/runner:1"];
const KEYS: [&str; 5] = ["a", "b", "listener", "acme.example/team", "x y"];
const NUMBERS: [i64; 4] = [0, 1, 7, 80];

/// The value of one of the quantities above in thousandths.
pub fn amount(text: &str) -> Option<i128> {
    QUANTITIES.iter().find(|(name, _)| *name == text)?.1
}

/// The second of one of the times above.
pub fn instant(text: &str) -> Option<i64> {
    TIMES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, second)| *second)
}

/// Makes and changes values.
pub struct Maker<'a> {
    pub shapes: &'a Shapes,
    pub random: StdRng,
}

impl Maker<'_> {
    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn pick<'v, T>(&mut self, from: &'v [T]) -> &'v T {
        &from[self.random.random_range(0..from.len())]
    }

    /// A value of the shape. Deep ones get sparse.
    pub fn value(&mut self, shape: &Shape, depth: usize) -> Value {
        match shape {
            Shape::Text => json!(self.pick(&TEXTS)),
            Shape::Bool => json!(self.chance(50)),
            Shape::Number => json!(self.pick(&NUMBERS)),
            Shape::Quantity => json!(self.pick(&QUANTITIES).0),
            Shape::Time => json!(self.pick(&TIMES).0),
            Shape::IntOrString if self.chance(50) => json!(self.pick(&NUMBERS)),
            Shape::IntOrString => json!(self.pick(&TEXTS)),
            Shape::List(element, _) => {
                let length = self.random.random_range(0..4);
                (0..length)
                    .map(|_| self.value(element, depth + 1))
                    .collect()
            }
            Shape::Map(element) => {
                let length = self.random.random_range(0..3);
                let entries = (0..length).map(|_| {
                    let key = (*self.pick(&KEYS)).to_owned();
                    (key, self.value(element, depth + 1))
                });
                Value::Object(entries.collect())
            }
            Shape::Struct(name) => {
                let fields = self.shapes.fields(name);
                let mut object = Map::new();
                for field in fields {
                    let wanted = 1 + 5 / (depth + 1);
                    let is_there = self.random.random_range(0..fields.len()) < wanted;
                    if is_there || field.required {
                        object.insert(field.name.clone(), self.value(&field.shape, depth + 1));
                    }
                }
                Value::Object(object)
            }
        }
    }

    /// The same in other words.
    pub fn respelled(&mut self, shape: &Shape, value: &Value) -> Value {
        match (shape, value) {
            (Shape::Quantity, Value::String(text)) => {
                let same = QUANTITIES.iter().filter(|(name, value)| {
                    name == text || (value.is_some() && *value == amount(text))
                });
                let same: Vec<_> = same.map(|(name, _)| *name).collect();
                json!(self.pick(&same))
            }
            (Shape::Time, Value::String(text)) => {
                let same = TIMES
                    .iter()
                    .filter(|(_, second)| Some(*second) == instant(text));
                let same: Vec<_> = same.map(|(name, _)| *name).collect();
                json!(self.pick(&same))
            }
            (Shape::List(element, _), Value::Array(items)) => items
                .iter()
                .map(|item| self.respelled(element, item))
                .collect(),
            (Shape::Map(element), Value::Object(entries)) => {
                let respelled =
                    |(key, value): (&String, &Value)| (key.clone(), self.respelled(element, value));
                Value::Object(entries.iter().map(respelled).collect())
            }
            (Shape::Struct(name), Value::Object(object)) => {
                let mut respelled = Map::new();
                for field in self.shapes.fields(name) {
                    let value = object.get(&field.name).unwrap_or(&Value::Null);
                    let value = self.respelled_field(field, value);
                    if !value.is_null() || (field.lenient && self.chance(20)) {
                        respelled.insert(field.name.clone(), value);
                    }
                }
                Value::Object(respelled)
            }
            _ => value.clone(),
        }
    }

    fn respelled_field(&mut self, field: &Field, value: &Value) -> Value {
        let value = self.respelled(&field.shape, value);
        let zero = zero(&field.shape);
        let is_zero = value == zero
            || match field.shape {
                Shape::IntOrString => value.is_null(),
                _ => is_empty(&value),
            };
        if field.pointer || !is_zero || !self.chance(50) {
            value
        } else if value.is_null() {
            zero
        } else if field.required && !field.lenient {
            value
        } else {
            Value::Null
        }
    }

    /// Something else, most likely: one change somewhere.
    pub fn changed(&mut self, shape: &Shape, value: &Value) -> Value {
        let go_on = self.chance(80);
        match (shape, value) {
            (Shape::List(element, _), Value::Array(items)) if go_on => {
                let mut items = items.clone();
                let place = self.random.random_range(0..=items.len());
                match items.get(place) {
                    Some(item) if self.chance(70) => {
                        items[place] = self.changed(element, &item.clone());
                    }
                    Some(_) if self.chance(50) => drop(items.remove(place)),
                    _ => items.insert(place, self.value(element, 3)),
                }
                Value::Array(items)
            }
            (Shape::Map(element), Value::Object(entries)) if go_on => {
                let mut entries = entries.clone();
                let key = (*self.pick(&KEYS)).to_owned();
                if entries.remove(&key).is_none() || self.chance(50) {
                    entries.insert(key, self.value(element, 3));
                }
                Value::Object(entries)
            }
            (Shape::Struct(name), Value::Object(object)) if go_on => {
                let mut object = object.clone();
                let fields = self.shapes.fields(name);
                let there: Vec<_> = fields
                    .iter()
                    .filter(|field| object.contains_key(&field.name))
                    .collect();
                let field = if there.is_empty() || self.chance(20) {
                    self.pick(fields)
                } else {
                    *self.pick(&there)
                };
                match object.remove(&field.name) {
                    Some(_) if !field.required && self.chance(20) => {}
                    Some(value) => {
                        object.insert(field.name.clone(), self.changed(&field.shape, &value));
                    }
                    None => {
                        object.insert(field.name.clone(), self.value(&field.shape, 3));
                    }
                }
                Value::Object(object)
            }
            _ => self.value(shape, 3),
        }
    }

    /// What a server makes of it and admission adds to it: defaults where nothing is set, zeros
    /// of value types gone, quantities respelled, and more elements anywhere.
    pub fn admitted(&mut self, shape: &Shape, value: &Value) -> Value {
        match (shape, value) {
            (Shape::Struct(name), Value::Object(object)) => {
                let mut admitted = Map::new();
                let fields = self.shapes.fields(name);
                for field in fields {
                    let value = object.get(&field.name).unwrap_or(&Value::Null);
                    let value = self.admitted_field(field, value, fields.len());
                    if !value.is_null() {
                        admitted.insert(field.name.clone(), value);
                    }
                }
                Value::Object(admitted)
            }
            (Shape::List(element, key), Value::Array(items)) => {
                let mut admitted: Vec<Value> = items
                    .iter()
                    .map(|item| self.admitted_element(element, key.as_deref(), item))
                    .collect();
                if let Some(key) = key
                    && !has_twins(key, items)
                {
                    admitted.shuffle(&mut self.random);
                }
                for index in 0..self.random.random_range(0..3) {
                    let more = self.injected(element, key.as_deref(), index);
                    let place = self.random.random_range(0..=admitted.len());
                    admitted.insert(place, more);
                }
                Value::Array(admitted)
            }
            (Shape::Map(element), Value::Object(entries)) => {
                let mut admitted = Map::new();
                for (key, value) in entries {
                    admitted.insert(key.clone(), self.admitted(element, value));
                }
                if self.chance(30) {
                    admitted.insert("injected".to_owned(), self.value(element, 3));
                }
                Value::Object(admitted)
            }
            _ => self.respelled(shape, value),
        }
    }

    fn admitted_field(&mut self, field: &Field, value: &Value, siblings: usize) -> Value {
        let number = matches!(field.shape, Shape::Number | Shape::Bool);
        let is_unset = value.is_null()
            || match field.shape {
                Shape::IntOrString => *value == json!(0),
                Shape::Bool | Shape::Number | Shape::Quantity => false,
                _ => !field.pointer && is_empty(value),
            }
            || (field.defaulted && *value == json!(0));
        if is_unset && !(field.required && number) {
            let adds = self.random.random_range(0..siblings) < 2;
            return if adds || (field.required && value.is_null()) {
                self.value(&field.shape, 3)
            } else {
                value.clone()
            };
        }
        if number && !field.pointer && !field.required && *value == zero(&field.shape) {
            return Value::Null;
        }
        self.admitted(&field.shape, value)
    }

    /// An element is found by its key, so that nobody changes that.
    fn admitted_element(&mut self, element: &Shape, key: Option<&str>, item: &Value) -> Value {
        let mut admitted = self.admitted(element, item);
        let keys: &[&str] = match key {
            Some("containerPort") => &["containerPort", "protocol"],
            Some(key) => &[key],
            None => &[],
        };
        for key in keys {
            admitted[*key] = item[*key].clone();
        }
        admitted
    }

    fn injected(&mut self, element: &Shape, key: Option<&str>, index: usize) -> Value {
        let mut more = self.value(element, 3);
        if let Some(key) = key {
            more[key] = match key {
                "containerPort" => json!(15_000 + index),
                _ => json!(format!("injected-{index}")),
            };
        }
        more
    }
}

/// Objects with one field of each kind of value: absent, zero, and two that are neither.
pub fn of_field(shapes: &Shapes, owner: &str, field: &Field) -> Vec<Value> {
    let base = least(shapes, &Shape::Struct(owner.to_owned()));
    let mut values = vec![least(shapes, &field.shape)];
    let some = some(shapes, &field.shape);
    if !matches!(some, Value::Array(_) | Value::Object(_)) {
        values.push(another(&field.shape, &some));
    }
    values.push(some);
    let mut objects: Vec<Value> = values
        .into_iter()
        .filter(|value| !value.is_null())
        .map(|value| {
            let mut object = base.clone();
            object[&field.name] = value;
            object
        })
        .collect();
    if !field.required {
        objects.push(base);
    }
    objects
}

/// A struct of what has to be there.
fn least(shapes: &Shapes, shape: &Shape) -> Value {
    let Shape::Struct(name) = shape else {
        return zero(shape);
    };
    let required = shapes.fields(name).iter().filter(|field| field.required);
    let value = |field: &Field| (field.name.clone(), least(shapes, &field.shape));
    Value::Object(required.map(value).collect())
}

/// A value that is not zero.
fn some(shapes: &Shapes, shape: &Shape) -> Value {
    match shape {
        Shape::Text => json!("a"),
        Shape::Bool => json!(true),
        Shape::Number | Shape::IntOrString => json!(7),
        Shape::Quantity => json!(QUANTITIES[0].0),
        Shape::Time => json!(TIMES[0].0),
        Shape::List(element, _) => json!([some(shapes, element)]),
        Shape::Map(element) => json!({"a": some(shapes, element)}),
        Shape::Struct(name) => {
            let mut object = least(shapes, shape);
            if let Some(field) = shapes.fields(name).first() {
                object[&field.name] = some(shapes, &field.shape);
            }
            object
        }
    }
}

/// The zero of a shape.
fn zero(shape: &Shape) -> Value {
    match shape {
        Shape::Text => json!(""),
        Shape::Bool => json!(false),
        Shape::Number | Shape::IntOrString => json!(0),
        Shape::Quantity => json!("0"),
        Shape::Time => Value::Null,
        Shape::List(..) => json!([]),
        Shape::Map(_) | Shape::Struct(_) => json!({}),
    }
}

/// Whether elements share a key.
fn has_twins(key: &str, items: &[Value]) -> bool {
    let keys: BTreeSet<String> = items.iter().map(|item| key_of(key, item)).collect();
    keys.len() < items.len()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Another value of the same shape; a text or number that no sample has.
pub fn another(shape: &Shape, value: &Value) -> Value {
    let text = value.as_str().unwrap_or_default();
    match shape {
        Shape::Bool => json!(*value != json!(true)),
        Shape::Number => json!(9901),
        Shape::Quantity => {
            let other = QUANTITIES
                .iter()
                .find(|(_, amount)| *amount != self::amount(text));
            json!(other.unwrap().0)
        }
        Shape::Time => {
            let other = TIMES
                .iter()
                .find(|(_, second)| Some(*second) != instant(text));
            json!(other.unwrap().0)
        }
        _ => json!("changed"),
    }
}

/// A value that is set somewhere, and the place.
pub struct Site {
    /// As a drift shows it.
    pub path: String,
    /// The part of the path in which it is clear what belongs together.
    pub clear: String,
    /// As a JSON pointer.
    pub pointer: String,
    pub shape: Shape,
}

/// Every value that is set below `value`, save the keys of lists.
pub fn sites(shapes: &Shapes, shape: &Shape, value: &Value) -> Vec<Site> {
    let mut found = Vec::new();
    let root = Site {
        path: String::new(),
        clear: String::new(),
        pointer: String::new(),
        shape: shape.clone(),
    };
    collect(shapes, &root, value, None, true, &mut found);
    found
}

fn collect(
    shapes: &Shapes,
    at: &Site,
    value: &Value,
    key: Option<&str>,
    clear: bool,
    found: &mut Vec<Site>,
) {
    let below = |part: &str, pointer: &str, shape: &Shape| {
        let path = format!("{}{part}", at.path);
        Site {
            path: path.trim_start_matches('.').to_owned(),
            clear: if clear {
                path.trim_start_matches('.').to_owned()
            } else {
                at.clear.clone()
            },
            pointer: format!(
                "{}/{}",
                at.pointer,
                pointer.replace('~', "~0").replace('/', "~1")
            ),
            shape: shape.clone(),
        }
    };
    match (&at.shape, value) {
        (Shape::Struct(name), Value::Object(object)) => {
            for field in shapes.fields(name) {
                let is_key = key == Some(field.name.as_str())
                    || (key == Some("containerPort") && field.name == "protocol");
                if let Some(value) = object.get(&field.name).filter(|_| !is_key) {
                    let at = below(&format!(".{}", field.name), &field.name, &field.shape);
                    collect(shapes, &at, value, None, clear, found);
                }
            }
        }
        (Shape::Map(element), Value::Object(entries)) => {
            for (key, value) in entries {
                let at = below(&format!("[{key}]"), key, element);
                collect(shapes, &at, value, None, clear, found);
            }
        }
        (Shape::List(element, key), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                let label = match key.as_deref() {
                    Some(key) => key_of(key, item),
                    None => index.to_string(),
                };
                let at = below(&format!("[{label}]"), &index.to_string(), element);
                let twins = key.as_deref().map_or(0, |key| {
                    let same = |other: &&Value| key_of(key, other) == label;
                    items.iter().filter(same).count()
                });
                collect(
                    shapes,
                    &at,
                    item,
                    key.as_deref(),
                    clear && twins == 1,
                    found,
                );
            }
        }
        (_, Value::Null) => {}
        _ => found.push(Site {
            path: at.path.clone(),
            clear: at.clear.clone(),
            pointer: at.pointer.clone(),
            shape: at.shape.clone(),
        }),
    }
}
