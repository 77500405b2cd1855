//! ^C: kills every child of the laboratory, then lets the work unwind through its usual error path.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use seekwire_program::signals;
use signal_hook::iterator::Signals;

use super::Error;

/// How long the work may still unwind after a second signal: it removes its files, which otherwise
/// stay, some of them in memory.
const GRACE: Duration = Duration::from_secs(3);

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Process groups of all children that have not been reaped. A group is removed before its leader
/// is reaped, so a number in here cannot have been given to a process that is not ours.
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Number of changes that must be undone before this process ends.
static OBLIGATIONS: AtomicUsize = AtomicUsize::new(0);

/// While it lives, the signals that ask a process to exit only make [`check`] fail, however often
/// they arrive; SIGKILL and crashes end it at once.
#[derive(Debug)]
pub struct Obligation(());

impl Obligation {
    /// Starts to hold interruptions back.
    pub fn take() -> Self {
        OBLIGATIONS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Obligation {
    fn drop(&mut self) {
        OBLIGATIONS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// From now on the signals of [`signals::ending`] kill the children and make [`check`] fail; a
/// second one ends this process if it still runs a moment later, unless there is an obligation to
/// undo a change. Calling it
/// again has no effect.
pub fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // Without the handler ^C still ends the laboratory, only less tidily.
        let Ok(mut signals) = Signals::new(signals::ending()) else { return };
        thread::spawn(move || {
            for signal in signals.forever() {
                let again = REQUESTED.swap(true, Ordering::SeqCst);
                for &group in groups().iter() {
                    kill(group);
                }
                if again {
                    thread::sleep(GRACE);
                    if OBLIGATIONS.load(Ordering::SeqCst) == 0 {
                        std::process::exit(128 + signal);
                    }
                }
            }
        });
    });
}

/// Fails once the user has asked to stop.
///
/// # Errors
///
/// [`Error::Interrupted`].
pub fn check() -> Result<(), Error> {
    if REQUESTED.load(Ordering::SeqCst) { Err(Error::Interrupted) } else { Ok(()) }
}

/// Groups must be locked while children are forked or reaped, so that a signal kills exactly the
/// living ones.
pub(super) fn groups() -> MutexGuard<'static, BTreeSet<i32>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all processes of a group; it may have none left.
pub(super) fn kill(group: i32) {
    if let Some(group) = Pid::from_raw(group) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}
