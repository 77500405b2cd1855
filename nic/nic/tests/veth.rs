//! Real switches: those of a veth pair in a namespace of its own.

#![forbid(unsafe_code)]

mod namespace;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use namespace::with_pair;
use rustix::thread::{self, CapabilitySet, CapabilitySets};
use seekwire_nic::{
    ChangeResult, Error, Interface, Kernel, Plan, Profile, Report, Session, Setting, Store, Terms,
    Value, left_behind, restore,
};
use seekwire_testbed::Side;

const STAY: Terms = Terms { hold: false, default_route: false };
const HOLD: Terms = Terms { hold: true, ..STAY };

fn settings(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn is_on(interface: &Interface, name: &str) -> bool {
    interface.feature(name).unwrap().active
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path().join("nic"));
    (directory, store)
}

/// Without waiting for a lock.
fn at_once(store: &Store) -> Store {
    store.clone().waiting(Duration::ZERO, |_| {})
}

fn apply(session: &mut Session<'_>, texts: &[&str]) -> Report {
    let now = session.now().unwrap();
    session.apply(&Plan::new(&now, &settings(texts)).unwrap()).unwrap()
}

#[test]
fn an_interface_shows_its_switches() {
    with_pair(|_| {
        let mut kernel = Kernel::open().unwrap();
        let all = kernel.interfaces().unwrap();
        let names: Vec<_> =
            all.iter().map(|(name, read)| (name.as_str(), &read.as_ref().unwrap().name)).collect();
        assert_eq!(names, [("lo", &"lo".to_owned()), ("near", &"near".to_owned())]);
        let near = kernel.interface("near").unwrap();
        assert_eq!(
            (near.driver.as_deref(), near.mtu, near.default_route),
            (Some("veth"), 1500, false)
        );
        assert!(near.features.len() > 40, "{}", near.features.len());
        for name in
            ["tx-scatter-gather", "tx-checksum-ip-generic", "tx-tcp-segmentation", "rx-checksum"]
        {
            let feature = near.feature(name).unwrap();
            assert!(feature.changeable && feature.active && feature.wanted, "{feature:?}");
        }
        assert!(!near.feature("rx-lro").unwrap().changeable);
        let error = kernel.interface("no-such-one").unwrap_err();
        assert!(matches!(error, Error::NoSuchInterface(_)), "{error}");
        let error = kernel.interface("an-alternative-name-that-nobody-has").unwrap_err();
        assert!(matches!(error, Error::NoSuchInterface(_) | Error::Kernel { .. }), "{error}");
    });
}

#[test]
fn the_route_to_a_peer_is_known() {
    with_pair(|testbed| {
        let mut kernel = Kernel::open().unwrap();
        let far = testbed.end(Side::Far).address().into();
        assert_eq!(kernel.interfaces_towards(far).unwrap(), ["near"]);
        let own = testbed.end(Side::Near).address().into();
        assert_eq!(kernel.interfaces_towards(own).unwrap(), ["lo"]);
        assert_eq!(kernel.interfaces_towards("::1".parse().unwrap()).unwrap(), ["lo"]);
        let error =
            kernel.interfaces_towards("192.0.2.1".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1") && error.contains("unreachable"), "{error}");
        kernel.check_route("near", far).unwrap();
        let error = kernel.check_route("lo", far).unwrap_err();
        assert!(matches!(&error, Error::OtherWay { by, .. } if by == "near"), "{error}");
        let error = kernel.check_route("near", own).unwrap_err();
        assert!(error.to_string().contains("reached by lo, not by near"), "{error}");
        assert!(
            kernel.interface("near").unwrap().address.is_some_and(|address| address.len() == 17)
        );
        assert_eq!(kernel.interface("lo").unwrap().address, None);
    });
}

#[test]
fn every_profile_comes_true_and_the_first_state_comes_back() {
    with_pair(|testbed| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();
        let read = || Kernel::open().unwrap().interface("far").unwrap();
        let far = testbed.end(Side::Far).run(read).unwrap();
        for profile in Profile::ALL.into_iter().chain([Profile::Baseline]) {
            // Each with a session of its own: only the first saves.
            let mut session = Session::begin(&mut kernel, &store, "near", STAY).unwrap();
            let now = session.now().unwrap();
            let plan = Plan::new(&now, &profile.settings(&now)).unwrap();
            let report = session.apply(&plan).unwrap();
            assert!(report.is_complete(), "{profile}: {report:#?}");
            let foreseen: Vec<_> = plan.along.iter().map(|along| &along.key).collect();
            let changed: Vec<_> = report.along.iter().map(|along| &along.key).collect();
            assert_eq!(foreseen, changed, "{profile}");
            let again = session.now().unwrap();
            assert!(Plan::new(&again, &profile.settings(&again)).unwrap().is_idle(), "{profile}");
            session.end().unwrap();
        }
        let baseline = kernel.interface("near").unwrap();
        for name in
            ["tx-scatter-gather", "tx-checksum-ip-generic", "tx-generic-segmentation", "rx-gro"]
        {
            assert!(!is_on(&baseline, name), "{name}");
        }
        let report = restore(&mut kernel, &store, "near").unwrap();
        assert!(report.is_complete() && report.along.is_empty(), "{report:#?}");
        assert_eq!(kernel.interface("near").unwrap(), near);
        assert_eq!(testbed.end(Side::Far).run(read).unwrap(), far, "the other end was left alone");
        let error = restore(&mut kernel, &store, "near").unwrap_err();
        assert!(matches!(error, Error::NothingSaved(_)), "{error}");
    });
}

