//! Searches between two network namespaces, with the switches of a real veth pair.

#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use seekwire_gauge::{Client, Limits, Server};
use seekwire_nic::{Interface, Kernel, Session, Store, Terms};
use seekwire_testbed::{Side, Testbed};
use seekwire_tune::{CandidateResult, Error, Goal, Progress, SearchOptions, SearchResult, search};

/// A server at the far end, and a thread at the near one.
fn with_server(test: impl FnOnce(SocketAddr) + Send) {
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
        let address = server.local_addr();
        let tested = testbed.end(Side::Near).run(|| {
            // A failure must not leave the server waiting.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(address)))
        });
        server.stop().stop();
        serving.join().unwrap().unwrap();
        if let Err(panic) = tested.unwrap() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn options(goal: Goal, time: Duration) -> SearchOptions {
    SearchOptions {
        goal,
        time,
        sizes: Vec::new(),
        congestion: None,
        patience: Duration::from_secs(60),
    }
}

/// A search with a session that holds; the interface before and after it.
fn hold(
    address: SocketAddr,
    options: &SearchOptions,
    interrupted: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(&Progress<'_>),
) -> (Result<SearchResult, Error>, Interface, Interface) {
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
    with_server(|address| {
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
            assert!(
                outcome.candidates[1..].iter().all(|tried| !tried.changes.is_empty()),
                "{outcome:?}"
            );
            let rounds: usize = outcome.candidates.iter().map(|tried| tried.rounds).sum();
            assert!(rounds > 0 && rounds <= measured.into_inner());
            assert_eq!(outcome.candidates[outcome.best].end, CandidateResult::Best);
            // It recommends nothing that is not better for sure.
            let recommended = &outcome.candidates[outcome.recommended];
            assert_eq!(outcome.recommended == 0, outcome.lasting.is_none());
            assert!(
                outcome.recommended == 0 || recommended.against_found.unwrap().low > 1.0,
                "{outcome:?}"
            );
            serde_json::to_string(&outcome).unwrap();
        }
    });
}

#[test]
fn an_interrupted_search_leaves_what_it_found() {
    with_server(|address| {
        let options = options(Goal::Latency, Duration::from_secs(30));
        // In the middle of a test of some candidate: it has two of them.
        let [measured, asked] = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let interrupted = || {
            let is_far = measured.load(Ordering::Relaxed) >= 3;
            is_far && asked.fetch_add(1, Ordering::Relaxed) > 12
        };
        let (outcome, before, after) = hold(address, &options, &interrupted, &mut |progress| {
            if let Progress::Measured { .. } = progress {
                measured.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
        assert_eq!(before, after);
        assert!(measured.into_inner() >= 3);
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

/// Receives the progress of a search, with closures that stop and restart the server.
type ProgressCall<'a> = dyn FnMut(&Progress<'_>, &mut dyn FnMut(), &mut dyn FnMut()) + Send + 'a;

/// Runs a search against a server that is stopped and restarted meanwhile.
fn with_restarts(
    options: &SearchOptions,
    progress: &mut ProgressCall<'_>,
) -> Option<(Result<SearchResult, Error>, Interface, Interface)> {
    let testbed = match Testbed::new() {
        Ok(testbed) => testbed,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "not run: {error}");
            return None;
        }
    };
    let searched = testbed.end(Side::Near).run(|| {
        let (address, end) = serve(&testbed, 0);
        let server: RefCell<Option<Box<dyn FnOnce()>>> = RefCell::new(Some(Box::new(end)));
        let mut end = || server.take().unwrap()();
        let mut start = || *server.borrow_mut() = Some(Box::new(serve(&testbed, address.port()).1));
        let searched =
            hold(address, options, &|| false, &mut |report| progress(report, &mut end, &mut start));
        if let Some(end) = server.take() {
            end();
        }
        searched
    });
    Some(searched.unwrap())
}

#[test]
fn a_candidate_that_cannot_be_measured_is_left_out() {
    let (mut measured, mut failed) = (0, Vec::new());
    let options = options(Goal::Latency, Duration::from_secs(3));
    let searched = with_restarts(&options, &mut |progress, end, start| match progress {
        Progress::Measured { .. } => {
            measured += 1;
            if measured == 2 {
                // As if the peer were out of reach with what is set next.
                end();
            }
        }
        Progress::Failed { name, .. } => {
            failed.push(name.clone());
            start();
        }
        Progress::Waiting { .. } | Progress::Trying(_) => {}
    });
    let Some((outcome, before, after)) = searched else { return };
    let outcome = outcome.unwrap();
    assert_eq!(before, after);
    assert_eq!(failed, [outcome.candidates[2].name.clone()]);
    assert!(
        outcome.candidates[2].end == CandidateResult::Failed && outcome.candidates[2].rounds == 0,
        "{outcome:?}"
    );
    assert!(outcome.candidates[3].rounds > 0 && outcome.recommended != 2, "{outcome:?}");
}

#[test]
fn a_connection_that_a_change_breaks_is_made_again() {
    let mut measured = 0;
    let options = options(Goal::Latency, Duration::from_secs(3));
    let searched = with_restarts(&options, &mut |progress, end, start| {
        if let Progress::Measured { .. } = progress {
            measured += 1;
            if measured == 2 {
                end();
                start();
            }
        }
    });
    let Some((outcome, before, after)) = searched else { return };
    let outcome = outcome.unwrap();
    assert_eq!(before, after);
    assert!(
        outcome.candidates.iter().all(|tried| tried.end != CandidateResult::Failed),
        "{outcome:?}"
    );
}

#[test]
fn a_peer_that_goes_ends_the_search_and_what_was_found_comes_back() {
    let options = options(Goal::Throughput, Duration::from_secs(30));
    // The last one of the second round is what was found.
    let (mut measured, mut last) = (0, usize::MAX);
    let searched = with_restarts(&options, &mut |progress, end, _| match progress {
        Progress::Trying(names) => last = 2 * names.len() - 1,
        Progress::Measured { .. } => {
            measured += 1;
            if measured == last {
                end();
            }
        }
        Progress::Waiting { .. } | Progress::Failed { .. } => {}
    });
    let Some((outcome, before, after)) = searched else { return };
    assert!(matches!(outcome, Err(Error::Peer(_))), "{outcome:?}");
    assert_eq!((before, measured), (after, last));
}

/// Takes the link of the near end away, or gives it back.
fn link(state: &str) {
    let mut ip = Command::new("ip");
    assert!(ip.args(["link", "set", "near", state]).status().unwrap().success());
}

#[test]
fn a_link_that_comes_back_is_waited_for() {
    with_server(|address| {
        let options = options(Goal::Latency, Duration::from_secs(16));
        let (mut measured, mut waited, mut failed) = (0, 0, 0);
        let (outcome, before, after) =
            hold(address, &options, &|| false, &mut |progress| match progress {
                Progress::Measured { .. } => {
                    measured += 1;
                    if measured == 2 {
                        link("down");
                    }
                }
                Progress::Waiting { .. } => {
                    waited += 1;
                    link("up");
                }
                Progress::Failed { .. } => failed += 1,
                Progress::Trying(_) => {}
            });
        let outcome = outcome.unwrap();
        assert_eq!((before, waited, failed), (after, 1, 0));
        assert!(outcome.candidates[2].rounds > 0, "{outcome:?}");
    });
}

#[test]
fn a_candidate_that_keeps_the_link_away_is_left_out_alone() {
    with_server(|address| {
        // The link is away for the ten seconds that a client waits for an answer, and half of that
        // patience; the others are measured in the rest of the time.
        let options = SearchOptions {
            patience: Duration::from_secs(4),
            ..options(Goal::Latency, Duration::from_secs(20))
        };
        let asked = Cell::new(None);
        let interrupted = || {
            let count = asked.get().map(|count| count + 1);
            asked.set(count.filter(|count| *count < 10));
            if count == Some(10) {
                link("up");
            }
            false
        };
        let (mut measured, mut failed) = (0, Vec::new());
        let (outcome, before, after) =
            hold(address, &options, &interrupted, &mut |progress| match progress {
                Progress::Measured { .. } => {
                    measured += 1;
                    if measured == 2 {
                        link("down");
                    }
                }
                Progress::Failed { name, .. } => {
                    failed.push(name.clone());
                    // It is still away for a while.
                    asked.set(Some(0));
                }
                Progress::Waiting { .. } | Progress::Trying(_) => {}
            });
        let outcome = outcome.unwrap();
        assert_eq!(before, after);
        assert_eq!(failed, [outcome.candidates[2].name.clone()]);
        assert!(outcome.candidates[3].rounds > 0, "{outcome:?}");
    });
}

#[test]
fn a_link_that_stays_away_ends_the_search_and_what_was_found_comes_back() {
    with_server(|address| {
        let options = SearchOptions {
            patience: Duration::from_secs(1),
            ..options(Goal::Latency, Duration::from_secs(30))
        };
        let (mut measured, mut names) = (0, Vec::new());
        let (outcome, before, after) =
            hold(address, &options, &|| false, &mut |progress| match progress {
                Progress::Measured { .. } => {
                    measured += 1;
                    if measured == 2 {
                        link("down");
                    }
                }
                Progress::Waiting { .. } | Progress::Failed { .. } => {}
                Progress::Trying(all) => names.clone_from(all),
            });
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::Lost { after, .. } if *after == names[2]), "{error}");
        assert_eq!(before.features, after.features);
    });
}
