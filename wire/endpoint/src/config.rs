//! The settings of this process, read once from the environment. `seekwire --help` explains them.
//!
//! | variable                  | meaning                                                             |
//! |---------------------------|---------------------------------------------------------------------|
//! | `SEEKWIRE`                | `off`: nothing is accelerated; `on` is the default                   |
//! | `SEEKWIRE_DIR`            | directory of registry and rendezvous, mode 0700; absolute            |
//! | `SEEKWIRE_LOG`            | `stderr` or a file for the log, a level, or both with a colon        |
//! | `SEEKWIRE_STATS`          | file or directory for counters                                       |
//! | `SEEKWIRE_SUMMARY`        | directory for the counters that `seekwire run` sums up               |
//! | `SEEKWIRE_SPIN_US`        | time to spin before sleeping; 0: never; default: adaptive            |
//! | `SEEKWIRE_SEGMENT_SIZE`   | bytes of a segment                                                   |
//! | `SEEKWIRE_SEGMENTS`       | segments of a pool                                                   |
//! | `SEEKWIRE_THRESHOLD`      | calls on a connection before it is upgraded                          |
//! | `SEEKWIRE_SEEK_MEMORY`    | bytes of library memory for what seeking moves there, per connection |
//! | `SEEKWIRE_SEEK_SWITCH`    | average size in bytes below which messages are moved there in bulk   |
//! | `SEEKWIRE_SEEK_WAY`       | how bytes are taken out of the middle of TCP: `module`, `peek`, `drain`; the best way from that on |
//! | `SEEKWIRE_SECCOMP`        | number of system call filters at the start that are known harmless   |
//! | `SEEKWIRE_FALLBACK_AFTER` | bytes on the ring after which to go back to TCP, for tests           |
//!
//! Bytes and times may have a unit: 64K, 50us. An empty variable counts as not set. An invalid value causes a complaint that lists the valid
//! ones. `seekwire run` refuses it. The library must not fail the program it is loaded into, so it
//! logs the complaint and uses the default; only an invalid `SEEKWIRE` means off.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use seekwire_transport::layout::Geometry;
use seekwire_transport::seek::SeekMethod;
use seekwire_transport::spin::SpinPolicy;
use seekwire_transport::sys::host;
use seekwire_values::{Log, Size, SizeUnit, Time, TimeUnit};
use tracing::level_filters::LevelFilter;

/// The settings of this process.
#[derive(Clone, Debug)]
pub struct Config {
    /// False: every connection stays plain TCP.
    pub enabled: bool,
    /// Where registry and rendezvous are.
    pub dir: PathBuf,
    /// Where the log goes.
    pub log: Option<Log>,
    /// Where counters go.
    pub stats: Option<PathBuf>,
    /// Where they go as well, for the summary of `seekwire run`.
    pub summary: Option<PathBuf>,
    /// How long to spin before sleeping.
    pub spin: SpinPolicy,
    /// Ring and pool of each connection, per direction.
    pub geometry: Geometry,
    /// Calls on a connection before it is upgraded.
    pub threshold: u32,
    /// Bytes that also count as enough calls.
    pub threshold_bytes: u64,
    /// Maximum bytes of library memory per connection, for bytes that make room for others received
    /// out of order.
    pub seek_memory: usize,
    /// Average size below which seeks move bytes in bulk; `None`: the measured or the built-in
    /// size.
    pub seek_switch: Option<u32>,
    /// The first way that is tried to take bytes out of the middle of TCP.
    pub seek_method: SeekMethod,
    /// Number of system call filters at the start of the process that are known harmless and not tried.
    pub seccomp: u32,
    /// Bytes on the ring after which a connection goes back to TCP.
    pub fall_back_after: Option<u64>,
    /// Invalid settings in the environment, each with the valid values.
    pub complaints: Vec<String>,
}

/// Calls on a connection before it is upgraded, unless the environment says otherwise.
pub const THRESHOLD: u32 = 8;

