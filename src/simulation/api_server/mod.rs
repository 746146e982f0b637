//! The embedded API server.

pub mod patch;
pub mod schema;
pub mod table;
