//! `seekwire vm`, and what `seekwire doctor` says of links. The region is a file here, and a
//! machine is whoever has a map and a state directory of its own.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::harness::{Finished, Mode, Stage, perhaps_installed, python, seekwire};

/// Enough for a connection, and no power of two.
const LENGTH: u64 = 6 << 20;
// TEST-NET-2 (RFC 5737): of no machine.
const FIRST: &str = "198.51.100.1";
const SECOND: &str = "198.51.100.2";

/// A map with the variable that names it.
struct Machine<'s> {
    stage: &'s Stage,
    map: PathBuf,
}

impl<'s> Machine<'s> {
    fn new(stage: &'s Stage, name: &str, map: &str) -> Self {
        let machine = Self { stage, map: stage.path(&format!("{name}.links")) };
        machine.write(map);
        machine
    }

    /// A machine of two with a region between them.
    fn with_region(stage: &'s Stage, side: &str, peer: &str) -> Self {
        let (region, state) = (stage.path("region"), stage.path(&format!("{side}.state")));
        let map = format!(
            "link db-web file {} {side}\nstate {}\n{peer} db-web\n",
            region.display(),
            state.display()
        );
        Self::new(stage, side, &map)
    }

    fn write(&self, map: &str) {
        fs::write(&self.map, map).expect("a map");
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.map).expect("a map")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.stage.plain_command(seekwire());
        command.env("SEEKWIRE_LINKS", &self.map).args(words);
        command
    }

    /// `seekwire vm` with some words.
    fn vm(&self, words: &[&str]) -> Finished {
        self.stage.run(&mut self.command(&[&["vm"], words].concat()))
    }

    /// The line of `seekwire vm status` for the only link.
    fn status(&self) -> Value {
        let text = self.vm(&["status", "--json"]).success();
        let mut lines: Vec<Value> = serde_json::from_str(&text).expect("an array");
        assert_eq!(lines.len(), 1, "{text}");
        lines.remove(0)
    }

    /// The findings of `seekwire doctor` about the map and its links.
    fn findings(&self) -> Vec<Value> {
        let mut command = self.command(&["doctor", "--json"]);
        command.arg("--dir").arg(self.stage.path("registry"));
        let text = self.stage.run(&mut command).success();
        let all: Vec<Value> = serde_json::from_str(&text).expect("an array");
        all.into_iter()
            .filter(|finding| finding["check"] == "links" || finding["check"] == "link")
            .collect()
    }

    /// The finding of `seekwire doctor` about the only link: verdict, finding and advice.
    fn finding(&self) -> [String; 3] {
        let last = self.findings().pop().expect("a line");
        ["verdict", "found", "advice"].map(|key| last[key].as_str().expect("text").to_owned())
    }
}

fn make_region(stage: &Stage) -> PathBuf {
    let path = stage.path("region");
    File::create(&path).expect("a file").set_len(LENGTH).expect("room for a file");
    path
}

