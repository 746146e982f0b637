//! The command line, nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    impresario::command::main(std::env::args_os())
}
