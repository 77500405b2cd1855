//! Files on a web server, read with range requests (RFC 9110, section 14), and objects in an S3
//! bucket, read with signed ones.

use crate::s3::{self, Bucket, encoded};
use crate::source::{Source, check};
use crate::zarr::{Store, inside};
use crate::{Error, Result};
use crate::{redirect, tls};
use std::io::Read;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, HeaderValue, Request, Response};
use ureq::{Agent, Body};

/// How often a request is made before its failure is final.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; it doubles with each.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(60);
/// Bytes requested when a file is opened: for many files, these are all that is needed.
const FIRST: u64 = 64 << 10;

/// A file on a web server, or an object of a store that has URLs, including signed ones. The server
/// must support range requests. Redirections are followed to the same host and port, and from
/// `http` to `https` on the same host; an S3 bucket's are not followed. Others are errors.
#[derive(Debug)]
pub struct HttpSource {
    name: String,
    url: String,
    agent: Agent,
    /// Signs the requests.
    bucket: Option<Arc<Bucket>>,
    length: u64,
    version: FileVersion,
    first: Vec<u8>,
}

struct Part {
    bytes: Vec<u8>,
    whole: u64,
    version: FileVersion,
}

/// The state of the file, as a response has it (RFC 9110, section 8.8).
#[derive(Debug, Default)]
struct FileVersion {
    etag: Option<String>,
    modified: Option<String>,
}

impl FileVersion {
    fn of(headers: &HeaderMap) -> Self {
        let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        Self { etag: header("etag"), modified: header("last-modified") }
    }

    /// The entity tag. A weak one does not guarantee the bytes.
    fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// True if another response is about another state of the file. Servers that have copies of a
    /// file may state different times, so these count only without a strong entity tag.
    fn differs(&self, other: &Self) -> bool {
        let differ = |own: &Option<String>, other: &Option<String>| {
            own.as_ref().zip(other.as_ref()).is_some_and(|(own, other)| own != other)
        };
        differ(&self.etag, &other.etag)
            || self.strong().is_none() && differ(&self.modified, &other.modified)
    }
}

pub(crate) enum HttpFailure {
    /// The next attempt may succeed.
    Passing(String),
    Final(String),
    /// There is no such file.
    Absent,
    /// The file is not the one that was opened.
    Changed,
}

pub(crate) const ABSENT: &str = "404 Not Found";
/// Bytes of an error response that are searched for a code.
const COMPLAINT: u64 = 4096;

/// Creates an HTTP agent for an address; `name` is for errors.
pub(crate) fn agent(name: &str, url: &str) -> Result<Agent> {
    if url.starts_with("https:") {
        tls::check().map_err(|what| Error::Unsupported { name: name.to_owned(), what })?;
    }
    let configuration = Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(WHOLE))
        .http_status_as_error(false)
        // The agent would follow a redirection to any host, and without a bucket's signature.
        .max_redirects(0)
        // Also for `http`, which may redirect to `https`.
        .tls_config(tls::configuration());
    Ok(configuration.build().new_agent())
}

/// A location as errors and logs show it: the address of a web server without its query, which is
/// often a signature, and without user and password. All other locations stay as they are.
///
/// A `/`, `?` or `#` in a password ends the host, which then is none: all before the last `@` may be
/// secret.
#[must_use]
pub fn public(location: &str) -> String {
    match location.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
            let before_host = authority.rfind('@').map_or(0, |at| at + 1);
            let secret = match is_host(&authority[before_host..]) {
                true => before_host,
                false => rest.rfind('@').map_or(0, |at| at + 1),
            };
            format!("{scheme}://{}", without_query(&rest[secret..]))
        }
        _ => location.to_owned(),
    }
}

