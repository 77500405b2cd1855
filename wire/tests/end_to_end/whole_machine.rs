//! `seekwire status` on a machine with several users, network namespaces, containers and filters:
//! it shows all of them to root, and names what keeps each connection on TCP.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use seekwire_testbed::{Side, Testbed};
use serde_json::Value;

use crate::harness::{Child, Mode, Stage, installed, library_directory, python, seekwire, source};

/// www-data and backup, in Debian.
const USERS: [u32; 2] = [33, 34];

/// Calls of each end, after which it has looked for the other one in vain often enough.
const ROUNDS: usize = 60;

/// A stage that all users may enter; `None` where this user cannot act for others.
fn stage() -> Option<Stage> {
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root can act for other users");
        return None;
    }
    let stage = Stage::new(Mode::Accelerated);
    fs::set_permissions(stage.path(""), fs::Permissions::from_mode(0o755)).expect("a directory");
    Some(stage)
}

/// A directory in which only this user's processes meet.
fn directory(stage: &Stage, name: &str, user: u32) -> PathBuf {
    let path = stage.path(name);
    fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory");
    chown(&path, Some(user), Some(user)).expect("root may");
    path
}

/// The words before a program that make it another user's.
fn acting_for(user: u32) -> Vec<String> {
    let words = ["setpriv", "--clear-groups"].map(str::to_owned);
    words.into_iter().chain(["reuid", "regid"].map(|id| format!("--{id}={user}"))).collect()
}

/// A script with the library and these settings, after the words that say where it runs.
fn script(stage: &Stage, before: &[String], settings: &[&str], words: &[&str]) -> Command {
    let all: Vec<String> = before.iter().cloned().chain(["env".to_owned()]).collect();
    let mut command = stage.plain_command(&all[0]);
    let library = library_directory().join("libseekwire.so");
    command.args(&all[1..]).arg(format!("LD_PRELOAD={}", library.display())).args(settings);
    command.arg(python());
    let is_script = |word: &&str| word.ends_with(".py");
    command.args(words.iter().map(|word| match is_script(word) {
        true => source(word),
        false => word.into(),
    }));
    command
}

fn in_directory(directory: &Path) -> String {
    format!("SEEKWIRE_DIR={}", directory.display())
}

/// Lets both ends make enough calls.
fn talk(client: &mut Child, server: &mut Child) {
    for _ in 0..ROUNDS {
        assert_eq!(client.ask("send 100"), "ok");
        assert_eq!(server.ask("recv 100"), "ok");
        assert_eq!(server.ask("send 100"), "ok");
        assert_eq!(client.ask("recv 100"), "ok");
    }
}

/// The ends of the connection to a port of a server, as root sees them: the client's and the
/// server's.
fn seen(stage: &Stage, port: &str) -> [Value; 2] {
    let rows = rows(stage.plain_command(seekwire()), stage);
    let port = format!(":{port}");
    ["peer", "local"].map(|end| {
        let is_it = |row: &&Value| row[end].as_str().is_some_and(|end| end.ends_with(&port));
        rows.iter().find(is_it).cloned().unwrap_or(Value::Null)
    })
}

/// A client, and a server that runs where the words `before` say, and what [`seen`] shows of them.
fn seen_with_server(stage: &Stage, before: &[String], settings: &str) -> ([Child; 2], [Value; 2]) {
    let mut listen = script(stage, before, &[settings], &["steps.py", "listen"]);
    let (mut server, port) = stage.serve_printing_port(&mut listen);
    let words = ["steps.py", "connect", "127.0.0.1", &port];
    let mut client = stage.start(&mut script(stage, &[], &[settings], &words));
    talk(&mut client, &mut server);
    ([client, server], seen(stage, &port))
}

fn rows(mut command: Command, stage: &Stage) -> Vec<Value> {
    let text = stage.run(command.args(["status", "--json"])).success();
    serde_json::from_str(&text).expect("an array")
}

fn assert_says(row: &Value, reason: &str, details: &[&str]) {
    assert_eq!(row["reason"], reason, "{row}");
    for detail in details {
        assert!(row["detail"].as_str().is_some_and(|it| it.contains(detail)), "{detail}: {row}");
    }
}

