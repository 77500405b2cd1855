//! Two network namespaces that share a file play two machines with a link between them. Each has a
//! map file and a registry of its own, and programs in them talk over the link.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use seekwire_testbed::{Side, TestHost, Testbed};

use crate::harness::{
    Child, Finished, Mode, Stage, Stats, installed, python, seekwire, sha256, source,
};

/// A side of the pair of machines.
pub(crate) const MACHINES: [Side; 2] = [Side::Near, Side::Far];

pub(crate) struct Machines {
    pub(crate) stage: Stage,
    bed: Testbed,
    /// In memory: nothing is to be written to a disk. `None` where a process of theirs holds it.
    region: Option<tempfile::NamedTempFile>,
}

impl Machines {
    /// Two machines attached to a region of `region` bytes.
    pub(crate) fn new(region: u64) -> Self {
        let machines = Self::apart(region);
        for side in MACHINES {
            machines.vm(side, &["attach"]).success();
        }
        machines
    }

    /// The same, attached by neither.
    fn apart(region: u64) -> Self {
        Self::unknown(region).introduced()
    }

    /// Adds the address of the other machine to each map.
    fn introduced(self) -> Self {
        let machines = self;
        for (side, other) in [(Side::Near, Side::Far), (Side::Far, Side::Near)] {
            let map = machines.map(side) + &format!("{} pair\n", machines.address(other));
            machines.write_map(side, &map);
        }
        machines
    }

    /// The same, where no map says which addresses the machines have.
    pub(crate) fn unknown(region: u64) -> Self {
        let file = tempfile::Builder::new().prefix("seekwire-region-").tempfile_in("/dev/shm");
        let file = file.expect("a file in memory");
        file.as_file().set_len(region).expect("room for a region");
        let provider = format!("file {}", file.path().display());
        Self { region: Some(file), ..Self::linked_by(&|_| provider.clone()) }
    }

    /// Two containers, of which one holds the memory; returns the process that does.
    pub(crate) fn of_containers(size: &str) -> (Self, Child) {
        let socket = |stage: &Stage| format!("memory {}", stage.path("socket").display());
        let machines = Self::linked_by(&socket).introduced();
        let mut holder = machines.start_vm(Side::Near, &["hold", "pair", "--size", size]);
        assert_eq!(holder.line(), "pair: held and attached");
        machines.vm(Side::Far, &["attach"]).success();
        (machines, holder)
    }

    /// Two machines whose maps have `provider` for the link.
    fn linked_by(provider: &dyn Fn(&Stage) -> String) -> Self {
        let stage = Stage::new(Mode::Accelerated);
        let bed = Testbed::new().expect("network namespaces, which take CAP_SYS_ADMIN");
        let machines = Self { stage, bed, region: None };
        for (side, half) in [(Side::Near, "first"), (Side::Far, "second")] {
            for part in ["state", "stats"] {
                fs::create_dir(machines.path(side, part)).expect("a directory");
            }
            let map = format!(
                "link pair {} {half}\nstate {}\n",
                provider(&machines.stage),
                machines.path(side, "state").display()
            );
            machines.write_map(side, &map);
        }
        machines
    }

    pub(crate) fn end(&self, side: Side) -> &TestHost {
        self.bed.end(side)
    }

    pub(crate) fn region(&self) -> &Path {
        self.region.as_ref().expect("a region that is a file").path()
    }

    /// A file or directory of one machine.
    pub(crate) fn path(&self, side: Side, part: &str) -> PathBuf {
        self.stage.path(&format!("{part}.{}", name(side)))
    }

    pub(crate) fn map(&self, side: Side) -> String {
        fs::read_to_string(self.path(side, "links")).expect("a map")
    }

    pub(crate) fn write_map(&self, side: Side, map: &str) {
        fs::write(self.path(side, "links"), map).expect("room for a map");
    }

    pub(crate) fn address(&self, side: Side) -> String {
        self.end(side).address().to_string()
    }

