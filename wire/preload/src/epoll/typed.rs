//! Sets and their parts, with the table's sockets as type parameter.

use crate::table::SharedSocket;

pub(super) type Set = super::set::EpollSet<SharedSocket>;
pub(super) type SetState = super::state::SetState<SharedSocket>;
pub(super) type Watch = super::watch::Watch<SharedSocket>;
