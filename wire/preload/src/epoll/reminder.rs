//! Makes a set readable after a while.
//!
//! A thread that sleeps until a set becomes readable, in another set or in io_uring, sleeps in the
//! kernel: it does not check periodically for events that may come without a doorbell. So a timer
//! in the set ends that sleep, and the following wait on the set checks.

use std::ffi::c_int;
use std::io;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use seekwire_endpoint::readiness::{EDGE, READ};
use seekwire_transport::sys::fd::PrivateFd;

use super::tag::{self, Op, Tag};

pub(super) struct Reminder(PrivateFd);

impl Reminder {
    pub(super) fn new(epfd: c_int) -> io::Result<Reminder> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = PrivateFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
        tag::control(epfd, Op::Add, timer.fd().raw(), READ | EDGE, Tag::NOTHING.encode()?)?;
        Ok(Reminder(timer))
    }

    /// Fires once, after `soon`.
    pub(super) fn set(&self, soon: Duration) -> io::Result<()> {
        let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Setting a timer to 0 would disarm it.
        let it_value = Timespec { tv_sec: 0, tv_nsec: i64::from(soon.subsec_nanos()).max(1) };
        let when = Itimerspec { it_interval: nothing, it_value };
        timerfd_settime(self.0.as_fd(), TimerfdTimerFlags::empty(), &when)?;
        Ok(())
    }

    /// Resets the timer; returns true if it had made the set readable.
    pub(super) fn silence(&self) -> bool {
        rustix::io::read(self.0.as_fd(), &mut [0; 8]).is_ok()
    }
}
