//! `seekwire doctor`: what this host supports, and how to fix what is missing.

mod finding;
mod interfaces;
mod links;
mod seeking;

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use rustix::fs::{MemfdFlags, SealFlags};
use seekwire_endpoint::Config;
use seekwire_endpoint::registry::Registry;
use seekwire_program::table::{self, Align};
use seekwire_program::{library, standard};
use seekwire_transport::Errno;
use seekwire_transport::sys::filter::{self, Trial};
use seekwire_transport::sys::signal::without_signals;
use seekwire_transport::sys::{Fd, diag, host, limit, proof, unix};

use self::finding::{Finding, Verdict};
use crate::place::{Place, user_name};
use crate::registry::{self, Unusable};
use crate::{arguments, executable, probe, proc, status, unknown_variables};

/// Prints the findings; success when none says fail.
pub(crate) fn doctor(options: &arguments::DoctorArguments) -> Result<ExitCode> {
    let registry = status::directory(options.dir.as_deref())?;
    let mut findings = vec![
        kernel(),
        sealed_memory(),
        event_descriptors(),
        user(),
        namespaces(),
        proving(),
        settings(),
        directory(&registry),
        memory(&registry),
        descriptors(),
        cores(),
        preloads(),
        containment(),
        library_file(),
        exchange(&registry),
        seeking::methods(),
        seeking::room(),
        interfaces::changed(options.state.as_deref()),
    ];
    findings.extend(links::all());

    let mut out = standard::output()?.lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &findings)?;
        out.write_all(b"\n")?;
    } else {
        out.write_all(render(&findings).as_bytes())?;
    }
    let usable = findings.iter().all(|finding| finding.verdict != Verdict::Fail);
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(findings: &[Finding]) -> String {
    const COLUMNS: [(&str, Align); 3] =
        [("", Align::Left), ("CHECK", Align::Left), ("FOUND", Align::Left)];
    let rows: Vec<Vec<String>> = findings
        .iter()
        .map(|finding| {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            vec![verdict.to_owned(), finding.check.to_owned(), finding.found.clone()]
        })
        .collect();
    let laid_out = table::layout(&COLUMNS, &rows);
    let mut text = String::new();
    for (line, finding) in laid_out.lines().skip(1).zip(findings) {
        text.push_str(line);
        text.push('\n');
        if !finding.advice.is_empty() {
            text.push_str(&format!("        -> {}\n", finding.advice));
        }
    }
    text
}

fn kernel() -> Finding {
    const CHECK: &str = "kernel";
    // 5.14 added SO_NETNS_COOKIE, the newest of the features that Seekwire needs.
    const NEEDED: (u32, u32) = (5, 14);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= NEEDED => Finding::ok(CHECK, release),
        (Some(_), Some(_)) => Finding::fail(CHECK, release, "Linux 5.14 or newer is needed"),
        _ => Finding::warn(
            CHECK,
            "version unknown",
            "/proc/sys/kernel/osrelease cannot be read; is /proc mounted?",
        ),
    }
}

fn sealed_memory() -> Finding {
    const CHECK: &str = "sealed shared memory";
    let attempt = || -> io::Result<SealFlags> {
        let memory = rustix::fs::memfd_create(
            "seekwire-doctor",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        without_signals(|| Ok(rustix::fs::ftruncate(&memory, 4096)?))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        Ok(rustix::fs::fcntl_get_seals(&memory)?)
    };
    match attempt() {
        Ok(seals) if seals.contains(SealFlags::FUTURE_WRITE) => {
            Finding::ok(CHECK, "memfd_create with F_SEAL_FUTURE_WRITE")
        }
        Ok(seals) => Finding::fail(
            CHECK,
            format!("seals are not kept: {seals:?}"),
            "the kernel is too old or emulated",
        ),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Finding::fail(
            CHECK,
            error.to_string(),
            "raise the limit on the size of files (ulimit -f, LimitFSIZE=)",
        ),
        Err(error) => Finding::fail(
            CHECK,
            error.to_string(),
            "allow memfd_create and F_ADD_SEALS: look at the container's seccomp profile and at /proc/sys/vm/memfd_noexec",
        ),
    }
}

fn event_descriptors() -> Finding {
    const CHECK: &str = "eventfd";
    match rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
        Ok(_) => Finding::ok(CHECK, "available"),
        Err(error) => Finding::fail(
            CHECK,
            error.to_string(),
            "allow eventfd2: look at the container's seccomp profile",
        ),
    }
}

