//! Who may do what: the roles and bindings in the store decide, as for the real server's
//! RBAC authorizer.

use serde_json::{Value, json};

use super::handlers::{Call, Reply};
use super::http::{Target, Verb, read_body};
use super::kinds::ResourceType;
use super::status::ApiError;
use super::{Identity, State, object};

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const MASTERS: &str = "system:masters";

/// What someone wants to do.
#[derive(Clone, Copy, Debug)]
struct Wish<'a> {
    verb: &'a str,
    group: &'a str,
    /// Plural name, with the subresource after a slash.
    resource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl State {
    /// Refuses what the caller may not do.
    ///
    /// # Errors
    /// 403 with the real server's text.
    pub(super) fn authorize(
        &self,
        identity: &Identity,
        verb: Verb,
        target: &Target,
    ) -> Result<(), ApiError> {
        let resource = &target.resource;
        let mut full = resource.plural.clone();
        if let Some(subresource) = &target.subresource {
            full = format!("{full}/{subresource}");
        }
        let wish = Wish {
            verb: verb.as_str(),
            group: &resource.group,
            resource: &full,
            // a namespace is itself in the namespace of its name
            namespace: match resource.is("", "namespaces") {
                true => target.name(),
                false => target.namespace(),
            },
            name: target.name(),
        };
        if resource.is_virtual || self.allows(identity, wish) {
            return Ok(());
        }
        let place = match wish.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let why = format!(
            "User {:?} cannot {} resource {:?} in API group {:?} {place}",
            identity.user, wish.verb, wish.resource, wish.group
        );
        Err(ApiError::forbidden(
            resource.resource(),
            target.name(),
            &why,
        ))
    }

    /// Refuses a change to a role or a binding as [`State::authorize_roles`] does, unless it is
    /// one that deletion needs: whoever may write the object may change its finalizers and
    /// owners, whatever it grants.
    ///
    /// # Errors
    /// 403 that names the first right that is missing.
    pub(super) fn authorize_role_change(
        &self,
        call: &Call<'_>,
        resource: &ResourceType,
        old: &Value,
        new: &Value,
    ) -> Result<(), ApiError> {
        if resource.group != RBAC
            || without_what_deletion_needs(old) == without_what_deletion_needs(new)
        {
            return Ok(());
        }
        self.authorize_roles(call, resource, new)
    }

    /// Refuses a role with rights, or a binding to a role with rights, that the writer does
    /// not have.
    ///
    /// # Errors
    /// 403 that names the first right that is missing.
    pub(super) fn authorize_roles(
        &self,
        call: &Call<'_>,
        resource: &ResourceType,
        written: &Value,
    ) -> Result<(), ApiError> {
        let identity = call.identity;
        if resource.group != RBAC || identity.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let namespace = object::namespace(written);
        let (verb, role_resource, name, rules) = match resource.kind.as_str() {
            "Role" | "ClusterRole" => (
                "escalate",
                resource.plural.as_str(),
                object::name(written),
                object::list(&written["rules"]),
            ),
            _ => {
                let reference = &written["roleRef"];
                let plural = match reference["kind"].as_str() {
                    Some("ClusterRole") => "clusterroles",
                    _ => "roles",
                };
                let name = reference["name"].as_str().unwrap_or_default();
                ("bind", plural, name, self.rules_of(reference, namespace))
            }
        };
        let wish = Wish {
            verb,
            group: RBAC,
            resource: role_resource,
            namespace,
            name,
        };
        if self.allows(identity, wish) {
            return Ok(());
        }
        let missing = rules
            .iter()
            .find(|rule| !self.covers(identity, rule, namespace));
        match missing {
            None => Ok(()),
            Some(rule) => {
                let why = format!(
                    "user {:?} (groups={:?}) is attempting to grant RBAC permissions not \
                     currently held:\n{rule}",
                    identity.user, identity.groups
                );
                let name = object::name(written);
                Err(ApiError::forbidden(resource.resource(), name, &why))
            }
        }
    }

    /// Whether someone has every right that a rule gives.
    fn covers(&self, identity: &Identity, rule: &Value, namespace: &str) -> bool {
        let names: Vec<&str> = match object::list(&rule["resourceNames"]) {
            [] => vec![""],
            names => names.iter().filter_map(Value::as_str).collect(),
        };
        object::strings(&rule["verbs"]).all(|verb| {
            object::strings(&rule["apiGroups"]).all(|group| {
                object::strings(&rule["resources"]).all(|resource| {
                    names.iter().all(|name| {
                        let wish = Wish {
                            verb,
                            group,
                            resource,
                            namespace,
                            name,
                        };
                        self.allows(identity, wish)
                    })
                })
            })
        })
    }

    fn allows(&self, identity: &Identity, wish: Wish<'_>) -> bool {
        if identity.groups.iter().any(|group| group == MASTERS) {
            return true;
        }
        let everywhere = self.store.list(CLUSTER_BINDINGS, None);
        let here = (!wish.namespace.is_empty())
            .then(|| self.store.list(BINDINGS, Some(wish.namespace)))
            .into_iter()
            .flatten();
        everywhere
            .chain(here)
            .filter(|binding| binds(binding, identity))
            .flat_map(|binding| self.rules_of(&binding["roleRef"], object::namespace(binding)))
            .any(|rule| wish.is_granted_by(rule))
    }

    fn rules_of(&self, reference: &Value, namespace: &str) -> &[Value] {
        let name = reference["name"].as_str().unwrap_or_default();
        let role = match reference["kind"].as_str() {
            Some("ClusterRole") => self.store.get(CLUSTER_ROLES, "", name),
            _ => self.store.get(ROLES, namespace, name),
        };
        role.map_or(&[], |role| object::list(&role["rules"]))
    }

    /// Answers a SubjectAccessReview, of oneself or of someone named.
    pub(super) fn review_access(&self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let mut review = read_body(&call.parts.headers, call.body)?;
        let someone = Identity {
            user: review["spec"]["user"].as_str().unwrap_or_default().into(),
            groups: object::strings(&review["spec"]["groups"])
                .map(str::to_owned)
                .collect(),
        };
        let of_oneself = call.resource().plural == "selfsubjectaccessreviews";
        let identity = if of_oneself { call.identity } else { &someone };
        let wished = &review["spec"]["resourceAttributes"];
        let text = |field: &str| wished[field].as_str().unwrap_or_default();
        let resource = match text("subresource") {
            "" => text("resource").to_owned(),
            subresource => format!("{}/{subresource}", text("resource")),
        };
        let wish = Wish {
            verb: text("verb"),
            group: text("group"),
            resource: &resource,
            namespace: text("namespace"),
            name: text("name"),
        };
        let allowed = self.allows(identity, wish);
        if !review.is_object() {
            return Err(ApiError::bad_request("the review is no JSON object"));
        }
        review["status"] = json!({ "allowed": allowed });
        review["kind"] = call.resource().kind.as_str().into();
        review["apiVersion"] = call.resource().api_version().into();
        Ok(Reply::object(201, review))
    }
}

