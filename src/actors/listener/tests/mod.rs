//! Inputs and what follows from them, as seen on a small API server.

pub mod cluster;
mod faults;
mod life;
mod pods;
mod world;