fn user() -> Finding {
    let name = user_name(host::user());
    Finding::ok("user", format!("{name}; connections to other users stay on TCP"))
}

fn namespaces() -> Finding {
    const CHECK: &str = "network namespace";
    let attempt = || -> io::Result<u64> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(seekwire_transport::sys::socket::namespace(Fd::from(&socket))?)
    };
    match attempt() {
        Ok(cookie) => Finding::ok(
            CHECK,
            format!("number {cookie}; connections to other namespaces stay on TCP"),
        ),
        Err(error) => Finding::fail(
            CHECK,
            error.to_string(),
            "SO_NETNS_COOKIE is needed: Linux 5.14 or newer",
        ),
    }
}

fn proving() -> Finding {
    const CHECK: &str = "proof of connections";
    // `None`: the kernel does not find the connection.
    let attempt = || -> io::Result<Option<bool>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let end = TcpStream::connect(listener.local_addr()?)?;
        let (other, _) = listener.accept()?;
        let namespace = seekwire_transport::sys::socket::namespace(Fd::from(&end))?;
        let found = diag::find(other.local_addr()?, other.peer_addr()?, namespace)?;
        let Some(socket) = found else { return Ok(None) };
        let (channel, far) = unix::Channel::pair()?;
        unix::Channel::from_peer(far).send(b"who am I", &[proof::of(Fd::from(&other))?.as_fd()])?;
        let delivery = channel.receive(&mut [0; 8])?;
        let shown = delivery.and_then(|mut delivery| {
            Some((delivery.descriptors.pop()?, delivery.sender?.identity?))
        });
        let Some((shown, identity)) = shown else { return Ok(Some(false)) };
        let holds = proof::holds(shown.as_fd(), Fd::from(&end), socket.inode, identity)?;
        Ok(Some(holds && socket.user == host::user()))
    };
    const ADVICE: &str = "connections stay on TCP: mount /proc and allow AF_NETLINK sockets; \
                          the kernel needs CONFIG_INET_DIAG (module tcp_diag)";
    match attempt() {
        Ok(Some(true)) => {
            Finding::ok(CHECK, "sock_diag, epoll and /proc say who holds the other end")
        }
        Ok(Some(false)) => {
            Finding::fail(CHECK, "the kernel does not say who holds the other end", ADVICE)
        }
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => Finding::fail(
            CHECK,
            error.to_string(),
            "raise the limit on open files (ulimit -n, LimitNOFILE=)",
        ),
        Ok(None) => Finding::fail(
            CHECK,
            "the kernel does not find TCP connections by sock_diag",
            "connections stay on TCP: load the module tcp_diag (modprobe tcp_diag)",
        ),
        Err(error) => Finding::fail(CHECK, error.to_string(), ADVICE),
    }
}

fn settings() -> Finding {
    const CHECK: &str = "settings";
    let config = Config::get();
    let mut complaints = config.complaints.clone();
    complaints.extend(unknown_variables::unknown(std::env::vars_os().map(|(name, _)| name)));
    if !complaints.is_empty() {
        return Finding::warn(CHECK, complaints.join("; "), "correct or unset these variables");
    }
    if !config.enabled {
        return Finding::warn(CHECK, "SEEKWIRE=off: nothing is accelerated", "unset SEEKWIRE");
    }
    let set: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("SEEKWIRE"))
        .collect();
    Finding::ok(
        CHECK,
        if set.is_empty() { "defaults".to_owned() } else { format!("set: {}", set.join(", ")) },
    )
}

fn directory(path: &Path) -> Finding {
    const CHECK: &str = "registry directory";
    match registry::look_at(path) {
        Ok(true) if path.starts_with("/dev/shm") && is_in_container() => Finding::ok(
            CHECK,
            format!("{}; other containers have another /dev/shm", path.display()),
        ),
        Ok(true) => Finding::ok(CHECK, path.display().to_string()),
        Ok(false) => {
            Finding::ok(CHECK, format!("{}; the first program creates it", path.display()))
        }
        Err(Unusable { why, advice }) => Finding::fail(CHECK, why, advice),
    }
}

