//! Logging, as `--log-level` and `--log-format` set it.

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;

/// Starts logging to standard error. Only our own lines follow the level; libraries are heard
/// from `warn` on. A second call in one process is an error.
///
/// # Errors
///
/// When level or format is none we know, or logging runs already.
pub fn init(level: &str, format: &str) -> anyhow::Result<()> {
    let filter = filter(level)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        "text" => builder.try_init(),
        "json" => builder.json().try_init(),
        other => bail!("--log-format is \"{other}\"; it must be text or json"),
    };
    started.map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    let level = match level.to_ascii_lowercase().as_str() {
        "error" | "warn" | "info" | "debug" | "trace" => level.to_ascii_lowercase(),
        // as ARC counts verbosity
        "0" => "info".to_owned(),
        "1" | "2" | "3" | "4" | "5" => "debug".to_owned(),
        _ => bail!("--log-level is \"{level}\"; it must be error, warn, info, debug or trace"),
    };
    EnvFilter::try_new(format!("warn,impresario={level}")).context("log level")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_is_named_with_those_there_are() {
        let error = filter("loud").unwrap_err().to_string();
        assert!(
            error.contains("\"loud\"") && error.contains("debug"),
            "{error}"
        );
        assert!(filter("DEBUG").is_ok());
    }
}
