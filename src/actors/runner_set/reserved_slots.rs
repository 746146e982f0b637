//! Places that stay free for now: those of runners that were counted as finished under the
//! listener's patch at hand. `replicas` was computed while they were alive, so to fill their
//! places would make runners for jobs that are done. All other places are filled: in a busy
//! pool every patch finds a finished runner, and would never let it grow.
//!
//! The cleanup marker says durably that there are such places, and this memory which. The next
//! patch was computed later than the one at hand, but not certainly later than what happened while
//! that one was known: places that came free then are held under the next patch too, unless the
//! listener tells itself which jobs it has left out.

use std::collections::BTreeMap;

use super::runner_index::CountedRunner;
use crate::clock::Timestamp;

/// Whether the count of finished runners under the patch at hand is on record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Count {
    /// There was none.
    #[default]
    Open,
    /// It was written, and may be on record.
    Written,
    /// It is.
    OnRecord,
}

/// The places held under one patch.
#[derive(Debug, Default)]
pub(super) struct ReservedSlots {
    patch: Option<i64>,
    count: Count,
    /// By the names of the runners that left them. Nothing while nobody knows which they are: a
    /// predecessor of this process has counted runners under this patch.
    places: Option<BTreeMap<String, ReservedSlot>>,
}

/// A place that is held.
#[derive(Clone, Copy, Debug)]
struct ReservedSlot {
    /// When the job of the runner that left it was recorded as finished.
    finished: Option<Timestamp>,
    /// It came free when the patch at hand was known already.
    late: bool,
}

impl ReservedSlots {
    /// Whether no patch was seen so far.
    pub const fn is_unknown(&self) -> bool {
        self.patch.is_none()
    }

    /// Whether that is another patch than the one at hand.
    pub fn is_another(&self, patch: i64) -> bool {
        self.patch != Some(patch)
    }

    /// Follows the set to its patch. `marker` is the patch under which finished runners were
    /// last counted; `telling` says that the listener tells which jobs it has left out. Says whether
    /// the patch is certainly another than before: its number alone does not, since the listener's
    /// begin again with the listener.
    pub fn follow_patch(&mut self, patch: i64, marker: i64, telling: bool) -> bool {
        if self.patch == Some(patch) {
            return false;
        }
        let by_a_predecessor = self.patch.is_none() && marker == patch;
        self.count = if by_a_predecessor {
            Count::OnRecord
        } else {
            Count::Open
        };
        let before = self.places.take().unwrap_or_default();
        // what came free under patch 0 was filled at once
        let carries = !telling && self.patch != Some(0);
        let late = before
            .into_iter()
            .filter(|(_, place)| place.late && carries);
        let carried = late.map(|(name, place)| {
            (
                name,
                ReservedSlot {
                    late: false,
                    ..place
                },
            )
        });
        self.places = (!by_a_predecessor).then(|| carried.collect());
        self.patch.replace(patch).is_some()
    }

    /// Whether the count under this patch is on record, by the marker that is.
    pub fn is_count_on_record(&mut self, marker: i64) -> bool {
        if self.count == Count::Written && self.patch == Some(marker) {
            self.count = Count::OnRecord;
        }
        self.count == Count::OnRecord
    }

    /// The count under this patch is written, or found to be on record.
    pub const fn write_count(&mut self) {
        self.count = Count::Written;
    }

    /// Holds the place of a runner that was counted. Twice is once.
    pub fn reserve(&mut self, counted: CountedRunner) {
        if let Some(places) = &mut self.places {
            let CountedRunner {
                name,
                finished,
                late,
            } = counted;
            places.insert(name, ReservedSlot { finished, late });
        }
    }

    /// Lets go of the place of a runner, since `replicas` was computed without its job. Says
    /// whether it was held.
    pub fn release(&mut self, name: &str) -> bool {
        let places = self.places.as_mut();
        places.is_some_and(|places| places.remove(name).is_some())
    }

    /// As [`Self::release`] for all of which that is so.
    pub fn release_counted(&mut self, is_counted: impl Fn(Option<Timestamp>) -> bool) -> bool {
        let Some(places) = &mut self.places else {
            return false;
        };
        let before = places.len();
        places.retain(|_, place| !is_counted(place.finished));
        places.len() < before
    }

    /// A new revision was applied, and its cleanup has opened places for another reason: what
    /// a predecessor has counted is not held on to any longer. What is known to be held still
    /// is, for `replicas` is as old as it was.
    pub fn forget_unknown(&mut self) {
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
