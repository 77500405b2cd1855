//! The program `seekwire-slides`.

use std::process::ExitCode;

fn main() -> ExitCode {
    seekwire_slides::main()
}
