//! Request and reply, and push and pull, as libzmq's perf tools measure them: local_lat and
//! remote_lat, local_thr and remote_thr of <https://github.com/zeromq/libzmq/tree/v4.3.4/perf>,
//! which the thesis "Network hardware for business messaging" used. In addition there are a warm-up
//! and a histogram, and a time instead of a number of messages: a message that is one byte longer
//! than the others ends the warm-up, and another one ends the test.
//!
//! The timed part is messaging and work that takes the same time for all sizes: a message gets its
//! number, and its length and number are checked. Round trips are those of one message, which
//! neither end copies, as there: see [`Journey`]. Bytes that are pushed are prepared; the library
//! copies them, as zmq_send(3) does, while remote_thr sends memory that nobody has written to.
//! Before the warm-up whole messages are checked, and after that one of [`SHARE`].

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use seekwire_gauge::{Load, Moment};
use serde::{Deserialize, Serialize};

use super::{Iteration, Journey, Latencies, MessageContents, SHARE, Violation, renumber};

/// Round trips before those that count, and messages before the warm-up; all are checked in full.
const CHECKED: u64 = 100;

/// The clock is read once for this many messages, or once for this many bytes.
const MESSAGES_BETWEEN_LOOKS: u64 = 64;
const BYTES_BETWEEN_LOOKS: usize = 64 << 10;

/// Measurement of one end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Messages (round trips).
    pub messages: u64,
    /// The time that they took, and the load of this process and of the whole host meanwhile.
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

/// The end that requests.
pub trait Requester {
    /// Makes a copy of `message` the next request.
    fn set(&mut self, message: &[u8]);

    /// The next request, which is the last reply unless another one has been set.
    fn message(&mut self) -> &mut [u8];

    /// Sends the request and waits for the reply, which takes its place.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn exchange(&mut self) -> Result<()>;
}

/// The end that replies.
pub trait Replier {
    /// Receives a request, sends the same bytes back, and returns their number.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn answer(&mut self) -> Result<usize>;
}

/// The end that sends.
pub trait Pusher {
    /// Sends a message.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn push(&mut self, message: &[u8]) -> Result<()>;
}

/// The end that receives.
pub trait Puller {
    /// Receives a message.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn pull(&mut self) -> Result<&[u8]>;
}

/// Measures round trips of messages of `size` bytes for `time`.
///
/// # Errors
///
/// Those of `end`; [`Violation`], if a reply is not its request.
pub fn request(end: &mut impl Requester, size: usize, time: Duration) -> Result<Measured> {
    let mut journey = Journey::new(size);
    let mut latencies = Latencies::new()?;
    end.set(&journey.first());
    let mut exchange = |number, warm_up| -> Result<()> {
        let turn = Iteration { number, warm_up };
        journey.depart(turn, end.message());
        end.exchange()?;
        Ok(journey.arrive(turn, end.message())?)
    };
    (0..CHECKED).try_for_each(|number| exchange(number, true))?;
    let (start, mut began) = (Moment::now(), Instant::now());
    let deadline = began + time;
    loop {
        exchange(CHECKED + latencies.count(), false)?;
        // The clock is read once for each round trip, which begins at the end of the preceding one.
        let ended = Instant::now();
        latencies.add(ended - began);
        if ended >= deadline {
            break;
        }
        began = ended;
    }
    let load = start.until(&Moment::now());
    journey.end(end.message())?;
    end.set(&vec![0; size + 1]);
    end.exchange()?;
    let messages = latencies.count();
    let (p50_ns, p99_ns) = (latencies.quantile(0.5), latencies.quantile(0.99));
    Ok(Measured { messages, load, p50_ns, p99_ns })
}

