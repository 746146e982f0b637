//! Which AutoscalingRunnerSets have the same scale set in the Actions service. Pure.
//!
//! Registration reuses a scale set that it finds by its name, so that two sets of one name,
//! group and config URL get the same one, in whatever namespaces they are. Neither can see
//! that by itself; the controller can.
//!
//! What one has is what its annotations say, which whoever may edit it can write. So the others
//! learn too whether the service has shown it to that one's credentials.

use std::collections::BTreeMap;

use crate::actors::runtime::router::ActorKey;
use crate::actors::scale_set::Sharer;

/// Who has which scale set.
#[derive(Debug, Default)]
pub struct Sharing {
    known: BTreeMap<ActorKey, Claim>,
    /// By scale set: who has it.
    members: BTreeMap<String, BTreeMap<ActorKey, Claim>>,
    /// What each was told last, unless that was nothing.
    told: BTreeMap<ActorKey, Vec<Sharer>>,
}

/// What one says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The scale set that it has, if any.
    pub identity: Option<String>,
    /// Whether it is being deleted: one that goes is in nobody's way, and leaves the scale set
    /// to those that stay.
    pub going: bool,
    /// Whether the service has shown it to this one.
    pub proven: bool,
}

/// Who is to be told, and the others that have the same scale set and stay.
pub type News = (ActorKey, Vec<Sharer>);

impl Sharing {
    /// Takes in what one says of itself. Who shares a scale set is told again each time it
    /// speaks: it may have been started anew.
    pub fn record_claim(&mut self, key: &ActorKey, claim: Claim) -> Vec<News> {
        let before = self.known.get(key).cloned().unwrap_or_default();
        if before == claim {
            let told = self.told.get(key).cloned();
            return told
                .map(|others| (key.clone(), others))
                .into_iter()
                .collect();
        }
        if let Some(identity) = &before.identity
            && let Some(members) = self.members.get_mut(identity)
        {
            members.remove(key);
            if members.is_empty() {
                self.members.remove(identity);
            }
        }
        match &claim.identity {
            Some(identity) => {
                let members = self.members.entry(identity.clone()).or_default();
                members.insert(key.clone(), claim.clone());
                self.known.insert(key.clone(), claim.clone());
            }
            None => {
                self.known.remove(key);
            }
        }
        let affected = [before.identity, claim.identity].into_iter().flatten();
        let mut current = BTreeMap::from([(key.clone(), Vec::new())]);
        for identity in affected {
            current.extend(self.others_in(&identity));
        }
        current.retain(|member, others| self.is_news(member, others));
        current.into_iter().collect()
    }

    /// For each that has the scale set, the others that have it and stay.
    fn others_in(&self, identity: &str) -> Vec<News> {
        let Some(members) = self.members.get(identity) else {
            return Vec::new();
        };
        let others = |key: &ActorKey| {
            let stay = members
                .iter()
                .filter(|(other, claim)| !claim.going && *other != key);
            let sharers = stay.map(|(other, claim)| Sharer {
                name: format!("{}/{}", other.namespace, other.name),
                proven: claim.proven,
            });
            sharers.collect()
        };
        members
            .keys()
            .map(|key| (key.clone(), others(key)))
            .collect()
    }

    fn is_news(&mut self, key: &ActorKey, others: &[Sharer]) -> bool {
        let before = self.told.remove(key).unwrap_or_default();
        if !others.is_empty() {
            self.told.insert(key.clone(), others.to_vec());
        }
        before != others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::runtime::router::ActorKind;

    fn says(sharing: &mut Sharing, name: &str, identity: Option<&str>, going: bool) -> Vec<String> {
        claims(sharing, name, identity, going, true)
    }

    fn claims(
        sharing: &mut Sharing,
        name: &str,
        identity: Option<&str>,
        going: bool,
        proven: bool,
    ) -> Vec<String> {
        let key = ActorKey::new(ActorKind::ScaleSet, format!("team-{name}"), name);
        let claim = Claim {
            identity: identity.map(str::to_owned),
            going,
            proven,
        };
        let lines = sharing
            .record_claim(&key, claim)
            .into_iter()
            .map(|(key, others)| {
                let mark = |other: &Sharer| if other.proven { "" } else { "?" };
                let others = others
                    .iter()
                    .map(|one| format!("{}{}", one.name, mark(one)));
                format!("{}: {}", key.name, others.collect::<Vec<_>>().join(" "))
            });
        lines.collect()
    }

    #[test]
    fn who_has_a_scale_set_alone_is_told_nothing() {
        let mut sharing = Sharing::default();
        for (name, identity, going) in [
            ("a", None, false),
            ("a", Some("acme 7"), false),
            ("b", Some("acme 8"), false),
            ("a", Some("acme 7"), false),
            ("a", Some("acme 9"), false),
            ("a", Some("acme 9"), true),
            ("a", None, true),
        ] {
            let told = says(&mut sharing, name, identity, going);
            assert_eq!(told, Vec::<String>::new(), "{name} {identity:?}");
        }
    }

    #[test]
    fn all_that_share_one_are_told_of_each_other_and_of_the_end() {
        let mut sharing = Sharing::default();
        let mut has = |name: &str, identity| says(&mut sharing, name, identity, false);
        has("a", Some("acme 7"));
        assert_eq!(has("b", Some("acme 7")), ["a: team-b/b", "b: team-a/a"]);
        let all = [
            "a: team-b/b team-c/c",
            "b: team-a/a team-c/c",
            "c: team-a/a team-b/b",
        ];
        assert_eq!(has("c", Some("acme 7")), all);
        // started anew
        assert_eq!(has("b", Some("acme 7")), ["b: team-a/a team-c/c"]);
        assert_eq!(has("a", None), ["a: ", "b: team-c/c", "c: team-b/b"]);
        assert_eq!(has("c", Some("acme 8")), ["b: ", "c: "]);
        assert!(has("b", None).is_empty());
    }

    #[test]
    fn one_that_goes_is_in_nobodys_way_and_knows_who_stays() {
        let mut sharing = Sharing::default();
        let mut says = |name: &str, going| says(&mut sharing, name, Some("acme 7"), going);
        says("a", false);
        says("b", false);
        assert_eq!(says("b", true), ["a: "]);
        assert_eq!(says("b", true), ["b: team-a/a"]);
        // when all go, the last one takes the scale set along
        assert_eq!(says("a", true), ["b: "]);
    }

    #[test]
    fn who_claims_one_is_told_of_as_such_until_the_service_has_shown_it() {
        let mut sharing = Sharing::default();
        claims(&mut sharing, "a", Some("acme 7"), false, true);
        let forged = claims(&mut sharing, "b", Some("acme 7"), false, false);
        assert_eq!(forged, ["a: team-b/b?", "b: team-a/a"]);
        let shown = claims(&mut sharing, "b", Some("acme 7"), false, true);
        assert_eq!(shown, ["a: team-b/b"]);
    }
}
