//! How the agents of two machines communicate through the region, and which addresses programs
//! believe.

use std::fs;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crate::common::{Bed, MIB};
use seekwire_link::{Answer, Link, LinkError, MOST, Peers, Published, Side};

/// Offset of the other half.
const HALF: usize = 1 << 19;
/// Words of a header.
const SEQUENCE: usize = 0x100;
const PORT: usize = 0x108;
const COUNT: usize = 0x110;
const ADDRESSES: usize = 0x200;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Stores a word as the other machine's agent does.
fn store(link: &Link, word: usize, value: u64) {
    link.region().word(HALF + word).store(value, Ordering::SeqCst);
}

fn keep(bed: &Bed, side: Side) -> Result<Link, LinkError> {
    Link::keep(&bed.definition(side), &bed.state(side))
}

#[test]
fn what_one_agent_publishes_the_other_one_reads() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    assert_eq!(one.published(), Some(Published::default()));
    let said = Published::new(967, ["10.0.0.2", "fd00::2"].map(ip));
    two.publish(&said);
    assert_eq!(one.published(), Some(said.clone()));
    let count = one.publications();
    two.publish(&said);
    assert_ne!(one.publications(), count, "the same once more");
    let other = Published::new(500, [ip("10.0.0.3")]);
    one.publish(&other);
    assert_eq!(two.published(), Some(other));
    assert_eq!(one.published(), Some(said), "each has a half of its own");
    two.publish(&Published::default());
    assert_eq!(one.published(), Some(Published::default()));
}

#[test]
fn a_machine_that_attaches_anew_has_published_nothing() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    two.publish(&Published::new(967, [ip("10.0.0.2")]));
    two.take_back();
    let former = Link::inspect(&bed.definition(Side::Second), &bed.state(Side::Second)).unwrap();
    drop(two);
    bed.attach(Side::Second).unwrap();
    assert_eq!(one.published(), Some(Published::default()));
    // An agent that has not noticed the new attachment publishes nothing for it.
    former.publish(&Published::new(967, [ip("10.0.0.2")]));
    former.ask(5);
    assert_eq!(one.published(), Some(Published::default()));
    assert!(!one.is_asked(5));
}

#[test]
fn impossible_words_are_no_addresses() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let said = Published::new(967, [ip("10.0.0.2"), ip("10.0.0.3")]);
    two.publish(&said);
    for port in [0, 1024, 65535, 65536, 65536 + 967, u64::MAX] {
        store(&one, PORT, port);
        assert_eq!(one.published(), Some(Published::default()), "{port}");
    }
    store(&one, PORT, 967);
    for count in [MOST as u64 + 1, 1 << 32, u64::MAX] {
        store(&one, COUNT, count);
        assert_eq!(one.published(), Some(Published::new(967, [])), "{count}");
    }
    // All addresses count: the others are zero, which is the unspecified address.
    store(&one, COUNT, MOST as u64);
    assert_eq!(one.published(), Some(said));
    for forbidden in ["127.0.0.1", "::1", "224.0.0.1", "0.0.0.0", "fe80::1", "255.255.255.255"] {
        let number = match ip(forbidden) {
            IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => u128::from(v6),
        };
        store(&one, ADDRESSES, (number >> 64) as u64);
        store(&one, ADDRESSES + 8, number as u64);
        let left = Published::new(967, [ip("10.0.0.3")]);
        assert_eq!(one.published(), Some(left), "{forbidden}");
    }
    store(&one, SEQUENCE, 7);
    assert_eq!(one.published(), None, "it is being changed, for ever");
}

#[test]
fn an_answer_shows_who_has_heard_the_question() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    assert!(!two.is_asked(0) && !two.is_asked(5));
    one.ask(5);
    assert!(two.is_asked(5) && !two.is_asked(6));
    assert!(!one.is_asked(5), "nobody answers himself");
    assert_eq!(one.answered(5), None);
    let answer = Answer { secret: 9 << 70, here: ip("10.0.0.2"), there: ip("fd00::1") };
    two.answer(5, &answer);
    assert_eq!(one.answered(5), Some(answer));
    assert_eq!(one.answered(6), None);
    assert_eq!(one.answered(0), None);
    // If the other machine asks the same question, this machine must not answer it.
    two.ask(5);
    assert!(!one.is_asked(5));
    one.ask(0);
    assert!(!two.is_asked(5) && !two.is_asked(0));
}

#[test]
fn a_link_has_one_agent_which_is_no_user_of_it() {
    let bed = Bed::new(MIB);
    assert!(matches!(keep(&bed, Side::First), Err(LinkError::NotAttached(_))));
    let [one, _two] = bed.both();
    assert!(!one.has_agent());
    let agent = keep(&bed, Side::First).unwrap();
    assert!(one.has_agent() && !agent.has_agent(), "another one's");
    let error = keep(&bed, Side::First).unwrap_err();
    assert!(matches!(error, LinkError::HasAgent(_)), "{error}");
    drop(one);
    assert!(!agent.usage().is_open_elsewhere);

    agent.take_back();
    assert!(agent.is_detached_here());
    // An agent does not prevent another attachment, but does not maintain it.
    bed.attach(Side::First).unwrap();
    let next = keep(&bed, Side::First).unwrap();
    assert!(agent.is_detached_here() && !next.is_detached_here());
    drop((agent, next));
    assert!(!bed.open(Side::First).unwrap().has_agent());
}

#[test]
fn where_the_machine_is_detached_its_agent_leaves_the_region_alone() {
    let bed = Bed::new(MIB);
    let [one, _two] = bed.both();
    one.take_back();
    fs::remove_file(bed.region()).unwrap();
    let error = keep(&bed, Side::First).unwrap_err();
    assert!(matches!(error, LinkError::Detached(_)), "{error}");
}

#[test]
fn what_an_agent_has_found_is_believed_while_it_lives_and_both_machines_stay() {
    let bed = Bed::new(MIB);
    let [one, two] = bed.both();
    let peer = one.peer().unwrap().token;
    let peers = Peers { own: one.token(), peer, addresses: vec![ip("10.0.0.2")] };
    assert!(!one.believes(&peers), "without an agent");
    let agent = keep(&bed, Side::First).unwrap();
    assert!(one.believes(&peers));
    assert!(!one.believes(&Peers { own: peers.own ^ 1, ..peers.clone() }));
    assert!(!one.believes(&Peers { peer: peers.peer ^ 1, ..peers.clone() }));
    drop(agent);
    assert!(!one.believes(&peers), "of a dead agent");
    let _agent = keep(&bed, Side::First).unwrap();
    assert!(one.believes(&peers));

    two.take_back();
    assert!(!one.believes(&peers), "the other machine has detached");
    drop(two);
    bed.attach(Side::Second).unwrap();
    assert!(one.peer().is_some_and(|peer| !peer.is_detached));
    assert!(!one.believes(&peers), "the other machine has attached anew");
}
