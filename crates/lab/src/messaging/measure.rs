//! Request and reply, and push and pull, as libzmq's perf tools measure them: local_lat and remote_lat, local_thr
//! and remote_thr of <https://github.com/zeromq/libzmq/tree/v4.3.4/perf>, which the thesis "Network hardware for
//! business messaging" used. There are a warm-up and a histogram besides, and a time instead of a number of
//! messages: a message that is one byte longer than the others ends the warm-up, and another one ends the test.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gauge::{Load, Moment};
use serde::{Deserialize, Serialize};

use super::{Contents, Latencies, Violation};

/// Round trips before those that count.
const WARM_UP_ROUND_TRIPS: u64 = 100;

/// The clock is asked once for so many messages, or once for so many bytes.
const MESSAGES_BETWEEN_LOOKS: u64 = 64;
const BYTES_BETWEEN_LOOKS: usize = 64 << 10;

/// What one end has measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Messages (round trips).
    pub messages: u64,
    /// Within which time, and what this process and the whole host did meanwhile.
    pub load: Load,
    /// Median and 99th percentile of round trips, nanoseconds.
    pub p50_ns: Option<u64>,
    /// See `p50_ns`.
    pub p99_ns: Option<u64>,
}

impl Measured {
    /// Messages (round trips) per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.load.seconds
    }
}

/// The end that asks.
pub trait Request {
    /// Sends a request and waits for the reply, which is left in `reply`.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn exchange(&mut self, request: &[u8], reply: &mut Vec<u8>) -> Result<()>;
}

/// The end that replies.
pub trait Reply {
    /// Receives a request, sends it back, and returns its length.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn answer(&mut self) -> Result<usize>;
}

/// The end that sends.
pub trait Push {
    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn push(&mut self, message: &[u8]) -> Result<()>;
}

/// The end that receives.
pub trait Pull {
    /// Receives a message and returns its length.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn pull(&mut self) -> Result<usize>;
}

/// Measures round trips of messages of `size` bytes for `time`.
///
/// # Errors
///
/// Those of `end`; [`Violation`], if a reply is not its request.
pub fn request(end: &mut impl Request, size: usize, time: Duration) -> Result<Measured> {
    let mut contents = Contents::new(size);
    let checker = contents.clone();
    let mut received = Vec::with_capacity(size + 1);
    let mut latencies = Latencies::new()?;
    let mut exchange = |number: u64| -> Result<()> {
        end.exchange(contents.message(number), &mut received)?;
        Ok(checker.check(number, &received)?)
    };
    (0..WARM_UP_ROUND_TRIPS).try_for_each(&mut exchange)?;
    let (start, deadline) = (Moment::now(), Instant::now() + time);
    loop {
        let began = Instant::now();
        exchange(WARM_UP_ROUND_TRIPS + latencies.count())?;
        let ended = Instant::now();
        latencies.add(ended - began);
        if ended >= deadline {
            break;
        }
    }
    let load = start.until(&Moment::now());
    end.exchange(&vec![0; size + 1], &mut received)?;
    let messages = latencies.count();
    let (p50_ns, p99_ns) = (latencies.quantile(0.5), latencies.quantile(0.99));
    Ok(Measured { messages, load, p50_ns, p99_ns })
}

/// Replies to [`request`] with messages of `size` bytes; everything it does counts, the warm-up too.
///
/// # Errors
///
/// Those of `end`.
pub fn reply(end: &mut impl Reply, size: usize) -> Result<Measured> {
    let mut start = Moment::now();
    let mut messages = 0;
    loop {
        let length = end.answer()?;
        if length == size + 1 {
            break;
        }
        ensure!(length == size, Violation(format!("a request of {size} bytes came with {length}")));
        messages += 1;
        if messages == 1 {
            start = Moment::now();
        }
    }
    let load = start.until(&Moment::now());
    Ok(Measured { messages, load, p50_ns: None, p99_ns: None })
}

