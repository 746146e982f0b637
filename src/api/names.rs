//! The forms of names, label keys and label values that Kubernetes takes.

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

/// Why the text cannot name an object, or `None` when it can.
pub(super) fn subdomain_problem(text: &str) -> Option<String> {
    let part_is_good = |part: &str| {
        has_alphanumeric_ends(part)
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    if text.len() > SUBDOMAIN_LENGTH {
        return Some(too_long(text, SUBDOMAIN_LENGTH));
    }
    (!text.split('.').all(part_is_good)).then(|| {
        format!(
            "\"{text}\" is not a name that Kubernetes takes; use lower case letters, digits, \
             \"-\" and \".\", with a letter or digit at each end"
        )
    })
}

/// Why the text cannot be the key of a label or annotation, or `None` when it can.
pub(super) fn key_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(problem) = prefix.and_then(subdomain_problem) {
        return Some(format!("its prefix {problem}"));
    }
    if name.is_empty() {
        return Some("it has no name; give it one".to_owned());
    }
    word_problem(name)
}

/// Why the text cannot be the value of a label, or `None` when it can.
pub(super) fn label_value_problem(value: &str) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    word_problem(value)
}

fn word_problem(word: &str) -> Option<String> {
    if word.len() > LABEL_LENGTH {
        return Some(too_long(word, LABEL_LENGTH));
    }
    let good = has_alphanumeric_ends(word)
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    (!good).then(|| {
        format!(
            "\"{word}\" is not one that Kubernetes takes; use letters, digits, \"-\", \"_\" and \
             \".\", with a letter or digit at each end"
        )
    })
}

fn has_alphanumeric_ends(text: &str) -> bool {
    let [first, last] = [text.bytes().next(), text.bytes().next_back()];
    [first, last]
        .iter()
        .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

fn too_long(text: &str, limit: usize) -> String {
    format!(
        "\"{text}\" has {} characters; use at most {limit}",
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_kubernetes_judges_them() {
        for (text, good) in [
            ("github-auth", true),
            ("a.b-c.d1", true),
            ("", false),
            ("Upper", false),
            ("-a", false),
            ("a..b", false),
            ("a_b", false),
            (&"a".repeat(253), true),
            (&"a".repeat(254), false),
        ] {
            assert_eq!(subdomain_problem(text).is_none(), good, "{text}");
        }
    }

    #[test]
    fn keys_and_values_are_judged_as_kubernetes_judges_them() {
        for (text, key, value) in [
            ("team", true, true),
            ("Team_1.x", true, true),
            ("acme.io/team", true, false),
            ("acme.io/", false, false),
            ("ACME/team", false, false),
            ("", false, true),
            ("-x", false, false),
            ("two words", false, false),
            (&"k".repeat(63), true, true),
            (&"k".repeat(64), false, false),
        ] {
            assert_eq!(key_problem(text).is_none(), key, "key {text}");
            assert_eq!(label_value_problem(text).is_none(), value, "value {text}");
        }
    }
}
