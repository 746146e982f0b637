//! Requests that the API server refuses for want of a right. Each right that is missing is
//! named once, for a person to grant, and not again with each attempt.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::messages::{KubeError, KubeErrorKind};

/// How many missing rights are remembered. More than that are not named: it is the same few
/// in ever more namespaces.
const REMEMBERED: usize = 1024;

/// The missing rights that were named already. Clones share them.
#[derive(Clone, Default)]
pub struct Refusals(Arc<Mutex<BTreeSet<String>>>);

impl Refusals {
    /// Whether the right was not named before; from now on it was.
    #[must_use]
    pub fn is_news(&self, right: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < REMEMBERED && !known.contains(right) && known.insert(right.to_owned())
    }

    /// Logs a refusal: as a warning when it is news, else for those who debug.
    pub fn log(&self, error: &KubeError) {
        let Some(right) = missing_right(error) else {
            return;
        };
        if self.is_news(right) {
            tracing::warn!(
                "the controller's ServiceAccount may not {right}: give it that right; {}",
                error.message
            );
        } else {
            tracing::debug!("refused again: {}", error.message);
        }
    }
}

/// The right that a refused request lacks, in the server's words: verb, resource and namespace.
/// `None` when it was refused for another reason, by a quota or by admission.
#[must_use]
pub fn missing_right(error: &KubeError) -> Option<&str> {
    if error.kind != KubeErrorKind::Forbidden {
        return None;
    }
    let message = error.message.lines().next().unwrap_or_default();
    // of a right that the caller would have to have itself to give it to others
    if let Some(at) = message.find("attempting to grant RBAC permissions") {
        return message.get(at + "attempting to ".len()..);
    }
    // User "u" cannot get resource "pods" in API group "" in the namespace "n"
    let (_, wish) = message.split_once(" cannot ")?;
    let (verb, _) = wish.split_once(" resource \"")?;
    (!verb.contains(' ')).then(|| up_to_the_place(wish))
}

/// A wish without what follows the place: the server adds which of the roles that it looked for
/// are not there, and we where the right is to be had. Neither makes another right of it.
fn up_to_the_place(wish: &str) -> &str {
    const NAMESPACE: &str = " in the namespace \"";
    const EVERYWHERE: &str = " at the cluster scope";
    let namespace = wish.find(NAMESPACE).and_then(|at| {
        let name = at + NAMESPACE.len();
        let length = wish.get(name..)?.find('"')?;
        Some(name + length + 1)
    });
    let end = namespace.or_else(|| wish.find(EVERYWHERE).map(|at| at + EVERYWHERE.len()));
    end.and_then(|end| wish.get(..end)).unwrap_or(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: KubeErrorKind, message: &str) -> KubeError {
        KubeError {
            kind,
            message: message.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn a_right_is_named_by_verb_resource_and_namespace() {
        use KubeErrorKind::{Forbidden, Invalid, QuotaExceeded};
        let pods = "get resource \"pods\" in API group \"\" in the namespace \"ci\"";
        let roles = "list resource \"roles\" in API group \"rbac.authorization.k8s.io\" at the \
                     cluster scope";
        for (kind, message, right) in [
            (
                Forbidden,
                format!(
                    "pods \"x\" is forbidden: User \"system:serviceaccount:a:b\" cannot {pods}"
                ),
                Some(pods),
            ),
            (
                Forbidden,
                format!("roles is forbidden: User \"u\" cannot {roles}"),
                Some(roles),
            ),
            (
                Forbidden,
                format!("User \"u\" cannot {pods}: RBAC: role \"gone\" not found"),
                Some(pods),
            ),
            (
                Forbidden,
                format!("User \"u\" cannot {roles}; the ClusterRole x has that right: bind it"),
                Some(roles),
            ),
            (
                Forbidden,
                "roles \"x\" is forbidden: user \"u\" (groups=[]) is attempting to grant RBAC \
                 permissions not currently held:\n{APIGroups:[\"\"]}"
                    .to_owned(),
                Some("grant RBAC permissions not currently held:"),
            ),
            (
                Forbidden,
                "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"".to_owned(),
                None,
            ),
            (
                Forbidden,
                "pods \"x\" is forbidden: a webhook says that you cannot have a resource \"y\""
                    .to_owned(),
                None,
            ),
            (QuotaExceeded, format!("User \"u\" cannot {pods}"), None),
            (Invalid, format!("User \"u\" cannot {pods}"), None),
        ] {
            assert_eq!(missing_right(&refused(kind, &message)), right, "{message}");
        }
    }

    #[test]
    fn each_is_news_once_and_their_number_is_bounded() {
        let refusals = Refusals::default();
        assert!(refusals.is_news("get pods in a"));
        assert!(refusals.is_news("get pods in b"));
        assert!(!refusals.is_news("get pods in a"));
        for n in 0..2 * REMEMBERED {
            let _news = refusals.is_news(&n.to_string());
        }
        assert_eq!(refusals.0.lock().unwrap().len(), REMEMBERED);
        assert!(!refusals.is_news("another"));
    }
}
