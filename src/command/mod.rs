//! What each subcommand does, and the command line in front of it.
//!
//! The command line only parses; each command resolves its flags into one configuration,
//! with errors that name the flag, and then runs. The environment is read here and nowhere
//! else.

pub mod actions_service;
pub mod controller;
pub mod crds;
pub mod demo;
pub mod duration;
mod leadership;
pub mod listener;
pub mod telemetry;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "impresario", version, about, long_about = None, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
// made once, and taken apart at once
#[allow(clippy::large_enum_variant)]
enum Command {
    /// Run against a cluster: from inside a pod, or with the current kubeconfig context.
    Controller(controller::Args),
    /// Run one scale set's listener, inside its pod.
    Listener(listener::Args),
    /// Play a burst of jobs on a cluster inside this process.
    Demo(demo::Args),
    /// Serve an Actions service on a local port, to test clients of it with.
    ActionsService(actions_service::Args),
    /// Print the CustomResourceDefinitions.
    Crds(crds::CrdsArgs),
}

/// Parses the arguments and runs the command. Called as `manager` or `ghalistener` the
/// program acts as `controller` or `listener`, as ARC's charts expect.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(with_command(arguments)) {
        Ok(cli) => cli,
        Err(error) => {
            // usage errors go to standard error with code 2, help and version to standard output
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    let result = match cli.command {
        Command::Controller(args) => controller::run(args),
        Command::Listener(args) => listener::run(args),
        Command::Demo(args) => demo::run(args),
        Command::ActionsService(args) => actions_service::run(args),
        Command::Crds(args) => {
            crds::run(&args, &mut std::io::stdout().lock()).map_err(anyhow::Error::from)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

/// A listener tells the controller by its code why it has ended.
fn exit_code(error: &anyhow::Error) -> u8 {
    let listener = error.downcast_ref::<crate::listener::ListenerError>();
    listener.map_or(1, crate::listener::ListenerError::exit_code)
}

/// Puts the subcommand that the program's name stands for in front of its arguments.
fn with_command(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let name = arguments
        .first()
        .and_then(|path| std::path::Path::new(path).file_name())
        .and_then(|name| name.to_str());
    let command = match name {
        Some("manager") => Some("controller"),
        Some("ghalistener") => Some("listener"),
        _ => None,
    };
    if let Some(command) = command {
        arguments.insert(1, command.into());
    }
    arguments
}

/// Installs the one TLS provider of the program. A second call changes nothing.
pub fn install_tls_provider() {
    // an error means that it is installed already
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_without_a_scale_set_ends_with_a_code_of_its_own() {
        let gone = crate::listener::ListenerError::ScaleSetGone {
            id: 11,
            problem: "404".to_owned(),
        };
        assert_eq!(exit_code(&anyhow::Error::from(gone)), 44);
        assert_eq!(exit_code(&anyhow::anyhow!("another problem")), 1);
    }

    #[test]
    fn the_name_of_the_program_stands_for_its_command() {
        for (name, command) in [
            ("/manager", "controller"),
            ("/ghalistener", "listener"),
            ("./manager", "controller"),
        ] {
            let arguments = with_command([name.into(), "--x".into()]);
            assert_eq!(arguments, [name, command, "--x"].map(OsString::from));
        }
        let arguments = with_command(["/usr/bin/impresario".into(), "crds".into()]);
        assert_eq!(
            arguments,
            ["/usr/bin/impresario", "crds"].map(OsString::from)
        );
    }
}
