//! `seekwire doctor` on the memory that this machine shares with others: the map, and each link.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

use seekwire_link::Map;
use seekwire_program::table;

use super::Finding;
use crate::vm::state::{self, Standing, State};

const MAP: &str = "links";
const LINK: &str = "link";
/// Where nobody knows better.
const STAYS: &str = "until it can be used, its connections stay on TCP";

/// Nothing where there is no map.
pub(super) fn all() -> Vec<Finding> {
    let path = Map::path();
    let is_missing =
        fs::symlink_metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if is_missing { Vec::new() } else { of_map(&path) }
}

fn of_map(path: &Path) -> Vec<Finding> {
    let map = match Map::read(path) {
        Ok(map) => map,
        Err(error) => {
            let advice = "correct this line, and try seekwire vm map; until then, connections to other \
                          machines stay on TCP";
            return vec![Finding::warn(MAP, error.to_string(), advice)];
        }
    };
    let (links, addresses) =
        (map.links(), map.links().iter().map(|link| map.addresses(&link.name).count()));
    let found = format!(
        "{}: {}, {}",
        path.display(),
        count(links.len(), "link", "links"),
        count(addresses.sum(), "address", "addresses")
    );
    let judged = state::all(&map);
    std::iter::once(Finding::ok(MAP, found)).chain(judged.iter().map(judge)).collect()
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// What keeps connections from a link, or that nothing does.
fn judge(state: &State) -> Finding {
    let State { link, provider, place, .. } = state;
    let warn =
        |found: String, advice: String| Finding::warn(LINK, format!("{link}: {found}"), advice);
    let attach = format!("sudo seekwire vm attach {link}");
    match state.standing {
        Standing::Unusable => {
            // Those who say what is wrong say behind it what to do.
            let problem = state.problem.as_deref().unwrap_or_default();
            let problem = problem.strip_prefix(&format!("link {link}: ")).unwrap_or(problem);
            let (found, advice) = problem.split_once("; ").unwrap_or((problem, STAYS));
            return warn(found.to_owned(), advice.to_owned());
        }
        Standing::NotAttached => {
            let advice =
                format!("{attach} (docs/virtual-machines.md: at each start of the machine)");
            return warn("this machine is not attached".to_owned(), advice);
        }
        Standing::Detached => {
            let advice = format!(
                "to use it again, end what seekwire vm status names here, and then: {attach}"
            );
            return warn("detached, its connections stay on TCP".to_owned(), advice);
        }
        Standing::Attached => {}
    }
    if let Some(own) = state.addresses.iter().find(|address| is_own(**address)) {
        return warn(
            format!("{own} is an address of this machine"),
            format!(
                "the map names the addresses of the other machine: sudo seekwire vm map remove {own}"
            ),
        );
    }
    if state.addresses.is_empty() {
        return warn(
            "attached, but no address is behind it".to_owned(),
            format!(
                "sudo seekwire vm map add ADDRESS {link}, for each address of the other machine"
            ),
        );
    }
    if state.peer == Some(Standing::Detached) {
        return warn(
            "the machine at the other end has detached, its connections stay on TCP".to_owned(),
            format!("when it is to be used again: {attach}, there"),
        );
    }
    if state.peer != Some(Standing::Attached) {
        return warn(
            "attached, but the machine at the other end is not".to_owned(),
            format!(
                "there: {attach}; its map must have the same region, with the other side than {}",
                state.side
            ),
        );
    }
    let length = state.length.map(table::bytes).unwrap_or_default();
    Finding::ok(LINK, format!("{link}: {provider} {place}, {length}, attached at both ends"))
}

/// Whether the kernel would deliver to itself what is sent there.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Discard; nothing is sent.
    const PORT: u16 = 9;
    let attempt = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((address, PORT))?;
        socket.local_addr()
    };
    attempt().is_ok_and(|local| local.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn state() -> State {
        State {
            link: "db-web".to_owned(),
            provider: "file",
            place: "/dev/shm/db-web".to_owned(),
            side: "first".to_owned(),
            // TEST-NET-2 (RFC 5737): of no machine.
            addresses: vec!["198.51.100.2".parse().unwrap()],
            standing: Standing::Attached,
            problem: None,
            length: Some(256 << 20),
            peer: Some(Standing::Attached),
            entries: None,
            bytes: None,
            unread: None,
            processes: None,
            in_use: None,
        }
    }

    #[test]
    fn each_obstacle_has_an_advice() {
        let good = judge(&state());
        assert_eq!(good.verdict, Verdict::Ok, "{good:?}");
        assert_eq!(good.found, "db-web: file /dev/shm/db-web, 256 MiB, attached at both ends");
        let own = vec!["127.0.0.1".parse().unwrap()];
        for (bad, found, advice) in [
            (
                State { standing: Standing::NotAttached, ..state() },
                "is not attached",
                "vm attach db-web",
            ),
            (State { standing: Standing::Detached, ..state() }, "detached", "vm status"),
            (
                State { peer: Some(Standing::NotAttached), ..state() },
                "other end is not",
                "other side than first",
            ),
            (
                State { peer: Some(Standing::Detached), ..state() },
                "other end has detached",
                ", there",
            ),
            (State { addresses: Vec::new(), ..state() }, "no address", "vm map add ADDRESS db-web"),
            (State { addresses: own, ..state() }, "of this machine", "vm map remove 127.0.0.1"),
        ] {
            let judged = judge(&bad);
            assert_eq!(judged.verdict, Verdict::Warn, "{judged:?}");
            assert!(judged.found.contains(found), "{judged:?}");
            assert!(judged.advice.contains(advice), "{judged:?}");
        }
    }
}
