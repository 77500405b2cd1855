//! Real namespaces, a real cable, and real cgroups. Where this process may not make them, a test
//! says so and does nothing.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use netlink_bindings::tc::{self, OptionsMsg, Tcmsg};
use netlink_socket2::NetlinkSocket;
use seekwire_testbed::{CpuQuota, Error, Side, Testbed};

/// Says so past the test harness, which swallows what a test that passes has to say.
fn not_run(why: &Error) {
    let _ = writeln!(std::io::stderr(), "not run: {why}");
}

/// None where it is not permitted; any other error is one.
fn here<T>(made: Result<T, Error>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(why @ (Error::NotPermitted { .. } | Error::NoQuota(_))) => {
            not_run(&why);
            None
        }
        Err(why) => panic!("{why}"),
    }
}

/// The inode that is the namespace's identity.
fn namespace_of(process: &str) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{process}/ns/net")).unwrap()
}

#[test]
fn the_ends_reach_each_other_and_themselves() {
    let Some(testbed) = here(Testbed::new()) else { return };
    let (near, far) = (testbed.end(Side::Near), testbed.end(Side::Far));
    let listener = far.run(|| TcpListener::bind((far.address(), 0))).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), near.address());
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        });
        let mut stream = near.run(|| TcpStream::connect((far.address(), port))).unwrap().unwrap();
        stream.write_all(b"through the cable").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "THROUGH THE CABLE");
    });
    near.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 8]).unwrap().0, 1);
    })
    .unwrap();
}

#[test]
fn programs_are_started_in_their_end() {
    let Some(testbed) = here(Testbed::new()) else { return };
    let mut seen = BTreeSet::from([namespace_of("self")]);
    for (side, name) in [(Side::Near, "near"), (Side::Far, "far")] {
        let end = testbed.end(side);
        assert_eq!(end.interface(), name);
        let mut child = end.spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        assert!(seen.insert(namespace_of(&child.id().to_string())), "a namespace of its own");
        let output = end
            .run(|| Command::new("cat").arg("/proc/self/net/dev").output().unwrap().stdout)
            .unwrap();
        let devices = String::from_utf8(output).unwrap();
        assert!(devices.contains(&format!("{name}:")) && devices.contains("lo:"), "{devices}");
        assert_eq!(devices.lines().count(), 4, "{devices}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    let error =
        testbed.end(Side::Near).spawn(&mut Command::new("no-such-program-at-all")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(
        namespace_of("thread-self"),
        namespace_of("self"),
        "this thread has stayed where it was"
    );
}

#[test]
fn a_panic_reaches_the_caller() {
    let Some(testbed) = here(Testbed::new()) else { return };
    let near = testbed.end(Side::Near);
    let panic = std::panic::catch_unwind(|| near.run(|| panic!("as planned"))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as planned"));
    near.run(|| ()).expect("the end can still be used");
}

/// Bytes per second of the token bucket of the near end.
fn bucket(testbed: &Testbed) -> Option<u64> {
    let near = testbed.end(Side::Near);
    near.run(|| {
        let mut socket = NetlinkSocket::new();
        let request = tc::Request::new().op_getqdisc_dump(&Tcmsg::new());
        let mut replies = socket.request(&request).unwrap();
        let mut rate_found = None;
        while let Some(reply) = replies.recv() {
            let (_, attributes) = reply.unwrap();
            if let Ok(OptionsMsg::Tbf(options)) = attributes.get_options() {
                let rate = u64::from(options.get_parms().unwrap().rate.rate);
                rate_found = Some(options.get_rate64().unwrap_or(rate));
            }
        }
        rate_found
    })
    .unwrap()
}

#[test]
fn an_end_can_be_made_slow_and_fast_again() {
    let Some(testbed) = here(Testbed::new()) else { return };
    let near = testbed.end(Side::Near);
    for (bits, bytes) in [
        (0, None),
        (1_000_000_000, Some(125_000_000)),
        (100_000_000_000, Some(12_500_000_000)),
        (0, None),
    ] {
        match near.limit_rate(bits) {
            Ok(()) => assert_eq!(bucket(&testbed), bytes),
            Err(why @ Error::Unsupported { .. }) => return not_run(&why),
            Err(why) => panic!("{why}"),
        }
    }
}

#[test]
fn a_quota_holds_back_who_is_in_it_and_goes_with_them() {
    let Some(quota) = here(CpuQuota::new(10.0)) else { return };
    let path = quota.path().to_owned();
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    quota.add(busy.id()).unwrap();
    // The process demands ten times its share, so it is throttled soon.
    while quota.throttled().unwrap().0 == 0 {
        thread::yield_now();
    }
    quota.set(50.0).unwrap();
    quota.add(u32::MAX / 2).unwrap_err();
    drop(quota);
    assert!(!path.exists());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&busy.wait().unwrap()), Some(9));
}

const VICTIM: &str = "SEEKWIRE_TESTBED_VICTIM";

/// Not a test of its own: the process that the next one kills.
#[test]
fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let quota = CpuQuota::new(50.0).unwrap();
    let mut sleeper = Command::new("sleep").arg("1000000").spawn().unwrap();
    quota.add(sleeper.id()).unwrap();
    println!("made {} {}", sleeper.id(), quota.path().display());
    sleeper.wait().unwrap();
}

#[test]
fn what_a_killed_process_left_is_removed_by_the_next() {
    let Some(_) = here(CpuQuota::new(50.0)) else { return };
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["victim", "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let made =
        lines.find_map(|line| line.split_once("made ").map(|(_, made)| made.to_owned())).unwrap();
    let (sleeper, path) = made.split_once(' ').unwrap();
    let sleeper = Path::new("/proc").join(sleeper).join("exe");
    let _alive = CpuQuota::new(50.0).unwrap();
    assert!(Path::new(path).exists() && sleeper.exists(), "it lives: hands off");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let _next = CpuQuota::new(50.0).unwrap();
    assert!(!Path::new(path).exists() && !sleeper.exists());
}

/// Not a test of its own: what the next one does as somebody else.
#[test]
fn unprivileged() {
    if std::env::var_os(VICTIM).is_some() {
        println!("testbed: {}", Testbed::new().unwrap_err());
        println!("quota: {}", CpuQuota::new(50.0).unwrap_err());
    }
}

#[test]
fn without_permission_it_says_what_is_missing() {
    let nobody = 65534;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["unprivileged", "--exact", "--nocapture"])
        .env(VICTIM, "1")
        .uid(nobody)
        .gid(nobody)
        .output();
    // The build may be where others may not look, or this user may not become another one.
    let Ok(output) = output else { return not_run(&Error::NoQuota("no other user".to_owned())) };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("CAP_SYS_ADMIN") && text.contains("cannot limit processor time"),
        "{text}"
    );
}
