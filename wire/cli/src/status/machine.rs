//! The other ends of connections, wherever on this machine their sockets and processes are.
//!
//! Root sees all of them; other users see the sockets of their network namespaces, and their own
//! processes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;

use seekwire_endpoint::Reason;

use super::member::{Hindrance, Member, Registries};
use super::row::{Holder, Row};
use crate::executable;
use crate::place::user_name;
use crate::proc::{self, Process, Standing};
use crate::tcp_table::{TcpConnection, TcpTable};

/// The network namespaces, by inode, and the holders of their sockets.
#[derive(Debug, Default)]
pub(super) struct Machine {
    tables: BTreeMap<u64, TcpTable>,
    /// Of the processes that hold a socket, one that has the library, if there is any.
    holders: HashMap<u64, Rc<Other>>,
    lone: LoneEnds,
}

/// Established ends whose other end is nowhere on this machine, by each of their addresses: the
/// other ones are on other machines, or an address was translated on the way.
#[derive(Debug, Default)]
struct LoneEnds {
    by_local: HashMap<ScopedAddress, Vec<TcpConnection>>,
    by_peer: HashMap<ScopedAddress, Vec<TcpConnection>>,
}

/// An address, with the network namespace of an address that is another one in each.
type ScopedAddress = (Option<u64>, SocketAddr);

fn scoped(namespace: u64, address: SocketAddr) -> ScopedAddress {
    (address.ip().is_loopback().then_some(namespace), address)
}

/// A process at the other end.
#[derive(Debug)]
struct Other {
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Member {
        hindrance: Option<Hindrance>,
        holder: Holder,
    },
    /// Why it has not loaded the library, if the program file shows it.
    Plain(Option<String>),
    /// This user may not inspect it.
    Unknown,
}

/// Where the other end of a connection is.
#[derive(Debug, PartialEq, Eq)]
enum OtherEnd {
    /// In the same network namespace.
    Here(TcpConnection),
    OtherNamespace(TcpConnection),
    /// It has one address in common with this end; the other one was translated.
    Translated(TcpConnection),
}

impl Machine {
    /// The connections of a process's network namespace.
    pub(super) fn table_of(&mut self, process: &Process) -> Option<&TcpTable> {
        let namespace = process.network_namespace()?;
        match self.tables.entry(namespace) {
            Entry::Occupied(table) => Some(table.into_mut()),
            // If the process has ended, another one may have the tables.
            Entry::Vacant(entry) => Some(entry.insert(TcpTable::of(process).ok()?)),
        }
    }

    /// Whether the other end may show more about the reason of a connection.
    pub(super) fn may_explain(row: &Row) -> bool {
        row.link.is_none()
            && matches!(
                row.reason,
                Some(
                    Reason::NoPeer
                        | Reason::Waiting
                        | Reason::OtherUser
                        | Reason::Elsewhere
                        | Reason::Translated
                )
            )
    }

    /// Looks at all processes and network namespaces that this user may inspect.
    pub(super) fn look_everywhere(&mut self, registries: &mut Registries) {
        let processes = proc::all();
        for process in &processes {
            self.table_of(process);
        }
        for process in processes {
            let mut sockets = process.sockets();
            sockets.retain(|socket| self.tables.values().any(|it| it.of_socket(*socket).is_some()));
            if sockets.is_empty() {
                continue;
            }
            let other = Rc::new(Other::of(process, registries));
            for socket in sockets {
                let known = self.holders.get(&socket).map(|other| &other.kind);
                if !matches!(known, Some(Kind::Member { .. })) {
                    self.holders.insert(socket, Rc::clone(&other));
                }
            }
        }
        self.find_lone_ends();
    }

    fn find_lone_ends(&mut self) {
        let mut lone = LoneEnds::default();
        for (namespace, table) in &self.tables {
            for end in table.all().filter(|end| end.is_established) {
                if self.mirror(*namespace, end.local, end.peer).is_none() {
                    lone.by_local.entry(scoped(*namespace, end.local)).or_default().push(end);
                    lone.by_peer.entry(scoped(*namespace, end.peer)).or_default().push(end);
                }
            }
        }
        self.lone = lone;
    }

