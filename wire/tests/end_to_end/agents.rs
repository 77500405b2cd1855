//! `seekwire vm agent` on two machines with a link between them, of which no map says the
//! addresses: two network namespaces that share a file (links.rs). Each agent says what it finds
//! when that counts, so nothing here waits for anything but a line.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use rustix::process::{Pid, Signal, kill_process};
use seekwire_link::{Access, Answer, Definition, Link, Map, Peers, Provider, Published};
use seekwire_testbed::Side;
use serde_json::json;

use crate::harness::{Child, installed, seekwire};
use crate::links::{MACHINES, Machines, RING, redis};

const REGION: u64 = 16 << 20;
const FOUND: &str = " leads to the machine at the other end";

/// Both machines attached, with an agent each that has found the other.
fn found() -> (Machines, [Child; 2]) {
    let machines = attached();
    let mut agents = MACHINES.map(|side| agent(&machines, side, &[]));
    agents.iter_mut().for_each(|agent| _ = until(agent, FOUND));
    (machines, agents)
}

fn attached() -> Machines {
    let machines = Machines::unknown(REGION);
    for side in MACHINES {
        machines.vm(side, &["attach"]).success();
    }
    machines
}

fn agent(machines: &Machines, side: Side, options: &[&str]) -> Child {
    let mut agent = machines.start_vm(side, &[&["agent"], options].concat());
    until(&mut agent, "answers at port ");
    agent
}

/// The next line that has a word.
fn until(agent: &mut Child, word: &str) -> String {
    loop {
        let line = agent.line();
        if line.contains(word) {
            return line;
        }
    }
}

fn ring() -> Vec<[String; 4]> {
    vec![RING.map(String::from)]
}

/// A new connection between the machines, and whether the link carries it.
fn goes_over_the_link(machines: &Machines) -> bool {
    let ends = machines.connected();
    let carriers = machines.carriers(Side::Near);
    ends.finish();
    carriers == ring()
}

/// The file in which a machine keeps what its agent has found.
fn peers(machines: &Machines, side: Side) -> Option<Peers> {
    let map = Map::parse(&machines.map(side)).expect("a map");
    Peers::read(&map.links()[0], map.state())
}

/// A link as one machine has it, for a test that plays its agent.
fn link(machines: &Machines, side: Side) -> Link {
    let map = Map::parse(&machines.map(side)).expect("a map");
    Link::inspect(&map.links()[0], map.state()).expect("an attached link")
}

#[test]
fn two_agents_find_each_other_and_programs_talk_over_the_link() {
    let (machines, agents) = found();
    for (side, other) in [(Side::Near, Side::Far), (Side::Far, Side::Near)] {
        let status = machines.status(side);
        let address = machines.address(other);
        assert_eq!((&status["agent"], &status["addresses"]), (&true.into(), &json!([])));
        assert_eq!(status["by_agent"], json!([address]));
        assert_eq!(status["other_agent"]["addresses"], json!([address]));
        let map = machines.vm(side, &["map"]).success();
        assert!(map.contains(&format!("{address} by agent")), "{map}");
        let doctor = machines.seekwire(side, &["doctor", "--json"]).stdout;
        assert!(doctor.contains("attached at both ends"), "{doctor}");
    }
    let mut ends = machines.connected();
    for side in MACHINES {
        assert_eq!(machines.carriers(side), ring(), "{side:?}");
    }
    ends.pass(1_000_000);
    ends.finish();

    assert!(MACHINES.iter().all(|side| peers(&machines, *side).is_some()));
    for (side, agent) in MACHINES.into_iter().zip(agents) {
        agent.stop(Signal::TERM).success();
        assert_eq!(peers(&machines, side), None, "{side:?}");
        assert_eq!(machines.status(side)["agent"], false);
    }
    for side in MACHINES {
        assert!(machines.status(side)["other_agent"].is_null(), "{side:?}");
    }
    assert!(!goes_over_the_link(&machines));
}

