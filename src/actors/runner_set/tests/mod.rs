//! What the set decides, shown on the set and its runners together.

mod decisions;
mod faults;
mod finished;
mod messages;
mod orders;
mod quota;
mod revisions;
mod runner_index;
mod scaling;
mod surplus;
mod world;
