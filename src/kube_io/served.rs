//! What is known of the schemas that the cluster serves, shared by all that read and write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::patch_plan::Learned;
use crate::api::{Field, MissingFields};
use crate::messages::ObjectRef;

/// Which fields of ours the cluster lacks, and which objects have annotations in their place.
/// As long as nobody has found out, every field counts as there: what does not come back from
/// a write corrects that.
#[derive(Debug, Default)]
pub struct ServedFields {
    known: Mutex<Known>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Known {
    missing: Arc<MissingFields>,
    /// Objects with annotations in place of fields.
    standing: BTreeMap<ObjectRef, Vec<Field>>,
}

impl ServedFields {
    /// The fields that the cluster lacks.
    #[must_use]
    pub fn missing(&self) -> Arc<MissingFields> {
        self.known().missing.clone()
    }

    /// Takes in what the schemas say.
    pub fn told(&self, missing: MissingFields) {
        let mut known = self.known();
        if *known.missing != missing {
            known.missing = Arc::new(missing);
            self.news.notify_one();
        }
    }

    /// Takes in what the answer to a write says.
    pub fn learn(&self, learned: &Learned) {
        if learned == &Learned::default() {
            return;
        }
        let mut known = self.known();
        let mut missing = MissingFields::clone(&known.missing);
        let mut news = false;
        for &field in &learned.missing {
            news |= missing.insert(field);
        }
        for &field in &learned.present {
            news |= missing.remove(field);
        }
        if news {
            known.missing = Arc::new(missing);
            self.news.notify_one();
        }
    }

    /// Takes note of the fields for which annotations stand in on an object.
    pub fn stands_in(&self, object: &ObjectRef, fields: Vec<Field>) {
        let mut known = self.known();
        if fields.is_empty() {
            known.standing.remove(object);
            return;
        }
        let can_move = fields.iter().any(|field| !known.missing.contains(*field));
        known.standing.insert(object.clone(), fields);
        if can_move {
            self.news.notify_one();
        }
    }

    /// The objects with annotations in place of fields that are there.
    #[must_use]
    pub fn movable(&self) -> Vec<ObjectRef> {
        let known = self.known();
        let standing = known.standing.iter();
        standing
            .filter(|(_, fields)| fields.iter().any(|field| !known.missing.contains(*field)))
            .map(|(object, _)| object.clone())
            .collect()
    }

    /// Waits until something is new: a field is missing or is there, or an object has an
    /// annotation in place of a field that is there.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::messages::Kind;

    fn fields() -> [Field; 2] {
        let mut all = Field::all();
        [all.next().unwrap(), all.next().unwrap()]
    }

    /// Whether it tells of something new, since it was asked last.
    fn is_news(served: &ServedFields) -> bool {
        served.news().now_or_never().is_some()
    }

    #[test]
    fn what_answers_say_is_known_and_told_once() {
        let [lacking, other] = fields();
        let served = ServedFields::default();
        let learns = |missing: &[Field], present: &[Field]| {
            let (missing, present) = (missing.to_vec(), present.to_vec());
            served.learn(&Learned { missing, present });
            (served.missing().contains(lacking), is_news(&served))
        };
        assert_eq!(learns(&[], &[]), (false, false));
        assert_eq!(learns(&[lacking], &[]), (true, true));
        assert_eq!(learns(&[lacking], &[other]), (true, false), "no news");
        assert_eq!(learns(&[], &[lacking]), (false, true));
        assert_eq!(learns(&[], &[lacking]), (false, false));
        served.told(MissingFields::from_iter([lacking]));
        assert!(served.missing().contains(lacking) && is_news(&served));
        served.told(MissingFields::from_iter([lacking]));
        assert!(!is_news(&served));
    }

    #[test]
    fn what_stands_in_for_a_field_is_movable_once_the_field_is_there() {
        let [lacking, there] = fields();
        let served = ServedFields::default();
        served.told(MissingFields::from_iter([lacking]));
        assert!(is_news(&served));
        let object = ObjectRef::new(Kind::EphemeralRunner, "ci", "r");
        served.stands_in(&object, vec![lacking]);
        assert!(served.movable().is_empty() && !is_news(&served));
        served.stands_in(&object, vec![lacking, there]);
        assert!(is_news(&served));
        assert_eq!(served.movable(), std::slice::from_ref(&object));
        served.stands_in(&object, vec![lacking]);
        assert!(served.movable().is_empty());
        served.told(MissingFields::default());
        assert_eq!(served.movable(), std::slice::from_ref(&object));
        served.stands_in(&object, Vec::new());
        assert!(served.movable().is_empty());
    }
}