    /// `program` with the library, on one machine.
    pub(crate) fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.stage.accelerated_command(program);
        self.adapt(side, &mut command);
        command
    }

    fn adapt(&self, side: Side, command: &mut Command) {
        command
            .env("SEEKWIRE_DIR", self.path(side, "registry"))
            .env("SEEKWIRE_STATS", self.path(side, "stats"))
            .env("SEEKWIRE_LINKS", self.path(side, "links"));
    }

    pub(crate) fn start(&self, side: Side, command: &mut Command) -> Child {
        self.end(side).run(|| self.stage.start(command)).expect("the namespace")
    }

    pub(crate) fn run(&self, side: Side, command: &mut Command) -> Finished {
        self.start(side, command).finish()
    }

    pub(crate) fn script(&self, side: Side, script: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(side, python());
        command.arg(source(script)).args(arguments);
        command
    }

    /// `seekwire vm ...` on one machine.
    pub(crate) fn vm(&self, side: Side, words: &[&str]) -> Finished {
        self.start_vm(side, words).finish()
    }

    /// The same, while others go on.
    pub(crate) fn start_vm(&self, side: Side, words: &[&str]) -> Child {
        self.start_seekwire(side, &[&["vm"], words].concat())
    }

    pub(crate) fn seekwire(&self, side: Side, words: &[&str]) -> Finished {
        self.start_seekwire(side, words).finish()
    }

    fn start_seekwire(&self, side: Side, words: &[&str]) -> Child {
        self.start(side, self.plain_command(side, seekwire()).args(words))
    }

    /// `program` without the library, on one machine.
    pub(crate) fn plain_command(
        &self,
        side: Side,
        program: impl AsRef<std::ffi::OsStr>,
    ) -> Command {
        let mut command = self.stage.plain_command(program);
        self.adapt(side, &mut command);
        command
    }

    /// The counters of the programs that have ended on one machine.
    pub(crate) fn stats(&self, side: Side) -> Stats {
        Stats::sum(&self.path(side, "stats"))
    }

    /// Two programs with a connection over the link.
    pub(crate) fn connected(&self) -> Ends {
        let mut ends = self.begun();
        for _ in 0..20 {
            ends.pass(300);
        }
        ends
    }

    /// Two programs with a connection that has not moved anything.
    fn begun(&self) -> Ends {
        let mut server =
            self.start(Side::Far, &mut self.script(Side::Far, "steps.py", &["listen", "0.0.0.0"]));
        let port = server.line();
        let address = self.address(Side::Far);
        let client = self.start(
            Side::Near,
            &mut self.script(Side::Near, "steps.py", &["connect", &address, &port]),
        );
        Ends { server, client, port: port.parse().expect("a port") }
    }

    /// The carriers of the connections of one machine in `seekwire status`: sending, receiving,
    /// link and reason.
    pub(crate) fn carriers(&self, side: Side) -> Vec<[String; 4]> {
        let registry = self.path(side, "registry");
        let registry = registry.to_str().expect("UTF-8");
        let rows = self.seekwire(side, &["status", "--json", "--dir", registry]).success();
        let rows: Vec<serde_json::Value> = serde_json::from_str(&rows).expect("JSON");
        let word = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or("").to_owned();
        rows.iter().map(|row| ["tx", "rx", "link", "reason"].map(|key| word(row, key))).collect()
    }

    /// The output of `seekwire vm status` about the link on one machine.
    pub(crate) fn status(&self, side: Side) -> serde_json::Value {
        let links = self.vm(side, &["status", "--json"]).success();
        let mut links: Vec<serde_json::Value> = serde_json::from_str(&links).expect("JSON");
        links.remove(0)
    }

    /// Connections that have an entry in this machine's half.
    fn entries(&self, side: Side) -> u64 {
        let link = self.status(side);
        link["entries"]["used"].as_u64().unwrap_or_else(|| panic!("{link}"))
    }
}

fn name(side: Side) -> &'static str {
    match side {
        Side::Near => "near",
        Side::Far => "far",
    }
}

pub(crate) struct Ends {
    server: Child,
    client: Child,
    port: u16,
}