/// The largest value that the environment may set.
pub const MAX_THRESHOLD: u32 = 1_000_000_000;

/// Bytes after which a connection no longer counts as short, however few its calls, unless the
/// environment sets a number of calls.
pub const THRESHOLD_BYTES: u64 = 64 << 10;

/// The longest time to spin. Only a sleeping thread notices the death of the peer and the end of a
/// timeout.
pub const MAX_SPIN: Duration = Duration::from_secs(1);

/// Bytes of library memory per connection, unless the environment sets another number.
pub const SEEK_MEMORY: usize = 64 << 20;

/// The largest value that the environment may set.
const MAX_SEEK_MEMORY: u64 = 1 << 40;

impl Config {
    /// The settings of this process, read from the environment at the first call.
    pub fn get() -> &'static Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        CONFIG.get_or_init(Self::from_env)
    }

    /// The directory for the summary, while it exists: a process may outlive the command that
    /// has made it, and then another user can make one with its name.
    #[must_use]
    pub fn summary_directory(&self) -> Option<&Path> {
        self.summary.as_deref().filter(|directory| host::is_private(directory).unwrap_or(false))
    }

    /// Reads the environment.
    #[must_use]
    pub fn from_env() -> Self {
        Self::of(|name| env::var_os(name))
    }

    /// The settings of a process of this user, whose variables `lookup` returns.
    #[must_use]
    pub fn of(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        Self::of_user(host::user(), lookup)
    }

    /// The settings of a process that was started by this user.
    #[must_use]
    pub fn of_user(user: u32, lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut read = Reader { lookup, complaints: Vec::new() };
        let spin = read.time("SEEKWIRE_SPIN_US", MAX_SPIN);
        let threshold = read.number("SEEKWIRE_THRESHOLD", MAX_THRESHOLD);
        Self {
            enabled: read.choice(
                "SEEKWIRE",
                &["on", "off"],
                |name| Some(name == "on"),
                true,
                false,
            ),
            dir: read.directory(user),
            log: read.log(),
            stats: read.value("SEEKWIRE_STATS").map(PathBuf::from),
            summary: read.value("SEEKWIRE_SUMMARY").map(PathBuf::from),
            spin: spin.map_or(SpinPolicy::default(), |spin| {
                SpinPolicy::Fixed(spin.get().as_nanos() as u64)
            }),
            geometry: read.geometry(),
            threshold: threshold.unwrap_or(THRESHOLD).max(1),
            threshold_bytes: threshold.map_or(THRESHOLD_BYTES, |_| u64::MAX),
            seek_memory: read
                .size("SEEKWIRE_SEEK_MEMORY", MAX_SEEK_MEMORY)
                .map_or(SEEK_MEMORY, Size::in_memory),
            seek_switch: read
                .size("SEEKWIRE_SEEK_SWITCH", u32::MAX.into())
                .map(|size| size.get() as u32),
            seek_method: read.choice(
                "SEEKWIRE_SEEK_WAY",
                &SeekMethod::ALL.map(SeekMethod::name),
                |name| name.parse().ok(),
                SeekMethod::Module,
                SeekMethod::Module,
            ),
            seccomp: read.number("SEEKWIRE_SECCOMP", u32::MAX - 1).unwrap_or(0),
            fall_back_after: read.size("SEEKWIRE_FALLBACK_AFTER", u64::MAX).map(Size::get),
            complaints: read.complaints,
        }
    }
}

/// Parses variables, and collects complaints.
struct Reader<L> {
    lookup: L,
    complaints: Vec<String>,
}

