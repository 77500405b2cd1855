//! The kernel and the file system of the guests: those of the project's tests, made by their
//! scripts. This program carries the scripts, so that an installed one needs no sources.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::machine::quoted;
use crate::experiment::Unavailable;
use crate::launch::{Error, Mode, Program};

macro_rules! carried {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("../../../../", $path)))),*]
    };
}

/// Paths in the sources, and the contents of these files.
const FILES: [(&str, &str); 13] = carried![
    "scripts/debian-kernel",
    "scripts/vm-image",
    "wire/tests/vm/guest/await",
    "wire/tests/vm/guest/init",
    "wire/tests/vm/guest/region.c",
    "wire/tests/vm/guest/sockets.c",
    "wire/tests/vm/guest/start",
    "wire/tests/vm/image",
    "wire/tests/vm/xen/dom0",
    "wire/tests/vm/xen/domain",
    "wire/tests/vm/xen/image",
    "wire/tests/vm/xen/vchan.c",
    "wire/tests/vm/xen/vif",
];

/// Kernels come from the network, once.
const LIMIT: Duration = Duration::from_secs(900);

/// The kind of the two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestKind {
    /// Virtual machines with ivshmem and virtio-net.
    Machines,
    /// Domains of Xen with grants and netfront.
    Xen,
}

/// Files of this host that go into the guests.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    /// The command `seekwire`.
    pub(crate) command: &'a Path,
    /// `libseekwire.so`.
    pub(crate) library: &'a Path,
    /// Other programs, and their names in the guests.
    pub(crate) programs: &'a [(&'static str, &'a Path)],
}

/// The kernel and file system that guests start from. They are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct GuestImage {
    pub(crate) kind: GuestKind,
    /// Name of the kernel.
    pub(crate) name: String,
    directory: TempDir,
}

impl GuestImage {
    /// Makes it. Fetches the necessary Debian packages, unless they are in the user's cache.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] if something is missing here, or cannot be fetched.
    pub(crate) fn make(kind: GuestKind, contents: &Contents<'_>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("seekwire-image-").tempdir()?;
        let root = directory.path();
        write(&root.join("sources")).context("cannot write the scripts that make guests")?;
        // The scripts look for the two under these names, as in a build directory.
        let release = root.join("release");
        fs::create_dir(&release)?;
        let mut programs = Vec::new();
        symlink(contents.command, release.join("seekwire"))?;
        symlink(contents.library, release.join("libseekwire.so"))?;
        for (name, path) in contents.programs {
            programs.push(root.join(name));
            symlink(path, root.join(name))?;
        }
        let script = Program::new("bash", &Mode::Plain)
            .arg(root.join("sources/scripts/vm-image"))
            .args((kind == GuestKind::Xen).then_some("--xen"))
            .args([root, &release])
            .args(programs)
            .timeout(LIMIT);
        let printed = script.run().map_err(explain)?.stdout;
        let name = printed.lines().last().context("the script named no kernel")?.to_owned();
        Ok(Self { kind, name, directory })
    }

    /// QEMU's options to start Linux from it.
    pub(super) fn kernel(&self, words: &str) -> Vec<String> {
        quoted([
            "-kernel",
            &self.path("vmlinux"),
            "-initrd",
            &self.path("initramfs"),
            "-append",
            &format!("quiet loglevel=5 panic=-1 mitigations=off {words}"),
        ])
    }

    /// QEMU's options to start Xen from it, with the words for Linux in domain 0.
    pub(super) fn xen(&self, words: &str) -> Vec<String> {
        let [xen, vmlinux, initramfs] = ["xen", "vmlinux", "initramfs"].map(|name| self.path(name));
        let domain0 =
            format!("{vmlinux} quiet loglevel=5 panic=-1 mitigations=off {words},{initramfs}");
        let own = "console=com1 com1=115200 dom0_mem=640M,max:640M loglvl=warning \
                   gnttab_max_frames=113 gnttab_max_maptrack_frames=5120";
        quoted(["-kernel", &xen, "-append", own, "-initrd", &domain0])
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// Writes the scripts and their files to the places where they expect each other.
fn write(sources: &Path) -> std::io::Result<()> {
    for (path, text) in FILES {
        let path: PathBuf = sources.join(path);
        fs::create_dir_all(path.parent().unwrap_or(sources))?;
        fs::write(&path, text)?;
        // Some of them are programs of the guests.
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A script that cannot run prints the reason in its last line.
fn explain(error: Error) -> anyhow::Error {
    let said = error.stdout().lines().last().and_then(|line| line.strip_prefix("vm: not run: "));
    match said {
        Some(why) => Unavailable(why.to_owned()).into(),
        None => anyhow::Error::new(error).context("cannot make the guests"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_that_is_sourced_or_copied_is_carried() {
        let carried = |wanted: &str| FILES.iter().any(|(path, _)| *path == wanted);
        for (_, text) in FILES {
            for word in text.split(|c: char| c.is_whitespace() || "\"';=,()".contains(c)) {
                let is_file =
                    ["scripts/", "wire/tests/vm/"].iter().any(|start| word.starts_with(start));
                let is_named = is_file && !word.ends_with('/') && !word.contains('*');
                // Those that only a comment names.
                let is_other =
                    ["scripts/vm", "wire/tests/vm/xen"].contains(&word.trim_end_matches('.'));
                assert!(!is_named || is_other || carried(word.trim_end_matches('.')), "{word}");
            }
        }
    }

    #[test]
    fn the_reason_of_a_script_that_cannot_run_is_reported() {
        let script = "echo fetching; echo 'vm: not run: no busybox; install it'; exit 4";
        let error = Program::new("sh", &Mode::Plain).args(["-c", script]).run().unwrap_err();
        let said = explain(error).context("experiment vm");
        let why = said.downcast_ref::<Unavailable>().map(Unavailable::to_string);
        assert_eq!(why.as_deref(), Some("no busybox; install it"));
        let script = "echo 'vm: FAILED: sockets.c does not build' >&2; exit 1";
        let error = Program::new("sh", &Mode::Plain).args(["-c", script]).run().unwrap_err();
        let error = explain(error);
        assert!(!error.is::<Unavailable>());
        let said = format!("{error:#}");
        assert!(said.starts_with("cannot make the guests: "), "{said}");
        assert!(said.contains("sockets.c does not build"), "{said}");
    }
}
