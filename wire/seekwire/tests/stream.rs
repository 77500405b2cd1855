//! Two streams of this process: the upgrade, the data path and the end, as a user of the API sees
//! them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use seekwire::{Carrier, Listener, Stream};

const LONG: Duration = Duration::from_secs(20);

fn pair() -> (Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let client = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// A pair whose sends travel on the ring in both directions.
fn upgraded() -> (Stream, Stream) {
    let (client, server) = pair();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.upgrade(LONG).unwrap());
        assert!(server.upgrade(LONG).unwrap());
        assert!(client.join().unwrap());
    });
    (client, server)
}

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}

#[test]
fn a_conversation_leaves_tcp_by_itself_and_loses_nothing() {
    let (mut client, server) = pair();
    let echo = std::thread::spawn(move || {
        let mut server = server;
        let mut buffer = [0; 5000];
        loop {
            let n = server.read(&mut buffer).unwrap();
            if n == 0 {
                return server.status().unwrap();
            }
            server.write_all(&buffer[..n]).unwrap();
        }
    });
    for round in 0..200 {
        let message = pattern(1 + round * 13, round as u32);
        client.write_all(&message).unwrap();
        let mut answer = vec![0; message.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, message);
    }
    let mine = client.status().unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    let theirs = echo.join().unwrap();
    for status in [mine, theirs] {
        assert_eq!((status.tx, status.rx), (Carrier::Ring, Carrier::Ring), "{status:?}");
        assert!(
            status.totals.tx_tcp > 0 && status.totals.tx_ring > status.totals.tx_tcp,
            "{status:?}"
        );
    }
    assert_eq!(mine.totals.tx_ring, theirs.totals.rx_ring);
    assert_eq!(mine.totals.tx_tcp, theirs.totals.rx_tcp);
}

#[test]
fn the_totals_are_told_after_the_end() {
    for (client, server) in [pair(), upgraded()] {
        let before = client.status().unwrap();
        (&client).write_all(b"question").unwrap();
        (&server).read_exact(&mut [0; 8]).unwrap();
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.shutdown(Shutdown::Write).unwrap();
            assert_eq!((&mut &*to).read(&mut [0; 1]).unwrap(), 0);
        }
        // Waits until the kernel has forgotten the connection.
        while client.peer_addr().is_ok() {
            std::thread::yield_now();
        }
        let (mine, theirs) = (client.status().unwrap(), server.status().unwrap());
        assert_eq!((mine.local, mine.peer), (before.local, before.peer));
        assert_eq!((theirs.peer, theirs.local), (before.local, before.peer));
        assert_eq!(mine.totals.tx_tcp + mine.totals.tx_ring, 8);
        assert_eq!(theirs.totals.rx_tcp + theirs.totals.rx_ring, 8);
    }
}

