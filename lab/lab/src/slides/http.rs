//! Answers of HTTP/1.1 as they arrive, and a connection for one request after the other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use httparse::Status;

/// Maximum size of an answer in bytes.
const MOST: usize = 64 << 20;
/// Maximum number of lines of its head.
const LINES: usize = 64;

/// A request without a body.
pub(crate) fn request(address: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").into_bytes()
}

/// An answer, possibly incomplete.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    bytes: Vec<u8>,
    head: Option<Head>,
    /// Ranges of its body, if it comes in chunks.
    chunks: Vec<Range<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    /// Where the body begins.
    body: usize,
    length: Length,
    /// Whether the connection closes after it.
    closes: bool,
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Known(usize),
    /// Where the next chunk begins.
    Chunks(usize),
}

impl Answer {
    /// Makes room for the next one.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.chunks.clear();
        self.head = None;
    }

    /// Whether nothing of it has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds arrived bytes; true if the answer is complete.
    ///
    /// # Errors
    ///
    /// If this is not HTTP/1.1 with a length, or too long.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool> {
        self.bytes.extend_from_slice(bytes);
        ensure!(self.bytes.len() <= MOST, "an answer of more than {} MiB", MOST >> 20);
        if self.head.is_none() {
            self.head = head(&self.bytes)?;
        }
        let Some(head) = &mut self.head else { return Ok(false) };
        let next = match &mut head.length {
            Length::Known(length) => return Ok(self.bytes.len() >= head.body + *length),
            Length::Chunks(next) => next,
        };
        while let Some(rest) = self.bytes.get(*next..) {
            let size = httparse::parse_chunk_size(rest);
            let size = size.map_err(|_| anyhow::anyhow!("an answer in chunks without a size"))?;
            let Status::Complete((line, size)) = size else { return Ok(false) };
            let size = usize::try_from(size).ok().filter(|size| *size <= MOST);
            let size = size.context("a chunk that is too long")?;
            // A line ends each chunk; none of these servers sends trailers.
            let begin = *next + line;
            if self.bytes.len() < begin + size + 2 {
                return Ok(false);
            }
            if size == 0 {
                return Ok(true);
            }
            self.chunks.push(begin..begin + size);
            *next = begin + size + 2;
        }
        Ok(false)
    }

    /// The status of a complete one; 0 before.
    pub(crate) fn status(&self) -> u16 {
        self.head.map_or(0, |head| head.status)
    }

    /// Whether the server closes the connection after it.
    pub(crate) fn closes(&self) -> bool {
        self.head.is_some_and(|head| head.closes)
    }

    /// Bytes of the body of a complete one.
    pub(crate) fn length(&self) -> usize {
        match self.head.map(|head| head.length) {
            Some(Length::Known(length)) => length,
            Some(Length::Chunks(_)) => self.chunks.iter().map(Range::len).sum(),
            None => 0,
        }
    }

    /// The body of a complete one.
    pub(crate) fn body(&self) -> Vec<u8> {
        match self.head {
            Some(Head { body, length: Length::Known(length), .. }) => {
                self.bytes[body..body + length].to_vec()
            }
            Some(_) => self.chunks.iter().flat_map(|at| &self.bytes[at.clone()]).copied().collect(),
            None => Vec::new(),
        }
    }

    /// Whether the body of a complete one begins as a JPEG does.
    pub(crate) fn is_jpeg(&self) -> bool {
        let begin = match self.head {
            Some(Head { length: Length::Known(_), body, .. }) => Some(body),
            _ => self.chunks.first().map(|chunk| chunk.start),
        };
        begin.is_some_and(|begin| self.bytes[begin..].starts_with(&[0xff, 0xd8]))
    }

    /// The server's error message, in a line.
    pub(crate) fn complaint(&self) -> String {
        let body = self.body();
        let text = String::from_utf8_lossy(&body[..body.len().min(500)]);
        let line: Vec<&str> = text.split_whitespace().collect();
        format!("status {}: {}", self.status(), line.join(" "))
    }
}

/// The head, once it has arrived completely.
fn head(bytes: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; LINES];
    let mut response = httparse::Response::new(&mut headers);
    let Status::Complete(body) = response.parse(bytes).context("not HTTP/1.1")? else {
        return Ok(None);
    };
    let mut length = None;
    let mut closes = response.version == Some(0);
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let bytes = value.parse().ok().filter(|bytes| *bytes <= MOST);
            length = Some(Length::Known(bytes.context("an answer without a usable length")?));
        } else if is("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            length = Some(Length::Chunks(body));
        } else if is("connection") {
            closes = value.eq_ignore_ascii_case("close");
        }
    }
    let length = length.context("an answer without a length")?;
    Ok(Some(Head { status: response.code.unwrap_or(0), body, length, closes }))
}

/// A connection on which one request follows the other.
#[derive(Debug)]
pub(crate) struct HttpClient {
    address: SocketAddr,
    stream: TcpStream,
    answer: Answer,
}

impl HttpClient {
    /// Connects; no read takes longer than `patience`.
    ///
    /// # Errors
    ///
    /// If no server listens.
    pub(crate) fn connect(address: SocketAddr, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self { address, stream, answer: Answer::default() })
    }

    /// The body of the answer.
    ///
    /// # Errors
    ///
    /// Any answer without status 200, with the text of the server.
    pub(crate) fn get(&mut self, path: &str) -> Result<Vec<u8>> {
        self.answer.clear();
        self.stream.write_all(&request(self.address, path))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = self.stream.read(&mut buffer).with_context(|| path.to_owned())?;
            ensure!(length > 0, "{path}: the server closed the connection");
            if self.answer.push(&buffer[..length]).with_context(|| path.to_owned())? {
                break;
            }
        }
        if self.answer.status() != 200 {
            bail!("{path}: {}", self.answer.complaint());
        }
        Ok(self.answer.body())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str, step: usize) -> Answer {
        let mut answer = Answer::default();
        let parts: Vec<&[u8]> = text.as_bytes().chunks(step).collect();
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(answer.push(part).unwrap(), number + 1 == parts.len(), "{text}, {number}");
        }
        answer
    }

    #[test]
    fn answers_come_in_pieces() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde";
        let chunks = "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                      3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        for step in [1, 2, 7, 500] {
            let answer = whole(text, step);
            assert_eq!((answer.status(), answer.closes(), answer.length()), (200, false, 5));
            assert_eq!(answer.body(), b"abcde");
            let answer = whole(chunks, step);
            assert_eq!((answer.status(), answer.closes(), answer.length()), (404, true, 5));
            assert_eq!(answer.complaint(), "status 404: abcde");
        }
        let mut answer = whole(text, 500);
        answer.clear();
        assert!(answer.is_empty() && answer.body().is_empty() && answer.status() == 0);
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for text in [
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",
        ] {
            assert!(Answer::default().push(text.as_bytes()).is_err(), "{text}");
        }
    }
}