#[test]
fn the_kernel_switches_along_what_was_foreseen() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        for texts in [
            &["sg=off"][..],
            &["sg=on"],
            &["tx=off"],
            &["tx=on"],
            &["sg=off", "tx=off"],
            &["tso=on"],
        ] {
            let now = session.now().unwrap();
            let plan = Plan::new(&now, &settings(texts)).unwrap();
            let report = session.apply(&plan).unwrap();
            assert!(report.is_complete(), "{texts:?}: {report:#?}");
            assert_eq!(plan.along, report.along, "{texts:?}");
        }
        let now = session.now().unwrap();
        assert!(is_on(&now, "tx-tcp-segmentation"), "it has brought what it needs");
    });
}

#[test]
fn what_cannot_be_is_reported_and_the_rest_done() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        let report =
            apply(&mut session, &["lro=on", "warp=on", "gso=off", "rx=on", "coalesce.rx-usecs=1"]);
        let verdicts: Vec<_> = report.outcomes.iter().map(|outcome| &outcome.result).collect();
        use ChangeResult::{Absent, AlreadySo, Changed, Fixed};
        assert_eq!(verdicts, [&Fixed, &Absent, &Changed, &AlreadySo, &Absent]);
        assert!(!report.is_complete());
        assert!(!is_on(&session.now().unwrap(), "tx-generic-segmentation"));
    });
}

#[test]
fn a_session_that_holds_puts_back_what_it_found() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();

        let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut session, &["tx=off", "gro=on"]);
        assert!(matches!(
            Session::begin(&mut Kernel::open().unwrap(), &at_once(&store), "near", STAY),
            Err(Error::Busy { process: Some(process), .. }) if process == std::process::id()
        ));
        assert!(session.end().unwrap().unwrap().is_complete());
        assert_eq!(kernel.interface("near").unwrap(), near);
        assert!(store.load(&near).unwrap().is_none());

        let panic = std::panic::AssertUnwindSafe(|| {
            let mut kernel = Kernel::open().unwrap();
            let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
            apply(&mut session, &["tx=off"]);
            panic!("on purpose");
        });
        std::panic::catch_unwind(panic).unwrap_err();
        assert_eq!(kernel.interface("near").unwrap(), near);
    });
}

/// A command of ip(8).
fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_interface_that_is_renamed_while_it_is_held_comes_back_under_its_new_name() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();
        let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut session, &["tx=off"]);
        ip("link set near down");
        ip("link set near name uplink");
        ip("link set uplink up");
        // Another interface now has the old name.
        ip("link add near type bridge");
        assert_eq!(session.now().unwrap().name, "uplink");
        apply(&mut session, &["rx=off"]);
        let back = session.end().unwrap().unwrap();
        assert!(back.is_complete() && back.interface == "uplink", "{back:#?}");
        let uplink = kernel.interface("uplink").unwrap();
        assert_eq!(uplink, Interface { name: "uplink".to_owned(), ..near });

        // And after a kill, which leaves the state behind.
        let mut session = Session::begin(&mut kernel, &store, "uplink", STAY).unwrap();
        apply(&mut session, &["tx=off"]);
        session.end().unwrap();
        ip("link set uplink down");
        ip("link set uplink name lower");
        ip("link set lower up");
        let back = restore(&mut kernel, &store, "lower").unwrap();
        assert!(back.is_complete() && back.interface == "lower", "{back:#?}");
        assert_eq!(kernel.interface("lower").unwrap().features, uplink.features);
    });
}

