//! The candidates of a search: the original settings, the profiles, and settings that differ from a
//! good candidate by one.

use std::collections::BTreeMap;

use seekwire_nic::{ChangeResult, Fate, Interface, Key, KeyOutcome, Plan, Profile, Setting, Value};

/// Maximum number of candidates that are tried besides the first ones.
pub(crate) const NEIGHBOURS: usize = 6;

/// Single offloads, by their names in ethtool(8). Checksums and scatter-gather matter only with the
/// offloads that need them, and the profiles cover those.
const SWITCHES: [&str; 3] = ["gro", "tso", "gso"];

/// Times in microseconds, frame counts and flags that delay interrupts.
const COALESCING: [(&str, &[Value]); 4] = [
    ("coalesce.adaptive-rx", &[Value::Switch(true), Value::Switch(false)]),
    ("coalesce.rx-usecs", &[Value::Number(0), Value::Number(20), Value::Number(80)]),
    ("coalesce.tx-usecs", &[Value::Number(0), Value::Number(50)]),
    ("coalesce.rx-frames", &[Value::Number(1), Value::Number(64)]),
];

/// A state that the interface can be brought into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The names of the candidate; several if profiles are equal on this interface.
    pub(crate) names: Vec<String>,
    /// The differences from the original settings.
    pub(crate) changes: BTreeMap<Key, Value>,
    /// Changes that the driver refused, with the reason.
    pub(crate) refused: Vec<String>,
}

impl Candidate {
    /// Returns `None` if the settings conflict.
    fn new(original: &Interface, name: String, settings: &[Setting]) -> Option<Self> {
        let plan = Plan::new(original, settings).ok()?;
        let planned = plan.items.iter().filter(|item| item.fate == Fate::Change);
        let planned = planned.map(|item| (item.key.clone(), item.target));
        let along = plan.along.iter().map(|along| (along.key.clone(), along.after));
        Some(Self {
            names: vec![name],
            changes: planned.chain(along).collect(),
            refused: Vec::new(),
        })
    }

    /// All names of the candidate.
    pub(crate) fn name(&self) -> String {
        self.names.join(" = ")
    }

    /// True if it has the driver adapt numbers that it does not adapt with the original settings.
    fn begins_to_adapt(&self) -> bool {
        let mut changes = self.changes.iter();
        changes
            .any(|(key, value)| key.name.starts_with("adaptive-") && *value == Value::Switch(true))
    }

    /// Removes changes that the driver refused from the candidate.
    pub(crate) fn learn(&mut self, outcomes: &[KeyOutcome]) {
        for outcome in outcomes {
            if let ChangeResult::Refused(reason) = &outcome.result {
                if self.changes.remove(&outcome.key).is_some() {
                    self.refused.push(format!("{}={}: {reason}", outcome.key, outcome.target));
                }
            }
        }
    }
}

/// The original settings, and then the profiles. Equal settings are one candidate.
pub(crate) fn first(original: &Interface) -> Vec<Candidate> {
    let as_found = Candidate {
        names: vec!["as found".to_owned()],
        changes: BTreeMap::new(),
        refused: Vec::new(),
    };
    let mut candidates = vec![as_found];
    for profile in Profile::ALL {
        if let Some(candidate) =
            Candidate::new(original, profile.to_string(), &profile.settings(original))
        {
            match candidates.iter_mut().find(|other| other.changes == candidate.changes) {
                Some(same) => same.names.extend(candidate.names),
                None => candidates.push(candidate),
            }
        }
    }
    candidates
}

/// Candidates that differ from `base` by one setting and equal none of the `known` ones.
pub(crate) fn neighbours(
    original: &Interface,
    base: &Candidate,
    candidates: &[Candidate],
) -> Vec<Candidate> {
    let switches =
        SWITCHES.iter().flat_map(|name| ["on", "off"].map(|value| format!("{name}={value}")));
    let times = COALESCING
        .iter()
        .flat_map(|(name, values)| values.iter().map(move |value| format!("{name}={value}")));
    let mut neighbours: Vec<Candidate> = Vec::new();
    for text in switches.chain(times) {
        let Ok(setting) = text.parse::<Setting>() else { continue };
        let mut settings = restoring(&base.changes);
        settings.push(Setting { required: false, ..setting });
        let name = format!("{}, {text}", base.names[0]);
        let Some(candidate) = Candidate::new(original, name, &settings) else { continue };
        if !candidates.iter().chain(&neighbours).any(|other| other.changes == candidate.changes) {
            neighbours.push(candidate);
        }
    }
    neighbours.truncate(NEIGHBOURS);
    neighbours
}

/// The steps that lead from any candidate to `candidate`. Each sets every key that any of them
/// changes; but a driver may reset numbers when it begins to adapt them, so such a candidate is
/// applied to the original settings, as it will be when it is recommended.
pub(crate) fn steps(
    original: &Interface,
    candidate: &Candidate,
    all: &[Candidate],
) -> Vec<Vec<Setting>> {
    let mut values: BTreeMap<Key, Value> = BTreeMap::new();
    for key in all.iter().flat_map(|other| other.changes.keys()) {
        values.extend(original.value(key).map(|value| (key.clone(), value)));
    }
    if candidate.begins_to_adapt() {
        return vec![restoring(&values), restoring(&candidate.changes)];
    }
    values.extend(candidate.changes.clone());
    vec![restoring(&values)]
}

