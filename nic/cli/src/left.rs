//! Lists interfaces that were changed and not restored, for `seekwire doctor`.

use std::io::Write;

use anyhow::Result;
use seekwire_nic::{Error, Kernel, Store, left_behind};
use seekwire_program::standard;
use serde::Serialize;

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