#[test]
fn another_device_of_the_same_number_is_left_alone() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        ip("link add name one index 77 type veth peer name other");
        let mut session = Session::begin(&mut kernel, &store, "one", HOLD).unwrap();
        apply(&mut session, &["tx=off"]);
        ip("link del one");
        ip("link add name two index 77 type veth peer name other");
        let before = Kernel::open().unwrap().interface("two").unwrap();
        let error = session.end().unwrap_err();
        assert!(matches!(&error, Error::Gone(name) if name == "one"), "{error}");
        assert_eq!(kernel.interface("two").unwrap(), before);
        let error = restore(&mut kernel, &store, "two").unwrap_err().to_string();
        assert!(error.contains("it is of another device, one"), "{error}");
    });
}

#[test]
fn a_device_of_another_kind_does_not_get_the_state_of_the_old_one() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        ip("link add name one index 77 type veth peer name other");
        let mut session = Session::begin(&mut kernel, &store, "one", STAY).unwrap();
        apply(&mut session, &["tx=off"]);
        session.end().unwrap();
        ip("link del one");
        ip("link add name one index 77 type bridge");
        let before = kernel.interface("one").unwrap();
        let error = restore(&mut kernel, &store, "one").unwrap_err().to_string();
        assert!(error.contains("it is of another device, one"), "{error}");
        assert_eq!(kernel.interface("one").unwrap(), before);
    });
}

#[test]
fn foreign_changes_stay_and_are_reported() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        // A store in another directory has its own locks.
        let (_elsewhere, elsewhere) = self::store();
        let by_others = |texts: &[&str]| {
            let mut kernel = Kernel::open().unwrap();
            let mut session = Session::begin(&mut kernel, &elsewhere, "near", STAY).unwrap();
            assert!(apply(&mut session, texts).is_complete());
            session.end().unwrap();
        };
        for terms in [HOLD, STAY] {
            by_others(&["gro=on", "gso=on"]);
            let before = kernel.interface("near").unwrap();
            let mut session = Session::begin(&mut kernel, &store, "near", terms).unwrap();
            apply(&mut session, &["tx=off"]);
            by_others(&["gro=off", "gso=off"]);
            let back = match session.end().unwrap() {
                Some(back) => back,
                None => restore(&mut kernel, &store, "near").unwrap(),
            };
            assert!(back.is_complete(), "{back:#?}");
            let others: Vec<_> = back.others.iter().map(|other| other.key.name.as_str()).collect();
            assert_eq!(others, ["rx-gro", "tx-generic-segmentation"], "{back:#?}");
            let after = kernel.interface("near").unwrap();
            assert!(!is_on(&after, "rx-gro") && !is_on(&after, "tx-generic-segmentation"));
            for name in ["tx-checksum-ip-generic", "tx-tcp-segmentation"] {
                assert_eq!(is_on(&after, name), is_on(&before, name), "{name}");
            }
            assert!(store.load(&after).unwrap().is_none());
        }
    });
}

#[test]
fn who_comes_second_waits_and_plans_from_what_the_first_one_left() {
    with_pair(|testbed| {
        let (_directory, store) = store();
        let near = Kernel::open().unwrap().interface("near").unwrap();
        let mut kernel = Kernel::open().unwrap();
        let mut first = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut first, &["tx=off"]);
        static WAITS: std::sync::Mutex<Option<mpsc::Sender<String>>> = std::sync::Mutex::new(None);
        let (sender, waits) = mpsc::channel();
        *WAITS.lock().unwrap() = Some(sender);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let begin = || {
                    let mut kernel = Kernel::open().unwrap();
                    let tell = |busy: &Error| {
                        let sender = WAITS.lock().unwrap().take().unwrap();
                        sender.send(busy.to_string()).unwrap();
                    };
                    let store = store.clone().waiting(Duration::from_secs(60), tell);
                    let session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
                    session.interface().clone()
                };
                testbed.end(Side::Near).run(begin).unwrap()
            });
            let message = waits.recv().unwrap();
            assert!(message.contains(&format!("({})", std::process::id())), "{message}");
            first.end().unwrap();
            assert_eq!(second.join().unwrap(), near);
        });
    });
}

