//! Requirements on this host for making and running guests.

use std::env;
use std::path::{Path, PathBuf};

use seekwire_program::library;

use crate::experiment::Options;

/// Programs that make and run guests, or run in them, with their Debian packages.
const PROGRAMS: [(&str, &str); 16] = [
    ("bash", "bash"),
    ("cc", "gcc"),
    ("ldd", "libc-bin"),
    ("strip", "binutils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
    ("ip", "iproute2"),
    ("flock", "util-linux"),
    ("iperf3", "iperf3"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
];

/// Directories of servers and tools for root, which are not in every PATH.
const MORE_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Why no guests can run here, if so, and what to do about it.
pub(crate) fn unavailable(options: &Options) -> Option<String> {
    if env::consts::ARCH != "x86_64" {
        return Some("the virtual machines are made for x86-64".to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        env::split_paths(&path).chain(MORE_DIRECTORIES.map(PathBuf::from)).collect();
    complaint(&absent(&directories)).or_else(|| seekwire(options).err())
}

/// Whether the command and the library exist, which go into the guests.
fn seekwire(options: &Options) -> Result<(), String> {
    command(&options.program().map_err(|error| error.to_string())?)?;
    match &options.library {
        Some(library) if library.is_file() => Ok(()),
        Some(library) => Err(format!("{} was not found", library.display())),
        None => library::find().map(|_| ()).map_err(|error| error.to_string()),
    }
}

/// The command that belongs to the laboratory: beside it, as in a build directory, or where it is
/// installed.
pub(crate) fn command(laboratory: &Path) -> Result<PathBuf, String> {
    let beside = laboratory.parent().unwrap_or(Path::new("."));
    let candidates = ["", "../../bin"].map(|relative| beside.join(relative).join("seekwire"));
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let looked_at = candidates.each_ref().map(|path| path.display().to_string()).join(", ");
        format!("the command seekwire was not found (looked at {looked_at}); run `make build`")
    })
}

fn absent(directories: &[PathBuf]) -> Vec<(&'static str, &'static str)> {
    let is_there = |name: &str| directories.iter().any(|directory| directory.join(name).is_file());
    PROGRAMS.into_iter().filter(|(name, _)| !is_there(name)).collect()
}

fn complaint(absent: &[(&'static str, &'static str)]) -> Option<String> {
    let joined = |of: fn(&(&'static str, &'static str)) -> &'static str, between: &str| {
        absent.iter().map(of).collect::<Vec<_>>().join(between)
    };
    (!absent.is_empty()).then(|| {
        format!(
            "not installed: {}; `scripts/deps lab` installs what is missing (on Debian, as root: apt-get install \
             --no-install-recommends {})",
            joined(|(name, _)| name, ", "),
            joined(|(_, package)| package, " ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let directory = tempfile::tempdir().unwrap();
        for (name, _) in PROGRAMS {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let absent = || absent(&[PathBuf::from("/nowhere"), directory.path().to_owned()]);
        assert_eq!(complaint(&absent()), None);
        for name in ["qemu-system-x86_64", "busybox"] {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
        let why = complaint(&absent()).unwrap();
        assert!(why.contains("not installed: qemu-system-x86_64, busybox; `scripts/deps"), "{why}");
        assert!(why.ends_with("qemu-system-x86 busybox-static)"), "{why}");
    }

    #[test]
    fn the_command_is_found_in_a_build_and_where_it_is_installed() {
        let prefix = tempfile::tempdir().unwrap();
        let (binaries, private) = (prefix.path().join("bin"), prefix.path().join("lib/seekwire"));
        fs::create_dir_all(&binaries).unwrap();
        fs::create_dir_all(&private).unwrap();
        let find = || {
            let path = command(&private.join("seekwire-lab"));
            path.map(|path| path.canonicalize().unwrap())
        };
        let why = find().unwrap_err();
        assert!(why.contains("lib/seekwire/seekwire") && why.contains("make build"), "{why}");
        for directory in [&binaries, &private] {
            let program = directory.join("seekwire");
            fs::write(&program, "").unwrap();
            assert_eq!(find().unwrap(), program.canonicalize().unwrap());
        }
    }
}
