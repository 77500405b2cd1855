//! The files that the processes of a pipeline write. Each process knows those of the others, so
//! that it does not read them.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use sha2::{Digest, Sha256};

use crate::builtin::file_uses;

/// Where a filter writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    StandardOutput,
    /// The option `path`, as text.
    Path(String),
}

/// Identifies the files that a process sees. Empty if the system does not provide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Boot id of the host: device numbers are valid within one boot.
    boot: String,
    /// The same in processes in which each path leads to the same file.
    view: String,
    /// Device and inode of the file that is standard output.
    output: Option<(u64, u64)>,
}

impl Files {
    /// Those of this process.
    pub(crate) fn here() -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        let output = file_uses::identity(io::stdout()).ok().flatten();
        let view = || {
            let namespace = fs::read_link("/proc/thread-self/ns/mnt").ok()?;
            let root = fs::metadata("/").ok().map(|root| file_uses::number(&root))?;
            let directory = std::env::current_dir().ok()?;
            let mut digest = Sha256::new();
            digest.update(format!("{boot} {} {root:?} ", namespace.display()));
            digest.update(directory.as_os_str().as_bytes());
            Some(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
        };
        let view = view().filter(|_| !boot.is_empty()).unwrap_or_default();
        Self { boot, view, output }
    }

    pub(crate) fn to_text(&self) -> String {
        let (device, inode) = self.output.unwrap_or_default();
        format!("{} {} {device} {inode}", self.boot, self.view)
    }

    /// Empty if the text does not come from [`Self::to_text`].
    pub(crate) fn of_text(text: &str) -> Self {
        let parse = || {
            let mut parts = text.split(' ');
            let [boot, view, device, inode] = std::array::from_fn(|_| parts.next());
            let output = (device?.parse().ok()?, inode?.parse().ok()?);
            let output = Some(output).filter(|output| *output != (0, 0));
            Some(Self { boot: boot?.to_owned(), view: view?.to_owned(), output })
        };
        parse().unwrap_or_default()
    }

    /// From now on, no unit of this process, which has these files, reads or also writes that
    /// destination of a filter in the process `writer`.
    pub(crate) fn note(&self, destination: &Destination, writer: &Self, is_here: bool) {
        match destination {
            Destination::StandardOutput if is_here || is_same(&self.boot, &writer.boot) => {
                file_uses::written_throughout(writer.output);
            }
            Destination::Path(path) if !is_here && is_same(&self.view, &writer.view) => {
                file_uses::written_elsewhere(path);
            }
            // The file of a writer in this process is noted when it is opened.
            _ => {}
        }
    }
}

fn is_same(one: &str, other: &str) -> bool {
    !one.is_empty() && one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_tells_is_what_others_hear() {
        let here = Files::here();
        assert_eq!(Files::of_text(&here.to_text()), here);
        let file = Files { output: Some((7, 9)), ..here };
        assert_eq!(Files::of_text(&file.to_text()), file);
        assert_eq!(Files::of_text(&Files::default().to_text()), Files::default());
        assert_eq!(Files::of_text("nonsense"), Files::default());
    }
}
