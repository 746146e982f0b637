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
mod empty_flags;
mod leadership;
pub mod listener;
mod number;
pub mod release;
pub mod telemetry;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

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
    /// Hand scale sets back to ARC's controller, in the form that it manages.
    Release(release::Args),
}

/// Parses the arguments and runs the command. Called as `manager` or `ghalistener` the
/// program acts as `controller` or `listener`, as ARC's charts expect.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match parse(arguments) {
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
        Command::Release(args) => release::run(&args),
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

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut arguments = with_command(arguments);
    if arguments.get(1).is_some_and(|name| name == "controller") {
        let flags = controller::Args::command();
        arguments = empty_flags::without(&flags, controller::EMPTY_IS_OFF, arguments);
    }
    Cli::try_parse_from(arguments)
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

    /// What stands for a number or a time where a flag takes one.
    const NUMBERS: [&str; 5] = ["N", "PORT", "DURATION", "A..B", "burst|N"];
    /// No number, none that makes sense, or too much of one.
    const ODD: [&str; 22] = [
        "",
        " ",
        "x",
        "-1",
        "-1s",
        "+",
        "0.5.5",
        "5/s/s",
        "1s..",
        "..1s",
        "1h..2s",
        "1e-300",
        "1e-20",
        "1e300",
        "1e300s",
        "NaN",
        "inf",
        "-inf",
        "0x10",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999h",
    ];

    /// A range, as a help or a refusal names it: both ends.
    fn range_in(text: &str) -> Option<(String, String)> {
        let words: Vec<&str> = text
            .split([' ', '\n'])
            .map(|word| word.trim_end_matches(['.', ',', ';', ':']))
            .collect();
        let number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let mut triples = words.windows(3);
        let found =
            triples.find(|triple| triple[1] == "to" && number(triple[0]) && number(triple[2]))?;
        Some((found[0].to_owned(), found[2].to_owned()))
    }

    #[test]
    fn every_number_has_a_range_that_its_help_names_and_its_refusal_says() {
        use clap::CommandFactory;

        let mut flags = Vec::new();
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments() {
                let kinds = arg.get_value_names().unwrap_or_default();
                if !kinds.iter().any(|kind| NUMBERS.contains(&kind.as_str())) {
                    continue;
                }
                let flag = format!("--{}", arg.get_long().unwrap());
                let name = format!("{} {flag}", command.get_name());
                let help = arg.get_long_help().or(arg.get_help()).unwrap().to_string();
                let range = range_in(&help);
                assert!(range.is_some(), "the help of {name} names no range: {help}");
                for odd in ODD {
                    let line = ["impresario", command.get_name(), &format!("{flag}={odd}")];
                    let Err(error) = Cli::try_parse_from(line) else {
                        continue;
                    };
                    let refusal = error.to_string();
                    // an App's installation is nothing without the App
                    if refusal.contains("required arguments") {
                        continue;
                    }
                    assert!(refusal.contains(&flag), "{name}={odd}: {refusal}");
                    let (least, most) = range.clone().unwrap_or_default();
                    assert!(refusal.contains(&most), "{name}={odd} to {most}: {refusal}");
                    assert!(
                        refusal.contains(&least),
                        "{name}={odd} from {least}: {refusal}"
                    );
                }
                flags.push(name);
            }
        }
        // a new flag is to be told apart from these
        assert_eq!(
            flags,
            [
                "controller --runner-max-concurrent-reconciles",
                "controller --k8s-client-rate-limiter-qps",
                "controller --k8s-client-rate-limiter-burst",
                "controller --sync-period",
                "controller --force-delete-lost-pods-after",
                "demo --jobs",
                "demo --job-duration",
                "demo --arrival",
                "demo --port",
                "demo --seed",
                "demo --timeout",
                "actions-service --port",
                "actions-service --app-installation-id",
                "actions-service --poll",
                "actions-service --token-lifetime",
            ]
        );
    }

    #[test]
    fn what_once_panicked_is_refused() {
        for flag in [
            "--arrival=1e-300",
            "--arrival=1e-20",
            "--jobs=18446744073709551615",
            "--arrival=5/s/s",
            "--timeout=99999999999h",
        ] {
            assert!(
                Cli::try_parse_from(["impresario", "demo", flag]).is_err(),
                "{flag}"
            );
        }
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
