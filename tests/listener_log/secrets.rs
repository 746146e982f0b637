//! Finds secrets in a text, in the forms in which they get there by accident.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Forms shorter than this are found anywhere.
const SHORTEST: usize = 8;

/// Those of the secrets that the text shows, with the form in which it does.
pub fn shown<'a>(text: &str, secrets: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut found = Vec::new();
    for secret in secrets {
        assert!(
            secret.len() >= SHORTEST,
            "{secret:?} is found by accident too"
        );
        for form in forms(secret) {
            if text.contains(&form) {
                found.push(format!("{secret:?} as {form:?}"));
            }
        }
    }
    found
}

/// The secret as it is, URL-encoded, and in base64 wherever in a longer text it stood.
fn forms(secret: &str) -> BTreeSet<String> {
    let mut forms = BTreeSet::from([secret.to_owned(), url_encoded(secret)]);
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let text = format!("{}{secret}", "-".repeat(before));
            let encoded = engine.encode(text);
            // what depends on the neighbours does not count
            let first = [0, 2, 3][before];
            let last = encoded.len() - usize::from(!(before + secret.len()).is_multiple_of(3));
            forms.insert(encoded[first..last].to_owned());
        }
    }
    forms
}

fn url_encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_a_planted_secret_is_found() {
        let secret = "pa%s/w+rd:häßlich".to_owned();
        let found = |text: &str| !shown(text, [&secret]).is_empty();
        assert!(found(&format!("Authorization: Bearer {secret}")));
        assert!(found(&format!(
            "http://user:{}@proxy",
            url_encoded(&secret)
        )));
        for before in ["", "u", "u:", "user:"] {
            let pair = format!("{before}{secret} and more");
            assert!(found(&STANDARD_NO_PAD.encode(&pair)), "{before}");
            assert!(found(&URL_SAFE_NO_PAD.encode(&pair)), "{before}");
        }
        assert!(!found("nothing of that kind"));
    }
}
