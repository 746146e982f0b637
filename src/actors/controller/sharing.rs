//! Which AutoscalingRunnerSets have the same scale set in the Actions service. Pure.
//!
//! Registration reuses a scale set that it finds by its name, so that two sets of one name,
//! group and config URL get the same one, in whatever namespaces they are. Neither can see
//! that by itself; the controller can.

use std::collections::{BTreeMap, BTreeSet};

use crate::actors::router::ActorKey;

/// Who has which scale set.
#[derive(Debug, Default)]
pub struct Sharing {
    identities: BTreeMap<ActorKey, String>,
    members: BTreeMap<String, BTreeSet<ActorKey>>,
}

/// Who is to be told, and the others that have the same scale set.
pub type News = (ActorKey, Vec<String>);

impl Sharing {
    /// Takes in which scale set one has, if any. Who shares one is told again each time it
    /// speaks: it may have been started anew.
    pub fn heard(&mut self, key: &ActorKey, identity: Option<&str>) -> Vec<News> {
        let before = self.identities.get(key).cloned();
        if before.as_deref() == identity {
            let news = before.and_then(|identity| self.news_for(key, &identity));
            return news
                .filter(|(_, others)| !others.is_empty())
                .into_iter()
                .collect();
        }
        let mut news = Vec::new();
        if let Some(before) = before {
            news = self.leave(key, &before);
        }
        if let Some(identity) = identity {
            self.join(key, identity);
            let members = self.members.get(identity);
            let alone = members.is_none_or(|members| members.len() < 2);
            if !alone {
                news.retain(|(member, _)| member != key);
                news.extend(self.news_of(identity));
            }
        }
        news
    }

    fn join(&mut self, key: &ActorKey, identity: &str) {
        self.identities.insert(key.clone(), identity.to_owned());
        let members = self.members.entry(identity.to_owned()).or_default();
        members.insert(key.clone());
    }

    fn leave(&mut self, key: &ActorKey, identity: &str) -> Vec<News> {
        self.identities.remove(key);
        let Some(members) = self.members.get_mut(identity) else {
            return Vec::new();
        };
        members.remove(key);
        if members.is_empty() {
            self.members.remove(identity);
            return Vec::new();
        }
        let mut news = self.news_of(identity);
        news.push((key.clone(), Vec::new()));
        news
    }

    fn news_of(&self, identity: &str) -> Vec<News> {
        let members = self.members.get(identity).into_iter().flatten();
        members
            .filter_map(|member| self.news_for(member, identity))
            .collect()
    }

    fn news_for(&self, key: &ActorKey, identity: &str) -> Option<News> {
        let members = self.members.get(identity)?;
        let others = members.iter().filter(|other| *other != key);
        let names = others.map(|other| format!("{}/{}", other.namespace, other.name));
        Some((key.clone(), names.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::router::ActorKind;

    fn key(name: &str) -> ActorKey {
        ActorKey::new(ActorKind::ScaleSet, format!("team-{name}"), name)
    }

    fn told(news: Vec<News>) -> Vec<String> {
        let lines = news.into_iter().map(|(key, others)| {
            let others = others.join(" ");
            format!("{}: {others}", key.name)
        });
        lines.collect()
    }

    #[test]
    fn who_has_a_scale_set_alone_is_told_nothing() {
        let mut sharing = Sharing::default();
        assert!(sharing.heard(&key("a"), None).is_empty());
        assert!(sharing.heard(&key("a"), Some("acme 7")).is_empty());
        assert!(sharing.heard(&key("b"), Some("acme 8")).is_empty());
        assert!(sharing.heard(&key("a"), Some("acme 7")).is_empty());
        assert!(sharing.heard(&key("a"), Some("acme 9")).is_empty());
    }

    #[test]
    fn all_that_share_one_are_told_of_each_other_and_of_the_end() {
        let mut sharing = Sharing::default();
        let mut heard = |name: &str, identity| told(sharing.heard(&key(name), identity));
        heard("a", Some("acme 7"));
        assert_eq!(heard("b", Some("acme 7")), ["a: team-b/b", "b: team-a/a"]);
        assert_eq!(
            heard("c", Some("acme 7")),
            [
                "a: team-b/b team-c/c",
                "b: team-a/a team-c/c",
                "c: team-a/a team-b/b"
            ]
        );
        // started anew
        assert_eq!(heard("b", Some("acme 7")), ["b: team-a/a team-c/c"]);
        assert_eq!(heard("a", None), ["b: team-c/c", "c: team-b/b", "a: "]);
        assert_eq!(heard("c", Some("acme 8")), ["b: ", "c: "]);
        assert!(heard("b", None).is_empty());
    }
}