/// Replies to [`request`] with messages of `size` bytes; everything it does counts, also the
/// warm-up.
///
/// # Errors
///
/// Those of `end`.
pub fn reply(end: &mut impl Replier, size: usize) -> Result<Measured> {
    let mut start = Moment::now();
    let mut messages = 0;
    loop {
        let length = end.answer()?;
        if length == size + 1 {
            break;
        }
        ensure!(
            length == size,
            Violation(format!("a request of {size} bytes arrived with {length}"))
        );
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
pub fn push(end: &mut impl Pusher, size: usize, time: Duration) -> Result<Measured> {
    let contents = MessageContents::new(size);
    let (mut message, mark) = (vec![0; size], vec![0; size + 1]);
    for number in 0..CHECKED {
        contents.fill(number, &mut message);
        end.push(&message)?;
    }
    let warm_up = CHECKED + send_for(end, &mut message, CHECKED, time / 4)?;
    end.push(&mark)?;
    let start = Moment::now();
    let messages = send_for(end, &mut message, warm_up, time)?;
    end.push(&mark)?;
    let load = start.until(&Moment::now());
    Ok(Measured { messages, load, p50_ns: None, p99_ns: None })
}

/// Sends `message` for `time`, as number `first` and so on.
fn send_for(end: &mut impl Pusher, message: &mut [u8], first: u64, time: Duration) -> Result<u64> {
    let batch = MESSAGES_BETWEEN_LOOKS.min((BYTES_BETWEEN_LOOKS / message.len()).max(1) as u64);
    let began = Instant::now();
    let mut messages = 0;
    while began.elapsed() < time {
        for _ in 0..batch {
            renumber(message, first + messages);
            end.push(message)?;
            messages += 1;
        }
    }
    Ok(messages)
}

/// Receives what [`push`] sends, and measures from the end of the warm-up to the end of the test.
///
/// # Errors
///
/// Those of `end`; [`Violation`], if a message arrives out of order.
pub fn pull(end: &mut impl Puller, size: usize) -> Result<Measured> {
    let contents = MessageContents::new(size);
    let warm_up = receive_until_mark(end, &contents, size, 0)?;
    let start = Moment::now();
    let messages = receive_until_mark(end, &contents, size, warm_up)?;
    let load = start.until(&Moment::now());
    Ok(Measured { messages, load, p50_ns: None, p99_ns: None })
}

/// Receives messages, the first of which is number `first`, and returns how many there were.
fn receive_until_mark(
    end: &mut impl Puller,
    contents: &MessageContents,
    size: usize,
    first: u64,
) -> Result<u64> {
    let mut number = first;
    loop {
        let message = end.pull()?;
        if message.len() == size + 1 {
            return Ok(number - first);
        }
        contents.check_number(number, message)?;
        if number < CHECKED || number % SHARE == 0 {
            // From there on all messages have the body of the last of these.
            contents.check_body(number.min(CHECKED - 1), message)?;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// An end, its message, and how many messages it has received.
    struct Channels {
        out: Sender<Vec<u8>>,
        arrivals: Receiver<Vec<u8>>,
        message: Vec<u8>,
        received: u64,
        /// Number of the damaged message among the received ones, and index of its damaged byte.
        damage: Option<(u64, usize)>,
    }

    impl Channels {
        fn receive(&mut self) -> Result<()> {
            self.message = self.arrivals.recv()?;
            if let Some((_, byte)) = self.damage.filter(|(which, _)| *which == self.received) {
                self.message[byte] ^= 1;
            }
            self.received += 1;
            Ok(())
        }
    }

    impl Requester for Channels {
        fn set(&mut self, message: &[u8]) {
            self.message = message.to_vec();
        }

        fn message(&mut self) -> &mut [u8] {
            &mut self.message
        }

        fn exchange(&mut self) -> Result<()> {
            self.out.send(std::mem::take(&mut self.message))?;
            self.receive()
        }
    }

    impl Replier for Channels {
        fn answer(&mut self) -> Result<usize> {
            self.receive()?;
            let length = self.message.len();
            self.out.send(std::mem::take(&mut self.message))?;
            Ok(length)
        }
    }

    impl Pusher for Channels {
        fn push(&mut self, message: &[u8]) -> Result<()> {
            Ok(self.out.send(message.to_vec())?)
        }
    }

    impl Puller for Channels {
        fn pull(&mut self) -> Result<&[u8]> {
            self.receive()?;
            Ok(&self.message)
        }
    }

    fn pair() -> (Channels, Channels) {
        let ((out, there), (back, arrivals)) = (channel(), channel());
        let end = |out, arrivals| Channels {
            out,
            arrivals,
            message: Vec::new(),
            received: 0,
            damage: None,
        };
        (end(out, arrivals), end(back, there))
    }

    fn is_violation<T: std::fmt::Debug>(result: Result<T>) -> bool {
        result.unwrap_err().downcast_ref::<Violation>().is_some()
    }

    #[test]
    fn both_ends_count_the_same_round_trips() {
        let (mut here, mut there) = pair();
        let server = std::thread::spawn(move || reply(&mut there, 16).unwrap());
        let asked = request(&mut here, 16, Duration::from_millis(1)).unwrap();
        assert!(asked.messages > 0 && asked.p50_ns <= asked.p99_ns && asked.p50_ns.is_some());
        assert_eq!(server.join().unwrap().messages, asked.messages + CHECKED);
        assert!(asked.load.seconds >= 0.001 && asked.rate() > 0.0, "{asked:?}");
    }

    #[test]
    fn receiver_counts_what_was_sent_after_the_warm_up() {
        let (mut here, mut there) = pair();
        let sent = push(&mut here, 100_000, Duration::from_millis(1)).unwrap();
        assert_eq!(pull(&mut there, 100_000).unwrap().messages, sent.messages);
    }

    #[test]
    fn a_damaged_round_trip_is_a_violation() {
        // Of the warm-up and of those that count; the number and the last byte of the body.
        for damage in [(3, 999), (CHECKED, 0), (CHECKED, 8), (CHECKED, 999)] {
            let (here, mut there) = pair();
            let server = std::thread::spawn(move || reply(&mut there, 1000));
            let mut here = Channels { damage: Some(damage), ..here };
            assert!(is_violation(request(&mut here, 1000, Duration::from_millis(1))), "{damage:?}");
            drop(here);
            assert!(server.join().unwrap().is_err(), "the other end has gone");
        }
    }

    #[test]
    fn a_damaged_message_is_a_violation() {
        for damage in [(3, 999), (CHECKED + 1, 0), (SHARE, 8), (SHARE, 999)] {
            let (mut here, there) = pair();
            let contents = MessageContents::new(1000);
            for number in 0..=SHARE {
                let mut message = contents.message(number.min(CHECKED - 1));
                renumber(&mut message, number);
                here.push(&message).unwrap();
            }
            here.push(&[0; 1001]).unwrap();
            let mut there = Channels { damage: Some(damage), ..there };
            assert!(is_violation(receive_until_mark(&mut there, &contents, 1000, 0)), "{damage:?}");
        }
    }

    #[test]
    fn messages_that_are_lost_or_of_another_size_are_a_violation() {
        let contents = MessageContents::new(7);
        for wrong in [contents.message(1), vec![0; 5]] {
            let (mut here, mut there) = pair();
            here.push(&wrong).unwrap();
            assert!(is_violation(pull(&mut there, 7)), "{wrong:?}");
        }
    }
}
