//! The filters that have written files in this process.
//!
//! File systems mostly give new files consecutive numbers. So files that one filter has written in a
//! row are one range, and a file for each of many blocks takes hardly any memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use seekwire_flow::UnitId;

/// A filter, named as in messages, that writes a file for a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    pub(super) filter: Arc<str>,
    pub(super) unit: UnitId,
}

impl Writer {
    /// Why it cannot write a file that the other one has written.
    pub(super) fn after(&self, other: &Self) -> String {
        let Self { filter, unit } = other;
        if self.filter != *filter {
            format!("{filter} already writes it; write to another file")
        } else if self.unit != *unit {
            format!(
                "unit {unit} has already written it; let path differ between units, for example \
                 by {{}}, their number"
            )
        } else {
            "another block has already been written to it; write to another file".to_owned()
        }
    }
}

/// Device and inode.
type FileNumber = (u64, u64);

/// The writers of files, by their numbers.
#[derive(Default)]
pub(super) struct Writers {
    /// By the first file of each range: the inode of its last one, and the writer.
    ranges: BTreeMap<FileNumber, (u64, Writer)>,
}

impl Writers {
    pub(super) fn get(&self, file: FileNumber) -> Option<&Writer> {
        let (_, _, writer) = self.range_of(file)?;
        Some(writer)
    }

    /// The range that has the file: its first and last inode, and the writer.
    fn range_of(&self, (device, inode): FileNumber) -> Option<(u64, u64, &Writer)> {
        let before = self.ranges.range((device, 0)..=(device, inode)).next_back();
        let ((_, first), (last, writer)) = before?;
        (inode <= *last).then_some((*first, *last, writer))
    }

    pub(super) fn insert(&mut self, file: FileNumber, writer: Writer) {
        self.remove(file);
        let (device, inode) = file;
        let mut last = inode;
        if let Entry::Occupied(after) = self.ranges.entry((device, inode.saturating_add(1))) {
            if after.get().1 == writer {
                (last, _) = after.remove();
            }
        }
        let before = self.ranges.range_mut((device, 0)..file).next_back();
        match before.map(|(_, range)| range) {
            Some((end, same)) if end.saturating_add(1) == inode && *same == writer => *end = last,
            _ => {
                self.ranges.insert(file, (last, writer));
            }
        }
    }

    pub(super) fn remove(&mut self, file: FileNumber) {
        let (device, inode) = file;
        let Some((first, last, writer)) = self.range_of(file) else { return };
        let writer = writer.clone();
        self.ranges.remove(&(device, first));
        if first < inode {
            self.ranges.insert((device, first), (inode - 1, writer.clone()));
        }
        if inode < last {
            self.ranges.insert((device, inode + 1), (last, writer));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn each_file_has_its_writer_and_ranges_are_few() {
        let writers = ["0", "1"].map(|unit| Writer {
            filter: "filter".into(),
            unit: serde_json::from_str(unit).unwrap(),
        });
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..200 {
            let (mut ranges, mut map) = (Writers::default(), BTreeMap::new());
            for _ in 0..100 {
                let file = (random.u64(0..2), random.u64(0..30));
                if random.u8(0..4) == 0 {
                    ranges.remove(file);
                    map.remove(&file);
                } else {
                    let writer = &writers[random.usize(0..2)];
                    ranges.insert(file, writer.clone());
                    map.insert(file, writer);
                }
                for file in (0..2).flat_map(|device| (0..31).map(move |inode| (device, inode))) {
                    assert_eq!(ranges.get(file), map.get(&file).copied());
                }
                let begins = |((device, inode), writer): &(&FileNumber, &&Writer)| {
                    let before = inode.checked_sub(1).and_then(|inode| map.get(&(*device, inode)));
                    before != Some(*writer)
                };
                assert_eq!(ranges.ranges.len(), map.iter().filter(begins).count());
            }
        }
    }
}