#[track_caller]
fn refused(finished: &Finished, status: i32, words: &[&str]) {
    assert_eq!(finished.status.code(), Some(status), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    for word in words {
        assert!(finished.stderr.contains(word), "{word} is not in {}", finished.stderr);
    }
}

#[test]
fn a_map_is_shown_or_refused_with_the_line_and_what_is_expected() {
    let stage = Stage::new(Mode::Plain);
    let good = "link db-web ivshmem 0000:00:10.0 first # ours\n10.0.0.2 db-web\nfd00::2 db-web\n";
    let machine = Machine::new(&stage, "one", good);
    let shown = machine.vm(&["map"]).success();
    let line = shown.lines().nth(1).expect("a line for the link");
    for word in ["db-web", "ivshmem 0000:00:10.0", "first", "10.0.0.2, fd00::2"] {
        assert!(line.contains(word), "{word}: {shown}");
    }
    assert_eq!(machine.vm(&["map", "--check"]).success(), "");

    for (wrong, words) in [
        ("link db-web ivshmem 0000:00:10.0 left\n", &[".links:1: ", "first", "second"][..]),
        ("# ours\n10.0.0.2 db-web\n", &[".links:2: ", "db-web"]),
        ("link a file relative first\n", &[".links:1: ", "absolute"]),
        ("link a vmci x first\n", &[".links:1: ", "file", "ivshmem"]),
    ] {
        machine.write(wrong);
        for words_of_command in [&["map"][..], &["map", "--check"], &["status"], &["attach"]] {
            refused(&machine.vm(words_of_command), 1, words);
        }
    }

    fs::remove_file(&machine.map).expect("a map");
    assert!(machine.vm(&["map"]).success().starts_with("No links: "));
    assert_eq!(machine.vm(&["map", "--check"]).success(), "");
    assert!(machine.vm(&["status"]).success().starts_with("No links: "));
    assert_eq!(machine.vm(&["status", "--json"]).success(), "[]\n");
    assert!(machine.vm(&["attach"]).success().contains("nothing to attach"));
}

#[test]
fn addresses_come_and_go_and_the_rest_of_the_map_stays() {
    let stage = Stage::new(Mode::Plain);
    let map = "# ours\nlink  a file /a first\n10.0.0.2\ta # the database\n\n\
               link  b file /b second\n10.0.0.3 b\n# end";
    let machine = Machine::new(&stage, "one", map);
    fs::set_permissions(&machine.map, fs::Permissions::from_mode(0o640)).expect("a map");
    let before = fs::metadata(&machine.map).expect("a map");

    machine.vm(&["map", "add", "fd00::2", "a"]).success();
    assert_eq!(machine.text(), map.replace("# the database\n", "# the database\nfd00::2  a\n"));
    let after = fs::metadata(&machine.map).expect("a map");
    assert_eq!(after.mode(), before.mode());
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert_ne!(after.ino(), before.ino(), "the file was written in its place");

    // Once more, and as a socket of IPv6 would say it.
    machine.vm(&["map", "add", "fd00::2", "a"]).success();
    machine.vm(&["map", "add", "::ffff:10.0.0.2", "a"]).success();
    machine.vm(&["map", "remove", "FD00:0::2"]).success();
    assert_eq!(machine.text(), map);
    machine.vm(&["map", "remove", "10.0.0.2"]).success();
    machine.vm(&["map", "remove", "10.0.0.3"]).success();
    let nothing = "# ours\nlink  a file /a first\n\nlink  b file /b second\n# end";
    assert_eq!(machine.text(), nothing);
    machine.vm(&["map", "add", "10.0.0.4", "b"]).success();
    assert_eq!(machine.text(), format!("{nothing}\n10.0.0.4  b\n"));
}

#[test]
fn what_no_map_could_have_is_not_written() {
    let stage = Stage::new(Mode::Plain);
    let map = "link a file /a first\nlink b file /b second\n10.0.0.3 b\n";
    let machine = Machine::new(&stage, "one", map);
    let leaves_it = |words: &[&str], status: i32, said: &[&str]| {
        refused(&machine.vm(&[&["map"], words].concat()), status, said);
        assert_eq!(machine.text(), map);
    };
    leaves_it(&["add", "10.0.0.2", "c"], 1, &["no link \"c\"", "a, b"]);
    leaves_it(&["add", "10.0.0.3", "a"], 1, &["the link b", "vm map remove 10.0.0.3"]);
    for address in ["127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "ff02::1", "::ffff:127.0.0.1"] {
        leaves_it(&["add", address, "a"], 1, &["cannot be added"]);
    }
    for address in ["db", "10.0.0.0/8", "10.0.0", ""] {
        leaves_it(&["add", address, "a"], 2, &["ADDRESS"]);
        leaves_it(&["remove", address], 2, &["ADDRESS"]);
    }
    leaves_it(&["remove", "10.0.0.9"], 1, &["does not have 10.0.0.9"]);
    leaves_it(&["add", "10.0.0.9"], 2, &["LINK"]);

    fs::remove_file(&machine.map).expect("a map");
    let missing = machine.vm(&["map", "add", "10.0.0.2", "a"]);
    refused(&missing, 1, &["does not exist", "vm plan"]);
    refused(&machine.vm(&["map", "remove", "10.0.0.2"]), 1, &["10.0.0.2"]);
    assert!(!machine.map.exists());
}

#[test]
fn edits_at_the_same_time_lose_none_and_leave_nothing_behind() {
    let stage = Stage::new(Mode::Plain);
    let directory = stage.path("etc");
    fs::create_dir(&directory).expect("a directory");
    let file = directory.join("links");
    fs::write(&file, "link a file /a first\n").expect("a map");
    // The target of the symbolic link is replaced, not the link itself.
    let mut machine = Machine::new(&stage, "one", "");
    machine.map = stage.path("symbolic");
    symlink(&file, &machine.map).expect("a symbolic link");
    // Every user who may read the map could lock it.
    let locked = File::open(&file).expect("a map");
    flock(&locked, FlockOperation::LockExclusive).expect("a lock");
    let editors: Vec<_> = (1..=12)
        .map(|last| {
            let address = format!("10.0.0.{last}");
            stage.start(&mut machine.command(&["vm", "map", "add", &address, "a"]))
        })
        .collect();
    for editor in editors {
        editor.finish().success();
    }
    let text = fs::read_to_string(&file).expect("a map");
    assert_eq!(text.lines().count(), 13, "{text}");
    machine.vm(&["map", "--check"]).success();
    assert!(machine.map.symlink_metadata().expect("a link").is_symlink());
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 1);
}

