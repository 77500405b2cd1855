//! How bytes are taken out of the middle of a stream on this host, and how many can be skipped in place.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;

use seekwire::{Config, Fd};
use transport::sys::socket;

use super::{Finding, Verdict};
use crate::table;

/// Where the kernel lists what can be put on top of a TCP socket (TCP_ULP).
const ON_TOP: &str = "/proc/sys/net/ipv4/tcp_available_ulp";
/// The name of the module that leaves true holes in the kernel's receive queue.
const MODULE: &str = "seek";

/// Which way of seeking is used.
pub(super) fn ways() -> Finding {
    const CHECK: &str = "seeking";
    let module =
        fs::read_to_string(ON_TOP).is_ok_and(|names| names.split_whitespace().any(|name| name == MODULE));
    let ring = "ring: in place";
    let module = if module { "kernel module: present, not used" } else { "kernel module: not present" };
    let peeks = |address: SocketAddr| {
        let listener = TcpListener::bind(address).ok()?;
        Some(socket::set_peek_offset(Fd::from(&listener), 0).is_ok())
    };
    let four = peeks((Ipv4Addr::LOCALHOST, 0).into());
    let six = peeks((Ipv6Addr::LOCALHOST, 0).into());
    let advice = "Linux 6.9 (IPv6: 6.11) or newer takes long messages where they are, with one copy less";
    match (four, six) {
        (Some(true), Some(true) | None) => {
            Finding::ok(CHECK, format!("{ring}; TCP: in place (SO_PEEK_OFF); {module}"))
        }
        (Some(true), Some(false)) => Finding::warn(
            CHECK,
            format!("{ring}; TCP: in place (SO_PEEK_OFF) on IPv4, by library memory on IPv6; {module}"),
            advice,
        ),
        _ => {
            Finding::warn(CHECK, format!("{ring}; TCP: by library memory (no SO_PEEK_OFF); {module}"), advice)
        }
    }
}

/// What the kernel's receive buffer may hold, and with it what can be skipped without moving it.
pub(super) fn room() -> Finding {
    const CHECK: &str = "skipped in place";
    const AMPLE: u64 = 16 << 20;
    const SCANTY: u64 = 1 << 20;
    let net = Path::new("/proc/sys/net");
    let number = |file: &str, field: usize| {
        let text = fs::read_to_string(net.join(file)).ok()?;
        text.split_whitespace().nth(field)?.parse::<u64>().ok()
    };
    // Half of a buffer is for the kernel's own (tcp(7), tcp_adv_win_scale); SO_RCVBUF counts only the other half.
    let (Some(most), Some(asked)) = (number("ipv4/tcp_rmem", 2), number("core/rmem_max", 0)) else {
        return Finding::warn(CHECK, "unknown", "is /proc/sys mounted?");
    };
    let grows = number("ipv4/tcp_moderate_rcvbuf", 0) != Some(0);
    let by_itself = if grows { most / 2 } else { number("ipv4/tcp_rmem", 1).unwrap_or(0) / 2 };
    let verdict = if by_itself.max(asked) < SCANTY { Verdict::Warn } else { Verdict::Ok };
    let advice = if by_itself.min(asked) < AMPLE {
        "what does not fit is moved to library memory; to skip more: \
         sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864' net.core.rmem_max=33554432 net.ipv4.tcp_moderate_rcvbuf=1"
    } else {
        ""
    };
    Finding {
        check: CHECK,
        verdict,
        found: format!(
            "about {} of TCP (tcp_rmem), {} with SO_RCVBUF (rmem_max); then {} of library memory",
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
    fn both_ends_of_the_question_are_answered() {
        let (ways, room) = (ways(), room());
        assert!(ways.found.contains("ring: in place; TCP: "), "{ways:?}");
        assert!(room.found.contains("SO_RCVBUF"), "{room:?}");
        assert!(ways.verdict != Verdict::Fail && room.verdict != Verdict::Fail);
    }
}
