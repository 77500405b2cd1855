//! The file of systemd.link(5) that udev has applied to an interface. Of all such files only the
//! first that fits counts, so further settings go beside that one.

use std::fs;
use std::path::Path;

use seekwire_nic::Interface;

/// Such a file, as udev reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFile {
    /// Without its directory. Files count in the order of these names.
    pub name: String,
    /// Whether it is for this interface and no other one.
    pub is_of_one: bool,
    /// The lines of its sections `[Link]`, with those of its drop-in files.
    pub(crate) link: Vec<String>,
}

impl LinkFile {
    /// A file with these lines in its sections `[Link]`.
    #[must_use]
    pub fn new(name: String, is_of_one: bool, link: Vec<String>) -> Self {
        Self { name, is_of_one, link }
    }

    /// None: udev has applied none, or does not know the interface.
    #[must_use]
    pub fn of(interface: &Interface) -> Option<Self> {
        // udev knows the interfaces of one namespace; elsewhere others have their numbers.
        let namespace = |path| fs::read_link(path).ok();
        let (of_udev, own) = (namespace("/proc/1/ns/net"), namespace("/proc/thread-self/ns/net"));
        if of_udev.is_some() && of_udev != own {
            return None;
        }
        Self::in_database(Path::new("/run/udev/data"), interface)
    }

    fn in_database(directory: &Path, interface: &Interface) -> Option<Self> {
        let entry = fs::read_to_string(directory.join(format!("n{}", interface.index))).ok()?;
        let property = |name: &str| {
            entry
                .lines()
                .find_map(|line| line.strip_prefix("E:")?.strip_prefix(name)?.strip_prefix('='))
        };
        let path = Path::new(property("ID_NET_LINK_FILE")?);
        let name = path.file_name()?.to_str()?.to_owned();
        let text = fs::read_to_string(path).ok()?;
        let more = property("ID_NET_LINK_FILE_DROPINS").unwrap_or_default();
        let more = more.split(':').filter_map(|path| fs::read_to_string(path).ok());
        let texts: Vec<String> = std::iter::once(text).chain(more).collect();
        let lines = |section: &str| -> Vec<String> {
            texts.iter().flat_map(|text| section_of(text, section)).collect()
        };
        let is_of_one = lines("Match").iter().any(|line| names_one(line));
        Some(Self::new(name, is_of_one, lines("Link")))
    }
}

/// The lines of a section, without comments.
fn section_of(text: &str, section: &str) -> Vec<String> {
    let mut is_in = false;
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_in = name == section;
        } else if is_in && !line.is_empty() && !line.starts_with(['#', ';']) {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Whether a line of `[Match]` fits one interface only.
fn names_one(line: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else { return false };
    let value = value.trim();
    let is_one = !value.is_empty() && !value.contains(['*', '?', '[', '!', ' ']);
    is_one && ["MACAddress", "PermanentMACAddress", "OriginalName", "Path"].contains(&key.trim())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::candidate::tests::sample;

    /// A file of that name and content as udev would report it for `sample()`.
    pub(crate) fn reported(name: &str, text: &str, more: &str) -> LinkFile {
        let directory = tempfile::tempdir().unwrap();
        let (path, drop_in) = (directory.path().join(name), directory.path().join("more.conf"));
        fs::write(&path, text).unwrap();
        fs::write(&drop_in, more).unwrap();
        let entry = format!(
            "I:17\nE:ID_NET_DRIVER=sample\nE:ID_NET_LINK_FILE={}\nE:ID_NET_LINK_FILE_DROPINS={}\n",
            path.display(),
            drop_in.display()
        );
        fs::write(directory.path().join(format!("n{}", sample().index)), entry).unwrap();
        LinkFile::in_database(directory.path(), &sample()).unwrap()
    }

    #[test]
    fn a_file_of_one_interface_is_known_from_one_of_many() {
        let netplan = "[Match]\nPermanentMACAddress=02:00:00:00:00:07\n\n[Link]\nName=lan\n";
        let file = reported("10-netplan-lan.link", netplan, "[Link]\n# none\nMTUBytes=9000\n");
        assert_eq!((file.name.as_str(), file.is_of_one), ("10-netplan-lan.link", true));
        assert_eq!(file.link, ["Name=lan", "MTUBytes=9000"]);
        for of_many in ["OriginalName=*", "MACAddress=a b", "Driver=cdc_ncm", "Path=pci-*", "Path="]
        {
            let text = format!("[Match]\n{of_many}\n[Link]\nNamePolicy=mac\n");
            assert!(!reported("73-usb.link", &text, "").is_of_one, "{of_many}");
        }
    }

    #[test]
    fn without_an_entry_there_is_none() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(LinkFile::in_database(directory.path(), &sample()), None);
        fs::write(directory.path().join(format!("n{}", sample().index)), "I:17\n").unwrap();
        assert_eq!(LinkFile::in_database(directory.path(), &sample()), None);
    }
}