/// Rings are in memfds, which no file system limits; the registry is a file in its directory.
fn memory(registry: &Path) -> Finding {
    const CHECK: &str = "memory";
    const ENOUGH: u64 = 64 << 20;
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = proc::field(&memory, "MemAvailable")
        .and_then(|value| value.split_ascii_whitespace().next()?.parse::<u64>().ok())
        .map(|kib| kib * 1024);
    // A directory that does not exist yet will be created in its parent.
    let place = if registry.exists() { Some(registry) } else { registry.parent() };
    let room = place
        .and_then(|place| rustix::fs::statvfs(place).ok())
        .map(|found| found.f_bavail * found.f_frsize);
    let Some(available) = available else {
        return Finding::warn(CHECK, "unknown", "/proc/meminfo cannot be read; is /proc mounted?");
    };
    let found = format!("{} available", table::bytes(available));
    match room {
        Some(room) if room < Registry::BYTES && !Registry::is_in(registry) => Finding::warn(
            CHECK,
            format!("{found}; {} in the registry's file system", table::bytes(room)),
            format!(
                "the registry takes {}: make room there, or set SEEKWIRE_DIR to a directory in another \
                 file system",
                table::bytes(Registry::BYTES)
            ),
        ),
        _ if available < ENOUGH => Finding::warn(
            CHECK,
            found,
            "without memory, a connection stays on TCP; free some, or allow this host or container more",
        ),
        _ => Finding::ok(CHECK, found),
    }
}

fn descriptors() -> Finding {
    const CHECK: &str = "open files";
    // The library's own descriptors are two doorbells for each connection.
    const BELLS: u64 = 2;
    const COMFORTABLE: u64 = 1000;
    let (soft, hard) = limit::descriptor_limit();
    let connections = (limit::own_descriptors() / BELLS).min(soft);
    let found = format!(
        "soft limit {soft}, hard limit {hard}: up to {connections} accelerated {} in a process",
        if connections == 1 { "connection" } else { "connections" }
    );
    if connections >= COMFORTABLE {
        return Finding::ok(CHECK, found);
    }
    let advice = "further connections stay on TCP; raise the hard limit (LimitNOFILE=1024:524288 in a systemd unit, or limits.conf(5))";
    Finding::warn(CHECK, found, advice)
}

fn cores() -> Finding {
    const CHECK: &str = "cores";
    match host::processors() {
        1 => Finding::warn(
            CHECK,
            "1 core allowed: never spins",
            "allow two or more (taskset -p, or the cpuset of the container): an end that waits then spins for a moment before it sleeps",
        ),
        count => {
            Finding::ok(CHECK, format!("{count} cores allowed: spins for a moment before sleeping"))
        }
    }
}

fn preloads() -> Finding {
    const CHECK: &str = "other preloads";
    let variable = std::env::var("LD_PRELOAD").unwrap_or_default();
    let system = fs::read_to_string("/etc/ld.so.preload").unwrap_or_default();
    let others: Vec<&str> = variable
        .split([' ', ':'])
        .chain(system.split_ascii_whitespace())
        .filter(|name| !name.is_empty() && !library::is_copy(Path::new(name)))
        .collect();
    if others.is_empty() {
        return Finding::ok(CHECK, "none");
    }
    // Other libraries that interpose socket calls; two of a kind see each other's sockets.
    const SOCKET_LIBRARIES: [&str; 7] = [
        "libvma",
        "libxlio",
        "libonload",
        "librspreload",
        "libsmc-preload",
        "libproxychains",
        "libtorsocks",
    ];
    let conflicts =
        others.iter().any(|other| SOCKET_LIBRARIES.iter().any(|library| other.contains(library)));
    if conflicts {
        Finding::warn(
            CHECK,
            others.join(" "),
            "this library takes over the same calls as Seekwire; use one of the two",
        )
    } else {
        Finding::ok(CHECK, format!("{}; loaded after Seekwire's", others.join(" ")))
    }
}

fn is_in_container() -> bool {
    Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists()
}

