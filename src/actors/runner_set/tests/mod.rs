//! What the set decides, shown on the set and its runners together.

mod faults;
mod revisions;
mod scaling;
mod world;
