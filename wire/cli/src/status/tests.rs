use std::net::SocketAddr;

use seekwire_endpoint::{Carrier, Reason};
use seekwire_program::command_line::WIDTH;
use seekwire_transport::sys::diag::Traffic;

use super::member::{Hindrance, why_unregistered};
use super::row::{Holder, UNKNOWN};
use super::*;

fn row(bytes: Option<Bytes>, carrier: Carrier, reason: Option<Reason>) -> Row {
    let [local, peer] = ["127.0.0.1:6379", "127.0.0.1:50000"].map(|it| it.parse().unwrap());
    Row {
        pid: Some(7),
        program: "redis-server".into(),
        tx: carrier,
        rx: carrier,
        bytes,
        reason,
        ..Row::plain(local, peer)
    }
}

#[test]
fn rates_are_those_between_two_looks() {
    let at = |tx_tcp, tx_ring, rx_ring| Bytes { tx_tcp, tx_ring, rx_tcp: 0, rx_ring };
    let before = [row(Some(at(10, 20, 5000)), Carrier::Ring, None)];
    let mut now = [
        row(Some(at(10, 20 + 4096, 4)), Carrier::Ring, None),
        Row { pid: Some(8), ..row(Some(at(1, 2, 3)), Carrier::Ring, None) },
    ];
    assert!(!render(&now).contains("TX/S"));
    add_rates(&mut now, &before, Duration::from_secs(2));
    assert_eq!(now[0].bytes_per_second, Some(Rates { tx: 2048, rx: 0 }));
    assert_eq!(now[1].bytes_per_second, None);
    let text = render(&now);
    assert!(text.lines().nth(1).unwrap().ends_with("TX/S  RX/S"), "{text}");
    assert!(text.lines().nth(3).unwrap().ends_with("2.0 KiB   0 B"), "{text}");
    assert!(text.lines().nth(5).unwrap().ends_with("  -     -"), "{text}");
}

#[test]
fn a_table_shows_carriers_bytes_and_reasons() {
    let bytes = Bytes { tx_tcp: 100, tx_ring: 4096, rx_tcp: 0, rx_ring: 3 << 20 };
    let holder = Holder { user: Some("redis".into()), ..Holder::default() };
    let contained = Holder {
        unit: Some("docker.service".into()),
        container: Some("docker:0123456789ab".into()),
        pid_inside: Some(1),
        ..holder.clone()
    };
    let detail = "nc (pid 9) is statically linked; use a dynamically linked build".to_owned();
    let text = render(&[
        Row { holder, ..row(Some(bytes), Carrier::Ring, None) },
        Row {
            holder: contained,
            detail: Some(detail),
            ..row(None, Carrier::Tcp, Some(Reason::WithoutLibrary))
        },
    ]);
    let expected = "\
PID  PROGRAM       LOCAL           PEER
      TX    RX    TX TCP  TX RING  RX TCP  RX RING
7    redis-server  127.0.0.1:6379  127.0.0.1:50000
      ring  ring   100 B  4.0 KiB     0 B  3.0 MiB
      USER: redis
7    redis-server  127.0.0.1:6379  127.0.0.1:50000
      tcp   tcp        -        -       -        -
      USER: redis  UNIT: docker.service  CONTAINER: docker:0123456789ab
      PID INSIDE: 1
      WHY NOT: peer without the library: nc (pid 9) is statically linked; use a
      dynamically linked build
`seekwire reasons` explains what follows WHY NOT.
";
    assert_eq!(text, expected);
}

#[test]
fn the_longest_lines_fit_a_terminal() {
    let most = Some(Bytes {
        tx_tcp: 1023 << 10,
        tx_ring: 1023 << 20,
        rx_tcp: 1023 << 30,
        rx_ring: 1023 << 40,
    });
    let long = Row {
        pid: Some(4_194_304),
        program: "a-name-of-15-by".into(),
        bytes_per_second: Some(Rates { tx: 1023 << 30, rx: 1023 << 20 }),
        link: Some("a-link-whose-name-has-32-letters".into()),
        holder: Holder {
            user: Some("u".repeat(32)),
            unit: Some(format!("{}.service\u{1b}", "n".repeat(247))),
            container: Some(format!("lxc:{}", "c".repeat(200))),
            ..Holder::default()
        },
        detail: Some(format!("program (pid 7) uses /{}", "d".repeat(300))),
        ..row(most, Carrier::Ring, Some(Reason::BelowThreshold))
    };
    for address in ["255.255.255.255:65535", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"] {
        let address: SocketAddr = address.parse().unwrap();
        let text = render(&[Row { local: address, peer: address, ..long.clone() }]);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.matches(&address.to_string()).count(), 2, "{text}");
    }
}

