//! `seekwire vm status`: the links of this machine, and what they carry.

use anyhow::Result;
use seekwire_program::table::{self, Align};

use super::map_file::read_map;
use super::output::print;
use super::state::{self, LinkState, Share, Standing, UnreadConnection, User, Users};
use crate::arguments::VmStatus;

/// Prints a line for each link of the map.
///
/// # Errors
///
/// The map cannot be understood; standard output cannot be written.
pub(super) fn status(options: &VmStatus) -> Result<()> {
    let (path, map) = read_map()?;
    let states = state::all(&map);
    let text = if options.json {
        serde_json::to_string(&states)? + "\n"
    } else if states.is_empty() {
        let path = table::printable(&path.display().to_string());
        format!("No links: {path} does not exist, or defines none.\n")
    } else {
        render(&states)
    };
    print(&text)
}

fn render(states: &[LinkState]) -> String {
    const COLUMNS: [(&str, Align); 10] = [
        ("LINK", Align::Left),
        ("REGION", Align::Left),
        ("SIZE", Align::Right),
        ("SIDE", Align::Left),
        ("STATE", Align::Left),
        ("OTHER END", Align::Left),
        ("AGENT", Align::Left),
        ("CONNECTIONS", Align::Right),
        ("OWN HALF", Align::Left),
        ("UNREAD", Align::Right),
    ];
    let rows: Vec<Vec<String>> = states.iter().map(row).collect();
    let mut text = table::layout(&COLUMNS, &rows);
    for state in states {
        let of = table::printable(&state.link);
        // The table shows links that are detached or not attached.
        if let (Standing::Unusable, Some(problem)) = (state.standing, &state.problem) {
            text.push_str(&format!("{of}: {}\n", table::printable(problem)));
        }
        let unread = state.unread.as_deref().unwrap_or_default();
        let listed = state.processes.clone().unwrap_or_default();
        let users = Users { listed, are_there: state.in_use == Some(true) };
        if state.standing == Standing::Unusable && state.in_use.is_none() {
            text.push_str(&format!("{of}: which processes have it mapped is unknown\n"));
        }
        for line in left(unread, &users) {
            text.push_str(&format!("{of}: {line}\n"));
        }
    }
    text
}

fn row(state: &LinkState) -> Vec<String> {
    const UNKNOWN: &str = "-";
    let share = |share: Option<Share>, shown: fn(u64) -> String| {
        share.map_or(UNKNOWN.to_owned(), |Share { used, most }| {
            format!("{} of {}", shown(used), shown(most))
        })
    };
    let unread = state
        .unread
        .as_ref()
        .map(|all| all.iter().fold(0, |sum: u64, one| sum.saturating_add(one.bytes)));
    vec![
        state.link.clone(),
        format!("{} {}", state.provider, state.place),
        state.length.map_or(UNKNOWN.to_owned(), table::bytes),
        state.side.clone(),
        state.standing.word().to_owned(),
        state.peer.map_or(UNKNOWN, Standing::word).to_owned(),
        state.agent.map_or(UNKNOWN, |runs| if runs { "runs" } else { "none" }).to_owned(),
        share(state.entries, |count| count.to_string()),
        share(state.bytes, table::bytes),
        unread.map_or(UNKNOWN.to_owned(), table::bytes),
    ]
}

/// The obstacles to removing a region: a line for each connection with bytes there, and one for the
/// processes.
pub(super) fn left(unread: &[UnreadConnection], users: &Users) -> Vec<String> {
    let mut lines: Vec<String> = unread
        .iter()
        .map(|UnreadConnection { local, peer, bytes }| {
            format!("{} not received yet of {local} <-> {peer}", table::bytes(*bytes))
        })
        .collect();
    if !users.listed.is_empty() {
        let user = |user: &User| match user.program.as_str() {
            "" => user.pid.to_string(),
            name => format!("{} ({})", user.pid, table::printable(name)),
        };
        let listed: Vec<String> = users.listed.iter().map(user).collect();
        lines.push(format!("mapped by {}", listed.join(", ")));
    } else if users.are_there {
        lines.push("mapped by processes that only root can see".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::state::OtherAgent;

    fn state() -> LinkState {
        LinkState {
            link: "db-web".to_owned(),
            provider: "file",
            place: "/dev/shm/db-web".to_owned(),
            side: "first".to_owned(),
            addresses: vec!["10.0.0.2".parse().unwrap()],
            by_agent: vec!["10.0.0.3".parse().unwrap()],
            standing: Standing::Attached,
            problem: None,
            length: Some(256 << 20),
            peer: Some(Standing::NotAttached),
            agent: Some(true),
            other_agent: Some(OtherAgent { port: 967, addresses: Vec::new() }),
            entries: Some(Share { used: 2, most: 2048 }),
            bytes: Some(Share { used: 4 << 20, most: 127 << 20 }),
            unread: Some(vec![UnreadConnection {
                local: "10.0.0.1:80".parse().unwrap(),
                peer: "10.0.0.2:50000".parse().unwrap(),
                bytes: 1536,
            }]),
            processes: Some(vec![User { pid: 7, program: "redis-server".to_owned() }]),
            in_use: Some(true),
        }
    }

    #[test]
    fn a_table_shows_what_each_link_carries_and_what_is_left_there() {
        let text = render(&[state()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].contains("256 MiB  first  attached  not attached  runs "), "{text}");
        assert!(lines[1].ends_with(" 2 of 2048  4.0 MiB of 127 MiB  1.5 KiB"), "{text}");
        assert_eq!(lines[2], "db-web: 1.5 KiB not received yet of 10.0.0.1:80 <-> 10.0.0.2:50000");
        assert_eq!(lines[3], "db-web: mapped by 7 (redis-server)");
        let unseen = LinkState { processes: Some(Vec::new()), ..state() };
        assert!(
            render(&[unseen]).ends_with("db-web: mapped by processes that only root can see\n")
        );
    }

    #[test]
    fn what_is_unknown_is_a_dash_and_a_problem_is_told() {
        let unusable = LinkState {
            standing: Standing::Unusable,
            problem: Some("no such device".to_owned()),
            length: None,
            peer: None,
            agent: None,
            other_agent: None,
            entries: None,
            bytes: None,
            unread: None,
            processes: None,
            in_use: None,
            ..state()
        };
        let text = render(&[unusable]);
        let expected =
            "\ndb-web: no such device\ndb-web: which processes have it mapped is unknown\n";
        assert!(text.ends_with(expected), "{text}");
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells[3..], ["-", "first", "unusable", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn json_has_exact_numbers_and_words() {
        let json = serde_json::to_value(state()).unwrap();
        assert_eq!(json["where"], "/dev/shm/db-web");
        assert_eq!(json["state"], "attached");
        assert_eq!(json["by_agent"], serde_json::json!(["10.0.0.3"]));
        assert_eq!((&json["agent"], &json["other_agent"]["port"]), (&true.into(), &967.into()));
        assert_eq!(json["bytes"]["most"], 127 << 20);
        assert_eq!(json["unread"][0]["bytes"], 1536);
        assert!(json["problem"].is_null());
    }
}