fn finish(ends: [Child; 2]) {
    ends.into_iter().for_each(|end| drop(end.finish().success()));
}

#[test]
fn users_who_do_not_share_a_directory_are_named() {
    let Some(stage) = stage() else { return };
    let [server, client] = USERS.map(|user| directory(&stage, &format!("of-{user}"), user));
    let stats = client.join("stats");
    let of_server = [in_directory(&server)];
    let of_client = [in_directory(&client), format!("SEEKWIRE_STATS={}", stats.display())];
    let start = |user, settings: &[String], words: &[&str]| {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        script(&stage, &acting_for(user), &settings, words)
    };
    let (mut server, port) =
        stage.serve_printing_port(&mut start(USERS[0], &of_server, &["steps.py", "listen"]));
    let words = ["steps.py", "connect", "127.0.0.1", &port];
    let mut client = stage.start(&mut start(USERS[1], &of_client, &words));
    talk(&mut client, &mut server);

    let [of_client, of_server] = seen(&stage, &port);
    assert_says(&of_client, "other user", &["python3 (pid ", "belongs to www-data"]);
    assert_says(&of_server, "other user", &["python3 (pid ", "belongs to backup"]);
    assert_eq!((&of_server["user"], &of_server["uid"]), (&"www-data".into(), &33.into()));
    assert_eq!(of_server["pid"], server.pid());
    assert!(of_server["bytes"]["rx_tcp"].as_u64() > Some(0), "{of_server}");
    let text = stage.run(stage.plain_command(seekwire()).arg("status")).success();
    assert!(text.contains("      USER: www-data"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    // Another user sees the own end alone, and why.
    let before = acting_for(USERS[1]);
    let mut own = stage.plain_command(&before[0]);
    own.args(&before[1..]).arg(seekwire());
    let own = rows(own, &stage);
    assert_eq!(own.len(), 1, "{own:?}");
    assert_says(&own[0], "other user", &["belongs to www-data"]);
    finish([client, server]);
    let counted = fs::read_to_string(&stats).expect("counters");
    assert!(counted.contains("\"other user\":1"), "{counted}");
}

#[test]
fn a_peer_in_another_network_namespace_is_named() {
    let Some(stage) = stage() else { return };
    let testbed = Testbed::new().expect("root may make namespaces");
    let settings = in_directory(&directory(&stage, "registry", 0));
    let stats = format!("SEEKWIRE_STATS={}", stage.path("stats").display());
    let command = |words: &[&str]| script(&stage, &[], &[&settings, &stats], words);
    let address = testbed.end(Side::Far).address().to_string();
    let far = || stage.serve_printing_port(&mut command(&["steps.py", "listen", &address]));
    let (mut server, port) = testbed.end(Side::Far).run(far).expect("a namespace");
    let near = || stage.start(&mut command(&["steps.py", "connect", &address, &port]));
    let mut client = testbed.end(Side::Near).run(near).expect("a namespace");
    talk(&mut client, &mut server);
    for (row, pid) in seen(&stage, &port).iter().zip([server.pid(), client.pid()]) {
        let detail = format!("python3 (pid {pid}) is in another network namespace");
        assert_says(row, "other network namespace", &[&detail]);
    }
    finish([client, server]);
    // The processes themselves cannot see that it is the same machine.
    for file in fs::read_dir(stage.path("stats")).expect("counters").flatten() {
        let counted = fs::read_to_string(file.path()).expect("counters");
        assert!(counted.contains("\"other machine or namespace\":1"), "{counted}");
    }
}

#[test]
fn a_peer_without_the_library_is_named_and_why() {
    let Some(stage) = stage() else { return };
    let settings = in_directory(&directory(&stage, "registry", 0));
    let serve = || {
        stage.serve_printing_port(&mut script(&stage, &[], &[&settings], &["steps.py", "listen"]))
    };
    let (mut server, port) = serve();
    let mut client =
        stage.start(&mut stage.plain_script("steps.py", &["connect", "127.0.0.1", &port]));
    talk(&mut client, &mut server);
    let [plain, row] = seen(&stage, &port);
    assert_eq!(plain, Value::Null, "it does not have the library");
    let detail = format!("python3 (pid {}) was started without it", client.pid());
    assert_says(&row, "peer without the library", &[&detail]);
    finish([client, server]);

    let (mut server, port) = serve();
    let program = stage.compile("sender.c", "sender", &["-static"]);
    let mut client = stage.start(stage.plain_command(program).arg(&port));
    client.tell("warm");
    for _ in 0..64 {
        assert_eq!(server.ask("send 1"), "ok");
        assert_eq!(server.ask("recv 1"), "ok");
    }
    assert_eq!(client.line(), "ok");
    assert_says(
        &seen(&stage, &port)[1],
        "peer without the library",
        &["sender", "statically linked"],
    );
    finish([client, server]);
}

#[test]
fn a_peer_under_filters_is_named_and_knows_why_itself() {
    let Some(stage) = stage() else { return };
    let settings = in_directory(&directory(&stage, "registry", 0));
    let filter = stage.compile("under_filter.c", "under_filter", &[]);
    let env = installed("env");
    let before = [&filter, Path::new("needed"), &env].map(|word| word.display().to_string());
    let (ends, [of_client, of_server]) = seen_with_server(&stage, &before, &settings);
    assert_says(
        &of_client,
        "peer filtered",
        &["python3 (pid ", "1 system call filters, and no registry"],
    );
    assert_says(&of_server, "system calls filtered", &[]);
    finish(ends);
}

#[test]
fn other_directories_are_named_and_those_that_are_of_no_use() {
    let Some(stage) = stage() else { return };
    let [one, other] = ["one", "other"].map(|name| in_directory(&directory(&stage, name, 0)));
    let (mut server, port) =
        stage.serve_printing_port(&mut script(&stage, &[], &[&one], &["steps.py", "listen"]));
    let words = ["steps.py", "connect", "127.0.0.1", &port];
    let mut client = stage.start(&mut script(&stage, &[], &[&other], &words));
    talk(&mut client, &mut server);
    let uses = format!("uses {}", stage.path("one").display());
    assert_says(&seen(&stage, &port)[0], "peer not found", &[&uses]);
    finish([client, server]);

    // A server that has become another user's after its start.
    let words = ["changes_user.py", "33", "steps.py", "listen"];
    let (mut server, port) = stage.serve_printing_port(&mut script(&stage, &[], &[&one], &words));
    let words = ["steps.py", "connect", "127.0.0.1", &port];
    let mut client = stage.start(&mut script(&stage, &[], &[&one], &words));
    talk(&mut client, &mut server);
    let why = format!("{} is not a directory of www-data", stage.path("one").display());
    let [_, of_server] = seen(&stage, &port);
    assert_says(&of_server, "no registry", &[&why, "mode 0700"]);
    assert_eq!(of_server["user"], "www-data");
    finish([client, server]);
}

#[test]
fn the_ring_is_seen_in_containers_and_without_an_environment() {
    let Some(stage) = stage() else { return };
    let inside = "mount -t tmpfs none /run && mkdir -m 700 /run/seekwire && exec \"$@\"";
    let unshared =
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"];
    let before: Vec<String> =
        unshared.into_iter().chain([inside, "sh"]).map(str::to_owned).collect();
    let settings = ["SEEKWIRE_DIR=/run/seekwire"];
    let (mut server, port) = stage.serve_printing_port(&mut script(
        &stage,
        &before,
        &settings,
        &["overwritten.py", "steps.py", "listen"],
    ));
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let first = fs::read_to_string(children).expect("a child");
    let first = first.trim().to_owned();
    let entered = ["nsenter", "--mount", "--pid", "--target", &first].map(str::to_owned);
    let words = ["overwritten.py", "steps.py", "connect", "127.0.0.1", &port];
    let mut client = stage.start(&mut script(&stage, &entered, &settings, &words));
    talk(&mut client, &mut server);
    let seen = seen(&stage, &port);
    for row in &seen {
        assert_eq!((&row["tx"], &row["rx"]), (&"ring".into(), &"ring".into()), "{row}");
        assert_eq!(row["directory"], "/run/seekwire", "{row}");
    }
    assert_eq!(seen[1]["pid"].to_string(), first);
    assert_eq!(seen[1]["pid_inside"], 1);
    finish([client, server]);
}

#[test]
fn a_chroot_without_proc_is_named() {
    let Some(stage) = stage() else { return };
    let root = stage.path("root");
    fs::create_dir(&root).expect("a directory");
    // Without the mounts below it, so without /proc.
    let inside = "mount --bind / \"$1\" && root=$1 && shift && exec chroot \"$root\" \"$@\"";
    let before = ["unshare", "--mount", "sh", "-c", inside, "sh", root.to_str().expect("text")];
    let before = before.map(str::to_owned);
    let settings = in_directory(&directory(&stage, "registry", 0));
    let (ends, [of_client, of_server]) = seen_with_server(&stage, &before, &settings);
    assert_says(&of_server, "no /proc", &[]);
    assert_says(&of_client, "peer not found", &["python3 (pid ", "has no /proc"]);
    finish(ends);
}

#[test]
fn nat_between_the_ends_is_named() {
    let Some(stage) = stage() else { return };
    let testbed = Testbed::new().expect("root may make namespaces");
    let iptables = installed("iptables-legacy");
    let settings = in_directory(&directory(&stage, "registry", 0));
    let stats = format!("SEEKWIRE_STATS={}", stage.path("nat").display());
    let (mut client, mut server, port) = testbed
        .end(Side::Near)
        .run(|| {
            let listen = ["steps.py", "listen"];
            let (server, port) =
                stage.serve_printing_port(&mut script(&stage, &[], &[&settings], &listen));
            let rule = ["-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "7", "-j", "REDIRECT"];
            let mut redirect = stage.plain_command(&iptables);
            stage.run(redirect.args(rule).args(["--to-ports", &port])).success();
            let words = ["steps.py", "connect", "127.0.0.1", "7"];
            (stage.start(&mut script(&stage, &[], &[&settings, &stats], &words)), server, port)
        })
        .expect("a namespace");
    talk(&mut client, &mut server);
    let ends = ["7".to_owned(), port].map(|port| seen(&stage, &port));
    assert_says(&ends[0][0], "NAT between the ends", &["python3 (pid ", " as the ends"]);
    assert_says(&ends[1][1], "NAT between the ends", &["127.0.0.1:7"]);
    finish([client, server]);
    let counted = fs::read_to_string(stage.path("nat")).expect("counters");
    assert!(counted.contains("\"NAT between the ends\":1"), "{counted}");
}

#[test]
fn false_registries_of_other_users_do_no_harm() {
    let Some(stage) = stage() else { return };
    let user = USERS[0];
    let directory = directory(&stage, "registry", user);
    let settings = in_directory(&directory);
    let before = acting_for(user);
    let start = |words: &[&str]| script(&stage, &before, &[&settings], words);
    // A true one, of which the others are copies.
    let (mut server, port) = stage.serve_printing_port(&mut start(&["steps.py", "listen"]));
    let mut client = stage.start(&mut start(&["steps.py", "connect", "127.0.0.1", &port]));
    talk(&mut client, &mut server);
    let files = fs::read_dir(&directory).expect("a directory").flatten().map(|file| file.path());
    let is_registry = |path: &PathBuf| path.file_stem().is_some() && path.extension().is_none();
    let registry = files.into_iter().find(is_registry).expect("a registry");
    let kinds = ["fifo", "link", "huge", "short", "random"];
    let others: Vec<Child> = kinds
        .into_iter()
        .map(|kind| {
            let place = stage.path(kind);
            fs::create_dir(&place).expect("a directory");
            let copy = place.join(registry.file_name().expect("a name"));
            fs::copy(&registry, &copy).expect("a copy");
            for path in [&place, &copy] {
                chown(path, Some(user), Some(user)).expect("root may");
            }
            let copy = copy.display().to_string();
            let mut other = stage.start(&mut start(&["false_registry.py", &copy, kind]));
            assert_eq!(other.line(), "ok", "{kind}");
            other
        })
        .collect();
    for row in seen(&stage, &port) {
        assert_eq!(row["tx"], "ring", "{row}");
    }
    others.into_iter().for_each(|other| drop(other.finish().success()));
    finish([client, server]);
}
