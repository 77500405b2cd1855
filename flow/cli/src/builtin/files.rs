//! Files: sources and sinks of blocks.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use nix::unistd::close;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use seekwire_flow::{Block, Filter, FilterError, Origin, Outputs, Ports, Step, UnitEnded, UnitId};
use seekwire_program::standard;

use super::built_filter::BuiltFilter;
use super::directory_walk::{Tree, named};
use super::file_uses;
use super::file_writers::Writer;
use super::process::LOOK;
use super::read_buffer::Scratch;
use crate::monitor::screen;
use crate::options::{Fault, OptionTable};
use crate::outputs::Destination;
use crate::unit_argument;

const BLOCK: usize = 64 << 10;
const MOST: usize = 1 << 30;

/// The error of `write` when the reader of standard output is gone, which is no failure if nothing
/// is written elsewhere.
pub(crate) const UNREAD: &str = "nobody reads standard output any more";

pub(super) fn read(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let path = path(options)?;
    let at = options.location("files");
    let files = options.strings("files")?;
    let is_wrong = |pattern: &String| pattern.is_empty() || pattern.contains('/');
    if files.as_ref().is_some_and(|files| files.is_empty() || files.iter().any(is_wrong)) {
        let message =
            "files must be patterns of names, such as [\"*.log\", \"*.txt\"], without a /";
        return Err((at, message.to_owned()));
    }
    let at = options.location("block");
    let block = options.size("block")?;
    if block.is_some_and(|block| block > MOST) {
        return Err((at, format!("read has blocks of at most {MOST} bytes")));
    }
    let (at, is_whole) = (options.location("whole"), options.boolean("whole")?);
    if is_whole && block.is_some() {
        return Err((at, "a file is read as a whole or by block, not both".to_owned()));
    }
    let (at, is_names) = (options.location("names"), options.boolean("names")?);
    if is_names && files.is_none() {
        return Err((at, "names requires files: it sends the names of the files found".to_owned()));
    }
    let ends_lines = options.boolean("end-lines")?;
    let block = if is_whole { None } else { Some(block.unwrap_or(BLOCK)) };
    let plan = Arc::new(Plan { path, files, is_names, ends_lines });
    Ok(BuiltFilter::new(Ports::source(), move || ReadFiles {
        plan: Arc::clone(&plan),
        argument: String::new(),
        root: PathBuf::new(),
        tree: None,
        from: None,
        has_found: false,
        scratch: block.map(Scratch::new),
    })
    .alone())
}

pub(super) fn write(options: &mut OptionTable<'_>) -> Result<BuiltFilter, Fault> {
    let at = options.location("path");
    let path = path(options)?.filter(|path| path != "-");
    let unknown = path.as_deref().and_then(|path| {
        let mut names = path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
        names.find(|name| !["", "name", "block"].contains(name))
    });
    if let Some(unknown) = unknown {
        return Err((
            at,
            format!("path has {{{unknown}}}; it can have {{}}, {{name}} and {{block}}"),
        ));
    }
    let path = path.map(|path| unit_argument::to_text(OsStr::new(&path)));
    let destination = path.clone().map_or(Destination::StandardOutput, Destination::Path);
    let filter: Arc<str> = options.owner().into();
    let target = path.map(|path| Arc::new(Target { filter, path }));
    let make = move || WriteFile { target: target.clone(), to: To::Nowhere };
    let built = BuiltFilter::new(Ports::sink(), make).alone();
    Ok(BuiltFilter { destination: Some(destination), ..built })
}

fn path(options: &mut OptionTable<'_>) -> Result<Option<String>, Fault> {
    let path = options.string("path")?;
    if path.as_ref().is_some_and(|path| path.is_empty() || path.contains('\0')) {
        return Err((options.span(), "path must name a file".to_owned()));
    }
    Ok(path)
}

/// The files to read, and how to read them.
struct Plan {
    /// `None`: the path is the unit's argument.
    path: Option<String>,
    /// Name patterns of the files to read below a directory.
    files: Option<Vec<String>>,
    is_names: bool,
    ends_lines: bool,
}

/// True once a filter has taken standard input.
static WAS_READ: AtomicBool = AtomicBool::new(false);

struct ReadFiles {
    plan: Arc<Plan>,
    argument: String,
    root: PathBuf,
    tree: Option<Tree>,
    from: Option<Reading>,
    has_found: bool,
    /// `None`: each file is read whole.
    scratch: Option<Scratch>,
}

/// A file that is being read.
struct Reading {
    file: File,
    /// True if there may be nothing to read for now: it is a pipe, a terminal or another device.
    waits: bool,
    path: PathBuf,
    /// Origin of the next byte.
    origin: Origin,
    /// Length when it was opened, or 0 if not known.
    length: u64,
    /// The last byte that was read.
    last: Option<u8>,
}