impl<L: Fn(&str) -> Option<OsString>> Reader<L> {
    fn value(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    fn complain(&mut self, name: &str, value: &OsStr, why: &str) {
        self.complaints.push(format!("{name}={}: {why}", value.to_string_lossy()));
    }

    fn number<N>(&mut self, name: &str, most: N) -> Option<N>
    where
        N: FromStr + PartialOrd + std::fmt::Display,
    {
        self.parsed(name, |text| {
            let number = text.trim().parse().ok().filter(|number| *number <= most);
            number.ok_or_else(|| format!("not a whole number from 0 to {most}"))
        })
    }

    fn size(&mut self, name: &str, most: u64) -> Option<Size> {
        self.parsed(name, |text| Size::parse_within(text, SizeUnit::Byte, &(0..=most)))
    }

    fn time(&mut self, name: &str, most: Duration) -> Option<Time> {
        let limits = Duration::ZERO..=most;
        self.parsed(name, |text| Time::parse_within(text, TimeUnit::Microsecond, &limits))
    }

    fn parsed<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let parsed = parse(value.to_str().unwrap_or_default());
        parsed.map_err(|why| self.complain(name, &value, &why)).ok()
    }

    /// One of several names: `unset` if the variable is not set, `otherwise` if it has another
    /// value.
    fn choice<T>(
        &mut self,
        name: &str,
        names: &[&str],
        find: impl Fn(&str) -> Option<T>,
        unset: T,
        otherwise: T,
    ) -> T {
        let Some(value) = self.value(name) else { return unset };
        let chosen = value.to_str().map(str::trim).filter(|text| names.contains(text));
        chosen.and_then(find).unwrap_or_else(|| {
            self.complain(name, &value, &format!("none of {}", names.join(", ")));
            otherwise
        })
    }

    fn geometry(&mut self) -> Geometry {
        const NAMES: [&str; 2] = ["SEEKWIRE_SEGMENT_SIZE", "SEEKWIRE_SEGMENTS"];
        let default = Geometry::default();
        let size = self.size(NAMES[0], u32::MAX.into());
        let size = size.map_or(default.segment_size() as u32, |size| size.get() as u32);
        let count = self.number(NAMES[1], u32::MAX).unwrap_or(default.segments() as u32);
        // One cell for each segment, so that all of them can be in use, and as many for inline
        // records.
        let cells = (default.cells() as u32).max(count.saturating_mul(2));
        Geometry::new(cells, size, count).unwrap_or_else(|_| {
            let most = Geometry::MAX_BYTES >> 20;
            self.complaints.push(format!(
                "{}={size}, {}={count}: the size must be a multiple of 4096 from 4096 to 1048576, the \
                 number a power of two from 8 to 1024, and all of it less than {most} MiB",
                NAMES[0], NAMES[1]
            ));
            default
        })
    }

    fn directory(&mut self, user: u32) -> PathBuf {
        if let Some(value) = self.value("SEEKWIRE_DIR") {
            let path = PathBuf::from(&value);
            if path.is_absolute() {
                return path;
            }
            self.complain("SEEKWIRE_DIR", &value, "not an absolute path");
        }
        match self.value("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
            Some(runtime) => runtime.join("seekwire"),
            None => PathBuf::from(format!("/dev/shm/seekwire-{user}")),
        }
    }

