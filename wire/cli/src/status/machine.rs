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
use crate::proc::{self, Process};
use crate::tcp_table::{TcpConnection, TcpTable};

/// The network namespaces, by inode, and the holders of their sockets.
#[derive(Debug, Default)]
pub(super) struct Machine {
    tables: BTreeMap<u64, TcpTable>,
    /// Of the processes that hold a socket, one that has the library, if there is any.
    holders: HashMap<u64, Rc<Other>>,
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

    fn other_end(&self, namespace: u64, local: SocketAddr, peer: SocketAddr) -> Option<OtherEnd> {
        let mirrored = |table: &TcpTable| table.between(peer, local);
        if let Some(end) = self.tables.get(&namespace).and_then(mirrored) {
            return Some(OtherEnd::Here(end));
        }
        if let Some(end) = self.tables.values().find_map(mirrored) {
            return Some(OtherEnd::OtherNamespace(end));
        }
        let is_alone = |end: &TcpConnection| {
            self.tables.values().all(|table| table.between(end.peer, end.local).is_none())
        };
        let shares_an_end = |end: &TcpConnection| end.peer == local || end.local == peer;
        let all = self.tables.values().flat_map(TcpTable::all);
        let mut ends = all.filter(|end| shares_an_end(end) && is_alone(end));
        match (ends.next(), ends.next()) {
            (Some(end), None) => Some(OtherEnd::Translated(end)),
            _ => None,
        }
    }
}

impl Other {
    fn of(process: Process, registries: &mut Registries) -> Self {
        let name = format!("{} (pid {})", process.name(), process.pid);
        let exe = process.directory.join("exe");
        let kind = match process.mapped() {
            None => Kind::Unknown,
            Some(mapped) if !mapped.library && mapped.registry.is_none() => {
                Kind::Plain(executable::obstacle_in(&exe).map(|it| it.to_string()))
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
        }
    }

    fn machine(namespaces: &[&[TcpConnection]]) -> Machine {
        let mut machine = Machine::default();
        for (number, ends) in namespaces.iter().enumerate() {
            let table = machine.tables.entry(number as u64).or_default();
            ends.iter().for_each(|end| table.add(*end));
        }
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
}
