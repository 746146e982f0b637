//! The ways to change a part of an object. Pure functions over JSON.

pub mod apply;
pub mod field_set;
pub mod json;
pub mod merge;
pub mod strategic;
mod typed;

#[cfg(test)]
mod properties;
