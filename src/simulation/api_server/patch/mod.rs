//! Patches.

pub mod apply;
pub mod field_set;
pub mod strategic;
mod typed;
