//! What the set decides, shown on the set and its runners together.

mod books;
mod faults;
mod messages;
mod revisions;
mod scaling;
mod world;
