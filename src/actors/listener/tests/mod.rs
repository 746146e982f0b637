//! Inputs and what follows from them, as seen on a small API server.

pub mod cluster;
mod ends;
mod faults;
mod health;
mod life;
mod parts;
mod pods;
mod world;
