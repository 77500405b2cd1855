//! Attaching a machine to a link, and detaching it.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use crate::common::{ACCESS, Bed, MIB, PAGE, tuple};
use seekwire_link::{
    Access, Attached, EnterError, Half, Link, LinkEntry, LinkError, Provider, Side,
};
use seekwire_protocol::{FourTuple, Role};
use seekwire_transport::iov::{Gather, Scatter};
use seekwire_transport::layout::Geometry;
use seekwire_transport::mem::{Own, Peer};
use seekwire_transport::queue::{self, QueuePair};
use seekwire_transport::sys::ofd_lock::{self, LockMode};

type Queue = QueuePair<Own, Peer>;

/// A queue pair between two links, and the entries of its ends.
fn joined(one: &Link, two: &Link, port: u16) -> [(LinkEntry, Queue); 2] {
    let geometry = Geometry::new(64, 4096, 8).unwrap();
    let bytes = geometry.shown_bytes();
    let mut from = one.enter(&tuple(port), Role::Connected, 0).unwrap();
    let mut to = two.enter(&tuple(port).mirrored(), Role::Accepted, 1).unwrap();
    let [from_at, to_at] = [&mut from, &mut to].map(|end| end.place(bytes).unwrap());
    let [from_own, to_own] = [(one, from_at), (two, to_at)].map(|(link, at)| {
        let own = link.region().own(at, bytes, geometry.bytes()).unwrap();
        queue::format(&own, geometry);
        own
    });
    assert!(from.names(&one.find(&tuple(port).mirrored(), Role::Accepted).unwrap()));
    assert!(to.names(&two.find(&tuple(port), Role::Connected).unwrap()));
    let join = |link: &Link, own, at| {
        let peer = link.region().peer(at, bytes).unwrap();
        let peer_geometry = queue::shown_geometry(&peer, bytes).unwrap();
        let queue = QueuePair::new(own, geometry, peer, peer_geometry);
        queue.set_ready();
        queue
    };
    let queues = [join(one, from_own, to_at), join(two, to_own, from_at)];
    let [from_queue, to_queue] = queues;
    [(from, from_queue), (to, to_queue)]
}

#[test]
fn attaching_again_changes_nothing_but_the_access() {
    let bed = Bed::new(MIB);
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
    let one = bed.open(Side::First).unwrap();
    let end = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    let open_to_all = Access { mode: 0o666, group: None };
    let definition = bed.definition(Side::First);
    let again = Link::attach(&definition, &bed.state(Side::First), open_to_all).unwrap();
    assert_eq!(again, Attached::Already);
    let file = fs::metadata(bed.state(Side::First).join("test.link")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o666);
    assert!(!one.is_detached());
    assert_eq!(one.entries(Half::Own)[0].index, end.index());
    bed.open(Side::First).unwrap();
}

#[test]
fn the_state_file_has_the_mode_and_group_that_were_asked_for() {
    let bed = Bed::new(MIB);
    let state = bed.state(Side::First);
    // A group that this process is in, so that no privilege is needed.
    let group = fs::metadata(bed.region()).unwrap().gid();
    let access = Access { mode: 0o640, group: Some(group) };
    Link::attach(&bed.definition(Side::First), &state, access).unwrap();
    let file = fs::metadata(state.join("test.link")).unwrap();
    assert_eq!((file.permissions().mode() & 0o777, file.gid()), (0o640, group));
    let impossible = Access { mode: 0o600, group: Some(u32::MAX) };
    let error = Link::attach(&bed.definition(Side::First), &state, impossible).unwrap_err();
    assert!(matches!(error, LinkError::Io { .. }), "{error}");
}

#[test]
fn who_is_not_attached_is_told_what_to_do() {
    let bed = Bed::new(MIB);
    let error = bed.open(Side::First).unwrap_err();
    assert!(matches!(error, LinkError::NotAttached(_)));
    assert!(error.to_string().ends_with("as root: seekwire vm attach test"), "{error}");
    bed.attach(Side::First).unwrap();
    let other_side = Link::open(&bed.definition(Side::Second), &bed.state(Side::First));
    assert!(matches!(other_side.unwrap_err(), LinkError::OtherRegion(_)));
    fs::remove_file(bed.region()).unwrap();
    let error = bed.open(Side::First).unwrap_err();
    assert!(matches!(error, LinkError::Provider { .. }), "{error}");
    // The path now belongs to other memory.
    bed.make_region(2 * MIB);
    assert!(matches!(bed.open(Side::First).unwrap_err(), LinkError::OtherRegion(_)));
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
    bed.open(Side::First).unwrap();
}