#[test]
fn two_sides_attach_see_each_other_and_detach() {
    let stage = Stage::new(Mode::Plain);
    make_region(&stage);
    let first = Machine::with_region(&stage, "first", SECOND);
    let second = Machine::with_region(&stage, "second", FIRST);
    let status = first.status();
    assert_eq!((&status["state"], &status["length"]), (&"not attached".into(), &LENGTH.into()));
    assert!(status["entries"].is_null() && status["peer"].is_null(), "{status}");
    refused(&first.vm(&["detach", "db-web"]), 1, &["db-web", "vm attach"]);

    assert_eq!(first.vm(&["attach"]).success(), "db-web: attached\n");
    let status = first.status();
    assert_eq!((&status["state"], &status["peer"]), (&"attached".into(), &"not attached".into()));
    assert_eq!(status["addresses"], serde_json::json!([SECOND]));
    assert_eq!((&status["provider"], &status["side"]), (&"file".into(), &"first".into()));

    assert_eq!(second.vm(&["attach", "db-web"]).success(), "db-web: attached\n");
    for machine in [&first, &second] {
        let status = machine.status();
        assert_eq!((&status["state"], &status["peer"]), (&"attached".into(), &"attached".into()));
        assert_eq!((&status["entries"]["used"], &status["bytes"]["used"]), (&0.into(), &0.into()));
        assert!(status["bytes"]["most"].as_u64().is_some_and(|most| most < LENGTH / 2), "{status}");
        assert_eq!(status["unread"], serde_json::json!([]));
        assert_eq!(status["processes"], serde_json::json!([]), "the command itself");
        assert_eq!(status["in_use"], false, "the command itself");
    }
    let table = first.vm(&["status"]).success();
    assert!(
        table.lines().nth(1).is_some_and(|line| line.contains("attached  attached")),
        "{table}"
    );
    // Attaching again has no effect.
    assert_eq!(first.vm(&["attach"]).success(), "db-web: was attached already\n");
    assert_eq!(second.status()["peer"], "attached");

    let detached = first.vm(&["detach", "db-web", "--wait", "0"]);
    assert_eq!(detached.success(), "db-web: detached\n");
    assert_eq!(first.status()["state"], "detached");
    let status = second.status();
    assert_eq!((&status["state"], &status["peer"]), (&"attached".into(), &"detached".into()));
    // Once more, it says what is left by then.
    assert_eq!(first.vm(&["detach", "db-web"]).success(), "db-web: detached\n");

    assert_eq!(first.vm(&["attach"]).success(), "db-web: attached\n");
    assert_eq!(second.status()["peer"], "attached");
}