#[test]
fn a_server_that_runs_already_takes_further_connections_over_the_link() {
    let machines = attached();
    let (server, to) = redis(&machines);
    let load = || {
        let mut benchmark = machines.command(Side::Near, installed("redis-benchmark"));
        benchmark.args(&to).args(["-c", "5", "-n", "1000", "-t", "set,get", "--csv"]);
        machines.run(Side::Near, &mut benchmark).success();
        machines.stats(Side::Near).ring()
    };
    assert_eq!(load(), 0);
    let mut agents = MACHINES.map(|side| agent(&machines, side, &[]));
    agents.iter_mut().for_each(|agent| _ = until(agent, FOUND));
    // The server looks again when a second has passed.
    let loads = (0..1000).find(|_| load() > 0);
    assert!(loads.is_some(), "nothing went over the link");
    let mut stop = machines.command(Side::Near, installed("redis-cli"));
    machines.run(Side::Near, stop.args(&to).args(["SHUTDOWN", "NOSAVE"])).success();
    server.finish().success();
}

/// A connection of an agent that asks: its question and its secret.
struct Asked {
    stream: TcpStream,
    from: IpAddr,
    question: u64,
    secret: u128,
}

fn asked(listener: &TcpListener) -> Asked {
    let (mut stream, from) = listener.accept().expect("an agent that asks");
    let mut hello = [0; 64];
    stream.read_exact(&mut hello).expect("all that an agent says");
    Asked {
        stream,
        from: from.ip(),
        question: u64::from_le_bytes(hello[8..16].try_into().expect("8 bytes")),
        secret: u128::from_le_bytes(hello[16..32].try_into().expect("16 bytes")),
    }
}

#[test]
fn a_liar_is_not_believed_and_an_address_counts_only_as_both_machines_see_it() {
    let machines = attached();
    let far = link(&machines, Side::Far);
    const PORT: u16 = 500;
    let listen = || TcpListener::bind(("0.0.0.0", PORT)).expect("a port that nobody has");
    let listener = machines.end(Side::Far).run(listen).expect("the namespace");
    let mut agent = agent(&machines, Side::Near, &[]);
    let ip = |side| -> IpAddr { machines.address(side).parse().expect("an address") };
    let (near_ip, far_ip): (IpAddr, IpAddr) = (ip(Side::Near), ip(Side::Far));
    // An address of the other machine, one of this machine, and loopback.
    let said = [far_ip, near_ip, "127.0.0.1".parse().expect("an address")];
    far.publish(&Published { port: PORT, addresses: said.to_vec() });

    // The process at the address confirms, but there is no answer in the region.
    asked(&listener).stream.write_all(&[1]).expect("a connection");
    let line = until(&mut agent, "is not used");
    assert!(line.contains(&format!("{far_ip} is not used: it does not lead")), "{line}");
    // The machine at the other end answers with a wrong secret.
    let Asked { mut stream, question, secret, .. } = asked(&listener);
    far.answer(question, &Answer { secret: secret ^ 1, here: far_ip, there: near_ip });
    stream.write_all(&[1]).expect("a connection");
    // It has the secret, but received it at another address.
    let Asked { mut stream, question, secret, from } = asked(&listener);
    let elsewhere = "198.18.0.9".parse().expect("an address");
    far.answer(question, &Answer { secret, here: elsewhere, there: from });
    stream.write_all(&[1]).expect("a connection");
    let line = until(&mut agent, "is not used");
    assert!(line.contains("addresses are translated"), "{line}");
    assert_eq!(machines.status(Side::Near)["by_agent"], json!([]));

    let Asked { mut stream, question, secret, from } = asked(&listener);
    assert_eq!(from, near_ip);
    far.answer(question, &Answer { secret, here: far_ip, there: from });
    stream.write_all(&[1]).expect("a connection");
    until(&mut agent, FOUND);
    assert_eq!(machines.status(Side::Near)["by_agent"], json!([far_ip]));
    agent.stop(Signal::TERM).success();
}

