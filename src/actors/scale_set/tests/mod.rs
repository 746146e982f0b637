//! Inputs and what follows from them, with real listener machines below, on a small API server
//! and a small Actions service.

mod deletion;
mod faults;
mod former;
mod identity;
mod life;
mod observed;
mod outdated;
mod permitted;
mod protection;
mod registration;
mod revisions;
mod telling;
mod world;
