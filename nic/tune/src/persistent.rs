//! Writes what makes settings last. The kernel loses them when the host restarts, so whatever sets
//! up its interfaces has to know them.

use std::collections::BTreeMap;

use seekwire_nic::{Group, Interface, Key, Value};
use serde::Serialize;

use crate::link_file::LinkFile;

/// The same settings in two forms. Neither is installed by anybody but a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lasting {
    /// Commands of ethtool(8), one on a line.
    pub ethtool: String,
    /// A file for /etc/systemd/network, systemd.link(5). What such a file has no word for is in
    /// its comments, as commands.
    pub link: String,
    /// The file that `link` is a drop-in file for; none: it is a file of its own.
    pub drop_in_for: Option<String>,
}

impl Lasting {
    pub(crate) fn of(
        interface: &Interface,
        changes: &BTreeMap<Key, Value>,
        beside: Option<&LinkFile>,
    ) -> Self {
        let drop_in_for = beside.filter(|file| file.is_of_one).map(|file| file.name.clone());
        let link = link(interface, changes, beside);
        Self { ethtool: ethtool(interface, changes), link, drop_in_for }
    }
}

/// One command for each group.
fn ethtool(interface: &Interface, changes: &BTreeMap<Key, Value>) -> String {
    let groups = [
        (Group::PrivateFlag, "--set-priv-flags"),
        (Group::Ring, "-G"),
        (Group::Feature, "-K"),
        (Group::Coalescing, "-C"),
    ];
    let mut commands = String::new();
    for (group, option) in groups {
        let words: Vec<String> = changes
            .iter()
            .filter(|(key, _)| key.group == group)
            .map(|(key, value)| format!(" {} {value}", quoted(&key.name)))
            .collect();
        if !words.is_empty() {
            commands.push_str(&format!(
                "ethtool {option} {}{}\n",
                quoted(&interface.name),
                words.concat()
            ));
        }
    }
    commands
}