#[test]
fn another_machine_with_the_same_address_is_not_believed() {
    // Near of the one has a link with far of the other. In each network, there is somebody else who
    // has the address of the machine at the other end, and an agent with a link of the same name.
    let (one, other) = (Machines::unknown(REGION), Machines::unknown(REGION));
    let map = one.map(Side::Near);
    let crossed =
        map.replace(one.region().to_str().expect("UTF-8"), other.region().to_str().expect("UTF-8"));
    assert_ne!(map, crossed);
    one.write_map(Side::Near, &crossed);
    for (machines, side) in [(&one, Side::Near), (&one, Side::Far), (&other, Side::Far)] {
        machines.vm(side, &["attach"]).success();
    }
    let _same = agent(&one, Side::Far, &[]);
    let _right = agent(&other, Side::Far, &[]);
    let mut agent = agent(&one, Side::Near, &[]);
    let line = until(&mut agent, "is not used");
    let address = one.address(Side::Far);
    assert!(line.contains(&format!("{address} is not used: it does not lead")), "{line}");
    assert_eq!(one.status(Side::Near)["other_agent"]["addresses"], json!([address]));
    assert_eq!(one.status(Side::Near)["by_agent"], json!([]));
    let doctor = one.seekwire(Side::Near, &["doctor", "--json"]).stdout;
    assert!(doctor.contains(&format!("none of {address} leads to the machine")), "{doctor}");
}

/// True if a connection in the network namespace of `pid` has that many unread bytes.
fn has_received(pid: u32, bytes: usize) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let unread = fields[4].split_once(':').and_then(|(_, unread)| parse_hex(unread));
            // TCP_ESTABLISHED
            fields[3] == "01" && unread == Some(bytes)
        })
    })
}

fn parse_hex(text: &str) -> Option<usize> {
    usize::from_str_radix(text, 16).ok()
}

fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("a child that has not been waited for");
}

/// Until it is dropped, a machine with two links asks on one what it is asked on the other.
struct Middle<'m> {
    is_over: &'m AtomicBool,
}

impl Drop for Middle<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn who_stands_between_two_machines_gets_answers_only_where_links_share_a_name() {
    /// The question of a machine, in its half.
    const QUESTION: usize = 0x140;
    /// The length of its message to the agent at an address.
    const HELLO: usize = 64;
    for (name, is_answered) in [("pair", true), ("other", false)] {
        // Near of the one asks, far of the one is to answer; each has a link with the one between.
        let (one, other) = (Machines::unknown(REGION), Machines::unknown(REGION));
        let regions = [&one, &other].map(|machines| machines.region().to_str().expect("UTF-8"));
        one.write_map(Side::Near, &one.map(Side::Near).replace(regions[0], regions[1]));
        one.write_map(Side::Far, &one.map(Side::Far).replace("link pair", &format!("link {name}")));
        for (machines, side) in [(&one, Side::Near), (&one, Side::Far), (&other, Side::Far)] {
            machines.vm(side, &["attach"]).success();
        }
        let asks = link(&other, Side::Far);
        let provider = Provider::File(one.region().to_owned());
        let own = Definition { name: "own".to_owned(), provider, side: seekwire_link::Side::First };
        let state = one.stage.path("middle");
        let access = Access { mode: 0o600, group: None };
        Link::attach(&own, &state, access).expect("the other half");
        let answers = Link::inspect(&own, &state).expect("an attached link");

        let answering = agent(&one, Side::Far, &[]);
        let far_ip = one.address(Side::Far).parse().expect("an address");
        let said = Published::new(967, [far_ip]);
        // Far has opened its link once it publishes its addresses.
        while answers.published().is_none_or(|published| published.addresses.is_empty()) {
            std::thread::yield_now();
        }
        // The message of Near waits in Far's socket until its question has been relayed.
        answering.signal(Signal::STOP);
        asks.publish(&said);
        let mut asking = agent(&one, Side::Near, &[]);
        let near = asking.pid();
        let (is_over, was_answered) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let middle = Middle { is_over: &is_over };
            scope.spawn(|| {
                let mut relayed = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let question = asks.region().word(QUESTION).load(Ordering::SeqCst);
                    if question == 0 && relayed != 0 {
                        // Near no longer waits: let it ask again soon.
                        answering.signal(Signal::STOP);
                        signal(near, Signal::CONT);
                        relayed = 0;
                        asks.publish(&said);
                    } else if question != relayed && has_received(answering.pid(), HELLO) {
                        // Near must not read the reply before the answer has been relayed.
                        if is_answered {
                            signal(near, Signal::STOP);
                        }
                        answers.ask(question);
                        answering.signal(Signal::CONT);
                        relayed = question;
                    }
                    if let Some(answer) = answers.answered(relayed) {
                        asks.answer(relayed, &answer);
                        was_answered.store(true, Ordering::Relaxed);
                        signal(near, Signal::CONT);
                    }
                    std::thread::yield_now();
                }
            });
            if is_answered {
                until(&mut asking, FOUND);
            } else {
                until(&mut asking, "is not used");
            }
            assert_eq!(was_answered.load(Ordering::Relaxed), is_answered);
            drop(middle);
        });
    }
}

