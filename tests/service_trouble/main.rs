//! Scale sets and runners while the Actions service is in trouble: S17 and S30 of
//! `../shared/scenarios/open.md`, on an embedded cluster in virtual time.

mod hanging;
mod name_conflict;
mod repeated;
#[path = "../support/stage/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with other tests, which use other parts"
)]
mod stage;
mod watched;
