//! Places that stay free for now: those of runners that were counted as finished under the
//! listener's patch at hand. `replicas` was computed while they were alive, so to fill their
//! places would make runners for jobs that are done. All other places are filled: in a busy
//! pool every patch finds a finished runner, and would never let it grow.
//!
//! The cleanup marker says durably that there are such places, and this memory which. The next
//! patch holds nothing: it was computed later.

use std::collections::BTreeMap;

use crate::clock::Timestamp;

/// The places held under one patch.
#[derive(Debug, Default)]
pub(super) struct Hold {
    patch: Option<i64>,
    /// By the names of the runners that left them, with the time at which their jobs were
    /// recorded as finished. Nothing while nobody knows which they are: a predecessor of this
    /// process has counted runners under this patch.
    places: Option<BTreeMap<String, Option<Timestamp>>>,
}

impl Hold {
    /// Follows the set to its patch. `marker` is the patch under which finished runners were
    /// last counted. Says whether the patch is certainly another than before: its number alone
    /// does not, since the listener's begin again with the listener.
    pub fn follow(&mut self, patch: i64, marker: i64) -> bool {
        if self.patch == Some(patch) {
            return false;
        }
        let first_look = self.patch.is_none();
        self.places = (!first_look || marker != patch).then(BTreeMap::new);
        self.patch = Some(patch);
        !first_look
    }

    /// Holds the place of a runner. Twice is once.
    pub fn keep(&mut self, name: String, finished: Option<Timestamp>) {
        if let Some(places) = &mut self.places {
            places.insert(name, finished);
        }
    }

    /// Lets go of the place of a runner, since `replicas` was computed without its job. Says
    /// whether it was held.
    pub fn open(&mut self, name: &str) -> bool {
        let places = self.places.as_mut();
        places.is_some_and(|places| places.remove(name).is_some())
    }

    /// As [`Self::open`] for all of which that is so.
    pub fn open_counted(&mut self, is_counted: impl Fn(Option<Timestamp>) -> bool) -> bool {
        let Some(places) = &mut self.places else {
            return false;
        };
        let before = places.len();
        places.retain(|_, finished| !is_counted(*finished));
        places.len() < before
    }

    /// A new revision was applied, and its cleanup has opened places for another reason: what
    /// a predecessor has counted is not held on to any longer. What is known to be held still
    /// is, for `replicas` is as old as it was.
    pub fn forgive_unknown(&mut self) {
        self.places.get_or_insert_default();
    }

    /// How many of `free` places are to be filled, when `uncounted` runners have finished that
    /// no decision has counted so far. Patch 0 holds nothing.
    pub fn fillable(&self, free: i64, uncounted: i64) -> i64 {
        match (self.patch, &self.places) {
            (Some(0), _) => free.max(0),
            (_, None) => 0,
            (_, Some(places)) => {
                let held = i64::try_from(places.len()).unwrap_or(i64::MAX);
                free.saturating_sub(held).saturating_sub(uncounted).max(0)
            }
        }
    }
}