/// For a shell. Names of interfaces and private flags may have anything in them.
fn quoted(word: &str) -> String {
    let is_plain =
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// The word of systemd.link(5) for a key, and its value there.
fn entry(key: &Key, value: Value) -> Option<(&'static str, String)> {
    let name = key.name.as_str();
    let word = match key.group {
        Group::Feature => match name {
            "rx-checksum" => "ReceiveChecksumOffload",
            // All of them, whichever protocols they are for.
            _ if name.starts_with("tx-checksum-") => "TransmitChecksumOffload",
            "tx-tcp-segmentation" => "TCPSegmentationOffload",
            "tx-tcp6-segmentation" => "TCP6SegmentationOffload",
            "tx-generic-segmentation" => "GenericSegmentationOffload",
            "rx-gro" => "GenericReceiveOffload",
            "rx-gro-hw" => "GenericReceiveOffloadHardware",
            "rx-lro" => "LargeReceiveOffload",
            _ => return None,
        },
        Group::Coalescing => match name {
            "adaptive-rx" => "UseAdaptiveRxCoalesce",
            "adaptive-tx" => "UseAdaptiveTxCoalesce",
            "rx-usecs" => "RxCoalesceSec",
            "tx-usecs" => "TxCoalesceSec",
            "rx-frames" => "RxMaxCoalescedFrames",
            "tx-frames" => "TxMaxCoalescedFrames",
            _ => return None,
        },
        Group::Ring => match name {
            "rx" => "RxBufferSize",
            "tx" => "TxBufferSize",
            _ => return None,
        },
        Group::PrivateFlag => return None,
    };
    let value = match value {
        Value::Switch(on) => if on { "yes" } else { "no" }.to_owned(),
        Value::Number(number) if word.ends_with("Sec") => format!("{number}us"),
        Value::Number(number) => number.to_string(),
    };
    Some((word, value))
}

fn link(
    interface: &Interface,
    changes: &BTreeMap<Key, Value>,
    beside: Option<&LinkFile>,
) -> String {
    let found_by = match &interface.address {
        Some(address) if interface.has_permanent_address => {
            format!("PermanentMACAddress={address}")
        }
        Some(address) if interface.kind.is_none() => format!("MACAddress={address}"),
        // A virtual one has, when it is made, an address by chance or none of its own, but already
        // its name.
        _ => format!("# The name that it is made with.\nOriginalName={}", interface.name),
    };
    // A VLAN, a bridge or a bond has the address of what it stands on.
    let kind = interface.kind.as_deref().unwrap_or("!*");
    let (mut entries, mut others) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in changes {
        match entry(key, *value) {
            Some((word, value)) => drop(entries.insert(word, value)),
            None => drop(others.insert(key.clone(), *value)),
        }
    }
    let mut text = match beside {
        // The main file has the match.
        Some(file) if file.is_of_one => "[Link]\n".to_owned(),
        _ => format!("[Match]\n{found_by}\nKind={kind}\n\n[Link]\n"),
    };
    if let Some(file) = beside.filter(|file| !file.is_of_one) {
        // Names and addresses stay as they are.
        text.push_str(&format!(
            "# Only the first file that fits counts: these are of {}.\n",
            file.name
        ));
        text.extend(file.link.iter().map(|line| format!("{line}\n")));
    }
    text.push_str("# Found by measuring.\n");
    for (word, value) in entries {
        text.push_str(&format!("{word}={value}\n"));
    }
    if !others.is_empty() {
        text.push_str("# systemd has no words for:\n");
        text.extend(ethtool(interface, &others).lines().map(|line| format!("#   {line}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use seekwire_nic::Setting;

    use super::*;
    use crate::candidate::tests::sample;
    use crate::link_file::tests::reported;

    fn lasting(interface: &Interface, settings: &[&str]) -> Lasting {
        lasting_beside(interface, settings, None)
    }

    fn lasting_beside(
        interface: &Interface,
        settings: &[&str],
        beside: Option<&LinkFile>,
    ) -> Lasting {
        let changes = settings.iter().map(|text| {
            let setting: Setting = text.parse().unwrap();
            (setting.key, setting.value)
        });
        Lasting::of(interface, &changes.collect(), beside)
    }

    const ALL: [&str; 7] = [
        "rx-gro=off",
        "tx-scatter-gather=off",
        "tx-checksum-ip-generic=off",
        "coalesce.rx-usecs=0",
        "coalesce.adaptive-rx=off",
        "ring.rx=4096",
        "private.a flag's=on",
    ];

    #[test]
    fn commands_are_those_of_a_shell() {
        assert_eq!(
            lasting(&sample(), &ALL).ethtool,
            "ethtool --set-priv-flags eth7 'a flag'\\''s' on\n\
             ethtool -G eth7 rx 4096\n\
             ethtool -K eth7 rx-gro off tx-checksum-ip-generic off tx-scatter-gather off\n\
             ethtool -C eth7 adaptive-rx off rx-usecs 0\n"
        );
        let odd = Interface { name: "a;b".to_owned(), ..sample() };
        assert_eq!(lasting(&odd, &["gro=on"]).ethtool, "ethtool -K 'a;b' gro on\n");
    }

    #[test]
    fn a_link_file_says_what_it_can_and_the_rest_in_comments() {
        assert_eq!(
            lasting(&sample(), &ALL).link,
            "[Match]\nPermanentMACAddress=02:00:00:00:00:07\nKind=!*\n\n[Link]\n\
             # Found by measuring.\n\
             GenericReceiveOffload=no\nRxBufferSize=4096\nRxCoalesceSec=0us\n\
             TransmitChecksumOffload=no\nUseAdaptiveRxCoalesce=no\n\
             # systemd has no words for:\n\
             #   ethtool --set-priv-flags eth7 'a flag'\\''s' on\n\
             #   ethtool -K eth7 tx-scatter-gather off\n"
        );
    }

    #[test]
    fn a_link_file_leaves_the_name_to_the_one_that_it_replaces_or_adds_to() {
        let usb = "[Match]\nProperty=*ID_BUS=usb\n\n[Link]\nNamePolicy=mac\n";
        let usb = reported("73-usb-net-by-mac.link", usb, "");
        let own = lasting_beside(&sample(), &["rx-gro=off"], Some(&usb));
        assert_eq!(
            own.link,
            "[Match]\nPermanentMACAddress=02:00:00:00:00:07\nKind=!*\n\n[Link]\n\
             # Only the first file that fits counts: these are of 73-usb-net-by-mac.link.\n\
             NamePolicy=mac\n# Found by measuring.\nGenericReceiveOffload=no\n"
        );
        assert_eq!(own.drop_in_for, None);
        let netplan = "[Match]\nMACAddress=02:00:00:00:00:07\n\n[Link]\nName=lan\n";
        let netplan = reported("10-netplan-lan.link", netplan, "");
        let added = lasting_beside(&sample(), &["rx-gro=off"], Some(&netplan));
        assert_eq!(added.link, "[Link]\n# Found by measuring.\nGenericReceiveOffload=no\n");
        assert_eq!(added.drop_in_for.as_deref(), Some("10-netplan-lan.link"));
    }

    #[test]
    fn a_link_file_fits_nothing_that_has_borrowed_the_address() {
        let matches = |interface: &Interface| {
            let link = lasting(interface, &["rx-gro=on"]).link;
            let lines = link.lines().skip(1).take_while(|line| !line.is_empty());
            lines.filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
        };
        let unsure = Interface { has_permanent_address: false, ..sample() };
        assert_eq!(matches(&unsure), "MACAddress=02:00:00:00:00:07 Kind=!*");
        let on_top = Interface { kind: Some("vlan".to_owned()), ..unsure };
        assert_eq!(matches(&on_top), "OriginalName=eth7 Kind=vlan");
        let without = Interface { address: None, ..sample() };
        assert_eq!(matches(&without), "OriginalName=eth7 Kind=!*");
    }
}
