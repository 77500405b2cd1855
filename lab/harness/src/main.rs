//! The program `seekwire-demo`.

use std::process::ExitCode;

fn main() -> ExitCode {
    seekwire_harness::command::main()
}
