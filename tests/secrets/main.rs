//! INV-12: what is secret stands nowhere but in Secrets. A whole run of the embedded cluster,
//! with as much trouble as there can be, and then a search through everything that a person,
//! or a log collector, gets to see.

mod cluster;
mod grep;
#[path = "../support/keys.rs"]
mod keys;
#[path = "../support/logged.rs"]
mod logged;
mod run;
