//! The summary of `seekwire run`: the carriers of the connections of a program and of its children, the
//! gain, and the reasons for TCP.
//!
//! The library of each process writes its counters into a directory of this run when the process
//! ends. A process whose connections may come to the ring first leaves an empty file there, `PID.begun`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use seekwire_program::table::{self, Align};
use serde::Deserialize;
use tempfile::TempDir;

use crate::reasons;
use crate::supervise::Ended;

/// The setting that names the directory to the library.
pub(crate) const VARIABLE: &str = "SEEKWIRE_SUMMARY";

/// The counters of a run.
pub(crate) struct Summary(TempDir);

/// The counters that a process has written, or the sum of several.
#[derive(Debug, Default, Deserialize)]
struct Counters {
    pid: u32,
    connections: Connections,
    bytes: Bytes,
    /// Number of connections on TCP, by reason.
    reasons: BTreeMap<String, u64>,
}

#[derive(Debug, Default, Deserialize)]
struct Connections {
    tracked: u64,
    attached: u64,
    fell_back: u64,
    linked: u64,
}

/// Bytes of the ring include those of links.
#[derive(Debug, Default, Deserialize)]
struct Bytes {
    tx_tcp: u64,
    tx_ring: u64,
    tx_link: u64,
    rx_tcp: u64,
    rx_ring: u64,
    rx_link: u64,
}

impl Summary {
    pub(crate) fn new() -> io::Result<Self> {
        // The library writes to no directory that others can enter.
        let private = fs::Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        Ok(Self(builder.prefix("seekwire-summary-").permissions(private).tempdir()?))
    }

    /// The value of [`VARIABLE`] for the program.
    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    /// The summary for people, after the program `name` has ended.
    pub(crate) fn text(&self, name: &OsStr, ended: &Ended) -> String {
        let name = Path::new(name).file_name().unwrap_or(name).to_string_lossy();
        let (mut sum, mut counted, mut begun) =
            (Counters::default(), BTreeSet::new(), BTreeSet::new());
        for path in fs::read_dir(self.directory()).into_iter().flatten().flatten() {
            let path = path.path();
            if path.extension() == Some("begun".as_ref()) {
                begun.extend(path.file_stem().and_then(|pid| pid.to_str()?.parse::<u32>().ok()));
            } else if let Some(counters) = read(&path) {
                counted.insert(counters.pid);
                sum.add(counters);
            }
        }
        let mut lines = vec![format!("seekwire: {name}: {}", sum.headline())];
        lines.extend(sum.table().lines().map(|line| format!("  {line}")));
        lines.extend(sum.conclusion());
        if let Some(signal) = ended.status.signal().filter(|_| !counted.contains(&ended.pid)) {
            let signal = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            lines.push(format!(
                "{name} was ended by {signal} and so wrote no counters: its connections are missing here."
            ));
            begun.remove(&ended.pid);
        }
        for pid in begun.difference(&counted) {
            let why = match Path::new("/proc").join(pid.to_string()).exists() {
                true => "still runs",
                false => "has ended without writing its counters, as when it is killed",
            };
            lines.push(format!("Process {pid} {why}: its connections are missing here."));
        }
        lines.join("\n")
    }
}

fn read(path: &Path) -> Option<Counters> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

impl Counters {
    fn add(&mut self, other: Self) {
        let Self { connections, bytes, reasons, .. } = self;
        connections.tracked += other.connections.tracked;
        connections.attached += other.connections.attached;
        connections.fell_back += other.connections.fell_back;
        connections.linked += other.connections.linked;
        bytes.tx_tcp += other.bytes.tx_tcp;
        bytes.tx_ring += other.bytes.tx_ring;
        bytes.tx_link += other.bytes.tx_link;
        bytes.rx_tcp += other.bytes.rx_tcp;
        bytes.rx_ring += other.bytes.rx_ring;
        bytes.rx_link += other.bytes.rx_link;
        for (reason, count) in other.reasons {
            *reasons.entry(reason).or_default() += count;
        }
    }

    fn headline(&self) -> String {
        let Bytes { tx_tcp, tx_ring, rx_tcp, rx_ring, .. } = self.bytes;
        let (memory, tcp) = (tx_ring + rx_ring, tx_tcp + rx_tcp);
        let how = match self.connections.tracked {
            0 => return "no TCP connections through the C library".to_owned(),
            _ if memory == 0 => "nothing went through shared memory".to_owned(),
            _ if tcp == 0 => "all bytes went through shared memory".to_owned(),
            _ => match 100.0 * memory as f64 / (memory + tcp) as f64 {
                share @ ..1.0 => format!("{share:.2} % of the bytes went through shared memory"),
                // Rounded down: 100 % would be all.
                share => format!("{} % of the bytes went through shared memory", share as u64),
            },
        };
        format!("{}, {how}", connections(self.connections.tracked))
    }

