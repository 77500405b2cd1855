//! Hands a socket to a program that knows nothing of the ring, while bytes lie on it.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use seekwire_endpoint::{
    At, Connection, HandedOver, Interest, Reason, RecvFlags, Role, SeekOptions, SendFlags, Sends,
    Until,
};
use seekwire_transport::Errno;
use seekwire_transport::sys::{Fd, socket};

const LONG: Duration = Duration::from_secs(60);
/// More than the small socket buffers hold, and less than the ring.
const REQUEST: usize = 1_500_000;

/// A socket and the connection that moves its bytes. Without the connection, it stands for another
/// program's.
struct End {
    socket: TcpStream,
    connection: Connection,
}

impl End {
    fn new(socket: TcpStream, role: Role) -> Self {
        let connection = Connection::new(Fd::from(&socket), role);
        Self { socket, connection }
    }

    fn send(&self, bytes: &[u8]) {
        let sent = match self.connection.enter_plain() {
            Some(bracket) => {
                let n = (&self.socket).write(bytes).unwrap();
                bracket.sent(n);
                n
            }
            None => self.connection.send(&[IoSlice::new(bytes)], SendFlags::default()).unwrap(),
        };
        assert_eq!(sent, bytes.len());
    }

    fn recv(&self, most: usize) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let n = match self.connection.enter_plain() {
            Some(bracket) => {
                let n = (&self.socket).read(&mut bytes).unwrap();
                bracket.received(n);
                n
            }
            None => self
                .connection
                .recv(&mut [IoSliceMut::new(&mut bytes)], RecvFlags::default())
                .unwrap(),
        };
        bytes.truncate(n);
        bytes
    }

    fn hand_over(&self) {
        self.connection.hand_over(Reason::Exec, Until::after(Some(LONG)), || ()).unwrap();
    }

    /// Everything until the end, as a program reads it that knows nothing of the ring.
    fn rest(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        (&self.socket).read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Waits until the peer's request was served.
    fn serve(&self) {
        while self.connection.tx_on_ring() {
            self.connection.service_peer();
            std::thread::yield_now();
        }
    }
}

/// Both ends on the ring, with small socket buffers.
fn pair() -> (End, End) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_socket_recv_buffer_size(&listener, 20_000).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for socket in [&client, &server] {
        set_socket_send_buffer_size(socket, 20_000).unwrap();
    }
    let (client, server) = (End::new(client, Role::Connected), End::new(server, Role::Accepted));
    for _ in 0..200 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.send(b"x");
            assert_eq!(to.recv(1), b"x");
        }
    }
    assert!(client.connection.tx_on_ring() && server.connection.tx_on_ring());
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
fn a_sender_that_only_receives_sends_again_what_was_unread() {
    let (client, server) = pair();
    let request = pattern(REQUEST, 11);
    client.send(&request);
    let head = server.recv(1234);
    assert!(head[..] == request[..1234]);
    std::thread::scope(|scope| {
        // The peer waits for an answer meanwhile, as peers do.
        let waiting = scope.spawn(|| client.recv(6));
        server.hand_over();
        let mut rest = vec![0; request.len() - head.len()];
        (&server.socket).read_exact(&mut rest).unwrap();
        assert!(rest[..] == request[1234..]);
        (&server.socket).write_all(b"answer").unwrap();
        assert_eq!(waiting.join().unwrap(), b"answer");
    });
    let readiness = client.connection.readiness();
    assert_eq!(client.connection.sends(), Sends::Tcp);
    let armed = client.connection.arm(Interest::default());
    assert_eq!(client.connection.readiness(), readiness);
    client.connection.disarm(armed);
}

#[test]
fn nothing_is_waited_for_where_the_peer_has_only_left_the_ring() {
    let (client, server) = pair();
    client.connection.fall_back(Reason::Shared).unwrap();
    assert!(!client.connection.tx_on_ring());
    // The peer makes no call from now on.
    let handed_over = server.connection.hand_over(Reason::FdPassed, Until::NEVER, || ());
    assert_eq!(handed_over, Ok(HandedOver::All));
    (&server.socket).write_all(b"answer").unwrap();
    assert_eq!(client.recv(6), b"answer");
    client.send(b"request");
    let mut request = [0; 7];
    (&server.socket).read_exact(&mut request).unwrap();
    assert_eq!(&request, b"request");
}