impl Ends {
    /// `length` bytes from the client to the server, and as many back.
    pub(crate) fn pass(&mut self, length: usize) {
        let (send, recv) = (format!("send {length}"), format!("recv {length}"));
        self.server.tell(&recv);
        assert_eq!(self.client.ask(&send), "ok");
        assert_eq!(self.server.line(), "ok");
        self.client.tell(&recv);
        assert_eq!(self.server.ask(&send), "ok");
        assert_eq!(self.client.line(), "ok");
    }

    pub(crate) fn finish(self) {
        self.client.finish().success();
        self.server.finish().success();
    }
}

/// The carriers of a connection that uses the link.
pub(crate) const RING: [&str; 4] = ["ring", "ring", "pair", ""];

#[test]
fn programs_on_two_machines_talk_through_the_region() {
    let machines = Machines::new(64 << 20);
    let mut ends = machines.connected();
    for side in MACHINES {
        assert_eq!(machines.carriers(side), [RING.map(String::from)], "{side:?}");
        assert_eq!(machines.entries(side), 1);
    }
    ends.pass(1_000_000);
    ends.finish();
    for side in MACHINES {
        let stats = machines.stats(side);
        assert!(stats.bytes.tx_ring > 1_000_000 && stats.bytes.tx_tcp < 10_000, "{stats:?}");
        assert_eq!(machines.entries(side), 0, "{side:?}");
    }
}

#[test]
fn random_bytes_by_random_calls_arrive_over_a_link() {
    const CONNECTIONS: &str = "16";
    const BYTES: &str = "1000000";
    // On a busy machine most of a connection may be over before it comes to the region.
    const ENOUGH: u64 = 1_000_000;
    const ROUNDS: usize = 6;
    const MOST_ROUNDS: usize = 100;
    let mut machines = Machines::new(64 << 20);
    let program = machines.stage.compile("stress.c", "stress", &["-pthread"]);
    let (mut checked, mut ring) = (0, 0);
    let sizes = [("32768", "64"), ("4096", "8")].iter().cycle().take(MOST_ROUNDS);
    for (round, (size, count)) in sizes.enumerate() {
        if round >= ROUNDS && ring > ENOUGH {
            break;
        }
        machines.stage.set("SEEKWIRE_SEGMENT_SIZE", size);
        machines.stage.set("SEEKWIRE_SEGMENTS", count);
        let seed = round.to_string();
        let mut listen = machines.command(Side::Far, &program);
        listen.args(["listen", "0.0.0.0", CONNECTIONS, &seed, BYTES]);
        let mut server = machines.start(Side::Far, &mut listen);
        let port = server.line();
        let mut connect = machines.command(Side::Near, &program);
        let address = machines.address(Side::Far);
        connect.args(["connect", &address, &port, CONNECTIONS, &seed, BYTES]);
        let answers = [machines.run(Side::Near, &mut connect).success(), server.finish().success()];
        checked +=
            answers.iter().map(|answer| answer.trim().parse::<u64>().expect(answer)).sum::<u64>();
        ring = MACHINES.iter().map(|side| machines.stats(*side).ring()).sum();
    }
    println!("{checked} bytes checked, {ring} went through the region");
    assert!(ring > ENOUGH, "{ring} bytes went through the region");
}

pub(crate) fn redis(machines: &Machines) -> (Child, [String; 4]) {
    let mut command = machines.command(Side::Far, installed("redis-server"));
    command.args(["--bind", "0.0.0.0", "--port", "6379", "--save", "", "--appendonly", "no"]);
    command.args(["--protected-mode", "no", "--dir"]).arg(machines.stage.path(""));
    let mut server = machines.start(Side::Far, &mut command);
    server.wait_until_listening(6379);
    let to = ["-h".into(), machines.address(Side::Far), "-p".into(), "6379".into()];
    (server, to)
}

