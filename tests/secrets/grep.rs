//! Finds secrets in texts, however they are written.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use regex::{Regex, RegexBuilder};

/// Shorter pieces of a secret are found everywhere.
const SHORTEST: usize = 8;

/// Looks for secrets.
pub struct Grep {
    pattern: Regex,
    /// Each way of writing each secret, and what it is called.
    forms: Vec<(String, String)>,
}

impl Grep {
    /// Looks for these secrets, given with what they are called.
    pub fn new(secrets: &[(String, String)]) -> Self {
        let mut forms: Vec<(String, String)> = Vec::new();
        for (name, secret) in secrets {
            for form in self::forms(secret) {
                assert!(form.len() >= SHORTEST, "{name} is too short to look for");
                forms.push((form, name.clone()));
            }
        }
        let alternatives: Vec<String> = forms.iter().map(|(form, _)| regex::escape(form)).collect();
        let pattern = RegexBuilder::new(&alternatives.join("|"))
            .size_limit(1 << 30)
            .build()
            .unwrap();
        Self { pattern, forms }
    }

    /// Where a text gives a secret away: the line, cut short, and the secret's name.
    pub fn find(&self, text: &str) -> Option<String> {
        let found = self.pattern.find(text)?;
        let (_, name) = self.forms.iter().find(|(form, _)| form == found.as_str())?;
        let begin = text[..found.start()].rfind('\n').map_or(0, |end| end + 1);
        let begin = text.floor_char_boundary(begin.max(found.start().saturating_sub(300)));
        Some(format!("{name}: {}", &text[begin..found.end()]))
    }
}

/// The ways a secret may be written.
fn forms(secret: &str) -> Vec<String> {
    let mut url = url::Url::parse("http://proxy").unwrap();
    url.set_password(Some(secret)).unwrap();
    let everything: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut forms = vec![
        secret.to_owned(),
        // in a query, in the user part of a URL, and by one who takes no risk
        url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        url.password().unwrap().to_owned(),
        everything,
        // in JSON, by one who takes no risk, and in JSON inside JSON
        secret.replace('/', "\\/"),
        secret.replace('\n', "\\n"),
        secret.replace('\n', "\\\\n"),
        // as Rust shows bytes
        format!("{:?}", secret.as_bytes())
            .trim_matches(['[', ']'])
            .to_owned(),
    ];
    forms.extend(base64_forms(secret));
    forms.sort();
    forms.dedup();
    forms
}

/// What of a secret is seen in the base64 of a text that it is part of. Three bytes make four
/// characters, so that it depends on where in the text the secret begins.
fn base64_forms(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3 {
        // the characters that bytes before the secret have a share in are left out
        let skipped = (3 - before) % 3;
        let Some(aligned) = secret.as_bytes().get(skipped..) else {
            continue;
        };
        let whole = &aligned[..aligned.len() / 3 * 3];
        forms.extend([STANDARD.encode(whole), URL_SAFE.encode(whole)]);
    }
    forms
}

#[test]
fn a_secret_is_found_in_every_form_and_at_every_place() {
    let secret = "gh?p/th>is+is=the~one\nand&more";
    let grep = Grep::new(&[("it".to_owned(), secret.to_owned())]);
    let encode = |text: &str| [STANDARD.encode(text), URL_SAFE.encode(text)];
    for before in ["", "x", "xy", "xyz", "{\"config\":\""] {
        for after in ["", "x", "xy", "\"}"] {
            let text = format!("{before}{secret}{after}");
            let query: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
            let json = serde_json::Value::from(text.as_str()).to_string();
            let [standard, url_safe] = encode(&text);
            let bytes = format!("{:?}", text.as_bytes());
            for written in [text, query, standard, url_safe, bytes, json] {
                assert!(grep.find(&written).is_some(), "{written}");
            }
        }
    }
    assert_eq!(grep.find("gh?p/th>is+is=the~other"), None);
    let found = grep.find(&format!("a line\nand then {secret}")).unwrap();
    assert!(found.starts_with("it: and then gh?p"), "{found}");
}
