//! A process that has the library, its registry, and what keeps it from using that.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::FileType;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use seekwire_endpoint::registry::{self, RegistryEntry};
use seekwire_endpoint::{Config, Reason};
use seekwire_transport::sys::diag::{self, Traffic};
use seekwire_transport::sys::{Fd, socket};

use super::row::{FileNumber, Holder, Row, canonical};
use crate::foreign::{Root, within_patience};
use crate::place::{Place, user_name};
use crate::proc::{Process, Standing};
use crate::tcp_table::{TcpConnection, TcpTable};

/// A process that has loaded the library, or uses its Rust API.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: Process,
    standing: Standing,
    pub(super) holder: Holder,
    config: Config,
    directory: PathBuf,
    /// The inode of its pid namespace.
    namespace: Option<u64>,
    /// The content of its registry, once it has one.
    entries: Option<Entries>,
    /// Why it cannot have one, if that is visible.
    pub(super) hindrance: Option<Hindrance>,
}

/// The obstacle that keeps a process from having a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// SEEKWIRE=off.
    Off,
    /// It sees no /proc.
    NoProc,
    /// It has more system call filters than are known to be harmless. Only if it has no registry
    /// although it needs one, they are the cause.
    Filters(u32),
    /// Its directory is of no use to it.
    Directory(String),
}

type Entries = Rc<[RegistryEntry]>;

/// The registries that were read, by device and inode.
#[derive(Debug, Default)]
pub(super) struct Registries {
    read: HashMap<FileNumber, Entries>,
    /// Looks that had no answer, by mount namespace.
    overdue: HashMap<Option<u64>, u32>,
}

impl Registries {
    /// Looks at the files of a mount namespace are given up after this many without an answer.
    const MOST_OVERDUE: u32 = 3;
    /// And at all files after this many.
    const MOST_OVERDUE_IN_ALL: u32 = 12;

    /// The registry that a process has mapped from this file, which belongs to `user` or root.
    fn of(&mut self, process: &Process, path: &Path, user: u32) -> Option<(FileNumber, Entries)> {
        let (root, path) = (Root::of(process), path.to_owned());
        let file = self.ask(process, move || {
            let open = |root: Root| root.open(&path, &[user, 0]);
            // In a chroot, the kernel names the file as this process sees it.
            let file = open(root).or_else(|_| open(Root::own())).ok()?;
            let about = rustix::fs::fstat(&file).ok()?;
            Some((file, (about.st_dev, about.st_ino)))
        })?;
        let (file, number) = file?;
        if let Some(read) = self.read.get(&number) {
            return Some((number, Rc::clone(read)));
        }
        // If it is damaged, the process that uses it has logged the reason.
        let entries = self.ask(process, move || registry::read(&file).unwrap_or_default())?;
        let entries: Entries = entries.into();
        self.read.insert(number, Rc::clone(&entries));
        Some((number, entries))
    }

    /// The result of `work` on files of a process, whose user may answer for them.
    pub(super) fn ask<T: Send + 'static>(
        &mut self,
        process: &Process,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let in_all: u32 = self.overdue.values().sum();
        let here = self.overdue.entry(process.namespace("mnt")).or_default();
        if *here >= Self::MOST_OVERDUE || in_all >= Self::MOST_OVERDUE_IN_ALL {
            static IS_SAID: AtomicBool = AtomicBool::new(false);
            if !IS_SAID.swap(true, Ordering::Relaxed) {
                seekwire_program::tell(format!(
                    "seekwire: the table may be incomplete: file systems that processes use, process \
                     {} for one, do not answer",
                    process.pid
                ));
            }
            return None;
        }
        let answer = within_patience(work);
        *here += u32::from(answer.is_none());
        answer
    }

    fn hindrance(
        &mut self,
        process: &Process,
        standing: &Standing,
        config: &Config,
    ) -> Option<Hindrance> {
        let (root, user, directory) = (Root::of(process), standing.user, config.dir.clone());
        let found = self.ask(process, move || {
            (root.look_at("proc/version".as_ref()).is_ok(), root.look_at(&directory).ok())
        });
        let (has_proc, directory) = found?;
        if !has_proc {
            return Some(Hindrance::NoProc);
        }
        let is_directory = |mode| FileType::from_raw_mode(mode) == FileType::Directory;
        let name = user_name(user);
        match directory {
            Some(it)
                if !is_directory(it.st_mode) || it.st_uid != user || it.st_mode & 0o077 != 0 =>
            {
                Some(Hindrance::Directory(format!(
                    "{} is not a directory of {name} with mode 0700",
                    config.dir.display()
                )))
            }
            None if process.may_have_changed_user(user) => Some(Hindrance::Directory(format!(
                "it may have become {name} since it started, and looks in the directory of the \
                 former user then; set SEEKWIRE_DIR to one of {name}"
            ))),
            // Last: most filters do no harm.
            _ => {
                (standing.filters > config.seccomp).then_some(Hindrance::Filters(standing.filters))
            }
        }
    }
}

