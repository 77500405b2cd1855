//! Policies: pure functions of what happened and when. They have no threads, locks or clocks, so that
//! a simulator can drive them.

pub(crate) mod copy_state;
pub(crate) mod cut;
pub(crate) mod dealing;
pub(crate) mod fit;
pub(crate) mod guarantee;
pub(crate) mod priority;
pub(crate) mod size_bounds;
pub(crate) mod size_race;
pub(crate) mod size_tuner;
pub(crate) mod sizes;
pub(crate) mod window;