#[test]
fn what_was_done_is_done_though_standard_output_takes_nothing() {
    let stage = Stage::new(Mode::Plain);
    make_region(&stage);
    let machine = Machine::with_region(&stage, "first", SECOND);
    let full = |words: &[&str]| {
        let mut command = stage.plain_command("sh");
        command.env("SEEKWIRE_LINKS", &machine.map);
        command.args(["-c", "exec \"$0\" vm \"$@\" >/dev/full"]).arg(seekwire()).args(words);
        stage.run(&mut command)
    };
    const TOLD: &str = "seekwire: cannot write to standard output: No space left on device";
    for (words, status) in [
        (&["map", "add", FIRST, "db-web"][..], 0),
        (&["attach"], 0),
        (&["detach", "db-web"], 0),
        (&["map"], 1),
        (&["status"], 1),
        (&["plan", "db", "web"], 1),
    ] {
        refused(&full(words), status, &[TOLD]);
    }
    assert!(machine.text().contains(FIRST));
    assert_eq!(machine.status()["state"], "detached");
}

#[test]
fn who_has_a_region_mapped_is_named_before_it_can_be_taken_away() {
    let stage = Stage::new(Mode::Plain);
    let region = make_region(&stage);
    let machine = Machine::with_region(&stage, "first", SECOND);
    machine.vm(&["attach"]).success();
    let map = "import mmap, sys\n\
               region = open(sys.argv[1], 'r+b')\n\
               memory = mmap.mmap(region.fileno(), 0)\n\
               print('mapped')\n\
               sys.stdin.read()";
    let mut user = stage.start(stage.plain_command(python()).args(["-c", map]).arg(&region));
    assert_eq!(user.line(), "mapped");
    let status = machine.status();
    assert_eq!(status["processes"][0]["pid"], user.pid(), "{status}");
    assert_eq!(status["in_use"], true, "{status}");
    let named = format!("db-web: mapped by {} (python3", user.pid());
    let table = machine.vm(&["status"]).success();
    assert!(table.contains(&named), "{table}");

    let detached = machine.vm(&["detach", "db-web"]);
    assert_eq!(detached.status.code(), Some(3), "{}", detached.stderr);
    assert_eq!(detached.stdout, "db-web: detached\n");
    assert!(detached.stderr.contains(&named), "{}", detached.stderr);
    // If the reader of the output has gone, the status still reports that something is left.
    let (gone, output) = UnixStream::pair().expect("two sockets");
    drop(gone);
    let mut unread = machine.command(&["vm", "detach", "db-web"]);
    let status = unread.stdout(OwnedFd::from(output)).stderr(Stdio::null()).status();
    assert_eq!(status.expect("the command runs").code(), Some(3));
    user.finish().success();
    machine.vm(&["detach", "db-web"]).success();
}