impl Reading {
    fn open(path: PathBuf, unit: UnitId, argument: &str) -> Result<Self, FilterError> {
        let file = opened(&path).map_err(named(&path))?;
        let length = file.metadata().map_err(named(&path))?.len();
        file_uses::reads(unit, argument, &file, &path)?;
        Ok(Self { length, ..Self::new(file, path)? })
    }

    fn standard_input(unit: UnitId, argument: &str) -> Result<Self, FilterError> {
        if WAS_READ.swap(true, Ordering::SeqCst) {
            return Err("another unit or filter has already read standard input".into());
        }
        let (input, path) = (standard::input()?, PathBuf::from("standard input"));
        file_uses::reads(unit, argument, &input, &path)?;
        let input = input.as_fd().try_clone_to_owned().map_err(named(&path))?;
        Self::new(input.into(), path)
    }

    fn new(file: File, path: PathBuf) -> Result<Self, FilterError> {
        let waits = !file.metadata().map_err(named(&path))?.is_file();
        let origin = Origin::new(&path.to_string_lossy());
        Ok(Self { file, waits, path, origin, length: 0, last: None })
    }

    fn error(&self, error: io::Error) -> FilterError {
        if error.kind() == io::ErrorKind::IsADirectory {
            let advice = "set files, such as [\"*\"], to read the files below it";
            return format!("{}: {error}: {advice}", self.path.display()).into();
        }
        named(&self.path)(error)
    }

    /// Its bytes, as long as the unit is under way.
    fn during<'o>(&'o self, out: &'o Outputs<'o>) -> During<'o> {
        During { file: &self.file, waits: self.waits, out }
    }

    /// The whole file, as one block. Ends its last line if that is missing and `ends_lines` is set.
    fn whole(&mut self, ends_lines: bool, out: &Outputs<'_>) -> Result<Bytes, FilterError> {
        let most = MOST as u64;
        let mut whole = Vec::new();
        if self.length <= most {
            whole.reserve(self.length as usize + 1);
            let mut file = self.during(out).take(most + 1);
            file.read_to_end(&mut whole).map_err(|error| self.error(error))?;
        }
        if self.length.max(whole.len() as u64) > most {
            let path = self.path.display();
            return Err(format!("{path}: it is larger than the {MOST} bytes of a block").into());
        }
        if ends_lines && whole.last().is_some_and(|last| *last != b'\n') {
            whole.push(b'\n');
        }
        Ok(whole.into())
    }

    /// The bytes of one read; `None` at the end.
    fn block(
        &mut self,
        scratch: &mut Scratch,
        out: &Outputs<'_>,
    ) -> Result<Option<Bytes>, FilterError> {
        let block = scratch.read(&mut self.during(out)).map_err(|error| self.error(error))?;
        if let Some(block) = &block {
            self.last = block.last().copied();
        }
        Ok(block)
    }
}

/// Opens a file for reading. That of a pipe would last until another process opens it to write,
/// even if the unit has ended; [`During`] waits for the bytes.
fn opened(path: &Path) -> io::Result<File> {
    if path.metadata()?.is_file() {
        return File::open(path);
    }
    let without_waiting = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = File::options().read(true).custom_flags(without_waiting).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Reads a file until the unit ends, which may be before anything more comes: other units have to
/// get their turn.
struct During<'o> {
    file: &'o File,
    waits: bool,
    out: &'o Outputs<'o>,
}

impl During<'_> {
    /// Waits until the file can be read.
    fn wait(&self) -> io::Result<()> {
        while !self.out.is_ended() {
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other(UnitEnded))
    }
}

impl Read for During<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.waits {
            self.wait()?;
        }
        self.file.read(into)
    }
}

impl Filter for ReadFiles {
    fn init(&mut self, argument: &str, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        let path = match &self.plan.path {
            Some(path) => OsString::from(path),
            None => unit_argument::of_text(argument),
        };
        argument.clone_into(&mut self.argument);
        let unit = out.unit();
        if path.is_empty() {
            return Err("no file to read: set path, or name files after the pipeline".into());
        }
        match &self.plan.files {
            Some(patterns) => {
                let tree = Tree::new(&path, patterns);
                if !self.plan.is_names {
                    file_uses::reads_tree(unit, argument, tree.clone())?;
                }
                self.tree = Some(tree);
                self.root = path.into();
            }
            None if path == "-" => self.from = Some(Reading::standard_input(unit, argument)?),
            None => self.from = Some(Reading::open(path.into(), unit, argument)?),
        }
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        if let Some(from) = &mut self.from {
            let ends_lines = self.plan.ends_lines;
            match &mut self.scratch {
                None => {
                    let whole = from.whole(ends_lines, out)?;
                    out.begins_at(from.origin.clone());
                    out.send(0, whole)?;
                }
                Some(scratch) => {
                    if let Some(block) = from.block(scratch, out)? {
                        let behind = from.origin.skip(block.len() as u64);
                        out.begins_at(std::mem::replace(&mut from.origin, behind));
                        out.send(0, block)?;
                        return Ok(Step::More);
                    }
                    if ends_lines && from.last.is_some_and(|last| last != b'\n') {
                        out.send(0, &b"\n"[..])?;
                    }
                }
            }
            self.from = None;
        }
        let Some(tree) = &mut self.tree else { return Ok(Step::Done) };
        match tree.next()? {
            Some(path) if self.plan.is_names => {
                self.has_found = true;
                out.send(0, line(&path)?)?;
                Ok(Step::More)
            }
            Some(path) => {
                self.has_found = true;
                self.from = Some(Reading::open(path, out.unit(), &self.argument)?);
                Ok(Step::More)
            }
            None if self.has_found => Ok(Step::Done),
            None => {
                let patterns = self.plan.files.as_deref().unwrap_or_default().join(" or ");
                Err(format!("there is no file called {patterns} below {}", self.root.display())
                    .into())
            }
        }
    }
}

