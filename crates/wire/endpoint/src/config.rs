//! What the environment says; read once.
//!
//! | variable                  | meaning                                                             |
//! |---------------------------|---------------------------------------------------------------------|
//! | `SEEKWIRE`                | `off`: nothing is accelerated                                        |
//! | `SEEKWIRE_DIR`            | directory of registry and rendezvous, mode 0700                      |
//! | `SEEKWIRE_SPIN_US`        | wait awake for this long before sleeping; 0: never; default: adaptive |
//! | `SEEKWIRE_SEGMENT_SIZE`   | bytes of a segment                                                   |
//! | `SEEKWIRE_SEGMENTS`       | segments of a pool                                                   |
//! | `SEEKWIRE_THRESHOLD`      | calls on a connection before it is upgraded                          |
//! | `SEEKWIRE_SEEK_MEMORY`    | bytes of library memory for what seeking moves there, per connection |
//! | `SEEKWIRE_SEEK_SWITCH`    | average size in bytes below which messages are moved there in bulk   |
//! | `SEEKWIRE_SEEK_WAY`       | how bytes are taken out of the middle of TCP: `module`, `peek`, `drain`; the best way from that on |
//! | `SEEKWIRE_FALLBACK_AFTER` | go back to TCP after so many bytes on the ring: for tests            |

use std::env;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

use seekwire_transport::layout::Geometry;
use seekwire_transport::seek::Way;
use seekwire_transport::spin::SpinPolicy;
use seekwire_transport::sys::host;

/// The settings of this process.
#[derive(Clone, Debug)]
pub struct Config {
    /// False: every connection stays plain TCP.
    pub enabled: bool,
    /// Where registry and rendezvous are.
    pub dir: PathBuf,
    /// How long to wait awake.
    pub spin: SpinPolicy,
    /// Ring and pool of each connection, per direction.
    pub geometry: Geometry,
    /// Calls on a connection before it is upgraded.
    pub threshold: u32,
    /// Bytes of memory that a connection may use for what has to make room for bytes out of order.
    pub seek_memory: usize,
    /// Average size below which seeks move bytes in bulk; `None`: as measured or built in.
    pub seek_switch: Option<u32>,
    /// How bytes are taken out of the middle of TCP: the first way that is tried.
    pub seek_way: Way,
    /// Bytes on the ring after which a connection goes back to TCP.
    pub fall_back_after: Option<u64>,
    /// What was not understood in the environment, a sentence each.
    pub complaints: Vec<String>,
}

/// Calls on a connection before it is upgraded, unless the environment says otherwise.
pub const THRESHOLD: u32 = 8;

/// Bytes of memory for what seeking moves there, unless the environment says otherwise.
pub const SEEK_MEMORY: usize = 64 << 20;

impl Config {
    /// The settings of this process, read from the environment at the first call.
    pub fn get() -> &'static Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        CONFIG.get_or_init(Self::from_env)
    }

    /// Reads the environment. What cannot be understood is left at its default, with a complaint.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_lookup(|name| {
            env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// Where a process finds others that has the variables which `lookup` gives.
    #[must_use]
    pub fn dir_of(lookup: impl Fn(&str) -> Option<String>) -> PathBuf {
        directory(&lookup)
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut complaints = Vec::new();
        let spin = number(&lookup, "SEEKWIRE_SPIN_US", &mut complaints);
        let size = number(&lookup, "SEEKWIRE_SEGMENT_SIZE", &mut complaints);
        let count = number(&lookup, "SEEKWIRE_SEGMENTS", &mut complaints);
        let default = Geometry::default();
        let segments = count.unwrap_or(default.segments() as u32);
        let geometry = Geometry::new(
            // One for each segment, so that all of them can be in use, and as many for what lies
            // in the ring itself.
            (default.cells() as u32).max(segments.saturating_mul(2)),
            size.unwrap_or(default.segment_size() as u32),
            segments,
        )
        .unwrap_or_else(|error| {
            complaints.push(format!("SEEKWIRE_SEGMENT_SIZE, SEEKWIRE_SEGMENTS: {error}"));
            default
        });
        let threshold = number(&lookup, "SEEKWIRE_THRESHOLD", &mut complaints).unwrap_or(THRESHOLD);
        let seek_memory =
            number(&lookup, "SEEKWIRE_SEEK_MEMORY", &mut complaints).unwrap_or(SEEK_MEMORY);
        let seek_switch = number(&lookup, "SEEKWIRE_SEEK_SWITCH", &mut complaints);
        let seek_way =
            match lookup("SEEKWIRE_SEEK_WAY").map(|name| (name.trim().parse().ok(), name)) {
                None => Way::Module,
                Some((Some(way), _)) => way,
                Some((None, name)) => {
                    let names = Way::ALL.map(Way::name).join(", ");
                    complaints.push(format!("SEEKWIRE_SEEK_WAY={name}: none of {names}, ignored"));
                    Way::Module
                }
            };
        let fall_back_after = number(&lookup, "SEEKWIRE_FALLBACK_AFTER", &mut complaints);
        Self {
            enabled: lookup("SEEKWIRE").is_none_or(|value| value != "off"),
            dir: directory(&lookup),
            spin: spin.map_or(SpinPolicy::default(), |us: u64| {
                SpinPolicy::Fixed(us.saturating_mul(1000))
            }),
            geometry,
            threshold: threshold.max(1),
            seek_memory,
            seek_switch,
            seek_way,
            fall_back_after,
            complaints,
        }
    }
}

