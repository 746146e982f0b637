//! Names of owned objects. Those that ARC gives too are formed as ARC forms them, so that
//! objects of an earlier controller are found again.

use crate::api::{AutoscalingRunnerSet, EphemeralRunnerSet};

/// Characters of generated name parts: no vowels, and nothing that looks like another.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest name that also fits a label and a host name.
const MAX_NAME: usize = 63;
/// Longest name of a runner: container hooks keep so many characters of it, and put their own behind.
const MAX_RUNNER_NAME: usize = 54;
/// Length of the part that tells the runners of one set apart.
const RUNNER_SUFFIX: u32 = 5;
/// How many such parts there are.
const RUNNER_NAMES: u64 = (ALPHABET.len() as u64).pow(RUNNER_SUFFIX);
/// Step from one nonce's name to the next. It has no factor in common with
/// [`RUNNER_NAMES`], so nonces in a row walk through all names before one comes again.
const RUNNER_STRIDE: u64 = 8_865_701;
// the number of names is a power of 27, so 3 is the one prime to avoid
const _: () = assert!(!RUNNER_STRIDE.is_multiple_of(3));

/// Name of the AutoscalingListener, its pod, ServiceAccount, Role and RoleBinding. It changes
/// with the runner group and the config URL.
#[must_use]
pub fn listener_name(ars: &AutoscalingRunnerSet) -> String {
    let namespace = ars.metadata.namespace.as_deref().unwrap_or_default();
    let suffix = suffix(&format!(
        "{namespace}@{}@{}",
        ars.spec.runner_group, ars.spec.github_config_url
    ));
    joined(
        ars.metadata.name.as_deref().unwrap_or_default(),
        &format!("-{suffix}-listener"),
    )
}

/// Name of the Secret with the configuration of the listener `al_name`.
#[must_use]
pub fn listener_config_secret_name(al_name: &str) -> String {
    format!("{al_name}-config")
}

/// Name of the Secret with the proxy variables of the listener `al_name`.
#[must_use]
pub fn listener_proxy_secret_name(al_name: &str) -> String {
    format!("{al_name}-proxy")
}

/// Name of the Secret with the proxy variables of a set's runners.
#[must_use]
pub fn runner_proxy_secret_name(namespace: &str, set_name: &str) -> String {
    format!("{set_name}-{}-runner-proxy", suffix(namespace))
}

/// What the names of a set's runners begin with; also their `generateName`. Of a long set's name
/// the beginning is kept. Two sets may share that; the part behind it tells their runners apart,
/// and a name that is taken all the same is passed over.
#[must_use]
pub fn runner_name_prefix(set: &EphemeralRunnerSet) -> String {
    const MIDDLE: &str = "-runner-";
    let room = MAX_RUNNER_NAME - RUNNER_SUFFIX as usize - MIDDLE.len();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let head: String = set_name.chars().take(room).collect();
    head.trim_end_matches(['-', '.']).to_owned() + MIDDLE
}

/// Name of a runner to be made. We choose it, and not the API server, so that a create
/// whose answer was lost can be read back. Nonces in a row give different names, some 14
/// million of them, and another set of the same name begins elsewhere.
#[must_use]
pub fn runner_name(set: &EphemeralRunnerSet, nonce: u64) -> String {
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let start = fnv1a_64(uid.as_bytes()) % RUNNER_NAMES;
    let mut rest = (start + nonce % RUNNER_NAMES * RUNNER_STRIDE) % RUNNER_NAMES;
    let mut name = runner_name_prefix(set);
    for _ in 0..RUNNER_SUFFIX {
        name.push(letter(rest));
        rest /= ALPHABET.len() as u64;
    }
    name
}

/// The first eight characters of the hash of `text`, written in [`ALPHABET`] as ARC does it:
/// each digit of the decimal hash becomes one character.
fn suffix(text: &str) -> String {
    let decimal = fnv1a_32(text.as_bytes()).to_string();
    decimal
        .bytes()
        .take(8)
        .map(|byte| letter(u64::from(byte)))
        .collect()
}

fn letter(number: u64) -> char {
    // the remainder is an index by construction
    char::from(ALPHABET[(number % ALPHABET.len() as u64) as usize])
}

fn joined(base: &str, tail: &str) -> String {
    shortened(base, MAX_NAME.saturating_sub(tail.len())) + tail
}

/// `base`, or when it is longer than `max`, its beginning and a hash of the whole, so that
/// two long names stay different.
fn shortened(base: &str, max: usize) -> String {
    if base.len() <= max {
        return base.to_owned();
    }
    let tail = format!("-{}", suffix(base));
    let head: String = base.chars().take(max.saturating_sub(tail.len())).collect();
    head.trim_end_matches(['-', '.']).to_owned() + &tail
}

fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ars(namespace: &str, name: &str, group: &str, url: &str) -> AutoscalingRunnerSet {
        let mut ars = AutoscalingRunnerSet::default();
        ars.metadata.namespace = Some(namespace.to_owned());
        ars.metadata.name = Some(name.to_owned());
        ars.spec.runner_group = group.to_owned();
        ars.spec.github_config_url = url.to_owned();
        ars
    }

    fn set(name: &str, uid: &str) -> EphemeralRunnerSet {
        let mut set = EphemeralRunnerSet::default();
        set.metadata.name = Some(name.to_owned());
        set.metadata.uid = Some(uid.to_owned());
        set
    }

    #[test]
    fn listener_names_are_those_that_arc_gives() {
        for (namespace, group, url, expected) in [
            (
                "arc-runners",
                "",
                "https://github.com/acme/widgets",
                "dcf94f67",
            ),
            (
                "arc-runners",
                "default",
                "https://github.com/acme",
                "5f7f69ff",
            ),
            (
                "ci",
                "gpu",
                "https://ghes.acme.io/enterprises/acme",
                "5c5f677c",
            ),
        ] {
            assert_eq!(
                listener_name(&ars(namespace, "pool", group, url)),
                format!("pool-{expected}-listener")
            );
        }
    }

    #[test]
    fn the_runners_proxy_secret_is_named_by_its_namespace_alone() {
        assert_eq!(
            runner_proxy_secret_name("arc-runners", "pool"),
            "pool-754b578d-runner-proxy"
        );
    }

    #[test]
    fn the_listeners_secrets_are_named_after_it() {
        assert_eq!(listener_config_secret_name("al"), "al-config");
        assert_eq!(listener_proxy_secret_name("al"), "al-proxy");
    }

    #[test]
    fn names_of_long_sets_fit_a_label_and_stay_different() {
        let url = "https://github.com/acme";
        let [one, other] = ["1", "2"].map(|end| format!("{}{end}", "x".repeat(99)));
        let [first, second] = [&one, &other].map(|name| listener_name(&ars("ci", name, "", url)));
        assert_eq!(first.len(), 63);
        assert_ne!(first, second);
        let longest_of_the_chart = "y".repeat(45);
        let name = listener_name(&ars("ci", &longest_of_the_chart, "", url));
        assert!(name.starts_with(&longest_of_the_chart), "{name}");
    }

    /// Container hooks keep 54 characters of a runner's name.
    #[test]
    fn runner_names_keep_their_five_characters_whole_in_what_container_hooks_derive() {
        let tail = |name: &str| name[name.len() - 5..].to_owned();
        let plain = tail(&runner_name(&set("pool", "uid-1"), 7));
        for length in [1, 41, 42, 45, 63, 99, 253] {
            let name = runner_name(&set(&"y".repeat(length), "uid-1"), 7);
            assert!(name.len() <= 54, "{name}");
            assert_eq!(tail(&name), plain, "{name}");
            assert!(name.starts_with(&"y".repeat(length.min(41))), "{name}");
        }
        let cut = format!("{}-.{}", "y".repeat(39), "z".repeat(9));
        let name = runner_name(&set(&cut, "uid-1"), 7);
        assert!(!name.contains("--") && !name.contains('.'), "{name}");
    }

    #[test]
    fn runners_of_two_long_sets_have_different_names() {
        let [one, other] = ["1", "2"].map(|end| format!("{}{end}", "x".repeat(99)));
        let first = runner_name(&set(&one, "uid-1"), 1);
        let second = runner_name(&set(&other, "uid-2"), 1);
        assert_eq!(first[..49], second[..49]);
        assert_ne!(first, second);
    }

    #[test]
    fn runner_names_have_five_safe_characters_behind_the_prefix() {
        let name = runner_name(&set("pool", "uid-1"), 7);
        let tail = name.strip_prefix("pool-runner-").unwrap();
        assert_eq!(tail.len(), 5);
        assert!(tail.bytes().all(|byte| ALPHABET.contains(&byte)), "{tail}");
        assert_eq!(name, runner_name(&set("pool", "uid-1"), 7));
    }

    #[test]
    fn nonces_in_a_row_never_give_a_name_twice() {
        for first in [0, 1_000_000, u64::MAX - 20_000] {
            let set = set("pool", "uid-1");
            let names: BTreeSet<String> = (first..first + 20_000)
                .map(|nonce| runner_name(&set, nonce))
                .collect();
            assert_eq!(names.len(), 20_000, "from {first}");
        }
    }

    #[test]
    fn another_set_of_the_same_name_uses_other_names() {
        let [old, new] = ["uid-1", "uid-2"].map(|uid| runner_name(&set("pool", uid), 0));
        assert_ne!(old, new);
    }
}
