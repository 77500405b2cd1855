//! The rules of five drivers, as their `set_coalesce` and `set_ringparam` have them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rustix::io::Errno;

use super::*;
use crate::change::{self, ChangeResult, Report};
use crate::interface::{Parameter, sample};
use crate::profile::Profile;
use crate::saved_state::Saved;
use crate::session::carry_out;
use crate::setting::Setting;

/// Numbers by name; a switch is 0 or 1.
type Numbers = BTreeMap<String, u32>;

/// The answer of a driver to one request, given the values now and those asked for. It changes the
/// latter to those that it really sets, or refuses.
type Rule = fn(&Numbers, &mut Numbers) -> Result<(), Errno>;

struct Driver {
    name: &'static str,
    coalescing: &'static [(&'static str, u32)],
    rule: Rule,
    ring: Rule,
}

const INTEL: &[(&str, u32)] = &[
    ("adaptive-rx", 1),
    ("adaptive-tx", 1),
    ("rx-usecs", 50),
    ("rx-usecs-high", 0),
    ("tx-usecs", 50),
];

const DRIVERS: [Driver; 5] = [
    // ice_set_rc_coalesce, as in Linux 5.15.
    Driver { name: "ice", coalescing: INTEL, rule: ice, ring: multiple_of_32 },
    // __i40e_set_coalesce, known from Linux 5.10; iavf_set_itr_per_queue has the same rule for
    // adaptive coalescing in Linux 6.1.
    Driver {
        name: "i40e",
        coalescing: &[
            ("adaptive-rx", 1),
            ("adaptive-tx", 1),
            ("rx-usecs", 50),
            ("rx-usecs-high", 0),
            ("tx-usecs", 50),
            ("tx-usecs-high", 0),
        ],
        rule: i40e,
        ring: multiple_of_32,
    },
    // mlx5e_ethtool_set_coalesce, from Linux 5.7 on.
    Driver {
        name: "mlx5_core",
        coalescing: &[
            ("adaptive-rx", 1),
            ("adaptive-tx", 1),
            ("rx-frames", 64),
            ("rx-usecs", 12),
            ("tx-frames", 64),
            ("tx-usecs", 12),
        ],
        rule: mlx5,
        ring: power_above,
    },
    // ena_set_coalesce, as in Linux 5.10.
    Driver {
        name: "ena",
        coalescing: &[("adaptive-rx", 1), ("rx-usecs", 20), ("tx-usecs", 64)],
        rule: |_, _| Ok(()),
        ring: power_below,
    },
    // virtnet_set_coalesce, from Linux 6.8 on, of an interface that is up.
    Driver {
        name: "virtio_net",
        coalescing: &[
            ("adaptive-rx", 1),
            ("rx-frames", 1),
            ("rx-usecs", 16),
            ("tx-frames", 1),
            ("tx-usecs", 16),
        ],
        rule: virtio_net,
        ring: power_above,
    },
];

fn is_changed(now: &Numbers, new: &Numbers, name: &str) -> bool {
    now[name] != new[name]
}

fn refuse_if(is_wrong: bool, errno: Errno) -> Result<(), Errno> {
    if is_wrong { Err(errno) } else { Ok(()) }
}

/// No number while the direction is adaptive, in the same request either.
fn numbers_only_by_hand(now: &Numbers, new: &Numbers) -> Result<(), Errno> {
    for side in ["rx", "tx"] {
        let adapts = new[&format!("adaptive-{side}")] == 1;
        refuse_if(adapts && is_changed(now, new, &format!("{side}-usecs")), Errno::INVAL)?;
    }
    refuse_if(new["rx-usecs"] > 8160 || new["tx-usecs"] > 8160, Errno::INVAL)
}

fn ice(now: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    let adapts = new["adaptive-rx"] + new["adaptive-tx"] > 0;
    refuse_if(adapts && is_changed(now, new, "rx-usecs-high"), Errno::INVAL)?;
    numbers_only_by_hand(now, new)
}

fn i40e(now: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    // It is shown for both directions, and set for one.
    refuse_if(is_changed(now, new, "tx-usecs-high"), Errno::INVAL)?;
    numbers_only_by_hand(now, new)?;
    new.insert("tx-usecs-high".to_owned(), new["rx-usecs-high"]);
    Ok(())
}