#[test]
fn a_number_that_was_closed_unseen_does_not_end_what_a_program_goes_on_with() {
    for is_given in [false, true] {
        let (client, server) = pair();
        server.hand_over();
        if is_given {
            server.connection.note_given(Reason::FdPassed);
        }
        server.connection.was_closed();
        assert_eq!(client.connection.readiness().end, !is_given);
    }
}

#[test]
fn the_end_of_the_stream_follows_what_is_retransmitted() {
    let (client, server) = pair();
    let request = pattern(REQUEST, 12);
    client.send(&request);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| client.serve());
        server.hand_over();
        serving.join().unwrap();
        assert!(client.connection.retransmits(), "the buffers hold less");
        client.connection.shutdown(std::net::Shutdown::Write).unwrap();
        let silent = SendFlags { no_signal: true, ..SendFlags::default() };
        let sent = client.connection.send(&[IoSlice::new(b"more")], silent);
        assert_eq!(sent, Err(Errno::PIPE));
        let waiting = scope.spawn(|| client.recv(6));
        assert!(server.rest() == request);
        (&server.socket).write_all(b"answer").unwrap();
        assert_eq!(waiting.join().unwrap(), b"answer");
    });
}

/// The kernel reports it once, to a send that the program did not make.
#[test]
fn a_reset_in_the_midst_of_what_is_retransmitted_is_no_end_of_the_stream() {
    for by in [By::Receive, By::Seek, By::Asking] {
        let (client, server) = pair();
        client.send(&pattern(REQUEST, 5));
        let _ = server.connection.hand_over_later(Reason::Exec, |_| false);
        client.serve();
        assert!(client.connection.retransmits());
        socket::reset(server.connection.fd());
        while client.connection.retransmits() {
            client.connection.service_peer();
            std::thread::yield_now();
        }
        let mut buf = [0; 10];
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        let end = match by {
            By::Seek => client.connection.seek(bufs, At::Offset(0), SeekOptions::TAKE, true),
            By::Receive => client.connection.recv(bufs, RecvFlags::default()),
            By::Asking => client.connection.take_error().map_or(Ok(0), Err),
        };
        assert_eq!(end, Err(Errno::CONNRESET), "by {by:?}");
        assert!(!client.connection.keeps_error() && client.connection.take_error().is_none());
    }
}

/// How a program learns of an error.
#[derive(Clone, Copy, Debug)]
enum By {
    Receive,
    Seek,
    /// SO_ERROR.
    Asking,
}

#[test]
fn a_close_waits_until_what_is_retransmitted_is_with_the_kernel() {
    let (client, server) = pair();
    let request = pattern(REQUEST, 13);
    client.send(&request);
    std::thread::scope(|scope| {
        let closing = scope.spawn(move || {
            client.serve();
            client.connection.close();
            drop(client.socket);
        });
        server.hand_over();
        assert!(server.rest() == request);
        closing.join().unwrap();
    });
}

#[test]
fn another_thread_that_waits_for_room_goes_on_by_tcp() {
    let (client, server) = pair();
    let request = pattern(4 * REQUEST, 14);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            client.send(&request);
            client.connection.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let waiting = scope.spawn(|| client.recv(6));
        // More is sent than fits on the ring, so the sender sleeps sooner or later.
        let mut received = Vec::new();
        while received.len() < REQUEST {
            received.extend(server.recv(10_000));
        }
        server.hand_over();
        received.extend(server.rest());
        assert!(received == request);
        (&server.socket).write_all(b"answer").unwrap();
        assert_eq!(waiting.join().unwrap(), b"answer");
        sending.join().unwrap();
    });
}

