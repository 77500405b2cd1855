//! Dependences between features, as the kernel enforces them (net/core/dev.c,
//! `netdev_fix_features`).

use std::collections::BTreeMap;

/// Groups of features; at least one of each group is needed.
type Needs = &'static [&'static [&'static str]];

const SEGMENTATION: &[&str] = &["tx-scatter-gather"];
const CHECKSUM_IPV4: &[&str] = &["tx-checksum-ip-generic", "tx-checksum-ipv4"];
const CHECKSUM_IPV6: &[&str] = &["tx-checksum-ip-generic", "tx-checksum-ipv6"];
const CHECKSUM_RECEIVED: &[&str] = &["rx-checksum"];

const NEEDS: &[(&str, Needs)] = &[
    ("tx-tcp-segmentation", &[SEGMENTATION, CHECKSUM_IPV4]),
    ("tx-tcp6-segmentation", &[SEGMENTATION, CHECKSUM_IPV6]),
    ("tx-tcp-ecn-segmentation", &[SEGMENTATION, &["tx-tcp-segmentation", "tx-tcp6-segmentation"]]),
    ("tx-tcp-mangleid-segmentation", &[SEGMENTATION, &["tx-tcp-segmentation"]]),
    ("tx-generic-segmentation", &[SEGMENTATION]),
    ("tx-udp-segmentation", &[CHECKSUM_IPV4, CHECKSUM_IPV6]),
    ("rx-gro-hw", &[CHECKSUM_RECEIVED]),
    ("tls-hw-tx-offload", &[CHECKSUM_IPV4, CHECKSUM_IPV6]),
    ("tls-hw-rx-offload", &[CHECKSUM_RECEIVED]),
];

/// The groups of features that a feature needs.
pub(crate) fn needs(feature: &str) -> Needs {
    NEEDS.iter().find(|(name, _)| *name == feature).map_or(&[], |(_, needs)| needs)
}

/// Length of the longest chain of features that must be on before this one.
pub(crate) fn depth(feature: &str) -> usize {
    needs(feature)
        .iter()
        .flat_map(|group| group.iter())
        .map(|need| 1 + depth(need))
        .max()
        .unwrap_or(0)
}

/// A group that a feature needs and of which none is on.
pub(crate) fn missing(feature: &str, on: impl Fn(&str) -> bool) -> Option<&'static [&'static str]> {
    needs(feature).iter().copied().find(|group| !group.iter().any(|need| on(need)))
}

/// Turns off those of the `wanted` features whose needs are not met.
pub(crate) fn resolve(mut wanted: BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let mut names: Vec<String> = wanted.keys().cloned().collect();
    names.sort_by_key(|name| depth(name));
    for name in names {
        if missing(&name, |need| wanted.get(need) == Some(&true)).is_some() {
            wanted.insert(name, false);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_more_comes_later() {
        assert_eq!(depth("tx-checksum-ip-generic"), 0);
        assert_eq!(depth("tx-generic-segmentation"), 1);
        assert_eq!(depth("tx-tcp-mangleid-segmentation"), 2);
        assert_eq!(depth("never-heard-of"), 0);
    }

    #[test]
    fn a_need_that_goes_takes_the_others_along() {
        let names = [
            "tx-scatter-gather",
            "tx-checksum-ipv4",
            "tx-tcp-segmentation",
            "tx-tcp-mangleid-segmentation",
        ];
        let all = |off: &str| names.iter().map(|name| ((*name).to_owned(), *name != off)).collect();
        let left = |off| {
            resolve(all(off))
                .into_iter()
                .filter_map(|(name, on)| on.then_some(name))
                .collect::<Vec<_>>()
        };
        assert_eq!(left("").len(), 4);
        assert_eq!(left("tx-scatter-gather"), ["tx-checksum-ipv4"]);
        assert_eq!(left("tx-checksum-ipv4"), ["tx-scatter-gather"]);
        assert_eq!(left("tx-tcp-segmentation"), ["tx-checksum-ipv4", "tx-scatter-gather"]);
    }
}
