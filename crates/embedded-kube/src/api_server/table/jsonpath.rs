//! The part of JSONPath that printer columns use: fields, indexes, `[*]` and filters by
//! equality, as in `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

/// A parsed path. A path that cannot be parsed finds nothing, as a column that finds nothing
/// is shown empty.
#[derive(Clone, Debug)]
pub(super) struct Path(Option<Vec<Segment>>);

#[derive(Clone, Debug, PartialEq)]
enum Segment {
    Field(String),
    Index(i64),
    All,
    /// Elements in which the field at this path compares so with this value.
    Filter(Vec<String>, bool, Value),
}

impl Path {
    pub(super) fn parse(text: &str) -> Self {
        Self(segments(text))
    }

    /// The first value that the path finds.
    pub(super) fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        let mut found = vec![value];
        for segment in self.0.as_ref()? {
            found = found
                .into_iter()
                .flat_map(|value| segment.select(value))
                .collect();
        }
        found.into_iter().next()
    }
}

impl Segment {
    fn select<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(items)) => {
                let index = match usize::try_from(*index) {
                    Ok(index) => Some(index),
                    Err(_) => usize::try_from(index.unsigned_abs())
                        .ok()
                        .and_then(|back| items.len().checked_sub(back)),
                };
                index
                    .and_then(|index| items.get(index))
                    .into_iter()
                    .collect()
            }
            (Self::All, Value::Array(items)) => items.iter().collect(),
            (Self::All, Value::Object(fields)) => fields.values().collect(),
            (Self::Filter(path, equal, wanted), Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    let found = path.iter().try_fold(*item, |value, name| value.get(name));
                    found.is_some_and(|found| (found == wanted) == *equal)
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn segments(text: &str) -> Option<Vec<Segment>> {
    let mut rest = text.trim();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner.strip_suffix('}')?;
    }
    rest = rest.strip_prefix('$').unwrap_or(rest);
    let mut segments = Vec::new();
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = closing_bracket(inner)?;
            segments.push(bracket(inner[..end].trim())?);
            rest = &inner[end + 1..];
        } else {
            let (name, after) = field(rest.strip_prefix('.').unwrap_or(rest));
            match name.as_str() {
                "" => return None,
                "*" => segments.push(Segment::All),
                _ => segments.push(Segment::Field(name)),
            }
            rest = after;
        }
    }
    Some(segments)
}

/// Where the bracket that is open ends; brackets in quotes do not count.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (None, ']') => return Some(at),
            (None, '"' | '\'') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

/// A field's name, in which `\.` is a dot, and what follows it.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            _ => name.push(character),
        }
    }
    (name, "")
}

fn bracket(text: &str) -> Option<Segment> {
    if text == "*" {
        return Some(Segment::All);
    }
    if let Some(name) = quoted(text) {
        return Some(Segment::Field(name));
    }
    if let Some(filter) = text.strip_prefix("?(") {
        return condition(filter.strip_suffix(')')?);
    }
    text.parse().ok().map(Segment::Index)
}

fn condition(text: &str) -> Option<Segment> {
    let (path, equal, wanted) = match text.split_once("==") {
        Some((path, wanted)) => (path, true, wanted),
        None => {
            let (path, wanted) = text.split_once("!=")?;
            (path, false, wanted)
        }
    };
    let path = path
        .trim()
        .strip_prefix("@.")?
        .split('.')
        .map(str::to_owned)
        .collect();
    let wanted = wanted.trim();
    let wanted = match quoted(wanted) {
        Some(text) => Value::String(text),
        None => serde_json::from_str(wanted).ok()?,
    };
    Some(Segment::Filter(path, equal, wanted))
}

fn quoted(text: &str) -> Option<String> {
    ['\'', '"'].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?.strip_suffix(*quote)?;
        Some(inner.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_they_name() {
        let value = json!({
            "a": {"b.c": [10, 20, 30]},
            "list": [{"t": "x", "v": 1}, {"t": "y", "v": 2, "n": 7}],
        });
        for (path, expected) in [
            (".a.b\\.c[1]", json!(20)),
            (".a['b.c'][-1]", json!(30)),
            ("{.a.b\\.c[*]}", json!(10)),
            ("$.list[?(@.t=='y')].v", json!(2)),
            (".list[?(@.t!=\"x\")].v", json!(2)),
            (".list[?(@.n==7)].t", json!("y")),
            (".list[*].v", json!(1)),
        ] {
            assert_eq!(Path::parse(path).first(&value), Some(&expected), "{path}");
        }
        for path in [
            ".none",
            ".a.b",
            ".list[9]",
            ".list[?(@.t==\"z\")].v",
            "..",
            ".a[",
        ] {
            assert_eq!(Path::parse(path).first(&value), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_as_a_path(text in r#"[.\[\]@?*()'"\\=a-c0-9é{}$-]{0,24}"#) {
            Path::parse(&text).first(&json!({"a": [{"b": 1}], "c": {"a": "b"}}));
        }
    }
}
