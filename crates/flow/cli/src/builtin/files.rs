//! Files: where blocks come from and go to.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports, Step, UnitId};

use super::Built;
use crate::options::{Fault, Options};
use crate::watch::screen;

const BLOCK: usize = 64 << 10;
const MOST: usize = 1 << 30;

/// What `write` says when the reader of standard output has gone. Nothing is wrong then.
pub(crate) const UNREAD: &str = "nobody reads standard output any more";

pub(super) fn read(options: &mut Options<'_>) -> Result<Built, Fault> {
    let path = path(options)?;
    let block = options.size("block")?.unwrap_or(BLOCK);
    if block > MOST {
        return Err((options.span(), format!("read has blocks of at most {MOST} bytes")));
    }
    Ok(Built::new(Ports::source(), move || ReadFile { path: path.clone(), block, from: None })
        .alone())
}

pub(super) fn write(options: &mut Options<'_>) -> Result<Built, Fault> {
    let path = path(options)?;
    let before = Arc::default();
    let make = move || WriteFile { path: path.clone(), to: None, before: Arc::clone(&before) };
    Ok(Built::new(Ports::sink(), make).alone())
}

fn path(options: &mut Options<'_>) -> Result<Option<String>, Fault> {
    let path = options.string("path")?;
    if path.as_ref().is_some_and(|path| path.is_empty() || path.contains('\0')) {
        return Err((options.span(), "path must name a file".to_owned()));
    }
    Ok(path)
}

/// Whether somebody has standard input.
static WAS_READ: AtomicBool = AtomicBool::new(false);

struct ReadFile {
    path: Option<String>,
    block: usize,
    from: Option<Box<dyn Read + Send>>,
}

/// An error with the name of the file.
fn named(path: &str) -> impl Fn(io::Error) -> FilterError + '_ {
    move |error| format!("{path}: {error}").into()
}

impl Filter for ReadFile {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let path = self.path.get_or_insert_with(|| argument.to_owned());
        if path.is_empty() {
            return Err("no file to read: set path, or name files after the pipeline".into());
        }
        self.from = Some(if path == "-" {
            if WAS_READ.swap(true, Ordering::SeqCst) {
                return Err("standard input was read already, by another unit or filter".into());
            }
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&*path).map_err(named(path))?)
        });
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let (Some(from), Some(path)) = (&mut self.from, &self.path) else {
            return Ok(Step::Done);
        };
        let mut block = BytesMut::zeroed(self.block);
        let len = match from.read(&mut block) {
            Ok(0) => return Ok(Step::Done),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Step::More),
            Err(error) => return Err(named(path)(error)),
        };
        block.truncate(len);
        out.send(0, block)?;
        Ok(Step::More)
    }
}

struct WriteFile {
    path: Option<String>,
    to: Option<(Box<dyn Write + Send>, String)>,
    /// The unit that has written the file, if all would write the same one.
    before: Arc<Mutex<Option<UnitId>>>,
}

impl WriteFile {
    fn open(&self, unit: UnitId) -> Result<(Box<dyn Write + Send>, String), FilterError> {
        let Some(path) = &self.path else {
            return Ok((screen::output(), "standard output".to_owned()));
        };
        if !path.contains("{}") {
            let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = *before {
                let error = format!(
                    "{path} has what unit {before} wrote: put {{}}, for the number of the unit, into path"
                );
                return Err(error.into());
            }
            *before = Some(unit);
        }
        let path = path.replace("{}", &unit.to_string());
        Ok((Box::new(File::create(&path).map_err(named(&path))?), path))
    }
}

impl Filter for WriteFile {
    fn init(&mut self, _: &str, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.to = Some(self.open(out.unit())?);
        Ok(())
    }

    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some((to, name)) = &mut self.to else { return Ok(()) };
        // What is there is shown at once, also half a line.
        let written = to.write_all(&block).and_then(|()| to.flush());
        written.map_err(|error| match (&self.path, error.kind()) {
            (None, io::ErrorKind::BrokenPipe) => UNREAD.into(),
            _ => named(name)(error),
        })
    }
}