/// Whether this is the host and port of an address: `host`, `host:80` or `[::1]:80`.
fn is_host(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let (is_host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (!host.is_empty() && host.bytes().all(is_name), port)
        }
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    is_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

/// The status of a failed request, with the error code that S3 puts into XML.
fn complaint(response: &mut Response<Body>) -> String {
    let status = response.status().to_string();
    let mut body = String::new();
    let _ = response.body_mut().as_reader().take(COMPLAINT).read_to_string(&mut body);
    let code = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = code.filter(|(code, _)| code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    match (code, response.headers().get("x-amz-bucket-region")) {
        (_, Some(region)) if response.status().is_redirection() => {
            format!("{status}: the bucket is in the region {region:?}")
        }
        (Some((code, _)), _) => format!("{status}: {code}"),
        _ => status,
    }
}

impl HttpSource {
    /// Requests the first bytes, to learn the length and whether the server supports ranges.
    ///
    /// # Errors
    /// No connection, no such file, no ranges, or `https` without certificates of authorities.
    pub fn open(url: &str) -> Result<Self> {
        let (name, url, bucket) = match Bucket::of(url)? {
            Some((bucket, key)) => (url.to_owned(), bucket.url(&key), Some(Arc::new(bucket))),
            None => (public(url), url.to_owned(), None),
        };
        let agent = agent(&name, &url)?;
        let absent = || Error::Http { name: name.clone(), what: ABSENT.into() };
        Self::find(name.clone(), url, agent, bucket)?.ok_or_else(absent)
    }

    /// As [`open`](Self::open), with an existing agent; `None` if there is no such file.
    fn find(
        name: String,
        url: String,
        agent: Agent,
        bucket: Option<Arc<Bucket>>,
    ) -> Result<Option<Self>> {
        let (version, first) = (FileVersion::default(), Vec::new());
        let mut source = Self { name, url, agent, bucket, length: 0, version, first };
        let Some(first) = source.part(0, FIRST)? else { return Ok(None) };
        source.length = first.whole;
        source.first = first.bytes;
        source.version = first.version;
        Ok(Some(source))
    }

    /// Reads bytes, fewer only at the end of the file; `None` if there is no file.
    fn part(&self, at: u64, length: u64) -> Result<Option<Part>> {
        patiently(&self.name, || self.attempt(at, length))
    }

    fn attempt(&self, at: u64, length: u64) -> std::result::Result<Part, HttpFailure> {
        let last = at + length - 1;
        let mut response = self.answer(&format!("bytes={at}-{last}"))?;
        let status = response.status();
        match status.as_u16() {
            206 => {}
            200 if self.version.strong().is_some() => return Err(HttpFailure::Changed),
            412 => return Err(HttpFailure::Changed),
            200 => {
                return Err(HttpFailure::Final(
                    "the server does not support range requests".into(),
                ));
            }
            _ => return Err(failure(&mut response)),
        }
        let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
        let range = range.unwrap_or_default();
        let (to, whole) = whole(range, at, last)
            .ok_or_else(|| HttpFailure::Final(format!("bytes {at}-{last} came as \"{range}\"")))?;
        let version = FileVersion::of(response.headers());
        // A server may ignore conditions.
        if self.version.differs(&version) || (self.length != 0 && whole != self.length) {
            return Err(HttpFailure::Changed);
        }
        let mut bytes = vec![0; (to - at + 1) as usize];
        response
            .body_mut()
            .as_reader()
            .read_exact(&mut bytes)
            .map_err(|error| HttpFailure::Passing(error.to_string()))?;
        Ok(Part { bytes, whole, version })
    }

    /// The response to a request, after redirections.
    fn answer(&self, range: &str) -> std::result::Result<Response<Body>, HttpFailure> {
        let started = Instant::now();
        let mut url = self.url.clone();
        for _ in 0..=redirect::MOST {
            let mut response = self.ask(&url, range)?;
            let status = response.status();
            let is_sent_on = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
            let location = response.headers().get("location").filter(|_| is_sent_on);
            let Some(location) = location.filter(|_| self.bucket.is_none()) else {
                return Ok(response);
            };
            let next = location.to_str().ok().and_then(|location| redirect::next(&url, location));
            url = next.ok_or_else(|| {
                let what = "a redirection to another server, which is not followed";
                HttpFailure::Final(format!("{status}: {what}"))
            })?;
            // The connection is reused if the response was read to its end.
            let mut body = response.body_mut().as_reader().take(COMPLAINT);
            let _ = std::io::copy(&mut body, &mut std::io::sink());
            if started.elapsed() >= WHOLE {
                return Err(HttpFailure::Passing(format!("{status}, and the deadline has passed")));
            }
        }
        Err(HttpFailure::Final(format!("more than {} redirections", redirect::MOST)))
    }

    fn ask(&self, url: &str, range: &str) -> std::result::Result<Response<Body>, HttpFailure> {
        let mut headers = HeaderMap::new();
        let fit = |value: &str| {
            HeaderValue::from_str(value).map_err(|error| HttpFailure::Final(error.to_string()))
        };
        headers.insert("range", fit(range)?);
        if let Some(etag) = self.version.strong() {
            // S3 supports `if-match` only.
            let condition = if self.bucket.is_none() { "if-range" } else { "if-match" };
            headers.insert(condition, fit(etag)?);
        }
        get(&self.agent, url, headers, self.bucket.as_deref())
    }
}

/// Retries until an attempt succeeds or fails for good; `None` if the object does not exist.
pub(crate) fn patiently<T>(
    name: &str,
    mut attempt: impl FnMut() -> std::result::Result<T, HttpFailure>,
) -> Result<Option<T>> {
    let mut pause = PAUSE;
    let mut attempts = 1;
    loop {
        let what = match attempt() {
            Ok(source) => return Ok(Some(source)),
            Err(HttpFailure::Absent) => return Ok(None),
            Err(HttpFailure::Changed) => return Err(Error::Changed { name: name.to_owned() }),
            Err(HttpFailure::Passing(_)) if attempts < ATTEMPTS => {
                std::thread::sleep(pause);
                pause *= 2;
                attempts += 1;
                continue;
            }
            Err(HttpFailure::Passing(what)) => format!("{what} ({ATTEMPTS} attempts)"),
            Err(HttpFailure::Final(what)) => what,
        };
        return Err(Error::Http { name: name.to_owned(), what });
    }
}

/// Sends a request, signed if it is to a bucket.
pub(crate) fn get(
    agent: &Agent,
    url: &str,
    headers: HeaderMap,
    bucket: Option<&Bucket>,
) -> std::result::Result<Response<Body>, HttpFailure> {
    let request =
        Request::get(url).body(()).map_err(|error| HttpFailure::Final(error.to_string()))?;
    let (mut parts, body) = request.into_parts();
    parts.headers = headers;
    if let Some(bucket) = bucket {
        bucket.sign(&mut parts).map_err(HttpFailure::Passing)?;
    }
    agent.run(Request::from_parts(parts, body)).map_err(|error| match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => HttpFailure::Final(error.to_string()),
        _ => HttpFailure::Passing(error.to_string()),
    })
}

/// Classifies a response without the bytes as a failure.
pub(crate) fn failure(response: &mut Response<Body>) -> HttpFailure {
    match response.status().as_u16() {
        404 => HttpFailure::Absent,
        408 | 429 | 500..=599 => HttpFailure::Passing(complaint(response)),
        _ => HttpFailure::Final(complaint(response)),
    }
}

/// The last byte and the length of the whole, from `bytes AT-LAST/WHOLE`.
fn whole(range: &str, at: u64, last: u64) -> Option<(u64, u64)> {
    let (part, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = part.split_once('-')?;
    let (to, whole): (u64, u64) = (to.parse().ok()?, whole.parse().ok()?);
    let wanted = to == last.min(whole.checked_sub(1)?) && at <= to;
    (from.parse() == Ok(at) && wanted).then_some((to, whole))
}

impl Source for HttpSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn state(&self) -> Option<String> {
        let of = self.version.strong().or(self.version.modified.as_deref());
        of.map(|of| format!("{} {of}", self.length))
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        check(self, at, into.len() as u64)?;
        if into.is_empty() {
            return Ok(());
        }
        let cached = self.first.get(at as usize..at as usize + into.len());
        if let Some(cached) = cached {
            into.copy_from_slice(cached);
            return Ok(());
        }
        match self.part(at, into.len() as u64)? {
            // The length was compared with the expected one.
            Some(part) => into.copy_from_slice(&part.bytes),
            None => return Err(Error::Http { name: self.name.clone(), what: ABSENT.into() }),
        }
        Ok(())
    }
}

/// Files on a web server, or objects in an S3 bucket, whose addresses have a common prefix. The
/// query of the address is part of each request.
#[derive(Debug)]
pub struct HttpStore {
    name: String,
    url: String,
    query: String,
    agent: Agent,
    bucket: Option<Arc<Bucket>>,
}

impl HttpStore {
    /// Names are relative to this address, which needs no `/` at its end.
    ///
    /// # Errors
    /// An S3 bucket without usable configuration, or `https` without certificates.
    pub fn new(url: &str) -> Result<Self> {
        let is_object = url.starts_with(s3::SCHEME);
        let address = if is_object { url } else { without_query(url) };
        let query = url[address.len()..].split('#').next().unwrap_or_default().to_owned();
        let address = address.trim_end_matches('/');
        let name = public(address);
        let (url, bucket) = match Bucket::of(address)? {
            Some((bucket, key)) => (bucket.url(&key), Some(Arc::new(bucket))),
            None => (address.to_owned(), None),
        };
        let agent = agent(&name, &url)?;
        Ok(Self { name, url, query, agent, bucket })
    }
}

impl Store for HttpStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>> {
        inside(&self.name, key)?;
        let url = format!("{}/{}{}", self.url, encoded(key), self.query);
        let name = format!("{}/{key}", self.name);
        let source = HttpSource::find(name, url, self.agent.clone(), self.bucket.clone())?;
        Ok(source.map(|source| Arc::new(source) as Arc<dyn Source>))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_an_address_is_not_shown() {
        for (location, shown) in [
            ("http://host/a.svs?key=secret#b", "http://host/a.svs"),
            ("https://user:pass@word@host:8080/a@b.svs", "https://host:8080/a@b.svs"),
            ("https://user@host", "https://host"),
            ("https://user:pass/word@host/a.svs", "https://host/a.svs"),
            ("https://user:pass?word@host:80/a.svs?key=secret", "https://host:80/a.svs"),
            ("https://user:pass#1@/word@[::1]:80/a.svs", "https://[::1]:80/a.svs"),
            ("https://[::1]/a@b.svs", "https://[::1]/a@b.svs"),
            ("https://host:80/a@b.svs", "https://host:80/a@b.svs"),
            ("s3://bucket/a?b@c.svs", "s3://bucket/a?b@c.svs"),
            ("/slides/a?b@c.svs", "/slides/a?b@c.svs"),
        ] {
            assert_eq!(public(location), shown);
        }
        let store = HttpStore::new("http://user:password@host/a.zarr/?key=secret").unwrap();
        assert_eq!(store.name, "http://host/a.zarr");
        assert_eq!(
            (&*store.url, &*store.query),
            ("http://user:password@host/a.zarr", "?key=secret")
        );
    }

    #[test]
    fn another_tag_or_without_a_strong_one_another_time_is_another_file() {
        let version = |etag: &str, modified: &str| {
            let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            FileVersion { etag: said(etag), modified: said(modified) }
        };
        for (own, other, differs) in [
            (("\"a\"", "1"), ("\"a\"", "1"), false),
            (("\"a\"", "1"), ("\"b\"", "1"), true),
            // Of another server with the same file.
            (("\"a\"", "1"), ("\"a\"", "2"), false),
            (("\"a\"", "1"), ("", "2"), false),
            (("W/\"a\"", "1"), ("W/\"a\"", "1"), false),
            (("W/\"a\"", "1"), ("W/\"b\"", "1"), true),
            (("W/\"a\"", "1"), ("W/\"a\"", "2"), true),
            (("", "1"), ("", "1"), false),
            (("", "1"), ("", "2"), true),
            (("", ""), ("\"a\"", "1"), false),
        ] {
            let is_other = version(own.0, own.1).differs(&version(other.0, other.1));
            assert_eq!(is_other, differs, "{own:?}, {other:?}");
        }
        assert_eq!(version("W/\"a\"", "").strong(), None);
        assert_eq!(version("\"a\"", "").strong(), Some("\"a\""));
    }
}
