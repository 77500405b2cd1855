//! `PROGRAM generate ...`: manual pages and definitions, for `make install`. No help lists it.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, Parser};

use crate::description::Description;
use crate::{manual, standard};

/// The word after the program's name.
pub const NAME: &str = "generate";

/// Generate what is installed beside the program
#[derive(Debug, Parser)]
#[command(name = NAME)]
enum Generate {
    /// Write the manual pages of this program's commands
    Man {
        /// Directory for the pages; created if it does not exist
        directory: PathBuf,
    },
    /// Print this program's commands as JSON, for `seekwire generate completion`
    Definitions,
}

/// Does what the arguments of this process ask for, if they are `generate ...`. The process is one of
/// the programs that `seekwire` starts: its commands are the subcommands of `definitions`.
pub fn asked(definitions: fn() -> Command) -> Option<ExitCode> {
    let words = std::env::args_os().skip(1);
    let words = words.collect::<Vec<_>>();
    if words.first()? != NAME {
        return None;
    }
    let generated = generate(Generate::parse_from(words), definitions());
    Some(crate::finish(generated.map(|()| ExitCode::SUCCESS)))
}

fn generate(what: Generate, definitions: Command) -> Result<()> {
    match what {
        Generate::Man { directory } => {
            let root = definitions.get_name().to_owned();
            manual::write(definitions, |name| name != root, &directory)
        }
        Generate::Definitions => {
            let text = serde_json::to_string(&Description::of(&definitions))?;
            Ok(writeln!(standard::output()?.lock(), "{text}")?)
        }
    }
}
