//! What to do about a request for which the controller lacks a right.

use crate::messages::{Kind, KubeRequest};

/// Which of the roles in `config/rbac` has a right. ARC's charts spread the same rights over roles
/// of other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The ClusterRole `impresario-controller`, bound for the whole cluster.
    Everywhere,
    /// The Role `impresario-controller` in the controller's namespace.
    AtHome,
    /// The ClusterRole `impresario-runner-namespace`, bound in each namespace with runners.
    WithRunners,
}

impl Grant {
    /// Where the right to that request comes from. `home` is the controller's namespace.
    #[must_use]
    pub fn of(request: &KubeRequest, home: &str) -> Self {
        match request.kind() {
            Kind::AutoscalingRunnerSet
            | Kind::AutoscalingListener
            | Kind::EphemeralRunnerSet
            | Kind::EphemeralRunner => Self::Everywhere,
            _ if request.namespace() == home => Self::AtHome,
            _ => Self::WithRunners,
        }
    }

    /// What to do when the right is missing in that namespace.
    #[must_use]
    pub fn advice(self, namespace: &str) -> String {
        match self {
            Self::Everywhere => "the ClusterRole impresario-controller has that right: bind it to \
                                 the controller's ServiceAccount"
                .to_owned(),
            Self::AtHome => format!(
                "the Role impresario-controller has that right: bind it to the controller's \
                 ServiceAccount in the namespace {namespace}"
            ),
            Self::WithRunners => format!(
                "the ClusterRole impresario-runner-namespace has that right: bind it to the \
                 controller's ServiceAccount in the namespace {namespace}"
            ),
        }
    }
}

/// The server's refusal, and where the missing right comes from. What admission refuses has
/// nothing to do with rights, and is told as it is.
#[must_use]
pub fn explained(message: &str, grant: Grant, namespace: &str) -> String {
    if message.contains(" cannot ") {
        format!("{message}; {}", grant.advice(namespace))
    } else {
        message.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ObjectRef;

    #[test]
    fn a_missing_right_is_told_with_the_role_that_has_it() {
        let refusal = |verb: &str, plural: &str, namespace: &str| {
            format!(
                "{plural} \"x\" is forbidden: User \"system:serviceaccount:arc:c\" cannot {verb} \
                 resource \"{plural}\" in API group \"\" in the namespace \"{namespace}\""
            )
        };
        for (kind, namespace, role) in [
            (Kind::Secret, "team", "impresario-runner-namespace"),
            (Kind::Role, "team", "impresario-runner-namespace"),
            (Kind::Pod, "arc", "the Role impresario-controller"),
            (
                Kind::EphemeralRunner,
                "team",
                "ClusterRole impresario-controller",
            ),
        ] {
            let request = KubeRequest::Get(ObjectRef::new(kind, namespace, "x"));
            let message = refusal("get", kind.plural(), namespace);
            let told = explained(&message, Grant::of(&request, "arc"), namespace);
            assert!(told.starts_with(&message), "{told}");
            assert!(told.contains(role), "{kind}: {told}");
        }
        let admission = "admission webhook \"no.example.com\" denied the request: no";
        let told = explained(admission, Grant::WithRunners, "team");
        assert_eq!(told, admission);
    }
}