fn mlx5(now: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    for side in ["rx", "tx"] {
        if is_changed(now, new, &format!("adaptive-{side}")) {
            // As it comes out of the box, whatever the request has.
            new.insert(format!("{side}-usecs"), 8);
            new.insert(format!("{side}-frames"), 128);
        }
    }
    Ok(())
}

fn virtio_net(now: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    refuse_if((now["tx-frames"] > 0) != (new["tx-frames"] > 0), Errno::BUSY)?;
    let is_set = is_changed(now, new, "rx-usecs") || is_changed(now, new, "rx-frames");
    refuse_if(new["adaptive-rx"] == 1 && is_set, Errno::INVAL)
}

fn multiple_of_32(_: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    refuse_if(!(64..=8160).contains(&new["rx"]), Errno::INVAL)?;
    new.insert("rx".to_owned(), new["rx"].next_multiple_of(32));
    Ok(())
}

fn power_above(_: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    refuse_if(!(64..=8192).contains(&new["rx"]), Errno::INVAL)?;
    new.insert("rx".to_owned(), new["rx"].next_power_of_two());
    Ok(())
}

fn power_below(_: &Numbers, new: &mut Numbers) -> Result<(), Errno> {
    refuse_if(new["rx"] > 8192, Errno::INVAL)?;
    new.insert("rx".to_owned(), 1 << new["rx"].max(256).ilog2());
    Ok(())
}

/// An interface of such a driver.
struct Fake<'a> {
    driver: &'a Driver,
    is: Interface,
    /// A switch that cannot be switched on, for faults.
    stays_off: Option<&'static str>,
    requests: usize,
}

impl<'a> Fake<'a> {
    fn new(driver: &'a Driver) -> Self {
        let value = |(name, number): &(&str, u32)| Parameter {
            name: (*name).to_owned(),
            value: match name.starts_with("adaptive") {
                true => Value::Switch(*number == 1),
                false => Value::Number(*number),
            },
            maximum: None,
            meaning: "",
        };
        let coalescing = driver.coalescing.iter().map(value).collect();
        let rings = vec![value(&("rx", 512))];
        let is = Interface { driver: Some(driver.name.to_owned()), coalescing, rings, ..sample() };
        Self { driver, is, stays_off: None, requests: 0 }
    }

    fn apply(&mut self, texts: &[&str]) -> Report {
        let before = self.is.clone();
        change::apply(self, &before, &plan(&before, texts)).unwrap()
    }
}

fn plan(interface: &Interface, texts: &[&str]) -> Plan {
    let settings: Vec<Setting> = texts.iter().map(|text| text.parse().unwrap()).collect();
    Plan::new(interface, &settings).unwrap()
}

impl Device for Fake<'_> {
    fn set(
        &mut self,
        _: &Interface,
        group: Group,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        self.requests += 1;
        let (parameters, rule) = match group {
            Group::Coalescing => (&mut self.is.coalescing, self.driver.rule),
            Group::Ring => (&mut self.is.rings, self.driver.ring),
            Group::PrivateFlag | Group::Feature => return Ok(()),
        };
        let now: Numbers =
            parameters.iter().map(|one| (one.name.clone(), one.value.number())).collect();
        let mut new = now.clone();
        new.extend(values.iter().map(|(name, value)| ((*name).to_owned(), value.number())));
        let is_stuck = self.stays_off.is_some_and(|name| now[name] == 0 && new[name] == 1);
        let refused = if is_stuck { Err(Errno::INVAL) } else { rule(&now, &mut new) };
        refused.map_err(|errno| Refusal::from(std::io::Error::from(errno)))?;
        for one in parameters {
            one.value = match one.value {
                Value::Switch(_) => Value::Switch(new[&one.name] == 1),
                Value::Number(_) => Value::Number(new[&one.name]),
            };
        }
        Ok(())
    }

    fn read(&mut self, _: &Interface) -> Result<Interface, Error> {
        Ok(self.is.clone())
    }
}

fn value<'a>(interface: &'a Interface, name: &str) -> &'a Value {
    &interface.coalescing.iter().find(|one| one.name == name).unwrap().value
}