    /// A row for each carrier.
    fn table(&self) -> String {
        let Connections { tracked, attached, linked, .. } = self.connections;
        if tracked == 0 {
            return String::new();
        }
        let columns = [
            ("CARRIER", Align::Left),
            ("CONNECTIONS", Align::Right),
            ("SENT", Align::Right),
            ("RECEIVED", Align::Right),
        ];
        let Bytes { tx_tcp, tx_ring, tx_link, rx_tcp, rx_ring, rx_link } = self.bytes;
        let row = |carrier: &str, count: u64, sent, received| {
            let [sent, received] = [sent, received].map(table::bytes);
            vec![carrier.to_owned(), count.to_string(), sent, received]
        };
        let mut rows = vec![row("ring", attached - linked, tx_ring - tx_link, rx_ring - rx_link)];
        if linked > 0 {
            rows.push(row("link", linked, tx_link, rx_link));
        }
        rows.push(row("tcp", tracked - attached, tx_tcp, rx_tcp));
        table::layout(&columns, &rows)
    }

    /// Why connections were on TCP, and what to do about the most frequent reason.
    fn conclusion(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut reasons: Vec<(&String, &u64)> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        if let Some((first, _)) = reasons.first() {
            let all: Vec<String> =
                reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            lines.push(format!("Why TCP: {}.", all.join(", ")));
            if self.connections.fell_back > 0 {
                let count = connections(self.connections.fell_back);
                lines.push(format!("{count} came to shared memory and went back to TCP."));
            }
            lines.push(match reasons::remedy(first) {
                Some(remedy) => {
                    format!("For \"{first}\": {remedy} (`seekwire reasons` explains them all.)")
                }
                None => format!("`seekwire reasons` explains \"{first}\"."),
            });
        }
        lines
    }
}

fn connections(count: u64) -> String {
    if count == 1 { "1 connection".to_owned() } else { format!("{count} connections") }
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    fn counters(pid: u32, connections: [u64; 4], bytes: [u64; 6], reasons: &str) -> String {
        let [tracked, attached, fell_back, linked] = connections;
        let [tx_tcp, tx_ring, tx_link, rx_tcp, rx_ring, rx_link] = bytes;
        format!(
            r#"{{"version":"0","pid":{pid},"program":"x",
            "connections":{{"tracked":{tracked},"attached":{attached},"fell_back":{fell_back},"linked":{linked}}},
            "set_up":{{"mean_us":0,"most_us":0}},"bytes":{{"tx_tcp":{tx_tcp},"tx_ring":{tx_ring},"rx_tcp":{rx_tcp},
            "rx_ring":{rx_ring},"tx_link":{tx_link},"rx_link":{rx_link}}},"reasons":{{{reasons}}}}}"#
        )
    }

    fn text(files: &[(&str, &str)], status: i32) -> String {
        let summary = Summary::new().unwrap();
        for (name, content) in files {
            fs::write(summary.directory().join(name), content).unwrap();
        }
        let ended = Ended { pid: 1, status: ExitStatus::from_raw(status) };
        summary.text("/usr/bin/client".as_ref(), &ended)
    }

    #[test]
    fn the_counters_of_all_processes_are_added() {
        let parent =
            counters(1, [3, 2, 0, 1], [10, 3 << 20, 1 << 20, 0, 30, 10], "\"peer refused\":1");
        let child = counters(2, [4, 1, 1, 0], [10, 1 << 20, 0, 0, 0, 0], "\"peer not found\":4");
        let said = text(&[("a.1.json", &parent), ("b.2.json", &child), ("1.begun", "")], 0);
        let expected = "\
seekwire: client: 7 connections, 99 % of the bytes went through shared memory
  CARRIER  CONNECTIONS     SENT  RECEIVED
  ring               2  3.0 MiB      20 B
  link               1  1.0 MiB      10 B
  tcp                4     20 B       0 B
Why TCP: 4 peer not found, 1 peer refused.
1 connection came to shared memory and went back to TCP.
For \"peer not found\": ";
        assert!(said.starts_with(expected), "{said}");
        assert!(said[expected.len()..].contains("seekwire run"), "{said}");
    }

    #[test]
    fn a_process_without_counters_is_named() {
        let none = "seekwire: client: no TCP connections through the C library";
        assert_eq!(text(&[], 0), none);
        let killed = text(&[("1.begun", "")], 9);
        assert_eq!(killed.lines().count(), 2, "{killed}");
        assert!(
            killed.contains("\nclient was ended by SIGKILL and so wrote no counters"),
            "{killed}"
        );
        let own = std::process::id();
        let said = text(&[("4194305.begun", ""), (&format!("{own}.begun"), "")], 0);
        assert!(said.contains("Process 4194305 has ended without"), "{said}");
        assert!(said.contains(&format!("Process {own} still runs")), "{said}");
    }

    #[test]
    fn bytes_that_all_took_one_carrier_are_not_rounded() {
        let headline = |bytes| {
            let said = text(&[("a", &counters(1, [1, 1, 0, 0], bytes, ""))], 0);
            said.lines().next().unwrap().to_owned()
        };
        assert!(
            headline([0, 5, 0, 0, 5, 0])
                .ends_with("1 connection, all bytes went through shared memory")
        );
        assert!(headline([1, 99_999, 0, 0, 0, 0]).contains(", 99 % of"));
        assert!(headline([9, 0, 0, 0, 0, 0]).ends_with("nothing went through shared memory"));
    }
}
