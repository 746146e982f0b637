//! Lists and maps.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, ObjectReference};

use super::drift::{Part, Trace};
use super::field::Semantic;

/// An element that is found in a list by its key.
pub trait Keyed: Semantic {
    /// Whether both have the same key.
    fn same_key(&self, other: &Self) -> bool;

    /// The key, for a path.
    fn key(&self) -> String;
}

/// A list that may be absent, which means empty.
pub trait List {
    /// What it is a list of.
    type Element;

    /// Its elements.
    fn elements(&self) -> &[Self::Element];
}

impl<T> List for Vec<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }
}

impl<T> List for Option<Vec<T>> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self.as_deref().unwrap_or_default()
    }
}

/// Elements without a key have to be there in their order, with anything in between.
impl<T: Semantic> Semantic for Vec<T> {
    fn equal(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other).all(|(a, b)| a.equal(b))
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }

    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn derives(&self, live: &Self, trace: &mut Trace) -> bool {
        let mut rest = live.iter();
        self.iter().enumerate().all(|(index, element)| {
            find_next(element, &mut rest, trace) || trace.within(|| Part::Index(index))
        })
    }

    fn show(&self) -> String {
        if self.is_empty() { "[]" } else { "[…]" }.to_owned()
    }
}

/// Whether `live` has all that each element sets in an element of the same key, wherever it
/// stands. Elements that share a key, as environment variables may, have to be there in their
/// order.
pub fn derives_by_key<L>(desired: &L, live: &L, trace: &mut Trace) -> bool
where
    L: List,
    L::Element: Keyed,
{
    let (desired, live) = (desired.elements(), live.elements());
    desired.iter().enumerate().all(|(index, first)| {
        let is_twin = |other: &&L::Element| other.same_key(first);
        if desired.iter().take(index).any(|other| is_twin(&other)) {
            // judged together with the first of that key
            return true;
        }
        let mut rest = live.iter().filter(is_twin);
        let mut twins = desired.iter().skip(index).filter(is_twin);
        twins.all(|element| {
            find_next(element, &mut rest, trace) || trace.within(|| Part::Key(first.key()))
        })
    })
}

/// Takes elements from `rest` up to one that has all that `element` sets. To take the first is
/// best: it leaves the most to the elements after. When there is none, the difference
/// is the one to the element most like it.
fn find_next<'a, T: Semantic + 'a>(
    element: &T,
    rest: &mut (impl Iterator<Item = &'a T> + Clone),
    trace: &mut Trace,
) -> bool {
    let candidates = rest.clone();
    if rest.any(|other| element.derives(other, &mut Trace::off())) {
        return true;
    }
    if !trace.is_on() {
        return false;
    }
    match candidates.min_by_key(|other| element.differences(other)) {
        Some(nearest) => element.derives(nearest, trace),
        None => trace.lacks(element),
    }
}

/// Every entry counts, also one whose value is empty.
impl<V: Semantic> Semantic for BTreeMap<String, V> {
    fn equal(&self, other: &Self) -> bool {
        let mut pairs = self.iter().zip(other);
        self.len() == other.len() && pairs.all(|((a, x), (b, y))| a == b && x.equal(y))
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }

    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn derives(&self, live: &Self, trace: &mut Trace) -> bool {
        self.iter().all(|(key, desired)| {
            let found = match live.get(key) {
                Some(live) => desired.derives(live, trace),
                None => trace.lacks(desired),
            };
            found || trace.within(|| Part::Key(key.clone()))
        })
    }
}

/// Ports are told apart by their protocol as well, which is TCP unless it is named.
impl Keyed for ContainerPort {
    fn same_key(&self, other: &Self) -> bool {
        self.container_port == other.container_port && protocol(self) == protocol(other)
    }

    fn key(&self) -> String {
        match protocol(self) {
            TCP => self.container_port.to_string(),
            other => format!("{}/{other}", self.container_port),
        }
    }
}

const TCP: &str = "TCP";

fn protocol(port: &ContainerPort) -> &str {
    let named = port.protocol.as_deref();
    named.filter(|name| !name.is_empty()).unwrap_or(TCP)
}

impl Keyed for ObjectReference {
    fn same_key(&self, other: &Self) -> bool {
        self.name.equal(&other.name)
    }

    fn key(&self) -> String {
        self.name.clone().unwrap_or_default()
    }
}

/// Implements [`Keyed`] for structs whose key is one field.
macro_rules! keyed {
    ($($type:ident by $field:ident),+ $(,)?) => {$(
        impl $crate::semantic::list::Keyed for $type {
            fn same_key(&self, other: &Self) -> bool {
                self.$field == other.$field
            }

            fn key(&self) -> String {
                self.$field.clone()
            }
        }
    )+};
}

pub(super) use keyed;