#[test]
fn attaching_says_who_may_use_a_link_and_what_it_cannot_do() {
    let stage = Stage::new(Mode::Plain);
    let region = make_region(&stage);
    let machine = Machine::with_region(&stage, "first", SECOND);
    let group = rustix::process::getegid().as_raw().to_string();
    machine.vm(&["attach", "--mode", "0640", "--group", &group]).success();
    let file = stage.path("first.state").join("db-web.link");
    assert_eq!(fs::metadata(&file).expect("a state file").mode() & 0o777, 0o640);

    refused(&machine.vm(&["attach", "web"]), 1, &["no link \"web\"", "db-web"]);
    refused(&machine.vm(&["attach", "--group", "no-such-group-here"]), 1, &["no-such-group-here"]);
    refused(&machine.vm(&["attach", "--mode", "0777"]), 2, &["octal", "0660"]);
    refused(&machine.vm(&["detach"]), 2, &["NAME"]);

    // A link that cannot be attached does not keep others from being attached.
    machine.write(&format!(
        "link missing file {} first\nlink small file {} first\nlink db-web file {} first\nstate {}\n",
        stage.path("missing").display(),
        stage.file("small", 4096).display(),
        region.display(),
        stage.path("other.state").display(),
    ));
    let finished = machine.vm(&["attach"]);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert_eq!(finished.stdout, "db-web: attached\n");
    for words in ["link missing: ", "no such file", "link small: ", "1 MiB"] {
        assert!(finished.stderr.contains(words), "{words}: {}", finished.stderr);
    }
}

#[test]
fn doctor_says_what_keeps_connections_from_a_link() {
    let stage = Stage::new(Mode::Accelerated);
    let region = make_region(&stage);
    let first = Machine::with_region(&stage, "first", SECOND);
    let second = Machine::with_region(&stage, "second", FIRST);
    let warns = |machine: &Machine<'_>, found: &str, advice: &str| {
        let [verdict, said, advised] = machine.finding();
        assert_eq!(verdict, "warn", "{said}");
        assert!(said.contains(found), "{found} is not in {said}");
        assert!(advised.contains(advice), "{advice} is not in {advised}");
    };

    warns(&first, "db-web: this machine is not attached", "sudo seekwire vm attach db-web");
    first.vm(&["attach"]).success();
    warns(&first, "the machine at the other end is not", "the other side than first");
    second.vm(&["attach"]).success();
    let [verdict, said, _] = first.finding();
    assert_eq!(verdict, "ok", "{said}");
    assert!(said.starts_with("db-web: file ") && said.contains("6.0 MiB"), "{said}");
    let all = first.findings();
    assert!(all[0]["found"].as_str().is_some_and(|found| found.ends_with(": 1 link, 1 address")));

    let map = first.text();
    first.write(&map.replace(SECOND, "# "));
    warns(&first, "it has no addresses", "seekwire vm map add ADDRESS db-web");
    first.write(&map);

    second.vm(&["detach", "db-web"]).success();
    warns(&second, "db-web: detached", "sudo seekwire vm attach db-web");
    warns(&first, "the machine at the other end has detached", "seekwire vm attach db-web, there");
    second.vm(&["attach"]).success();

    // Another region where the attached one was.
    fs::remove_file(&region).expect("a file");
    warns(&first, "no such file", "create it");
    make_region(&stage);
    warns(&first, "db-web: ", "vm attach");
    fs::write(&region, "short").expect("a file");
    warns(&first, "db-web: the memory has 5 bytes", "change its size");

    first.write("link a\n");
    warns(&first, ".links:1: ", "seekwire vm map");
    fs::remove_file(&first.map).expect("a map");
    assert_eq!(first.findings(), Vec::<Value>::new());
}

/// Names of machines that no other test has, since QEMU makes files of them in /dev/shm.
struct Names([String; 3]);

impl Names {
    fn new() -> Self {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        Self(["db", "web", "cache"].map(|name| format!("{name}{process}-{number}")))
    }

    fn regions(&self) -> impl Iterator<Item = PathBuf> {
        let [db, web, cache] = &self.0;
        [(db, web), (db, cache), (web, cache)]
            .into_iter()
            .map(|(one, other)| Path::new("/dev/shm").join(format!("seekwire-{one}-{other}")))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for region in self.regions() {
            let _ = fs::remove_file(region);
        }
    }
}

