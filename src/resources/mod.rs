//! Builders of the objects we want to exist: pure functions, one file per object.

mod settings;

pub use settings::ControllerSettings;