impl Member {
    /// The process, if it has the library and this user may see it.
    pub(super) fn of(process: Process, registries: &mut Registries) -> Option<Self> {
        let mapped = process.mapped().filter(|it| it.library || it.registry.is_some())?;
        let standing = process.standing()?;
        let environment = process.environment();
        let config = Config::of_user(standing.user, |name| environment.get(name));
        let path = mapped.registry.as_ref();
        let registry = path.and_then(|path| registries.of(&process, path, standing.user));
        let (registry, entries) = registry.unzip();
        let hindrance = match &mapped.registry {
            Some(_) => None,
            None if !config.enabled => Some(Hindrance::Off),
            None => registries.hindrance(&process, &standing, &config),
        };
        let directory = mapped.registry.as_deref().and_then(Path::parent).unwrap_or(&config.dir);
        let place = Place::of(&process.control_groups());
        let holder = Holder {
            pid_inside: Some(standing.inside).filter(|inside| *inside != process.pid),
            user: Some(user_name(standing.user)),
            uid: Some(standing.user),
            unit: place.unit,
            container: place.container,
            directory: Some(directory.to_string_lossy().into_owned()),
            registry,
        };
        Some(Self {
            directory: directory.to_owned(),
            namespace: process.namespace("pid"),
            process,
            standing,
            holder,
            config,
            entries,
            hindrance,
        })
    }

    /// The directory in which it looks for others, as it sees it.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether it has made this entry.
    pub(super) fn entered(&self, entry: &RegistryEntry) -> bool {
        entry.pid == self.standing.inside
            && (entry.pid_namespace == 0 || Some(entry.pid_namespace) == self.namespace)
    }

    /// Its connections, of which `table` has those of its network namespace.
    pub(super) fn rows(&self, table: Option<&TcpTable>) -> Vec<Row> {
        let entries = self.entries.iter().flat_map(|entries| entries.iter());
        let entries = entries.filter(|entry| self.entered(entry));
        let mut entries: HashMap<_, &RegistryEntry> =
            entries.map(|entry| ((canonical(entry.local), canonical(entry.peer)), entry)).collect();
        let namespace = self.process.network_namespace();
        let program = self.process.name();
        let row = |local, peer| Row {
            pid: Some(self.process.pid),
            program: program.clone(),
            holder: self.holder.clone(),
            namespace,
            ..Row::plain(local, peer)
        };
        let sockets = self.process.sockets().into_iter();
        let (mut rows, mut plain) = (Vec::new(), Vec::new());
        for connection in sockets.filter_map(|socket| table?.of_socket(socket)) {
            let TcpConnection { local, peer, socket, .. } = connection;
            let mut row = Row { socket: Some(socket), ..row(local, peer) };
            match entries.remove(&(local, peer)) {
                Some(entry) => {
                    row.fill(entry);
                    rows.push(row);
                }
                None => plain.push(row),
            }
        }
        // The table may be older than these.
        rows.extend(entries.into_iter().map(|((local, peer), entry)| {
            let mut row = row(local, peer);
            row.fill(entry);
            row
        }));
        let ends: Vec<_> = plain.iter().map(|row| (row.local, row.peer)).collect();
        let traffic = traffic(&self.process, &ends);
        for (mut row, traffic) in plain.into_iter().zip(traffic) {
            let hindrance = self.hindrance.as_ref();
            (row.reason, row.detail) = why_unregistered(hindrance, &self.config, traffic);
            rows.push(row);
        }
        rows
    }
}

/// Why a connection that is in no registry is on TCP. If it has passed the threshold and nothing
/// hinders the process, only its log knows.
pub(super) fn why_unregistered(
    hindrance: Option<&Hindrance>,
    config: &Config,
    traffic: Option<Traffic>,
) -> (Option<Reason>, Option<String>) {
    // A call moves a segment, but for segments that were merged.
    let calls = u64::from(config.threshold).saturating_mul(2);
    let is_short = traffic
        .is_none_or(|traffic| traffic.bytes < config.threshold_bytes && traffic.segments < calls);
    match hindrance {
        Some(Hindrance::Off) => (Some(Reason::Disabled), None),
        Some(Hindrance::NoProc) => (Some(Reason::NoProc), None),
        _ if is_short => (Some(Reason::BelowThreshold), None),
        Some(Hindrance::Filters(_)) => (Some(Reason::Filtered), None),
        Some(Hindrance::Directory(why)) => (Some(Reason::NoRegistry), Some(why.clone())),
        None => (None, None),
    }
}

/// The traffic of connections in the network namespace of a process, as far as this user may ask.
fn traffic(process: &Process, ends: &[(SocketAddr, SocketAddr)]) -> Vec<Option<Traffic>> {
    let ask = || -> std::io::Result<Vec<Option<Traffic>>> {
        let namespace = std::fs::File::open(process.directory.join("ns/net"))?;
        let own = std::fs::File::open("/proc/thread-self/ns/net")?;
        let [number, own] =
            [&namespace, &own].map(|file| rustix::fs::fstat(file).map(|it| it.st_ino));
        if number? != own? {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let cookie = socket::namespace(Fd::from(&any))?;
        let of = |(local, peer): &(SocketAddr, SocketAddr)| diag::traffic(*local, *peer, cookie);
        Ok(ends.iter().map(|ends| of(ends).ok().flatten()).collect())
    };
    if ends.is_empty() {
        return Vec::new();
    }
    // Only a thread of its own may leave this namespace.
    let answer = thread::scope(|scope| {
        thread::Builder::new().spawn_scoped(scope, ask).ok()?.join().ok()?.ok()
    });
    answer.unwrap_or_else(|| vec![None; ends.len()])
}