    /// Adds to a row what the other end shows.
    pub(super) fn explain(&self, row: &mut Row) {
        if !Self::may_explain(row) {
            return;
        }
        let Some(namespace) = row.namespace else { return };
        let Some(other) = self.other_end(namespace, row.local, row.peer) else { return };
        let holder = |end: &TcpConnection| self.holders.get(&end.socket);
        let named = |end: &TcpConnection, text: &str| {
            holder(end).map(|holder| format!("{} {text}", holder.name))
        };
        (row.reason, row.detail) = match &other {
            OtherEnd::OtherNamespace(end) => {
                let text = "is in another network namespace";
                (Some(Reason::OtherNamespace), named(end, text))
            }
            OtherEnd::Translated(end) => {
                let text = format!("sees {} and {} as the ends", end.local, end.peer);
                (Some(Reason::Translated), named(end, &text))
            }
            // It is not accepted yet, or closed already.
            OtherEnd::Here(end) if end.socket == 0 => return,
            OtherEnd::Here(end) if row.holder.uid.is_some_and(|user| user != end.user) => {
                let text = format!("belongs to {}", user_name(end.user));
                let detail = named(end, &text).unwrap_or_else(|| format!("the other end {text}"));
                (Some(Reason::OtherUser), Some(detail))
            }
            OtherEnd::Here(end) => match holder(end) {
                Some(holder) => holder.explain(row),
                None => return,
            },
        };
    }

    /// The other end, if its addresses are the same there.
    fn mirror(&self, namespace: u64, local: SocketAddr, peer: SocketAddr) -> Option<OtherEnd> {
        let mirrored = |table: &TcpTable| table.between(peer, local);
        let here = self.tables.get(&namespace).and_then(mirrored).map(OtherEnd::Here);
        // Loopback addresses of other namespaces have nothing to do with these.
        let may_leave = !local.ip().is_loopback() && !peer.ip().is_loopback();
        let elsewhere = || self.tables.values().find_map(mirrored).map(OtherEnd::OtherNamespace);
        here.or_else(|| may_leave.then(elsewhere).flatten())
    }

    fn other_end(&self, namespace: u64, local: SocketAddr, peer: SocketAddr) -> Option<OtherEnd> {
        let translated = || {
            let end = self.lone.only_one(namespace, local, peer)?;
            // A server has many lone ends with the same address; none of them is the other end.
            let back = self.lone.only_one(namespace, end.local, end.peer)?;
            ((back.local, back.peer) == (local, peer)).then_some(OtherEnd::Translated(end))
        };
        self.mirror(namespace, local, peer).or_else(translated)
    }
}

impl LoneEnds {
    /// The end that has an address in common with the other end of this one, if there is only one.
    fn only_one(
        &self,
        namespace: u64,
        local: SocketAddr,
        peer: SocketAddr,
    ) -> Option<TcpConnection> {
        let (local, peer) = (scoped(namespace, local), scoped(namespace, peer));
        let found = [self.by_peer.get(&local), self.by_local.get(&peer)];
        let mut ends = found.into_iter().flatten().flatten();
        ends.next().filter(|_| ends.next().is_none()).copied()
    }
}

impl Other {
    fn of(process: Process, registries: &mut Registries) -> Self {
        let name = format!("{} (pid {})", process.name(), process.pid);
        let exe = process.directory.join("exe");
        let kind = match process.mapped() {
            None => Kind::Unknown,
            Some(mapped) if !mapped.library && mapped.registry.is_none() => {
                let of = |standing: Standing| {
                    registries.ask(&process, move || executable::obstacle_in(&exe, standing.real))
                };
                let obstacle = process.standing().and_then(of).flatten();
                Kind::Plain(obstacle.map(|it| it.to_string()))
            }
            Some(_) => match Member::of(process, registries) {
                Some(Member { hindrance, holder, .. }) => Kind::Member { hindrance, holder },
                None => Kind::Unknown,
            },
        };
        Self { name, kind }
    }

