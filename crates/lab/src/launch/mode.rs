//! The two ways to start a program, and the counters that say which carrier its bytes took.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::library;

/// Variables that the laboratory sets itself, and so never passes on from its own environment.
const OWN: [&str; 3] = ["SEEKWIRE", "SEEKWIRE_DIR", "SEEKWIRE_STATS"];

/// How a child is started.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Without Seekwire, even if the laboratory itself runs under it.
    Plain,
    /// With the library preloaded.
    Accelerated(Arc<Accelerator>),
}

/// What the accelerated children of one experiment share: the library and a registry of their own, so that they
/// meet each other and disturb nobody else.
#[derive(Debug)]
pub struct Accelerator {
    library: PathBuf,
    registry: TempDir,
}

impl Accelerator {
    /// Prepares acceleration by `library`.
    ///
    /// # Errors
    ///
    /// If no directory for the registry can be made.
    pub fn new(library: PathBuf) -> io::Result<Self> {
        // Made with mode 0700. The name is short because socket addresses are.
        Ok(Self { library, registry: tempfile::Builder::new().prefix("seekwire-").tempdir()? })
    }

    /// The directory where the children find each other (SEEKWIRE_DIR).
    pub fn registry(&self) -> &Path {
        self.registry.path()
    }
}

/// Bytes moved by a process, sent and received, by carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Through shared memory.
    pub ring: u64,
    /// Through the kernel's TCP.
    pub tcp: u64,
}

/// The part of a SEEKWIRE_STATS file that the laboratory needs.
#[derive(Deserialize)]
struct Statistics {
    bytes: Bytes,
}

#[derive(Deserialize)]
struct Bytes {
    tx_tcp: u64,
    tx_ring: u64,
    rx_tcp: u64,
    rx_ring: u64,
}

impl Mode {
    /// Prepares the environment of `command`; the directory is where the child will leave its counters.
    pub(super) fn apply(&self, command: &mut Command) -> io::Result<Option<TempDir>> {
        let inherited = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        match self {
            Self::Plain => {
                for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
                    command.env_remove(name);
                }
                set_preload(command, without_seekwire(&inherited));
                Ok(None)
            }
            Self::Accelerated(accelerator) => {
                for name in OWN {
                    command.env_remove(name);
                }
                let mut preload = accelerator.library.clone().into_os_string();
                let others = without_seekwire(&inherited);
                if !others.is_empty() {
                    preload.push(":");
                    preload.push(others);
                }
                set_preload(command, preload);
                let counters = tempfile::Builder::new().prefix("seekwire-stats-").tempdir()?;
                command.env("SEEKWIRE_DIR", accelerator.registry());
                command.env("SEEKWIRE_STATS", counters.path());
                Ok(Some(counters))
            }
        }
    }
}

fn is_ours(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name == "SEEKWIRE" || name.starts_with("SEEKWIRE_")
}

fn set_preload(command: &mut Command, preload: OsString) {
    if preload.is_empty() {
        command.env_remove("LD_PRELOAD");
    } else {
        command.env("LD_PRELOAD", preload);
    }
}

/// An LD_PRELOAD list (separated by colons or blanks) without our library.
fn without_seekwire(preload: &OsString) -> OsString {
    let is_other = |entry: &&str| {
        let name = Path::new(entry).file_name().unwrap_or_default();
        !entry.is_empty() && name != library::FILE_NAME
    };
    preload.to_string_lossy().split([':', ' ']).filter(is_other).collect::<Vec<_>>().join(":").into()
}

/// Adds up the counters that a process and its children left in `directory`; `None` if they left none.
pub(super) fn read_traffic(directory: &Path) -> Option<Traffic> {
    let mut total = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if let Ok(Statistics { bytes }) = serde_json::from_str(&text) {
            let total: &mut Traffic = total.get_or_insert_default();
            total.ring += bytes.tx_ring + bytes.rx_ring;
            total.tcp += bytes.tx_tcp + bytes.rx_tcp;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &Command) -> Vec<(String, Option<String>)> {
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    #[test]
    fn other_preloaded_libraries_are_kept() {
        assert_eq!(
            without_seekwire(&"/a/libx.so:/b/libseekwire.so /c/liby.so".into()),
            "/a/libx.so:/c/liby.so"
        );
        assert_eq!(without_seekwire(&OsString::new()), "");
    }

    #[test]
    fn accelerated_child_gets_a_registry_and_counters_of_its_own() {
        let accelerator = Arc::new(Accelerator::new("/opt/libseekwire.so".into()).unwrap());
        let mut command = Command::new("true");
        let counters = Mode::Accelerated(accelerator.clone()).apply(&mut command).unwrap().unwrap();
        let environment = environment(&command);
        let get =
            |name: &str| environment.iter().find(|entry| entry.0 == name).and_then(|entry| entry.1.clone());
        assert!(get("LD_PRELOAD").unwrap().starts_with("/opt/libseekwire.so"));
        assert_eq!(get("SEEKWIRE_DIR").unwrap(), accelerator.registry().to_string_lossy());
        assert_eq!(get("SEEKWIRE_STATS").unwrap(), counters.path().to_string_lossy());
    }

    #[test]
    fn counters_of_all_processes_are_added() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_traffic(directory.path()), None);
        let counters = r#"{"pid":1,"program":"x","bytes":{"tx_tcp":1,"tx_ring":20,"rx_tcp":3,"rx_ring":40}}"#;
        fs::write(directory.path().join("x.1.json"), counters).unwrap();
        fs::write(directory.path().join("x.2.json"), counters).unwrap();
        fs::write(directory.path().join("x.3.json"), "{\"pid\":").unwrap();
        assert_eq!(read_traffic(directory.path()), Some(Traffic { ring: 120, tcp: 8 }));
    }
}
