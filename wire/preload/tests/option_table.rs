//! The table of socket options is complete: it contains each number of the kernel's headers.

use std::collections::HashSet;
use std::fs;

#[path = "../src/calls/options.rs"]
#[expect(dead_code, reason = "the library's own lookup is not used here")]
mod options;

/// Names in the headers that are values of options, not options.
const VALUES: &[&str] = &[
    "TCP_MSS_",
    "TCP_REPAIR_ON",
    "TCP_REPAIR_OFF",
    "TCP_MD5SIG_MAXKEYLEN",
    "TCP_MD5SIG_FLAG_",
    "TCP_AO_MAXKEYLEN",
    "TCP_AO_KEYF_",
    "TCP_RECEIVE_ZEROCOPY_",
    "IP_PMTUDISC_",
    "IP_DEFAULT_",
    "MCAST_EXCLUDE",
    "MCAST_INCLUDE",
    "IPV6_FL_",
    "IPV6_FLOWINFO_FLOWLABEL",
    "IPV6_FLOWINFO_PRIORITY",
    "IPV6_PRIORITY_",
    "IPV6_TLV_",
    "IPV6_PMTUDISC_",
    "IPV6_PREFER_SRC_",
];

/// The numbers that a header defines with one of the prefixes.
fn defined(header: &str, prefixes: &[&str]) -> Vec<(String, i32)> {
    let text = fs::read_to_string(header)
        .unwrap_or_else(|error| panic!("{header}: {error}; install the kernel's headers"));
    let numbers: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().filter(|&word| word == "#define").and_then(|_| words.next())?;
            let is_meant = prefixes.iter().any(|prefix| name.starts_with(prefix));
            let is_value = VALUES.iter().any(|value| name.starts_with(value));
            let number = words.next()?.parse().ok()?;
            (is_meant && !is_value).then(|| (name.to_owned(), number))
        })
        .collect();
    assert!(numbers.len() > 10, "{header} has no options that could be read");
    numbers
}

#[test]
fn every_option_of_the_headers_is_decided() {
    let headers: [(i32, &str, &[&str]); 4] = [
        (libc::SOL_SOCKET, "/usr/include/asm-generic/socket.h", &["SO_"]),
        (libc::IPPROTO_TCP, "/usr/include/linux/tcp.h", &["TCP_"]),
        (libc::IPPROTO_IP, "/usr/include/linux/in.h", &["IP_", "MCAST_"]),
        (libc::IPPROTO_IPV6, "/usr/include/linux/in6.h", &["IPV6_", "MCAST_"]),
    ];
    let mut missing = Vec::new();
    for (level, header, prefixes) in headers {
        for (name, number) in defined(header, prefixes) {
            let is_there =
                |row: &options::Row| row.0 == level && row.1.contains(&(number, name.as_str()));
            if !options::OPTIONS.iter().any(is_there) {
                missing.push(format!("{header}: {name} {number}"));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "say in calls/options.rs what these do, and why:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_option_is_decided_once_and_with_a_reason() {
    let mut seen = HashSet::new();
    for (level, names, _, why) in options::OPTIONS {
        assert!(!why.is_empty());
        for (number, name) in *names {
            assert!(seen.insert((level, number)), "{name} is there twice");
        }
    }
}
