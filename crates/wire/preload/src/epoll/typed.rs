//! Sets, and what they are made of, of the table's sockets.

use crate::table::SharedSocket;

pub(super) type Set = super::set::Set<SharedSocket>;
pub(super) type State = super::state::State<SharedSocket>;
pub(super) type Watch = super::watch::Watch<SharedSocket>;