#[test]
fn redis_serves_another_machine_through_the_region() {
    let machines = Machines::new(256 << 20);
    let (server, to) = redis(&machines);
    let mut benchmark = machines.command(Side::Near, installed("redis-benchmark"));
    benchmark.args(&to).args(["-c", "50", "-n", "20000", "-d", "64", "-t", "set,get", "--csv"]);
    let report = machines.run(Side::Near, &mut benchmark).success();
    assert!(report.contains("\"SET\"") && report.contains("\"GET\""), "{report}");

    let file = machines.stage.file("value", 20_000_000);
    let back = machines.stage.path("back");
    let cli = format!("{} {}", installed("redis-cli").display(), to.join(" "));
    let through = format!(
        "{cli} -x SET value <{} && {cli} --raw GET value | head -c 20000000 >{}",
        file.display(),
        back.display()
    );
    machines.run(Side::Near, machines.command(Side::Near, "sh").args(["-c", &through])).success();
    assert_eq!(sha256(&back), sha256(&file));

    let mut stop = machines.command(Side::Near, installed("redis-cli"));
    machines.run(Side::Near, stop.args(&to).args(["SHUTDOWN", "NOSAVE"])).success();
    server.finish().success();
    let stats = machines.stats(Side::Far);
    // The value came in one call, with which the connection began.
    assert!(stats.bytes.rx_ring > 1_000_000 && stats.bytes.tx_ring > 15_000_000, "{stats:?}");
}

#[test]
fn a_thousand_connections_share_one_region() {
    const CONNECTIONS: usize = 1000;
    let machines = Machines::new(1 << 30);
    let raise = |program: &str| format!("ulimit -S -n 8000 2>/dev/null; exec {program}");
    let python = python().display().to_string();
    let script = |name: &str| format!("{python} {}", source(name).display());
    let serve = raise(&format!("{} asyncio 0.0.0.0", script("echo_server.py")));
    let mut server =
        machines.start(Side::Far, machines.command(Side::Far, "sh").args(["-c", &serve]));
    let port = server.line();
    let address = machines.address(Side::Far);
    let call = raise(&format!("{} {address} {port} {CONNECTIONS}", script("many.py")));
    let mut client =
        machines.start(Side::Near, machines.command(Side::Near, "sh").args(["-c", &call]));
    assert_eq!(client.line(), (CONNECTIONS * 20).to_string());
    assert_eq!(machines.entries(Side::Near), CONNECTIONS as u64);
    for side in MACHINES {
        let mut reasons = std::collections::BTreeMap::new();
        for [tx, rx, _, reason] in machines.carriers(side) {
            *reasons.entry((tx, rx, reason)).or_insert(0) += 1;
        }
        println!("{side:?}: {reasons:?}");
    }
    client.finish().success();
    server.end_input();
    server.finish().success();
    let attached: u64 =
        MACHINES.iter().map(|side| machines.stats(*side).connections.attached).sum();
    assert_eq!(attached, 2 * CONNECTIONS as u64, "not every connection was accelerated");
    assert_eq!(MACHINES.map(|side| machines.entries(side)), [0, 0]);
}

#[test]
fn a_full_region_leaves_further_connections_on_tcp_and_says_so() {
    let machines = Machines::new(1 << 20);
    let mut pairs: Vec<Ends> = (0..12).map(|_| machines.connected()).collect();
    pairs.iter_mut().for_each(|ends| ends.pass(100_000));
    // Both ends say so, whichever of them found no room.
    let full = ["tcp", "tcp", "pair", "link full"].map(String::from);
    for side in MACHINES {
        let carriers = machines.carriers(side);
        let others: Vec<_> = carriers.iter().filter(|found| **found != RING).collect();
        println!("{side:?}: {} of {} by TCP", others.len(), carriers.len());
        assert!((1..carriers.len()).contains(&others.len()), "{side:?}: {carriers:?}");
        assert!(others.iter().all(|found| **found == full), "{side:?}: {carriers:?}");
    }
    pairs.into_iter().for_each(Ends::finish);
    // Room is there again.
    let ends = machines.connected();
    assert_eq!(machines.carriers(Side::Near), [RING.map(String::from)]);
    ends.finish();
}

#[test]
fn a_killed_program_ends_its_connection_and_frees_its_memory() {
    let machines = Machines::new(16 << 20);
    for killed in MACHINES {
        let ends = machines.connected();
        let (dying, mut other) = match killed {
            Side::Near => (ends.client, ends.server),
            Side::Far => (ends.server, ends.client),
        };
        assert_eq!(other.ask("send 1000"), "ok");
        let sent = dying;
        sent.signal(Signal::KILL);
        drop(sent);
        // It had not received everything, so TCP alone would report a reset.
        assert_eq!(other.ask("end"), "0 ECONNRESET", "{killed:?}");
        other.finish().success();
        assert_eq!(MACHINES.map(|side| machines.entries(side)), [0, 0], "{killed:?}");
    }
}

