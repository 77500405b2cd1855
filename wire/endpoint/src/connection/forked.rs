//! A connection across fork(2) and execve(2): which other processes may hold it.

use std::sync::atomic::Ordering;

use seekwire_transport::sys::thread;

use super::holders::Holders;
use super::link::{Link, VIOLATED};
use super::state::Connection;
use crate::fork;

impl Connection {
    /// Whether no other process can use the socket unseen.
    pub(super) fn is_sole_holder(&self) -> bool {
        self.holders.get().is_none_or(|holders| holders.is_alone(thread::process_id()))
    }

    /// Whether the connection is attached and ends when this process closes the socket.
    #[must_use]
    pub fn ends_with_this_process(&self) -> bool {
        self.attached().is_some_and(|link| self.is_only_holder(link))
    }

    /// Whether no other process can hold this end, which is attached. Asks the kernel if a process
    /// that held it has executed another program.
    pub(super) fn is_only_holder(&self, link: &Link) -> bool {
        self.remove_successors(link);
        link.ring.queue.is_only_holder(thread::process_id())
    }

    /// Removes holders that have executed programs without the socket, and unlisted holders if no
    /// process is left that has it.
    pub(super) fn remove_successors(&self, link: &Link) {
        link.ring.queue.forget_unlisted(thread::process_id(), || self.is_open_elsewhere(None));
        link.ring.queue.remove_successors(thread::process_id(), |pid| self.is_open_in(&[pid]));
    }

    /// This process is about to execute another program, which knows nothing of the ring.
    pub fn before_exec(&self) {
        if let Some(link) = self.attached() {
            link.ring.queue.exec_begins(thread::process_id());
        }
    }

    /// The exec has failed: this process is still the same program.
    pub fn exec_failed(&self) {
        if let Some(link) = self.attached() {
            link.ring.queue.exec_failed(thread::process_id());
        }
    }

    /// Another process may have the socket, or is about to get it: it may change what this process
    /// sets on the socket.
    pub fn set_shared(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
    }

    /// fork() is about to be called: the prepare handler of pthread_atfork(3).
    pub fn before_fork(&self) {
        self.set_shared();
        self.before_fork_seeking();
        match self.attached() {
            Some(link) => link.ring.queue.fork_pending(),
            None => self.holders.get_or_init(|| Holders::new(thread::process_id())).fork_pending(),
        }
    }

    /// The fork that [`Connection::before_fork`] announced has created no child, and nothing was
    /// done since. (A child that was created announces itself.)
    pub fn fork_failed(&self) {
        match (self.attached(), self.holders.get()) {
            (Some(link), _) => link.ring.queue.fork_failed(),
            (None, Some(holders)) => holders.fork_failed(),
            (None, None) => {}
        }
    }

    /// Runs first in the child: it also holds the connection, and is another process to the peer.
    pub fn after_fork_child(&self) {
        let pid = thread::process_id();
        self.after_fork_child_seeking();
        self.forget_found();
        self.forget_holds();
        self.waiters.forget();
        match self.attached() {
            Some(link) => {
                link.ring.queue.fork_arrived(pid);
                // A child that has not inherited the other machine's memory must not go on: words
                // that it shares with the parent would report bytes that nobody ever sees.
                if fork::has_lost_memory() && link.machine_is_gone() {
                    link.broken.store(VIOLATED, Ordering::Relaxed);
                }
            }
            None => {
                if let Some(holders) = self.holders.get() {
                    holders.fork_arrived(pid);
                }
                self.gate.begin_anew();
                self.forget_polls();
            }
        }
    }
}
