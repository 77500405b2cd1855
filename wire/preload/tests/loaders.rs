//! Programs that cannot load this library, started by one that has loaded it.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{compile, library, output};

const METHODS: [&str; 18] = [
    "execve",
    "execv",
    "execvp",
    "execvpe",
    "execl",
    "execlp",
    "execle",
    "fexecve",
    "fexecve-path",
    "execveat",
    "syscall",
    "posix_spawn",
    "posix_spawnp",
    "vfork",
    "fork-of-threads",
    "system",
    "popen",
    "after-a-failure",
];

/// A directory for a test, with the program that starts others.
fn directory(name: &str) -> (PathBuf, PathBuf) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loaders").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let starter = compile("exec_methods", &directory, &[]);
    (directory, starter)
}

/// The variables that `program` reports when it is started in this way.
fn output_of(starter: &Path, method: &str, program: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(starter);
    let path = std::env::var("PATH").unwrap();
    command.arg(method).arg(program).env_remove("OTHER").env("SEEKWIRE_DIR", "/nowhere");
    command.env("PATH", format!("{}:{path}", program.parent().unwrap().display()));
    command.envs(variables.iter().copied());
    let output = output(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{method}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The GNU C library's loader under another name, and a program that requests it.
fn with_other_loader(directory: &Path) -> PathBuf {
    let real = if cfg!(target_arch = "x86_64") {
        "/lib64/ld-linux-x86-64.so.2"
    } else {
        "/lib/ld-linux-aarch64.so.1"
    };
    let other = directory.join("ld-other.so.1");
    symlink(real, &other).unwrap();
    compile("print_environment", directory, &[&format!("-Wl,--dynamic-linker={}", other.display())])
}

fn script(path: &Path, interpreter: &Path) -> PathBuf {
    fs::write(path, format!("#! {} \nnothing\n", interpreter.display())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

#[test]
fn a_program_with_another_loader_does_not_get_the_library() {
    let (directory, starter) = directory("other");
    let program = with_other_loader(&directory);
    let of_script = script(&directory.join("script"), &program);
    let of_scripts = script(&directory.join("scripts"), &of_script);
    let own = library().into_os_string().into_string().unwrap();
    let both = format!("libm.so.6:{own} libdl.so.2");
    for method in METHODS {
        let of = |value, program| {
            output_of(&starter, method, program, &[("LD_PRELOAD", value), ("OTHER", "x")])
        };
        for program in [&program, &of_script, &of_scripts] {
            assert_eq!(of(&own, program), "none, OTHER=x\n", "{method}");
        }
        assert_eq!(of(&both, &program), "libm.so.6:libdl.so.2, OTHER=x\n", "{method}");
    }
}

#[test]
fn an_environment_may_be_long() {
    let (directory, starter) = directory("long");
    let program = with_other_loader(&directory);
    let others = ["libm.so.6"; 300].join(":");
    let value = format!("{others}:{}", library().display());
    let names: Vec<String> = (0..400).map(|number| format!("NUMBER_{number}")).collect();
    let mut variables: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    variables.push(("LD_PRELOAD", &value));
    for method in METHODS {
        assert_eq!(
            output_of(&starter, method, &program, &variables),
            format!("{others}, OTHER=none\n"),
            "{method}"
        );
    }
}

#[test]
fn a_program_with_the_same_loader_or_none_gets_the_library() {
    let (directory, starter) = directory("same");
    let own = library().into_os_string().into_string().unwrap();
    let dynamic = compile("print_environment", &directory, &[]);
    let statics = directory.join("static");
    fs::create_dir(&statics).unwrap();
    let alone = compile("print_environment", &statics, &["-static"]);
    for method in METHODS {
        for program in [&dynamic, &alone] {
            let said = output_of(&starter, method, program, &[("LD_PRELOAD", &own)]);
            assert_eq!(said, format!("{own}, OTHER=none\n"), "{method}");
        }
    }
}

#[test]
fn a_program_for_musl_runs() {
    let (directory, starter) = directory("musl");
    let program = directory.join("print_environment");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/print_environment.c");
    let compiled = Command::new("musl-gcc").arg("-o").arg(&program).arg(source).status();
    if compiled.is_err() {
        eprintln!("not tried: there is no musl-gcc (Debian package musl-tools)");
        return;
    }
    assert!(compiled.unwrap().success());
    let own = library().into_os_string().into_string().unwrap();
    for method in METHODS {
        let said = output_of(&starter, method, &program, &[("LD_PRELOAD", &own)]);
        assert_eq!(said, "none, OTHER=none\n", "{method}");
    }
}
