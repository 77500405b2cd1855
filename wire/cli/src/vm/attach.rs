//! `seekwire vm attach`: makes this machine ready to use its links.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use seekwire_link::{Access, Attached, Definition, Link};

use super::map_file::{find, read_map};
use super::output::say;
use crate::arguments::VmAttach;

/// Attaches the links that are named, or all. A failure does not keep the others from being
/// attached.
///
/// # Errors
///
/// The map cannot be understood, or has no such link; there is no such group.
pub(super) fn attach(options: &VmAttach) -> Result<ExitCode> {
    let (path, map) = read_map()?;
    let named = options.names.iter().map(|name| find(&map, &path, name));
    let links: Vec<&Definition> = if options.names.is_empty() {
        map.links().iter().collect()
    } else {
        named.collect::<Result<_>>()?
    };
    let group = options.group.as_deref().map(group).transpose()?;
    if links.is_empty() {
        say(format_args!("{} defines no links: nothing to attach", path.display()));
    }
    let mut status = ExitCode::SUCCESS;
    for link in links {
        match Link::attach(link, map.state(), Access { mode: options.mode, group }) {
            Ok(Attached::Already) => say(format_args!("{}: was attached already", link.name)),
            Ok(Attached::Anew) => say(format_args!("{}: attached", link.name)),
            Err(error) => {
                seekwire_program::tell(format_args!("seekwire: {error}"));
                status = ExitCode::FAILURE;
            }
        }
    }
    Ok(status)
}

/// The number of a group.
pub(super) fn group(name: &str) -> Result<u32> {
    const FILE: &str = "/etc/group";
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(FILE).with_context(|| format!("cannot read {FILE}"))?;
    number(&text, name).ok_or_else(|| {
        anyhow!("there is no group {name:?} in {FILE}; one from elsewhere goes by its number")
    })
}

/// The number from a line `name:password:number:members` (group(5)).
fn number(text: &str, name: &str) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.first() == Some(&name))?;
    line.get(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_by_name_or_number() {
        let text = "root:x:0:\nkvm:x:104:libvirt-qemu\nkvm2:x:105:\n";
        assert_eq!(number(text, "kvm"), Some(104));
        assert_eq!(number(text, "libvirt-qemu"), None);
        assert_eq!(number(text, ""), None);
        assert_eq!(group("4711").unwrap(), 4711);
        let error = group("no-such-group-here").unwrap_err().to_string();
        assert!(error.contains("no-such-group-here") && error.contains("number"), "{error}");
    }
}
