//! The real listener in a whole cluster: the black-box scenarios about it, and what becomes of a
//! scale set that somebody deletes in GitHub.

mod lost_scale_set;
mod scenarios;
#[path = "../support/stage/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with other tests, which use other parts"
)]
mod stage;
mod world;