    /// The reason for a connection whose other end it holds, as the same user and in the same
    /// network namespace.
    fn explain(&self, row: &Row) -> (Option<Reason>, Option<String>) {
        let name = &self.name;
        match &self.kind {
            Kind::Unknown => (row.reason, Some(format!("{name} has the other end"))),
            Kind::Plain(obstacle) => {
                let why = obstacle.as_deref().unwrap_or("was started without it");
                (Some(Reason::WithoutLibrary), Some(format!("{name} {why}")))
            }
            Kind::Member { hindrance: Some(Hindrance::Filters(count)), .. } => {
                let why = format!("{name} has {count} system call filters, and no registry");
                (Some(Reason::PeerFiltered), Some(why))
            }
            Kind::Member { hindrance: Some(hindrance), .. } => {
                let why = match hindrance {
                    Hindrance::Off => "runs with SEEKWIRE=off".to_owned(),
                    Hindrance::NoProc => "has no /proc".to_owned(),
                    Hindrance::Directory(why) => format!("has no registry: {why}"),
                    Hindrance::Filters(_) => return (row.reason, None),
                };
                (row.reason, Some(format!("{name} {why}")))
            }
            Kind::Member { holder, .. } => {
                let is_other = match (holder.registry, row.holder.registry) {
                    (Some(one), Some(other)) => one != other,
                    _ => holder.directory != row.holder.directory,
                };
                let why = match &holder.directory {
                    Some(directory) if is_other => format!("uses {directory}, another directory"),
                    _ => "has the library, and has not registered yet".to_owned(),
                };
                (row.reason, Some(format!("{name} {why}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(local: &str, peer: &str, socket: u64) -> TcpConnection {
        TcpConnection {
            socket,
            local: local.parse().unwrap(),
            peer: peer.parse().unwrap(),
            user: 33,
            is_established: true,
        }
    }

    fn machine(namespaces: &[&[TcpConnection]]) -> Machine {
        let mut machine = Machine::default();
        for (number, ends) in namespaces.iter().enumerate() {
            let table = machine.tables.entry(number as u64).or_default();
            ends.iter().for_each(|end| table.add(*end));
        }
        machine.find_lone_ends();
        machine
    }

    #[test]
    fn the_other_end_is_found_in_any_namespace_and_behind_nat() {
        let client = end("10.0.0.1:5000", "10.0.0.2:80", 1);
        let server = end("10.0.0.2:80", "10.0.0.1:5000", 2);
        // Its destination was translated.
        let redirected = end("10.0.0.1:8080", "10.0.0.1:5000", 3);
        // Its source was.
        let masqueraded = end("10.0.0.2:80", "10.9.9.9:7777", 4);
        let [one, two] =
            [end("10.0.0.7:1", "10.0.0.1:5000", 5), end("10.0.0.1:5000", "10.0.0.7:1", 6)];
        let found = |namespaces: &[&[TcpConnection]]| {
            machine(namespaces).other_end(0, client.local, client.peer)
        };
        assert_eq!(found(&[&[client]]), None);
        assert_eq!(found(&[&[client, server]]), Some(OtherEnd::Here(server)));
        assert_eq!(found(&[&[client], &[server]]), Some(OtherEnd::OtherNamespace(server)));
        assert_eq!(found(&[&[client, redirected]]), Some(OtherEnd::Translated(redirected)));
        assert_eq!(found(&[&[client], &[masqueraded]]), Some(OtherEnd::Translated(masqueraded)));
        assert_eq!(found(&[&[client], &[redirected, masqueraded]]), None, "either may be it");
        assert_eq!(found(&[&[client], &[one, two]]), None, "it has another end");
    }

    #[test]
    fn lone_ends_of_connections_to_other_machines_are_no_translated_ones() {
        let server = end("10.0.0.2:80", "10.0.0.9:5000", 1);
        let another = end("10.0.0.2:80", "10.0.0.9:5001", 2);
        // Its mirror was reset.
        let client = end("10.0.0.2:6000", "10.0.0.2:80", 3);
        let found = |from: TcpConnection, ends: &[TcpConnection]| {
            machine(&[ends]).other_end(0, from.local, from.peer)
        };
        let ends = [server, another, client];
        ends.iter().for_each(|from| assert_eq!(found(*from, &ends), None, "{from:?}"));
        let closing = TcpConnection { is_established: false, ..client };
        assert_eq!(found(server, &[server, closing]), None);
        assert_eq!(found(closing, &[server, closing]), None);
    }

    #[test]
    fn loopback_addresses_of_other_namespaces_are_other_addresses() {
        let client = end("127.0.0.1:5000", "127.0.0.1:80", 1);
        let mirrored = end("127.0.0.1:80", "127.0.0.1:5000", 2);
        let redirected = end("127.0.0.1:8080", "127.0.0.1:5000", 3);
        let found = |namespaces: &[&[TcpConnection]]| {
            machine(namespaces).other_end(0, client.local, client.peer)
        };
        assert_eq!(found(&[&[client, redirected]]), Some(OtherEnd::Translated(redirected)));
        assert_eq!(found(&[&[client], &[mirrored]]), None);
        assert_eq!(found(&[&[client], &[redirected]]), None);
    }
}
