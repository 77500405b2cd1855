//! The wait of a call that watches several ends: poll, select and epoll_wait.
//!
//! ```text
//!   LOOK  at the connections; ask the kernel if one is ready, or only the kernel knows
//!    | nothing           ^ ^ ^
//!   SPIN  ---- news -----+ | |
//!    | in vain             | |
//!   ARM   ---- news -------+ |
//!    | nothing               |
//!   sleep  ------------------+
//! ```

use seekwire_endpoint::Config;
use seekwire_transport::spin::{PeerPlace, Seen, Spinner};
use seekwire_transport::sys::signal::HeldBack;

use crate::timeout::Timeout;

/// While a thread spins, the kernel is queried once in this many checks: every few microseconds.
const LOOKS_PER_QUESTION: u32 = 128;

/// Maximum number of kernel queries per call while each one turns up new events.
pub(crate) const MOST_QUESTIONS: u32 = 4;

/// A call that watches several ends.
pub(crate) trait Waiter {
    type Answer;
    /// Entitles the call to sleep.
    type Armed;

    /// The answer, if there is one. `asks`: the kernel has to be asked in any case.
    fn look(&mut self, asks: bool) -> Option<Self::Answer>;

    fn spin(&mut self) -> Spun;

    /// Arms what [`Waiter::look`] looks at, and looks once more; nothing if there is news.
    fn arm(&mut self) -> Option<Self::Armed>;
}

/// The result of spinning.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Spun {
    /// The kernel was queried, and has something to report.
    Asked,
    /// A connection is ready.
    Ready,
    InVain,
}

/// Stays awake until there is an answer, or all ends are armed and the call may sleep.
pub(crate) fn until_armed<W: Waiter>(
    waiter: &mut W,
    mut asks: bool,
) -> Result<W::Armed, W::Answer> {
    loop {
        if let Some(answer) = waiter.look(asks) {
            return Err(answer);
        }
        let spun = waiter.spin();
        if spun == Spun::InVain
            && let Some(armed) = waiter.arm()
        {
            return Ok(armed);
        }
        asks = spun == Spun::Asked;
    }
}

/// Checks the connections for a while, if that is likely to pay, and the kernel now and then.
pub(crate) fn stay_awake(
    spinner: &Spinner,
    peer: PeerPlace,
    timeout: &Timeout,
    signals: &mut Option<HeldBack>,
    kernel_has_events: impl Fn() -> bool,
    is_ready: impl Fn() -> bool,
) -> Spun {
    let mut looks = 0u32;
    let mut asked = false;
    let may_wait = |waited| {
        timeout.is_much_more_than(waited) && !signals.get_or_insert_with(HeldBack::new).has_come()
    };
    let has_seen = spinner.spin(Config::get().spin, peer, may_wait, || {
        looks += 1;
        asked = looks.is_multiple_of(LOOKS_PER_QUESTION) && kernel_has_events();
        if asked { Seen::Other } else { is_ready().into() }
    });
    match has_seen {
        true if asked => Spun::Asked,
        true => Spun::Ready,
        false => Spun::InVain,
    }
}
