use std::net::Ipv4Addr;
use std::sync::atomic::AtomicUsize;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A test that accepts lines of this process would also accept, or turn away, those of other tests.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn namespace() -> u64 {
    let socket = std::net::UdpSocket::bind((HERE, 0)).unwrap();
    socket::namespace((&socket).into()).unwrap()
}

fn line_to(port: u16, words: &[u8]) -> Placed {
    let line = begin(HERE, SocketAddr::new(HERE, port), namespace()).unwrap();
    while !line::has_arrived(&line).unwrap() {
        std::thread::yield_now();
    }
    line::say(&line, words).unwrap();
    line
}

#[test]
fn a_line_reaches_the_entry_that_it_names_and_no_other() {
    let _alone = alone();
    let port = port_at(HERE, namespace()).unwrap();
    assert_eq!(port_at(HERE, namespace()), Ok(port));
    let (mine, others, theirs) = (7 << 70, 8 << 70, 9 << 70);
    expect(mine);
    expect(others);
    let _silent = line_to(port, b"half of a hello");
    let _wrong = line_to(port, &hello(1, theirs, 3));
    let _line = line_to(port, &hello(mine, theirs, 3));
    let arrived = loop {
        if let Some(arrived) = line_from(mine, |_| true).unwrap() {
            break arrived;
        }
        std::thread::yield_now();
    };
    assert_eq!((arrived.nonce, arrived.secret, arrived.from), (theirs, 3, HERE));
    assert!([others, mine].iter().all(|nonce| line_from(*nonce, |_| true).unwrap().is_none()));
    // Other addresses may not connect here.
    let refused = line_to(port, &hello(mine, theirs, 3));
    while line::hear(&refused, &mut [0]).is_ok() {
        assert!(line_from(mine, is_behind_a_link).unwrap().is_none());
    }
    forget(mine);
    forget(others);
}

#[test]
fn a_line_that_says_too_little_in_time_is_closed() {
    let _alone = alone();
    let port = port_at(HERE, namespace()).unwrap();
    let nonce = 10 << 70;
    expect(nonce);
    let silent = line_to(port, b"half of a hello");
    let from = socket::names(silent.fd()).unwrap().0;
    let grow_old = || {
        let mut guard = LINES.lock().unwrap();
        let mut coming = guard.as_mut().unwrap().coming.iter_mut();
        let found = coming.find(|coming| coming.from == from);
        found.map(|coming| coming.since -= PATIENCE + Duration::from_secs(1)).is_some()
    };
    while !grow_old() {
        assert!(line_from(nonce, |_| true).unwrap().is_none());
    }
    assert!(line_from(nonce, |_| true).unwrap().is_none());
    while line::hear(&silent, &mut [0]).is_ok() {
        std::thread::yield_now();
    }
    forget(nonce);
}

/// Lines with one listener, and its port.
fn own_lines() -> (Lines, u16) {
    let (socket, port) = line::listen_at(HERE).unwrap();
    let listener = Listener { address: HERE, namespace: namespace(), socket, port };
    let (listeners, coming, boxes) = (vec![listener], VecDeque::new(), HashMap::new());
    (Lines { pid: thread::process_id(), listeners, coming, boxes }, port)
}

#[test]
fn strangers_do_not_take_the_places_of_others_in_a_call() {
    let (mut lines, port) = own_lines();
    let _strangers: Vec<Placed> = (0..3 * AT_ONCE).map(|_| line_to(port, b"?")).collect();
    let _spoken = line_to(port, &hello(7, 8, 9));
    lines.boxes.insert(7, None);
    // Only the last line comes from an address of a link.
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    drop(lines.take_in(|_| SEEN.fetch_add(1, Ordering::Relaxed) >= 3 * AT_ONCE));
    let arrived = lines.boxes.get_mut(&7).and_then(Option::take);
    assert_eq!(arrived.map(|arrived| arrived.secret), Some(9));
}

#[test]
fn silent_lines_from_one_address_keep_none_of_another_away() {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limits.maximum, ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
    let (mut lines, port) = own_lines();
    lines.boxes.insert(7, None);
    let from = |last: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
    let line = |last: u8| {
        let line = begin(from(last), SocketAddr::new(HERE, port), namespace()).unwrap();
        while !line::has_arrived(&line).unwrap() {
            std::thread::yield_now();
        }
        line
    };
    let quiet = line(3);
    let mut silent = Vec::new();
    while silent.len() < COMING {
        silent.extend((0..AT_ONCE).map(|_| line(2)));
        drop(lines.take_in(|_| true));
    }
    let spoken = line(4);
    line::say(&spoken, &hello(7, 8, 9)).unwrap();
    // This many looks take far less time than the silent ones are given.
    let arrived = (0..1000).find_map(|_| {
        drop(lines.take_in(|_| true));
        assert!(lines.coming.len() <= COMING);
        std::thread::yield_now();
        lines.boxes.get_mut(&7)?.take()
    });
    assert_eq!(arrived.map(|arrived| (arrived.from, arrived.secret)), Some((from(4), 9)));
    // An address with few lines keeps them.
    assert!(matches!(line::hear(&quiet, &mut [0]), Ok(None)));
    let hung_up = silent.iter().filter(|line| line::hear(line, &mut [0]).is_err()).count();
    assert!((1..10).contains(&hung_up), "{hung_up}");
}

fn map(text: &str) -> Result<Map, MapError> {
    Map::parse(text)
}

#[test]
fn a_map_that_says_the_same_of_a_link_leaves_it_open() {
    const SAME: &str = "link one file /one first\nstate /run/one\n";
    let (links, found) = (HashMap::new(), HashMap::new());
    let map_before = map(SAME).unwrap();
    let mut known = Known {
        pid: 0,
        looked: None,
        version: None,
        unreadable: None,
        map: map_before,
        links,
        found,
    };
    let open = |known: &mut Known| {
        let (definition, state) = (known.map.links()[0].clone(), known.map.state().to_owned());
        let tried = Tried { link: Err(Reason::NoLink), at: Instant::now(), definition, state };
        known.links.insert("one".to_owned(), tried);
    };
    open(&mut known);
    known.take(map(SAME), false);
    assert!(known.links.contains_key("one"));
    known.take(map(&format!("# Another text.\n{SAME}10.0.0.9 one\n")), false);
    assert!(known.links.contains_key("one"));
    // As if read in the middle of a write.
    known.take(map("link one file"), false);
    assert!(known.links.contains_key("one") && known.map.links().is_empty());
    known.take(map(SAME), false);
    assert!(known.links.contains_key("one"));

    for other in [
        "link one file /one second\nstate /run/one\n",
        "link one file /two first\nstate /run/one\n",
        "link one file /one first\nstate /run/two\n",
        "link two file /one first\nstate /run/one\n",
        "",
    ] {
        known.take(map(SAME), false);
        open(&mut known);
        known.take(map(other), false);
        assert!(known.links.is_empty(), "{other}");
    }
}

#[test]
fn another_network_namespace_gets_no_line() {
    let other = namespace() + 1;
    assert_eq!(port_at(HERE, other), Err(Reason::NoLine));
    assert!(begin(HERE, (HERE, 1).into(), other).is_err());
}
