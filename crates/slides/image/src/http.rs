//! Files on a web server, by range requests (RFC 9110, section 14).

use crate::source::{Source, check};
use crate::{Error, Result};
use std::io::Read;
use std::time::Duration;
use ureq::Agent;

/// How often a request is made before its failure is final.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; it doubles with each.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(60);

/// A file on a web server, or an object of a store that has addresses, signed ones included. The
/// server must answer ranges. Redirections are followed: who lets strangers choose addresses must
/// check these.
#[derive(Debug)]
pub struct HttpSource {
    name: String,
    url: String,
    agent: Agent,
    length: u64,
    etag: Option<String>,
}

struct Part {
    bytes: Vec<u8>,
    whole: u64,
    etag: Option<String>,
}

enum Failure {
    /// The next attempt may succeed.
    Passing(String),
    Final(String),
}

impl HttpSource {
    /// Asks for the first byte, to learn the length and whether the server answers ranges.
    ///
    /// # Errors
    /// No connection, no such file, no ranges, or `https` in a build without it.
    pub fn open(url: &str) -> Result<Self> {
        // What follows is often a signature.
        let name = url.split(['?', '#']).next().unwrap_or(url).to_owned();
        if url.starts_with("https:") && !cfg!(feature = "https") {
            let what = "https, which this program was built without".into();
            return Err(Error::Unsupported { name, what });
        }
        let agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(WHOLE))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut source = Self { name, url: url.to_owned(), agent, length: 0, etag: None };
        let first = source.part(0, 1)?;
        source.length = first.whole;
        // A weak one does not vouch for the bytes.
        source.etag = first.etag.filter(|etag| !etag.starts_with("W/"));
        Ok(source)
    }

    fn part(&self, at: u64, length: u64) -> Result<Part> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let what = match self.attempt(at, length) {
                Ok(part) => return Ok(part),
                Err(Failure::Passing(_)) if attempt < ATTEMPTS => {
                    std::thread::sleep(pause);
                    pause *= 2;
                    attempt += 1;
                    continue;
                }
                Err(Failure::Passing(what)) => format!("{what} ({ATTEMPTS} attempts)"),
                Err(Failure::Final(what)) => what,
            };
            return Err(Error::Http { name: self.name.clone(), what });
        }
    }

    fn attempt(&self, at: u64, length: u64) -> std::result::Result<Part, Failure> {
        let last = at + length - 1;
        let mut request = self.agent.get(&self.url).header("Range", format!("bytes={at}-{last}"));
        if let Some(etag) = &self.etag {
            request = request.header("If-Range", etag);
        }
        let mut response = request.call().map_err(|error| match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => Failure::Final(error.to_string()),
            _ => Failure::Passing(error.to_string()),
        })?;
        let status = response.status();
        match status.as_u16() {
            206 => {}
            200 if self.etag.is_some() => {
                return Err(Failure::Final("the file has changed since it was opened".into()));
            }
            200 => return Err(Failure::Final("the server does not answer ranges".into())),
            408 | 429 | 500..=599 => return Err(Failure::Passing(status.to_string())),
            _ => return Err(Failure::Final(status.to_string())),
        }
        let header = |name| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let range = header("content-range").unwrap_or_default();
        let whole = whole(&range, at, last)
            .ok_or_else(|| Failure::Final(format!("bytes {at}-{last} came as \"{range}\"")))?;
        if self.length != 0 && whole != self.length {
            return Err(Failure::Final("the file has changed since it was opened".into()));
        }
        let etag = header("etag");
        let mut bytes = vec![0; length as usize];
        response
            .body_mut()
            .as_reader()
            .read_exact(&mut bytes)
            .map_err(|error| Failure::Passing(error.to_string()))?;
        Ok(Part { bytes, whole, etag })
    }
}

/// The length of the whole, from `bytes AT-LAST/WHOLE`.
fn whole(range: &str, at: u64, last: u64) -> Option<u64> {
    let (part, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = part.split_once('-')?;
    let whole = whole.parse().ok()?;
    (from.parse() == Ok(at) && to.parse() == Ok(last) && last < whole).then_some(whole)
}

impl Source for HttpSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        check(self, at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        into.copy_from_slice(&self.part(at, into.len() as u64)?.bytes);
        Ok(())
    }
}
