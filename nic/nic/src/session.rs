//! A session: changes an interface and restores it.

use crate::change::{self, Report};
use crate::error::Error;
use crate::interface::Interface;
use crate::kernel::Kernel;
use crate::plan::{Fate, Plan};
use crate::request_order::Device;
use crate::saved_state::Saved;
use crate::store::{Lock, Store};

/// How long settings stay, and what a session may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// True: settings stay until the session ends for any reason. False: until [`restore`].
    pub hold: bool,
    /// True if an interface that carries the default route may be changed.
    pub default_route: bool,
}

/// The right to change one interface, and the duty to restore it. The previous state is on the disk
/// before the session begins. Only one process at a time has a session for an interface.
///
/// With [`Terms::hold`], dropping the session restores the state that it found, even during a
/// panic. If the process is killed, the saved state stays, and [`left_behind`] reports it to the
/// next process.
pub struct Session<'a> {
    kernel: &'a mut Kernel,
    interface: Interface,
    /// The state before the changes, which a session that holds restores.
    base: Saved,
    /// Where `base` is saved.
    file: Store,
    /// True if this session created the saved state and has changed nothing since.
    is_unused: bool,
    hold: bool,
    _locks: Vec<Lock>,
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
        let interface = kernel.interface(name)?;
        if interface.default_route && !terms.default_route {
            return Err(Error::DefaultRoute(interface.name));
        }
        kernel.check_permission(&interface.name, interface.index)?;
        let locks = store.lock(&interface)?;
        // The previous holder of the lock may have changed the interface.
        let interface = kernel.interface_at(interface.index, &interface.name)?;
        let process = terms.hold.then(std::process::id);
        let held = store.held();
        held.renumber(&interface)?;
        store.renumber(&interface)?;
        // From now on, changes of a process that was killed before it undid them are permanent.
        let stays = if terms.hold { None } else { held.load(&interface)? };
        let (saved, file) = match held.load(&interface)? {
            Some(left) if terms.hold => (Some(left), held.clone()),
            _ => match store.load(&interface)? {
                // The earlier changes stay and so does their saved state; this session restores to
                // them.
                Some(stays) if terms.hold && stays.process.is_none() => (None, held.clone()),
                saved => (saved, store.clone()),
            },
        };
        let (mut base, file, is_unused) = match saved {
            None => {
                let base = Saved::before_changes(&interface, process);
                // A file from an earlier boot may exist.
                file.remove(&interface)?;
                file.write(&interface, &base, true)?;
                (base, file, true)
            }
            // Its process has died, since it does not hold the lock: the saved state is the
            // original.
            Some(saved) if saved.process.is_some() => {
                let mut base = saved;
                base.process = process;
                file.write(&interface, &base, false)?;
                (base, file, false)
            }
            Some(saved) => (saved, file, false),
        };
        if let Some(stays) = stays {
            if base.note_all_of(&stays) {
                file.write(&interface, &base, false)?;
            }
            held.remove(&interface)?;
        }
        Ok(Self { kernel, interface, base, file, is_unused, hold: terms.hold, _locks: locks })
    }

    /// The interface as it was when the session began.
    #[must_use]
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Reads the present state of the interface, to plan from. The interface is found even if it
    /// was renamed.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Detached`], [`Error::Kernel`].
    pub fn now(&mut self) -> Result<Interface, Error> {
        now(self.kernel, &self.interface.name, &self.base)
    }

    /// Carries out a plan. The report lists the keys that were refused; the others are changed.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Detached`], [`Error::Kernel`]: the interface cannot be read any more.
    /// [`Error::State`]: the changed keys cannot be saved.
    pub fn apply(&mut self, plan: &Plan) -> Result<Report, Error> {
        let before = self.now()?;
        if plan.is_idle() {
            return change::apply(self.kernel, &before, plan);
        }
        self.is_unused = false;
        let Self { kernel, interface, base, file, .. } = self;
        carry_out(*kernel, &before, plan, base, |base| file.write(interface, base, false))
    }

    /// Ends the session: one that holds restores the state that it found, any other leaves the
    /// interface as it is.
    ///
    /// # Errors
    ///
    /// As [`Session::apply`]; [`Error::State`]: the interface is restored, but the saved state
    /// cannot be removed.
    pub fn end(mut self) -> Result<Option<Report>, Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Option<Report>, Error> {
        // Nothing was changed.
        if std::mem::take(&mut self.is_unused) {
            self.hold = false;
            self.forget()?;
        }
        if !std::mem::take(&mut self.hold) {
            return Ok(None);
        }
        let report = back(self.kernel, &self.interface.name, &self.base)?;
        if report.is_complete() {
            self.forget()?;
        }
        Ok(Some(report))
    }

    fn forget(&self) -> Result<(), Error> {
        self.file.remove(&self.interface)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // A drop cannot report an error; if this fails, the saved state stays.
        let _ = self.finish();
    }
}

