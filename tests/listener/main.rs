//! The listener program, through its real clients, against the embedded Actions service and
//! the embedded API server, under virtual time.

mod ending;
mod finished;
mod messages;
mod records;
mod scaling;
mod session;
mod stage;
mod storm;
mod trouble;
mod wire;