#[test]
fn an_interface_in_another_namespace_says_where_it_is_restored() {
    with_pair(|testbed| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        ip("link add name one index 77 type veth peer name other");
        let mut session = Session::begin(&mut kernel, &store, "one", HOLD).unwrap();
        apply(&mut session, &["tx=off"]);
        let own = std::process::id();
        let far = testbed.end(Side::Far);
        let mut sleep = far.run(|| Command::new("sleep").arg("600").spawn().unwrap()).unwrap();
        ip(&format!("link set one netns {}", sleep.id()));
        let error = session.end().unwrap_err().to_string();
        assert!(error.contains("not in this network namespace any more"), "{error}");
        let error = restore(&mut kernel, &store, "one").unwrap_err();
        assert!(matches!(&error, Error::Gone(name) if name == "one"), "{error}");
        let elsewhere = || restore(&mut Kernel::open().unwrap(), &store, "one").unwrap_err();
        let error = far.run(elsewhere).unwrap().to_string();
        assert!(error.contains("move it back"), "{error}");
        // The number of this thread: the process has another namespace.
        let back = format!(
            "link set one netns /proc/{own}/task/{}/ns/net",
            thread::gettid().as_raw_nonzero()
        );
        far.run(|| ip(&back)).unwrap();
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(restore(&mut kernel, &store, "one").unwrap().is_complete());
        assert!(is_on(&kernel.interface("one").unwrap(), "tx-checksum-ip-generic"));
    });
}

#[test]
fn a_refusal_for_lack_of_permission_is_that_of_a_key() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();
        let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut session, &["tx=off"]);
        let all = thread::capabilities(None).unwrap();
        let without = all.effective.difference(CapabilitySet::NET_ADMIN);
        thread::set_capabilities(None, CapabilitySets { effective: without, ..all }).unwrap();
        let report = apply(&mut session, &["rx=off", "tx=off", "gro=on"]);
        let missing: Vec<_> = report.missing().map(ToString::to_string).collect();
        assert_eq!(missing, ["rx-checksum", "rx-gro"], "{report:#?}");
        let denied = ChangeResult::Refused("Operation not permitted".to_owned());
        assert_eq!(report.outcomes[0].result, denied);
        let back = session.end().unwrap().unwrap();
        assert!(
            !back.is_complete() && back.outcomes.iter().any(|one| one.result == denied),
            "{back:#?}"
        );
        assert!(matches!(restore(&mut kernel, &store, "near"), Err(Error::NotPermitted(_))));
        thread::set_capabilities(None, all).unwrap();
        assert!(restore(&mut kernel, &store, "near").unwrap().is_complete());
        assert_eq!(kernel.interface("near").unwrap(), near);
    });
}

#[test]
fn interfaces_that_come_and_go_do_not_hide_the_others() {
    with_pair(|testbed| {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                let change = || {
                    while !is_over.load(Ordering::Relaxed) {
                        ip("link add br0 type bridge");
                        ip("link del br0");
                    }
                };
                testbed.end(Side::Near).run(change).unwrap();
            });
            let mut kernel = Kernel::open().unwrap();
            // Until it has been there and not there often enough.
            let (mut seen, mut wrong) = ([0; 2], None);
            while seen.iter().any(|count| *count < 20) && wrong.is_none() && !changing.is_finished()
            {
                let all = kernel.interfaces();
                let good = all.as_ref().ok().filter(|all| all.iter().all(|(_, read)| read.is_ok()));
                match good.filter(|all| all.iter().any(|(name, _)| name == "near")) {
                    Some(all) => seen[usize::from(all.len() > 2)] += 1,
                    None => wrong = Some(all),
                }
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(wrong.is_none(), "{wrong:?}");
        });
    });
}

#[test]
fn holding_on_top_of_what_stays_goes_back_one_step() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();
        let mut stays = Session::begin(&mut kernel, &store, "near", STAY).unwrap();
        apply(&mut stays, &["gso=off"]);
        stays.end().unwrap();
        let mut held = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut held, &["tx=off"]);
        held.end().unwrap();
        let now = kernel.interface("near").unwrap();
        assert!(!is_on(&now, "tx-generic-segmentation") && is_on(&now, "tx-checksum-ip-generic"));
        restore(&mut kernel, &store, "near").unwrap();
        assert_eq!(kernel.interface("near").unwrap(), near);
    });
}