/// Restores the state that an interface had before it was first changed, except for keys that
/// others have changed since, and removes the saved state if everything was restored. If a session
/// that held the interface on top of permanent changes was killed, this restores the permanent
/// changes; a second call restores the original state.
///
/// # Errors
///
/// [`Error::NothingSaved`]; [`Error::Busy`]: a process that holds the settings restores them when it ends; others as
/// [`Session::begin`].
pub fn restore(kernel: &mut Kernel, store: &Store, name: &str) -> Result<Report, Error> {
    let interface = kernel.interface(name).map_err(|error| match error {
        Error::NoSuchInterface(name) if store.knows(&name) => Error::Gone(name),
        error => error,
    })?;
    // Without a saved state, taking the lock is pointless and perhaps not permitted.
    let held = store.held();
    match held.load(&interface).and_then(|top| Ok(top.or(store.load(&interface)?))) {
        Ok(None) => return Err(Error::NothingSaved(interface.name)),
        // The checks below report a missing permission.
        Ok(Some(_)) | Err(Error::Closed(_)) => {}
        Err(error) => return Err(error),
    }
    kernel.check_permission(&interface.name, interface.index)?;
    let _locks = store.lock(&interface)?;
    held.renumber(&interface)?;
    store.renumber(&interface)?;
    let (saved, file) = match held.load(&interface)? {
        Some(saved) => (saved, &held),
        None => (
            store.load(&interface)?.ok_or_else(|| Error::NothingSaved(interface.name.clone()))?,
            store,
        ),
    };
    let report = back(kernel, &interface.name, &saved)?;
    if report.is_complete() {
        file.remove(&interface)?;
    }
    Ok(report)
}

/// Carries out a plan, and saves which keys it changes. Drivers change keys that no plan foresees,
/// and adaptive coalescing may be off for a moment. So until the requests have been made, every key
/// that has its saved value counts as changed, in case this process is killed.
pub(crate) fn carry_out(
    device: &mut impl Device,
    before: &Interface,
    plan: &Plan,
    base: &mut Saved,
    mut save: impl FnMut(&Saved) -> Result<(), Error>,
) -> Result<Report, Error> {
    let asked = plan.items.iter().filter(|item| item.fate == Fate::Change);
    let along = plan.along.iter().map(|along| (&along.key, false));
    let mut changed = base.clone();
    changed.note(asked.map(|item| (&item.key, true)).chain(along));
    base.clone_from(&changed);
    base.note(changed.unchanged(before).iter().map(|key| (key, false)));
    save(base)?;
    let report = change::apply(device, before, plan)?;
    changed.note(report.along.iter().map(|along| (&along.key, false)));
    *base = changed;
    save(base)?;
    Ok(report)
}

/// Reads the interface of a saved state. It may have been renamed, and another one may have its
/// name.
fn now(kernel: &mut Kernel, name: &str, saved: &Saved) -> Result<Interface, Error> {
    match kernel.interface_back_at(saved.index, name) {
        Ok(now) if saved.is_of(&now) => Ok(now),
        Ok(_) | Err(Error::NoSuchInterface(_)) => Err(Error::Gone(name.to_owned())),
        Err(error) => Err(error),
    }
}

/// Restores a saved state.
fn back(kernel: &mut Kernel, name: &str, saved: &Saved) -> Result<Report, Error> {
    let now = now(kernel, name, saved)?;
    change::restore(kernel, &now, saved)
}

/// The process that should have restored the interface but died without doing so, if any.
///
/// # Errors
///
/// [`Error::Closed`], [`Error::Damaged`], [`Error::State`].
pub fn left_behind(store: &Store, interface: &Interface) -> Result<Option<u32>, Error> {
    let saved = store.held().load(interface)?.or(store.load(interface)?);
    let Some(process) = saved.and_then(|saved| saved.process) else { return Ok(None) };
    match store.try_lock(interface) {
        Ok(_) => Ok(Some(process)),
        Err(Error::Busy { .. }) => Ok(None),
        // Without permission to lock, report the process if it no longer exists.
        Err(_) => Ok(Some(process)
            .filter(|process| !std::path::Path::new(&format!("/proc/{process}")).exists())),
    }
}
