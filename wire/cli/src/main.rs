//! The program `seekwire`.

use std::process::ExitCode;

fn main() -> ExitCode {
    seekwire_cli::main()
}
