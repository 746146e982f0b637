//! The embedded Actions service: what can be made to go wrong, as a client sees it; and the
//! same alone, on a port, as a person meets it.

mod alone;
mod answers;
mod faults;
#[path = "../support/keys.rs"]
mod keys;
mod oddities;
mod world;
