//! A runner's life, input by input.

mod deletion;
mod life;
mod objects;
mod pods;
mod registering;
