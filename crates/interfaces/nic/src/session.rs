//! A session: changes an interface and restores it.

use crate::change::{self, Report};
use crate::error::Error;
use crate::interface::Interface;
use crate::kernel::Kernel;
use crate::plan::Plan;
use crate::saved::{Lock, Saved, Store};

/// For how long settings shall stay, and what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// True: until the session ends, however it ends. False: until [`restore`].
    pub hold: bool,
    /// Whether an interface may be changed that carries the default route.
    pub default_route: bool,
}

/// The right to change one interface, and the duty to put it back. The state before is on the disk
/// as soon as there is a session. One process has a session with an interface at a time.
///
/// With [`Terms::hold`] dropping it restores what it found, in a panic, too; if the process is
/// killed, the saved state stays, and [`left_behind`] tells the next one.
pub struct Session<'a> {
    kernel: &'a mut Kernel,
    found: Interface,
    /// What a session that holds goes back to.
    base: Saved,
    /// Where that is; none: the file is that of a session that has ended.
    file: Option<Store>,
    /// Whether it was not there before, and nothing has been changed since.
    is_unused: bool,
    hold: bool,
    _lock: Lock,
}

impl<'a> Session<'a> {
    /// Locks the interface and saves its state, unless an earlier one is saved already.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchInterface`], [`Error::DefaultRoute`], [`Error::NotPermitted`],
    /// [`Error::Busy`], [`Error::Damaged`], [`Error::State`], [`Error::Kernel`]. Nothing has been
    /// changed then.
    pub fn begin(
        kernel: &'a mut Kernel,
        store: &'a Store,
        name: &str,
        terms: Terms,
    ) -> Result<Self, Error> {
        let found = kernel.interface(name)?;
        if found.default_route && !terms.default_route {
            return Err(Error::DefaultRoute(found.name));
        }
        kernel.check_permission(&found.name, found.index)?;
        let lock = store.lock(&found)?;
        let process = terms.hold.then(std::process::id);
        let held = store.held();
        if !terms.hold {
            // What its process was killed before it could put back stays from now on, too.
            held.remove(&found)?;
        }
        let (saved, file) = match held.load(&found)? {
            Some(left) => (Some(left), held),
            None => match store.load(&found)? {
                // It stays, and so does its state; this session goes back to it.
                Some(stays) if terms.hold && stays.process.is_none() => (None, held),
                saved => (saved, store.clone()),
            },
        };
        let (base, file, is_unused) = match saved {
            None => {
                let base = Saved::of(&found, process);
                // One of an earlier start of the host may be in the way.
                file.remove(&found)?;
                file.write(&found, &base, true)?;
                (base, Some(file), true)
            }
            // Its process has died, or it would have the lock: what it found is what there was.
            Some(saved) if saved.process.is_some() => {
                let mut base = saved;
                base.process = process;
                file.write(&found, &base, false)?;
                (base, Some(file), false)
            }
            Some(_) => (Saved::of(&found, None), None, false),
        };
        Ok(Self { kernel, found, base, file, is_unused, hold: terms.hold, _lock: lock })
    }

