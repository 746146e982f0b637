//! Whether two Kubernetes objects mean the same, and where they differ.
//!
//! [`deep_equal`] asks whether two objects are the same but for spelling. [`drift()`] asks
//! whether a live object still carries everything a desired one sets, whatever the server and
//! admission added. Neither allocates, nor can it panic, as long as it finds no difference.
//!
//! Every type is compared by code of its own ([`Semantic`]), written as a table of its fields
//! and of what an absent value means in each. The tables name every field, so that one that
//! Kubernetes adds breaks the build. Knows Kubernetes' types and the specs in [`crate::api`].

mod core_v1;
mod drift;
mod field;
mod leaf;
mod list;
mod meta_v1;
mod objects;
mod ours;
mod quantity;
#[cfg(test)]
mod tests;

pub use drift::Drift;
pub use field::Semantic;

use drift::Trace;

/// Whether `a` and `b` mean the same.
///
/// An absent list or map equals an empty one, and an absent value whose Go type is no pointer
/// equals its zero. Quantities are equal by value and times as instants. Maps have no order,
/// lists do.
#[must_use]
pub fn deep_equal<T: Semantic>(a: &T, b: &T) -> bool {
    a.equal(b)
}

/// The first thing that `desired` sets and `live` has not, or has otherwise. `None` means that
/// nothing of `desired` is missing.
///
/// What `desired` leaves absent or empty is not compared. Elements of lists with a merge key
/// are found by it; those of other lists have to be there in their order, with anything in
/// between. A zero that `desired` spells out agrees with an absent value where the server
/// drops zeros.
#[must_use]
pub fn drift<T: Semantic>(desired: &T, live: &T) -> Option<Drift> {
    let mut trace = Trace::on();
    if field::value_derives(desired, live, &mut trace) {
        return None;
    }
    Some(trace.into_drift())
}
