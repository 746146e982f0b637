//! When the listener's pod is made again, and when it is not: through the whole program on an
//! embedded cluster in virtual time, and by hand on a real API server when `KUBEBUILDER_ASSETS` is
//! set.

mod changes;
mod drifted;
mod real;
mod scenarios;
mod set_back;
#[path = "../support/stage/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with other tests, which use other parts"
)]
mod stage;
mod unmoved;
mod watched;
