//! A plan of changes to an interface: which keys have their values already, which cannot be
//! changed, which requests come first, and which other features change as a consequence.

use std::collections::{BTreeMap, BTreeSet};

use crate::dependencies::{self, depth};
use crate::error::Error;
use crate::interface::Interface;
use crate::saved_state::Saved;
use crate::setting::{Group, Key, Setting, SideEffect, Value};

/// Changes to one interface, derived from its state at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Every requested key, in the order of the requests, and then the keys that those need.
    pub items: Vec<Item>,
    /// Other features that the kernel will switch because of these.
    pub along: Vec<SideEffect>,
}

/// The plan for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The key; never one that stands for several features.
    pub key: Key,
    /// The present value; `None` if the interface does not have the key.
    pub before: Option<Value>,
    /// The requested value.
    pub target: Value,
    /// The planned outcome.
    pub fate: Fate,
    /// The feature that needs the key, if the caller did not request it.
    pub needed_by: Option<String>,
    /// True if the plan fails when the interface does not have the key.
    pub required: bool,
    /// The value to request from the kernel; `None` if no request is needed.
    order: Option<Value>,
}

/// The planned outcome for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The key will be changed.
    Change,
    /// The key has the requested value already.
    AlreadySo,
    /// The driver does not allow changes of the key.
    Fixed,
    /// The interface does not have the key.
    Absent,
    /// The key cannot have that value, with the reason.
    Unfit(String),
}

/// Keys of one group that one request sets.
pub(crate) type Stage<'a> = (Group, Vec<(&'a Item, Value)>);

impl Plan {
    /// Plans `settings`; if two name the same key, the later one counts. Turning a feature on also
    /// turns on the features that it needs.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`]: a feature is to be on and one that it needs is to be off.
    pub fn new(interface: &Interface, settings: &[Setting]) -> Result<Self, Error> {
        let mut asked: Vec<(Key, Value, bool)> = Vec::new();
        for setting in settings {
            for key in keys(&setting.key, setting.value, interface) {
                asked.retain(|(earlier, ..)| *earlier != key);
                asked.push((key, setting.value, setting.required));
            }
        }
        let mut plan = Self { items: Vec::new(), along: Vec::new() };
        for (key, value, required) in &asked {
            plan.items.push(Item::new(interface, key.clone(), *value, *required));
        }
        for (key, value, _) in &asked {
            if key.group == Group::Feature && *value == Value::Switch(true) {
                plan.add_needs(interface, &key.name)?;
            }
        }
        plan.along = plan.foresee(interface);
        Ok(plan)
    }

    /// Plans the return to a saved state, for the keys that differ and are to be restored.
    #[must_use]
    pub fn back_to(interface: &Interface, saved: &Saved) -> Self {
        let mut items = Vec::new();
        for (name, then) in &saved.features {
            let mut item =
                Item::new(interface, Key::feature(name.clone()), Value::Switch(then.active), true);
            if let Some(now) = interface.feature(name).filter(|now| now.changeable) {
                let differs = now.wanted != then.wanted;
                item.order = differs.then_some(Value::Switch(then.wanted));
                item.fate = if differs || now.active != then.active {
                    Fate::Change
                } else {
                    Fate::AlreadySo
                };
            }
            items.push(item);
        }
        for (key, value) in saved.parameters() {
            items.push(Item::new(interface, key, value, true));
        }
        items.retain(|item| item.fate != Fate::AlreadySo && saved.owns(&item.key, interface));
        Self { items, along: Vec::new() }
    }

