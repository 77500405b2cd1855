//! `seekwire vm map`: the map of this machine, with what each link means.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use seekwire_link::{Definition, Map};
use seekwire_program::table::{self, Align};

use super::map_file::read_map;
use super::output::print;
use super::state;

/// Prints the map, unless it is only to be checked.
///
/// # Errors
///
/// The map cannot be read or understood; standard output cannot be written.
pub(super) fn show(only_check: bool) -> Result<()> {
    let (path, map) = read_map()?;
    if !only_check {
        let by_agent = |link: &Definition| state::by_agent(link, &map);
        print(&render(&path, &map, by_agent))?;
    }
    Ok(())
}

fn render(path: &Path, map: &Map, by_agent: impl Fn(&Definition) -> Vec<IpAddr>) -> String {
    if map.links().is_empty() {
        let path = table::printable(&path.display().to_string());
        return format!("No links: {path} does not exist, or defines none.\n");
    }
    const COLUMNS: [(&str, Align); 4] = [
        ("LINK", Align::Left),
        ("REGION", Align::Left),
        ("OWN HALF", Align::Left),
        ("THE OTHER MACHINE", Align::Left),
    ];
    let row = |link: &Definition| {
        let written = map.addresses(&link.name).map(|address| address.to_string());
        let proved = by_agent(link).into_iter().map(|address| format!("{address} by agent"));
        let addresses: Vec<String> = written.chain(proved).collect();
        let behind = if addresses.is_empty() {
            "no address: nothing uses this link".to_owned()
        } else {
            addresses.join(", ")
        };
        vec![link.name.clone(), link.provider.to_string(), link.side.to_string(), behind]
    };
    let rows: Vec<Vec<String>> = map.links().iter().map(row).collect();
    table::layout(&COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_without_addresses_is_pointed_out() {
        let map = Map::parse(
            "link db-web ivshmem 0000:00:10.0 first\nlink tests file /dev/shm/tests second\n\
             10.0.0.2 db-web\nfd00::2 db-web\n",
        )
        .unwrap();
        let proved = |link: &Definition| match link.name.as_str() {
            "db-web" => vec!["10.0.0.9".parse().unwrap()],
            _ => Vec::new(),
        };
        let text = render(Path::new("/etc/seekwire/links"), &map, proved);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let row = "ivshmem 0000:00:10.0  first     10.0.0.2, fd00::2, 10.0.0.9 by agent";
        assert!(lines[1].contains(row), "{text}");
        assert!(lines[2].contains("second    no address"), "{text}");
    }

    #[test]
    fn an_empty_map_says_so() {
        let text =
            render(Path::new("/etc/seekwire/links"), &Map::parse("").unwrap(), |_| Vec::new());
        assert_eq!(text, "No links: /etc/seekwire/links does not exist, or defines none.\n");
    }
}
