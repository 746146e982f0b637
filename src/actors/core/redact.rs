//! A termination message, made fit to be shown: one line of bounded length, without what may
//! be a credential.
//!
//! Whatever runs in the container writes these words, and they end up in status, conditions and
//! Events, which more people read than may read the Secrets.

/// So many characters are shown at most.
const LONGEST: usize = 300;
/// What stands in the place of what may be a credential.
const MASK: &str = "[redacted]";
/// How tokens of GitHub begin.
const GITHUB_TOKENS: [&str; 6] = ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"];
/// How JSON looks in Base64: web tokens and JIT configurations begin so.
const ENCODED_JSON: [&str; 2] = ["eyJ", "ewog"];
/// Shorter than that, what begins so is a word like any other.
const SHORTEST_ENCODED: usize = 16;
/// What the next word is, after these.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];

/// The words as they may be shown. What was made so once does not change again.
#[must_use]
pub fn redact_for_display(text: &str) -> String {
    let mut line = String::new();
    let mut after_scheme = false;
    let words = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        if after_scheme && has_credential_length(word) {
            line.push_str(MASK);
        } else {
            line.push_str(&masked(word));
        }
        let bare = word.trim_end_matches(':').to_ascii_lowercase();
        after_scheme = SCHEMES.contains(&bare.as_str());
    }
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A word without credentials.
fn masked(word: &str) -> String {
    let word = without_user_info(word);
    let mut text = String::new();
    let mut rest = word.as_str();
    while let Some(start) = next_credential(rest) {
        text.push_str(&rest[..start]);
        text.push_str(MASK);
        rest = &rest[start..];
        let end = rest.find(|c| !is_of_token(c)).unwrap_or(rest.len());
        rest = &rest[end..];
    }
    text + rest
}

/// Where the next token in a word begins.
fn next_credential(word: &str) -> Option<usize> {
    let github = GITHUB_TOKENS.iter().filter_map(|start| word.find(start));
    let encoded = ENCODED_JSON.iter().filter_map(|start| {
        let at = word.find(start)?;
        let length = word[at..].find(|c| !is_of_token(c));
        let length = length.unwrap_or(word.len() - at);
        (length >= SHORTEST_ENCODED).then_some(at)
    });
    github.chain(encoded).min()
}

/// Whether a token of GitHub, a web token or Base64 may contain that.
const fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=')
}

/// Whether what follows a scheme of authorization can be a credential; plain English is short.
fn has_credential_length(word: &str) -> bool {
    word.len() >= SHORTEST_ENCODED
}

/// An address without user and password.
fn without_user_info(word: &str) -> String {
    let Some(scheme) = word.find("://") else {
        return word.to_owned();
    };
    let authority = &word[scheme + 3..];
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    match authority[..end].rfind('@') {
        Some(at) => format!("{}://{MASK}{}", &word[..scheme], &authority[at..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_and_words_are_kept() {
        let table = [
            ("plain", "Runner version v2.300.0 is deprecated", None),
            (
                "a token",
                "with ghs_abcDEF123, then",
                Some("with [redacted], then"),
            ),
            (
                "a new token",
                "key=github_pat_11AA_bb",
                Some("key=[redacted]"),
            ),
            ("two of them", "ghp_a:gho_b", Some("[redacted]:[redacted]")),
            (
                "a web token",
                "jwt eyJhbGciOiJIUzI1NiJ9.e30.x_y",
                Some("jwt [redacted]"),
            ),
            (
                "a JIT configuration",
                "--jitconfig ewogICJhIjogMQp9Cg==",
                Some("--jitconfig [redacted]"),
            ),
            ("a short word", "eyJ", None),
            (
                "a header",
                "Authorization: Bearer 0123456789abcdef0",
                Some("Authorization: Bearer [redacted]"),
            ),
            ("plain English", "the token expired", None),
            (
                "user info",
                "at https://u:p@gh.test/x?y",
                Some("at https://[redacted]@gh.test/x?y"),
            ),
            ("an address", "at https://gh.test/a@b", None),
            (
                "lines",
                "one\n\n two\t\u{7}three\r\n",
                Some("one two three"),
            ),
            ("nothing", "", None),
        ];
        for (name, text, shown) in table {
            let once = redact_for_display(text);
            assert_eq!(once, shown.unwrap_or(text), "{name}");
            assert_eq!(redact_for_display(&once), once, "{name}, again");
        }
    }

    #[test]
    fn long_words_are_cut() {
        let shown = redact_for_display(&"é".repeat(5_000));
        assert_eq!(shown.chars().count(), LONGEST + 1);
        assert!(shown.ends_with('…'));
        assert_eq!(redact_for_display(&shown).chars().count(), LONGEST + 1);
    }
}
