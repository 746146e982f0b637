//! The listener program: message session, scaler and its metrics.
