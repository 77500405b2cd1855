//! Searches between two network namespaces, with the switches of a real veth pair.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gauge::{Client, Limits, Server, Stop};
use nic::{Interface, Kernel, Session, Store, Terms};
use seekwire_tune::{End, Error, Goal, Options, Outcome, Progress, check_way, search};
use testbed::{Side, Testbed};

/// A server at the far end, and a thread at the near one.
fn with_server(test: impl FnOnce(SocketAddr, &Stop) + Send) {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        // Past the test harness, which swallows what a test that passes has to say.
        Err(error) => return drop(writeln!(std::io::stderr(), "not run: {error}")),
    };
    let far = testbed.end(Side::Far);
    let listener = far.run(|| TcpListener::bind((far.address(), 0))).unwrap().unwrap();
    let server = Server::new(listener, Limits::default()).unwrap();
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(|_| {}));
        let stop = server.stop();
        let address = server.local_addr();
        let tested = testbed.end(Side::Near).run(|| {
            // A failure must not leave the server waiting.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(address, &stop)))
        });
        server.stop().stop();
        serving.join().unwrap().unwrap();
        if let Err(panic) = tested.unwrap() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn options(goal: Goal, time: Duration) -> Options {
    Options { goal, time, sizes: Vec::new(), congestion: None }
}

/// A search with a session that holds; the interface before and after it.
fn hold(
    address: SocketAddr,
    options: &Options,
    interrupted: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> (Result<Outcome, Error>, Interface, Interface) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path().join("nic"));
    let mut kernel = Kernel::open().unwrap();
    let before = kernel.interface("near").unwrap();
    let terms = Terms { hold: true, default_route: false };
    let mut session = Session::begin(&mut kernel, &store, "near", terms).unwrap();
    let mut client = Client::connect(address).unwrap();
    let outcome = search(&mut session, &mut client, options, interrupted, tell);
    drop(session);
    let after = kernel.interface("near").unwrap();
    (outcome, before, after)
}

#[test]
fn a_search_measures_everything_and_leaves_what_it_found() {
    with_server(|address, _| {
        for goal in Goal::ALL {
            let measured = AtomicUsize::new(0);
            let options = options(goal, Duration::from_secs(2));
            let (outcome, before, after) = hold(address, &options, &|| false, &mut |progress| {
                if let Progress::Measured { figures, .. } = progress {
                    assert_eq!(
                        figures.latency_seconds.is_some(),
                        matches!(goal, Goal::Latency | Goal::Mixed)
                    );
                    assert_eq!(figures.bytes_per_second.is_some(), goal != Goal::Latency);
                    measured.fetch_add(1, Ordering::Relaxed);
                }
            });
            let outcome = outcome.unwrap();
            assert_eq!(before, after);
            assert!(outcome.candidates[0].name.starts_with("as found"), "{outcome:?}");
            assert!(outcome.candidates.len() >= 4 && outcome.candidates[0].changes.is_empty());
            assert!(outcome.candidates[1..].iter().all(|tried| !tried.changes.is_empty()), "{outcome:?}");
            let rounds: usize = outcome.candidates.iter().map(|tried| tried.rounds).sum();
            assert!(rounds > 0 && rounds <= measured.into_inner());
            assert_eq!(outcome.candidates[outcome.best].end, End::Best);
            // It recommends nothing that is not better for sure.
            let recommended = &outcome.candidates[outcome.recommended];
            assert_eq!(outcome.recommended == 0, outcome.lasting.is_none());
            assert!(outcome.recommended == 0 || recommended.against_found.unwrap().low > 1.0, "{outcome:?}");
            serde_json::to_string(&outcome).unwrap();
        }
    });
}

#[test]
fn an_interrupted_search_leaves_what_it_found() {
    with_server(|address, _| {
        let asked = AtomicUsize::new(0);
        let options = options(Goal::Latency, Duration::from_secs(30));
        // In the middle of some candidate.
        let interrupted = || asked.fetch_add(1, Ordering::Relaxed) > 8;
        let (outcome, before, after) = hold(address, &options, &interrupted, &mut |_| {});
        assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
        assert_eq!(before, after);
    });
}

#[test]
fn a_peer_that_goes_ends_the_search_and_what_was_found_comes_back() {
    with_server(|address, stop| {
        let options = options(Goal::Throughput, Duration::from_secs(30));
        // The last one of the second round is what was found.
        let (mut measured, mut last) = (0, usize::MAX);
        let (outcome, before, after) = hold(address, &options, &|| false, &mut |progress| {
            match progress {
                Progress::Trying(names) => last = 2 * names.len() - 1,
                Progress::Measured { .. } => measured += 1,
                Progress::Failed { .. } => {}
            }
            if measured == last {
                stop.stop();
            }
        });
        assert!(matches!(outcome, Err(Error::Peer(_))), "{outcome:?}");
        assert_eq!((before, measured), (after, last));
    });
}

/// A server at the far end that can be waited for.
fn serve(testbed: &Testbed, port: u16) -> (SocketAddr, impl FnOnce()) {
    let far = testbed.end(Side::Far);
    let listener = far.run(|| TcpListener::bind((far.address(), port))).unwrap().unwrap();
    let server = Server::new(listener, Limits::default()).unwrap();
    let (address, stop) = (server.local_addr(), server.stop());
    let serving = thread::spawn(move || server.serve(|_| {}));
    let end = move || {
        stop.stop();
        serving.join().unwrap().unwrap();
    };
    (address, end)
}

#[test]
fn a_candidate_that_cannot_be_measured_is_left_out() {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        Err(error) => return drop(writeln!(std::io::stderr(), "not run: {error}")),
    };
    let near = testbed.end(Side::Near);
    near.run(|| {
        let (address, end) = serve(&testbed, 0);
        let mut end: Option<Box<dyn FnOnce()>> = Some(Box::new(end));
        let (mut measured, mut failed) = (0, Vec::new());
        let options = options(Goal::Latency, Duration::from_secs(3));
        let (outcome, before, after) = hold(address, &options, &|| false, &mut |progress| match progress {
            Progress::Measured { .. } => {
                measured += 1;
                if measured == 2 {
                    // As if the connections did not survive what is set next.
                    end.take().unwrap()();
                    end = Some(Box::new(serve(&testbed, address.port()).1));
                }
            }
            Progress::Failed { name, .. } => failed.push(name.clone()),
            Progress::Trying(_) => {}
        });
        end.take().unwrap()();
        let outcome = outcome.unwrap();
        assert_eq!(before, after);
        assert_eq!(failed, [outcome.candidates[2].name.clone()]);
        assert!(outcome.candidates[2].end == End::Failed && outcome.candidates[2].rounds == 0, "{outcome:?}");
        assert!(outcome.candidates[3].rounds > 0 && outcome.recommended != 2, "{outcome:?}");
    })
    .unwrap();
}

#[test]
fn a_peer_behind_another_interface_is_refused() {
    with_server(|address, _| {
        let mut kernel = Kernel::open().unwrap();
        check_way(&mut kernel, "near", address.ip()).unwrap();
        let error = check_way(&mut kernel, "near", "127.0.0.1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("reached by lo, not by near"), "{error}");
        let error = check_way(&mut kernel, "lo", address.ip()).unwrap_err();
        assert!(matches!(error, Error::OtherWay { .. }), "{error}");
    });
}
