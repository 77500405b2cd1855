//! A large file, served by Python's `http.server` and fetched by `curl`; the fetched file must
//! equal the served one.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::pairs::{BANDWIDTH, Listening, PerMode, Shared, compare, listen, with_package};
use crate::context::Context;
use crate::launch::{Mode, Program, Running};
use crate::schedule::{Group, Trial};

pub(super) const CASE: &str = "http, Python to curl";

const NAME: &str = "file";
const BLOCK: usize = 1 << 20;

/// The file that is served; it is fetched into the same directory.
struct Document {
    directory: TempDir,
    checksum: String,
}

pub(super) fn group<'a>(
    context: &Context<'_>,
    size: u64,
    corrupted: &Rc<Cell<usize>>,
) -> Group<'a> {
    let servers = PerMode::new();
    let document = Shared::new();
    compare(context, CASE, |mode| {
        let (server, document, corrupted) =
            (servers.of(&mode), document.clone(), corrupted.clone());
        move |trial: &mut Trial| {
            let document = document.get(|| Document::make(size))?;
            run(trial, &server, &mode, document, &corrupted)
        }
    })
}

fn run(
    trial: &mut Trial,
    server: &Shared<Listening>,
    mode: &Mode,
    document: &Document,
    corrupted: &Cell<usize>,
) -> Result<()> {
    let server = server.get(|| start(mode, document.directory.path()))?;
    let fetched = document.directory.path().join("fetched");
    let client = Program::new("curl", mode)
        .args([
            "--silent",
            "--show-error",
            "--fail",
            "--noproxy",
            "*",
            "--write-out",
            "%{time_total}",
            "--output",
        ])
        .arg(&fetched)
        .arg(format!("http://127.0.0.1:{}/{NAME}", server.port))
        .timeout(Duration::from_secs(120));
    let finished = server.serve(client, |error| with_package(error, "curl"))?;
    trial.count(finished.traffic);

    let (size, checksum) = checksum(&fetched)?;
    if checksum != document.checksum {
        corrupted.set(corrupted.get() + 1);
        bail!("the fetched file is not the served one: {size} bytes, SHA-256 {checksum}");
    }
    let seconds: f64 = finished.stdout.trim().parse().context("curl did not report its time")?;
    ensure!(seconds > 0.0, "curl reported a time of zero");
    trial.record(CASE, None, BANDWIDTH, size as f64 / seconds / 1e9);
    Ok(())
}

fn start(mode: &Mode, directory: &Path) -> Result<Listening> {
    let program = |port: u16| {
        Program::new("python3", mode)
            .args(["-m", "http.server", &port.to_string(), "--bind", "127.0.0.1", "--directory"])
            .arg(directory)
    };
    let ready = |process: &Running, port| {
        process.wait_for_port(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    listen(program, ready).map_err(|error| with_package(error, "python3"))
}

impl Document {
    /// Creates a file of `size` random bytes.
    fn make(size: u64) -> Result<Self> {
        let directory = directory(size)?;
        let path = directory.path().join(NAME);
        let write = || -> std::io::Result<String> {
            let mut file = File::create(&path)?;
            let mut random = fastrand::Rng::with_seed(size);
            let mut hash = Sha256::new();
            let mut block = vec![0; BLOCK];
            let mut left = size;
            while left > 0 {
                random.fill(&mut block);
                let length = left.min(BLOCK as u64) as usize;
                hash.update(&block[..length]);
                file.write_all(&block[..length])?;
                left -= length as u64;
            }
            Ok(hexadecimal(&hash.finalize()))
        };
        let checksum = write()
            .with_context(|| format!("cannot make a file of {size} bytes in {}", path.display()))?;
        Ok(Self { directory, checksum })
    }
}

/// Creates a directory with room for the file and its copy: in memory if possible, so that no disk
/// is measured.
fn directory(size: u64) -> Result<TempDir> {
    let shared_memory = PathBuf::from("/dev/shm");
    let room = rustix::fs::statvfs(&shared_memory).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let parent = if room > 3 * size { shared_memory } else { std::env::temp_dir() };
    let made = tempfile::Builder::new().prefix("seekwire-").tempdir_in(&parent);
    made.with_context(|| format!("cannot make a directory in {}", parent.display()))
}

/// Size and SHA-256 of a file.
fn checksum(path: &Path) -> Result<(u64, String)> {
    let read = || -> std::io::Result<(u64, String)> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let mut block = vec![0; BLOCK];
        let mut size = 0;
        loop {
            let length = file.read(&mut block)?;
            if length == 0 {
                return Ok((size, hexadecimal(&hash.finalize())));
            }
            hash.update(&block[..length]);
            size += length as u64;
        }
    };
    read().with_context(|| format!("cannot read {}", path.display()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_a_known_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(checksum(file.path()).unwrap(), (3, expected.to_owned()));
    }

    #[test]
    fn document_has_its_size_and_checksum() {
        let document = Document::make(BLOCK as u64 + 5).unwrap();
        let fetched = checksum(&document.directory.path().join(NAME)).unwrap();
        assert_eq!(fetched, (BLOCK as u64 + 5, document.checksum.clone()));
    }
}
