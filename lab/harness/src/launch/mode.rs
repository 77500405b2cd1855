//! The two ways to start a program, and the counters that show which carrier its bytes took.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::ops::AddAssign;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use seekwire_program::library;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// The name of runs without the library.
pub const PLAIN: &str = "plain";
/// The name of runs with the library.
pub const ACCELERATED: &str = "accelerated";

/// Variables that the laboratory sets itself, and so never passes on from its environment.
const OWN: [&str; 4] = ["SEEKWIRE", "SEEKWIRE_DIR", "SEEKWIRE_STATS", "SEEKWIRE_SUMMARY"];

/// How a child is started.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Without Seekwire, even if the laboratory itself runs under it.
    Plain,
    /// With the library preloaded.
    Accelerated {
        /// Path of `libseekwire.so`.
        library: PathBuf,
        /// Where it finds its peers.
        registry: Registry,
    },
    /// Not preloaded, because the program uses the API of Seekwire itself.
    Linked {
        /// Where it finds its peers.
        registry: Registry,
    },
}

/// The directory where the children of one experiment find each other (SEEKWIRE_DIR): private to
/// them, so that they disturb nobody else. It is removed with the last handle.
#[derive(Clone, Debug)]
pub struct Registry(Arc<TempDir>);

impl Registry {
    /// Creates an empty registry.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created.
    pub fn new() -> io::Result<Self> {
        // Nobody uses a registry that others can access. The name is short because socket addresses
        // are.
        let directory = tempfile::Builder::new()
            .prefix("seekwire-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        Ok(Self(Arc::new(directory)))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Bytes moved by a process, sent and received, by carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Through shared memory.
    pub ring: u64,
    /// Through the kernel's TCP.
    pub tcp: u64,
    /// Connections that were moved to shared memory.
    pub attached: u64,
    /// Total time for that since the first look for the peer, in microseconds.
    pub set_up_us: u64,
}

impl Traffic {
    /// The bytes and connections after `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ring: self.ring - earlier.ring,
            tcp: self.tcp - earlier.tcp,
            attached: self.attached - earlier.attached,
            set_up_us: self.set_up_us - earlier.set_up_us,
        }
    }

    /// Average microseconds until a connection moved to shared memory; `None` if none did.
    #[must_use]
    pub fn set_up(self) -> Option<f64> {
        (self.attached > 0).then(|| self.set_up_us as f64 / self.attached as f64)
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.ring += other.ring;
        self.tcp += other.tcp;
        self.attached += other.attached;
        self.set_up_us += other.set_up_us;
    }
}

/// The part of a SEEKWIRE_STATS file that the laboratory needs.
#[derive(Deserialize)]
struct Statistics {
    bytes: Bytes,
    #[serde(default)]
    connections: Connections,
    #[serde(default)]
    set_up: SetUp,
}

#[derive(Default, Deserialize)]
struct Connections {
    attached: u64,
}

#[derive(Default, Deserialize)]
struct SetUp {
    mean_us: u64,
}

#[derive(Deserialize)]
struct Bytes {
    tx_tcp: u64,
    tx_ring: u64,
    rx_tcp: u64,
    rx_ring: u64,
}

impl Mode {
    /// Prepares the environment of `command`; the directory is where the child will leave its
    /// counters.
    pub(super) fn apply(&self, command: &mut Command) -> io::Result<Option<TempDir>> {
        let inherited = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
            // Settings such as SEEKWIRE_SPIN_US are meant for programs that can use them.
            if matches!(self, Self::Plain) || OWN.iter().any(|own| name == *own) {
                command.env_remove(name);
            }
        }
        match self {
            Self::Plain => {
                set_preload(command, library::without(&inherited));
                Ok(None)
            }
            Self::Linked { registry } => {
                set_preload(command, library::without(&inherited));
                command.env("SEEKWIRE_DIR", registry.path());
                Ok(None)
            }
            Self::Accelerated { library, registry } => {
                let preload = library::preload(library, &inherited);
                set_preload(
                    command,
                    preload.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?,
                );
                let counters = tempfile::Builder::new().prefix("seekwire-stats-").tempdir()?;
                command.env("SEEKWIRE_DIR", registry.path());
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

/// Adds up the counters that a process and its children left in `directory`; `None` if they left
/// none.
pub(super) fn read_traffic(directory: &Path) -> Option<Traffic> {
    let files = fs::read_dir(directory).ok()?.flatten();
    let texts = files.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default());
    texts.flat_map(|text| traffic_of_each(&text)).reduce(|mut total, traffic| {
        total += traffic;
        total
    })
}

/// The traffic of each process whose counters are in `text`, one after the other; truncated
/// counters do not count.
pub fn traffic_of_each(text: &str) -> Vec<Traffic> {
    let counters = serde_json::Deserializer::from_str(text).into_iter::<Statistics>();
    let moved = |Statistics { bytes, connections, set_up }| Traffic {
        ring: bytes.tx_ring + bytes.rx_ring,
        tcp: bytes.tx_tcp + bytes.rx_tcp,
        attached: connections.attached,
        set_up_us: set_up.mean_us * connections.attached,
    };
    counters.map_while(Result::ok).map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &Command) -> Vec<(String, Option<String>)> {
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect()
    }

    #[test]
    fn registry_is_private() {
        let registry = Registry::new().unwrap();
        assert_eq!(fs::metadata(registry.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn accelerated_child_gets_a_registry_and_counters_of_its_own() {
        let registry = Registry::new().unwrap();
        let mode =
            Mode::Accelerated { library: "/opt/libseekwire.so".into(), registry: registry.clone() };
        let mut command = Command::new("true");
        let counters = mode.apply(&mut command).unwrap().unwrap();
        let environment = environment(&command);
        let get = |name: &str| {
            environment.iter().find(|entry| entry.0 == name).and_then(|entry| entry.1.clone())
        };
        assert!(get("LD_PRELOAD").unwrap().starts_with("/opt/libseekwire.so"));
        assert_eq!(get("SEEKWIRE_DIR").unwrap(), registry.path().to_string_lossy());
        assert_eq!(get("SEEKWIRE_STATS").unwrap(), counters.path().to_string_lossy());
    }

    #[test]
    fn counters_of_all_processes_are_added() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_traffic(directory.path()), None);
        let counters = r#"{"pid":1,"program":"x","connections":{"tracked":3,"attached":2,"fell_back":0},"set_up":{"mean_us":50,"most_us":60},"bytes":{"tx_tcp":1,"tx_ring":20,"rx_tcp":3,"rx_ring":40}}"#;
        fs::write(directory.path().join("x.1.json"), counters).unwrap();
        fs::write(directory.path().join("x.2.json"), counters).unwrap();
        fs::write(directory.path().join("x.3.json"), "{\"pid\":").unwrap();
        let one = Traffic { ring: 60, tcp: 4, attached: 2, set_up_us: 100 };
        let mut all = one;
        all += one;
        assert_eq!(read_traffic(directory.path()), Some(all));
        assert_eq!((all.since(one), all.set_up()), (one, Some(50.0)));
        let both = format!("{counters}\n{counters}{{\"pid\":");
        assert_eq!(traffic_of_each(&both), [one; 2]);
        assert_eq!(traffic_of_each(""), []);
    }
}