    /// True if the plan changes nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.items.iter().all(|item| item.fate != Fate::Change)
    }

    /// The requests in the order in which they must be made. A feature is turned off before the
    /// features that it needs and turned on after them. Features follow the flags and rings that
    /// may decide which features exist. Coalescing numbers are set between switches that are turned
    /// off and switches that are turned on.
    pub(crate) fn stages(&self) -> Vec<Stage<'_>> {
        let mut stages: BTreeMap<(Group, isize), Vec<(&Item, Value)>> = BTreeMap::new();
        for item in &self.items {
            if let Some(value) = item.order {
                let depth = depth(&item.key.name) as isize;
                let stage = match (item.key.group, value) {
                    (Group::Feature, Value::Switch(true)) => depth + 1,
                    (Group::Feature, _) => -depth,
                    // Several drivers accept no number while they adapt it themselves.
                    (Group::Coalescing, Value::Switch(false)) => -1,
                    (Group::Coalescing, Value::Switch(true)) => 1,
                    _ => 0,
                };
                stages.entry((item.key.group, stage)).or_default().push((item, value));
            }
        }
        stages.into_iter().map(|((group, _), values)| (group, values)).collect()
    }

    fn target(&self, feature: &str) -> Option<bool> {
        let item = self.items.iter().find(|item| item.key == Key::feature(feature))?;
        Some(item.target == Value::Switch(true))
    }

    /// Adds the features that `feature` needs, unless they were requested.
    fn add_needs(&mut self, interface: &Interface, feature: &str) -> Result<(), Error> {
        for group in dependencies::needs(feature) {
            let will_be_on = |name: &str| match self.target(name) {
                Some(target) => target,
                None => interface
                    .feature(name)
                    .is_some_and(|is| if is.changeable { is.wanted } else { is.active }),
            };
            if let Some(on) = group.iter().find(|name| will_be_on(name)) {
                // It may be wanted while a feature that it needs in turn is off.
                if self.target(on).is_none() {
                    self.add_needs(interface, on)?;
                }
                continue;
            }
            let changeable = |name: &&&str| interface.feature(name).is_some_and(|is| is.changeable);
            let Some(need) =
                group.iter().filter(changeable).find(|name| self.target(name).is_none())
            else {
                match group.iter().filter(changeable).find(|name| self.target(name) == Some(false))
                {
                    Some(off) if interface.feature(feature).is_some_and(|is| is.changeable) => {
                        return Err(Error::Conflict {
                            feature: feature.to_owned(),
                            needs: (*off).to_owned(),
                        });
                    }
                    // The kernel will refuse it.
                    _ => continue,
                }
            };
            let item = Item::new(interface, Key::feature(*need), Value::Switch(true), true);
            self.items.push(Item { needed_by: Some(feature.to_owned()), ..item });
            self.add_needs(interface, need)?;
        }
        Ok(())
    }

    /// The features that the kernel will switch as a consequence. A driver may have further rules,
    /// which cannot be foreseen.
    fn foresee(&self, interface: &Interface) -> Vec<SideEffect> {
        let wanted = |later: bool| -> BTreeMap<String, bool> {
            let features = interface.features.iter();
            let value = |feature: &crate::interface::Feature| {
                let target = self.target(&feature.name).filter(|_| later);
                if feature.changeable { target.unwrap_or(feature.wanted) } else { feature.active }
            };
            features.map(|feature| (feature.name.clone(), value(feature))).collect()
        };
        let (now, later) =
            (dependencies::resolve(wanted(false)), dependencies::resolve(wanted(true)));
        let planned: BTreeSet<&str> =
            self.items.iter().map(|item| item.key.name.as_str()).collect();
        let others = interface.features.iter().filter(|feature| {
            let name = feature.name.as_str();
            !planned.contains(name) && now[name] == feature.active && later[name] != feature.active
        });
        others
            .map(|feature| SideEffect {
                key: Key::feature(feature.name.clone()),
                before: Value::Switch(feature.active),
                after: Value::Switch(!feature.active),
            })
            .collect()
    }
}

impl Item {
    fn new(interface: &Interface, key: Key, target: Value, required: bool) -> Self {
        let before = interface.value(&key);
        let (target, fate) = match before {
            None => (target, Fate::Absent),
            Some(Value::Switch(_)) => (Value::Switch(target.number() != 0), Fate::Change),
            Some(Value::Number(_)) => match target {
                Value::Switch(_) => {
                    (target, Fate::Unfit("it takes a number, not on or off".to_owned()))
                }
                Value::Number(_) => (target, Fate::Change),
            },
        };
        let is_so = match interface.feature(&key.name).filter(|_| key.group == Group::Feature) {
            Some(feature) if feature.changeable => {
                Value::Switch(feature.active) == target && Value::Switch(feature.wanted) == target
            }
            _ => before == Some(target),
        };
        let is_fixed = key.group == Group::Feature
            && interface.feature(&key.name).is_some_and(|feature| !feature.changeable);
        let fate = match fate {
            Fate::Change if is_so => Fate::AlreadySo,
            Fate::Change if is_fixed => Fate::Fixed,
            other => other,
        };
        let order = (fate == Fate::Change).then_some(target);
        Self { key, before, target, fate, needed_by: None, required, order }
    }
}