fn restoring(values: &BTreeMap<Key, Value>) -> Vec<Setting> {
    let setting =
        |(key, value): (&Key, &Value)| Setting { key: key.clone(), value: *value, required: false };
    values.iter().map(setting).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use seekwire_nic::{Feature, Parameter, Queues};

    use super::*;

    /// Everything on but GRO, and coalescing of one kind.
    pub(crate) fn sample() -> Interface {
        let feature = |(name, active): (&str, bool)| Feature {
            name: name.to_owned(),
            active,
            wanted: active,
            changeable: true,
            meaning: "",
        };
        Interface {
            name: "eth7".to_owned(),
            index: 7,
            address: Some("02:00:00:00:00:07".to_owned()),
            has_permanent_address: true,
            bus: None,
            kind: None,
            driver: None,
            mtu: 1500,
            speed_mbps: None,
            duplex: None,
            up: true,
            default_route: false,
            queues: Queues::default(),
            features: [
                ("tx-scatter-gather", true),
                ("tx-checksum-ip-generic", true),
                ("tx-generic-segmentation", true),
                ("rx-gro", false),
                ("tx-tcp-segmentation", true),
                ("rx-checksum", true),
            ]
            .map(feature)
            .to_vec(),
            coalescing: vec![Parameter {
                name: "rx-usecs".to_owned(),
                value: Value::Number(20),
                maximum: None,
                meaning: "",
            }],
            rings: Vec::new(),
            private_flags: Vec::new(),
        }
    }

    fn texts(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(|setting| format!("{}={}", setting.key, setting.value)).collect()
    }

    #[test]
    fn what_comes_to_the_same_is_one_candidate() {
        let original = sample();
        let candidates = first(&original);
        let names: Vec<_> = candidates.iter().map(Candidate::name).collect();
        assert_eq!(
            names,
            ["as found = offload", "baseline", "checksum", "low-latency", "throughput"]
        );
        let throughput = &candidates[4];
        assert_eq!(texts(&restoring(&throughput.changes)), ["rx-gro=on", "coalesce.rx-usecs=50"]);
    }

    #[test]
    fn each_state_can_be_reached_from_any_other() {
        let original = sample();
        let candidates = first(&original);
        let settings = |candidate: &Candidate| {
            let [settings] = steps(&original, candidate, &candidates).try_into().unwrap();
            settings
        };
        let keys = settings(&candidates[0]).len();
        for candidate in &candidates {
            let settings = settings(candidate);
            assert_eq!(settings.len(), keys);
            assert!(settings.iter().all(|setting| !setting.required));
            for (key, value) in &candidate.changes {
                assert!(
                    settings.iter().any(|setting| setting.key == *key && setting.value == *value)
                );
            }
        }
        let back = settings(&candidates[0]);
        assert!(back.iter().all(|setting| original.value(&setting.key) == Some(setting.value)));
    }

    #[test]
    fn adaptation_is_measured_as_it_is_applied() {
        let mut original = sample();
        let adaptive = Parameter {
            name: "adaptive-rx".to_owned(),
            value: Value::Switch(false),
            maximum: None,
            meaning: "",
        };
        original.coalescing.push(adaptive);
        let mut candidates = first(&original);
        candidates.extend(neighbours(&original, &candidates[0], &candidates));
        let name = "as found, coalesce.adaptive-rx=on";
        let adapts = candidates.iter().find(|one| one.name() == name).unwrap();
        let steps = steps(&original, adapts, &candidates)
            .iter()
            .map(|step| texts(step))
            .collect::<Vec<_>>();
        // The driver's numbers are left alone once it adapts them.
        assert_eq!(steps[1], ["coalesce.adaptive-rx=on"]);
        let reset = ["coalesce.adaptive-rx=off", "coalesce.rx-usecs=20"].map(str::to_owned);
        assert!(steps.len() == 2 && reset.iter().all(|text| steps[0].contains(text)), "{steps:?}");
    }

    #[test]
    fn neighbours_differ_by_one_setting_and_are_new() {
        let original = sample();
        let mut candidates = first(&original);
        let names = |all: &[Candidate]| all.iter().map(Candidate::name).collect::<Vec<_>>();
        let around = neighbours(&original, &candidates[0], &candidates);
        // rx-usecs=0 by itself is low-latency.
        let expected = ["gro=on", "tso=off", "gso=off", "coalesce.rx-usecs=80"];
        assert_eq!(names(&around), expected.map(|change| format!("as found, {change}")));
        assert!(around.len() <= NEIGHBOURS && around.iter().all(|one| one.changes.len() == 1));
        candidates.extend(around);
        assert!(neighbours(&original, &candidates[0], &candidates).is_empty());
        // No segmentation without what it needs.
        let around = neighbours(&original, &candidates[1], &candidates);
        assert_eq!(
            names(&around),
            ["baseline, gro=on", "baseline, coalesce.rx-usecs=0", "baseline, coalesce.rx-usecs=80"]
        );
    }
}
