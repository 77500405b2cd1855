//! Reads lines from a socket without taking a byte of what follows.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::early_stop::Interrupted;
use crate::limits::GLANCE;
use crate::message::shown;

/// Longest line in bytes, including its newline.
const MOST: usize = 4096;

/// Receives and parses the next line. Returns `None` at the end of the stream.
///
/// `interrupted`, if given, is called every [`GLANCE`].
///
/// # Errors
///
/// `TimedOut` at `deadline`, even if bytes still trickle in; `InvalidData` for a line that is too
/// long or malformed; `UnexpectedEof` for an incomplete line; `Interrupted`.
pub(crate) fn receive<T: DeserializeOwned>(
    mut stream: &TcpStream,
    deadline: Instant,
    interrupted: Option<Interrupted<'_>>,
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let mut chunk = [0; MOST];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        if interrupted.is_some_and(|interrupted| interrupted()) {
            return Err(ErrorKind::Interrupted.into());
        }
        let slice = if interrupted.is_some() { left.min(GLANCE) } else { left };
        stream.set_read_timeout(Some(slice))?;
        let seen = match stream.peek(&mut chunk) {
            Ok(seen) => seen,
            Err(error)
                if [ErrorKind::Interrupted, ErrorKind::WouldBlock].contains(&error.kind()) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        match seen {
            0 if line.is_empty() => return Ok(None),
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        let end = chunk[..seen].iter().position(|byte| *byte == b'\n');
        let length = end.map_or(seen, |end| end + 1);
        if line.len() + length > MOST {
            return Err(io::Error::new(ErrorKind::InvalidData, "a line is too long"));
        }
        stream.read_exact(&mut chunk[..length])?;
        line.extend_from_slice(&chunk[..length]);
        if end.is_some() {
            // The error quotes the line.
            let nonsense = |error: serde_json::Error| shown(&error.to_string());
            return serde_json::from_slice(&line)
                .map(Some)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, nonsense(error)));
        }
    }
}

/// Sends one line with one system call.
pub(crate) fn send<T: Serialize>(mut stream: &TcpStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::message::Request;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn what_follows_a_line_stays() {
        let (near, mut far) = pair();
        far.write_all(b"[1,2]\n\"x\"\nrest").unwrap();
        drop(far);
        assert_eq!(receive::<Vec<u8>>(&near, soon(), None).unwrap(), Some(vec![1, 2]));
        assert_eq!(receive::<String>(&near, soon(), None).unwrap().as_deref(), Some("x"));
        let mut rest = String::new();
        (&near).read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "rest");
        assert_eq!(receive::<String>(&near, soon(), None).unwrap(), None);
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        for (sent, kind) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), ErrorKind::InvalidData),
            (vec![b'['; MOST + 1], ErrorKind::InvalidData),
            (b"\xff\xfe\n".to_vec(), ErrorKind::InvalidData),
            (b"\"half".to_vec(), ErrorKind::UnexpectedEof),
        ] {
            let (near, mut far) = pair();
            far.write_all(&sent).unwrap();
            drop(far);
            assert_eq!(
                receive::<String>(&near, soon(), None).unwrap_err().kind(),
                kind,
                "{sent:?}"
            );
        }
    }

    #[test]
    fn an_error_that_quotes_the_line_is_one_line_of_limited_length() {
        let (near, mut far) = pair();
        let word = format!("\"\\n192.0.2.7:1: forged\\u001b[2J{}\"\n", "x".repeat(3000));
        far.write_all(word.as_bytes()).unwrap();
        let error = receive::<Request>(&near, soon(), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let error = error.to_string();
        assert!(error.contains("` 192.0.2.7:1: forged [2Jx") && error.len() == 300, "{error}");
    }

    #[test]
    fn who_waits_can_be_interrupted() {
        let (near, _far) = pair();
        let asked = Cell::new(0);
        let interrupted = || asked.replace(asked.get() + 1) > 1;
        let error = receive::<String>(&near, soon(), Some(&interrupted)).unwrap_err();
        assert_eq!((error.kind(), asked.get()), (ErrorKind::Interrupted, 3));
    }

    #[test]
    fn half_a_line_is_not_waited_for_longer_than_the_deadline() {
        let (near, mut far) = pair();
        far.write_all(b"\"half").unwrap();
        let error =
            receive::<String>(&near, Instant::now() + Duration::from_millis(20), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
