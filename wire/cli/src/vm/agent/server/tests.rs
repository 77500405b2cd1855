use std::fs::File;
use std::sync::Mutex;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use seekwire_link::{Access, Definition, Map, Provider, Side};

use super::super::addresses::Addresses;
use super::super::findings::Findings;
use super::super::shared::Links;
use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A connection from one of the many addresses of this machine.
fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddr::new(ip(from), 0)).unwrap();
    connect(&stream, &to).unwrap();
    stream.into()
}

/// Both ends of a link with this name.
fn link(name: &str, directory: &std::path::Path) -> [Link; 2] {
    let region = directory.join("region");
    File::create(&region).unwrap().set_len(1 << 20).unwrap();
    let access = Access { mode: 0o600, group: None };
    [Side::First, Side::Second].map(|side| {
        let provider = Provider::File(region.clone());
        let definition = Definition { name: name.to_owned(), provider, side };
        let state = directory.join(side.to_string());
        Link::attach(&definition, &state, access).unwrap();
        Link::inspect(&definition, &state).unwrap()
    })
}

#[test]
fn silence_from_one_address_keeps_nobody_at_another_from_being_answered() {
    let directory = tempfile::tempdir().unwrap();
    let [answering, asking] = link("pair", directory.path());
    let agent = Arc::new(Agent {
        port: 967,
        addresses: Mutex::new(Addresses::look(&[]).unwrap()),
        findings: Mutex::new(Findings::new(Map::default())),
        links: Mutex::new(Links {
            open: BTreeMap::from([("pair".to_owned(), answering)]),
            is_over: false,
        }),
    });
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let to = listener.local_addr().unwrap();
    serve(listener, &agent).unwrap();

    let silent: Vec<TcpStream> = (0..3 * SEATS).map(|_| connect_from("127.0.0.2", to)).collect();
    asking.ask(7);
    let mut stream = connect_from("127.0.0.3", to);
    let hello = Hello { question: 7, secret: 9 << 70, link: "pair".to_owned() };
    stream.write_all(&hello.encode()).unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("an answer");
    assert_eq!(byte, ANSWERED);
    let answer = Answer { secret: 9 << 70, here: ip("127.0.0.1"), there: ip("127.0.0.3") };
    assert_eq!(asking.answered(7), Some(answer));
    let mut stream = connect_from("127.0.0.3", to);
    let hello = Hello { question: 8, ..hello };
    stream.write_all(&hello.encode()).unwrap();
    stream.read_exact(&mut byte).expect("a refusal");
    assert_eq!(byte, REFUSED);
    // A silent client is not kept for longer than it takes others of its address to time out.
    assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
}

#[test]
fn one_socket_hears_both_protocols() {
    let listener = listen(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from.port(), stream.local_addr().unwrap().port());
    assert_eq!(from.ip().to_canonical(), ip("127.0.0.1"));
}

/// Seats another client of an address.
fn sit(seats: &mut Seats, listener: &TcpListener, of: &str) {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _ = listener.accept().unwrap();
    let until = Instant::now() + HELLO_TIMEOUT;
    seats.let_in(Seat { stream, of: ip(of), until, hello: [0; HELLO], received: 0 });
}

#[test]
fn an_address_has_its_share_and_the_one_that_has_most_makes_room() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut seats = Seats::default();
    for of in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.3"] {
        sit(&mut seats, &listener, of);
    }
    let taken = |seats: &Seats| seats.0.iter().map(|seat| seat.of.to_string()).collect::<Vec<_>>();
    let before = ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.3"];
    assert_eq!(taken(&seats), before, "two of each at most");
    for of in ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"] {
        sit(&mut seats, &listener, of);
    }
    // Not the oldest of all.
    let after = [1, 2, 3, 3, 4, 5, 6, 7].map(|last| format!("10.0.0.{last}"));
    assert_eq!(taken(&seats), after);
}

#[test]
fn strangers_of_one_network_have_one_share() {
    assert_eq!(network(ip("2001:db8::1")), network(ip("2001:db8::ffff:0:0:2")));
    assert_ne!(network(ip("2001:db8::1")), network(ip("2001:db8:0:1::1")));
    assert_ne!(network(ip("10.0.0.1")), network(ip("10.0.0.2")));
}
