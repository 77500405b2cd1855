//! The state of an interface before it was first changed, and which keys have been changed since.

use std::collections::BTreeMap;
use std::{fmt, fs};

use serde::{Deserialize, Serialize};

use crate::interface::{Interface, Parameter};
use crate::setting::{Group, Key, SideEffect, Value};

/// Version of the file format. Files of another version are refused.
const LAYOUT: u32 = 1;

/// The changeable settings of an interface, as they were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    layout: u32,
    /// Its name when it was saved.
    pub interface: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address then, and whether that is the permanent one.
    address: Option<String>,
    #[serde(default)]
    has_permanent_address: bool,
    /// The boot in which this state is valid (`/proc/sys/kernel/random/boot_id`).
    pub(crate) boot: String,
    /// The process that restores the state when it ends; `None` if the changes stay until
    /// [`restore`](crate::restore).
    pub process: Option<u32>,
    /// Features that can be changed.
    pub(crate) features: BTreeMap<String, SavedFeature>,
    coalescing: BTreeMap<String, Value>,
    rings: BTreeMap<String, Value>,
    private_flags: BTreeMap<String, Value>,
    /// The keys that this crate has changed since, and whether each was requested or changed as a
    /// consequence. Only these are restored. `None`: all (a state of an earlier version).
    #[serde(default)]
    own: Option<BTreeMap<String, bool>>,
    /// None: a state of an earlier version.
    #[serde(default)]
    device: Option<Identity>,
}

/// Properties that identify a device besides its address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    kind: Option<String>,
    driver: Option<String>,
    bus: Option<String>,
}

impl Identity {
    fn of(interface: &Interface) -> Self {
        Self {
            kind: interface.kind.clone(),
            driver: interface.driver.clone(),
            bus: interface.bus.clone(),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        // Without /sys the driver is unknown.
        let is_driver =
            self.driver.is_none() || other.driver.is_none() || self.driver == other.driver;
        self.kind == other.kind && self.bus == other.bus && is_driver
    }
}

/// Both states of a feature: a wanted one is inactive while a feature that it needs is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedFeature {
    pub(crate) wanted: bool,
    pub(crate) active: bool,
}

