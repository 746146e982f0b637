//! Scale sets through the whole program, from their creation to their deletion: on an embedded
//! cluster in virtual time, and by hand on a real API server when `KUBEBUILDER_ASSETS` is set.

mod arc;
mod arc_rights;
mod by_hand;
mod deletion;
mod determinism;
mod hand_back;
mod neighbours;
mod never_killed;
mod permissions;
mod recorded;
mod restored;
mod runners;
mod scaling;
#[path = "../support/stage/mod.rs"]
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
mod stage;
mod take_over;
mod trouble;
mod watching;
mod whole_program;
