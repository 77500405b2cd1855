//! A connection across fork(2) and execve(2): which other processes may hold it.

use std::sync::atomic::Ordering;

use seekwire_transport::sys::thread;

use super::data_path::{DataPath, VIOLATED};
use super::holders::Holders;
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
        self.attached().is_some_and(|data_path| self.is_only_holder(data_path))
    }

    /// Whether no other process can hold this end, which is attached. Asks the kernel if a process
    /// that held it has executed another program.
    pub(super) fn is_only_holder(&self, data_path: &DataPath) -> bool {
        self.remove_successors(data_path);
        data_path.ring.queue.is_only_holder(thread::process_id())
    }

    /// Removes holders that have executed programs without the socket, and unlisted holders if no
    /// process is left that has it.
    pub(super) fn remove_successors(&self, data_path: &DataPath) {
        data_path.ring.queue.forget_unlisted(
            thread::process_id(),
            || self.has_unread(data_path),
            || fork::is_under_way() || self.is_open_elsewhere(),
        );
        data_path.ring.queue.remove_successors(thread::process_id(), |pid| self.is_open_in(&[pid]));
    }

    /// Another program is about to inherit the socket, and nobody counts the bytes that it moves: a
    /// plain connection remains plain, in all processes.
    pub fn inherited(&self) {
        if !self.is_attached() {
            self.holders.get_or_init(|| Holders::new(thread::process_id())).inherited();
        }
    }

    /// This process is about to execute another program, which knows nothing of the ring, and
    /// `has_socket` or not.
    pub fn before_exec(&self, has_socket: bool) {
        match self.attached() {
            Some(data_path) => data_path.ring.queue.exec_begins(thread::process_id(), has_socket),
            None if has_socket => self.inherited(),
            None => {}
        }
    }

    /// The exec has failed: this process is still the same program.
    pub fn exec_failed(&self, has_socket: bool) {
        match (self.attached(), self.holders.get()) {
            (Some(data_path), _) => data_path.ring.queue.exec_failed(thread::process_id()),
            (None, Some(holders)) if has_socket => holders.not_inherited(),
            (None, _) => {}
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
            Some(data_path) => data_path.ring.queue.fork_pending(),
            None => self.holders.get_or_init(|| Holders::new(thread::process_id())).fork_pending(),
        }
    }

    /// The fork that [`Connection::before_fork`] announced has created no child, and nothing was
    /// done since. (A child that was created announces itself.)
    pub fn fork_failed(&self) {
        match (self.attached(), self.holders.get()) {
            (Some(data_path), _) => data_path.ring.queue.fork_failed(),
            (None, Some(holders)) => holders.fork_failed(),
            (None, None) => {}
        }
    }

    /// Runs first in the child: it also holds the connection, and is another process to the peer.
    pub fn after_fork_child(&self) {
        let pid = thread::process_id();
        self.after_fork_child_seeking();
        self.forget_spill_waiters();
        self.forget_holds();
        self.waiters.forget();
        match self.attached() {
            Some(data_path) => {
                data_path.ring.queue.fork_arrived(pid);
                // A child that has not inherited the other machine's memory must not go on: words
                // that it shares with the parent would report bytes that nobody ever sees.
                if fork::has_lost_memory() && data_path.has_lost_machine() {
                    data_path.broken.store(VIOLATED, Ordering::Relaxed);
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
