use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;
use crate::sys::poll::{self, Events};
use crate::sys::{call, socket};

fn is_rung(doorbell: &Doorbell) -> bool {
    poll::look(doorbell.fd(), Events::READ).unwrap().read
}

/// The doorbells of two ends on two machines: of each its own and the peer's.
fn machines() -> [(Doorbell, Doorbell); 2] {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    [one, other].map(|socket| {
        socket.set_nodelay(true).unwrap();
        Doorbell::remote_pair(PrivateFd::new(socket.into()).unwrap(), || None).unwrap()
    })
}

fn until_rung(doorbell: &Doorbell) {
    while !is_rung(doorbell) {
        std::thread::yield_now();
    }
}

#[test]
fn a_ring_crosses_to_the_other_machine_and_is_silenced_there() {
    let [(here, of_there), (there, of_here)] = machines();
    assert!(!is_rung(&here) && !is_rung(&there));
    of_there.ring();
    until_rung(&there);
    assert!(!is_rung(&here));
    there.quiet();
    assert!(!is_rung(&there));
    of_here.ring();
    until_rung(&here);
    here.quiet();
    assert!(!is_rung(&here) && !here.is_over());
}

#[test]
fn an_end_wakes_its_own_sleepers_too() {
    let [(here, _), (there, _)] = machines();
    here.ring();
    assert!(is_rung(&here) && !is_rung(&there));
    here.quiet();
    assert!(!is_rung(&here));
}

#[test]
fn a_ringer_that_does_not_stop_neither_blocks_nor_is_lost() {
    let [(here, _of_there), (_there, of_here)] = machines();
    (0..100_000).for_each(|_| of_here.ring());
    until_rung(&here);
    while is_rung(&here) {
        here.quiet();
    }
    of_here.ring();
    until_rung(&here);
}

#[test]
fn a_wake_channel_that_nobody_silences_carries_rings_until_it_is_closed() {
    let [(here, _of_there), (there, of_here)] = machines();
    // As an edge-triggered set does: each ring is an event of its own.
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&set, &here, epoll::EventData::new_u64(0), edges).unwrap();
    let mut events =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    for _ in 0..20 * wake_channel::MOST_UNREAD {
        of_here.ring();
        while epoll::wait(&set, &mut events[..], None).unwrap() == 0 {}
        let _ = here.make_room(|| true);
    }
    let Bell::Here { wake_channel, .. } = &here.bell else { panic!("a wake channel") };
    assert!(
        rustix::io::ioctl_fionread(&wake_channel.socket).unwrap()
            <= u64::from(4 * wake_channel::MOST_UNREAD)
    );
    drop((there, of_here));
    while !here.is_over() {
        let _ = here.make_room(|| true);
    }
}

/// Bytes that the ringer's kernel keeps since they were not acknowledged.
fn unacknowledged(doorbell: &Doorbell) -> usize {
    let Bell::There(wake_channel) = &doorbell.bell else { panic!("on another machine") };
    socket::unsent(wake_channel.socket.fd()).unwrap()
}

#[test]
fn rings_are_acknowledged_before_the_next_one_would_be_held_back() {
    for is_silenced in [true, false] {
        let [(here, of_there), (there, of_here)] = machines();
        // From its first answer on, a kernel puts acknowledgements off.
        for (ringer, sleeper) in [(&of_here, &here), (&of_there, &there)] {
            ringer.ring();
            until_rung(sleeper);
            sleeper.quiet();
        }
        let Bell::Here { wake_channel, .. } = &here.bell else { panic!("a wake channel") };
        let (mut held_back, mut times) = (false, 0);
        let unread = || socket::unread(wake_channel.socket.fd()).unwrap();
        for _ in 0..200 {
            let left = unread();
            of_here.ring();
            let before = std::mem::replace(&mut held_back, unacknowledged(&of_here) > 10);
            times += u32::from(!before && held_back);
            while unread() == left {
                std::thread::yield_now();
            }
            if is_silenced {
                here.quiet();
            } else {
                let _ = here.make_room(|| false);
            }
        }
        // An acknowledgement may itself have to wait for a processor.
        assert!(times <= 5, "{times}");
    }
}

#[test]
fn room_is_made_without_a_ring_where_nobody_else_waits() {
    let [(here, _of_there), (_there, of_here)] = machines();
    let Bell::Here { event, wake_channel, .. } = &here.bell else { panic!("a wake channel") };
    let is_rung = || poll::look(Fd::from(&event.as_fd()), Events::READ).unwrap().read;
    for others in [false, true] {
        of_here.ring();
        until_rung(&here);
        while !here.make_room(|| others) {}
        assert_eq!(is_rung(), others);
        assert_eq!(socket::unread(wake_channel.socket.fd()).unwrap(), 0);
    }
}

/// Has the kernel answer all sends of this thread with an error, for the rest of its life.
fn have_sends_fail(error: Errno) {
    let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    // Of the number of the call: BPF_LD, BPF_JMP, BPF_RET.
    let mut program = [
        step(0x20, 0, 0),
        step(0x15, 1, libc::SYS_sendto as u32),
        step(0x06, 0, 0x7fff_0000),
        step(0x06, 0, 0x0005_0000 | error.raw_os_error() as u32),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    let place = (&raw const filter).expose_provenance();
    let [privileges, filters] =
        [libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_SECCOMP].map(|option| option as usize);
    // SAFETY: the kernel copies the program, which is valid while it does.
    unsafe {
        call(libc::SYS_prctl, [privileges, 1, 0, 0, 0, 0]).unwrap();
        let mode = libc::SECCOMP_MODE_FILTER as usize;
        call(libc::SYS_prctl, [filters, mode, place, 0, 0, 0]).unwrap();
    }
}

#[test]
fn a_ring_for_which_there_was_no_memory_is_rung_again() {
    for error in [Errno::AGAIN, Errno::NOBUFS] {
        let [(here, _of_there), (_there, of_here)] = machines();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                have_sends_fail(error);
                of_here.ring();
            });
        });
        assert!(of_here.is_owed() && !of_here.is_over() && !is_rung(&here));
        of_here.ring_owed();
        until_rung(&here);
        assert!(!of_here.is_owed());
    }
}

#[test]
fn a_wake_channel_without_memory_for_rings_is_closed_at_both_ends() {
    let [(here, of_there), (there, of_here)] = machines();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            have_sends_fail(Errno::NOMEM);
            of_here.ring();
            while !of_here.is_over() {
                of_here.ring_owed();
                std::thread::yield_now();
            }
        });
    });
    until_rung(&here);
    here.quiet();
    assert!(here.is_over() && of_there.is_over() && there.is_over());
}

#[test]
fn the_end_of_a_wake_channel_is_seen_behind_rings() {
    let [(here, of_there), (there, of_here)] = machines();
    assert!(!here.is_over_by(Deadline::after(Some(Duration::ZERO))));
    of_here.ring();
    drop((there, of_here));
    assert!(here.is_over_by(Deadline::NEVER) && of_there.is_over());
}

#[test]
fn a_wake_channel_that_is_closed_rings_once_more_for_forks() {
    let [(here, of_there), (there, of_here)] = machines();
    drop((there, of_here));
    until_rung(&here);
    here.quiet();
    assert!(here.is_over() && of_there.is_over() && is_rung(&here));
    here.quiet();
    assert!(!is_rung(&here));
    of_there.ring();
    here.ring();
    assert!(is_rung(&here));
}
