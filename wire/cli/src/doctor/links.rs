//! `seekwire doctor` on the memory that this machine shares with others: the map, and each link.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use seekwire_link::{Map, try_channels};
use seekwire_program::table;

use super::finding::Finding;
use crate::vm::state::{self, LinkState, OtherAgent, Standing};

const MAP: &str = "links";
const LINK: &str = "link";
/// Advice when no better one is known.
const STAYS: &str = "until it can be used, its connections stay on TCP";

/// One finding for each link; none if this machine has no map.
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
    let by_agent: usize = judged.iter().map(|state| state.by_agent.len()).sum();
    let found = match by_agent {
        0 => found,
        _ => format!("{found}, and {by_agent} by agent"),
    };
    std::iter::once(Finding::ok(MAP, found)).chain(judged.iter().map(judge)).collect()
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The finding on one link: the obstacle that keeps connections from it, or none.
fn judge(state: &LinkState) -> Finding {
    let LinkState { link, provider, place, .. } = state;
    let warn =
        |found: String, advice: String| Finding::warn(LINK, format!("{link}: {found}"), advice);
    let attach = format!("sudo seekwire vm attach {link}");
    match state.standing {
        Standing::Unusable => {
            // Error messages have the advice after a semicolon.
            let problem = state.problem.as_deref().unwrap_or_default();
            let problem = problem.strip_prefix(&format!("link {link}: ")).unwrap_or(problem);
            let (found, advice) = problem.split_once("; ").unwrap_or((problem, STAYS));
            return warn(found.to_owned(), advice.to_owned());
        }
        Standing::NotAttached => {
            let advice =
                format!("{attach} (wire/docs/virtual-machines.md: at each start of the machine)");
            return warn("this machine is not attached".to_owned(), advice);
        }
        Standing::Detached => {
            let advice = format!("to use it again: {attach}");
            return warn("detached, its connections stay on TCP".to_owned(), advice);
        }
        Standing::Attached | Standing::OtherVersion => {}
    }
    if let Some(own) = state.addresses.iter().find(|address| is_own(**address)) {
        return warn(
            format!("{own} is an address of this machine"),
            format!(
                "the map names the addresses of the other machine: sudo seekwire vm map remove {own}"
            ),
        );
    }
    if state.peer == Some(Standing::Detached) {
        return warn(
            "the machine at the other end has detached, its connections stay on TCP".to_owned(),
            format!("when it is to be used again: {attach}, there"),
        );
    }
    if state.peer == Some(Standing::OtherVersion) {
        return warn(
            "the machine at the other end has attached with another version of Seekwire".to_owned(),
            format!("install the same version in both, and then in both: {attach}"),
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
    if state.addresses.is_empty() && state.by_agent.is_empty() {
        let (found, advice) = without_address(state);
        return warn(found, advice);
    }
    if *provider == "xen" {
        if let Err(error) = try_channels() {
            let (found, advice) = without_channels(link, &error);
            return warn(found, advice);
        }
    }
    let length = state.length.map(table::bytes).unwrap_or_default();
    Finding::ok(LINK, format!("{link}: {provider} {place}, {length}, attached at both ends"))
}

/// The reason why programs in two domains wake each other more slowly than they could, and advice.
fn without_channels(link: &str, error: &io::Error) -> (String, String) {
    let (why, advice) = match error.kind() {
        ErrorKind::NotFound => {
            ("there is no /dev/xen/evtchn".to_owned(), "sudo modprobe xen-evtchn".to_owned())
        }
        ErrorKind::PermissionDenied => (
            "this user may not open /dev/xen/evtchn".to_owned(),
            format!("sudo seekwire vm attach {link} --group GROUP, a group of this user's"),
        ),
        _ => {
            (format!("/dev/xen/evtchn: {error}"), "look at the log of this machine's kernel".into())
        }
    };
    (format!("attached at both ends, but wake-ups go by TCP, which takes longer: {why}"), advice)
}

/// The reason why a link that is attached at both ends has no addresses, and advice.
fn without_address(state: &LinkState) -> (String, String) {
    let add = format!(
        "sudo seekwire vm map add ADDRESS {}, for each address of the other machine",
        state.link
    );
    if state.agent != Some(true) {
        return (
            "attached, but it has no addresses, and no agent finds them".to_owned(),
            format!("sudo seekwire vm agent, in both machines; or {add}"),
        );
    }
    let Some(OtherAgent { port, addresses }) = &state.other_agent else {
        return (
            "it has no addresses: the machine at the other end has no agent".to_owned(),
            format!("sudo seekwire vm agent, there; or {add}"),
        );
    };
    let others: Vec<IpAddr> = addresses.iter().copied().filter(|it| !is_own(*it)).collect();
    if others.is_empty() {
        return (
            "it has no addresses: the agent at the other end lists none that this machine does \
             not have itself"
                .to_owned(),
            format!("give the agent there one, with --address; or {add}"),
        );
    }
    let shown: Vec<String> = others.iter().take(LOOKED_AT).map(IpAddr::to_string).collect();
    let shown = shown.join(", ");
    if others.iter().take(LOOKED_AT).any(|address| is_reached(*address, *port)) {
        return (
            format!("it has no addresses: none of {shown} leads to the machine at the other end"),
            format!(
                "the agent reports the reason on its standard output each time it changes; \
                 both maps must have the same name for the link; through an address translation no link \
                 can be used; else {add}"
            ),
        );
    }
    (
        format!(
            "it has no addresses: the agent at the other end is not reached at port {port} of \
             {shown}"
        ),
        format!(
            "let the port pass the firewalls (--port of seekwire vm agent, there, gives another \
             one), or correct the routes; or {add}"
        ),
    )
}

/// Number of addresses of the other machine that are tried.
const LOOKED_AT: usize = 4;

/// Whether a process listens there.
fn is_reached(address: IpAddr, port: u16) -> bool {
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
    TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT).is_ok()
}

/// Whether the kernel would deliver packets for this address to itself.
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
    use crate::doctor::finding::Verdict;

    fn state() -> LinkState {
        LinkState {
            link: "db-web".to_owned(),
            provider: "file",
            place: "/dev/shm/db-web".to_owned(),
            side: "first".to_owned(),
            // TEST-NET-2 (RFC 5737): no machine has it.
            addresses: vec!["198.51.100.2".parse().unwrap()],
            by_agent: Vec::new(),
            standing: Standing::Attached,
            problem: None,
            length: Some(256 << 20),
            peer: Some(Standing::Attached),
            agent: Some(false),
            other_agent: None,
            entries: None,
            bytes: None,
            unread: None,
            processes: None,
            in_use: None,
        }
    }

    /// A link with an agent that has found nothing, and with another agent that lists these
    /// addresses.
    fn with_agent(other: Option<&[&str]>) -> LinkState {
        let other_agent = other.map(|addresses| OtherAgent {
            port: 967,
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        });
        LinkState { addresses: Vec::new(), agent: Some(true), other_agent, ..state() }
    }

    #[test]
    fn what_an_agent_has_found_is_enough() {
        let by_agent = vec!["198.51.100.2".parse().unwrap()];
        let found = judge(&LinkState { by_agent, ..with_agent(None) });
        assert_eq!(found.verdict, Verdict::Ok, "{found:?}");
    }

    #[test]
    fn each_obstacle_has_an_advice() {
        let good = judge(&state());
        assert_eq!(good.verdict, Verdict::Ok, "{good:?}");
        assert_eq!(good.found, "db-web: file /dev/shm/db-web, 256 MiB, attached at both ends");
        let own = vec!["127.0.0.1".parse().unwrap()];
        for (bad, found, advice) in [
            (
                LinkState { standing: Standing::NotAttached, ..state() },
                "is not attached",
                "vm attach db-web",
            ),
            (LinkState { standing: Standing::Detached, ..state() }, "detached", "vm attach db-web"),
            (
                LinkState { peer: Some(Standing::OtherVersion), ..state() },
                "another version",
                "the same version in both",
            ),
            (
                LinkState { peer: Some(Standing::NotAttached), ..state() },
                "other end is not",
                "other side than first",
            ),
            (
                LinkState { peer: Some(Standing::Detached), ..state() },
                "other end has detached",
                ", there",
            ),
            (
                LinkState { addresses: Vec::new(), ..state() },
                "no address",
                "vm map add ADDRESS db-web",
            ),
            (LinkState { addresses: Vec::new(), ..state() }, "no agent", "vm agent, in both"),
            (with_agent(None), "other end has no agent", "vm agent, there"),
            (with_agent(Some(&[])), "lists none", "--address"),
            // Of this host, so no other machine is asked.
            (with_agent(Some(&["127.0.0.1"])), "lists none", "--address"),
            (LinkState { addresses: own, ..state() }, "of this machine", "vm map remove 127.0.0.1"),
        ] {
            let judged = judge(&bad);
            assert_eq!(judged.verdict, Verdict::Warn, "{judged:?}");
            assert!(judged.found.contains(found), "{judged:?}");
            assert!(judged.advice.contains(advice), "{judged:?}");
        }
    }
}
