//! Network interfaces whose settings were changed and not put back.

use seekwire_nic::{Error, Kernel, Store, left_behind};

use super::Finding;

const CHECK: &str = "network interfaces";

pub(super) fn changed(states: &Store) -> Finding {
    match look(states) {
        Ok(finding) => finding,
        Err(error @ (Error::Damaged { .. } | Error::State { .. })) => {
            Finding::warn(CHECK, error.to_string(), "`seekwire nic show` says how the interfaces are")
        }
        // Nothing of the library needs it.
        Err(error) => Finding::ok(CHECK, format!("not looked at: {error}")),
    }
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
        names.iter().map(|name| format!("`seekwire nic restore {name}`")).collect::<Vec<_>>().join(", ")
    };
    Ok(match (left.as_slice(), kept.as_slice()) {
        ([], []) if !unread.is_empty() => {
            Finding::ok(CHECK, format!("no other has been changed; cannot be read: {}", unread.join(", ")))
        }
        ([], []) => Finding::ok(CHECK, "none has been changed"),
        ([], kept) => {
            Finding::ok(CHECK, format!("changed: {}; {} puts it back", kept.join(", "), restore(kept)))
        }
        (left, _) => Finding::warn(
            CHECK,
            format!("left changed by a process that was killed: {}", left.join(", ")),
            format!("{} puts back the settings before", restore(left)),
        ),
    })
}