#[test]
fn one_that_died_on_top_of_what_stays_is_noticed_and_goes_back_one_step() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();
        let mut stays = Session::begin(&mut kernel, &store, "near", STAY).unwrap();
        apply(&mut stays, &["gso=off"]);
        stays.end().unwrap();
        let between = kernel.interface("near").unwrap();
        let file = store.file(&near).unwrap().with_extension("");
        let file = PathBuf::from(format!("{}-held.json", file.display()));
        let mut held = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut held, &["tx=off"]);
        let state = std::fs::read(&file).unwrap();
        held.end().unwrap();
        assert!(!file.exists() && left_behind(&store, &near).unwrap().is_none());
        // As a killed process would have left both.
        let leave = |kernel: &mut Kernel| {
            let mut session = Session::begin(kernel, &store, "near", HOLD).unwrap();
            apply(&mut session, &["tx=off"]);
            let plan = Plan::new(&between, &["tx=off".parse().unwrap()]).unwrap();
            session.end().unwrap();
            std::fs::write(&file, &state).unwrap();
            plan
        };
        let plan = leave(&mut kernel);
        assert_eq!(left_behind(&store, &near).unwrap(), Some(std::process::id()));
        // The next one that holds takes it over, and puts it back.
        let mut next = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        next.apply(&plan).unwrap();
        next.end().unwrap();
        assert_eq!(kernel.interface("near").unwrap(), between);
        assert_eq!(left_behind(&store, &near).unwrap(), None);
        // Or it is restored, step by step.
        leave(&mut kernel);
        restore(&mut kernel, &store, "near").unwrap();
        assert_eq!(kernel.interface("near").unwrap(), between);
        restore(&mut kernel, &store, "near").unwrap();
        assert_eq!(kernel.interface("near").unwrap(), near);
        assert!(matches!(restore(&mut kernel, &store, "near"), Err(Error::NothingSaved(_))));
    });
}

#[test]
fn a_session_whose_process_died_is_noticed() {
    with_pair(|_| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        let near = kernel.interface("near").unwrap();
        let mut session = Session::begin(&mut kernel, &store, "near", HOLD).unwrap();
        apply(&mut session, &["tx=off"]);
        assert_eq!(left_behind(&store, &near).unwrap(), None, "it lives");
        let file = store.file(&near).unwrap();
        let state = std::fs::read(&file).unwrap();
        session.end().unwrap();
        // As a killed process would have left it.
        std::fs::write(&file, state).unwrap();
        assert_eq!(left_behind(&store, &near).unwrap(), Some(std::process::id()));
        assert!(restore(&mut kernel, &store, "near").unwrap().is_complete());
        assert_eq!(left_behind(&store, &near).unwrap(), None);
        assert_eq!(kernel.interface("near").unwrap(), near);
    });
}

#[test]
fn a_default_route_by_next_hops_of_their_own_is_one_too() {
    with_pair(|_| {
        let mut kernel = Kernel::open().unwrap();
        ip("link add br0 type bridge");
        ip("link set br0 up");
        // Or the kernel adds to a route where its next hops lead.
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").unwrap();
        ip("nexthop add id 1 via 198.18.0.2 dev near");
        ip("nexthop add id 2 dev br0");
        ip("nexthop add id 3 group 1");
        ip("nexthop add id 4 blackhole");
        ip("-6 nexthop add id 5 dev near");
        let carriers =
            [("default nhid 1", "near"), ("default nhid 2", "br0"), ("default nhid 3", "near")];
        for (route, carrier) in
            carriers.into_iter().chain([("default nhid 4", "none"), ("-6", "near")])
        {
            let route = |verb: &str| match route {
                "-6" => ip(&format!("-6 route {verb} default nhid 5")),
                route => ip(&format!("route {verb} {route}")),
            };
            route("add");
            for name in ["near", "br0", "lo"] {
                let is_default = kernel.interface(name).unwrap().default_route;
                assert_eq!(is_default, name == carrier, "{name}, which should be {carrier}");
            }
            route("del");
        }
        assert!(!kernel.interface("near").unwrap().default_route);
    });
}

#[test]
fn the_default_route_is_left_alone_unless_it_is_meant() {
    with_pair(|testbed| {
        let (_directory, store) = store();
        let mut kernel = Kernel::open().unwrap();
        assert!(!kernel.interface("near").unwrap().default_route);
        testbed.end(Side::Near).add_default_route().unwrap();
        assert!(kernel.interface("near").unwrap().default_route);
        let error = Session::begin(&mut kernel, &store, "near", STAY).map(drop).unwrap_err();
        assert!(error.to_string().contains("--default-route"), "{error}");
        let meant = Terms { default_route: true, ..HOLD };
        let mut session = Session::begin(&mut kernel, &store, "near", meant).unwrap();
        let report = apply(&mut session, &["gro=on"]);
        assert_eq!(report.outcomes[0].after, Some(Value::Switch(true)));
    });
}
