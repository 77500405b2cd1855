//! Files: where blocks come from and go to.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

use bytes::BytesMut;
use seekwire_flow::{Block, Filter, FilterError, Outputs, Ports, Step};

use super::Built;
use crate::options::{Fault, Options};

const BLOCK: usize = 64 << 10;

pub(super) fn read(options: &mut Options<'_>) -> Result<Built, Fault> {
    let path = options.string("path")?;
    let block = options.size("block")?.unwrap_or(BLOCK);
    Ok(Built::new(Ports::source(), move || ReadFile { path: path.clone(), block, from: None })
        .alone())
}

pub(super) fn write(options: &mut Options<'_>) -> Result<Built, Fault> {
    let path = options.string("path")?;
    Ok(Built::new(Ports::sink(), move || WriteFile { path: path.clone(), to: None }).alone())
}

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
    to: Option<(BufWriter<Box<dyn Write + Send>>, String)>,
}

impl WriteFile {
    fn open(&mut self, unit: &str) -> Result<(), FilterError> {
        if self.to.is_none() {
            let (to, name): (Box<dyn Write + Send>, String) = match &self.path {
                None => (Box::new(io::stdout()), "standard output".to_owned()),
                Some(path) => {
                    let path = path.replace("{}", unit);
                    (Box::new(File::create(&path).map_err(named(&path))?), path)
                }
            };
            self.to = Some((BufWriter::with_capacity(BLOCK, to), name));
        }
        Ok(())
    }
}

impl Filter for WriteFile {
    fn init(&mut self, _: &str, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.open(&out.unit().to_string())
    }

    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some((to, name)) = &mut self.to else { return Ok(()) };
        to.write_all(&block).map_err(named(name))
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let Some((to, name)) = &mut self.to else { return Ok(()) };
        to.flush().map_err(named(name))
    }
}