fn plan(stage: &Stage, names: &Names, options: &[&str]) -> String {
    let mut command = stage.plain_command(seekwire());
    command.args(["vm", "plan"]).args(&names.0).args(options);
    stage.run(&mut command).success()
}

/// The lines of a part of a plan.
fn part<'p>(plan: &'p str, title: &str) -> Vec<&'p str> {
    let text = plan.split(title).nth(1).unwrap_or_else(|| panic!("no {title} in {plan}"));
    text.lines().skip(1).take_while(|line| !line.is_empty()).collect()
}

/// Asks the monitor of a stopped machine of each type.
#[cfg(target_arch = "x86_64")]
#[test]
fn qemu_has_the_devices_where_the_planned_map_says() {
    let stage = Stage::new(Mode::Plain);
    let names = Names::new();
    let plan = plan(&stage, &names, &["--size", "1M"]);
    for (name, kind) in names.0.iter().zip(["pc", "q35", "pc"]) {
        let arguments = part(&plan, &format!("# For the machine {name}: "));
        let map = part(&plan, &format!("# In the machine {name}: ")).join("\n") + "\n";
        let machine = Machine::new(&stage, name, &map);
        machine.vm(&["map", "--check"]).success();

        let mut qemu = stage.plain_command(crate::harness::installed("qemu-system-x86_64"));
        qemu.args(["-accel", "tcg", "-machine", kind, "-m", "16", "-S", "-display", "none"]);
        qemu.args(["-nodefaults", "-no-user-config", "-monitor", "stdio"]);
        qemu.args(arguments.iter().flat_map(|line| line.split(' ')));
        let mut qemu = stage.start(&mut qemu);
        qemu.tell("info pci");
        qemu.tell("quit");
        let devices = qemu.finish().success();
        let links: Vec<&str> = map.lines().filter(|line| line.starts_with("link ")).collect();
        assert_eq!(links.len(), 2, "{map}");
        for link in links {
            let address = link.split_whitespace().nth(3).expect("an address");
            let slot = address.strip_prefix("0000:00:").and_then(|rest| rest.strip_suffix(".0"));
            let slot = u8::from_str_radix(slot.expect("of the first bus"), 16).expect("a slot");
            let device = format!("Bus  0, device {slot:3}, function 0:");
            let told = devices.split(&device).nth(1).unwrap_or_else(|| panic!("{devices}"));
            let kind = told.lines().nth(1).unwrap_or_default();
            assert!(kind.contains("PCI device 1af4:1110"), "{address}: {devices}");
        }
    }
    for region in names.regions() {
        assert_eq!(fs::metadata(&region).expect("a region").len(), 1 << 20);
    }
}

/// A domain with these devices, by libvirt's own schema.
fn libvirt_takes(stage: &Stage, kind: &str, devices: &str) {
    let Some(validate) = perhaps_installed("virt-xml-validate") else {
        println!("left out: libvirt's schema, as virt-xml-validate is not installed");
        return;
    };
    let domain = format!(
        "<domain type='qemu'><name>one</name><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='{kind}'>hvm</type></os>\
         <devices>{devices}</devices></domain>"
    );
    let file = stage.path("domain.xml");
    fs::write(&file, domain).expect("a file");
    stage.run(stage.plain_command(validate).arg(&file).arg("domain")).success();
}

