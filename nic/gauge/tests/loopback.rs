//! Both ends over loopback, and misbehaving ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use seekwire_gauge::{Client, Error, Event, Limits, Server, Test, TestKind, between};

const SHORT: Duration = Duration::from_millis(30);

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Runs `work` with a server and its events.
fn with_server<T>(limits: Limits, test: impl FnOnce(&Server, &Receiver<String>) -> T) -> T {
    let server = Server::new(listener(), limits).unwrap();
    let (sender, events) = channel();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(|event| {
                // The test may have stopped reading.
                let _ = sender.send(match event {
                    Event::Begun { .. } => "begun".to_owned(),
                    Event::Tested { bytes, .. } => format!("tested {bytes}"),
                    Event::Refused { reason, .. } => format!("refused {reason}"),
                    Event::Failed { error, .. } => format!("failed {error}"),
                });
            })
        });
        let stop = StopAtEnd(&server);
        let result = test(&server, &events);
        drop(stop);
        serving.join().unwrap().unwrap();
        result
    })
}

struct StopAtEnd<'a>(&'a Server);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop().stop();
    }
}

fn wait_for(events: &Receiver<String>, start: &str) -> String {
    events.iter().find(|event| event.starts_with(start)).unwrap()
}

/// A client that sends arbitrary lines.
struct Raw(BufReader<TcpStream>);

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer
    }

    /// A control connection.
    fn introduced(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address);
        let answer = raw.ask(HELLO);
        assert!(answer.contains("welcome"), "{answer}");
        raw
    }

    /// Also opens the data connection, with a test that has begun.
    fn begun(address: SocketAddr, test: &str) -> (Self, Self) {
        let mut control = Self::introduced(address);
        let ready = control.ask(test);
        let token =
            ready.strip_prefix(r#"{"ready":{"token":""#).unwrap().split('"').next().unwrap();
        let mut data = Self::connect(address);
        assert_eq!(data.ask(&format!(r#"{{"data":{{"token":"{token}"}}}}"#)), "\"go\"\n");
        (control, data)
    }
}

const HELLO: &str = r#"{"hello":{"protocol":"seekwire-gauge","version":2}}"#;

/// The test request of an arbitrary client, without validation.
fn test_line(kind: &str, size: &str, time: &str) -> String {
    format!(
        r#"{{"test":{{"kind":"{kind}","size":{size},"time":{time},"warm_up":0,"congestion":null,"verify":true}}}}"#
    )
}

#[test]
fn both_ends_count_the_same() {
    for kind in [TestKind::RequestResponse, TestKind::Stream, TestKind::StreamBack] {
        for size in [1, 1000, 65_536, 1 << 20] {
            let test = Test { verify: true, ..Test::new(kind, size, SHORT) };
            let reading = between(listener(), &test).unwrap();
            let messages = reading.bytes / size as u64;
            match (kind, &reading.histogram) {
                (TestKind::RequestResponse, Some(histogram)) => {
                    assert!(messages > 0 && histogram.len() == messages, "{reading:?}");
                    assert_eq!(reading.sent, reading.received);
                    assert!(reading.one_way_quantile(0.5).unwrap() > 0.0);
                    let by_rate = reading.one_way_seconds().unwrap() * 2.0;
                    assert!(
                        (by_rate * messages as f64 / reading.seconds - 1.0).abs() < 1e-9,
                        "{reading:?}"
                    );
                }
                (TestKind::Stream, None) => {
                    assert!(reading.received == 0 && reading.sent >= reading.bytes)
                }
                (TestKind::StreamBack, None) => {
                    assert!(reading.sent == 0 && reading.received >= reading.bytes)
                }
                _ => panic!("{reading:?}"),
            }
            assert!(reading.bytes > 0, "{reading:?}");
            assert!(reading.sent.max(reading.received) % size as u64 == 0, "{reading:?}");
            assert!(reading.local.seconds > 0.0 && reading.remote.seconds > 0.0, "{reading:?}");
        }
    }
}

#[test]
fn one_client_runs_test_after_test() {
    with_server(Limits::default(), |server, events| {
        let mut client = Client::connect(server.local_addr()).unwrap();
        assert_eq!(client.peer_addr(), server.local_addr());
        for kind in [TestKind::Stream, TestKind::RequestResponse, TestKind::StreamBack] {
            let reading = client.run(&Test::new(kind, 100, SHORT)).unwrap();
            let line = wait_for(events, "tested");
            assert_eq!(line, format!("tested {}", reading.sent + reading.received));
        }
    });
}

#[test]
fn the_congestion_control_is_that_which_is_named() {
    with_server(Limits::default(), |server, _| {
        let mut client = Client::connect(server.local_addr().to_string()).unwrap();
        let reno =
            Test { congestion: Some("reno".to_owned()), ..Test::new(TestKind::Stream, 100, SHORT) };
        assert_eq!(client.run(&reno).unwrap().congestion, "reno");
        let unknown = Test { congestion: Some("no-such".to_owned()), ..reno.clone() };
        let error = client.run(&unknown).unwrap_err();
        assert!(matches!(&error, Error::Test(text) if text.contains("`no-such`")), "{error}");
        // The client can still be used.
        let usual = client.run(&Test { congestion: None, ..reno }).unwrap().congestion;
        assert!(["cubic", "reno"].contains(&usual.as_str()), "{usual}");
    });
}

#[test]
fn a_client_asks_for_nothing_that_is_out_of_range() {
    with_server(Limits::default(), |server, _| {
        let mut client = Client::connect(server.local_addr()).unwrap();
        for test in [
            Test::new(TestKind::Stream, 0, SHORT),
            Test::new(TestKind::Stream, 1, Duration::from_secs(61)),
        ] {
            assert!(matches!(client.run(&test), Err(Error::Test(_))));
        }
        assert!(client.run(&Test::new(TestKind::Stream, 1, SHORT)).is_ok());
    });
}

#[test]
fn a_server_takes_nothing_that_is_out_of_range() {
    with_server(Limits::default(), |server, events| {
        let mut raw = Raw::introduced(server.local_addr());
        for (size, time, reason) in [
            ("0", "1000", "not 0"),
            ("16777217", "1000", "1 to 16777216 bytes"),
            ("18446744073709551615", "1000", "bytes"),
            ("1", "0", "at most 60 s"),
            ("1", "60000001", "at most 60 s"),
            ("1", "18446744073709551615", "at most 60 s"),
        ] {
            let answer = raw.ask(&test_line("stream", size, time));
            assert!(answer.contains("refused") && answer.contains(reason), "{answer}");
            assert!(wait_for(events, "refused").contains(reason));
        }
        // The client can still run valid tests.
        assert!(raw.ask(&test_line("stream", "1", "1000")).contains("ready"));
    });
}

#[test]
fn what_is_not_a_test_ends_the_session() {
    with_server(Limits::default(), |server, _| {
        for line in [
            test_line("stream", "-1", "1000"),
            test_line("stream", "1e9", "1000"),
            test_line("shell", "1", "1000"),
            "\"mark\"".to_owned(),
            HELLO.to_owned(),
        ] {
            let mut raw = Raw::introduced(server.local_addr());
            let answer = raw.ask(&line);
            assert!(answer.contains("failed"), "{line}: {answer}");
            assert_eq!(raw.hear(), "", "{line}");
        }
    });
}

#[test]
fn a_line_without_end_ends_the_session() {
    with_server(Limits::default(), |server, events| {
        let mut raw = Raw::introduced(server.local_addr());
        raw.say(&"x".repeat(5000));
        assert!(wait_for(events, "failed").contains("too long"));
    });
}

#[test]
fn an_unknown_client_is_refused() {
    with_server(Limits::default(), |server, events| {
        for (said, reason) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r", "not a client"),
            ("\u{1}\u{2}\u{3}", "not a client"),
            (
                r#"{"hello":{"protocol":"seekwire-gauge","version":1}}"#,
                "version 2 of the protocol, not 1",
            ),
            (r#"{"hello":{"protocol":"something","version":2}}"#, "unexpected first message"),
            (r#"{"data":{"token":""}}"#, "no test expects"),
            (r#"{"data":{"token":"00000000000000000000000000000000"}}"#, "no test expects"),
            ("\"finish\"", "unexpected first message"),
        ] {
            let answer = Raw::connect(server.local_addr()).ask(said);
            assert!(answer.contains("refused") && answer.contains(reason), "{said}: {answer}");
            assert!(wait_for(events, "refused").contains(reason));
        }
        // A connection that sends nothing causes no event.
        drop(Raw::connect(server.local_addr()));
        assert!(Client::connect(server.local_addr()).is_ok());
    });
}

/// Pseudorandom numbers from a seed (xorshift64, Marsaglia 2003).
fn noise(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn noise_at_any_stage_leaves_the_server_usable() {
    with_server(Limits::default(), |server, _| {
        let mut random = noise(0x5eec);
        let valid = [
            HELLO.to_owned(),
            test_line("request-response", "100", "1000"),
            "\"finish\"".to_owned(),
        ];
        for round in 0..300 {
            let mut line = valid[random() as usize % valid.len()].clone().into_bytes();
            for _ in 0..=random() % 4 {
                let at = random() as usize % line.len();
                match random() % 3 {
                    0 => line[at] = random() as u8,
                    1 => drop(line.splice(at..at, random().to_string().into_bytes())),
                    _ => line.truncate(at + 1),
                }
            }
            let mut raw = match round % 3 {
                0 => Raw::connect(server.local_addr()),
                1 => Raw::introduced(server.local_addr()),
                _ => Raw::begun(server.local_addr(), &test_line("stream", "10", "1000")).0,
            };
            // It may have been cut off by the first byte.
            let _ = raw.0.get_mut().write_all(&line);
            let _ = raw.0.get_mut().shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            let _ = raw.0.read_to_end(&mut rest);
            let said = String::from_utf8(rest).unwrap();
            assert!(
                said.lines().all(|line| line.starts_with('{') || line.starts_with('"')),
                "{said}"
            );
        }
        let mut client = Client::connect(server.local_addr()).unwrap();
        assert!(client.run(&Test::new(TestKind::RequestResponse, 100, SHORT)).is_ok());
    });
}

#[test]
fn clients_and_tests_are_limited() {
    let limits = Limits { clients: 2, tests: 1, ..Limits::default() };
    with_server(limits, |server, events| {
        let (control, data) =
            Raw::begun(server.local_addr(), &test_line("stream-back", "1000", "60000000"));
        let mut second = Client::connect(server.local_addr()).unwrap();
        let error = second.run(&Test::new(TestKind::Stream, 1, SHORT)).unwrap_err();
        assert!(matches!(&error, Error::Busy(text) if text.contains("running a test")), "{error}");
        let error = Client::connect(server.local_addr()).unwrap_err();
        assert!(matches!(&error, Error::Busy(text) if text.contains("clients (2)")), "{error}");
        // When the first has gone, there is room.
        drop((control, data));
        wait_for(events, "failed");
        assert!(second.run(&Test::new(TestKind::Stream, 1, SHORT)).is_ok());
    });
}

#[test]
fn a_client_without_a_request_is_not_kept() {
    let limits = Limits { idle: Duration::from_millis(20), ..Limits::default() };
    with_server(limits, |server, events| {
        let mut raw = Raw::introduced(server.local_addr());
        assert!(raw.hear().contains("failed") && raw.hear().is_empty());
        assert!(wait_for(events, "failed").contains("sent nothing"));
    });
}

#[test]
fn a_server_that_ends_is_noticed() {
    for kind in [TestKind::RequestResponse, TestKind::Stream, TestKind::StreamBack] {
        let error = with_server(Limits::default(), |server, events| {
            thread::scope(|scope| {
                let running = scope.spawn(|| {
                    Client::connect(server.local_addr()).unwrap().run(&Test::new(
                        kind,
                        1000,
                        Test::MAX_TIME,
                    ))
                });
                wait_for(events, "begun");
                server.stop().stop();
                running.join().unwrap().unwrap_err()
            })
        });
        assert!(matches!(error, Error::Gone(_) | Error::Failed(_)), "{kind}: {error}");
    }
}

#[test]
fn a_server_that_has_been_stopped_does_not_begin() {
    let server = Server::bind("127.0.0.1:0").unwrap();
    server.stop().stop();
    server.serve(|event| panic!("{event}")).unwrap();
    server.serve(|event| panic!("{event}")).unwrap();
}

#[test]
fn clients_without_a_greeting_do_not_keep_others_out() {
    with_server(Limits::default(), |server, _| {
        // The maximum number of connections without an introduction, all silent. One more is
        // closed.
        let mut silent: Vec<_> =
            (0..32).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
        let mut one_more = TcpStream::connect(server.local_addr()).unwrap();
        assert_eq!(one_more.read(&mut [0]).unwrap(), 0);
        // The server refuses them when their time limit expires.
        let mut line = String::new();
        BufReader::new(silent.remove(0)).read_line(&mut line).unwrap();
        assert!(line.contains("refused"), "{line}");
        drop(silent);
    });
}

#[test]
fn a_client_that_ends_is_noticed() {
    for kind in ["request-response", "stream", "stream-back"] {
        with_server(Limits::default(), |server, events| {
            drop(Raw::begun(server.local_addr(), &test_line(kind, "1000", "60000000")));
            let line = wait_for(events, "failed");
            assert!(line.contains("lost the connection"), "{kind}: {line}");
        });
    }
}

#[test]
fn a_client_that_ends_before_its_data_connection_comes_is_noticed() {
    with_server(Limits::default(), |server, events| {
        for reset in [false, true] {
            let mut raw = Raw::introduced(server.local_addr());
            raw.say(&test_line("stream", "1", "1000"));
            if reset {
                // Closing with unread bytes sends RST.
                assert!(raw.0.get_ref().peek(&mut [0]).unwrap() == 1);
            } else {
                assert!(raw.hear().contains("ready"));
            }
            drop(raw);
            let line = wait_for(events, "failed");
            assert!(line.contains("lost the connection"), "{line}");
        }
        // There is room for the next one.
        let mut client = Client::connect(server.local_addr()).unwrap();
        assert!(client.run(&Test::new(TestKind::Stream, 1, SHORT)).is_ok());
    });
}

#[test]
fn one_that_says_more_before_its_data_connection_comes_is_given_up() {
    with_server(Limits::default(), |server, _| {
        let mut raw = Raw::introduced(server.local_addr());
        assert!(raw.ask(&test_line("stream", "1", "1000")).contains("ready"));
        let answer = raw.ask("\"mark\"");
        assert!(answer.contains("failed") && answer.contains("another request"), "{answer}");
    });
}

#[test]
fn a_client_that_is_interrupted_leaves_the_server_free() {
    with_server(Limits::default(), |server, events| {
        let mut client = Client::connect(server.local_addr()).unwrap();
        let is_wanted = AtomicBool::new(true);
        let interrupted = || !is_wanted.load(Ordering::Relaxed);
        for kind in [TestKind::RequestResponse, TestKind::Stream, TestKind::StreamBack] {
            is_wanted.store(true, Ordering::Relaxed);
            let test = Test::new(kind, 1000, Test::MAX_TIME);
            let ended = thread::scope(|scope| {
                let running = scope.spawn(|| client.run_unless(&test, &interrupted));
                wait_for(events, "begun");
                is_wanted.store(false, Ordering::Relaxed);
                running.join().unwrap()
            });
            assert!(matches!(ended, Err(Error::Interrupted)), "{kind}: {ended:?}");
            // Without it the test would run for another minute.
            assert!(wait_for(events, "failed").contains("lost the connection"), "{kind}");
        }
        // The next test connects again.
        assert!(client.run(&Test::new(TestKind::Stream, 1, SHORT)).is_ok());
    });
}

#[test]
fn who_waits_for_an_answer_or_for_better_times_can_be_interrupted() {
    // No connection is accepted, so none is answered.
    let silent = listener();
    let asked = AtomicUsize::new(0);
    let soon = || asked.fetch_add(1, Ordering::Relaxed) > 3;
    let address = silent.local_addr().unwrap();
    assert!(matches!(Client::connect_unless(address, &soon), Err(Error::Interrupted)));
    with_server(Limits::default(), |server, events| {
        let _first = Raw::begun(server.local_addr(), &test_line("stream-back", "1000", "60000000"));
        let mut second = Client::of(server.local_addr());
        let is_told = || events.try_iter().any(|event| event.contains("another client"));
        let ended =
            second.persist(&Test::new(TestKind::Stream, 1, SHORT), Test::MAX_TIME, &is_told);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    });
}

#[test]
fn who_persists_gets_a_turn_as_soon_as_there_is_one() {
    with_server(Limits::default(), |server, events| {
        let first = Raw::begun(server.local_addr(), &test_line("stream-back", "1000", "60000000"));
        let test = Test::new(TestKind::Stream, 1, SHORT);
        let mut second = Client::of(server.local_addr());
        assert!(matches!(second.persist(&test, Duration::ZERO, &|| false), Err(Error::Busy(_))));
        wait_for(events, "refused");
        thread::scope(|scope| {
            let running = scope.spawn(|| second.persist(&test, Test::MAX_TIME, &|| false));
            wait_for(events, "refused");
            drop(first);
            running.join().unwrap().unwrap();
        });
    });
    // A permanent failure is not retried.
    let address = listener().local_addr().unwrap();
    let ended = Client::of(address).persist(
        &Test::new(TestKind::Stream, 1, SHORT),
        Test::MAX_TIME,
        &|| false,
    );
    assert!(matches!(ended, Err(Error::Connect { .. })), "{ended:?}");
}

#[test]
fn half_a_message_is_an_error() {
    with_server(Limits::default(), |server, _| {
        let line = test_line("request-response", "10", "60000000");
        let (mut control, mut data) = Raw::begun(server.local_addr(), &line);
        data.0.get_mut().write_all(&[0, 1, 2]).unwrap();
        data.0.get_mut().shutdown(Shutdown::Write).unwrap();
        let answer = control.ask("\"finish\"");
        assert!(answer.contains("failed") && answer.contains("in the middle"), "{answer}");
    });
}

#[test]
fn damaged_bytes_are_noticed() {
    with_server(Limits::default(), |server, _| {
        let line = test_line("request-response", "4", "60000000");
        let (mut control, mut data) = Raw::begun(server.local_addr(), &line);
        let mut answer = [0; 4];
        data.0.get_mut().write_all(&[0, 1, 2, 3]).unwrap();
        data.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0, 1, 2, 3]);
        data.0.get_mut().write_all(&[4, 5, 7, 7]).unwrap();
        assert_eq!(data.0.read(&mut answer).unwrap(), 0);
        let answer = control.ask("\"finish\"");
        assert!(answer.contains("failed") && answer.contains("byte 6"), "{answer}");
    });
}

#[test]
fn nobody_who_answers_is_said_with_what_to_do() {
    let address = listener().local_addr().unwrap();
    let error = Client::connect(address).unwrap_err();
    assert!(error.to_string().contains("seekwire nic serve"), "{error}");
    assert!(matches!(Client::connect("no port"), Err(Error::Address { .. })));
    let occupied = listener();
    let error = Server::bind(occupied.local_addr().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Listen { .. }), "{error}");
}

#[test]
fn another_server_is_not_taken_for_one() {
    for said in
        ["HTTP/1.1 400 Bad Request\r\n", r#"{"welcome":{"protocol":"seekwire-gauge","version":9}}"#]
    {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let other = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(format!("{said}\n").as_bytes()).unwrap();
            let mut heard = Vec::new();
            // Until the client disconnects.
            let _ = stream.read_to_end(&mut heard);
        });
        assert!(matches!(Client::connect(address), Err(Error::Protocol(_))));
        other.join().unwrap();
    }
}
