//! The table in `src/semantic/core_v1.rs` says of each field what the facts say of it.
//!
//! To write the table anew from the facts:
//! `IMPRESARIO_WRITE_TABLE=1 cargo test --test semantic_table`. When k8s-openapi has gained a
//! field, the build fails at its type: give it a line there first.

#[path = "semantic/facts.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod facts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use facts::{Facts, Field};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/semantic/core_v1.rs");

const HEAD: &str = "\
//! Every type below `PodTemplateSpec`: `k8s.io/api/core/v1`.
//!
//! Written by `tests/semantic_table.rs` from the facts on Kubernetes' Go types. Do not edit.
";

/// Values that may be secrets.
const MASKED: [(&str, &str); 2] = [("EnvVar", "value"), ("HTTPHeader", "value")];

/// Numbers for whose zero the API server puts its default, so that a desired zero, spelled
/// out or not, never shows up in a live object.
const DEFAULTED: [(&str, &str); 5] = [
    ("ContainerPort", "hostPort"),
    ("Probe", "timeoutSeconds"),
    ("Probe", "periodSeconds"),
    ("Probe", "successThreshold"),
    ("Probe", "failureThreshold"),
];

#[test]
fn the_table_says_what_the_facts_say() {
    let Some(facts) = facts::load() else { return };
    let expected = table(&facts);
    if env::var_os("IMPRESARIO_WRITE_TABLE").is_some() {
        fs::write(Path::new(TABLE), &expected).unwrap();
    }
    let actual = fs::read_to_string(TABLE).unwrap();
    for (number, (actual, expected)) in actual.lines().zip(expected.lines()).enumerate() {
        assert_eq!(actual, expected, "line {} of {TABLE}", number + 1);
    }
    assert_eq!(actual.len(), expected.len(), "{TABLE}");
}

#[test]
fn names_of_fields_become_those_of_k8s_openapi() {
    for (json, rust) in [
        ("name", "name"),
        ("envFrom", "env_from"),
        ("type", "type_"),
        ("hostIP", "host_ip"),
        ("hostPID", "host_pid"),
        ("setHostnameAsFQDN", "set_hostname_as_fqdn"),
        ("targetWWNs", "target_wwns"),
        ("scaleIO", "scale_io"),
        ("downwardAPI", "downward_api"),
    ] {
        assert_eq!(rust_name(json), rust);
    }
}

/// The whole file.
fn table(facts: &Facts) -> String {
    let types = reachable(facts);
    let mut text = format!("{HEAD}\nuse k8s_openapi::api::core::v1::*;\n");
    text.push_str("\nuse super::field::compare;\nuse super::list::keyed;\n");
    let mut keys = BTreeMap::new();
    for name in types {
        writeln!(text, "\ncompare!({name} {{").unwrap();
        for field in &facts[name] {
            let rust = rust_name(&field.json);
            let way = way(name, field);
            writeln!(text, "    {rust} \"{}\" {way},", field.json).unwrap();
            if let Some(key) = &field.merge_key {
                let element = field.go_type.trim_start_matches("[]");
                let before = keys.insert(element, key.as_str());
                assert!(before.is_none_or(|before| before == key), "{element}");
            }
        }
        text.push_str("});\n");
    }
    // it has a key of two fields
    assert_eq!(keys.remove("ContainerPort"), Some("containerPort"));
    text.push_str("\nkeyed! {\n");
    for (element, key) in keys {
        writeln!(text, "    {element} by {},", rust_name(key)).unwrap();
    }
    text.push_str("}\n");
    text
}

/// How the field is compared, as `src/semantic/field.rs` has it.
fn way(owner: &str, field: &Field) -> &'static str {
    let name = (owner, field.json.as_str());
    if MASKED.contains(&name) {
        "masked"
    } else if DEFAULTED.contains(&name) {
        "defaulted"
    } else if field.pointer {
        "pointer"
    } else if field.merge_key.is_some() {
        "keyed"
    } else {
        "value"
    }
}

/// The types that a pod template is made of. The facts also have some that are inlined in Go
/// and are no types in JSON.
fn reachable(facts: &Facts) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut open = vec!["PodTemplateSpec"];
    while let Some(name) = open.pop() {
        let Some((name, fields)) = facts.get_key_value(name) else {
            continue;
        };
        if found.insert(name.as_str()) {
            open.extend(
                fields
                    .iter()
                    .map(|field| field.go_type.trim_start_matches("[]")),
            );
        }
    }
    found
}

/// The name that k8s-openapi gives to a field.
fn rust_name(json: &str) -> String {
    let letters: Vec<char> = json.chars().collect();
    let mut name = String::new();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(index + 1).copied().unwrap_or('s');
        let starts_word = before.is_some_and(|before| {
            before.is_lowercase() || (before.is_uppercase() && after.is_lowercase() && after != 's')
        });
        if letter.is_uppercase() && starts_word {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    if name == "type" {
        "type_".to_owned()
    } else {
        name
    }
}
