use std::net::Ipv4Addr;
use std::sync::atomic::AtomicUsize;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A test that accepts wake channels of this process would also accept, or turn away, those of
/// other tests.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn namespace() -> u64 {
    let socket = std::net::UdpSocket::bind((HERE, 0)).unwrap();
    socket::namespace((&socket).into()).unwrap()
}

fn connect_to(port: u16, words: &[u8]) -> PrivateFd {
    let socket = begin(HERE, SocketAddr::new(HERE, port), namespace()).unwrap();
    while !wake_connection::is_established(&socket).unwrap() {
        std::thread::yield_now();
    }
    wake_connection::send_hello(&socket, words).unwrap();
    socket
}

#[test]
fn findings_of_an_agent_that_could_not_be_read_are_read_again() {
    let version = Some((1, 2, 3, 4));
    assert_eq!(PeerCache::of(version, || None).version, None);
    let peers = || Some(Peers { own: 1, peer: 2, addresses: vec![HERE] });
    let read = PeerCache::of(version, peers);
    assert_eq!((read.version, read.has(HERE)), (version, true));
    assert!(PeerCache::of(None, peers).peers.is_none());
}

#[test]
fn a_wake_channel_reaches_the_entry_that_it_names_and_no_other() {
    let _alone = alone();
    let port = port_at(HERE, namespace()).unwrap();
    assert_eq!(port_at(HERE, namespace()), Ok(port));
    let (mine, others, theirs) = (7 << 70, 8 << 70, 9 << 70);
    expect(mine);
    expect(others);
    let _silent = connect_to(port, b"half of a hello");
    let _wrong = connect_to(port, &hello(1, theirs, 3));
    let _right = connect_to(port, &hello(mine, theirs, 3));
    let arrived = loop {
        if let Some(arrived) = wake_channel_from(mine, |_| true).unwrap() {
            break arrived;
        }
        std::thread::yield_now();
    };
    assert_eq!((arrived.nonce, arrived.secret, arrived.from), (theirs, 3, HERE));
    assert!(
        [others, mine].iter().all(|nonce| wake_channel_from(*nonce, |_| true).unwrap().is_none())
    );
    // Other addresses may not connect here.
    let refused = connect_to(port, &hello(mine, theirs, 3));
    while wake_connection::receive_hello(&refused, &mut [0]).is_ok() {
        assert!(wake_channel_from(mine, is_behind_a_link).unwrap().is_none());
    }
    forget(mine);
    forget(others);
}

#[test]
fn a_wake_channel_without_its_hello_in_time_is_closed() {
    let _alone = alone();
    let port = port_at(HERE, namespace()).unwrap();
    let nonce = 10 << 70;
    expect(nonce);
    let silent = connect_to(port, b"half of a hello");
    let from = socket::names(silent.fd()).unwrap().0;
    let grow_old = || {
        let mut guard = INBOX.lock().unwrap();
        let mut all = guard.as_mut().unwrap().pending.iter_mut();
        let found = all.find(|pending| pending.from == from);
        found.map(|pending| pending.since -= HELLO_TIMEOUT + Duration::from_secs(1)).is_some()
    };
    while !grow_old() {
        assert!(wake_channel_from(nonce, |_| true).unwrap().is_none());
    }
    assert!(wake_channel_from(nonce, |_| true).unwrap().is_none());
    while wake_connection::receive_hello(&silent, &mut [0]).is_ok() {
        std::thread::yield_now();
    }
    forget(nonce);
}

/// An inbox with one listener, and its port.
fn own_inbox() -> (WakeChannelInbox, u16) {
    let (socket, port) = wake_connection::listen_at(HERE).unwrap();
    let listener = Listener { address: HERE, namespace: namespace(), socket, port };
    let (listeners, pending, boxes) = (vec![listener], VecDeque::new(), HashMap::new());
    (WakeChannelInbox { pid: thread::process_id(), listeners, pending, boxes }, port)
}

