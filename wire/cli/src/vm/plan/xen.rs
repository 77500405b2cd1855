//! The plan for domains of Xen's: the number of pages they may grant and map, the number of event
//! channels they may have, and their maps.
//!
//! Xen keeps 8 bytes for each page that a domain grants, and 16 for each mapping of a page in
//! another domain, in frames of 4096 bytes; both have limits (`gnttab_max_frames` and
//! `gnttab_max_maptrack_frames` in xen-command-line, `max_grant_frames` and `max_maptrack_frames`
//! in xl.cfg(5)). Each connection over a link has an event channel, of which a domain has 1023 by
//! default (`max_event_channels`).

use std::ops::RangeInclusive;

use seekwire_link::Layout;

use super::pairs::{Pair, of_machine};

/// Permitted sizes of a region.
pub(super) const SIZES: RangeInclusive<u64> = 1 << 20..=256 << 20;

const PAGE: u64 = 4096;
/// References to pages that a page holds.
const PER_LIST: u64 = 1024;
/// Grants, and mappings, that one frame holds.
const GRANTS: u64 = 512;
const MAPPINGS: u64 = 256;
/// Frames for the grants of a domain's own devices.
const DEVICES: u64 = 32;
/// Xen's default limits for a domain.
const GRANT_FRAMES: u64 = 64;
const MAPPING_FRAMES: u64 = 1024;
const EVENT_CHANNELS: u64 = 1023;
/// Programs that have a region mapped at a time in the machine that does not own it. A page is
/// mapped twice for each where the kernel is paravirtual.
const PROGRAMS: u64 = 16;
const TWICE: u64 = 2;

/// The resources that a machine needs to grant and map regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Needs {
    pages: u64,
    grant_frames: u64,
    mapping_frames: u64,
    event_channels: u64,
}

fn needs(pairs: &[Pair], machine: usize, size: u64) -> Needs {
    let pages = size / PAGE;
    let connections = Layout::of(size).map_or(0, |layout| layout.entries() as u64);
    let (mut granted, mut mapped, mut channels) = (0, 0, EVENT_CHANNELS);
    for (pair, _) in of_machine(pairs, machine) {
        channels += connections;
        if machine == pair.first {
            granted += pages + pages.div_ceil(PER_LIST) + 1;
        } else {
            mapped += pages * TWICE * PROGRAMS;
        }
    }
    Needs {
        pages: granted,
        grant_frames: (granted.div_ceil(GRANTS) + DEVICES).max(GRANT_FRAMES),
        mapping_frames: mapped.div_ceil(MAPPINGS).max(MAPPING_FRAMES),
        event_channels: channels,
    }
}

