//! Restores an interface at the end of a session, and reports those that were not restored: one
//! before it is changed, and all for `seekwire doctor`.

use std::io::Write;

use anyhow::{Context, Result, bail};
use seekwire_nic::{Error, Interface, Kernel, Session, Store, left_behind};
use seekwire_program::standard;
use serde::Serialize;

use crate::render;

#[derive(Serialize)]
struct Finding {
    verdict: &'static str,
    found: String,
    advice: String,
}

impl Finding {
    fn ok(found: impl Into<String>) -> Self {
        Self { verdict: "ok", found: found.into(), advice: String::new() }
    }

    fn warn(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: "warn", found: found.into(), advice: advice.into() }
    }
}

/// Prints the list as one JSON object.
pub(crate) fn tell(states: &Store) -> Result<()> {
    let finding = match look(states) {
        Ok(finding) => finding,
        Err(error @ (Error::Damaged { .. } | Error::State { .. })) => {
            Finding::warn(error.to_string(), "`seekwire nic show` shows the current settings")
        }
        // Nothing of the library needs it.
        Err(error) => Finding::ok(format!("not checked: {error}")),
    };
    Ok(writeln!(standard::output()?.lock(), "{}", serde_json::to_string(&finding)?)?)
}

fn look(store: &Store) -> Result<Finding, Error> {
    let mut kernel = Kernel::open()?;
    let (mut left, mut kept, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for (name, interface) in kernel.interfaces()? {
        let Ok(interface) = interface else {
            unread.push(name);
            continue;
        };
        if left_behind(store, &interface)?.is_some() {
            left.push(name);
        } else if store.load(&interface)?.is_some() {
            kept.push(name);
        }
    }
    let restore = |names: &[String]| {
        names
            .iter()
            .map(|name| format!("`seekwire nic restore {name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    Ok(match (left.as_slice(), kept.as_slice()) {
        ([], []) if !unread.is_empty() => Finding::ok(format!(
            "no other has been changed; these cannot be read: {}",
            unread.join(", ")
        )),
        ([], []) => Finding::ok("none has been changed"),
        ([], kept) => Finding::ok(format!(
            "changed: {}; {} restores the original settings",
            kept.join(", "),
            restore(kept)
        )),
        (left, _) => Finding::warn(
            format!("left changed by a process that was killed: {}", left.join(", ")),
            format!("{} restores the original settings", restore(left)),
        ),
    })
}

/// Reports a process that died while it held the interface, or a saved state that cannot be read.
/// A missing permission to read it is not reported: without it, the interface cannot be changed
/// either, and that error follows.
pub(crate) fn tell_of_left_behind(store: &Store, interface: &Interface) {
    match left_behind(store, interface) {
        Ok(None) | Err(Error::Closed(_)) => {}
        Ok(Some(process)) => seekwire_program::tell(format_args!(
            "seekwire: {name}: process {process} changed it and ended without restoring it; \
             run `seekwire nic restore {name}`",
            name = interface.name
        )),
        Err(error) => seekwire_program::tell(format_args!("seekwire: {error}")),
    }
}

/// Ends a session that holds the interface `name`. Returns the name that it has now.
///
/// # Errors
///
/// Not everything could be restored. This error overrides any other exit status.
pub(crate) fn put_back(session: Session<'_>, name: &str) -> Result<String> {
    let back = session.end();
    let back = back.with_context(|| {
        format!("cannot restore {name}; `seekwire nic restore {name}` tries again")
    })?;
    let Some(back) = back else { return Ok(name.to_owned()) };
    let now = back.interface.clone();
    if now != name {
        seekwire_program::tell(format_args!("seekwire: {name} is called {now} now"));
    }
    for other in &back.others {
        seekwire_program::tell(format_args!(
            "seekwire: {now}: {} was {}, and somebody else has made it {}: left as it is",
            other.key, other.before, other.after
        ));
    }
    if !back.is_complete() {
        seekwire_program::tell(render::report(&now, &back).trim_end());
        let missing: Vec<String> = back.missing().map(ToString::to_string).collect();
        let missing = missing.join(", ");
        bail!("{now} is not fully restored: {missing}; `seekwire nic restore {now}` tries again");
    }
    Ok(now)
}
