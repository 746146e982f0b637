//! The rules of comparison once more, slow and plain, on JSON values.
//!
//! Written from the rules and the facts, not from `src/semantic`, whose answers it checks.

use serde_json::Value;

use super::samples::{amount, instant};
use super::shapes::{Field, Shape, Shapes};

/// Whether both mean the same where absent means zero.
pub fn equal(shapes: &Shapes, shape: &Shape, a: &Value, b: &Value) -> bool {
    equal_fields(shapes, shape, false, a, b)
}

/// Where `live` lacks what `desired` sets, as far as it is clear which parts belong together:
/// the difference is there or below. `None` when it lacks nothing.
pub fn drift(shapes: &Shapes, shape: &Shape, desired: &Value, live: &Value) -> Option<String> {
    let path = lacks(shapes, shape, desired, live).err()?;
    Some(path.trim_start_matches('.').to_owned())
}

fn is_zero(shapes: &Shapes, shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (_, Value::Null) => true,
        (Shape::Quantity, Value::String(text)) => text.is_empty() || amount(text) == Some(0),
        (Shape::Time | Shape::IntOrString, Value::String(_)) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Bool(flag)) => !flag,
        (_, Value::Number(number)) => number.as_i64() == Some(0),
        (_, Value::Array(items)) => items.is_empty(),
        (Shape::Struct(name), Value::Object(_)) => shapes.fields(name).iter().all(|field| {
            let value = &value[&field.name];
            value.is_null() || (!field.pointer && is_zero(shapes, &field.shape, value))
        }),
        (_, Value::Object(entries)) => entries.is_empty(),
    }
}

fn equal_fields(shapes: &Shapes, shape: &Shape, pointer: bool, a: &Value, b: &Value) -> bool {
    let absent = |value: &Value| {
        if pointer {
            value.is_null()
        } else {
            is_zero(shapes, shape, value)
        }
    };
    match (absent(a), absent(b)) {
        (true, true) => true,
        (false, false) => same(shapes, shape, a, b),
        _ => false,
    }
}

/// Whether both mean the same, given that both are there.
fn same(shapes: &Shapes, shape: &Shape, a: &Value, b: &Value) -> bool {
    match shape {
        Shape::Text | Shape::Bool | Shape::Number | Shape::IntOrString => a == b,
        Shape::Quantity => match (amount(text(a)), amount(text(b))) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
        Shape::Time => instant(text(a)) == instant(text(b)),
        Shape::List(element, _) => {
            let (a, b) = (items(a), items(b));
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(shapes, element, a, b))
        }
        Shape::Map(element) => {
            let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
                return false;
            };
            let entry_is_same = |key: &String, value| {
                b.get(key)
                    .is_some_and(|other| same(shapes, element, value, other))
            };
            a.len() == b.len() && a.iter().all(|(key, value)| entry_is_same(key, value))
        }
        Shape::Struct(name) => shapes.fields(name).iter().all(|field| {
            let (a, b) = (&a[&field.name], &b[&field.name]);
            equal_fields(shapes, &field.shape, field.pointer, a, b)
        }),
    }
}

/// Whether `live`, which is there, has all that `desired` sets.
fn lacks(shapes: &Shapes, shape: &Shape, desired: &Value, live: &Value) -> Result<(), String> {
    match shape {
        Shape::Struct(name) => shapes.fields(name).iter().try_for_each(|field| {
            let (desired, live) = (&desired[&field.name], &live[&field.name]);
            field_lacks(shapes, field, desired, live)
                .map_err(|path| format!(".{}{path}", field.name))
        }),
        Shape::Map(element) => {
            for (key, desired) in desired.as_object().into_iter().flatten() {
                let found = match live.get(key) {
                    Some(live) => lacks(shapes, element, desired, live),
                    None => Err(String::new()),
                };
                found.map_err(|path| format!("[{key}]{path}"))?;
            }
            Ok(())
        }
        Shape::List(element, Some(key)) => {
            keyed_lacks(shapes, element, key, items(desired), items(live))
        }
        Shape::List(element, None) => {
            let (desired, live) = (items(desired), items(live));
            let fits =
                |desired: &Value, live: &Value| lacks(shapes, element, desired, live).is_ok();
            // the first element that cannot be placed
            let misplaced =
                (0..desired.len()).find(|last| !is_subsequence(&desired[..=*last], live, &fits));
            misplaced.map_or(Ok(()), |index| Err(format!("[{index}]")))
        }
        _ if same(shapes, shape, desired, live) => Ok(()),
        _ => Err(String::new()),
    }
}

fn field_lacks(
    shapes: &Shapes,
    field: &Field,
    desired: &Value,
    live: &Value,
) -> Result<(), String> {
    let zero = |value| is_zero(shapes, &field.shape, value);
    if field.pointer {
        return match (desired, live) {
            (Value::Null, _) => Ok(()),
            (_, Value::Null) => Err(String::new()),
            _ => lacks(shapes, &field.shape, desired, live),
        };
    }
    if field.defaulted && zero(desired) {
        return Ok(());
    }
    let is_number = matches!(field.shape, Shape::Number | Shape::Bool);
    let is_unset = match &field.shape {
        // a zero that is spelled out is set, and Rust's type cannot tell whether it is
        Shape::Number if field.required => false,
        Shape::Number | Shape::Bool | Shape::Struct(_) | Shape::Time => desired.is_null(),
        Shape::Quantity => desired.is_null() || desired == "",
        _ => zero(desired),
    };
    if is_unset || (zero(desired) && live.is_null()) || (is_number && zero(desired) && zero(live)) {
        return Ok(());
    }
    let looks_inside = field.required || matches!(field.shape, Shape::List(_, Some(_)));
    if live.is_null() && !looks_inside {
        return Err(String::new());
    }
    lacks(shapes, &field.shape, desired, live)
}

fn keyed_lacks(
    shapes: &Shapes,
    element: &Shape,
    key: &str,
    desired: &[Value],
    live: &[Value],
) -> Result<(), String> {
    let fits = |desired: &Value, live: &Value| lacks(shapes, element, desired, live).is_ok();
    for first in desired {
        let name = key_of(key, first);
        let of_key = |items: &[Value]| -> Vec<Value> {
            items
                .iter()
                .filter(|item| key_of(key, item) == name)
                .cloned()
                .collect()
        };
        let (desired, live) = (of_key(desired), of_key(live));
        let found = match (desired.as_slice(), live.as_slice()) {
            ([desired], [live]) => lacks(shapes, element, desired, live),
            (desired, live) if is_subsequence(desired, live, &fits) => Ok(()),
            _ => Err(String::new()),
        };
        found.map_err(|path| format!("[{name}]{path}"))?;
    }
    Ok(())
}

pub fn key_of(key: &str, element: &Value) -> String {
    let name = match &element[key] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ if key == "containerPort" => "0".to_owned(),
        _ => String::new(),
    };
    match element["protocol"].as_str() {
        Some(protocol) if key == "containerPort" && !["", "TCP"].contains(&protocol) => {
            format!("{name}/{protocol}")
        }
        _ => name,
    }
}

/// Whether all of `desired` fit elements of `live` in their order, tried in every way.
fn is_subsequence(
    desired: &[Value],
    live: &[Value],
    fits: &impl Fn(&Value, &Value) -> bool,
) -> bool {
    match (desired, live) {
        ([], _) => true,
        (_, []) => false,
        ([first, others @ ..], [other, rest @ ..]) => {
            (fits(first, other) && is_subsequence(others, rest, fits))
                || is_subsequence(desired, rest, fits)
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
