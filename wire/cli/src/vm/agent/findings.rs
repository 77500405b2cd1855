//! The proved addresses of all links: which link each belongs to, and the files in which programs
//! find them.
//!
//! The administrator's map takes precedence. An address that leads to the machines at the other
//! ends of two links belongs to neither: bytes sent to it reach now one and now the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use seekwire_link::{Definition, Map, Peers};

use super::log;

/// The proved addresses, and the contents of the files.
pub(super) struct Findings {
    map: Map,
    state: PathBuf,
    proved: BTreeMap<String, Peers>,
    /// Content of the file of each link; `None` if the file was removed.
    written: BTreeMap<String, Option<Peers>>,
    /// The ambiguous addresses that were reported.
    ambiguous: BTreeSet<IpAddr>,
    is_over: bool,
}

impl Findings {
    pub(super) fn new(map: Map) -> Self {
        let state = map.state().to_owned();
        Self {
            map,
            state,
            proved: BTreeMap::new(),
            written: BTreeMap::new(),
            ambiguous: BTreeSet::new(),
            is_over: false,
        }
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// Uses this map from now on; it has the same state directory.
    pub(super) fn follow(&mut self, map: Map) {
        let old = std::mem::replace(&mut self.map, map);
        for link in old.links() {
            if self.map.get(&link.name) == Some(link) {
                continue;
            }
            self.proved.remove(&link.name);
            self.write(link, None);
            self.written.remove(&link.name);
        }
        self.settle();
    }

    /// Whether the administrator's map assigns an address to a link.
    pub(super) fn is_in_map(&self, address: IpAddr) -> bool {
        self.map.of_address(address).is_some()
    }

    /// Sets the proved addresses of a link; `None` if it is not in use.
    pub(super) fn set(&mut self, name: &str, peers: Option<Peers>) {
        if self.proved.get(name) == peers.as_ref() && self.written.contains_key(name) {
            return;
        }
        match peers {
            Some(peers) => _ = self.proved.insert(name.to_owned(), peers),
            None => _ = self.proved.remove(name),
        }
        self.settle();
    }

    /// Removes all files, for good.
    pub(super) fn end(&mut self) {
        self.proved.clear();
        self.settle();
        self.is_over = true;
    }

    /// Addresses that lead to more than one machine.
    fn ambiguous(&self) -> BTreeSet<IpAddr> {
        let mut seen = BTreeSet::new();
        let all = self.proved.values().flat_map(|peers| &peers.addresses);
        all.filter(|address| !seen.insert(**address)).copied().collect()
    }

    /// The content that the file of a link should have.
    fn of(&self, name: &str, ambiguous: &BTreeSet<IpAddr>) -> Option<Peers> {
        let proved = self.proved.get(name)?;
        let is_theirs =
            |address: &&IpAddr| !self.is_in_map(**address) && !ambiguous.contains(address);
        let addresses = proved.addresses.iter().filter(is_theirs).copied().collect();
        Some(Peers { addresses, ..*proved })
    }

    /// Writes the files whose content has changed.
    fn settle(&mut self) {
        let ambiguous = self.ambiguous();
        for address in ambiguous.difference(&self.ambiguous) {
            // Charged to the budget of one of the two links: their machines can cause this message.
            let mut proved = self.proved.iter();
            let of = proved.find(|(_, peers)| peers.addresses.contains(address));
            log::complain(
                of.map(|(name, _)| name.as_str()),
                format_args!(
                    "{address} leads to the machines at the other ends of two links: it is used \
                     for neither; seekwire vm map add {address} LINK decides it"
                ),
            );
        }
        let links = self.map.links().to_vec();
        for link in &links {
            let wanted = self.of(&link.name, &ambiguous);
            let wanted = wanted.filter(|peers| !peers.addresses.is_empty());
            if self.written.get(&link.name) != Some(&wanted) {
                self.write(link, wanted);
            }
        }
        self.ambiguous = ambiguous;
    }

    fn write(&mut self, link: &Definition, peers: Option<Peers>) {
        if self.is_over {
            return;
        }
        let done = match &peers {
            Some(peers) => peers.write(link, &self.state),
            None => Peers::remove(link, &self.state),
        };
        match done {
            Ok(()) => _ = self.written.insert(link.name.clone(), peers),
            Err(error) => {
                // Tried again with the next question. Without the removal, programs would believe
                // the old content until then.
                let _ = Peers::remove(link, &self.state);
                self.written.remove(&link.name);
                let path = Peers::path(link, &self.state);
                log::complain(Some(&link.name), format_args!("{}: {error}", path.display()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn map(state: &Path, addresses: &str) -> Map {
        Map::parse(&format!(
            "link a file /a first\nlink b file /b first\nstate {}\n{addresses}",
            state.display()
        ))
        .unwrap()
    }

    fn peers(addresses: &[&str]) -> Option<Peers> {
        Some(Peers { own: 1, peer: 2, addresses: addresses.iter().map(|text| ip(text)).collect() })
    }

    /// The addresses that programs read.
    fn read(findings: &Findings, name: &str) -> Vec<IpAddr> {
        let link = findings.map.get(name).unwrap();
        Peers::read(link, findings.state()).map(|peers| peers.addresses).unwrap_or_default()
    }

    #[test]
    fn what_the_administrator_says_wins() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        let mut findings = Findings::new(map(state, "10.0.0.2 b\n"));
        findings.set("a", peers(&["10.0.0.2", "10.0.0.3"]));
        assert_eq!(read(&findings, "a"), [ip("10.0.0.3")]);
        findings.follow(map(state, "10.0.0.3 b\n"));
        assert_eq!(read(&findings, "a"), [ip("10.0.0.2")]);
        findings.follow(map(state, "10.0.0.3 b\n10.0.0.2 a\n"));
        assert_eq!(read(&findings, "a"), [] as [IpAddr; 0]);
    }

    #[test]
    fn what_leads_to_two_machines_belongs_to_neither_until_one_stops() {
        let directory = tempfile::tempdir().unwrap();
        let mut findings = Findings::new(map(directory.path(), ""));
        findings.set("a", peers(&["10.0.0.2", "10.0.0.3"]));
        findings.set("b", peers(&["10.0.0.2"]));
        assert_eq!(read(&findings, "a"), [ip("10.0.0.3")]);
        assert_eq!(read(&findings, "b"), [] as [IpAddr; 0]);
        findings.set("a", None);
        assert_eq!(read(&findings, "a"), [] as [IpAddr; 0]);
        assert_eq!(read(&findings, "b"), [ip("10.0.0.2")]);
    }

    #[test]
    fn what_was_left_by_a_dead_agent_goes_and_nothing_comes_after_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let map = map(directory.path(), "");
        let left = peers(&["10.0.0.9"]).unwrap();
        left.write(map.get("a").unwrap(), directory.path()).unwrap();
        let mut findings = Findings::new(map);
        findings.set("a", None);
        assert_eq!(read(&findings, "a"), [] as [IpAddr; 0]);
        findings.set("a", peers(&["10.0.0.2"]));
        findings.end();
        assert_eq!(read(&findings, "a"), [] as [IpAddr; 0]);
        findings.set("a", peers(&["10.0.0.2"]));
        assert_eq!(read(&findings, "a"), [] as [IpAddr; 0]);
    }

    #[test]
    fn a_file_that_could_not_be_written_is_written_when_its_addresses_are_set_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let mut findings = Findings::new(map(&state, ""));
        findings.set("a", peers(&["10.0.0.2"]));
        assert_eq!(read(&findings, "a"), [] as [IpAddr; 0]);
        std::fs::create_dir(&state).unwrap();
        findings.set("a", peers(&["10.0.0.2"]));
        assert_eq!(read(&findings, "a"), [ip("10.0.0.2")]);
    }

    #[test]
    fn a_link_that_the_map_has_no_more_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut findings = Findings::new(map(directory.path(), ""));
        findings.set("a", peers(&["10.0.0.2"]));
        let path = Peers::path(findings.map.get("a").unwrap(), directory.path());
        assert!(path.exists());
        let text = format!("link b file /b first\nstate {}\n", directory.path().display());
        findings.follow(Map::parse(&text).unwrap());
        assert!(!path.exists());
    }
}
