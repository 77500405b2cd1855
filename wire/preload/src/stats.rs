//! SEEKWIRE_STATS and SEEKWIRE_SUMMARY: counters of the process's connections, written as JSON when it
//! ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use seekwire_endpoint::Config;
use seekwire_transport::sys::file;

use crate::lock::{Lock, RawLock};
use crate::socket::Socket;
use crate::{log, table};

/// Sums over connections.
#[derive(Clone)]
struct Sums {
    tracked: u64,
    attached: u64,
    fell_back: u64,
    linked: u64,
    /// The time until connections were attached, in microseconds: the sum, then the maximum.
    set_up: u64,
    longest: u64,
    tx_tcp: u64,
    tx_ring: u64,
    rx_tcp: u64,
    rx_ring: u64,
    /// The bytes of the ring whose memory two machines share.
    tx_link: u64,
    rx_link: u64,
    /// The number of connections that do not travel on the ring, by reason.
    reasons: BTreeMap<String, u64>,
}

impl Sums {
    const ZERO: Sums = Sums {
        tracked: 0,
        attached: 0,
        fell_back: 0,
        linked: 0,
        set_up: 0,
        longest: 0,
        tx_tcp: 0,
        tx_ring: 0,
        rx_tcp: 0,
        rx_ring: 0,
        tx_link: 0,
        rx_link: 0,
        reasons: BTreeMap::new(),
    };

    fn add(&mut self, socket: &Socket) {
        let totals = socket.connection.totals();
        let before = socket.counted_by_parent();
        self.tracked += 1;
        self.attached += u64::from(totals.attached);
        self.fell_back += u64::from(totals.attached && totals.reason.is_some());
        let set_up = u64::try_from(totals.set_up.as_micros()).unwrap_or(u64::MAX);
        self.set_up = self.set_up.saturating_add(set_up);
        self.longest = self.longest.max(set_up);
        self.tx_tcp += totals.tx_tcp.saturating_sub(before.tx_tcp);
        self.rx_tcp += totals.rx_tcp.saturating_sub(before.rx_tcp);
        let tx_ring = totals.tx_ring.saturating_sub(before.tx_ring);
        let rx_ring = totals.rx_ring.saturating_sub(before.rx_ring);
        self.tx_ring += tx_ring;
        self.rx_ring += rx_ring;
        if totals.linked {
            self.linked += 1;
            self.tx_link += tx_ring;
            self.rx_link += rx_ring;
        }
        if let Some(reason) = totals.reason {
            *self.reasons.entry(reason.to_string()).or_default() += 1;
        }
    }

    fn add_live(&mut self) {
        for (_, object) in table::entries().filter(|(fd, object)| object.is_known_by(*fd)) {
            if let Some(socket) = object.as_socket().filter(|socket| !socket.is_listening()) {
                self.add(socket);
            }
        }
    }

    fn json(&self) -> String {
        let mut text = format!(
            "{{\"version\":{},\"pid\":{},\"program\":{},\"connections\":{{\"tracked\":{},\"attached\":{},\"fell_back\":{},\"linked\":{}}},\
             \"set_up\":{{\"mean_us\":{},\"most_us\":{}}},\
             \"bytes\":{{\"tx_tcp\":{},\"tx_ring\":{},\"rx_tcp\":{},\"rx_ring\":{},\"tx_link\":{},\"rx_link\":{}}},\"reasons\":{{",
            quoted(env!("CARGO_PKG_VERSION")),
            std::process::id(),
            quoted(&program()),
            self.tracked,
            self.attached,
            self.fell_back,
            self.linked,
            self.set_up / self.attached.max(1),
            self.longest,
            self.tx_tcp,
            self.tx_ring,
            self.rx_tcp,
            self.rx_ring,
            self.tx_link,
            self.rx_link,
        );
        for (at, (reason, count)) in self.reasons.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{}:{count}", quoted(reason));
        }
        text.push_str("}}\n");
        text
    }
}

static WANTED: AtomicBool = AtomicBool::new(false);

/// Sums over closed connections.
static CLOSED: Lock<Sums> = Lock::new(Sums::ZERO);

/// Counts a connection whose last fd is closed.
pub(crate) fn closed(socket: &Socket) {
    if WANTED.load(Ordering::Relaxed) {
        CLOSED.lock().add(socket);
    }
}

static TARGET: OnceLock<PathBuf> = OnceLock::new();

/// Called before anything is tracked.
pub(crate) fn start() {
    let Config { stats, summary, .. } = Config::get();
    if let Some(target) = stats {
        // Resolved now, because servers change their directory later.
        let _ = TARGET.set(std::path::absolute(target).unwrap_or_else(|_| target.clone()));
    }
    WANTED.store(stats.is_some() || summary.is_some(), Ordering::Relaxed);
}

/// Writes the files that SEEKWIRE_STATS and SEEKWIRE_SUMMARY ask for.
pub(crate) fn write() {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    let mut sums = CLOSED.lock_in_handler().map_or(Sums::ZERO, |sums| sums.clone());
    sums.add_live();
    if sums.tracked == 0 {
        // Helpers such as shells would only replace or bury the counters of the intended program.
        return;
    }
    let text = sums.json();
    if let Some(target) = TARGET.get()
        && let Err(error) = write_whole(&place(target), &text)
    {
        log::warn!(%error, "cannot write the counters to SEEKWIRE_STATS={}", target.display());
    }
    if let Some(directory) = Config::get().summary_directory()
        && let Err(error) = write_whole(&place(directory), &text)
    {
        log::warn!(%error, "cannot write the counters for the summary of seekwire run");
    }
}

/// Writes a file so that a reader, at any time, finds either the old text or the new one.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        // A pipe, a terminal, or a link to one must not be replaced.
        return file::write(path, text.as_bytes());
    }
    let mut draft = path.to_owned().into_os_string();
    draft.push(format!(".{}", std::process::id()));
    let written = file::replace(path, draft.as_ref(), text.as_bytes());
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

/// Replaces `%p` with the process id; in a directory each program and process has its own file.
fn place(target: &Path) -> PathBuf {
    let pid = std::process::id();
    if target.is_dir() {
        return target.join(format!("{}.{pid}.json", program()));
    }
    let mut name = Vec::new();
    let mut rest = target.as_os_str().as_bytes();
    while let Some(at) = rest.windows(2).position(|two| two == b"%p") {
        name.extend_from_slice(&rest[..at]);
        name.extend_from_slice(pid.to_string().as_bytes());
        rest = &rest[at + 2..];
    }
    name.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(name))
}

/// The name of the process, as in ps(1), without a slash.
fn program() -> String {
    let name = file::read("/proc/self/comm".as_ref()).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).replace('/', "_")
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            character if character < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", character as u32);
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// The lock that a fork must hold.
pub(crate) fn lock() -> &'static RawLock {
    CLOSED.raw()
}

/// The child counts its own connections only.
pub(crate) fn after_fork_child() {
    *CLOSED.lock() = Sums::ZERO;
}
