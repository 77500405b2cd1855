//! `make install`, a C program against what it installs, and `make uninstall`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Mode, Stage, library_directory, seekwire};

const INSTALLED: [&str; 16] = [
    "bin/seekwire",
    "include/seekwire.h",
    "lib/libseekwire.so",
    "lib/seekwire/libseekwire.so",
    "share/doc/seekwire/LICENSE-APACHE",
    "share/doc/seekwire/LICENSE-MIT",
    "share/doc/seekwire/README.md",
    "share/man/man1/seekwire-demo.1",
    "share/man/man1/seekwire-doctor.1",
    "share/man/man1/seekwire-lab-list.1",
    "share/man/man1/seekwire-lab-run.1",
    "share/man/man1/seekwire-lab.1",
    "share/man/man1/seekwire-run.1",
    "share/man/man1/seekwire-status.1",
    "share/man/man1/seekwire.1",
    "someone-elses-file",
];

#[test]
fn uninstall_removes_what_install_put_there() {
    let stage = Stage::new(Mode::Plain);
    let root = stage.path("root");
    fs::create_dir_all(root.join("opt")).expect("a directory");
    fs::write(root.join("opt/someone-elses-file"), "").expect("a file");
    make(&stage, "install", &root);
    assert_eq!(files(&root.join("opt")), INSTALLED.map(str::to_owned).into());
    make(&stage, "uninstall", &root);
    assert_eq!(files(&root.join("opt")), ["someone-elses-file".to_owned()].into());
}

#[test]
fn the_installed_command_finds_the_installed_library() {
    let stage = Stage::new(Mode::Accelerated);
    let root = stage.path("root");
    make(&stage, "install", &root);
    let command = root.join("opt/bin/seekwire");
    let value =
        stage.run(stage.plain_command(&command).args(["run", "sh", "-c", "echo $LD_PRELOAD"])).success();
    let library = root.join("opt/lib/seekwire/libseekwire.so");
    assert_eq!(Path::new(value.trim()), library.canonicalize().expect("the library"));
}

#[test]
fn a_c_program_uses_the_installed_header_and_library() {
    let stage = Stage::new(Mode::Accelerated);
    let root = stage.path("root");
    make(&stage, "install", &root);
    let include = format!("-I{}", root.join("opt/include").display());
    let search = format!("-L{}", root.join("opt/lib").display());
    let found_at = format!("-Wl,-rpath,{}", root.join("opt/lib").display());
    let program = stage.compile("status.c", "status", &[&include, &search, &found_at, "-lseekwire"]);

    // Linked with the library: accelerated without `seekwire run`.
    let linked = |stage: &Stage| {
        let mut command = stage.plain_command(&program);
        command.env("SEEKWIRE_DIR", stage.path("registry"));
        command
    };
    stage.run(&mut linked(&stage)).success();
    stage.run(linked(&stage).env("SEEKWIRE", "off").arg("plain")).success();
    stage.run(&mut stage.accelerated_command(&program)).success();
}

#[test]
fn the_header_is_valid_cplusplus() {
    let stage = Stage::new(Mode::Plain);
    let header = repository().join("include/seekwire.h");
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror", "-x", "c++"]).arg(header);
    stage.run(&mut command).success();
}

fn make(stage: &Stage, target: &str, root: &Path) {
    library_directory();
    let built = seekwire().parent().expect("a directory").display();
    let mut command = Command::new("make");
    command.arg("-C").arg(repository()).args(["--no-print-directory", target, "PREFIX=/opt"]);
    command.arg(format!("DESTDIR={}", root.display())).arg(format!("release={built}"));
    // Flags of an enclosing make would change this one.
    command.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    stage.run(&mut command).success();
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files and links below `directory`, relative to it.
fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let entry = entry.expect("an entry");
            if entry.file_type().expect("a type").is_dir() {
                left.push(entry.path());
            } else {
                let path = entry.path();
                found.insert(path.strip_prefix(directory).expect("below").display().to_string());
            }
        }
    }
    found
}
