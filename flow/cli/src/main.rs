//! The program `seekwire-flow`.

use std::process::ExitCode;

fn main() -> ExitCode {
    seekwire_flow_cli::main()
}
