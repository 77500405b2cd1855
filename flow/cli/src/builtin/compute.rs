//! Filters that compute: checksums, counts, and time that passes.

use std::fmt::Write;
use std::hint;
use std::time::{Duration, Instant};

use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports};
use sha2::{Digest, Sha256};

use super::built_filter::{Blockwise, BuiltFilter};
use crate::options::{Fault, OptionTable};

pub(super) fn sha256(_: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    Ok(BuiltFilter::new(Ports::step(), || Sum(Sha256::new())).alone())
}

pub(super) fn count(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let words = [("blocks", Some(0)), ("lines", Some(1)), ("bytes", Some(2))];
    let what = options.word("what", &words)?.flatten();
    Ok(BuiltFilter::new(Ports::step(), move || Count { what, counts: [0; 3] }).alone())
}

pub(super) fn burn(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let per_byte = options.number("nanoseconds-per-byte")?.unwrap_or(18);
    let built =
        BuiltFilter::new(Ports::step(), move || Burn { per_byte }).blockwise(Blockwise::Always);
    Ok(BuiltFilter { nanoseconds_per_byte: Some(per_byte), ..built })
}

struct Sum(Sha256);

impl Filter for Sum {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.0.update(&*block);
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let mut line = String::new();
        for byte in std::mem::take(&mut self.0).finalize() {
            write!(line, "{byte:02x}")?;
        }
        line.push('\n');
        out.send(0, line)
    }
}

struct Count {
    /// The only one of the counts to send.
    what: Option<usize>,
    /// Blocks, lines, bytes.
    counts: [u64; 3],
}

impl Filter for Count {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let lines = block.iter().filter(|byte| **byte == b'\n').count();
        for (count, more) in self.counts.iter_mut().zip([1, lines, block.len()]) {
            *count += more as u64;
        }
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let [blocks, lines, bytes] = self.counts;
        let line = match self.what {
            Some(what) => format!("{}\n", self.counts[what]),
            None => format!("{blocks} blocks, {lines} lines, {bytes} bytes\n"),
        };
        out.send(0, line)
    }
}

struct Burn {
    per_byte: u64,
}

impl Filter for Burn {
    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        let until =
            Instant::now() + Duration::from_nanos(self.per_byte.saturating_mul(block.len() as u64));
        while Instant::now() < until {
            hint::spin_loop();
        }
        out.send(0, block)
    }
}
