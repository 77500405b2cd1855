use super::*;

fn row(bytes: Option<Bytes>, carrier: Carrier, reason: Option<Reason>) -> Row {
    Row {
        pid: Some(7),
        program: "redis-server".into(),
        local: "127.0.0.1:6379".parse().unwrap(),
        peer: "127.0.0.1:50000".parse().unwrap(),
        tx: carrier,
        rx: carrier,
        bytes,
        reason,
        link: None,
        wake_ports: None,
        socket: None,
        bytes_per_second: None,
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
    let text = render(&[
        row(Some(bytes), Carrier::Ring, None),
        row(None, Carrier::Tcp, Some(Reason::BelowThreshold)),
    ]);
    let expected = "\
PID  PROGRAM       LOCAL           PEER
      TX    RX    TX TCP  TX RING  RX TCP  RX RING
7    redis-server  127.0.0.1:6379  127.0.0.1:50000
      ring  ring   100 B  4.0 KiB     0 B  3.0 MiB
7    redis-server  127.0.0.1:6379  127.0.0.1:50000
      tcp   tcp        -        -       -        -
      WHY NOT: below threshold
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
    use std::io::Read;
    use std::net::TcpStream;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut to, _) = listener.accept().unwrap();
    let reason = |end: &TcpStream| {
        let (local, peer) = (end.local_addr().unwrap(), end.peer_addr().unwrap());
        reason_of(&TcpConnection { socket: 0, local, peer }, own_namespace())
    };
    assert_eq!(reason(&from), Some(Reason::BelowThreshold));
    let mut piece = vec![0; 1 << 14];
    for _ in 0..10 {
        from.write_all(&piece).unwrap();
        to.read_exact(&mut piece).unwrap();
    }
    assert_eq!(reason(&to), None);
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
    assert_eq!(join(vec![linked.clone()], vec![wake_channel, other.clone()]), [linked, other]);
}

#[test]
fn a_process_of_another_namespace_is_shown_once_and_by_the_number_that_it_has_here() {
    let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: 4 };
    let entered = Row { pid: None, ..row(Some(bytes), Carrier::Ring, None) };
    let seen = Row { pid: Some(4711), ..row(None, Carrier::Tcp, Some(Reason::BelowThreshold)) };
    let elsewhere = Row { peer: "127.0.0.1:50001".parse().unwrap(), ..seen.clone() };
    let joined = join(vec![entered.clone()], vec![seen, elsewhere.clone()]);
    assert_eq!(joined, [Row { pid: Some(4711), ..entered.clone() }, elsewhere]);
    assert!(render(&join(vec![entered], Vec::new())).contains("\n-    redis-server"));
}

#[test]
fn processes_that_share_a_socket_have_the_same_carriers() {
    let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: 4 };
    let entered = row(Some(bytes), Carrier::Ring, None);
    let below = Some(Reason::BelowThreshold);
    let parent = Row { socket: Some(1), ..row(None, Carrier::Tcp, below) };
    let child = Row { pid: Some(8), program: "child".into(), ..parent.clone() };
    // In another network namespace.
    let other = Row { pid: Some(9), socket: Some(2), ..child.clone() };
    let joined = join(vec![entered.clone()], vec![parent, child, other.clone()]);
    let child = Row { pid: Some(8), program: "child".into(), ..entered.clone() };
    assert_eq!(joined, [entered, child, other]);
}

#[test]
fn json_has_exact_numbers() {
    let bytes = Bytes { tx_tcp: 1, tx_ring: 2, rx_tcp: 3, rx_ring: u64::MAX };
    let json = serde_json::to_value(row(Some(bytes), Carrier::Ring, None)).unwrap();
    assert_eq!(json["tx"], "ring");
    assert_eq!(json["local"], "127.0.0.1:6379");
    assert_eq!(json["bytes"]["rx_ring"], u64::MAX);
    assert!(json["reason"].is_null());
}
