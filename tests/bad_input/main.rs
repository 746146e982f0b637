//! Bad input is answered, not suffered: each kind of it names what is wrong and where, other
//! scale sets go on, and once it is mended the scale set heals without an edit of its own.
//!
//! What only the controller sees is answered with a condition and a Kubernetes Event on the
//! AutoscalingRunnerSet. What a manifest shows is an error of the command line; that half is
//! in `command_line.rs`.

mod applied;
#[path = "../support/logged.rs"]
mod logged;
mod secrecy;
mod sources;
mod specs;
mod tampered;
mod world;
