//! The client of the Actions service against the embedded one, in process and under paused
//! time: every call, every refusal, and how it holds on when the service does not. What needs
//! a network has a real one, on loopback.

mod bounds;
mod embedded;
mod jobs;
mod key_files;
mod keys;
mod loopback;
mod network;
mod scale_sets;
mod sessions;
mod tokens;
mod trouble;
mod world;