#[test]
fn a_killed_agent_is_not_believed_and_the_next_one_goes_on() {
    let (machines, [near, _far]) = found();
    let mut ends = machines.connected();
    near.signal(Signal::KILL);
    drop(near);
    // Its file is there, and nobody believes it.
    assert!(peers(&machines, Side::Near).is_some());
    let status = machines.status(Side::Near);
    assert_eq!((&status["agent"], &status["by_agent"]), (&false.into(), &json!([])));
    let doctor = machines.seekwire(Side::Near, &["doctor", "--json"]).stdout;
    assert!(doctor.contains("no agent finds them"), "{doctor}");
    ends.pass(100_000);
    assert_eq!(machines.carriers(Side::Near), ring(), "those that are there stay");
    ends.finish();
    assert!(!goes_over_the_link(&machines));

    let mut next = agent(&machines, Side::Near, &[]);
    until(&mut next, FOUND);
    // The other one may have missed it meanwhile.
    assert!((0..100).any(|_| goes_over_the_link(&machines)));
}

#[test]
fn a_machine_that_attaches_anew_is_found_anew() {
    let (machines, [mut near, mut far]) = found();
    // The agent of this machine unmaps the file, which the other machine's agent keeps mapped.
    let detached = machines.vm(Side::Far, &["detach", "pair", "--wait", "0"]);
    assert_eq!(detached.stdout, "pair: detached\n");
    assert!(!detached.stderr.contains(&far.pid().to_string()), "{detached:?}");
    until(&mut far, "this machine has detached");
    until(&mut near, "the machine at the other end has detached");
    for side in MACHINES {
        assert_eq!(peers(&machines, side), None, "{side:?}");
    }
    assert!(!goes_over_the_link(&machines));
    machines.vm(Side::Far, &["attach"]).success();
    for agent in [&mut near, &mut far] {
        until(agent, FOUND);
    }
    assert!(goes_over_the_link(&machines));
}

#[test]
fn detaching_takes_programs_and_the_agent_off_the_link() {
    let (machines, [mut near, mut far]) = found();
    let mut ends = machines.connected();
    assert_eq!(machines.carriers(Side::Near), ring());
    let detached = machines.vm(Side::Near, &["detach", "pair"]);
    // The programs still have the region mapped; the agent does not.
    assert_eq!(detached.status.code(), Some(3), "{detached:?}");
    assert!(!detached.stderr.contains(&near.pid().to_string()), "{detached:?}");
    until(&mut near, "this machine has detached");
    until(&mut far, "the machine at the other end has detached");
    assert!(machines.status(Side::Far)["other_agent"].is_null());
    ends.pass(100_000);
    for side in MACHINES {
        assert_eq!(machines.carriers(side)[0][..2], ["tcp", "tcp"], "{side:?}");
        assert_eq!(peers(&machines, side), None, "{side:?}");
    }
    ends.finish();
    machines.vm(Side::Near, &["attach"]).success();
    for agent in [&mut near, &mut far] {
        until(agent, FOUND);
    }
    assert!(goes_over_the_link(&machines));
}