#[test]
fn bulk_in_both_directions_at_once() {
    let (client, server) = upgraded();
    let data = pattern(20 << 20, 7);
    std::thread::scope(|scope| {
        for (from, to) in [(&client, &server), (&server, &client)] {
            scope.spawn(|| {
                (&mut &*from).write_all(&data).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(|| {
                let mut got = Vec::new();
                (&mut &*to).read_to_end(&mut got).unwrap();
                assert!(got == data);
            });
        }
    });
}

#[test]
fn a_plain_peer_sees_plain_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let data = pattern(300_000, 3);
    let sent = data.clone();
    let writer = std::thread::spawn(move || {
        for chunk in sent.chunks(1000) {
            client.write_all(chunk).unwrap();
        }
        client.status().unwrap()
    });
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert!(got == data);
    let status = writer.join().unwrap();
    assert_eq!((status.tx, status.totals.tx_ring), (Carrier::Tcp, 0));
    assert_eq!(status.totals.reason, Some(seekwire::Reason::NoPeer));
}

#[test]
fn an_acceptor_says_that_nobody_made_an_offer() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    assert_eq!(server.status().unwrap().totals.reason, Some(seekwire::Reason::BelowThreshold));
    for _ in 0..100 {
        client.write_all(b"?").unwrap();
        server.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(server.status().unwrap().totals.reason, Some(seekwire::Reason::NoPeer));
    // The registry as other processes see it.
    let registry =
        seekwire_endpoint::registry::Registry::open(&seekwire_endpoint::Config::get().dir).unwrap();
    let local = server.local_addr().unwrap();
    let entry = registry.entries().into_iter().find(|entry| entry.local == local).unwrap();
    assert_eq!((entry.reason, entry.rx_tcp), (Some(seekwire::Reason::NoPeer), 100));
}

#[test]
fn nothing_to_read_and_no_room_would_block() {
    let (mut client, mut server) = upgraded();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let data = pattern(1 << 20, 9);
    let mut sent = 0;
    let error = loop {
        match client.write(&data[..70_000]) {
            Ok(n) => sent += n,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(!client.wait_writable(Some(Duration::ZERO)).unwrap());
    let mut got = 0;
    let mut buffer = vec![0; 1 << 16];
    while got < sent {
        got += server.read(&mut buffer).unwrap();
    }
    assert!(client.wait_writable(Some(LONG)).unwrap());
    assert_eq!(server.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_read_timeout_is_kept() {
    let (mut client, _server) = upgraded();
    client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(client.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A pair on the ring whose first end is corked, and the socket of that end.
fn corked() -> (TcpStream, Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_tcp_cork(&socket, true).unwrap();
    let client = Stream::from_connected(socket.try_clone().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.upgrade(LONG).unwrap());
        assert!(server.upgrade(LONG).unwrap());
        assert!(client.join().unwrap());
    });
    (socket, client, server)
}

#[test]
fn what_is_corked_is_read_when_the_time_is_over() {
    let (_socket, mut client, mut server) = corked();
    let mut bytes = [0; 10];
    for _ in 0..3 {
        let begin = Instant::now();
        client.write_all(b"corked").unwrap();
        assert_eq!(client.status().unwrap().tx, Carrier::Ring);
        assert_eq!(server.read(&mut bytes).unwrap(), 6);
        assert!(begin.elapsed() > Duration::from_millis(150), "it was not held back");
        let begin = Instant::now();
        client.write_all(b"corked").unwrap();
        assert!(server.wait_readable(None).unwrap());
        assert!(begin.elapsed() > Duration::from_millis(150), "it was not held back");
        assert_eq!(server.borrow().unwrap().len(), 6);
        assert_eq!(server.read(&mut bytes).unwrap(), 6);
    }
}

#[test]
fn what_is_corked_is_read_before_the_end() {
    let (socket, mut client, mut server) = corked();
    client.write_all(b"corked").unwrap();
    drop((client, socket));
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"corked");
}

#[test]
fn a_cork_that_was_taken_out_unseen_holds_nothing_more() {
    let (socket, mut client, mut server) = corked();
    let mut bytes = [0; 10];
    client.write_all(b"corked").unwrap();
    assert_eq!(server.read(&mut bytes).unwrap(), 6);
    rustix::net::sockopt::set_tcp_cork(&socket, false).unwrap();
    client.write_all(b"free").unwrap();
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.read(&mut bytes).unwrap(), 4);
}

#[test]
fn peeked_bytes_stay() {
    let (mut client, mut server) = upgraded();
    client.write_all(b"first").unwrap();
    client.write_all(&pattern(40_000, 1)).unwrap();
    let mut seen = [0; 7];
    assert_eq!(server.peek(&mut seen).unwrap(), 7);
    assert_eq!(&seen[..5], b"first");
    let mut all = vec![0; 40_005];
    server.read_exact(&mut all).unwrap();
    assert_eq!(all[5..], pattern(40_000, 1)[..]);
}

#[test]
fn in_place_both_ways() {
    let (client, server) = upgraded();
    let data = pattern(Stream::max_reserve(), 5);
    let mut reservation = client.reserve(data.len()).unwrap();
    reservation.copy_from_slice(&data);
    reservation.commit(data.len()).unwrap();
    drop(client.reserve(10).unwrap());
    let mut got = Vec::new();
    while got.len() < data.len() {
        let borrowed = server.borrow().unwrap();
        let mut some = vec![0; 1000.min(borrowed.len())];
        let n = borrowed.copy_to(&mut some);
        borrowed.consume(n).unwrap();
        got.extend(some);
    }
    assert!(got == data);
    assert_eq!(client.status().unwrap().totals.tx_ring, data.len() as u64);
    drop(client);
    assert!(server.borrow().unwrap().is_empty());
}

#[test]
fn in_place_works_by_tcp_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut reservation = client.reserve(5).unwrap();
    reservation.copy_from_slice(b"hello");
    reservation.commit(5).unwrap();
    let mut got = [0; 5];
    server.read_exact(&mut got).unwrap();
    server.write_all(b"world!").unwrap();
    let borrowed = client.borrow().unwrap();
    assert!(!borrowed.is_empty());
    borrowed.consume(1).unwrap();
    let mut rest = [0; 5];
    (&mut &client).read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"orld!");
}

#[test]
fn closing_ends_the_stream_after_what_was_sent() {
    let (mut client, mut server) = upgraded();
    client.write_all(b"last words").unwrap();
    drop(client);
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"last words");
}

