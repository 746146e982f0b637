//! A runner's life, input by input.

mod deletion;
mod ending;
mod life;
mod listed;
mod objects;
mod pods;
mod registering;
mod registration;