#[test]
fn the_map_wins_and_is_followed_while_the_agent_runs() {
    let (machines, [near, mut far]) = found();
    let address = machines.address(Side::Near);
    machines.vm(Side::Far, &["map", "add", &address, "pair"]).success();
    // The file goes when the agent has read the map; both say the same to programs.
    assert!(goes_over_the_link(&machines));
    let status = machines.status(Side::Far);
    assert_eq!((&status["addresses"], &status["by_agent"]), (&json!([address]), &json!([])));
    // A link that the map has no more is left alone, and found again when it is there again.
    let map = machines.map(Side::Far);
    let without = map.lines().filter(|line| line.starts_with("state ")).collect::<Vec<_>>();
    machines.write_map(Side::Far, &(without.join("\n") + "\n"));
    until(&mut far, "changed in the map, or removed from it");
    machines.write_map(Side::Far, &map.replace(&format!("{address}  pair\n"), ""));
    until(&mut far, FOUND);
    near.stop(Signal::INT).success();
}

#[test]
fn there_is_one_agent_and_it_says_what_it_cannot_do() {
    let machines = attached();
    let first = agent(&machines, Side::Near, &[]);
    let refuses = |options: &[&str], status: i32, words: &str| {
        let finished = machines.vm(Side::Near, &[&["agent"], options].concat());
        assert_eq!(finished.status.code(), Some(status), "{finished:?}");
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    };
    refuses(&[], 1, "another agent runs");
    refuses(&["--address", "127.0.0.1"], 1, "127.0.0.1 is no address");
    refuses(&["--port", "1024"], 2, "1..=1023");
    first.stop(Signal::TERM).success();
    let listen = || TcpListener::bind(("::", 500)).expect("a port that nobody has");
    let _taken = machines.end(Side::Near).run(listen).expect("the namespace");
    refuses(&["--port", "500"], 1, "at port 500; --port names another one");
    machines.write_map(Side::Near, "link a\n");
    refuses(&[], 1, ":1: ");
}

#[test]
fn an_agent_whose_output_nobody_takes_finds_the_other_machine_all_the_same() {
    let machines = attached();
    let _far = agent(&machines, Side::Far, &[]);
    let path = machines.stage.path("output");
    mkfifoat(CWD, &path, Mode::RWXU).expect("a directory for a FIFO");
    // A writer that opens the FIFO has a description of its own, and blocks.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let output = open(&path, flags, Mode::empty()).expect("a FIFO");
    while rustix::io::write(&output, &[b'x'; 4096]).is_ok() {}
    let mut command = machines.plain_command(Side::Near, "sh");
    command.args(["-c", "exec \"$@\" >\"$0\""]).arg(&path).arg(seekwire()).args(["vm", "agent"]);
    let near = machines.start(Side::Near, &mut command);
    let found = json!([machines.address(Side::Far)]);
    let finds =
        |it: bool| (0..3000).any(|_| (machines.status(Side::Near)["by_agent"] == found) == it);
    assert!(finds(true));
    // The same holds if the output cannot be written to.
    drop(output);
    machines.vm(Side::Far, &["detach", "pair", "--wait", "0"]);
    assert!(finds(false));
    machines.vm(Side::Far, &["attach"]).success();
    assert!(finds(true));
    near.stop(Signal::TERM).success();
}

#[test]
fn strangers_are_hung_up_on_and_keep_nobody_away() {
    let machines = attached();
    let _far = agent(&machines, Side::Far, &["--port", "500"]);
    let stranger = || {
        let to = SocketAddr::from(([127, 0, 0, 1], 500));
        machines.end(Side::Far).run(|| TcpStream::connect(to).expect("a connection"))
    };
    let stranger = || stranger().expect("the namespace");
    for said in [[0; 64], [0xff; 64]] {
        let mut stream = stranger();
        stream.write_all(&said).expect("room");
        let mut answer = Vec::new();
        // Or a reset.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, [] as [u8; 0]);
    }
    let _silent: Vec<TcpStream> = (0..64).map(|_| stranger()).collect();
    let mut near = agent(&machines, Side::Near, &[]);
    until(&mut near, FOUND);
}