#[test]
fn closing_with_unread_bytes_resets() {
    let (client, mut server) = upgraded();
    server.write_all(b"never read").unwrap();
    drop(client.borrow().unwrap());
    drop(client);
    assert_eq!(server.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(server.write(b"x").is_err());
}

#[test]
fn a_blocked_writer_learns_that_the_reader_is_gone() {
    let (mut client, server) = upgraded();
    let writer = std::thread::spawn(move || -> io::Result<()> {
        loop {
            client.write_all(&[1; 10_000])?;
        }
    });
    (&mut &server).read_exact(&mut vec![0; 3 << 20]).unwrap();
    drop(server);
    let kind = writer.join().unwrap().unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{kind:?}");
}

#[test]
fn several_threads_share_both_ends() {
    let (client, server) = upgraded();
    const RECORD: usize = 64;
    // The sender leaves a ring that stays full.
    let sent = |stream: &Stream| {
        let totals = stream.status().unwrap().totals;
        totals.tx_ring + totals.tx_tcp
    };
    let before = sent(&client);
    let total = std::thread::scope(|scope| {
        for id in 0..4u8 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..5000 {
                    (&mut &*client).write_all(&[id; RECORD]).unwrap();
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut sum = [0usize; 4];
                    let mut buffer = [0; RECORD];
                    loop {
                        let n = (&mut &server).read(&mut buffer).unwrap();
                        if n == 0 {
                            return sum;
                        }
                        buffer[..n].iter().for_each(|byte| sum[usize::from(*byte)] += 1);
                    }
                })
            })
            .collect();
        // The writers end first; the scope's other threads are the readers.
        let client = &client;
        scope.spawn(move || {
            while sent(client) - before < (4 * 5000 * RECORD) as u64 {
                std::thread::yield_now();
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
        readers.into_iter().map(|reader| reader.join().unwrap()).fold([0; 4], |mut sum, part| {
            sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            sum
        })
    });
    assert_eq!(total, [5000 * RECORD; 4]);
}

#[test]
fn a_thousand_connections_at_once() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Each end has a socket and two doorbells.
    let (soft, hard) = seekwire_transport::sys::limit::descriptor_limit();
    seekwire_transport::sys::limit::set_descriptor_limit(hard).unwrap();
    assert!(hard >= 8000, "the hard limit on descriptors is {hard}, and {soft} the soft one");
    let mut pairs: Vec<(Stream, Stream)> = (0..1000)
        .map(|_| (Stream::connect(address).unwrap(), listener.accept().unwrap().0))
        .collect();
    for round in 0..20u8 {
        for (client, server) in &mut pairs {
            client.write_all(&[round; 100]).unwrap();
            let mut got = [0; 100];
            server.read_exact(&mut got).unwrap();
            server.write_all(&got).unwrap();
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, [round; 100]);
        }
    }
    for (client, server) in &pairs {
        assert_eq!(client.status().unwrap().tx, Carrier::Ring);
        assert_eq!(server.status().unwrap().tx, Carrier::Ring);
    }
}

#[test]
fn ipv6_and_the_hosts_own_names() {
    let listener = Listener::bind("[::1]:0").unwrap();
    let client = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(client.upgrade(LONG).unwrap()));
        assert!(server.upgrade(LONG).unwrap());
    });
    let std = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(Stream::from_connected(std).unwrap().peer_addr().unwrap().is_ipv6());
}

#[test]
fn who_connected_and_who_accepted_meet_on_the_ring() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let accepted = Stream::from_accepted(accepted).unwrap();
    let connected = Stream::from_connected(connected).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(accepted.upgrade(LONG).unwrap()));
        assert!(connected.upgrade(LONG).unwrap());
    });
    (&connected).write_all(b"by shared memory").unwrap();
    let mut received = [0; 16];
    (&accepted).read_exact(&mut received).unwrap();
    assert_eq!(&received, b"by shared memory");
    assert_eq!(accepted.status().unwrap().totals.rx_ring, 16);
}

#[test]
fn a_socket_keeps_what_was_set_before_it_was_taken_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let std = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _silent = listener.accept().unwrap();
    let short = Duration::from_millis(20);
    std.set_read_timeout(Some(short)).unwrap();
    std.set_nodelay(true).unwrap();
    std.set_ttl(9).unwrap();
    let mut stream = Stream::from_connected(std).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(stream.read_timeout().unwrap(), Some(short));
    assert_eq!(stream.write_timeout().unwrap(), None);
    assert_eq!((stream.nodelay().unwrap(), stream.ttl().unwrap()), (true, 9));
    stream.set_nodelay(false).unwrap();
    assert!(!stream.nodelay().unwrap());
}

#[test]
fn an_error_of_the_socket_is_told_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (&client).write_all(b"unread").unwrap();
    client.wait_writable(None).unwrap();
    // Closing with unread bytes resets the connection.
    while server.peek(&mut [0]).unwrap() == 0 {}
    drop(server);
    client.wait_readable(None).unwrap();
    let error = client.take_error().unwrap().expect("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(client.take_error().unwrap().is_none());
}
