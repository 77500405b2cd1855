//! The state of an interface at one moment.

use serde::Serialize;

use crate::descriptions;
use crate::setting::{Group, Key, Value};

/// An interface and all its settings, read at one moment. Its JSON is what `seekwire nic show
/// --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The present name.
    pub name: String,
    /// The index in the network namespace. It survives renaming; after deletion, another interface
    /// gets it only on request.
    pub index: u32,
    /// The hardware address (MAC): the permanent one if the device reports it. `None` if the
    /// interface is not Ethernet.
    pub address: Option<String>,
    /// True if `address` is the permanent address of the device.
    #[serde(skip)]
    pub has_permanent_address: bool,
    /// Bus and position of the device, such as `pci/0000:01:00.0`; `None` for a virtual interface.
    #[serde(skip)]
    pub bus: Option<String>,
    /// The driver, or the kind of a virtual interface (`veth`); `None` for loopback.
    pub driver: Option<String>,
    /// The kind of a virtual interface; `None` for a device.
    #[serde(skip)]
    pub kind: Option<String>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Megabits per second; `None` if the driver does not report it or the link is down.
    pub speed_mbps: Option<u32>,
    /// `half` or `full`.
    pub duplex: Option<&'static str>,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if traffic on a default route leaves through the interface, or through a bridge, bond
    /// or VLAN on top of it.
    pub default_route: bool,
    /// The numbers of queues.
    pub queues: Queues,
    /// Offloads, in the kernel's order.
    pub features: Vec<Feature>,
    /// Interrupt coalescing; empty if the driver has no such settings.
    pub coalescing: Vec<Parameter>,
    /// Sizes of the rings between driver and interface; empty if there are none.
    pub rings: Vec<Parameter>,
    /// The driver's own flags.
    pub private_flags: Vec<Parameter>,
}

/// Queues, each of which a different CPU can serve.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// For receiving.
    pub rx: u32,
    /// For sending.
    pub tx: u32,
    /// Channels of the driver, each an interrupt with its queues; empty if the driver does not
    /// report them.
    pub channels: Vec<Parameter>,
}

/// One offload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// The kernel's name.
    pub name: String,
    /// True if the feature is in effect.
    pub active: bool,
    /// True if the feature was requested. It is still not active while a feature that it needs is
    /// off.
    pub wanted: bool,
    /// True if the feature can be changed, false if the driver has fixed it.
    pub changeable: bool,
    /// Its effect on messages.
    pub meaning: &'static str,
}

/// One setting other than an offload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The name in ethtool(8); for a private flag, the driver's name.
    pub name: String,
    /// The present value.
    pub value: Value,
    /// The largest value that the interface accepts, if it reports one.
    pub maximum: Option<u32>,
    /// Its effect on messages.
    pub meaning: &'static str,
}

impl Feature {
    pub(crate) fn new(name: String, active: bool, wanted: bool, changeable: bool) -> Self {
        let meaning = descriptions::feature(&name);
        // A fixed feature cannot be requested, so its present state counts as wanted.
        Self { name, active, wanted: if changeable { wanted } else { active }, changeable, meaning }
    }
}

impl Interface {
    /// The feature of that name.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// The present value of a key; for a feature, whether it is active. `None` if the interface
    /// does not have the key.
    #[must_use]
    pub fn value(&self, key: &Key) -> Option<Value> {
        if key.group == Group::Feature {
            return self.feature(&key.name).map(|feature| Value::Switch(feature.active));
        }
        self.parameter(key).map(|parameter| parameter.value)
    }

    pub(crate) fn parameter(&self, key: &Key) -> Option<&Parameter> {
        self.parameters(key.group).iter().find(|parameter| parameter.name == key.name)
    }

    /// Empty for features, which are not parameters.
    fn parameters(&self, group: Group) -> &[Parameter] {
        match group {
            Group::PrivateFlag => &self.private_flags,
            Group::Ring => &self.rings,
            Group::Feature => &[],
            Group::Coalescing => &self.coalescing,
        }
    }

    /// Every key with its present value.
    pub fn values(&self) -> impl Iterator<Item = (Key, Value)> {
        let features = self
            .features
            .iter()
            .map(|feature| (Key::feature(feature.name.clone()), Value::Switch(feature.active)));
        let parameters =
            [Group::PrivateFlag, Group::Ring, Group::Coalescing].into_iter().flat_map(|group| {
                self.parameters(group)
                    .iter()
                    .map(move |one| (Key::new(group, one.name.clone()), one.value))
            });
        features.chain(parameters)
    }
}

/// An interface like that of a good network adapter, for tests: 4 fixed features, coalescing,
/// rings, a private flag.
#[cfg(test)]
pub(crate) fn sample() -> Interface {
    let feature = |(name, active, changeable): (&str, bool, bool)| {
        Feature::new(name.to_owned(), active, active, changeable)
    };
    let parameter = |(name, value): (&str, Value)| Parameter {
        name: name.to_owned(),
        value,
        maximum: None,
        meaning: "",
    };
    Interface {
        name: "eth7".to_owned(),
        index: 7,
        address: Some("02:00:00:00:00:07".to_owned()),
        has_permanent_address: true,
        bus: Some("pci/0000:01:00.0".to_owned()),
        driver: Some("sample".to_owned()),
        kind: None,
        mtu: 1500,
        speed_mbps: Some(1000),
        duplex: Some("full"),
        up: true,
        default_route: false,
        queues: Queues::default(),
        features: [
            ("tx-scatter-gather", true, true),
            ("tx-checksum-ipv4", false, false),
            ("tx-checksum-ip-generic", true, true),
            ("tx-scatter-gather-fraglist", false, false),
            ("tx-generic-segmentation", true, true),
            ("rx-gro", true, true),
            ("rx-lro", false, false),
            ("tx-tcp-segmentation", true, true),
            ("tx-tcp-mangleid-segmentation", false, true),
            ("tx-tcp6-segmentation", true, true),
            ("rx-checksum", true, true),
            ("rx-vlan-filter", true, false),
        ]
        .map(feature)
        .to_vec(),
        coalescing: [
            ("adaptive-rx", Value::Switch(true)),
            ("rx-usecs", Value::Number(8)),
            ("rx-frames", Value::Number(32)),
            ("tx-usecs", Value::Number(8)),
        ]
        .map(parameter)
        .to_vec(),
        rings: vec![parameter(("rx", Value::Number(256)))],
        private_flags: vec![parameter(("striding", Value::Switch(false)))],
    }
}