    fn log(&mut self) -> Option<Log> {
        let value = self.value("SEEKWIRE_LOG")?;
        Some(Log::parse(&value).unwrap_or_else(|error| {
            self.complain("SEEKWIRE_LOG", &value, &error.to_string());
            Log { target: error.target, level: LevelFilter::INFO }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use seekwire_values::LogTarget;

    use super::*;

    fn config(variables: &[(&str, &str)]) -> Config {
        Config::of(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let config = config(&[]);
        assert!(config.enabled && config.complaints.is_empty());
        assert_eq!(config.geometry, Geometry::default());
        assert_eq!(config.spin, SpinPolicy::default());
        assert_eq!((config.threshold, config.threshold_bytes), (THRESHOLD, THRESHOLD_BYTES));
        assert!(config.dir.is_absolute());
        assert_eq!((config.log, config.stats, config.summary), (None, None, None));
    }

    #[test]
    fn empty_values_count_as_not_set() {
        let names = [
            "SEEKWIRE",
            "SEEKWIRE_DIR",
            "SEEKWIRE_LOG",
            "SEEKWIRE_STATS",
            "SEEKWIRE_SUMMARY",
            "SEEKWIRE_SPIN_US",
            "SEEKWIRE_SEGMENT_SIZE",
            "SEEKWIRE_SEGMENTS",
            "SEEKWIRE_THRESHOLD",
            "SEEKWIRE_SEEK_MEMORY",
            "SEEKWIRE_SEEK_SWITCH",
            "SEEKWIRE_SEEK_WAY",
            "SEEKWIRE_SECCOMP",
            "SEEKWIRE_FALLBACK_AFTER",
        ];
        let empty = config(&names.map(|name| (name, "")));
        assert_eq!(format!("{empty:?}"), format!("{:?}", config(&[])));
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
    fn what_is_set_is_obeyed() {
        let config = config(&[
            ("SEEKWIRE", "off"),
            ("SEEKWIRE_DIR", "/run/x"),
            ("SEEKWIRE_LOG", "/a:b/c:debug"),
            ("SEEKWIRE_STATS", "%p"),
            ("SEEKWIRE_SUMMARY", "/run/y"),
            ("SEEKWIRE_SPIN_US", "7"),
            ("SEEKWIRE_SEGMENT_SIZE", "8192"),
            ("SEEKWIRE_SEGMENTS", "32"),
            ("SEEKWIRE_THRESHOLD", "1000000"),
            ("SEEKWIRE_SEEK_MEMORY", "0"),
            ("SEEKWIRE_SEEK_SWITCH", "4294967295"),
            ("SEEKWIRE_SEEK_WAY", "drain"),
            ("SEEKWIRE_SECCOMP", "2"),
            ("SEEKWIRE_FALLBACK_AFTER", "0"),
        ]);
        assert_eq!(config.complaints, [""; 0]);
        assert!(!config.enabled);
        assert_eq!(config.dir, PathBuf::from("/run/x"));
        let log = Log { target: LogTarget::File("/a:b/c".into()), level: LevelFilter::DEBUG };
        assert_eq!(config.log, Some(log));
        assert_eq!(config.stats, Some("%p".into()));
        assert_eq!(config.summary, Some("/run/y".into()));
        assert_eq!(config.spin, SpinPolicy::Fixed(7000));
        assert_eq!((config.geometry.segment_size(), config.geometry.segments()), (8192, 32));
        // The bytes that these calls move do not count.
        assert_eq!((config.threshold, config.threshold_bytes), (1_000_000, u64::MAX));
        assert_eq!((config.seek_memory, config.seek_switch), (0, Some(u32::MAX)));
        assert_eq!((config.seek_method, config.fall_back_after), (SeekMethod::Drain, Some(0)));
        assert_eq!(config.seccomp, 2);
    }

    #[test]
    fn bytes_and_times_may_have_units_and_a_level_stands_alone() {
        let config = config(&[
            ("SEEKWIRE_LOG", "debug"),
            ("SEEKWIRE_SPIN_US", "1.5ms"),
            ("SEEKWIRE_SEGMENT_SIZE", "32KiB"),
            ("SEEKWIRE_SEEK_MEMORY", "64M"),
            ("SEEKWIRE_SEEK_SWITCH", "4K"),
            ("SEEKWIRE_FALLBACK_AFTER", "1G"),
        ]);
        assert_eq!(config.complaints, [""; 0]);
        let log = Log { target: LogTarget::StandardError, level: LevelFilter::DEBUG };
        assert_eq!(config.log, Some(log));
        assert_eq!(config.spin, SpinPolicy::Fixed(1_500_000));
        assert_eq!(config.geometry.segment_size(), 32 << 10);
        assert_eq!((config.seek_memory, config.seek_switch), (64 << 20, Some(4096)));
        assert_eq!(config.fall_back_after, Some(1 << 30));
    }

    #[test]
    fn what_cannot_be_obeyed_is_named_with_what_can() {
        for (name, values, possible) in [
            ("SEEKWIRE", &["0", "OFF", "no"][..], "none of on, off"),
            ("SEEKWIRE_DIR", &["relative"], "not an absolute path"),
            ("SEEKWIRE_LOG", &["stderr:dbug", "/a/b:"], "one of error, warn, info, debug, trace"),
            ("SEEKWIRE_SPIN_US", &["-1", "2s", "1000001", "0x1", "1.5 us s"], "from 0 to 1s"),
            ("SEEKWIRE_THRESHOLD", &["many", "-1", "1000000001", "1e3"], "from 0 to 1000000000"),
            ("SEEKWIRE_SEGMENT_SIZE", &["5", "0", "4097", "2097152"], "from 4096 to 1048576"),
            ("SEEKWIRE_SEGMENT_SIZE", &["32KB"], "not a size from 0 to 4294967295"),
            ("SEEKWIRE_SEGMENTS", &["0", "7", "9", "2048", "4294967295"], "from 8 to 1024"),
            ("SEEKWIRE_SEEK_MEMORY", &["64MB", "99999999999999999999"], "from 0 to 1TiB"),
            ("SEEKWIRE_SEEK_SWITCH", &["4294967296"], "from 0 to 4294967295"),
            ("SEEKWIRE_SEEK_WAY", &["magic", "Module"], "module, peek, drain"),
            ("SEEKWIRE_SECCOMP", &["all", "4294967295"], "from 0 to 4294967294"),
            ("SEEKWIRE_FALLBACK_AFTER", &["-1"], "not a size from 0 on"),
        ] {
            for value in values {
                let config = config(&[(name, value)]);
                let [complaint] = &config.complaints[..] else {
                    panic!("{name}={value}: {:?}", config.complaints);
                };
                assert!(complaint.contains(&format!("{name}={value}")), "{complaint}");
                assert!(complaint.contains(possible), "{complaint}");
                assert_eq!(config.geometry, Geometry::default());
                assert_eq!(
                    (config.spin, config.seek_method),
                    (SpinPolicy::default(), SeekMethod::Module)
                );
                assert_eq!((config.threshold, config.seek_memory), (THRESHOLD, SEEK_MEMORY));
                // When in doubt, TCP.
                assert_eq!(config.enabled, name != "SEEKWIRE");
            }
        }
    }

    #[test]
    fn paths_are_bytes_and_numbers_are_text() {
        let odd = OsStr::from_bytes(b"/run/\xff");
        let config = Config::of(|name| name.starts_with("SEEKWIRE_").then(|| odd.to_owned()));
        assert_eq!(config.dir, odd);
        assert_eq!(config.stats.as_deref(), Some(odd.as_ref()));
        assert_eq!(config.log.map(|log| log.target), Some(LogTarget::File(odd.into())));
        assert_eq!(config.complaints.len(), 9, "{:?}", config.complaints);
    }

    #[test]
    fn the_runtime_directory_comes_before_shared_memory() {
        assert_eq!(
            config(&[("XDG_RUNTIME_DIR", "/run/user/7")]).dir,
            PathBuf::from("/run/user/7/seekwire")
        );
        assert!(config(&[("XDG_RUNTIME_DIR", "relative")]).dir.starts_with("/dev/shm"));
    }

    #[test]
    fn counters_for_a_summary_go_only_where_nobody_else_can_write() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("summary");
        let config =
            Config::of(|name| (name == "SEEKWIRE_SUMMARY").then(|| directory.clone().into()));
        assert_eq!(config.summary_directory(), None, "gone");
        let another = place.path().join("another");
        std::fs::create_dir(&another).unwrap();
        symlink(&another, &directory).unwrap();
        std::fs::set_permissions(&another, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(config.summary_directory(), None, "a link");
        std::fs::remove_file(&directory).unwrap();
        std::fs::rename(&another, &directory).unwrap();
        assert_eq!(config.summary_directory(), Some(&*directory));
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(config.summary_directory(), None, "open to others");
    }
}