impl Wish<'_> {
    fn is_granted_by(&self, rule: &Value) -> bool {
        let lists = |field: &str, wanted: &str| {
            object::strings(&rule[field]).any(|entry| entry == "*" || entry == wanted)
        };
        let subresource = self.resource.split_once('/').map(|(_, name)| name);
        let any_of_subresource = subresource.map(|name| format!("*/{name}"));
        let names = object::list(&rule["resourceNames"]);
        lists("verbs", self.verb)
            && lists("apiGroups", self.group)
            && (lists("resources", self.resource)
                || any_of_subresource.is_some_and(|entry| lists("resources", &entry)))
            && (names.is_empty() || names.iter().any(|name| *name == self.name))
    }
}

/// The object without finalizers, owners, and the record of who wrote what.
fn without_what_deletion_needs(object: &Value) -> Value {
    let mut rest = object.clone();
    if let Some(meta) = rest["metadata"].as_object_mut() {
        for field in ["finalizers", "ownerReferences", "managedFields"] {
            meta.remove(field);
        }
    }
    rest
}

fn binds(binding: &Value, identity: &Identity) -> bool {
    object::list(&binding["subjects"]).iter().any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str().unwrap_or_default() {
            "User" => identity.user == name,
            "Group" => identity.groups.iter().any(|group| group == name),
            "ServiceAccount" => {
                let namespace = subject["namespace"].as_str().unwrap_or_default();
                identity.user == format!("system:serviceaccount:{namespace}:{name}")
            }
            _ => false,
        }
    })
}
