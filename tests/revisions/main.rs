//! Revisions of the runner spec, from a change to its application, and what becomes of a scale
//! set whose runners the service rejects: the whole controller on the embedded API server in
//! virtual time, and some of it on a real one when `KUBEBUILDER_ASSETS` is set.

mod adoption;
mod changing;
mod half_applied;
mod invariants;
mod live;
mod older_crds;
mod parking;
mod recovery;
mod scenes;
#[path = "../support/stage/mod.rs"]
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
mod stage;
mod unknown_id;
