use std::net::SocketAddr;

use super::*;

fn tuple(port: u16) -> FourTuple {
    let local: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let peer: SocketAddr = ([127, 0, 0, 1], port).into();
    FourTuple { local: local.into(), peer: peer.into(), namespace: 1 }
}

fn registry(dir: &Path) -> &'static Registry {
    Box::leak(Box::new(Registry::open(dir).unwrap()))
}

#[test]
fn an_acceptor_is_found_by_its_own_view_and_gone_when_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(&dir.path().join("r"));
    let slot = registry.enter(&tuple(9), Role::Accepted, 5).unwrap();
    let connected = registry.enter(&tuple(10), Role::Connected, 5).unwrap();
    let holder = registry.find_acceptor(&tuple(9)).unwrap();
    assert_eq!(holder.slot, slot.slot());
    assert!(
        registry.find_acceptor(&tuple(10)).is_none(),
        "a connecting end is not offered anything"
    );
    assert!(!slot.is_signalled());
    registry.signal(holder.slot);
    assert!(slot.is_signalled());
    slot.show_carriers(Role::Accepted, Carrier::Ring, Carrier::Tcp, Some(Reason::Exec));
    slot.show_sent(1, 2);
    slot.show_received(3, 4);
    let entry = registry.entries().into_iter().find(|e| e.role == Role::Accepted).unwrap();
    assert_eq!((entry.tx_tcp, entry.tx_ring, entry.rx_tcp, entry.rx_ring), (1, 2, 3, 4));
    assert_eq!(
        (entry.tx, entry.rx, entry.reason),
        (Carrier::Ring, Carrier::Tcp, Some(Reason::Exec))
    );
    assert!(entry.pid == std::process::id() && !entry.program.is_empty());
    // The same without a mapping.
    let read = read(&fs::File::open(dir.path().join("r").join(file_name())).unwrap()).unwrap();
    let texts = |entries: &[RegistryEntry]| entries.iter().map(|it| format!("{it:?}")).collect();
    let [read, mapped]: [Vec<String>; 2] = [texts(&read), texts(&registry.entries())];
    assert_eq!((read.len(), read), (2, mapped));
    drop((slot, connected));
    assert!(registry.find_acceptor(&tuple(9)).is_none());
    assert!(registry.entries().is_empty());
}

#[test]
fn a_signal_for_an_earlier_registration_is_not_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(&dir.path().join("r"));
    let old = registry.enter(&tuple(9), Role::Accepted, 5).unwrap().slot();
    let new = registry.enter(&tuple(9), Role::Accepted, 5).unwrap();
    registry.signal(old);
    assert!(!new.is_signalled());
}

#[test]
fn entries_of_the_dead_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(&dir.path().join("r"));
    for _ in 0..WINDOW {
        std::mem::forget(registry.enter(&tuple(9), Role::Accepted, 77).unwrap());
    }
    assert!(registry.enter(&tuple(9), Role::Accepted, 5).is_some(), "nobody listens at nonce 77");
}

#[test]
fn who_clears_up_frees_what_a_dead_process_has_entered_or_was_about_to() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(&dir.path().join("r"));
    let [dead, also_dead] =
        [0, 1].map(|_| registry.enter(&tuple(9), Role::Accepted, 0x77).unwrap());
    // Killed while entering.
    registry.store(dead.slot().index, STATE, claim_of(dead.pid, 0x77));
    let other = registry.enter(&tuple(9), Role::Accepted, 0x78).unwrap();
    let path = rendezvous_path(registry.dir(), dead.pid, 0x77);
    assert_eq!(rendezvous::rendezvous_of(&path), Some((dead.pid, 0x77)));
    registry.clear_up(dead.pid, 0x77);
    for slot in [&dead, &also_dead] {
        assert_eq!(registry.load(slot.slot().index, STATE), 0);
    }
    assert_eq!(registry.find_acceptor(&tuple(9)).unwrap().slot, other.slot());
    std::mem::forget([dead, also_dead]);
}

/// In a process of its own: the limit applies to the whole process.
#[test]
fn a_process_short_of_descriptors_takes_nobody_for_dead() {
    const ALONE: &str = "SEEKWIRE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "registry::tests::a_process_short_of_descriptors_takes_nobody_for_dead";
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(again.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(&dir.path().join("r"));
    let pid = thread::process_id();
    let lives = unix::DatagramSocket::bind(&rendezvous_path(registry.dir(), pid, 77)).unwrap();
    for _ in 0..WINDOW {
        std::mem::forget(registry.enter(&tuple(9), Role::Accepted, 77).unwrap());
    }
    let (soft, _) = seekwire_transport::sys::limit::descriptor_limit();
    seekwire_transport::sys::limit::set_descriptor_limit(0).unwrap();
    let entered = registry.enter(&tuple(9), Role::Accepted, 5);
    seekwire_transport::sys::limit::set_descriptor_limit(soft).unwrap();
    assert!(entered.is_none(), "the one at nonce 77 lives");
    drop(lives);
    assert!(registry.enter(&tuple(9), Role::Accepted, 5).is_some());
}

#[test]
fn a_directory_that_others_can_use_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(Registry::open(dir.path()), Err(OpenError::NotPrivate(_))));
    assert!(matches!(
        Registry::open(Path::new("/nonexistent/seekwire")),
        Err(OpenError::Directory { .. })
    ));
}

#[test]
fn a_directory_that_is_mended_is_used_by_the_next_connection() {
    use std::os::unix::fs::PermissionsExt;
    static OPENED: OnceLock<Registry> = OnceLock::new();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(Registry::of_dir(&OPENED, dir.path()).err(), Some(Reason::NoRegistry));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Registry::of_dir(&OPENED, dir.path()).is_ok());
}

#[test]
fn a_table_that_was_written_over_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let before = registry(&path);
    for byte in [1, 2, 4, 255] {
        fs::write(path.join(file_name()), vec![byte; LEN]).unwrap();
        let after = registry(&path);
        let _slot = before.enter(&tuple(9), Role::Accepted, 5).unwrap();
        assert!(after.find_acceptor(&tuple(9)).is_some(), "after {byte}");
    }
}

#[test]
fn slots_in_a_state_that_nobody_writes_are_free() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(&dir.path().join("r"));
    for junk in [4, 3, 6, 1 << 32] {
        (0..SLOTS).for_each(|index| registry.store(index, STATE, junk));
        assert!(registry.enter(&tuple(9), Role::Accepted, 5).is_some(), "{junk}");
    }
}

#[test]
fn a_file_of_another_user_is_read_whatever_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let read_file = || read(&fs::File::open(&path).unwrap());
    for short in [&b""[..], b"SKWREG", &MAGIC.to_ne_bytes()] {
        fs::write(&path, short).unwrap();
        assert!(read_file().is_err(), "{short:?}");
    }
    for byte in [0, 1, 2, 255] {
        let mut bytes = vec![byte; LEN];
        bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        fs::write(&path, &bytes).unwrap();
        assert!(read_file().is_ok_and(|entries| entries.len() <= SLOTS as usize), "{byte}");
        // Truncated while it is read, and longer than expected.
        fs::write(&path, &bytes[..LEN / 2]).unwrap();
        assert_eq!(read_file().is_ok(), byte == 0, "{byte}");
        fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read_file().is_ok(), "{byte}");
    }
}
