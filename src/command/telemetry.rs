//! Logging, as `--log-level` and `--log-format` set it.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Starts logging to standard error, in colours only when that is a terminal. Only our own
/// lines follow the level; libraries are heard from `warn` on. A second call in one process
/// is an error.
///
/// # Errors
///
/// When level or format is none we know, or logging runs already.
pub fn init(level: &str, format: &str) -> anyhow::Result<()> {
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    start(level, format, BoxMakeWriter::new(io::stderr), colours)
}

/// Starts logging to a file, in the format `text`; what is in it is lost.
///
/// # Errors
///
/// As for [`init`], or when the file cannot be written.
pub fn init_to_file(level: &str, path: &Path) -> anyhow::Result<()> {
    let file = File::create(path)
        .with_context(|| format!("--log-file {} cannot be written", path.display()))?;
    start(level, "text", BoxMakeWriter::new(Mutex::new(file)), false)
}

fn start(level: &str, format: &str, writer: BoxMakeWriter, colours: bool) -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(level)?)
        .with_ansi(colours)
        .with_writer(writer);
    let started = match parse_format(format).map_err(anyhow::Error::msg)?.as_str() {
        "json" => builder.json().try_init(),
        _ => builder.try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging could not be started: {error}"))
}

/// A log level as a flag gives it, in our words. ARC's numbers for verbosity are taken too.
///
/// # Errors
///
/// When it is none; the message names those there are.
pub fn parse_level(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase().as_str() {
        level @ ("error" | "warn" | "info" | "debug" | "trace") => Ok(level.to_owned()),
        "0" => Ok("info".to_owned()),
        "1" | "2" | "3" | "4" | "5" => Ok("debug".to_owned()),
        _ => Err(format!(
            "\"{text}\" is no log level; it must be error, warn, info, debug or trace"
        )),
    }
}

/// A log format as a flag gives it.
///
/// # Errors
///
/// When it is none; the message names those there are.
pub fn parse_format(text: &str) -> Result<String, String> {
    match text {
        "text" | "json" => Ok(text.to_owned()),
        _ => Err(format!(
            "\"{text}\" is no log format; it must be text or json"
        )),
    }
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    match parse_level(level) {
        Ok(level) => {
            // kube prints an answer that it cannot decode as a whole, and it may be a Secret
            EnvFilter::try_new(format!("warn,kube_client::client=error,impresario={level}"))
                .context("the log level")
        }
        Err(problem) => bail!(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_is_named_with_those_there_are() {
        let error = parse_level("loud").unwrap_err();
        assert!(
            error.contains("\"loud\"") && error.contains("debug"),
            "{error}"
        );
        assert_eq!(parse_level("DEBUG"), Ok("debug".to_owned()));
        assert_eq!(parse_level("4"), Ok("debug".to_owned()));
        assert!(filter("trace").is_ok());
    }

    #[test]
    fn an_unknown_format_is_named_with_those_there_are() {
        let error = parse_format("xml").unwrap_err();
        assert!(
            error.contains("\"xml\"") && error.contains("json"),
            "{error}"
        );
    }
}