/// The path as a line.
fn line(path: &Path) -> Result<Vec<u8>, FilterError> {
    let mut line = path.as_os_str().as_encoded_bytes().to_vec();
    if line.contains(&b'\n') {
        return Err(format!("{path:?}: a name with a newline cannot be sent as a line").into());
    }
    line.push(b'\n');
    Ok(line)
}

struct WriteFile {
    /// `None`: standard output.
    target: Option<Arc<Target>>,
    to: To,
}

struct Target {
    /// The name of the filter in messages.
    filter: Arc<str>,
    /// The option, with its placeholders.
    path: String,
}

impl Target {
    /// Opens the file of a unit, or of one of its blocks.
    fn open(
        &self,
        unit: UnitId,
        argument: &str,
        block: Option<u64>,
    ) -> Result<Written, FilterError> {
        let path = unit_argument::expanded(&self.path, unit, argument, block)?;
        let path = PathBuf::from(unit_argument::of_text(&path));
        let file = file_uses::open(&path).map_err(named(&path))?;
        let writer = Writer { filter: Arc::clone(&self.filter), unit };
        Ok(Written { file, path, writer, argument: argument.to_owned(), has_begun: false })
    }
}

enum To {
    Nowhere,
    StandardOutput,
    File(Written),
    /// A file for each block of the unit with this argument.
    Files(String),
}

/// A file that is being written.
struct Written {
    file: File,
    path: PathBuf,
    writer: Writer,
    /// The argument of the unit.
    argument: String,
    has_begun: bool,
}

impl Written {
    /// Truncates the file on the first write. A unit reads before it writes.
    fn begin(&mut self) -> Result<(), FilterError> {
        if !self.has_begun {
            file_uses::writes(&self.writer, &self.argument, &self.file, &self.path)?;
            self.has_begun = true;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FilterError> {
        self.begin()?;
        self.file.write_all(bytes).map_err(named(&self.path))
    }

    /// Some file systems, such as NFS, report only on close that there was no room for the data.
    fn close(mut self) -> Result<(), FilterError> {
        self.begin()?;
        close(self.file).map_err(io::Error::from).map_err(named(&self.path))
    }
}

impl Filter for WriteFile {
    fn init(&mut self, argument: &str, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.to = match &self.target {
            None => {
                standard::output()?;
                To::StandardOutput
            }
            Some(target) if target.path.contains("{block}") => To::Files(argument.to_owned()),
            Some(target) => To::File(target.open(out.unit(), argument, None)?),
        };
        Ok(())
    }

    fn process(
        &mut self,
        block: Block,
        _: usize,
        out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        match (&mut self.to, &self.target) {
            (To::StandardOutput, _) => {
                // Flush at once, even a partial line.
                let mut to = screen::output();
                let written = to.write_all(&block).and_then(|()| to.flush());
                written.map_err(|error| match error.kind() {
                    io::ErrorKind::BrokenPipe => UNREAD.into(),
                    _ => named(Path::new("standard output"))(error),
                })
            }
            (To::File(to), _) => to.write(&block),
            (To::Files(argument), Some(target)) => {
                let mut file = target.open(out.unit(), argument, Some(block.sequence()))?;
                file.write(&block)?;
                file.close()
            }
            _ => Ok(()),
        }
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        match std::mem::replace(&mut self.to, To::Nowhere) {
            To::Nowhere | To::Files(_) => Ok(()),
            To::StandardOutput => {
                // Standard output stays open; closing any duplicate reports its errors.
                let other = rustix::stdio::stdout().try_clone_to_owned();
                let closed = other.and_then(|other| Ok(close(other)?));
                closed.map_err(named(Path::new("standard output")))
            }
            To::File(file) => file.close(),
        }
    }
}