#[test]
fn every_driver_comes_back_from_what_is_set_for_latency() {
    for driver in &DRIVERS {
        let mut fake = Fake::new(driver);
        let original = fake.is.clone();
        let settings = Profile::LowLatency.settings(&original);
        let plan = Plan::new(&original, &settings).unwrap();
        let report = change::apply(&mut fake, &original, &plan).unwrap();
        let refused: Vec<_> = report.missing().map(|key| key.name.as_str()).collect();
        // virtio_net takes that only while the interface is down.
        let expected: &[&str] = if driver.name == "virtio_net" { &["tx-frames"] } else { &[] };
        let coalescing = |name: &&&str| driver.coalescing.iter().any(|(other, _)| other == *name);
        let refused: Vec<_> = refused.iter().filter(coalescing).copied().collect();
        assert!(refused.iter().all(|name| expected.contains(name)), "{}: {report:#?}", driver.name);
        assert_eq!(*value(&fake.is, "adaptive-rx"), Value::Switch(false), "{}", driver.name);
        assert_eq!(*value(&fake.is, "rx-usecs"), Value::Number(0), "{}", driver.name);
        let changed = fake.is.clone();
        let back = Plan::back_to(&changed, &Saved::of(&original, None));
        let report = change::apply(&mut fake, &changed, &back).unwrap();
        assert_eq!(fake.is.coalescing, original.coalescing, "{}: {report:#?}", driver.name);
    }
}

#[test]
fn a_number_is_set_though_the_driver_adapts_it() {
    for driver in &DRIVERS {
        let mut fake = Fake::new(driver);
        let report = fake.apply(&["coalesce.rx-usecs=30"]);
        assert!(report.is_complete() && report.along.is_empty(), "{}: {report:#?}", driver.name);
        assert_eq!(*value(&fake.is, "rx-usecs"), Value::Number(30), "{}", driver.name);
        assert_eq!(*value(&fake.is, "adaptive-rx"), Value::Switch(true), "{}", driver.name);
    }
}

#[test]
fn a_number_that_is_out_of_range_leaves_the_rest_as_it_was() {
    let mut fake = Fake::new(&DRIVERS[0]);
    let report = fake.apply(&["coalesce.rx-usecs=9000", "coalesce.tx-usecs=10"]);
    let missing: Vec<_> = report.missing().map(ToString::to_string).collect();
    assert_eq!(missing, ["coalesce.rx-usecs"], "{report:#?}");
    assert!(report.along.is_empty(), "{report:#?}");
    assert_eq!(*value(&fake.is, "tx-usecs"), Value::Number(10));
}

#[test]
fn numbers_go_back_where_adapting_cannot_be_switched_on_with_them() {
    let mut fake = Fake::new(&DRIVERS[0]);
    fake.stays_off = Some("adaptive-rx");
    let report = fake.apply(&["coalesce.rx-usecs=30"]);
    assert!(!report.is_complete());
    assert_eq!(*value(&fake.is, "rx-usecs"), Value::Number(50), "{report:#?}");
    assert_eq!(report.along.len(), 2, "the report has both leftovers: {report:#?}");
}

#[test]
fn both_orders_are_tried() {
    // rx-usecs-high of ice waits for both directions; that of i40e is written for one of two.
    for driver in &DRIVERS[..2] {
        let mut fake = Fake::new(driver);
        let original = fake.is.clone();
        let report = fake.apply(&["coalesce.rx-usecs-high=20", "coalesce.adaptive-tx=off"]);
        assert!(report.is_complete(), "{}: {report:#?}", driver.name);
        let changed = fake.is.clone();
        let back = Plan::back_to(&changed, &Saved::of(&original, None));
        let report = change::apply(&mut fake, &changed, &back).unwrap();
        assert!(report.is_complete(), "{}: {report:#?}", driver.name);
        assert_eq!(fake.is, original, "{}", driver.name);
    }
}

#[test]
fn numbers_that_a_switch_resets_are_set_again() {
    let mut fake = Fake::new(&DRIVERS[2]);
    let original = fake.is.clone();
    // The second one is so already, until the first one is set.
    let report = fake.apply(&["coalesce.adaptive-rx=off", "coalesce.rx-usecs=12"]);
    assert!(report.is_complete(), "{report:#?}");
    assert_eq!(*value(&fake.is, "rx-usecs"), Value::Number(12));
    let changed = fake.is.clone();
    let report = change::restore(&mut fake, &changed, &Saved::of(&original, None)).unwrap();
    assert!(report.is_complete() && report.along.is_empty(), "{report:#?}");
    assert!(!report.outcomes.iter().any(|one| one.key.name == "rx-usecs"), "{report:#?}");
    assert_eq!(fake.is, original);
}

/// A device that notes what a kill after each request would leave: its state and the saved one.
struct Killed<'a> {
    fake: Fake<'a>,
    saved: &'a RefCell<Saved>,
    left: Vec<(Interface, Saved)>,
}