#[test]
fn foreign_addresses_do_not_take_the_places_of_others_in_a_call() {
    let (mut inbox, port) = own_inbox();
    let _foreign: Vec<PrivateFd> = (0..3 * AT_ONCE).map(|_| connect_to(port, b"?")).collect();
    let _spoken = connect_to(port, &hello(7, 8, 9));
    inbox.boxes.insert(7, None);
    // Only the last connection comes from an address of a link.
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    drop(inbox.accept_pending(|_| SEEN.fetch_add(1, Ordering::Relaxed) >= 3 * AT_ONCE));
    let arrived = inbox.boxes.get_mut(&7).and_then(Option::take);
    assert_eq!(arrived.map(|arrived| arrived.secret), Some(9));
}

#[test]
fn silent_wake_channels_from_one_address_keep_none_of_another_away() {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
    let (mut inbox, port) = own_inbox();
    inbox.boxes.insert(7, None);
    let from = |last: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    let connect = |last: u8| {
        let socket = begin(from(last), SocketAddr::new(HERE, port), namespace()).unwrap();
        while !wake_connection::is_established(&socket).unwrap() {
            std::thread::yield_now();
        }
        socket
    };
    let quiet = connect(3);
    let mut silent = Vec::new();
    while silent.len() < MAX_PENDING {
        silent.extend((0..AT_ONCE).map(|_| connect(2)));
        drop(inbox.accept_pending(|_| true));
    }
    let spoken = connect(4);
    wake_connection::send_hello(&spoken, &hello(7, 8, 9)).unwrap();
    // This many looks take far less time than the silent ones are given.
    let arrived = (0..1000).find_map(|_| {
        drop(inbox.accept_pending(|_| true));
        assert!(inbox.pending.len() <= MAX_PENDING);
        std::thread::yield_now();
        inbox.boxes.get_mut(&7)?.take()
    });
    assert_eq!(arrived.map(|arrived| (arrived.from, arrived.secret)), Some((from(4), 9)));
    // An address with few wake channels keeps them.
    assert!(matches!(wake_connection::receive_hello(&quiet, &mut [0]), Ok(None)));
    let hung_up = silent
        .iter()
        .filter(|socket| wake_connection::receive_hello(socket, &mut [0]).is_err())
        .count();
    assert!((1..10).contains(&hung_up), "{hung_up}");
}

fn map(text: &str) -> Result<Map, MapError> {
    Map::parse(text)
}

#[test]
fn a_map_that_says_the_same_of_a_link_leaves_it_open() {
    const SAME: &str = "link one file /one first\nstate /run/one\n";
    let (links, peers) = (HashMap::new(), HashMap::new());
    let map_before = map(SAME).unwrap();
    let mut cache = LinkCache {
        pid: 0,
        looked: None,
        version: None,
        unreadable: None,
        map: map_before,
        links,
        peers,
    };
    let open = |cache: &mut LinkCache| {
        let (definition, state) = (cache.map.links()[0].clone(), cache.map.state().to_owned());
        let attempt =
            LinkAttempt { link: Err(Reason::NoLink), at: Instant::now(), definition, state };
        cache.links.insert("one".to_owned(), attempt);
    };
    open(&mut cache);
    cache.apply(map(SAME), false);
    assert!(cache.links.contains_key("one"));
    cache.apply(map(&format!("# Another text.\n{SAME}10.0.0.9 one\n")), false);
    assert!(cache.links.contains_key("one"));
    // As if read in the middle of a write.
    cache.apply(map("link one file"), false);
    assert!(cache.links.contains_key("one") && cache.map.links().is_empty());
    cache.apply(map(SAME), false);
    assert!(cache.links.contains_key("one"));

    for other in [
        "link one file /one second\nstate /run/one\n",
        "link one file /two first\nstate /run/one\n",
        "link one file /one first\nstate /run/two\n",
        "link two file /one first\nstate /run/one\n",
        "",
    ] {
        cache.apply(map(SAME), false);
        open(&mut cache);
        cache.apply(map(other), false);
        assert!(cache.links.is_empty(), "{other}");
    }
}

#[test]
fn another_network_namespace_gets_no_wake_channel() {
    let other = namespace() + 1;
    assert_eq!(port_at(HERE, other), Err(Reason::NoWakeChannel));
    assert!(begin(HERE, (HERE, 1).into(), other).is_err());
}
