//! Credentials in an Azure Key Vault: the two requests through the real client against an
//! embedded vault that believes nothing, and the whole program on an embedded cluster, both in
//! virtual time; and once over a port.
//!
//! The certificates beside this file were made for it. They open nothing.

mod client;
mod mistakes;
mod scene;
#[path = "../support/stage/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with other tests, which use other parts"
)]
mod stage;
mod tenants;
mod whole_program;
mod world;