/// The keys that a requested key stands for: names of ethtool(8) stand for one or several features.
fn keys(key: &Key, value: Value, interface: &Interface) -> Vec<Key> {
    if key.group != Group::Feature || interface.feature(&key.name).is_some() {
        return vec![key.clone()];
    }
    let is_tso = |name: &str| name.starts_with("tx-tcp") && name.ends_with("-segmentation");
    // A request for TSO does not include packets that all have the same identification.
    let is_safe =
        |name: &str| value == Value::Switch(false) || name != "tx-tcp-mangleid-segmentation";
    let means: &dyn Fn(&str) -> bool = match key.name.as_str() {
        "rx" | "rx-checksumming" => &|name| name == "rx-checksum",
        "tx" | "tx-checksumming" => &|name| name.starts_with("tx-checksum-"),
        "sg" | "scatter-gather" => &|name| name.starts_with("tx-scatter-gather"),
        "tso" | "tcp-segmentation-offload" => &|name| is_tso(name) && is_safe(name),
        "gso" | "generic-segmentation-offload" => &|name| name == "tx-generic-segmentation",
        "gro" | "generic-receive-offload" => &|name| name == "rx-gro",
        "lro" | "large-receive-offload" => &|name| name == "rx-lro",
        "rxvlan" | "rx-vlan-offload" => &|name| name == "rx-vlan-hw-parse",
        "txvlan" | "tx-vlan-offload" => &|name| name == "tx-vlan-hw-insert",
        "ntuple" | "ntuple-filters" => &|name| name == "rx-ntuple-filter",
        "rxhash" | "receive-hashing" => &|name| name == "rx-hashing",
        _ => return vec![key.clone()],
    };
    let meant = || interface.features.iter().filter(|feature| means(&feature.name));
    // Drivers implement different subsets of a name; a feature that this one lacks is fixed at off.
    let has_some = meant().any(|feature| feature.changeable || feature.active);
    let relevant = meant().filter(|feature| feature.changeable || feature.active || !has_some);
    let keys: Vec<Key> = relevant.map(|feature| Key::feature(feature.name.clone())).collect();
    if keys.is_empty() { vec![key.clone()] } else { keys }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::sample;
    use crate::profile::Profile;

    fn plan(interface: &Interface, settings: &[&str]) -> Result<Plan, Error> {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        Plan::new(interface, &settings)
    }

    /// `off a,b; on c`: the requests of a plan.
    fn stages(plan: &Plan) -> String {
        let stage = |(_, values): Stage<'_>| {
            let names: Vec<String> =
                values.iter().map(|(item, value)| format!("{}={value}", item.key)).collect();
            names.join(" ")
        };
        plan.stages().into_iter().map(stage).collect::<Vec<_>>().join("; ")
    }

    /// The interface after the kernel has done as foreseen.
    fn done(mut interface: Interface, plan: &Plan) -> Interface {
        let values = plan.items.iter().filter(|item| item.fate == Fate::Change);
        let values: Vec<_> =
            values.map(|item| (item.key.name.clone(), item.target, true)).collect();
        let along = plan.along.iter().map(|along| (along.key.name.clone(), along.after, false));
        for (name, value, is_wanted) in values.into_iter().chain(along) {
            if let Some(feature) =
                interface.features.iter_mut().find(|feature| feature.name == name)
            {
                feature.active = value.number() != 0;
                feature.wanted = if is_wanted { feature.active } else { feature.wanted };
            }
        }
        interface
    }

    #[test]
    fn what_goes_off_goes_before_what_it_needs() {
        let plan = Plan::new(&sample(), &Profile::Baseline.settings(&sample())).unwrap();
        assert_eq!(
            stages(&plan),
            "tx-tcp-segmentation=off tx-tcp6-segmentation=off tx-generic-segmentation=off; \
             rx-checksum=off tx-checksum-ip-generic=off tx-scatter-gather=off rx-gro=off"
        );
        assert!(plan.along.is_empty(), "{:?}", plan.along);
    }

    #[test]
    fn what_goes_on_goes_after_what_it_needs() {
        let off = Plan::new(&sample(), &Profile::Baseline.settings(&sample())).unwrap();
        let interface = done(sample(), &off);
        let plan = Plan::new(&interface, &Profile::Offload.settings(&interface)).unwrap();
        assert_eq!(
            stages(&plan),
            "rx-checksum=on tx-checksum-ip-generic=on tx-scatter-gather=on; \
             tx-tcp-segmentation=on tx-tcp6-segmentation=on tx-generic-segmentation=on"
        );
    }

    #[test]
    fn a_feature_brings_what_it_needs() {
        let off = Plan::new(&sample(), &Profile::Baseline.settings(&sample())).unwrap();
        let interface = done(sample(), &off);
        let plan = plan(&interface, &["tx-tcp-segmentation=on"]).unwrap();
        let needed: Vec<_> =
            plan.items.iter().filter_map(|item| item.needed_by.as_deref()).collect();
        assert_eq!(needed, ["tx-tcp-segmentation"; 2]);
        assert_eq!(
            stages(&plan),
            "tx-scatter-gather=on tx-checksum-ip-generic=on; tx-tcp-segmentation=on"
        );
    }

    #[test]
    fn what_will_go_along_is_foreseen() {
        let plan = plan(&sample(), &["sg=off"]).unwrap();
        let along: Vec<_> = plan.along.iter().map(|along| along.key.name.as_str()).collect();
        assert_eq!(
            along,
            ["tx-generic-segmentation", "tx-tcp-segmentation", "tx-tcp6-segmentation"]
        );
        // And comes back with it, because it is still wanted.
        let back = self::plan(&done(sample(), &plan), &["sg=on"]).unwrap();
        assert_eq!(back.along.iter().map(|along| &along.key).collect::<Vec<_>>().len(), 3);
        assert!(back.along.iter().all(|along| along.after == Value::Switch(true)));
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        let error = plan(&sample(), &["tso=on", "sg=off"]).unwrap_err().to_string();
        assert!(error.contains("tx-tcp-segmentation=on needs tx-scatter-gather"), "{error}");
    }

    #[test]
    fn the_later_of_two_counts() {
        let plan = plan(&sample(), &["gro=on", "rx-gro=off"]).unwrap();
        assert_eq!(stages(&plan), "rx-gro=off");
        assert_eq!(plan.items.len(), 1);
    }

    #[test]
    fn each_key_has_its_fate() {
        let fate = |text: &str| plan(&sample(), &[text]).unwrap().items.remove(0).fate;
        assert_eq!(fate("gro=off"), Fate::Change);
        assert_eq!(fate("gro=on"), Fate::AlreadySo);
        assert_eq!(fate("lro=on"), Fate::Fixed);
        assert_eq!(fate("lro=off"), Fate::AlreadySo);
        assert_eq!(fate("rx-vlan-filter=off"), Fate::Fixed);
        assert_eq!(fate("ntuple=on"), Fate::Absent);
        assert_eq!(fate("warp=on"), Fate::Absent);
        assert_eq!(fate("coalesce.rx-usecs=8"), Fate::AlreadySo);
        assert_eq!(fate("coalesce.adaptive-rx=0"), Fate::Change);
        assert_eq!(fate("coalesce.rx-usecs-low=8"), Fate::Absent);
        assert!(matches!(fate("ring.rx=on"), Fate::Unfit(_)));
        assert_eq!(fate("private.striding=on"), Fate::Change);
    }

    #[test]
    fn tso_never_turns_on_what_mangles_packets() {
        let keys = |text| plan(&sample(), &[text]).unwrap().items.len();
        assert_eq!(keys("tso=on"), 2);
        assert_eq!(keys("tso=off"), 3);
    }

    #[test]
    fn the_way_back_has_only_what_differs() {
        let saved = Saved::of(&sample(), None);
        assert!(Plan::back_to(&sample(), &saved).items.is_empty());
        let there = plan(&sample(), &["sg=off", "private.striding=on"]).unwrap();
        let mut now = done(sample(), &there);
        now.private_flags[0].value = Value::Switch(true);
        let back = Plan::back_to(&now, &saved);
        // The others come by themselves.
        assert_eq!(stages(&back), "private.striding=off; tx-scatter-gather=on");
        assert_eq!(back.items.len(), 5);
        assert!(!back.is_idle());
    }
}
