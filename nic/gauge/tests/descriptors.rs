//! A server whose process has no descriptor left. A program of its own, because all of its threads
//! share them.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seekwire_gauge::{Client, Limits, Server, Test, TestKind};

struct StopAtEnd<'a>(&'a Server);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop().stop();
    }
}

/// Waits, as a client without requests, until the server closes the connection.
fn end(mut client: TcpStream) {
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It fails if the server has already closed the connection.
    let _ = client.shutdown(Shutdown::Write);
    match client.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => {}
    }
}

#[test]
fn one_without_descriptors_turns_clients_away_and_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::new(listener, Limits::default()).unwrap();
    let address = server.local_addr();
    let limit = Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(|_| {}));
        let stop = StopAtEnd(&server);
        // The server now serves, and all that this client needed is free again.
        end(TcpStream::connect(address).unwrap());
        let clients: Vec<_> = (0..3)
            .map(|_| socket(AddressFamily::INET, SocketType::STREAM, None).unwrap())
            .collect();
        let mut held = Vec::new();
        while let Ok(one) = clients[0].try_clone() {
            held.push(one);
        }
        assert!(held.len() > 10, "{}", held.len());
        for client in clients {
            connect(&client, &address).unwrap();
            end(TcpStream::from(client));
        }
        drop(held);
        let test = Test::new(TestKind::Stream, 100, Duration::from_millis(10));
        let measured = Client::of(address).persist(&test, Duration::from_secs(30), &|| false);
        drop(stop);
        serving.join().unwrap().unwrap();
        measured.unwrap();
    });
}
