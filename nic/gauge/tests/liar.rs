//! A server that reports false counters.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use seekwire_gauge::{Client, Error, Reading, Test, TestKind};

/// Maps the true seconds and bytes since the mark, and bytes in total, to the reported ones.
type Lie = fn((f64, u64, u64)) -> (f64, u64, u64);

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

fn say(stream: &mut BufReader<TcpStream>, line: &str) {
    stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Serves one stream correctly, except for the final counters.
fn serve(listener: &TcpListener, lie: Lie) {
    let mut control = BufReader::new(listener.accept().unwrap().0);
    line(&mut control);
    say(&mut control, r#"{"welcome":{"protocol":"seekwire-gauge","version":2}}"#);
    line(&mut control);
    say(&mut control, r#"{"ready":{"token":"1"}}"#);
    let mut data = BufReader::new(listener.accept().unwrap().0);
    line(&mut data);
    say(&mut data, "\"go\"");
    // Bytes sent before the mark are counted after it: the client cannot notice.
    let counting = thread::spawn(move || io::copy(&mut data, &mut io::sink()).unwrap());
    assert_eq!(line(&mut control), "\"mark\"\n");
    let start = Instant::now();
    say(&mut control, "\"marked\"");
    assert_eq!(line(&mut control), "\"finish\"\n");
    let received = counting.join().unwrap();
    let (seconds, since, received) = lie((start.elapsed().as_secs_f64(), received, received));
    let load = format!(r#"{{"seconds":{seconds:?},"user":0.0,"system":0.0,"machine":null}}"#);
    say(
        &mut control,
        &format!(
            r#"{{"done":{{"received":{received},"sent":0,"since_mark":{since},"load":{load}}}}}"#
        ),
    );
}

fn measure(lie: Lie) -> Result<Reading, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let test = Test {
        warm_up: Duration::ZERO,
        ..Test::new(TestKind::Stream, 1000, Duration::from_millis(50))
    };
    thread::scope(|scope| {
        scope.spawn(|| serve(&listener, lie));
        Client::connect(listener.local_addr().unwrap()).unwrap().run(&test)
    })
}

#[test]
fn what_the_other_end_has_counted_must_be_possible() {
    let honest = measure(|truth| truth).unwrap();
    assert!(honest.seconds >= 0.05 && honest.bytes == honest.sent, "{honest:?}");
    let lies: [Lie; 5] = [
        |(seconds, since, received)| (seconds / 1000.0, since, received),
        |(seconds, since, received)| (seconds + 60.0, since, received),
        |(seconds, since, received)| (seconds, since / 2, received),
        |(seconds, since, received)| (seconds, since + 1, received),
        |(seconds, _, received)| (seconds, received + 1000, received + 1000),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        match measure(lie) {
            Err(Error::Protocol(reason)) => {
                assert!(reason.contains("cannot be right"), "{number}: {reason}")
            }
            Err(Error::Lost { .. }) if number == 4 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
}