#[test]
fn a_connection_that_has_moved_much_is_not_said_to_be_below_the_threshold() {
    let config = Config::of(|_| None);
    let moved = |bytes, segments| Some(Traffic { bytes, segments });
    let why = |hindrance: Option<Hindrance>, traffic| {
        why_unregistered(hindrance.as_ref(), &config, traffic).0
    };
    for (bytes, segments, is_short) in
        [(0, 0, true), (9999, 15, true), (64 << 10, 2, false), (16, 16, false)]
    {
        let traffic = moved(bytes, segments);
        let below = is_short.then_some(Reason::BelowThreshold);
        let directory = Hindrance::Directory("it is not its own".into());
        assert_eq!(why(None, traffic), below);
        assert_eq!(why(Some(directory), traffic), below.or(Some(Reason::NoRegistry)));
        assert_eq!(why(Some(Hindrance::Filters(1)), traffic), below.or(Some(Reason::Filtered)));
        assert_eq!(why(Some(Hindrance::NoProc), traffic), Some(Reason::NoProc));
        assert_eq!(why(Some(Hindrance::Off), traffic), Some(Reason::Disabled));
    }
    assert_eq!(why(None, None), Some(Reason::BelowThreshold), "nobody knows");
    let text = render(&[row(None, Carrier::Tcp, None)]);
    assert!(text.trim_end().ends_with(&format!("WHY NOT: {UNKNOWN}")), "{text}");
}

#[test]
fn the_links_of_connections_are_shown_where_there_are_any() {
    let plain = row(None, Carrier::Tcp, Some(Reason::BelowThreshold));
    let linked = Row { link: Some("db-web".into()), ..row(None, Carrier::Ring, None) };
    assert!(!render(std::slice::from_ref(&plain)).contains("LINK"));
    let text = render(&[plain, linked]);
    assert!(
        text.ends_with("      LINK: db-web\n`seekwire reasons` explains what follows WHY NOT.\n"),
        "{text}"
    );
}

#[test]
fn the_wake_channel_of_a_connection_is_not_shown_as_one_of_the_programs() {
    let linked = Row { wake_ports: Some((40000, 40001)), ..row(None, Carrier::Ring, None) };
    let wake_channel = Row {
        local: "127.0.0.1:40000".parse().unwrap(),
        peer: "127.0.0.1:40001".parse().unwrap(),
        ..row(None, Carrier::Tcp, Some(Reason::BelowThreshold))
    };
    let other = Row { local: "127.0.0.1:40002".parse().unwrap(), ..wake_channel.clone() };
    let of_another = |user, namespace| Row {
        holder: Holder { uid: user, ..Holder::default() },
        namespace,
        ..wake_channel.clone()
    };
    let [user, namespace] = [of_another(Some(33), None), of_another(None, Some(7))];
    let shown = [linked, other, user, namespace];
    assert_eq!(join([&shown[..], &[wake_channel]].concat()), shown);
}

#[test]
fn a_process_that_is_not_seen_from_here_has_no_number() {
    let entered = Row { pid: None, ..row(None, Carrier::Ring, None) };
    assert!(render(&[entered]).contains("\n-    redis-server"));
}

#[test]
fn processes_that_share_a_socket_have_the_same_carriers() {
    let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: 4 };
    let parent = Row { socket: Some(1), ..row(Some(bytes), Carrier::Ring, None) };
    let below = row(None, Carrier::Tcp, Some(Reason::BelowThreshold));
    let child = Row { pid: Some(8), program: "child".into(), socket: Some(1), ..below.clone() };
    let other = Row { pid: Some(9), socket: Some(2), ..below };
    let joined = join(vec![child, other.clone(), parent.clone()]);
    let child = Row { pid: Some(8), program: "child".into(), ..parent.clone() };
    assert_eq!(joined, [child, other, parent]);
}

#[test]
fn json_has_exact_numbers() {
    let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: u64::MAX };
    let holder = Holder { user: Some("redis".into()), uid: Some(999), ..Holder::default() };
    let row = Row { holder, ..row(Some(bytes), Carrier::Ring, None) };
    let json = serde_json::to_value(row).unwrap();
    assert_eq!((&json["user"], &json["uid"]), (&"redis".into(), &999.into()));
    assert_eq!(json["tx"], "ring");
    assert_eq!(json["local"], "127.0.0.1:6379");
    assert_eq!(json["bytes"]["rx_ring"], u64::MAX);
    assert!(json["reason"].is_null());
}