#[test]
fn sockets_that_are_closed_while_another_thread_brings_them_to_a_link_harm_no_others() {
    // Little room: what one gives back, another one has at once.
    let machines = Machines::new(8 << 20);
    let mut server = machines
        .start(Side::Far, &mut machines.script(Side::Far, "closes.py", &["serve", "0.0.0.0"]));
    let (address, port) = (machines.address(Side::Far), server.line());
    let near = |arguments: &[&str]| machines.script(Side::Near, "closes.py", arguments);
    let talker = machines.start(Side::Near, &mut near(&["talk", &address, &port]));
    let mut closer = machines.start(Side::Near, &mut near(&["close", &address, &port, "300"]));
    assert_eq!(closer.line(), "closed");
    talker.finish().success();
    let of_talker = machines.stats(Side::Near).connections.attached;
    // While the process lives that has closed them.
    let link = machines.status(Side::Near);
    assert_eq!(link["bytes"]["used"], 0, "{link}");
    closer.finish().success();
    let of_closer = machines.stats(Side::Near).connections.attached - of_talker;
    assert!(of_talker > 0 && of_closer > 0, "{of_talker} and {of_closer} came to the link");
    server.finish().success();
}

#[test]
fn bytes_of_a_program_that_has_gone_are_still_received() {
    let machines = Machines::new(16 << 20);
    let mut ends = machines.connected();
    assert_eq!(ends.server.ask("send 30000"), "ok");
    ends.server.signal(Signal::KILL);
    drop(ends.server);
    // Its place is not given to others while the peer may still read there.
    let others: Vec<Ends> = (0..3).map(|_| machines.connected()).collect();
    assert_eq!(ends.client.ask("end"), "30000 eof");
    ends.client.finish().success();
    others.into_iter().for_each(Ends::finish);
}

#[test]
fn without_the_other_machine_or_a_link_programs_talk_by_tcp() {
    let machines = Machines::apart(16 << 20);
    let by_tcp = |reason: &str| vec![["tcp", "tcp", "", reason].map(String::from)];
    let mut ends = machines.connected();
    assert_eq!(machines.carriers(Side::Near), by_tcp("link not attached"));
    machines.vm(Side::Near, &["attach"]).success();
    ends.pass(1000);
    ends.finish();
    let mut ends = machines.connected();
    assert_eq!(machines.carriers(Side::Far), by_tcp("link not attached"));
    ends.pass(100_000);
    ends.finish();
}

#[test]
fn detached_machines_go_on_by_tcp_with_nothing_lost() {
    let machines = Machines::new(64 << 20);
    let mut ends = machines.connected();
    // Unread when the link is detached.
    assert_eq!(ends.client.ask("send 5000"), "ok");
    let detach = machines.start_vm(Side::Near, &["detach", "pair", "--wait", "60"]);
    for _ in 0..50 {
        ends.exchange(2000);
    }
    assert_eq!(ends.server.ask("recv 5000"), "ok");
    // The programs still have the region mapped, and it says so.
    let detached = detach.finish();
    assert_eq!(detached.status.code(), Some(3), "{detached:?}");
    assert!(detached.stderr.contains("mapped by"), "{detached:?}");
    ends.pass(100_000);
    for side in MACHINES {
        let carriers = machines.carriers(side);
        assert_eq!(carriers[0][..2], ["tcp", "tcp"], "{carriers:?}");
    }
    let other = machines.connected();
    assert_eq!(machines.carriers(Side::Near)[0][..2], ["tcp", "tcp"]);
    other.finish();
    // Attached again, new connections come to the link beside the one that has left it.
    machines.vm(Side::Near, &["attach"]).success();
    let mut other = machines.connected();
    ends.pass(100_000);
    other.pass(100_000);
    for side in MACHINES {
        let carriers = machines.carriers(side);
        let by_ring = carriers.iter().filter(|carrier| **carrier == RING).count();
        assert_eq!((carriers.len(), by_ring), (2, 1), "{side:?}: {carriers:?}");
    }
    ends.finish();
    other.finish();
}

