//! The state of an interface at one moment.

use serde::Serialize;

use crate::meaning;
use crate::setting::{Group, Key, Value};

/// An interface and all its settings, read at one moment. Its JSON is what `seekwire nic show
/// --json` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its name now.
    pub name: String,
    /// Its number in the network namespace: stays when it is renamed; when it is deleted, another
    /// gets it only by request.
    pub index: u32,
    /// The address of the hardware (MAC), that which the device came with if it tells; none of
    /// what is not Ethernet.
    pub address: Option<String>,
    /// Whether `address` is the one that the device came with.
    #[serde(skip)]
    pub has_permanent_address: bool,
    /// Where the device is plugged in, as `pci/0000:01:00.0`; none of a virtual interface.
    #[serde(skip)]
    pub bus: Option<String>,
    /// The driver, or the kind of a virtual interface (`veth`); none for loopback.
    pub driver: Option<String>,
    /// The kind of a virtual interface; none of a device.
    #[serde(skip)]
    pub kind: Option<String>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Megabits per second; none where the driver does not know, or there is no link.
    pub speed_mbps: Option<u32>,
    /// `half` or `full`.
    pub duplex: Option<&'static str>,
    /// Whether it has been switched on.
    pub up: bool,
    /// Whether traffic by a default route leaves through it, or through a bridge, bond or VLAN
    /// that it is below.
    pub default_route: bool,
    /// How many queues it has.
    pub queues: Queues,
    /// Offloads, in the kernel's order.
    pub features: Vec<Feature>,
    /// When it interrupts the CPU; empty where the driver has no such settings.
    pub coalescing: Vec<Parameter>,
    /// Sizes of the rings between driver and interface; empty where there are none.
    pub rings: Vec<Parameter>,
    /// The driver's own flags.
    pub private_flags: Vec<Parameter>,
}

/// Queues, each of which can be served by a CPU of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// For receiving.
    pub rx: u32,
    /// For sending.
    pub tx: u32,
    /// Channels that the driver has set up, each an interrupt with its queues; empty where it does
    /// not say.
    pub channels: Vec<Parameter>,
}

/// One offload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// The kernel's name.
    pub name: String,
    /// Whether it works now.
    pub active: bool,
    /// Whether it was asked for. It is not active all the same while something that it needs is
    /// off.
    pub wanted: bool,
    /// Whether it can be changed; false: fixed by the driver.
    pub changeable: bool,
    /// What it means for messages.
    pub meaning: &'static str,
}

/// One setting other than an offload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// That of ethtool(8); the driver's for a private flag.
    pub name: String,
    /// What it is set to.
    pub value: Value,
    /// The largest value that the interface takes, where it says so.
    pub maximum: Option<u32>,
    /// What it means for messages.
    pub meaning: &'static str,
}

impl Feature {
    pub(crate) fn new(name: String, active: bool, wanted: bool, changeable: bool) -> Self {
        let meaning = meaning::feature(&name);
        // What nobody can ask for was never asked for by anybody else.
        Self { name, active, wanted: if changeable { wanted } else { active }, changeable, meaning }
    }
}

impl Interface {
    /// The feature of that name.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// What a key is set to now: for a feature, whether it works. None: the interface does not have
    /// it.
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

    /// Every key, with what it is set to.
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

/// An interface as a good network adapter would be, for tests: 4 fixed features, coalescing, rings,
/// a private flag.
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
