//! The instances of a series, gathered file by file. One limit covers the tables of all of them.

use super::instance::{Instance, InstanceKind};
use crate::source::Source;
use crate::{Error, Limits, Result};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes left for the tables of a series.
pub(super) struct Room(u64);

impl Room {
    /// Takes some of them for the file `name`.
    pub(super) fn take(&mut self, bytes: u64, name: &str) -> Result<()> {
        let rest = self.0.checked_sub(bytes).ok_or_else(|| Error::Limit {
            name: name.into(),
            what: format!("another {bytes} bytes of tables in a series"),
        })?;
        self.0 = rest;
        Ok(())
    }
}

/// Instances, unsorted.
pub(super) struct Series<'a> {
    limits: &'a Limits,
    pub(super) instances: Vec<Instance>,
    uids: HashSet<String>,
    pub(super) room: Room,
    /// Index of the largest level.
    main: Option<usize>,
    /// The colour profile of the largest level. Each level has one, which may be large.
    pub(super) icc: Option<Vec<u8>>,
}

impl<'a> Series<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        let (instances, uids, room) = (Vec::new(), HashSet::new(), Room(limits.tables));
        Self { limits, instances, uids, room, main: None, icc: None }
    }

    /// Reads one more instance. If several have the same UID, the first one counts.
    pub(super) fn add(&mut self, source: &Arc<dyn Source>) -> Result<()> {
        let mut instance = Instance::open(source, self.limits)?;
        if !self.uids.insert(instance.uid().into()) {
            return Ok(());
        }
        self.room.take(instance.kept(), source.name())?;
        let icc = instance.header.icc.take();
        let is_level = instance.kind() == Some(InstanceKind::Level);
        let is_larger = |at: usize| order(&instance, &self.instances[at]).is_lt();
        if is_level && self.main.is_none_or(is_larger) {
            self.main = Some(self.instances.len());
            self.icc = icc;
        }
        self.instances.push(instance);
        Ok(())
    }
}

/// Orders the largest images first.
pub(super) fn order(one: &Instance, other: &Instance) -> Ordering {
    let area = |of: &Instance| u64::from(of.header.total_columns) * u64::from(of.header.total_rows);
    area(other).cmp(&area(one)).then_with(|| one.uid().cmp(other.uid()))
}
