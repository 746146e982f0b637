//! What every compared type can do, and the table that gives it to a struct.
//!
//! A field is compared in one of a few ways, after its Go type:
//!
//! | way | in Go | absent means |
//! |---|---|---|
//! | `value` | a value, list or map | its zero, or empty |
//! | `pointer` | a pointer | something that no value means |
//! | `keyed` | a list with a merge key | empty |
//! | `masked` | a value that may be a secret | its zero; never shown |
//! | `defaulted` | a number for whose zero the server puts its default | as does 0: any |

use super::drift::Trace;

/// A type whose values are compared by what they mean to Kubernetes.
pub trait Semantic {
    /// Whether both mean the same.
    fn equal(&self, other: &Self) -> bool;

    /// Whether it means the same as a value that is absent where its Go type is no pointer.
    fn is_zero(&self) -> bool;

    /// Whether it says nothing about the live value. A zero that is spelled out says
    /// something, an empty text or list does not.
    fn is_unset(&self) -> bool {
        false
    }

    /// Whether `live` has all that `self` sets. What differs first is noted in `trace`.
    fn derives(&self, live: &Self, trace: &mut Trace) -> bool;

    /// In how many of its own fields `live` lacks what `self` sets: how unlike they are.
    fn differences(&self, live: &Self) -> usize {
        usize::from(!self.derives(live, &mut Trace::off()))
    }

    /// The value for people, in a few words.
    fn show(&self) -> String {
        if self.is_zero() { "{}" } else { "{…}" }.to_owned()
    }
}

/// Whether `live` has what a field of a value type sets.
pub fn value_derives<T: Semantic>(desired: &T, live: &T, trace: &mut Trace) -> bool {
    desired.is_unset() || desired.derives(live, trace)
}

/// Same, for a value that is not to be shown.
pub fn masked_derives<T: Semantic>(desired: &T, live: &T, trace: &mut Trace) -> bool {
    value_derives(desired, live, trace) || trace.redact()
}

/// Same, for a number for whose zero the server puts its default, such that no live object
/// ever shows the zero.
pub fn defaulted_derives<T: Semantic>(desired: &T, live: &T, trace: &mut Trace) -> bool {
    desired.is_zero() || desired.derives(live, trace)
}

/// Whether two pointers mean the same: none is something else than a zero.
pub fn pointers_equal<T: Semantic>(a: &Option<T>, b: &Option<T>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.equal(b),
        (None, None) => true,
        _ => false,
    }
}

/// Whether `live` has what a pointer sets.
pub fn pointer_derives<T: Semantic>(
    desired: &Option<T>,
    live: &Option<T>,
    trace: &mut Trace,
) -> bool {
    match (desired, live) {
        (None, _) => true,
        (Some(desired), Some(live)) => desired.derives(live, trace),
        (Some(desired), None) => trace.lacks(desired),
    }
}

/// A value type that may be absent, which means its zero.
impl<T: Semantic> Semantic for Option<T> {
    fn equal(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(a), Some(b)) => a.equal(b),
            (Some(one), None) | (None, Some(one)) => one.is_zero(),
            (None, None) => true,
        }
    }

    fn is_zero(&self) -> bool {
        self.as_ref().is_none_or(T::is_zero)
    }

    fn is_unset(&self) -> bool {
        self.as_ref().is_none_or(T::is_unset)
    }

    fn derives(&self, live: &Self, trace: &mut Trace) -> bool {
        match (self, live) {
            (None, _) => true,
            (Some(desired), Some(live)) => value_derives(desired, live, trace),
            // what an absent value has is what means the same
            (Some(desired), None) => desired.is_zero() || trace.lacks(desired),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "absent".to_owned(), T::show)
    }
}

/// Implements [`Semantic`] for a struct: one line for each field with its Rust name, its JSON
/// name and the way it is compared. A field that is left out breaks the build.
macro_rules! compare {
    ($type:ident { $($field:ident $json:literal $way:ident),+ $(,)? }) => {
        impl $crate::semantic::Semantic for $type {
            fn equal(&self, other: &Self) -> bool {
                let Self { $($field),+ } = self;
                true $(&& $crate::semantic::field::way!($way equal $field, &other.$field))+
            }

            fn is_zero(&self) -> bool {
                let Self { $($field),+ } = self;
                true $(&& $crate::semantic::field::way!($way is_zero $field))+
            }

            fn derives(
                &self,
                live: &Self,
                trace: &mut $crate::semantic::drift::Trace,
            ) -> bool {
                let Self { $($field),+ } = self;
                true $(&& (
                    $crate::semantic::field::way!($way derives $field, &live.$field, trace)
                        || trace.within(|| $crate::semantic::drift::Part::Field($json))
                ))+
            }

            fn differences(&self, live: &Self) -> usize {
                let Self { $($field),+ } = self;
                let trace = &mut $crate::semantic::drift::Trace::off();
                0 $(+ usize::from(
                    !$crate::semantic::field::way!($way derives $field, &live.$field, trace)
                ))+
            }
        }
    };
}

/// One of the ways to compare a field, for one of the questions.
macro_rules! way {
    (pointer equal $a:expr, $b:expr) => {
        $crate::semantic::field::pointers_equal($a, $b)
    };
    ($way:ident equal $a:expr, $b:expr) => {
        $crate::semantic::Semantic::equal($a, $b)
    };
    (pointer is_zero $a:expr) => {
        $a.is_none()
    };
    ($way:ident is_zero $a:expr) => {
        $crate::semantic::Semantic::is_zero($a)
    };
    (value derives $a:expr, $b:expr, $trace:expr) => {
        $crate::semantic::field::value_derives($a, $b, $trace)
    };
    (pointer derives $a:expr, $b:expr, $trace:expr) => {
        $crate::semantic::field::pointer_derives($a, $b, $trace)
    };
    (keyed derives $a:expr, $b:expr, $trace:expr) => {
        $crate::semantic::list::derives_by_key($a, $b, $trace)
    };
    (masked derives $a:expr, $b:expr, $trace:expr) => {
        $crate::semantic::field::masked_derives($a, $b, $trace)
    };
    (defaulted derives $a:expr, $b:expr, $trace:expr) => {
        $crate::semantic::field::defaulted_derives($a, $b, $trace)
    };
}

pub(super) use {compare, way};
