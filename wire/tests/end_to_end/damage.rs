//! The messaging programs of the laboratory, with somebody between them who changes one byte on the
//! way.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Child, Finished, Mode, Stage, program};

/// Bytes of each message, and of the header before it.
const SIZE: usize = 65_536;
const HEADER: usize = 16;

/// Where a byte is changed: in the middle of this message that the connecting end sends, counted
/// from 0. What else it has sent by then is much shorter than half a message.
const fn middle_of(message: usize) -> usize {
    message * (HEADER + SIZE) + SIZE / 2
}

/// Passes the bytes of one connection on to `server`, and changes the one at `damaged` on its way
/// there.
fn meddler(server: SocketAddr, damaged: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || {
        let near = listener.accept().expect("a client").0;
        let far = TcpStream::connect(server).expect("the server listens");
        let (back_from, back_to) =
            (far.try_clone().expect("a descriptor"), near.try_clone().expect("a descriptor"));
        thread::spawn(move || pass_on(back_from, back_to, None));
        pass_on(near, far, Some(damaged));
    });
    address
}

/// Until either end has gone.
fn pass_on(mut from: TcpStream, mut to: TcpStream, damaged: Option<usize>) {
    let (mut bytes, mut before) = (vec![0; SIZE], 0);
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if let Some(place) = damaged.and_then(|damaged| damaged.checked_sub(before)) {
            bytes[..length].get_mut(place).into_iter().for_each(|byte| *byte ^= 1);
        }
        before += length;
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    // The other one may have gone already.
    let _ = to.shutdown(Shutdown::Write);
}

fn start(stage: &Stage, role: &str, order: &str) -> Child {
    stage.start(
        stage
            .plain_command(program("seekwire-lab"))
            .args(["lab-peer", "mailbox", "tcp", role, order]),
    )
}

/// Both programs, where a byte in the middle of this message is changed: the one that listens, and
/// the other one.
fn run(roles: [&str; 2], listening: &str, mut connecting: Value, message: usize) -> [Finished; 2] {
    let stage = Stage::new(Mode::Plain);
    let mut server = start(&stage, roles[0], listening);
    let ready = server.line();
    let address =
        ready.strip_prefix("ready ").and_then(|address| address.parse().ok()).expect(&ready);
    connecting["address"] = meddler(address, middle_of(message)).to_string().into();
    let client = start(&stage, roles[1], &connecting.to_string());
    let client = client.finish();
    [server.finish(), client]
}

/// A program that finds damage ends with an error and tells the laboratory.
fn has_found(finished: &Finished) {
    assert!(!finished.status.success(), "{finished:?}");
    let told = |line: &str| line.contains("violation") && line.contains("were damaged");
    assert!(finished.stdout.lines().any(told), "{finished:?}");
}

fn two_ends(kind: &str, message: usize) -> [Finished; 2] {
    let test = json!({ "kind": kind, "size": SIZE, "milliseconds": 20 });
    run(["serve", "request"], "127.0.0.1:0", json!({ "tests": [test] }), message)
}

#[test]
fn of_a_round_trip_is_found_in_the_warm_up_and_after_the_time() {
    // 100 round trips come before those that count; there is at least one of these.
    for message in [10, 100] {
        let [_, asks] = two_ends("request-reply", message);
        has_found(&asks);
    }
}

#[test]
fn of_a_pushed_message_is_found() {
    let [receives, _] = two_ends("push-pull", 10);
    has_found(&receives);
}

#[test]
fn of_a_result_of_a_worker_is_found() {
    let order = |address: &str| {
        json!({
            "model": "scatter", "address": address, "members": 1, "rank": 0, "size": SIZE, "milliseconds": 20
        })
    };
    let [root, _] = run(["hub", "member"], &order("127.0.0.1:0").to_string(), order(""), 0);
    has_found(&root);
}

#[test]
fn what_nobody_changes_is_not_damaged() {
    for kind in ["request-reply", "push-pull"] {
        // Beyond all that is sent.
        for finished in two_ends(kind, 1 << 40) {
            finished.success();
        }
    }
}
