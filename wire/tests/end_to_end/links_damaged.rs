//! Links whose region somebody damages while programs talk: a file that is cut short, zeros, words
//! that mean nothing. Connections end with an error, within a while, and programs go on. Memory
//! that is held cannot be cut short.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use seekwire_testbed::Side;

use crate::harness::Child;
use crate::links::{MACHINES, Machines, RING};

const REGION: u64 = 64 << 20;
const CONNECTIONS: usize = 6;
const PAGE: u64 = 4096;

/// Two programs that pass messages over so many connections, all of which are on the link.
struct Talk {
    server: Child,
    client: Child,
}

impl Talk {
    fn begin(machines: &Machines) -> Self {
        let count = CONNECTIONS.to_string();
        let address = machines.address(Side::Far);
        let serve = ["serve", "0.0.0.0", &count];
        let mut server =
            machines.start(Side::Far, &mut machines.script(Side::Far, "rounds.py", &serve));
        let port = server.line();
        let call = ["call", &address, &port, &count];
        let mut client =
            machines.start(Side::Near, &mut machines.script(Side::Near, "rounds.py", &call));
        assert_eq!(client.line(), "ready");
        for side in MACHINES {
            let carriers = machines.carriers(side);
            assert_eq!(carriers, vec![RING.map(String::from); CONNECTIONS], "{side:?}");
        }
        Self { server, client }
    }

    /// Ends them, and returns how the connections have ended at either end.
    fn end(self) -> [String; 2] {
        self.end_by("enough")
    }

    fn end_by(mut self, word: &str) -> [String; 2] {
        let endings = [self.client.ask(word), self.server.line()];
        self.client.finish().success();
        self.server.finish().success();
        endings
    }

    /// Each connection ends by itself, with an error at both ends.
    fn breaks(self) {
        let reset = format!("{CONNECTIONS} ECONNRESET");
        assert_eq!(self.end_by("broken"), [reset.clone(), reset]);
    }

    /// Each connection ends by itself, or with the programs. No message is cut off behind a clean
    /// end.
    fn stands_nowhere(self) -> [String; 2] {
        let endings = self.end();
        assert!(endings.iter().all(|ending| !ending.contains("eof")), "{endings:?}");
        endings
    }
}

fn damaged(machines: &Machines) -> File {
    File::options().read(true).write(true).open(machines.region()).expect("the region")
}

#[test]
fn a_region_that_is_cut_short_breaks_its_connections_and_ends_nobody() {
    let machines = Machines::new(REGION);
    let mut agents = MACHINES.map(|side| machines.start_vm(side, &["agent"]));
    for agent in &mut agents {
        while !agent.line().contains("attached") {}
    }
    let talk = Talk::begin(&machines);
    damaged(&machines).set_len(0).expect("a shorter file");
    talk.breaks();
    for mut agent in agents {
        while !agent.line().contains("cut its region short") {}
        agent.stop(Signal::TERM).success();
    }
    // The link is unusable now, and the machines report it.
    let ends = machines.connected();
    for side in MACHINES {
        let carriers = machines.carriers(side);
        assert_eq!(carriers[0][..2], ["tcp", "tcp"], "{side:?}: {carriers:?}");
        let status = machines.vm(side, &["status"]);
        assert!(status.stdout.contains("the memory has 0 bytes"), "{status:?}");
    }
    ends.finish();
}

#[test]
fn memory_that_is_held_cannot_be_cut_short() {
    let (machines, holder) = Machines::of_containers("32M");
    let talk = Talk::begin(&machines);
    // A user of the link could try it through a descriptor of any process.
    let descriptors = fs::read_dir(format!("/proc/{}/fd", holder.pid())).expect("the holder lives");
    let mut tried = 0;
    for path in descriptors.map(|entry| entry.expect("an entry").path()) {
        let name = fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().starts_with("/memfd:seekwire-link") {
            let file = File::options().write(true).open(&path).expect("a descriptor");
            assert!(file.set_len(0).is_err() && file.set_len(64 << 20).is_err());
            tried += 1;
        }
    }
    assert_eq!(tried, 1);
    for (side, pid) in [(Side::Near, talk.client.pid()), (Side::Far, talk.server.pid())] {
        let status = machines.status(side);
        assert_eq!(
            (&status["provider"], &status["length"]),
            (&"memory".into(), &(32 << 20).into())
        );
        let mapped = status["processes"].as_array().expect("a list").iter();
        assert!(
            mapped.filter_map(|process| process["pid"].as_u64()).any(|it| it == u64::from(pid))
        );
        let doctor = machines.seekwire(side, &["doctor", "--json"]).stdout;
        assert!(doctor.contains("attached at both ends"), "{doctor}");
    }
    // When the holder ends, those that have it go on, and others stay on TCP.
    holder.stop(Signal::TERM);
    let mut ends = machines.connected();
    let tcp = ["tcp", "tcp", "", "link not attached"].map(String::from);
    assert!(machines.carriers(Side::Near).contains(&tcp), "{:?}", machines.carriers(Side::Near));
    ends.pass(100_000);
    ends.finish();
    let all = format!("{CONNECTIONS} ok");
    assert_eq!(talk.end(), [all.clone(), all]);
    // A new holder has new memory, to which both attach.
    let mut holder = machines.start_vm(Side::Far, &["hold", "pair"]);
    assert_eq!(holder.line(), "pair: held and attached");
    machines.vm(Side::Near, &["attach"]).success();
    Talk::begin(&machines).end();
    holder.stop(Signal::TERM);
}

#[test]
fn a_program_that_handles_its_own_faults_gets_these_alone() {
    let machines = Machines::new(REGION);
    let mut talk = Talk::begin(&machines);
    // After the library has installed its own.
    assert_eq!(talk.client.ask("handler"), "ok");
    assert_eq!(talk.client.ask("fault"), "bus");
    assert_eq!(talk.client.line(), "ok");
    damaged(&machines).set_len(0).expect("a shorter file");
    assert_eq!(talk.client.ask("handler"), "ok");
    assert_eq!(talk.client.ask("fault"), "bus");
    assert_eq!(talk.client.line(), "ok");
    talk.breaks();
}

#[test]
fn connections_in_a_region_full_of_zeros_go_on_or_break_and_never_stand_still() {
    let machines = Machines::new(REGION);
    let talk = Talk::begin(&machines);
    let region = damaged(&machines);
    for at in (0..REGION).step_by(PAGE as usize) {
        region.write_all_at(&[0; PAGE as usize], at).expect("a file in memory");
    }
    println!("{:?}", talk.stands_nowhere());
}

#[test]
fn connections_whose_words_mean_nothing_go_on_or_break_and_never_stand_still() {
    for value in [0, 1, u64::MAX, 0x0101_0101_0101_0101] {
        let machines = Machines::new(REGION);
        let talk = Talk::begin(&machines);
        let region = damaged(&machines);
        let mut ends = 0;
        for at in (0..REGION).step_by(PAGE as usize) {
            let mut magic = [0; 8];
            region.read_exact_at(&mut magic, at).expect("a file in memory");
            if magic == *b"SEEKWIRE" {
                ends += 1;
                // All words that the two ends share, besides the payload.
                for word in (0x40..0x318).step_by(8) {
                    region.write_all_at(&u64::to_ne_bytes(value), at + word).expect("a word");
                }
            }
        }
        assert_eq!(ends, 2 * CONNECTIONS);
        println!("{value:#x}: {:?}", talk.stands_nowhere());
    }
}