    /// The interface as it was when the session began.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.found
    }

    /// Reads the interface anew, to plan from. It is the same one if it has been given another
    /// name.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchInterface`], [`Error::Detached`], [`Error::Kernel`].
    pub fn now(&mut self) -> Result<Interface, Error> {
        now(self.kernel, &self.found.name, &self.base)
    }

    /// Does what is planned. What is refused is in the report; the rest is done.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchInterface`], [`Error::Detached`], [`Error::Kernel`]: the interface cannot be read any more.
    pub fn apply(&mut self, plan: &Plan) -> Result<Report, Error> {
        let before = self.now()?;
        self.is_unused &= plan.is_idle();
        change::apply(self.kernel, &before, plan)
    }

    /// Ends the session: one that holds puts back what it found, any other leaves the interface as
    /// it is.
    ///
    /// # Errors
    ///
    /// As [`Session::apply`]; [`Error::State`]: the interface is restored, but the saved state
    /// cannot be removed.
    pub fn end(mut self) -> Result<Option<Report>, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Option<Report>, Error> {
        // There is nothing to go back from.
        if std::mem::take(&mut self.is_unused) {
            self.hold = false;
            self.forget()?;
        }
        if !std::mem::take(&mut self.hold) {
            return Ok(None);
        }
        let report = back(self.kernel, &self.found.name, &self.base)?;
        if report.is_complete() {
            self.forget()?;
        }
        Ok(Some(report))
    }

    fn forget(&self) -> Result<(), Error> {
        self.file.as_ref().map_or(Ok(()), |file| file.remove(&self.found))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // Nobody is left to be told; the saved state stays if it fails.
        let _ = self.finish();
    }
}

/// Puts an interface back into the state before it was first changed, and forgets that state if all
/// of it came back. Where a session was killed that held it on top of what stays, into what stays;
/// another call goes on from there.
///
/// # Errors
///
/// [`Error::NothingSaved`]; [`Error::Busy`]: a process that holds the settings restores them when it ends; others as
/// [`Session::begin`].
pub fn restore(kernel: &mut Kernel, store: &Store, name: &str) -> Result<Report, Error> {
    let found = kernel.interface(name)?;
    // Without one there is nothing to lock, and perhaps no right to.
    let held = store.held();
    match held.load(&found).and_then(|top| Ok(top.or(store.load(&found)?))) {
        Ok(None) => return Err(Error::NothingSaved(found.name)),
        // What is missing is said below.
        Ok(Some(_)) | Err(Error::Closed(_)) => {}
        Err(error) => return Err(error),
    }
    kernel.check_permission(&found.name, found.index)?;
    let _lock = store.lock(&found)?;
    let (saved, file) = match held.load(&found)? {
        Some(saved) => (saved, &held),
        None => {
            (store.load(&found)?.ok_or_else(|| Error::NothingSaved(found.name.clone()))?, store)
        }
    };
    let report = back(kernel, &found.name, &saved)?;
    if report.is_complete() {
        file.remove(&found)?;
    }
    Ok(report)
}

/// Another interface may have been given the name since, and this one another.
fn now(kernel: &mut Kernel, name: &str, saved: &Saved) -> Result<Interface, Error> {
    let now = kernel.interface_back_at(saved.index, name)?;
    if saved.is_of(&now) { Ok(now) } else { Err(Error::NoSuchInterface(name.to_owned())) }
}

/// What does not come back at once is tried a second time: one setting may have detached the
/// device, which then refuses the next.
fn back(kernel: &mut Kernel, name: &str, saved: &Saved) -> Result<Report, Error> {
    let mut once = || {
        let now = now(kernel, name, saved)?;
        change::apply(kernel, &now, &Plan::back_to(&now, saved))
    };
    let first = once()?;
    let again = if first.is_complete() { None } else { Some(once()?) };
    Ok(match again {
        // Else what the first one has changed is the better account.
        Some(again) if again.missing().count() < first.missing().count() => again,
        _ => first,
    })
}

/// The process that was to restore the interface and has died without, if there is one.
///
/// # Errors
///
/// [`Error::Closed`], [`Error::Damaged`], [`Error::State`].
pub fn left_behind(store: &Store, interface: &Interface) -> Result<Option<u32>, Error> {
    let saved = store.held().load(interface)?.or(store.load(interface)?);
    let Some(process) = saved.and_then(|saved| saved.process) else { return Ok(None) };
    match store.lock(interface) {
        Ok(_) => Ok(Some(process)),
        Err(Error::Busy { .. }) => Ok(None),
        // Somebody who may not lock may still be told, if the process is not there.
        Err(_) => Ok(Some(process)
            .filter(|process| !std::path::Path::new(&format!("/proc/{process}")).exists())),
    }
}
