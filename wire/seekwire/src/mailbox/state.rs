//! The state of a mailbox.

use std::sync::{Condvar, Mutex};

use super::inbox::Inbox;
use super::outbox::Outbox;
use super::types::Limits;
use crate::seek::SeekSocket;

/// Sends and receives messages, each with a tag, over a stream between two mailboxes.
///
/// **Order.** A message goes to the earliest receive that matches it; a receive takes the earliest
/// message that it matches. Thus messages that match the same receive never overtake each other,
/// whatever their sizes, and no message is passed over for ever by receives that match it:
/// [`Mailbox::recv_any`] takes the earliest of all.
///
/// **Memory.** A message that a receive is waiting for goes from the stream straight into the
/// receiver's buffer. An unexpected message stays in the stream, and only its envelope is stored.
/// When such messages fill the stream's buffer, they are moved into the stream's library memory,
/// oldest first, up to its limit. Then a receive that would need yet another message fails with
/// [`RecvError::Full`], and the peer cannot send any more until something is received. A tag that
/// nobody ever asks for leads to this state. Nothing is lost, and nothing has to be opened again.
///
/// **Threads.** Any thread may call any method; several may wait for different messages at a time.
/// A mailbox has no thread of its own. Posted receives make progress only in calls that receive, or
/// that have no room to send: waiting threads do the work for the others.
///
/// **Cost.** Headers and small messages are found by looking at up to 64 KiB of the stream at a
/// time; large messages cost a look at the header and one or two receives.
///
/// ```
/// use seekwire::mailbox::{Mailbox, Selector};
/// # use std::net::{TcpListener, TcpStream};
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let left = TcpStream::connect(listener.local_addr()?)?;
/// # let right = listener.accept()?.0;
///
/// let left = Mailbox::from_tcp(left)?;
/// let right = Mailbox::from_tcp(right)?;
/// left.send(1, b"first")?;
/// left.send(2, b"second")?;
///
/// let mut buffer = [0; 16];
/// let second = right.recv(Selector::exact(2), &mut buffer)?;
/// assert_eq!(&buffer[..second.len], b"second");
/// let first = right.recv_any(&mut buffer)?;
/// assert_eq!((first.tag, &buffer[..first.len]), (1, &b"first"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`RecvError::Full`]: super::RecvError::Full
pub struct Mailbox<S: SeekSocket> {
    pub(super) stream: S,
    pub(super) limits: Limits,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) outbox: Mutex<Outbox>,
    /// Notified when the next thread may send.
    pub(super) turn: Condvar,
}