#[test]
fn connections_of_a_machine_whose_half_a_copy_of_it_attaches_go_on_by_tcp() {
    let machines = Machines::new(16 << 20);
    let mut ends = machines.connected();
    assert_eq!(machines.carriers(Side::Near), [RING.map(String::from)]);
    // The copy has no locks of the original.
    let (links, state) = (machines.stage.path("links.copy"), machines.path(Side::Near, "state"));
    let copied = machines.stage.path("state.copy").display().to_string();
    let map = machines.map(Side::Near).replace(&state.display().to_string(), &copied);
    fs::write(&links, map).expect("room for a map");
    let mut attach = machines.plain_command(Side::Near, seekwire());
    attach.env("SEEKWIRE_LINKS", links).args(["vm", "attach"]);
    machines.run(Side::Near, &mut attach).success();
    // The other machine sees no sign of life meanwhile, and so looks for the cause.
    for _ in 0..50 {
        assert_eq!(ends.server.ask("send 2000"), "ok");
    }
    assert_eq!(ends.client.ask("recv 100000"), "ok");
    for _ in 0..20 {
        ends.pass(3000);
    }
    for side in MACHINES {
        let carriers = machines.carriers(side);
        assert_eq!(carriers[0][..2], ["tcp", "tcp"], "{side:?}: {carriers:?}");
    }
    ends.finish();
}

#[test]
fn processes_whose_connections_are_closed_leave_a_detached_link() {
    let machines = Machines::new(16 << 20);
    let mut ends = machines.connected();
    machines.vm(Side::Near, &["detach", "pair"]);
    ends.pass(1000);
    let users = |side| {
        let links = machines.vm(side, &["status", "--json"]).success();
        let links: serde_json::Value = serde_json::from_str(&links).expect("JSON");
        links[0]["processes"].as_array().unwrap_or_else(|| panic!("{links}")).len()
    };
    // Each machine sees the processes of both, which are of one host.
    assert_eq!(MACHINES.map(users), [2, 2]);
    assert_eq!(ends.client.ask("close"), "ok");
    assert_eq!(ends.server.ask("close"), "ok");
    // They go on without it.
    assert_eq!(MACHINES.map(users), [0, 0]);
    machines.vm(Side::Near, &["detach", "pair"]).success();
    ends.finish();
}

#[test]
fn an_end_that_is_refused_leaves_its_entry_and_its_place() {
    let machines = Machines::new(16 << 20);
    let mut ends = machines.begun();
    // A socket that others have stays with the kernel.
    assert_eq!(ends.server.ask("fork"), "ok");
    for _ in 0..200 {
        ends.pass(300);
    }
    let carriers = machines.carriers(Side::Near);
    assert_eq!(carriers, [["tcp", "tcp", "pair", "peer refused"].map(String::from)]);
    assert_eq!(machines.entries(Side::Near), 0);
    ends.finish();
}

#[test]
fn an_end_that_was_granted_a_ring_and_cannot_join_says_why_at_both_ends() {
    const CALLS: usize = 100;
    let machines = Machines::new(16 << 20);
    let mut ends = machines.begun();
    // One end enters the link, and the other one offers its memory and waits for an answer.
    for _ in 0..CALLS {
        assert_eq!(ends.server.ask("send 300"), "ok");
    }
    for _ in 0..CALLS {
        assert_eq!(ends.client.ask("recv 300"), "ok");
    }
    assert_eq!(MACHINES.map(|side| machines.entries(side)), [1, 1]);
    assert_eq!(ends.client.ask("starve"), "ok");
    for starved in [true, false] {
        for _ in 0..CALLS {
            ends.pass(300);
        }
        for (side, reason) in [(Side::Near, "file descriptor limit"), (Side::Far, "peer refused")] {
            let by_tcp = [["tcp", "tcp", "pair", reason].map(String::from)];
            // The other end learns of it through the link, which takes a moment.
            let mut carriers = machines.carriers(side);
            for _ in 0..CALLS {
                if carriers == by_tcp {
                    break;
                }
                ends.pass(300);
                carriers = machines.carriers(side);
            }
            assert_eq!(carriers, by_tcp, "{side:?}, starved: {starved}");
        }
        if starved {
            assert_eq!(ends.client.ask("feed"), "ok");
        }
    }
    ends.finish();
    assert_eq!(MACHINES.map(|side| machines.entries(side)), [0, 0]);
}

