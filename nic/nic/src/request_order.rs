//! Makes the requests of a plan in an order that drivers take.
//!
//! Drivers have rules about which settings go together, and the kernel tells nobody which. The
//! Intel drivers and virtio_net take no number while the interface adapts it itself, mlx5 resets
//! the numbers when that is switched. So a refused request is made in parts, in both orders, and
//! with adaptive coalescing off for the moment.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::interface::Interface;
use crate::kernel::{Kernel, Refusal};
use crate::plan::{Fate, Item, Plan};
use crate::setting::{Group, Key, Value};

/// An interface that can be changed and read: the kernel with the driver underneath.
pub(crate) trait Device {
    /// Sets values of one group, in one request.
    fn set(
        &mut self,
        interface: &Interface,
        group: Group,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal>;

    /// Reads the interface anew, and waits for it while it is detached.
    fn read(&mut self, interface: &Interface) -> Result<Interface, Error>;
}

impl Device for Kernel {
    fn set(
        &mut self,
        interface: &Interface,
        group: Group,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        Self::set(self, interface.index, group, values)
    }

    fn read(&mut self, interface: &Interface) -> Result<Interface, Error> {
        self.interface_back_at(interface.index, &interface.name)
    }
}

/// Why a key was refused.
pub(crate) type Refusals<'a> = BTreeMap<&'a Key, String>;

type Refused<'a> = (&'a Item, Value, Refusal);

/// Makes the requests. Whatever is refused, for whatever reason, the rest is done: a driver may say
/// of a single key that nobody may change it.
pub(crate) fn order<'a>(
    device: &mut impl Device,
    before: &Interface,
    plan: &'a Plan,
) -> Refusals<'a> {
    let mut refusals = BTreeMap::new();
    for (group, values) in plan.stages() {
        let mut refused = attempt(device, before, group, values);
        if group == Group::Coalescing {
            refused = without_adapting(device, before, plan, refused);
        }
        refusals.extend(refused.into_iter().map(|(item, _, why)| (&item.key, why.reason)));
    }
    refusals
}

/// All values in one request; if that is refused, each by itself, forwards, then backwards what one
/// later in the list may have made possible. Returns what is left.
fn attempt<'a>(
    device: &mut impl Device,
    before: &Interface,
    group: Group,
    values: Vec<(&'a Item, Value)>,
) -> Vec<Refused<'a>> {
    let request: Vec<_> =
        values.iter().map(|(item, value)| (item.key.name.as_str(), *value)).collect();
    let Err(refusal) = device.set(before, group, &request) else { return Vec::new() };
    if let [(item, value)] = values[..] {
        return vec![(item, value, refusal)];
    }
    let mut one = |(item, value): (&'a Item, Value)| {
        let refusal = device.set(before, group, &[(&item.key.name, value)]).err()?;
        Some((item, value, refusal))
    };
    let count = values.len();
    let refused: Vec<_> = values.into_iter().filter_map(&mut one).collect();
    let may_follow = |refused: &Refused<'_>| refused.2.is_of_combination();
    if refused.len() == count || !refused.iter().any(may_follow) {
        return refused;
    }
    let again = refused.into_iter().rev();
    again.filter_map(|(item, value, _)| one((item, value))).collect()
}

/// Sets the numbers of coalescing that were refused while the interface adapts them itself: that is
/// switched off before, and on again after, whether or not the driver has taken the numbers. If it
/// cannot be switched on with them, they are what they were before.
fn without_adapting<'a>(
    device: &mut impl Device,
    before: &Interface,
    plan: &Plan,
    mut refused: Vec<Refused<'a>>,
) -> Vec<Refused<'a>> {
    let goes_off = |name: &str| {
        plan.items.iter().any(|item| {
            item.key.group == Group::Coalescing
                && item.key.name == name
                && item.target == Value::Switch(false)
        })
    };
    let adapting: Vec<&str> = before
        .coalescing
        .iter()
        .filter(|one| one.value == Value::Switch(true) && one.name.starts_with("adaptive-"))
        .map(|one| one.name.as_str())
        .filter(|name| !goes_off(name))
        .collect();
    let switch = |on| adapting.iter().map(|name| (*name, Value::Switch(on))).collect::<Vec<_>>();
    let (again, hopeless): (Vec<_>, Vec<_>) = refused
        .into_iter()
        .partition(|(_, value, why)| why.is_of_combination() && matches!(value, Value::Number(_)));
    refused = hopeless;
    if again.is_empty()
        || adapting.is_empty()
        || device.set(before, Group::Coalescing, &switch(false)).is_err()
    {
        refused.extend(again);
        return refused;
    }
    let values: Vec<_> = again.iter().map(|(item, value, _)| (*item, *value)).collect();
    let left = attempt(device, before, Group::Coalescing, values.clone());
    let Err(refusal) = device.set(before, Group::Coalescing, &switch(true)) else {
        refused.extend(left);
        return refused;
    };
    // They were refused before, so that nothing is lost but the attempt.
    let back = values.iter().filter_map(|(item, _)| Some((item.key.name.as_str(), item.before?)));
    let _ = device.set(before, Group::Coalescing, &back.collect::<Vec<_>>());
    let _ = device.set(before, Group::Coalescing, &switch(true));
    refused.extend(again.into_iter().map(|(item, value, _)| (item, value, refusal.clone())));
    refused
}

/// Sets those numbers of coalescing once more that a switch has reset, even numbers that needed no
/// request before. Returns true if there are any.
pub(crate) fn again(
    device: &mut impl Device,
    after: &Interface,
    plan: &Plan,
    refusals: &Refusals<'_>,
) -> bool {
    let coalescing = || plan.items.iter().filter(|item| item.key.group == Group::Coalescing);
    let is_switched =
        |item: &Item| item.fate == Fate::Change && matches!(item.target, Value::Switch(_));
    if !coalescing().any(is_switched) {
        return false;
    }
    let is_reset = |item: &&Item| {
        matches!(item.target, Value::Number(_))
            && matches!(item.fate, Fate::Change | Fate::AlreadySo)
            && after.value(&item.key) != Some(item.target)
            && !refusals.contains_key(&item.key)
    };
    let reset: Vec<_> = coalescing().filter(is_reset).map(|item| (item, item.target)).collect();
    let is_any = !reset.is_empty();
    if is_any {
        // The report has the values that are read next.
        attempt(device, after, Group::Coalescing, reset);
    }
    is_any
}

#[cfg(test)]
mod tests;
