//! What ARC's charts put on the controller's command line and into its environment.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, CommandFactory};
use serde_json::Value;

use super::*;
use crate::command::{Command, parse};

fn read(arguments: &[&str]) -> Args {
    let all = ["/manager"].iter().chain(arguments).map(OsString::from);
    match parse(all).unwrap_or_else(|error| panic!("{error}")).command {
        Command::Controller(args) => args,
        other => panic!("{other:?}"),
    }
}

/// The flags by their names and aliases; `--help` and the like have no value.
fn flags() -> Vec<(String, Arg)> {
    let mut flags = Vec::new();
    for arg in Args::command().get_arguments() {
        if arg.get_action().takes_values() {
            let names = arg.get_long().into_iter();
            for name in names.chain(arg.get_all_aliases().unwrap_or_default()) {
                flags.push((name.to_owned(), arg.clone()));
            }
        }
    }
    flags
}

#[test]
fn every_flag_may_be_there_and_empty() {
    let default = format!("{:?}", read(&[]));
    let flags = flags();
    assert!(flags.len() > 15, "{}", flags.len());
    for (name, flag) in flags {
        let field = name.replace('-', "_");
        let mut forms = vec![vec![format!("--{name}=")]];
        if !flag.is_require_equals_set() {
            forms.push(vec![format!("--{name}"), String::new()]);
        }
        for form in forms {
            let arguments: Vec<&str> = form.iter().map(String::as_str).collect();
            let args = format!("{:?}", read(&arguments));
            if EMPTY_IS_OFF.contains(&name.as_str()) {
                assert!(args.contains(&format!("{field}: \"\"")), "{form:?}: {args}");
                let help = flag.get_help().unwrap().to_string();
                assert!(help.contains("0 or empty turns them off"), "{name}: {help}");
            } else {
                assert_eq!(args, default, "{form:?}");
            }
        }
    }
    for name in EMPTY_IS_OFF {
        assert!(off_when_zero("").is_none(), "{name}");
    }
}

#[test]
fn a_list_may_have_empty_places() {
    let args = read(&[
        "--auto-scaler-image-pull-secrets=one,,two,",
        "--auto-scaler-image-pull-secrets=three",
        "--exclude-label-propagation-prefix= ",
    ]);
    let environment = Environment {
        image: Some("i".into()),
        namespace: Some("n".into()),
        ..Environment::default()
    };
    let settings = settings(&args, &environment).unwrap();
    assert_eq!(settings.image_pull_secrets, ["one", "two", "three"]);
    assert_eq!(settings.excluded_label_prefixes, Vec::<String>::new());
}

#[test]
fn every_deployment_of_the_charts_starts() {
    let mut deployments = 0;
    for file in fixtures() {
        let text = fs::read_to_string(&file).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if object["kind"] == "Deployment" {
                assert_starts(&file, &object);
                deployments += 1;
            }
        }
    }
    println!("started {deployments} deployments");
}

/// Parses the arguments and resolves the settings with the environment that the pod has.
fn assert_starts(file: &Path, deployment: &Value) {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let strings = |field: &str| -> Vec<OsString> {
        let list = container[field].as_array().unwrap();
        list.iter()
            .map(|one| one.as_str().unwrap().into())
            .collect()
    };
    let command_line = strings("command").into_iter().chain(strings("args"));
    let cli = parse(command_line).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let Command::Controller(args) = cli.command else {
        panic!("{}: another command", file.display());
    };
    let namespace = deployment["metadata"]["namespace"].as_str().unwrap();
    let variables = container["env"].as_array().unwrap();
    let get = |name: &str| {
        let variable = variables.iter().find(|one| one["name"] == name)?;
        let of_pod = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        Some(match of_pod {
            Some("metadata.namespace") => namespace.to_owned(),
            Some(other) => panic!("{other}"),
            None => variable["value"].as_str().unwrap().to_owned(),
        })
    };
    let environment = Environment::from(get, false).unwrap();
    let settings =
        settings(&args, &environment).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(settings.namespace, namespace);
    assert_eq!(settings.listener_image, container["image"]);
    let on = |flag: &str| {
        let given = strings("args")
            .iter()
            .any(|one| one == &OsString::from(format!("--{flag}=0")));
        !given
    };
    assert_eq!(
        !settings.listener_metrics_addr.is_empty(),
        on("listener-metrics-addr")
    );
    assert_eq!(settings.listener_metrics_endpoint, "/metrics");
    for (flag, address) in [
        ("--metrics-addr", off_when_zero(&args.metrics_addr)),
        ("--health", off_when_zero(&args.health_probe_bind_address)),
    ] {
        if let Some(address) = address {
            parse_address(flag, &address).unwrap();
        }
    }
}

/// Renderings of ARC's controller chart, if this checkout has them.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures"));
    let mut files = Vec::new();
    for folder in [folder.to_owned(), folder.join("rendered")] {
        let Ok(entries) = fs::read_dir(&folder) else {
            println!("skipped: {} is not here", folder.display());
            continue;
        };
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    files
}
