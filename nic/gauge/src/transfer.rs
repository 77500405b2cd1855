//! Moves the bytes of a test, at both ends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::early_stop::EarlyStop;
use crate::error::Error;
use crate::limits::ANSWER_LIMIT;
use crate::pattern::Pattern;
use crate::test::{Test, TestKind};

/// Buffer size of the receiver of a stream, in bytes.
const BULK: usize = 128 << 10;

/// Largest value of the histogram, in nanoseconds: 100 s.
const LONGEST: u64 = 100_000_000_000;

/// One end of a data connection.
pub(crate) struct Transfer<'a, W> {
    stream: &'a TcpStream,
    pattern: Pattern,
    size: usize,
    verify: bool,
    watch: W,
    /// Written by one thread; others may read the progress.
    received: AtomicU64,
    sent: AtomicU64,
}

impl<'a, W: EarlyStop> Transfer<'a, W> {
    pub(crate) fn new(stream: &'a TcpStream, test: &Test, watch: W) -> io::Result<Self> {
        stream.set_read_timeout(Some(W::SLICE))?;
        stream.set_write_timeout(Some(W::SLICE))?;
        stream.set_nodelay(test.kind == TestKind::RequestResponse)?;
        let pattern = Pattern::new(test.size.max(BULK));
        let [received, sent] = [AtomicU64::new(0), AtomicU64::new(0)];
        Ok(Self { stream, pattern, size: test.size, verify: test.verify, watch, received, sent })
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Runs the server's part until the client ends its direction or `stop` is set, and then shuts
    /// the connection down.
    pub(crate) fn serve(&self, kind: TestKind, stop: &AtomicBool) -> Result<(), Error> {
        let mut buffer = self.buffer(kind);
        let served = match kind {
            TestKind::RequestResponse => self.respond(&mut buffer),
            TestKind::Stream => self.drain(&mut buffer),
            TestKind::StreamBack => self.pour(|| !stop.load(Ordering::Relaxed)),
        };
        // The client waits for the end of stream. After an error, both directions end.
        let how = if served.is_ok() { Shutdown::Write } else { Shutdown::Both };
        let _ = self.stream.shutdown(how);
        served
    }

    /// Runs the client's part for `time`, with at least one message, and records each round trip in
    /// `round_trips`, if given.
    pub(crate) fn drive(
        &self,
        kind: TestKind,
        time: Duration,
        round_trips: Option<&mut Histogram<u64>>,
    ) -> Result<Duration, Error> {
        if time.is_zero() {
            return Ok(time);
        }
        let start = Instant::now();
        let is_early = || start.elapsed() < time;
        let mut buffer = self.buffer(kind);
        match kind {
            TestKind::RequestResponse => self.request(start, time, &mut buffer, round_trips)?,
            TestKind::Stream => self.pour(is_early)?,
            TestKind::StreamBack => {
                while self.receive_some(&mut buffer)? > 0 {
                    if !is_early() {
                        return Ok(start.elapsed());
                    }
                }
                return Err(ended_early());
            }
        }
        Ok(start.elapsed())
    }

    /// Discards the remaining bytes until the other end ends its direction.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.drain(&mut vec![0; BULK])
    }

    fn buffer(&self, kind: TestKind) -> Vec<u8> {
        vec![0; if kind == TestKind::RequestResponse { self.size } else { BULK }]
    }

    fn request(
        &self,
        start: Instant,
        time: Duration,
        buffer: &mut [u8],
        mut round_trips: Option<&mut Histogram<u64>>,
    ) -> Result<(), Error> {
        let mut last = start;
        while last - start < time {
            self.send_message()?;
            if !self.receive_message(buffer)? {
                return Err(ended_early());
            }
            // One clock read per request: the next request begins when this one ends.
            let now = Instant::now();
            if let Some(histogram) = round_trips.as_deref_mut() {
                let nanoseconds = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
                histogram.saturating_record(nanoseconds.max(1));
            }
            last = now;
        }
        Ok(())
    }