#[test]
fn what_is_planned_for_libvirt_is_taken_by_its_schema() {
    let stage = Stage::new(Mode::Plain);
    let names = Names::new();
    let plan = plan(&stage, &names, &["--for", "libvirt", "--size", "1G"]);
    for name in &names.0 {
        let elements = part(&plan, &format!("# For the machine {name}: ")).concat();
        let file = stage.path("devices.xml");
        fs::write(&file, format!("<devices>{elements}</devices>")).expect("a file");
        let read = "import sys, xml.dom.minidom as dom\n\
                    for one in dom.parse(sys.argv[1]).getElementsByTagName('shmem'):\n \
                    print(one.getAttribute('name'), one.getElementsByTagName('size')[0].firstChild.data)";
        let text = stage.run(stage.plain_command(python()).args(["-c", read]).arg(&file)).success();
        assert_eq!(text.lines().count(), 2, "{text}");
        for line in text.lines() {
            let (region, size) = line.split_once(' ').expect("two words");
            let made = format!("f /dev/shm/{region} 0600 ");
            assert!(plan.lines().any(|line| line.starts_with(&made)), "{region}: {plan}");
            assert_eq!(size, "1024");
        }
        for kind in ["pc", "q35"] {
            libvirt_takes(&stage, kind, &elements);
        }
        let map = part(&plan, &format!("# In the machine {name}: ")).join("\n");
        Machine::new(&stage, name, &map).vm(&["map", "--check"]).success();
    }
}

#[test]
fn the_page_has_what_is_planned() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/virtual-machines.md");
    let page = fs::read_to_string(page).expect("the page");
    let stage = Stage::new(Mode::Plain);
    for runner in ["qemu", "libvirt"] {
        let mut command = stage.plain_command(seekwire());
        command.args(["vm", "plan", "db", "web", "--size", "256M", "--for", runner]);
        let plan = stage.run(&mut command).success();
        let commands = plan.lines().filter_map(|line| line.strip_prefix("#   sudo seekwire vm "));
        let words = commands.map(|line| line.split(' ').next().expect("a word"));
        assert_eq!(words.collect::<Vec<_>>(), ["map", "attach"], "{plan}");
        for line in plan.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert!(page.lines().any(|of_page| of_page == line), "not in the page: {line}");
        }
    }
}

#[test]
fn what_cannot_be_planned_is_refused_with_what_can() {
    let stage = Stage::new(Mode::Plain);
    let machine = Machine::new(&stage, "one", "");
    for (words, said) in [
        (&["db"][..], "NAME"),
        (&["db", "Web"], "a-z, 0-9 and -"),
        (&["db", "db"], "same name"),
        (&["db", "web", "--size", "3M"], "power of two"),
        (&["db", "web", "--size", "128G"], "64G"),
        (&["db", "web", "--for", "vmware"], "qemu, libvirt, xen"),
        (&["db", "web", "--for", "xen", "--size", "512M"], "at most 256M"),
    ] {
        refused(&machine.vm(&[&["plan"], words].concat()), 2, &[said]);
    }
}

/// Outside of Xen, the command reports what is missing and changes nothing else.
#[test]
fn a_link_by_xen_says_what_this_machine_lacks() {
    if Path::new("/dev/xen").exists() {
        return;
    }
    let stage = Stage::new(Mode::Accelerated);
    let map = |side: &str| {
        let state = stage.path(&format!("{side}.state"));
        format!("link db-web xen 3/64M {side}\nstate {}\n{SECOND} db-web\n", state.display())
    };
    for (side, commands, missing) in
        [("first", &["hold", "attach"][..], "gntalloc"), ("second", &["attach"], "gntdev")]
    {
        let machine = Machine::new(&stage, side, &map(side));
        let said = format!("no /dev/xen/{missing}; as root: modprobe xen-{missing}");
        for command in commands {
            refused(&machine.vm(&[command, "db-web"]), 1, &["link db-web: ", &said]);
        }
        let status = machine.status();
        assert_eq!((&status["provider"], &status["where"]), (&"xen".into(), &"3/64M".into()));
    }
    let second = Machine::new(&stage, "second", &map("second"));
    refused(&second.vm(&["hold", "db-web"]), 1, &["nothing to hold"]);
    let first = Machine::new(&stage, "first", &map("first"));
    let [verdict, found, advice] = first.finding();
    assert_eq!(verdict, "warn", "{found}");
    assert!(
        found.contains("no /dev/xen/gntalloc") && advice.contains("modprobe"),
        "{found}: {advice}"
    );
}
