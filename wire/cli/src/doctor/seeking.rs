//! `seekwire doctor` on seeking: how this host takes bytes out of the middle of a stream, and how
//! many bytes can be skipped in place.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use seekwire::SeekStream;
use seekwire::seek::SeekMethod;
use seekwire_endpoint::Config;
use seekwire_program::table;

use super::finding::{Finding, Verdict};

/// The kernel's list of upper layer protocols for TCP sockets (TCP_ULP).
const ON_TOP: &str = "/proc/sys/net/ipv4/tcp_available_ulp";

/// The kernel module that leaves true holes in the kernel's receive queue.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Module {
    Loaded,
    Installed,
    Missing,
}

impl Module {
    fn find() -> Self {
        let has = |file: &Path, found: &dyn Fn(&str) -> bool| {
            fs::read_to_string(file).is_ok_and(|text| found(&text))
        };
        if has(Path::new(ON_TOP), &|names| names.split_whitespace().any(|name| name == "seek")) {
            return Self::Loaded;
        }
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let modules = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
        let is_there =
            has(&modules, &|text| text.lines().any(|line| line.contains("/tcp_seek.ko")));
        if is_there { Self::Installed } else { Self::Missing }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Installed => "installed, not loaded",
            Self::Missing => "not installed",
        }
    }
}

/// The way of seeking that is used.
pub(super) fn methods() -> Finding {
    let method = |address: SocketAddr| {
        let listener = TcpListener::bind(address).ok()?;
        let stream = TcpStream::connect(listener.local_addr().ok()?).ok()?;
        SeekStream::new(stream).way().ok()
    };
    let four = method((Ipv4Addr::LOCALHOST, 0).into());
    // Asked afterwards, because asking for the way may load the module.
    judge(four, method((Ipv6Addr::LOCALHOST, 0).into()), Module::find())
}

fn judge(four: Option<SeekMethod>, six: Option<SeekMethod>, module: Module) -> Finding {
    let name = |method| match method {
        Some(SeekMethod::Module) => "in the kernel (module)",
        Some(SeekMethod::Peek) => "in place (SO_PEEK_OFF)",
        _ => "through library memory",
    };
    let tcp = match six {
        Some(six) if four != Some(six) => {
            format!("{} on IPv4, {} on IPv6", name(four), name(Some(six)))
        }
        _ => name(four).to_owned(),
    };
    let drains =
        four.is_none() || four == Some(SeekMethod::Drain) || six == Some(SeekMethod::Drain);
    let advice = match module {
        Module::Installed => {
            "load it as root: modprobe tcp_seek (wire/docs/kernel.md says how to load it at each boot)"
        }
        Module::Loaded if four != Some(SeekMethod::Module) => "is SEEKWIRE_SEEK_WAY set?",
        Module::Missing if drains => {
            "use Linux 6.9 (IPv6: 6.11) or newer, or the kernel module tcp_seek (wire/docs/kernel.md): both \
             take long messages in place, with one copy less"
        }
        _ => "",
    };
    Finding {
        check: "seeking",
        verdict: if drains { Verdict::Warn } else { Verdict::Ok },
        found: format!("ring: in place; TCP: {tcp}; kernel module tcp_seek: {}", module.describe()),
        advice: advice.to_owned(),
    }
}

/// The capacity of the kernel's receive buffer, which limits the bytes that can be skipped in
/// place.
pub(super) fn room() -> Finding {
    const CHECK: &str = "skipped in place";
    const AMPLE: u64 = 16 << 20;
    const SCANTY: u64 = 1 << 20;
    let net = Path::new("/proc/sys/net");
    let number = |file: &str, field: usize| {
        let text = fs::read_to_string(net.join(file)).ok()?;
        text.split_whitespace().nth(field)?.parse::<u64>().ok()
    };
    // Half of a buffer is the kernel's overhead (tcp(7), tcp_adv_win_scale); SO_RCVBUF counts only
    // the other half.
    let (Some(most), Some(asked)) = (number("ipv4/tcp_rmem", 2), number("core/rmem_max", 0)) else {
        return Finding::warn(CHECK, "unknown", "is /proc/sys mounted?");
    };
    let grows = number("ipv4/tcp_moderate_rcvbuf", 0) != Some(0);
    let by_itself = if grows { most / 2 } else { number("ipv4/tcp_rmem", 1).unwrap_or(0) / 2 };
    let verdict = if by_itself.max(asked) < SCANTY { Verdict::Warn } else { Verdict::Ok };
    let advice = if by_itself.min(asked) < AMPLE {
        "what does not fit moves to library memory; to skip more in place: \
         sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864' net.core.rmem_max=33554432 net.ipv4.tcp_moderate_rcvbuf=1"
    } else {
        ""
    };
    Finding {
        check: CHECK,
        verdict,
        found: format!(
            "about {} in the kernel (tcp_rmem), {} with SO_RCVBUF (rmem_max); then {} in library memory",
            table::bytes(by_itself),
            table::bytes(asked),
            table::bytes(Config::get().seek_memory as u64),
        ),
        advice: advice.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_shown_and_how_to_get_it() {
        let used = judge(Some(SeekMethod::Module), Some(SeekMethod::Module), Module::Loaded);
        assert!(used.verdict == Verdict::Ok && used.advice.is_empty(), "{used:?}");
        assert!(
            used.found.ends_with("TCP: in the kernel (module); kernel module tcp_seek: loaded"),
            "{used:?}"
        );
        let waits = judge(Some(SeekMethod::Peek), None, Module::Installed);
        assert!(waits.verdict == Verdict::Ok && waits.advice.contains("modprobe"), "{waits:?}");
        let old = judge(Some(SeekMethod::Peek), Some(SeekMethod::Drain), Module::Missing);
        assert!(
            old.verdict == Verdict::Warn && old.advice.contains("wire/docs/kernel.md"),
            "{old:?}"
        );
        assert!(
            judge(Some(SeekMethod::Peek), Some(SeekMethod::Peek), Module::Missing)
                .advice
                .is_empty()
        );
    }

    #[test]
    fn both_ends_of_the_question_are_answered() {
        let (methods, room) = (methods(), room());
        assert!(methods.found.contains("ring: in place; TCP: "), "{methods:?}");
        assert!(room.found.contains("SO_RCVBUF"), "{room:?}");
        assert!(methods.verdict != Verdict::Fail && room.verdict != Verdict::Fail);
    }
}
