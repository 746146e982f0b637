//! The documents say what is: files, names, tests and ids that they name are there, and nothing
//! refers to what lies outside of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose files documents may name.
const FOLDERS: &[&str] = &[
    "src/", "tests/", "crates/", "benches/", "config/", "docs/", ".ci/",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder with this ending, by their paths in the repository.
fn files(folder: &str, ending: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.to_string_lossy().ends_with(ending) {
                let name = path.strip_prefix(root()).unwrap();
                let text = fs::read_to_string(&path).unwrap();
                found.insert(name.to_string_lossy().into_owned(), text);
            }
        }
    }
    found
}

fn sources() -> BTreeMap<String, String> {
    let folders = ["src", "tests", "crates", "benches"];
    let found = folders.map(|folder| files(folder, ".rs"));
    found.into_iter().flatten().collect()
}

/// The documents, without what stands in blocks of code.
fn documents() -> BTreeMap<String, String> {
    let mut found = files("docs", ".md");
    for name in ["README.md", "CONTRIBUTING.md", "benches/README.md"] {
        found.insert(
            name.to_owned(),
            fs::read_to_string(root().join(name)).unwrap(),
        );
    }
    for text in found.values_mut() {
        let prose = text.split("```").step_by(2).collect::<String>();
        *text = prose;
    }
    found
}

/// What stands between backticks.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether the text has this word after one of these others.
fn has_word(text: &str, before: &[&str], word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let (head, tail) = (&text[..at], &text[at + word.len()..]);
        let is_whole = !head.ends_with(is_of_word) && !tail.starts_with(is_of_word);
        is_whole && (before.is_empty() || before.iter().any(|one| head.ends_with(one)))
    })
}

const DEFINING: &[&str] = &[
    "fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "mod ",
];

#[test]
fn docs_name_what_is_there() {
    let sources = sources();
    let mut wrong = Vec::new();
    for (document, text) in documents() {
        for span in spans(&text) {
            if let Some(problem) = problem(&sources, span) {
                wrong.push(format!("{document}: `{span}`: {problem}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is wrong with what a document says, if it is the name of something of ours.
fn problem(sources: &BTreeMap<String, String>, span: &str) -> Option<String> {
    if FOLDERS.iter().any(|folder| span.starts_with(folder)) {
        let (path, name) = match span.split_once(": ") {
            Some((path, name)) => (path, Some(name)),
            None => (span, None),
        };
        if path.contains(char::is_whitespace) || path.contains('<') {
            return None;
        }
        // CONTRIBUTING.md shows how to add one
        let is_example = path == "src/actors/runner_set/idle.rs";
        if !root().join(path).exists() {
            return (!is_example).then(|| "no such file".to_owned());
        }
        let text = sources.get(path)?;
        let name = name?;
        return (!has_word(text, DEFINING, name)).then(|| "no such name there".to_owned());
    }
    if Path::new(span).extension().is_some_and(|one| one == "rs") {
        let is_there = sources
            .keys()
            .any(|path| Path::new(path).ends_with(Path::new(span)));
        return (!is_there).then(|| "no such file".to_owned());
    }
    if root().join(span).exists() {
        return None;
    }
    // a name of ours: snake_case or UpperCamelCase, maybe with a path before it
    let is_name = span.chars().all(|c| is_of_word(c) || c == ':') && !span.ends_with(':');
    let name = span.rsplit("::").next()?;
    let has_hump = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.contains(|c: char| c.is_ascii_lowercase());
    let is_ours = is_name && (name.contains('_') || has_hump);
    let is_there = || sources.values().any(|text| has_word(text, &[], name));
    (is_ours && !is_there()).then(|| "no such name in the code".to_owned())
}

/// Words like `INV-7` in a text.
fn ids(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for prefix in ["INV-", "SCN-"] {
        for (at, _) in text.match_indices(prefix) {
            let number = text[at + prefix.len()..].chars();
            let number: String = number.take_while(char::is_ascii_digit).collect();
            if !number.is_empty() && !text[..at].ends_with(is_of_word) {
                found.insert(format!("{prefix}{number}"));
            }
        }
    }
    found
}

/// Rows of the tables of a document, by the id in their first column.
fn rows(document: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let rows = text.lines().filter_map(|line| {
        let (id, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        let is_id = ids(id).contains(id);
        is_id.then(|| (id.to_owned(), rest.to_owned()))
    });
    rows.collect()
}

#[test]
fn each_id_that_is_cited_stands_once_in_its_document() {
    let listed: Vec<String> = ["docs/invariants.md", "docs/scenarios.md"]
        .into_iter()
        .flat_map(rows)
        .map(|(id, _)| id)
        .collect();
    let known: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(
        listed.len(),
        known.len(),
        "an id means two things: {listed:?}"
    );
    let mut unknown = Vec::new();
    for (file, text) in sources().into_iter().chain(documents()) {
        unknown.extend(
            ids(&text)
                .into_iter()
                .filter(|id| !known.contains(id))
                .map(|id| format!("{file}: {id}")),
        );
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn each_invariant_and_each_scenario_names_a_test_that_is_there() {
    let sources = sources();
    // of a test that a macro makes, the name stands before a colon
    let is_test = |name: &str| {
        sources
            .values()
            .any(|text| has_word(text, &["fn "], name) || text.contains(&format!("    {name}: ")))
    };
    let mut wrong = Vec::new();
    for document in ["docs/invariants.md", "docs/scenarios.md"] {
        for (id, row) in rows(document) {
            let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
            let last = cells.last().copied().unwrap_or_default();
            let named: Vec<&str> = spans(last).filter(|span| !span.contains('/')).collect();
            let missing: Vec<_> = named.iter().filter(|name| !is_test(name)).collect();
            if named.is_empty() || !missing.is_empty() {
                wrong.push(format!("{id}: of {named:?} there are not {missing:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Only what says what it skips without it may name the folder beside the repository: tests,
/// benches and `.ci/run`.
#[test]
fn nothing_else_refers_to_what_lies_outside() {
    let beside = ["..", "shared"].join("/");
    let mut wrong = Vec::new();
    for (file, text) in sources().into_iter().chain(documents()) {
        let is_test = file.starts_with("tests/") || file.starts_with("benches/");
        for (number, line) in text.lines().enumerate() {
            let is_path = line.contains("env!(\"CARGO_MANIFEST_DIR\")")
                || line.trim_start().starts_with("\"/");
            if line.contains(&beside) && !is_test && !is_path {
                wrong.push(format!("{file}:{}: {line}", number + 1));
            }
        }
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(!manifest.contains(&beside), "Cargo.toml names {beside}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