impl Device for Killed<'_> {
    fn set(
        &mut self,
        interface: &Interface,
        group: Group,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        let done = self.fake.set(interface, group, values);
        self.left.push((self.fake.is.clone(), self.saved.borrow().clone()));
        done
    }

    fn read(&mut self, interface: &Interface) -> Result<Interface, Error> {
        self.fake.read(interface)
    }
}

#[test]
fn a_kill_between_any_two_requests_can_be_undone() {
    for driver in &DRIVERS {
        let original = Fake::new(driver).is;
        for texts in [
            &["coalesce.rx-usecs=30"][..],
            &["coalesce.adaptive-rx=off"],
            &["coalesce.adaptive-rx=off", "coalesce.rx-usecs=0", "ring.rx=1024"],
        ] {
            let mut base = Saved::before_changes(&original, None);
            let saved = RefCell::new(base.clone());
            let mut device = Killed { fake: Fake::new(driver), saved: &saved, left: Vec::new() };
            let save = |base: &Saved| {
                *saved.borrow_mut() = base.clone();
                Ok(())
            };
            let plan = plan(&original, texts);
            carry_out(&mut device, &original, &plan, &mut base, save).unwrap();
            assert!(!device.left.is_empty());
            for (is, saved) in device.left {
                let mut fake = Fake { is: is.clone(), ..Fake::new(driver) };
                let report = change::restore(&mut fake, &is, &saved).unwrap();
                assert!(report.is_complete() && report.others.is_empty(), "{report:#?}");
                assert_eq!(fake.is, original, "{}, {texts:?}", driver.name);
            }
            // Afterwards, keys that have not changed are not restored.
            let tx = Key::new(Group::Coalescing, "tx-usecs");
            assert!(!base.owns(&tx, &original), "{}, {texts:?}: {base:?}", driver.name);
            assert_eq!(*saved.borrow(), base);
        }
    }
}

#[test]
fn a_driver_that_takes_all_is_asked_once_for_each_stage() {
    let mut fake = Fake::new(&DRIVERS[3]);
    fake.apply(&["coalesce.rx-usecs=1", "coalesce.tx-usecs=1", "coalesce.adaptive-rx=off"]);
    assert_eq!(fake.requests, 2);
}

#[test]
fn a_rounded_ring_size_is_reported() {
    let became = |driver: &Driver| {
        let mut fake = Fake::new(driver);
        let report = fake.apply(&["ring.rx=1100"]);
        assert!(
            matches!(&report.outcomes[0].result, ChangeResult::Refused(why) if why.contains("has made it")),
            "{}: {report:#?}",
            driver.name
        );
        report.outcomes[0].after.unwrap().number()
    };
    let sizes: Vec<_> = DRIVERS.iter().map(became).collect();
    assert_eq!(sizes, [1120, 1120, 2048, 1024, 2048]);
}

/// A device some of whose keys nobody may change.
struct Guarded(Vec<String>);

impl Device for Guarded {
    fn set(
        &mut self,
        _: &Interface,
        group: Group,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        if values.iter().any(|(name, _)| ["striding", "rx-usecs"].contains(name)) {
            return Err(std::io::Error::from(Errno::PERM).into());
        }
        self.0.extend(values.iter().map(|(name, _)| Key::new(group, *name).to_string()));
        Ok(())
    }

    fn read(&mut self, interface: &Interface) -> Result<Interface, Error> {
        Ok(interface.clone())
    }
}

#[test]
fn what_a_driver_lets_nobody_change_does_not_keep_back_the_rest() {
    let mut changed = sample();
    changed.private_flags[0].value = Value::Switch(true);
    changed.rings[0].value = Value::Number(64);
    changed.coalescing[1].value = Value::Number(0);
    changed.coalescing[2].value = Value::Number(0);
    let plan = Plan::back_to(&changed, &Saved::of(&sample(), None));
    let mut device = Guarded(Vec::new());
    let refusals = order(&mut device, &changed, &plan);
    assert_eq!(device.0, ["ring.rx", "coalesce.rx-frames"]);
    let refused: Vec<String> = refusals.keys().map(ToString::to_string).collect();
    assert_eq!(refused, ["private.striding", "coalesce.rx-usecs"]);
    assert!(refusals.values().all(|reason| reason == "Operation not permitted"), "{refusals:?}");
}
