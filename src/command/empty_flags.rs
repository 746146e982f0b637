//! Flags that are there and empty (`--flag=`), as charts render them for a value that is not
//! set: each has its default.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Takes the flags out of `arguments` that have an empty value, but for those of `kept`, which
/// know what it means. What is no flag of `command` is left for its parser.
pub fn without(command: &Command, kept: &[&str], arguments: Vec<OsString>) -> Vec<OsString> {
    let has_default = |flag: &str| {
        let arg = command.get_arguments().find(|arg| is_called(arg, flag));
        arg.filter(|arg| !kept.iter().any(|kept| is_called(arg, kept)))
    };
    let mut rest = arguments.into_iter().peekable();
    let mut all = Vec::new();
    while let Some(argument) = rest.next() {
        let flag = argument.to_str().and_then(|text| text.strip_prefix("--"));
        match flag {
            Some(flag) if flag.strip_suffix('=').and_then(has_default).is_some() => {}
            // its value is the next argument
            Some(flag)
                if has_default(flag).is_some_and(|arg| !arg.is_require_equals_set())
                    && rest.peek().is_some_and(|next| next.is_empty()) =>
            {
                rest.next();
            }
            _ => all.push(argument),
        }
    }
    all
}

fn is_called(arg: &Arg, flag: &str) -> bool {
    arg.get_action().takes_values()
        && (arg.get_long() == Some(flag)
            || arg.get_all_aliases().is_some_and(|all| all.contains(&flag)))
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    fn command() -> Command {
        Command::new("c")
            .arg(Arg::new("a").long("a").alias("aa"))
            .arg(Arg::new("off").long("off"))
            .arg(Arg::new("set").long("set").action(ArgAction::SetTrue))
            .arg(Arg::new("is").long("is").require_equals(true))
    }

    #[test]
    fn an_empty_flag_is_as_none() {
        for (given, left) in [
            (&["--a="][..], &[][..]),
            (&["--aa="], &[]),
            (&["--a", ""], &[]),
            (&["--is=", "x"], &["x"]),
            (&["--is", ""], &["--is", ""]),
            (&["--a=1", "--a", "2"], &["--a=1", "--a", "2"]),
            (&["--off=", "--off", ""], &["--off=", "--off", ""]),
            // not ours to judge
            (&["--set=", "--none="], &["--set=", "--none="]),
            (&["a=", "", "--"], &["a=", "", "--"]),
        ] {
            let given: Vec<OsString> = given.iter().map(OsString::from).collect();
            let kept = without(&command(), &["off"], given.clone());
            assert_eq!(kept, left, "{given:?}");
        }
    }
}