#[test]
fn memory_of_an_impossible_size_is_refused() {
    let bed = Bed::new(MIB + 1);
    let error = bed.attach(Side::First).unwrap_err();
    assert!(error.to_string().contains("a multiple of 8192 bytes"), "{error}");
}

#[test]
fn what_is_no_state_file_is_replaced() {
    let bed = Bed::new(MIB);
    let path = bed.state(Side::First).join("test.link");
    fs::create_dir(bed.state(Side::First)).unwrap();
    for text in [vec![], vec![7u8; 100], vec![0; 8192], vec![0xff; 5000]] {
        fs::write(&path, text).unwrap();
        assert!(matches!(bed.open(Side::First).unwrap_err(), LinkError::OtherLayout(_)));
        assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
        bed.open(Side::First).unwrap();
    }
    // A file that a later version may have made, and that its programs use.
    fs::write(&path, [7u8; 8192]).unwrap();
    let used = fs::File::options().read(true).write(true).open(&path).unwrap();
    assert!(ofd_lock::try_lock(&used, 4097, LockMode::Shared).unwrap());
    assert!(matches!(bed.attach(Side::First).unwrap_err(), LinkError::InUse { .. }));
    drop(used);
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);

    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(bed.open(Side::First).is_err(), "a symbolic link is followed by nobody");
}

#[test]
fn a_link_that_is_taken_back_is_left_by_both_sides() {
    let bed = Bed::new(16 * MIB);
    let [one, two] = bed.both();
    let ends = joined(&one, &two, 9);
    let [(_, from_queue), (_, to_queue)] = &ends;
    assert!(one.unread().is_empty());
    {
        let tx = from_queue.tx();
        tx.carrier().unwrap();
        assert_eq!(tx.push(&mut Gather::new(&[IoSlice::new(b"twelve bytes")])).unwrap(), 12);
        let _ = tx.announce();
    }
    assert_eq!(one.unread(), [(FourTuple { namespace: 0, ..tuple(9) }, 12)]);
    assert_eq!(two.unread(), [(FourTuple { namespace: 0, ..tuple(9).mirrored() }, 12)]);
    assert!(!from_queue.peer_wants_tcp() && !to_queue.peer_wants_tcp());

    one.take_back();
    assert!(from_queue.peer_wants_tcp() && to_queue.peer_wants_tcp());
    assert!(one.is_detached() && two.is_detached());
    assert!(matches!(bed.open(Side::First).unwrap_err(), LinkError::Detached(_)));
    let entered = one.enter(&tuple(10), Role::Connected, 0);
    assert!(matches!(entered.unwrap_err(), EnterError::Detached));
    let entered = two.enter(&tuple(10), Role::Connected, 0);
    assert!(matches!(entered.unwrap_err(), EnterError::Detached));

    // No byte on the ring is lost.
    let shown = Link::inspect(&bed.definition(Side::First), &bed.state(Side::First)).unwrap();
    assert_eq!(shown.unread().len(), 1);
    let mut bytes = [0; 20];
    {
        let rx = to_queue.rx();
        rx.step().unwrap();
        let n = rx.pull(&mut Scatter::new(&mut [IoSliceMut::new(&mut bytes)])).unwrap();
        let _ = rx.announce();
        assert_eq!(&bytes[..n], b"twelve bytes");
    }
    assert!(shown.unread().is_empty() && one.unread().is_empty());

    // While connections that stay on TCP have it mapped, new ones come, and get other places.
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Already);
    assert!(!one.is_detached() && !two.is_detached());
    let others = joined(&one, &bed.open(Side::Second).unwrap(), 10);
    let wants_tcp =
        |ends: &[(LinkEntry, Queue); 2]| ends.each_ref().map(|end| end.1.peer_wants_tcp());
    assert_eq!((wants_tcp(&ends), wants_tcp(&others)), ([true; 2], [false; 2]));
    let places: Vec<_> = one.entries(Half::Own).iter().map(|listed| listed.place).collect();
    assert!(places.len() == 2 && places[0] != places[1], "{places:?}");
    for (entry, _) in ends.iter().chain(&others) {
        entry.clear();
    }
    drop((ends, others));

    // Once no process has it mapped, the half is formatted again.
    one.take_back();
    drop(one);
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew, "one that looks is in no way");
    assert!(shown.is_detached() && !two.is_detached());
    bed.open(Side::First).unwrap().enter(&tuple(11), Role::Connected, 0).unwrap();
}