fn containment() -> Finding {
    const CHECK: &str = "containment";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut found = Vec::new();
    if proc::field(&status, "TracerPid").is_some_and(|pid| pid != "0") {
        found.push("traced by a debugger: works, but slowly");
    }
    if is_in_container() {
        found.push(
            "in a container: programs must share the network namespace, the user and SEEKWIRE_DIR",
        );
    }
    let place = Place::of(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let unit = place.unit.map(|unit| format!("in the systemd unit {}", table::printable(&unit)));
    found.extend(unit.as_deref());
    let Some(filters) = filter::installed() else {
        found.push(
            "/proc/self/status cannot be read, so nobody knows whether system calls are filtered",
        );
        return Finding::warn(
            CHECK,
            found.join("; "),
            "mount /proc: without it, programs stay on TCP",
        );
    };
    if filters > Config::get().seccomp {
        let advice = match filter::trial() {
            Trial::AllowedWithoutHandOvers(call) => Some(format!(
                "allow {call}: without it, bytes that a program has not read when it starts another \
                 one may not reach that one"
            )),
            Trial::AllowedWithoutLinks(call) => Some(format!(
                "allow {call}: without it, no connection uses memory that machines share"
            )),
            trial @ Trial::Kills => match filter::deadly_call() {
                Some(call) => Some(format!("allow {call}, or programs stay on TCP")),
                None => trial.obstacle(),
            },
            trial => trial.obstacle(),
        };
        if let Some(advice) = advice {
            found.push("system calls are filtered (seccomp)");
            return Finding::warn(CHECK, found.join("; "), advice);
        }
        found.push(
            "system calls are filtered (seccomp), but all that the library needs are allowed",
        );
    } else if filters > 0 {
        found.push("system calls are filtered (seccomp); SEEKWIRE_SECCOMP says that the filter is harmless");
    }
    Finding::ok(CHECK, if found.is_empty() { "none".to_owned() } else { found.join("; ") })
}

fn library_file() -> Finding {
    const CHECK: &str = "library";
    let library = match library::find() {
        Ok(library) => library,
        Err(error) => return Finding::fail(CHECK, "not found", format!("{error:#}")),
    };
    // The loader that loaded this command would also load the library.
    let own =
        std::env::current_exe().ok().and_then(|command| executable::obstacle(&command, &library));
    match (own, library::preload(&library, OsStr::new(""))) {
        (Some(obstacle), _) => {
            Finding::fail(CHECK, library.display().to_string(), format!("this command {obstacle}"))
        }
        (None, Err(error)) => {
            Finding::fail(CHECK, library.display().to_string(), format!("{error:#}"))
        }
        (None, Ok(_)) => Finding::ok(CHECK, library.display().to_string()),
    }
}

fn exchange(registry: &Path) -> Finding {
    const CHECK: &str = "exchange of messages";
    const DETAILS: &str = "for details: SEEKWIRE_LOG=stderr:debug seekwire run PROGRAM";
    let Ok(library) = library::find() else {
        return Finding::fail(CHECK, "not tried", "fix the library first");
    };
    let attempt = || -> Result<probe::Stats> {
        let existing = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let preload = library::preload(&library, &existing)?;
        probe::exchange(&preload, registry)
    };
    let own = env!("CARGO_PKG_VERSION");
    match attempt() {
        Err(error) => Finding::fail(CHECK, format!("{error:#}"), DETAILS),
        Ok(stats) if stats.version.as_deref().is_some_and(|version| version != own) => {
            Finding::fail(
                CHECK,
                format!(
                    "this command is version {own}, the library {}",
                    stats.version.unwrap_or_default()
                ),
                "install both from one build",
            )
        }
        Ok(stats) if stats.bytes.tx_ring == 0 || stats.bytes.rx_ring == 0 => {
            let reasons = stats.reasons.into_keys().collect::<Vec<_>>().join(", ");
            let details = stats
                .warnings
                .first()
                .map_or(DETAILS.to_owned(), |said| format!("the library says: {said}"));
            let advice = format!("`seekwire reasons` explains why; {details}");
            Finding::fail(CHECK, format!("went by TCP: {reasons}"), advice)
        }
        Ok(stats) => Finding::ok(
            CHECK,
            format!(
                "{} out and {} in through shared memory",
                table::bytes(stats.bytes.tx_ring),
                table::bytes(stats.bytes.rx_ring)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_follows_its_line() {
        let text =
            render(&[Finding::ok("kernel", "6.1"), Finding::fail("eventfd", "EPERM", "allow it")]);
        assert_eq!(text, "ok    kernel   6.1\nFAIL  eventfd  EPERM\n        -> allow it\n");
    }

    #[test]
    fn what_the_kernel_must_have_is_found_here() {
        for finding in [kernel(), sealed_memory(), event_descriptors(), proving()] {
            assert_eq!(finding.verdict, Verdict::Ok, "{finding:?}");
        }
    }
}
