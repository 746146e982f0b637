//! Scale sets and runners while the Actions service is in trouble: SCN-17 and SCN-30,
//! on an embedded cluster in virtual time.

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
