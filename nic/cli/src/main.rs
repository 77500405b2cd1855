//! The program `seekwire-nic`.

use std::process::ExitCode;

fn main() -> ExitCode {
    seekwire_nic_cli::main()
}
