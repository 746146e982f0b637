//! The vocabulary the actors speak: inputs, effects and reports.
