//! The ways to change a part of an object. Pure functions over JSON.

pub mod json;
pub mod merge;
