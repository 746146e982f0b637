//! Objects for the tests of the builders; every value differs from every other.