#[test]
fn lines_take_no_port_that_a_connection_could_have() {
    const PORTS: usize = 4;
    let machines = Machines::new(64 << 20);
    for (side, name, value) in [
        (Side::Near, "ip_local_port_range", "40000 40003"),
        // Lines use at most half of the ports of the accepting machine.
        (Side::Far, "ip_unprivileged_port_start", "1000"),
        (Side::Far, "ip_local_port_range", "1008 1039"),
    ] {
        let set = || fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
        machines.end(side).run(set).expect("the namespace").expect("a setting of the namespace");
    }
    let ends: Vec<Ends> = (0..PORTS).map(|_| machines.connected()).collect();
    let ring = vec![RING.map(String::from); PORTS];
    assert_eq!(machines.carriers(Side::Near), ring);
    ends.into_iter().for_each(Ends::finish);
}

#[test]
fn a_line_that_breaks_takes_the_connection_back_to_tcp_and_leaves_nobody_asleep() {
    let machines = Machines::new(16 << 20);
    for broken in MACHINES {
        let mut ends = machines.connected();
        // Asleep until something comes.
        ends.client.tell("recv 100");
        let end = if broken == Side::Near { &ends.client } else { &ends.server };
        for line in lines_of(end, ends.port) {
            rustix::net::shutdown(&line, rustix::net::Shutdown::Both).expect("a connected socket");
        }
        assert_eq!(ends.server.ask("send 100"), "ok");
        assert_eq!(ends.client.line(), "ok");
        // On a busy machine, a sleeping process notices the end of the line later.
        let mut carriers = Vec::new();
        for _ in 0..50 {
            (0..20).for_each(|_| ends.pass(10_000));
            carriers = machines.carriers(broken);
            if carriers[0][..2] == ["tcp", "tcp"] {
                break;
            }
        }
        assert_eq!(carriers[0][..2], ["tcp", "tcp"], "{carriers:?}");
        ends.finish();
    }
}

/// The TCP connections of a program that are not to or from this port.
fn lines_of(child: &Child, port: u16) -> Vec<std::os::fd::OwnedFd> {
    use rustix::net::{SocketAddrAny, getpeername, getsockname};
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid = Pid::from_raw(child.pid() as i32).expect("a process");
    let handle = pidfd_open(pid, PidfdFlags::empty()).expect("a handle of the child");
    let numbers = fs::read_dir(format!("/proc/{}/fd", child.pid())).expect("the child lives");
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_line = |socket: &std::os::fd::OwnedFd| {
        let port_of =
            |name: SocketAddrAny| std::net::SocketAddr::try_from(name).ok().map(|name| name.port());
        let names = [getsockname(socket).ok(), getpeername(socket).ok().flatten()];
        let ports = names.map(|name| name.and_then(port_of));
        ports.iter().all(|known| known.is_some_and(|known| known != port))
    };
    let lines: Vec<_> = numbers
        .filter_map(|number| pidfd_getfd(&handle, number, PidfdGetfdFlags::empty()).ok())
        .filter(is_line)
        .collect();
    assert_eq!(lines.len(), 1, "one line for one connection");
    lines
}

impl Ends {
    /// `length` bytes each way, behind what the server has left unread.
    fn exchange(&mut self, length: usize) {
        let (send, recv) = (format!("send {length}"), format!("recv {length}"));
        assert_eq!(self.client.ask(&send), "ok");
        assert_eq!(self.server.ask(&recv), "ok");
        assert_eq!(self.server.ask(&send), "ok");
        assert_eq!(self.client.ask(&recv), "ok");
    }
}
