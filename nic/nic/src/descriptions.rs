//! The effect of each setting of an interface on messages, in one line.

/// Feature names as the kernel has them (net/ethtool/common.c, `netdev_features_strings`).
const FEATURES: &[(&str, &str)] = &[
    (
        "rx-checksum",
        "the interface checks TCP and UDP checksums: less CPU for each packet received",
    ),
    (
        "tx-checksum-ip-generic",
        "the interface computes checksums: large messages need not be read once more by the CPU",
    ),
    ("tx-checksum-ipv4", "the interface computes checksums of TCP and UDP over IPv4"),
    ("tx-checksum-ipv6", "the interface computes checksums of TCP and UDP over IPv6"),
    ("tx-checksum-sctp", "the interface computes checksums of SCTP; TCP is not affected"),
    ("tx-checksum-fcoe-crc", "the interface computes checksums of storage traffic (FCoE)"),
    (
        "tx-scatter-gather",
        "a packet may lie in several pieces of memory: no copy into one; segmentation needs it",
    ),
    (
        "tx-scatter-gather-fraglist",
        "a packet may be a chain of buffers: no copy when one is forwarded",
    ),
    (
        "tx-tcp-segmentation",
        "the interface cuts large sends into packets: less CPU for messages larger than a packet",
    ),
    ("tx-tcp6-segmentation", "the interface cuts large sends into packets, over IPv6"),
    ("tx-tcp-ecn-segmentation", "the same for connections that use ECN"),
    ("tx-tcp-accecn-segmentation", "the same for connections that use accurate ECN"),
    (
        "tx-tcp-mangleid-segmentation",
        "the same for packets whose IPv4 identification need not count up",
    ),
    (
        "tx-generic-segmentation",
        "the kernel cuts large sends into packets as late as it can: one pass through the stack",
    ),
    (
        "rx-gro",
        "the kernel joins packets of a stream before TCP sees them: less CPU for large messages",
    ),
    ("rx-gro-hw", "the interface joins packets of a stream so that they can be cut again"),
    ("rx-gro-list", "packets are joined as a list, for forwarding"),
    ("rx-udp-gro-forwarding", "UDP packets are joined also when they are forwarded"),
    (
        "rx-lro",
        "the interface joins packets for good: high throughput, late small messages, no forwarding",
    ),
    ("tx-udp-segmentation", "the interface cuts large UDP sends (QUIC) into packets"),
    ("tx-sctp-segmentation", "large sends of SCTP are cut late"),
    ("tx-esp-segmentation", "large sends through IPsec are cut late"),
    ("tx-fcoe-segmentation", "storage traffic (FCoE) is cut by the interface"),
    ("tx-gre-segmentation", "large sends through GRE tunnels are cut by the interface"),
    (
        "tx-gre-csum-segmentation",
        "large sends through GRE tunnels with checksums are cut by the interface",
    ),
    ("tx-ipxip4-segmentation", "large sends through IPv4 tunnels are cut by the interface"),
    ("tx-ipxip6-segmentation", "large sends through IPv6 tunnels are cut by the interface"),
    ("tx-udp_tnl-segmentation", "large sends through VXLAN and Geneve are cut by the interface"),
    (
        "tx-udp_tnl-csum-segmentation",
        "large sends through VXLAN and Geneve with checksums are cut by the interface",
    ),
    (
        "tx-tunnel-remcsum-segmentation",
        "large sends through tunnels with remote checksum are cut by the interface",
    ),
    ("tx-gso-partial", "the interface cuts tunnelled sends, the kernel prepares their headers"),
    ("tx-gso-robust", "large sends of guests are checked before they are cut"),
    ("tx-gso-list", "packets that were joined as a list are cut by the interface"),
    ("tx-nocache-copy", "sends are copied past the cache of the CPU: seldom helps"),
    ("rx-hashing", "the interface names the stream of each packet: streams are spread over CPUs"),
    ("rx-ntuple-filter", "rules can direct streams to queues, and so to CPUs"),
    ("rx-vlan-hw-parse", "the interface takes VLAN tags off"),
    ("tx-vlan-hw-insert", "the interface puts VLAN tags on"),
    ("rx-vlan-filter", "the interface drops packets of other VLANs"),
    ("rx-vlan-stag-hw-parse", "the interface takes service VLAN tags off"),
    ("tx-vlan-stag-hw-insert", "the interface puts service VLAN tags on"),
    ("rx-vlan-stag-filter", "the interface drops packets of other service VLANs"),
    ("highdma", "packets may lie anywhere in memory: no copy for the interface"),
    ("tls-hw-tx-offload", "the interface encrypts kernel TLS"),
    ("tls-hw-rx-offload", "the interface decrypts kernel TLS"),
    ("tls-hw-record", "the interface does whole records of TLS"),
    ("esp-hw-offload", "the interface encrypts and decrypts IPsec"),
    ("esp-tx-csum-hw-offload", "the interface computes checksums under IPsec"),
    ("macsec-hw-offload", "the interface encrypts and decrypts MACsec"),
    (
        "rx-udp_tunnel-port-offload",
        "the interface looks into VXLAN and Geneve: tunnelled streams are spread over CPUs",
    ),
    ("hw-tc-offload", "rules of tc run in the interface"),
    ("l2-fwd-offload", "the interface forwards to macvlan interfaces by itself"),
    ("loopback", "for tests: sent packets come back, nothing reaches the network"),
    ("rx-fcs", "for captures: packets come with their Ethernet checksum"),
    ("rx-all", "for captures: broken packets are also received"),
    ("fcoe-mtu", "frames may be as long as storage traffic (FCoE) needs"),
    ("hsr-tag-ins-offload", "the interface puts tags of redundant rings (HSR, PRP) on"),
    ("hsr-tag-rm-offload", "the interface takes tags of redundant rings (HSR, PRP) off"),
    ("hsr-fwd-offload", "the interface forwards in redundant rings (HSR) by itself"),
    ("hsr-dup-offload", "the interface sends twice in redundant rings (HSR, PRP) by itself"),
    // Older kernels also listed these properties of drivers.
    ("tx-lockless", "a property of the driver: it needs no lock to send"),
    ("netns-local", "a property of the driver: it stays in its network namespace"),
    ("vlan-challenged", "a property of the driver: it cannot carry VLANs"),
];

/// The line for a feature; features newer than this list have a general one.
#[must_use]
pub(crate) fn feature(name: &str) -> &'static str {
    FEATURES
        .iter()
        .find(|(other, _)| *other == name)
        .map_or("not known here: see the documentation of the driver", |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_meaning_is_one_line_and_every_name_there_once() {
        for (position, (name, meaning)) in FEATURES.iter().enumerate() {
            assert!(meaning.chars().count() <= 90 && !meaning.contains('\n'), "{name}");
            assert!(FEATURES[..position].iter().all(|(earlier, _)| earlier != name), "{name}");
        }
        assert!(feature("tx-something-new").contains("driver"));
    }
}