    fn respond(&self, buffer: &mut [u8]) -> Result<(), Error> {
        while self.receive_message(buffer)? {
            self.send_message()?;
        }
        Ok(())
    }

    fn pour(&self, more: impl Fn() -> bool) -> Result<(), Error> {
        loop {
            self.send_message()?;
            if !more() {
                return Ok(());
            }
        }
    }

    fn drain(&self, buffer: &mut [u8]) -> Result<(), Error> {
        while self.receive_some(buffer)? > 0 {}
        Ok(())
    }

    fn send_message(&self) -> Result<(), Error> {
        let sent = self.sent();
        let mut stream = self.stream;
        let mut message = self.pattern.piece(sent, self.size);
        let mut waited = Duration::ZERO;
        while !message.is_empty() {
            match stream.write(message) {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(some) => (message, waited) = (&message[some..], Duration::ZERO),
                Err(error) => self.excuse(error, &mut waited)?,
            }
            self.watch.look()?;
        }
        self.sent.store(sent + self.size as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Accepts errors that are not failures: a signal, or a timeout while the total wait is below
    /// the limit.
    fn excuse(&self, error: io::Error, waited: &mut Duration) -> Result<(), Error> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock if *waited + W::SLICE < ANSWER_LIMIT => {
                *waited += W::SLICE;
                Ok(())
            }
            _ => Err(error.into()),
        }
    }

    /// Returns false if the other end ended its direction between two messages.
    fn receive_message(&self, message: &mut [u8]) -> Result<bool, Error> {
        let mut filled = 0;
        while filled < message.len() {
            match self.receive_some(&mut message[filled..])? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(ended_early()),
                some => filled += some,
            }
        }
        Ok(true)
    }

    /// Returns 0 if the other end ended its direction.
    fn receive_some(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut stream = self.stream;
        let mut waited = Duration::ZERO;
        let some = loop {
            let read = stream.read(buffer);
            self.watch.look()?;
            match read {
                Ok(some) => break some,
                Err(error) => self.excuse(error, &mut waited)?,
            }
        };
        let received = self.received();
        if self.verify {
            self.pattern.check(received, &buffer[..some])?;
        }
        self.received.store(received + some as u64, Ordering::Relaxed);
        Ok(some)
    }
}

/// For times in nanoseconds, to three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are good"))
}

fn ended_early() -> Error {
    Error::Gone(io::Error::new(
        ErrorKind::UnexpectedEof,
        "its connection ended in the middle of the test",
    ))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use super::*;
    use crate::early_stop::{Caller, Closing};

    #[test]
    fn one_who_is_never_silent_and_never_done_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.write_all(b"a bit").unwrap();
        let test = Test::new(TestKind::RequestResponse, 16, Duration::from_millis(1));
        let flow = Transfer::new(&near, &test, Closing).unwrap();
        assert_eq!(flow.receive_some(&mut [0; 2]).unwrap(), 2);
        let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let late = || Transfer::new(&near, &test, Caller::new(&|| false, past)).unwrap();
        for late in [late().finish(), late().send_message()] {
            let error = late.unwrap_err().to_string();
            assert!(error.contains("far longer"), "{error}");
        }
    }

    #[test]
    fn who_moves_bytes_or_waits_for_them_can_be_interrupted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // It neither reads nor writes.
        let (_far, _) = listener.accept().unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        for kind in [TestKind::RequestResponse, TestKind::Stream, TestKind::StreamBack] {
            let test = Test::new(kind, 1 << 20, Duration::from_secs(60));
            let asked = Cell::new(0);
            let interrupted = || asked.replace(asked.get() + 1) > 1;
            let flow = Transfer::new(&near, &test, Caller::new(&interrupted, later)).unwrap();
            let error = flow.drive(kind, test.time, None).unwrap_err();
            assert!(matches!(error, Error::Interrupted) && asked.get() == 3, "{kind}: {error}");
        }
    }
}