pub(super) fn render(names: &[String], pairs: &[Pair], size: u64) -> String {
    let all: Vec<Needs> = (0..names.len()).map(|machine| needs(pairs, machine, size)).collect();
    let most = |of: fn(&Needs) -> u64| all.iter().map(of).max().unwrap_or_default();
    let mut text = format!(
        "# On the host: Xen allows domains as much as below when it is started with\n\
         # gnttab_max_frames={} gnttab_max_maptrack_frames={}\n",
        most(|needs| needs.grant_frames),
        most(|needs| needs.mapping_frames)
    );
    for (needs, name) in all.iter().zip(names) {
        text.push_str(&format!(
            "\n# For the machine {name}: in the configuration of its domain (xl.cfg(5))\n\
             max_grant_frames = {}\nmax_maptrack_frames = {}\nmax_event_channels = {}\n",
            needs.grant_frames, needs.mapping_frames, needs.event_channels
        ));
    }
    for (machine, needs) in all.iter().enumerate() {
        let name = &names[machine];
        let links = || of_machine(pairs, machine).map(|(pair, _)| pair);
        if needs.pages > 0 {
            text.push_str(&format!(
                "\n# In the machine {name}: /etc/modprobe.d/seekwire.conf\n\
                 options xen-gntalloc limit={}\n",
                needs.pages
            ));
        }
        text.push_str(&format!("\n# In the machine {name}: /etc/seekwire/links\n"));
        for pair in links() {
            let (link, side) = (&pair.link, pair.side(machine).unwrap_or_default());
            let other = &names[pair.other(machine)];
            text.push_str(&format!(
                "link  {link}  xen  DOMAIN-OF-{other}/{}M  {side}\n\
                 # here, for each address of {other}:  ADDRESS  {link}\n",
                size >> 20
            ));
        }
        text.push_str(&format!(
            "\n# In the machine {name}, after each start of it; what stays has a terminal or a unit of its own\n"
        ));
        for pair in links() {
            text.push_str(&match machine == pair.first {
                true => {
                    format!(
                        "sudo modprobe -a xen-gntalloc xen-evtchn; sudo seekwire vm hold {} --group GROUP  # stays\n",
                        pair.link
                    )
                }
                false => format!(
                    "sudo modprobe -a xen-gntdev xen-evtchn; sudo seekwire vm attach {} --group GROUP  # when {} holds it\n",
                    pair.link, names[pair.first]
                ),
            });
        }
    }
    text.push_str(
        "\n# GROUP: the group of the users whose programs use the links. Whoever may open /dev/xen/gntdev can map\n\
         # all that any domain grants to that machine: without --group, only programs of root use the links.\n",
    );
    text.push_str(
        "\n# The number of a domain is another one after each start of it. On the host:\n",
    );
    for name in names {
        text.push_str(&format!(
            "xl domid {name}  # for DOMAIN-OF-{name} in the maps of the others\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use seekwire_link::{Map, Provider, Side};

    use super::super::pairs::pairs;
    use super::*;

    fn planned(line: &str, size: u64) -> String {
        let names: Vec<String> = line.split(' ').map(str::to_owned).collect();
        render(&names, &pairs(&names).unwrap(), size)
    }

    #[test]
    fn the_maps_of_both_machines_need_only_the_numbers_of_domains() {
        let plan = planned("db web cache", 64 << 20);
        let sides: Vec<Side> = ["db", "web"]
            .into_iter()
            .map(|name| {
                let title = format!("# In the machine {name}: /etc/seekwire/links\n");
                let text = plan.split(&title).nth(1).unwrap().split("\n\n").next().unwrap();
                let numbers = [("db", "1"), ("web", "2"), ("cache", "3")];
                let text = numbers.iter().fold(text.to_owned(), |text, (name, number)| {
                    text.replace(&format!("DOMAIN-OF-{name}"), number)
                });
                let map = Map::parse(&text).unwrap();
                assert_eq!(map.links().len(), 2, "{text}");
                let link = map.get("db-web").unwrap();
                let other = if name == "db" { 2 } else { 1 };
                assert_eq!(link.provider, Provider::Xen { domain: other, length: 64 << 20 });
                link.side
            })
            .collect();
        assert_eq!(sides, [Side::First, Side::Second]);
        assert!(plan.contains("sudo seekwire vm hold db-web") && plan.contains("xl domid cache"));
        let attach = "sudo seekwire vm attach db-web --group GROUP  # when db holds it";
        assert!(plan.contains(attach), "{plan}");
    }

    #[test]
    fn limits_are_those_of_all_links_of_a_machine() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let pairs = pairs(&names).unwrap();
        let of = |machine| needs(&pairs, machine, 64 << 20);
        // Two regions of 16384 pages, with 16 lists and a root each: 65 frames of grants.
        // Each region has room for 512 connections.
        let frames = |pages, grant_frames, mapping_frames| Needs {
            pages,
            grant_frames,
            mapping_frames,
            event_channels: 1023 + 2 * 512,
        };
        assert_eq!(of(0), frames(32802, 65 + 32, 1024));
        assert_eq!(of(1), frames(16401, 65, 2048));
        assert_eq!(of(2), frames(0, 64, 4096));
        let plan = planned("a b c", 64 << 20);
        assert!(plan.contains("gnttab_max_frames=97 gnttab_max_maptrack_frames=4096"), "{plan}");
        assert!(plan.contains("options xen-gntalloc limit=32802"), "{plan}");
    }
}
