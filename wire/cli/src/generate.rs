//! `seekwire generate ...`: manual pages and completions, for `make install`. No help lists it.
//!
//! A completion script covers all programs. So this program asks each of the others for its
//! definitions, and joins them. The scripts start no program when a user presses Tab.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use clap_complete::Shell;
use seekwire_program::description::Description;
use seekwire_program::{generate, manual, standard, tell};

use crate::{definitions, external_commands};

/// Generate what is installed beside the programs
#[derive(Debug, Parser)]
#[command(name = "seekwire generate")]
enum Generate {
    /// Write the manual pages of this program's commands
    Man {
        /// Directory for the pages; created if it does not exist
        directory: PathBuf,
    },
    /// Print what a shell needs to complete the commands of all programs that are found
    Completion {
        /// The shell
        shell: Shell,
    },
}

/// Runs the subcommand in `words`, which begin with `generate`.
pub(crate) fn generate(words: &[OsString]) -> Result<()> {
    match Generate::parse_from(words) {
        Generate::Man { directory } => {
            manual::write(definitions(), |name| !external_commands::has(name), &directory)
        }
        Generate::Completion { shell } => {
            // clap_complete panics if it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut joined()?, "seekwire", &mut script);
            Ok(standard::output()?.lock().write_all(&script)?)
        }
    }
}

/// The definitions of all programs. A subcommand whose program is missing has no options.
fn joined() -> Result<clap::Command> {
    let mut whole = definitions();
    for program in external_commands::programs() {
        let path = match seekwire_program::find(program) {
            Ok(path) => path,
            Err(missing) => {
                tell(format_args!("seekwire: options of {program} are not completed: {missing}"));
                continue;
            }
        };
        let part = described(&path).with_context(|| format!("cannot ask {}", path.display()))?;
        for command in part.into_command().get_subcommands() {
            let name = command.get_name();
            ensure!(
                external_commands::has(name),
                "{} has an unknown command {name}",
                path.display()
            );
            whole = whole.mut_subcommand(name, |_| command.clone());
        }
    }
    Ok(whole)
}

fn described(program: &Path) -> Result<Description> {
    let asked = Command::new(program).args([generate::NAME, "definitions"]).output()?;
    let complaint = String::from_utf8_lossy(&asked.stderr);
    ensure!(asked.status.success(), "{}: {}", asked.status, complaint.trim_end());
    Ok(serde_json::from_slice(&asked.stdout)?)
}
