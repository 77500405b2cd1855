//! Real switches: those of a veth pair in a namespace of its own.

#![forbid(unsafe_code)]

mod namespace;

use std::path::PathBuf;

use namespace::with_pair;
use seekwire_nic::{
    Error, Interface, Kernel, Plan, Profile, Report, Session, Setting, Store, Terms, Value, Verdict,
    left_behind, restore,
};
use testbed::Side;

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

fn apply(session: &mut Session<'_>, texts: &[&str]) -> Report {
    let now = session.now().unwrap();
    session.apply(&Plan::new(&now, &settings(texts)).unwrap()).unwrap()
}

#[test]
fn an_interface_shows_its_switches() {
    with_pair(|_| {
        let mut kernel = Kernel::open().unwrap();
        assert_eq!(kernel.names().unwrap(), ["lo", "near"]);
        let near = kernel.interface("near").unwrap();
        assert_eq!((near.driver.as_deref(), near.mtu, near.default_route), (Some("veth"), 1500, false));
        assert!(near.features.len() > 40, "{}", near.features.len());
        for name in ["tx-scatter-gather", "tx-checksum-ip-generic", "tx-tcp-segmentation", "rx-checksum"] {
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
fn the_way_to_a_peer_is_known() {
    with_pair(|testbed| {
        let mut kernel = Kernel::open().unwrap();
        let far = testbed.end(Side::Far).address().into();
        assert_eq!(kernel.interfaces_towards(far).unwrap(), ["near"]);
        let own = testbed.end(Side::Near).address().into();
        assert_eq!(kernel.interfaces_towards(own).unwrap(), ["lo"]);
        assert_eq!(kernel.interfaces_towards("::1".parse().unwrap()).unwrap(), ["lo"]);
        let error = kernel.interfaces_towards("192.0.2.1".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1") && error.contains("unreachable"), "{error}");
        kernel.check_way("near", far).unwrap();
        let error = kernel.check_way("lo", far).unwrap_err();
        assert!(matches!(&error, Error::OtherWay { by, .. } if by == "near"), "{error}");
        let error = kernel.check_way("near", own).unwrap_err();
        assert!(error.to_string().contains("reached by lo, not by near"), "{error}");
        assert!(kernel.interface("near").unwrap().address.is_some_and(|address| address.len() == 17));
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
            let found: Vec<_> = report.along.iter().map(|along| &along.key).collect();
            assert_eq!(foreseen, found, "{profile}");
            let again = session.now().unwrap();
            assert!(Plan::new(&again, &profile.settings(&again)).unwrap().is_idle(), "{profile}");
            session.end().unwrap();
        }
        let baseline = kernel.interface("near").unwrap();
        for name in ["tx-scatter-gather", "tx-checksum-ip-generic", "tx-generic-segmentation", "rx-gro"] {
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
        for texts in
            [&["sg=off"][..], &["sg=on"], &["tx=off"], &["tx=on"], &["sg=off", "tx=off"], &["tso=on"]]
        {
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
        let report = apply(&mut session, &["lro=on", "warp=on", "gso=off", "rx=on", "coalesce.rx-usecs=1"]);
        let verdicts: Vec<_> = report.outcomes.iter().map(|outcome| &outcome.result).collect();
        use Verdict::{Absent, AlreadySo, Changed, Fixed};
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
            Session::begin(&mut Kernel::open().unwrap(), &store, "near", STAY),
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
