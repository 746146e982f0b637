//! Inputs and what follows from them, as seen on a small API server.

pub mod cluster;
mod ends;
mod faults;
mod life;
mod pods;
mod world;