#[test]
fn both_ends_may_hand_over_at_once() {
    let (client, server) = pair();
    // As much as both socket buffers hold, since nobody reads before both are handed over.
    let (request, answer) = (pattern(15_000, 15), pattern(14_000, 16));
    client.send(&request);
    server.send(&answer);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| client.hand_over());
        server.hand_over();
        other.join().unwrap();
        let mut got = (vec![0; request.len()], vec![0; answer.len()]);
        (&server.socket).read_exact(&mut got.0).unwrap();
        (&client.socket).read_exact(&mut got.1).unwrap();
        assert!(got.0 == request && got.1 == answer);
    });
}

#[test]
fn a_ring_without_room_can_be_left() {
    let (client, server) = pair();
    let mut filled = Vec::new();
    let now = SendFlags { dont_wait: true, ..SendFlags::default() };
    // With all segments in use, and with the maximum number of descriptors that a data record may
    // have.
    for piece in [vec![7; 100_000], vec![8]] {
        while let Ok(n) = client.connection.send(&[IoSlice::new(&piece)], now) {
            filled.extend_from_slice(&piece[..n]);
        }
    }
    client.hand_over();
    assert!(!client.connection.tx_on_ring());
    (&client.socket).write_all(b"by somebody else").unwrap();
    filled.extend(b"by somebody else");
    let mut received = Vec::new();
    while received.len() < filled.len() {
        received.extend(server.recv(100_000));
    }
    assert!(received == filled);
}

#[test]
fn a_hand_over_that_nobody_answers_loses_nothing_for_this_end() {
    let (client, server) = pair();
    client.send(b"unread");
    let result =
        server.connection.hand_over(Reason::Exec, Until::after(Some(Duration::ZERO)), || ());
    assert_eq!(result, Ok(HandedOver::Later));
    assert_eq!(server.recv(100), b"unread");
    client.send(b"more");
    assert_eq!(server.recv(100), b"more");
    server.hand_over();
    client.send(b"and more");
    let mut rest = [0; 8];
    (&server.socket).read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"and more");
}

/// Bytes that this end leaves are for the new holder to receive: they are in the kernel, not in
/// this process.
#[test]
fn what_a_seek_leaves_of_a_socket_that_was_handed_over_is_there_for_the_new_holder() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let to = End::new(listener.accept().unwrap().0, Role::Accepted);
    to.hand_over();
    let bytes = pattern(695, 17);
    from.write_all(&bytes).unwrap();
    let mut taken = 0;
    for len in [200, 59] {
        let mut buf = vec![0; len];
        let all = SeekOptions::default();
        assert_eq!(
            to.connection.seek(&mut [IoSliceMut::new(&mut buf)], At::Offset(0), all, false),
            Ok(len)
        );
        assert!(buf[..] == bytes[taken..taken + len]);
        taken += len;
    }
    from.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(to.rest() == bytes[taken..]);
}

/// The new holder finds the socket as if nobody had looked ahead, and sets its own options; this
/// end still goes on.
#[test]
fn seeks_are_right_before_and_after_a_socket_is_handed_over() {
    const PIECE: usize = 20_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let to = End::new(listener.accept().unwrap().0, Role::Accepted);
    let byte = |at: usize| (at % 251) as u8;
    from.write_all(&(0..3 * PIECE).map(byte).collect::<Vec<_>>()).unwrap();
    let look = |offset: usize| {
        let mut buf = vec![0; PIECE];
        let at = At::Offset(offset as u64);
        let options = SeekOptions::PEEK;
        assert_eq!(
            to.connection.seek(&mut [IoSliceMut::new(&mut buf)], at, options, false),
            Ok(PIECE)
        );
        assert!(buf.into_iter().eq((offset..offset + PIECE).map(byte)), "wrong bytes at {offset}");
    };
    let found_by_other = || {
        let mut buf = [0; 10];
        assert_eq!(to.socket.peek(&mut buf).unwrap(), 10);
        assert!(buf.into_iter().eq((0..10).map(byte)));
    };
    look(0);
    to.hand_over();
    found_by_other();
    look(PIECE);
    found_by_other();
    look(2 * PIECE);
    // The new holder may set it. An older kernel has no such option.
    if seekwire_transport::sys::socket::set_peek_offset(Fd::from(&to.socket), 100).is_ok() {
        look(PIECE);
    }
    // A child may do the same.
    to.connection.before_fork();
    look(2 * PIECE);
}
