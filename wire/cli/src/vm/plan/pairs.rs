//! Pairs of machines.

use std::collections::BTreeSet;

/// The longest name that a link may have.
const LONGEST: usize = 32;
/// Slots of a machine's first PCI bus that no default device uses.
const SLOTS: std::ops::RangeInclusive<usize> = 0x10..=0x17;

/// Two machines, and the link between them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) link: String,
}

impl Pair {
    /// The region's file in /dev/shm, and what the machines' programs call it.
    pub(super) fn region(&self) -> String {
        format!("seekwire-{}", self.link)
    }

    /// The side of a machine of this pair.
    pub(super) fn side(&self, machine: usize) -> Option<&'static str> {
        match machine {
            machine if machine == self.first => Some("first"),
            machine if machine == self.second => Some("second"),
            _ => None,
        }
    }

    /// The machine at the other end from one of this pair.
    pub(super) fn other(&self, machine: usize) -> usize {
        if machine == self.first { self.second } else { self.first }
    }
}

/// All pairs of the machines.
pub(super) fn pairs(names: &[String]) -> Result<Vec<Pair>, String> {
    for name in names {
        let is_of_letters =
            name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if name.is_empty() || name.starts_with('-') || !is_of_letters {
            return Err(format!(
                "the name {name:?} cannot be used; names have a-z, 0-9 and -, and do not begin with -"
            ));
        }
    }
    if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return Err("two machines have the same name".to_owned());
    }
    let most = SLOTS.count() + 1;
    if names.len() > most {
        return Err(format!("at most {most} machines can be planned for at a time"));
    }
    let mut pairs = Vec::new();
    for (first, name) in names.iter().enumerate() {
        for (second, other) in names.iter().enumerate().skip(first + 1) {
            pairs.push(Pair { first, second, link: format!("{name}-{other}") });
        }
    }
    if let Some(pair) = pairs.iter().find(|pair| pair.link.len() > LONGEST) {
        let link = &pair.link;
        return Err(format!("{link} is longer than {LONGEST}; choose shorter names"));
    }
    let links: BTreeSet<&str> = pairs.iter().map(|pair| pair.link.as_str()).collect();
    if links.len() < pairs.len() {
        return Err(
            "two pairs of these names have links of the same name; choose others".to_owned()
        );
    }
    Ok(pairs)
}

/// The links of a machine, each with the slot of its device.
pub(super) fn of_machine(pairs: &[Pair], machine: usize) -> impl Iterator<Item = (&Pair, usize)> {
    pairs.iter().filter(move |pair| pair.side(machine).is_some()).zip(SLOTS)
}
