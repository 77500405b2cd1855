//! Sets and their parts, with the table's sockets as type parameter.

use crate::table::SharedSocket;

pub(super) type Set = super::set::Set<SharedSocket>;
pub(super) type State = super::state::State<SharedSocket>;
pub(super) type Watch = super::watch::Watch<SharedSocket>;