/// Sends messages of `size` bytes for `time`, after a warm-up of a quarter of it.
///
/// # Errors
///
/// Those of `end`.
pub fn push(end: &mut impl Push, size: usize, time: Duration) -> Result<Measured> {
    let message = vec![1; size];
    let mark = vec![0; size + 1];
    send_for(end, &message, time / 4)?;
    end.push(&mark)?;
    let start = Moment::now();
    let messages = send_for(end, &message, time)?;
    end.push(&mark)?;
    let load = start.until(&Moment::now());
    Ok(Measured { messages, load, p50_ns: None, p99_ns: None })
}

fn send_for(end: &mut impl Push, message: &[u8], time: Duration) -> Result<u64> {
    let batch = MESSAGES_BETWEEN_LOOKS.min((BYTES_BETWEEN_LOOKS / message.len()).max(1) as u64);
    let began = Instant::now();
    let mut messages = 0;
    while began.elapsed() < time {
        (0..batch).try_for_each(|_| end.push(message))?;
        messages += batch;
    }
    Ok(messages)
}

/// Receives what [`push`] sends, and measures from the end of the warm-up to the end of the test.
///
/// # Errors
///
/// Those of `end`.
pub fn pull(end: &mut impl Pull, size: usize) -> Result<Measured> {
    receive_until_mark(end, size)?;
    let start = Moment::now();
    let messages = receive_until_mark(end, size)?;
    let load = start.until(&Moment::now());
    Ok(Measured { messages, load, p50_ns: None, p99_ns: None })
}

fn receive_until_mark(end: &mut impl Pull, size: usize) -> Result<u64> {
    let mut messages = 0;
    loop {
        let length = end.pull()?;
        if length == size + 1 {
            return Ok(messages);
        }
        ensure!(length == size, Violation(format!("a message of {size} bytes came with {length}")));
        messages += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct Channels(Sender<Vec<u8>>, Receiver<Vec<u8>>);

    impl Request for Channels {
        fn exchange(&mut self, request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
            self.0.send(request.to_vec())?;
            *reply = self.1.recv()?;
            Ok(())
        }
    }

    impl Reply for Channels {
        fn answer(&mut self) -> Result<usize> {
            let message = self.1.recv()?;
            let length = message.len();
            self.0.send(message)?;
            Ok(length)
        }
    }

    impl Push for Channels {
        fn push(&mut self, message: &[u8]) -> Result<()> {
            Ok(self.0.send(message.to_vec())?)
        }
    }

    impl Pull for Channels {
        fn pull(&mut self) -> Result<usize> {
            Ok(self.1.recv()?.len())
        }
    }

    fn pair() -> (Channels, Channels) {
        let ((a, b), (c, d)) = (channel(), channel());
        (Channels(a, d), Channels(c, b))
    }

    #[test]
    fn both_ends_count_the_same_round_trips() {
        let (mut here, mut there) = pair();
        let server = std::thread::spawn(move || reply(&mut there, 16).unwrap());
        let asked = request(&mut here, 16, Duration::from_millis(1)).unwrap();
        assert!(asked.messages > 0 && asked.p50_ns <= asked.p99_ns && asked.p50_ns.is_some());
        assert_eq!(server.join().unwrap().messages, asked.messages + WARM_UP_ROUND_TRIPS);
        assert!(asked.load.seconds >= 0.001 && asked.rate() > 0.0, "{asked:?}");
    }

    #[test]
    fn receiver_counts_what_was_sent_after_the_warm_up() {
        let (mut here, mut there) = pair();
        let sent = push(&mut here, 100_000, Duration::from_millis(1)).unwrap();
        assert_eq!(pull(&mut there, 100_000).unwrap().messages, sent.messages);
    }

    #[test]
    fn messages_of_another_size_are_a_violation() {
        let (mut here, mut there) = pair();
        here.push(&[0; 5]).unwrap();
        assert!(pull(&mut there, 7).unwrap_err().downcast_ref::<Violation>().is_some());
    }
}