#[test]
fn a_machine_that_has_a_copy_of_anothers_disk_has_not_attached() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let end = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    let state = bed.state(Side::First).join("test.link");
    // After another boot of the machine, the kernel has another boot ID.
    let file = fs::File::options().write(true).open(&state).unwrap();
    file.write_all_at(&[7; 16], 0x68).unwrap();
    assert!(matches!(bed.open(Side::First).unwrap_err(), LinkError::NotAttached(_)));
    let keep = Link::keep(&bed.definition(Side::First), &bed.state(Side::First));
    assert!(matches!(keep.unwrap_err(), LinkError::NotAttached(_)));

    // The copy has no locks of the original machine.
    let copy = bed.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(&state, copy.join("test.link")).unwrap();
    let attached = Link::attach(&bed.definition(Side::First), &copy, ACCESS).unwrap();
    assert_eq!(attached, Attached::Anew);
    // From then on the copy owns the half, and the original machine is detached.
    assert!(one.is_detached_here() && end.place(PAGE).is_none());
    let copied = Link::open(&bed.definition(Side::First), &copy).unwrap();
    assert_eq!(two.peer().map(|peer| peer.token), Some(copied.token()));
}

#[test]
fn a_machine_that_another_version_has_attached_is_not_taken_for_none() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    assert_eq!(two.other_layout(), None);
    let magic = one.region().word(0);
    magic.fetch_add(1 << 48, std::sync::atomic::Ordering::SeqCst);
    let layout = magic.load(std::sync::atomic::Ordering::SeqCst) >> 48;
    assert_eq!((two.peer(), two.other_layout()), (None, Some(layout as u16)));
    magic.store(0, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(two.other_layout(), None);
}

#[test]
fn a_link_whose_header_was_lost_is_not_used() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    // As if the other machine, or the host, had put new memory there.
    one.region().word(0).store(0, std::sync::atomic::Ordering::SeqCst);
    assert!(one.is_detached());
    assert_eq!(two.peer(), None);
    assert!(matches!(bed.open(Side::First).unwrap_err(), LinkError::Detached(_)));
    assert!(matches!(bed.attach(Side::First).unwrap_err(), LinkError::InUse { .. }));
    drop(one);
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
    assert!(two.peer().is_some());
}

#[test]
fn a_region_that_another_one_has_replaced_is_left() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    let end = one.enter(&tuple(9), Role::Connected, 0).unwrap();
    fs::remove_file(bed.region()).unwrap();
    bed.make_region(MIB);
    assert_eq!(bed.attach(Side::First).unwrap(), Attached::Anew);
    assert!(one.is_detached());
    assert!(matches!(one.enter(&tuple(9), Role::Connected, 0), Err(EnterError::Detached)));
    assert_eq!(end.place(PAGE), None);
    end.clear();
    assert!(!bed.open(Side::First).unwrap().is_detached());
}

#[test]
fn a_file_has_memory_for_all_of_it_once_one_machine_is_attached() {
    let bed = Bed::new(4 * MIB);
    bed.attach(Side::First).unwrap();
    let blocks = fs::metadata(bed.region()).unwrap().blocks();
    assert!(blocks * 512 >= 4 * MIB, "{blocks} blocks");
    let missing = Provider::File(bed.path().join("missing"));
    let definition = seekwire_link::Definition { provider: missing, ..bed.definition(Side::First) };
    let error = Link::attach(&definition, &bed.state(Side::First), ACCESS).unwrap_err();
    assert!(error.to_string().contains("there is no such file; create it"), "{error}");
}
