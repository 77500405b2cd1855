//! The program `seekwire-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    seekwire_lab::command::main()
}
