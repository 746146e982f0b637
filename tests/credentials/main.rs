//! Credentials and the limits of the service, through the whole program: what a person
//! rotates reaches controller and listener by itself, and nobody burns a quota.

#[path = "../actions_client/key_files.rs"]
#[allow(dead_code, reason = "the keys serve other files too")]
mod key_files;
mod limits;
mod rotation;
mod shared;
#[path = "../support/stage/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with other tests, which use other parts"
)]
mod stage;
