//! What the tests of this folder share.

pub mod envtest;