impl Saved {
    /// Reads a state as text. The error is for users.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let saved: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if saved.layout != LAYOUT {
            return Err(format!(
                "layout {} instead of {LAYOUT}: written by another version",
                saved.layout
            ));
        }
        Ok(saved)
    }

    /// Takes the present values of the changeable settings.
    #[must_use]
    pub fn of(interface: &Interface, process: Option<u32>) -> Self {
        let values = |parameters: &[Parameter]| {
            parameters.iter().map(|parameter| (parameter.name.clone(), parameter.value)).collect()
        };
        let changeable = interface.features.iter().filter(|feature| feature.changeable);
        let features = changeable
            .map(|one| (one.name.clone(), SavedFeature { wanted: one.wanted, active: one.active }))
            .collect();
        Self {
            layout: LAYOUT,
            interface: interface.name.clone(),
            index: interface.index,
            address: interface.address.clone(),
            has_permanent_address: interface.has_permanent_address,
            boot: boot(),
            process,
            features,
            coalescing: values(&interface.coalescing),
            rings: values(&interface.rings),
            private_flags: values(&interface.private_flags),
            own: None,
            device: Some(Identity::of(interface)),
        }
    }

    /// Takes the state before any change, so that no key of it has to be restored yet.
    pub(crate) fn before_changes(interface: &Interface, process: Option<u32>) -> Self {
        Self { own: Some(BTreeMap::new()), ..Self::of(interface, process) }
    }

    /// Notes changed keys, each with whether the change was requested.
    pub(crate) fn note<'a>(&mut self, keys: impl IntoIterator<Item = (&'a Key, bool)>) {
        let Some(own) = &mut self.own else { return };
        for (key, is_asked) in keys {
            *own.entry(key.to_string()).or_default() |= is_asked;
        }
    }

    /// Notes the keys of a state on top of this one whose changes stay.
    pub(crate) fn note_all_of(&mut self, top: &Self) -> bool {
        let before = self.own.clone();
        match (&mut self.own, &top.own) {
            (Some(own), Some(top)) => {
                for (key, is_asked) in top {
                    *own.entry(key.clone()).or_default() |= is_asked;
                }
            }
            // The state on top restores all keys.
            (own, None) => *own = None,
            (None, _) => {}
        }
        self.own != before
    }

    /// True if a key is to be restored. If a feature changed only as a consequence and its wanted
    /// state now differs, another program has changed it.
    pub(crate) fn owns(&self, key: &Key, now: &Interface) -> bool {
        let Some(own) = &self.own else { return true };
        let is_wanted_as_then = || {
            let features = key.group == Group::Feature;
            let then = self.features.get(&key.name).filter(|_| features);
            let now = now.feature(&key.name);
            then.zip(now).is_none_or(|(then, now)| then.wanted == now.wanted)
        };
        own.get(&key.to_string()).is_some_and(|is_asked| *is_asked || is_wanted_as_then())
    }

    /// The keys whose values differ from the saved ones and that are not to be restored.
    pub(crate) fn others(&self, now: &Interface) -> Vec<SideEffect> {
        let differing = self.values().filter_map(|(key, before)| {
            let after = now.value(&key).filter(|after| *after != before)?;
            (!self.owns(&key, now)).then_some(SideEffect { key, before, after })
        });
        differing.collect()
    }

    /// The keys that have their saved values.
    pub(crate) fn unchanged(&self, now: &Interface) -> Vec<Key> {
        let same = self.values().filter(|(key, before)| now.value(key) == Some(*before));
        same.map(|(key, _)| key).collect()
    }

    /// All saved values; for a feature, whether it was active.
    fn values(&self) -> impl Iterator<Item = (Key, Value)> {
        let features = self
            .features
            .iter()
            .map(|(name, then)| (Key::feature(name.clone()), Value::Switch(then.active)));
        features.chain(self.parameters())
    }

    /// False for a state of an earlier boot, whose settings are lost.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        self.boot == boot()
    }

    /// True if it is the state of this device. The kernel does not reuse an index, except on
    /// request.
    pub(crate) fn is_of(&self, interface: &Interface) -> bool {
        let is_same_address = self.address == interface.address;
        let is_permanent = self.has_permanent_address && interface.has_permanent_address;
        // An address that is not permanent can be changed, and so can the name.
        let is_similar = is_same_address || !is_permanent && self.interface == interface.name;
        let identity = Identity::of(interface);
        let is_same = self.device.as_ref().is_none_or(|device| device.is_same(&identity));
        self.index == interface.index && is_similar && is_same
    }

    /// The same state, if it is of this device but was saved when that had another index. Without
    /// the index, only a bus and a permanent address identify a device.
    pub(crate) fn renumbered(&self, interface: &Interface) -> Option<Self> {
        let is_other_index = self.index != interface.index;
        let is_permanent = self.has_permanent_address && interface.has_permanent_address;
        let is_same_address = is_permanent && self.address == interface.address;
        let device = self.device.as_ref().filter(|device| device.bus.is_some())?;
        let is_same = is_same_address && device.is_same(&Identity::of(interface));
        (is_other_index && is_same).then(|| Self { index: interface.index, ..self.clone() })
    }

    /// All saved values except features.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (Key, Value)> {
        let groups = [
            (Group::PrivateFlag, &self.private_flags),
            (Group::Ring, &self.rings),
            (Group::Coalescing, &self.coalescing),
        ];
        groups.into_iter().flat_map(|(group, values)| {
            values.iter().map(move |(name, value)| (Key::new(group, name.clone()), *value))
        })
    }
}

impl fmt::Display for Saved {
    /// The device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address.as_deref().unwrap_or("without an address");
        write!(f, "{} ({address})", self.interface)
    }
}

fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}
