//! A client whose link has failed, so that the server receives no end of its connection.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use seekwire_gauge::{Client, Error, Event, Limits, Server, Test, TestKind};
use seekwire_testbed::{Side, Testbed};

/// Stops the server even if an assertion fails: the scope waits for it.
struct StopAtEnd<'a>(&'a Server);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop().stop();
    }
}

#[test]
fn a_client_without_a_link_is_noticed_long_before_its_test_is_over() {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        // Bypasses the test harness, which discards the output of tests that pass.
        Err(error) => return drop(writeln!(std::io::stderr(), "not run: {error}")),
    };
    let [near, far] = [Side::Near, Side::Far].map(|side| testbed.end(side));
    let listener = far.run(|| TcpListener::bind((far.address(), 0))).unwrap().unwrap();
    let server = Server::new(listener, Limits::default()).unwrap();
    let (sender, events) = channel();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(|event| {
                let _ = sender.send(matches!(event, Event::Begun { .. }));
            })
        });
        let stop = StopAtEnd(&server);
        let first = scope.spawn(|| {
            let test = Test::new(TestKind::RequestResponse, 100, Test::MAX_TIME);
            near.run(|| Client::of(server.local_addr()).run(&test)).unwrap()
        });
        assert!(events.recv_timeout(Duration::from_secs(60)).unwrap());
        let mut unplug = Command::new("ip");
        unplug.args(["link", "set", "near", "down"]);
        assert!(near.run(|| unplug.status()).unwrap().unwrap().success());
        // Another client of the server, which would otherwise wait for a minute and a half.
        let second = far.run(|| {
            let test = Test::new(TestKind::Stream, 100, Duration::from_millis(10));
            Client::of(server.local_addr()).persist(&test, Duration::from_secs(40), &|| false)
        });
        drop(stop);
        serving.join().unwrap().unwrap();
        assert!(matches!(first.join().unwrap(), Err(Error::Gone(_) | Error::Silent(_))));
        second.unwrap().unwrap();
    });
}
