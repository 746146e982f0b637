//! The actors: pure step functions, and the actix shells that run them.