fn directory(lookup: &impl Fn(&str) -> Option<String>) -> PathBuf {
    let absolute = |path: String| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    if let Some(dir) = lookup("SEEKWIRE_DIR").and_then(absolute) {
        return dir;
    }
    match lookup("XDG_RUNTIME_DIR").and_then(absolute) {
        Some(runtime) => runtime.join("seekwire"),
        None => PathBuf::from(format!("/dev/shm/seekwire-{}", host::user())),
    }
}

fn number<N: FromStr>(
    lookup: &impl Fn(&str) -> Option<String>,
    name: &str,
    complaints: &mut Vec<String>,
) -> Option<N> {
    let text = lookup(name)?;
    let number = text.trim().parse().ok();
    if number.is_none() {
        complaints.push(format!("{name}={text}: not a number in range, ignored"));
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &str)]) -> Config {
        Config::from_lookup(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let config = config(&[]);
        assert!(config.enabled && config.complaints.is_empty());
        assert_eq!(config.geometry, Geometry::default());
        assert_eq!(config.spin, SpinPolicy::default());
        assert_eq!(config.threshold, THRESHOLD);
        assert!(config.dir.is_absolute());
    }

    #[test]
    fn all_segments_can_be_in_use() {
        for segments in ["8", "256", "1024"] {
            let geometry = config(&[("SEEKWIRE_SEGMENTS", segments)]).geometry;
            assert_eq!(geometry.segments().to_string(), segments);
            assert!(geometry.cells() >= 2 * geometry.segments(), "{geometry:?}");
        }
    }

    #[test]
    fn what_is_set_counts_and_nonsense_is_named() {
        let config = config(&[
            ("SEEKWIRE", "off"),
            ("SEEKWIRE_DIR", "/run/x"),
            ("SEEKWIRE_SPIN_US", "7"),
            ("SEEKWIRE_SEGMENT_SIZE", "5"),
            ("SEEKWIRE_THRESHOLD", "many"),
            ("SEEKWIRE_SEEK_WAY", "drain"),
        ]);
        assert!(!config.enabled);
        assert_eq!(config.dir, PathBuf::from("/run/x"));
        assert_eq!(config.spin, SpinPolicy::Fixed(7000));
        assert_eq!(config.seek_way, Way::Drain);
        assert_eq!(config.complaints.len(), 2, "{:?}", config.complaints);
        let other = self::config(&[("SEEKWIRE_SEEK_WAY", "magic")]);
        assert_eq!((other.seek_way, other.complaints.len()), (Way::Module, 1));
    }

    #[test]
    fn the_runtime_directory_comes_before_shared_memory() {
        assert_eq!(
            config(&[("XDG_RUNTIME_DIR", "/run/user/7")]).dir,
            PathBuf::from("/run/user/7/seekwire")
        );
        assert!(config(&[("XDG_RUNTIME_DIR", "relative")]).dir.starts_with("/dev/shm"));
    }
}
