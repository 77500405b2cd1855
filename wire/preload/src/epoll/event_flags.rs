//! The events of a registration, in groups.

use libc::{
    EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLRDHUP,
    EPOLLRDNORM, EPOLLWRNORM,
};

pub(super) const READ: u32 = (EPOLLIN | EPOLLRDNORM) as u32;
pub(super) const WRITE: u32 = (EPOLLOUT | EPOLLWRNORM) as u32;
pub(super) const RDHUP: u32 = EPOLLRDHUP as u32;
pub(super) const EDGE: u32 = EPOLLET as u32;
pub(super) const ONE_SHOT: u32 = EPOLLONESHOT as u32;
/// At least one of the sets with such a registration is woken. A set whose doorbell rings along
/// with the others counts as one.
pub(super) const EXCLUSIVE: u32 = EPOLLEXCLUSIVE as u32;
/// Events that the kernel always reports.
pub(super) const ALWAYS: u32 = (EPOLLERR | EPOLLHUP) as u32;
