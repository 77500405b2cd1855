//! `make install`, a C program against what it installs, and `make uninstall`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::documents;
use crate::harness::{Mode, Stage, installed, library_directory, seekwire, source};

const INSTALLED: [&str; 81] = [
    "bin/seekwire",
    "include/seekwire.h",
    "include/seekwire_filter.h",
    "lib/libseekwire.a",
    "lib/libseekwire.so",
    "lib/libseekwire.so.0",
    "lib/pkgconfig/seekwire.pc",
    "lib/seekwire/libseekwire.so",
    "lib/seekwire/libseekwire.so.0",
    "lib/seekwire/seekwire-demo",
    "lib/seekwire/seekwire-flow",
    "lib/seekwire/seekwire-lab",
    "lib/seekwire/seekwire-nic",
    "lib/seekwire/seekwire-slides",
    "lib/seekwire/seekwire-zeromq",
    "share/bash-completion/completions/seekwire",
    "share/doc/seekwire/LICENSE-APACHE",
    "share/doc/seekwire/LICENSE-MIT",
    "share/doc/seekwire/README.md",
    "share/doc/seekwire/cluster.md",
    "share/doc/seekwire/examples/checksum.c",
    "share/doc/seekwire/examples/redact.py",
    "share/doc/seekwire/examples/seek.c",
    "share/doc/seekwire/filter-protocol.md",
    "share/doc/seekwire/limits.md",
    "share/doc/seekwire/operation.md",
    "share/doc/seekwire/pipelines.md",
    "share/doc/seekwire/slides.md",
    "share/doc/seekwire/virtual-machines.md",
    "share/fish/vendor_completions.d/seekwire.fish",
    "share/man/man1/seekwire-bench.1",
    "share/man/man1/seekwire-calibrate.1",
    "share/man/man1/seekwire-demo.1",
    "share/man/man1/seekwire-doctor.1",
    "share/man/man1/seekwire-flow-check.1",
    "share/man/man1/seekwire-flow-filters.1",
    "share/man/man1/seekwire-flow-plan.1",
    "share/man/man1/seekwire-flow-run.1",
    "share/man/man1/seekwire-flow-top.1",
    "share/man/man1/seekwire-flow.1",
    "share/man/man1/seekwire-lab-list.1",
    "share/man/man1/seekwire-lab-pack.1",
    "share/man/man1/seekwire-lab-report.1",
    "share/man/man1/seekwire-lab-run.1",
    "share/man/man1/seekwire-lab-show.1",
    "share/man/man1/seekwire-lab.1",
    "share/man/man1/seekwire-nic-apply.1",
    "share/man/man1/seekwire-nic-restore.1",
    "share/man/man1/seekwire-nic-serve.1",
    "share/man/man1/seekwire-nic-show.1",
    "share/man/man1/seekwire-nic-tune.1",
    "share/man/man1/seekwire-nic.1",
    "share/man/man1/seekwire-reasons.1",
    "share/man/man1/seekwire-run.1",
    "share/man/man1/seekwire-slides-sign.1",
    "share/man/man1/seekwire-slides-worker.1",
    "share/man/man1/seekwire-slides.1",
    "share/man/man1/seekwire-status.1",
    "share/man/man1/seekwire-vm-agent.1",
    "share/man/man1/seekwire-vm-attach.1",
    "share/man/man1/seekwire-vm-detach.1",
    "share/man/man1/seekwire-vm-hold.1",
    "share/man/man1/seekwire-vm-map-add.1",
    "share/man/man1/seekwire-vm-map-remove.1",
    "share/man/man1/seekwire-vm-map.1",
    "share/man/man1/seekwire-vm-plan.1",
    "share/man/man1/seekwire-vm-status.1",
    "share/man/man1/seekwire-vm.1",
    "share/man/man1/seekwire.1",
    "share/man/man3/seek_recv.3",
    "share/man/man3/seekwire_avail.3",
    "share/man/man3/seekwire_fall_back.3",
    "share/man/man3/seekwire_recv_borrow.3",
    "share/man/man3/seekwire_recv_return.3",
    "share/man/man3/seekwire_recvmsg.3",
    "share/man/man3/seekwire_socket.3",
    "share/man/man3/seekwire_status.3",
    "share/man/man3/seekwire_version.3",
    "share/man/man7/seekwire.7",
    "share/zsh/site-functions/_seekwire",
    "someone-elses-file",
];

/// Files of `make install-debug`.
const SYMBOLS: [&str; 8] = [
    "bin/.debug/seekwire.debug",
    "lib/.debug/libseekwire.so.0.debug",
    "lib/seekwire/.debug/seekwire-demo.debug",
    "lib/seekwire/.debug/seekwire-flow.debug",
    "lib/seekwire/.debug/seekwire-lab.debug",
    "lib/seekwire/.debug/seekwire-nic.debug",
    "lib/seekwire/.debug/seekwire-slides.debug",
    "lib/seekwire/.debug/seekwire-zeromq.debug",
];

#[test]
fn debuggers_find_the_symbols_of_stripped_files() {
    let stage = Stage::new(Mode::Plain);
    let root = copied_installation(&stage);
    make(&stage, "install-debug", &root);
    for (file, directory) in
        [("seekwire", "bin"), ("libseekwire.so.0", "lib"), ("seekwire-demo", "lib/seekwire")]
    {
        let directory = root.join("opt").join(directory);
        let sections = |path: &Path| {
            let mut command = Command::new("readelf");
            stage
                .run(
                    command
                        .args(["--wide", "--sections", "--string-dump=.gnu_debuglink"])
                        .arg(path),
                )
                .success()
        };
        let stripped = sections(&directory.join(file));
        assert!(!stripped.contains(".debug_line"), "{stripped}");
        assert!(stripped.contains(&format!("{file}.debug")), "{stripped}");
        assert!(stripped.contains(".note.gnu.build-id"), "{stripped}");
        let symbols = sections(&directory.join(".debug").join(format!("{file}.debug")));
        assert!(symbols.contains(".debug_line"), "{symbols}");
    }
}

#[test]
fn uninstall_removes_what_install_put_there() {
    let stage = Stage::new(Mode::Plain);
    let root = stage.path("root");
    fs::create_dir_all(root.join("opt")).expect("a directory");
    fs::write(root.join("opt/someone-elses-file"), "").expect("a file");
    make(&stage, "install", &root);
    assert_eq!(files(&root.join("opt")), INSTALLED.map(str::to_owned).into());
    make(&stage, "install-debug", &root);
    let symbols = &files(&root.join("opt")) - &INSTALLED.map(str::to_owned).into();
    assert_eq!(symbols, SYMBOLS.map(str::to_owned).into());
    make(&stage, "uninstall", &root);
    assert_eq!(files(&root.join("opt")), ["someone-elses-file".to_owned()].into());
}

#[test]
fn the_installed_command_finds_the_installed_library() {
    let stage = Stage::new(Mode::Accelerated);
    let root = installation();
    let command = root.join("opt/bin/seekwire");
    let value = stage
        .run(stage.plain_command(&command).args(["run", "sh", "-c", "echo $LD_PRELOAD"]))
        .success();
    let library = root.join("opt/lib/seekwire/libseekwire.so");
    assert_eq!(Path::new(value.trim()), library.canonicalize().expect("the library"));
}

#[test]
fn the_installed_command_finds_its_other_programs() {
    let stage = Stage::new(Mode::Plain);
    let root = copied_installation(&stage);
    let command = root.join("opt/bin/seekwire");
    let asked = |words: &[&str]| stage.run(stage.plain_command(&command).args(words));
    let list = asked(&["lab", "list"]).success();
    assert!(list.lines().any(|line| line.starts_with("sockets ")), "{list}");
    assert!(asked(&["help", "nic", "show"]).success().contains("Usage: seekwire nic show"));

    fs::remove_file(root.join("opt/lib/seekwire/seekwire-lab")).expect("a file");
    let refused = asked(&["lab", "list"]);
    assert_eq!(refused.status.code(), Some(1));
    for words in ["lib/seekwire/seekwire-lab", "make install", "cargo build"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    asked(&["--version"]).success();
}

#[test]
fn a_c_program_uses_the_installed_header_and_library() {
    let stage = Stage::new(Mode::Accelerated);
    let root = installation();
    let include = format!("-I{}", root.join("opt/include").display());
    let search = format!("-L{}", root.join("opt/lib").display());
    let found_at = format!("-Wl,-rpath,{}", root.join("opt/lib").display());
    let program =
        stage.compile("status.c", "status", &[&include, &search, &found_at, "-lseekwire"]);

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

/// The links lead to the file, and ldconfig(8), which would make the loader's name for a library
/// that is installed by another one, finds nothing to do.
#[test]
fn the_library_is_found_by_the_linker_the_loader_and_to_be_preloaded() {
    let stage = Stage::new(Mode::Plain);
    let root = installation();
    let lib = root.join("opt/lib");
    let link = |path: &str| fs::read_link(lib.join(path)).expect("a link");
    assert_eq!(link("libseekwire.so"), Path::new("libseekwire.so.0"));
    for name in ["seekwire/libseekwire.so", "seekwire/libseekwire.so.0"] {
        assert_eq!(link(name), Path::new("../libseekwire.so.0"));
    }
    let before = files(&lib);
    stage.run(stage.plain_command("/sbin/ldconfig").args(["-n", "-N"]).arg(&lib)).success();
    assert_eq!(files(&lib), before);
    assert!(lib.join("libseekwire.so.0").symlink_metadata().expect("a file").is_file());
}

/// Builds with pkg-config, against the shared and the static library.
#[test]
fn the_installed_example_builds_as_its_manual_page_says() {
    let stage = Stage::new(Mode::Plain);
    let root = installation();
    let asked = |words: &[&str]| {
        let mut command = stage.plain_command(installed("pkg-config"));
        command.arg(format!("--define-variable=prefix={}", root.join("opt").display()));
        command.args(words).arg("seekwire").env("PKG_CONFIG_PATH", root.join("opt/lib/pkgconfig"));
        stage.run(&mut command).success()
    };
    let example = root.join("opt/share/doc/seekwire/examples/seek.c");
    assert_eq!(asked(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let cflags = asked(&["--cflags"]);
    for (library, shared) in
        [(asked(&["--libs"]), true), (asked(&["--variable=static_libs"]), false)]
    {
        let flags: Vec<&str> =
            cflags.split_whitespace().chain(library.split_whitespace()).collect();
        let program = stage.compile(example.to_str().expect("text"), "example", &flags);
        let needed = stage.run(stage.plain_command("ldd").arg(&program)).success();
        assert_eq!(needed.contains("libseekwire"), shared, "{needed}");
        let text = stage
            .run(stage.plain_command(&program).env("SEEKWIRE_DIR", stage.path("registry")))
            .success();
        assert!(text.contains("hole from 1000 to 3000") && text.contains("head 6000"), "{text}");
    }
}

/// Every page is found, and formatted without a complaint.
#[test]
fn the_manual_pages_can_be_read() {
    let stage = Stage::new(Mode::Plain);
    let root = installation();
    let pages = INSTALLED.iter().filter(|file| file.contains("/man/"));
    for page in pages.clone() {
        let mut command = stage.plain_command(installed("groff"));
        command.args(["-man", "-Tutf8", "-ww", "-s"]).arg(root.join("opt").join(page));
        let formatted = stage.run(command.current_dir(root.join("opt/share/man")));
        assert_eq!(formatted.stderr, "", "{page}");
        assert!(formatted.success().len() > 300, "{page}");
    }
    assert!(pages.count() > 10);
}

/// To a file that is installed, or to one of the repository that is there.
#[test]
fn every_link_in_the_installed_documents_leads_somewhere() {
    let root = installation();
    let directory = root.join("opt/share/doc/seekwire");
    let repository_on_the_web = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/HEAD/");
    let mut checked = 0;
    for file in files(&directory).iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(directory.join(file)).expect("a document");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let link = link.0.split('#').next().unwrap_or_default();
            let leads = match link.strip_prefix(repository_on_the_web) {
                Some(path) => repository().join(path).exists(),
                None => link.starts_with("https://") || directory.join(link).exists(),
            };
            assert!(leads, "{file}: {link}");
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} links");
}

/// Each program wrote its own pages; `seekwire` also describes the others' subcommands.
#[test]
fn the_manual_pages_agree_with_each_other_and_with_the_documents() {
    let root = installation();
    let directory = root.join("opt/share/man/man1");
    let page = |name: &str| {
        let path = directory.join(format!("{name}.1"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (mut listed, mut all) = (BTreeSet::new(), String::new());
    for file in files(&directory) {
        let name = file.strip_suffix(".1").expect("a page of section 1");
        let text = page(name);
        let synopsis = ".SH \"SYNOPSIS\"\n.nf\nseekwire";
        assert!(text.contains(synopsis), "{name}: {text}");
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2) {
            let Some(below) = pair[0].strip_suffix("(1)") else { continue };
            let about = format!("\n.SH NAME\n{below} \\- {}\n", pair[1]);
            let below = below.replace("\\-", "-");
            assert!(page(&below).contains(&about), "{name} says of {below}: {about}");
            listed.insert(format!("{below}.1"));
        }
        all += &text;
    }
    listed.insert("seekwire.1".to_owned());
    assert_eq!(listed, files(&directory));
    assert!(listed.len() > 30, "{listed:?}");

    // For tests of the project itself.
    let internal = ["SEEKWIRE_FALLBACK_AFTER", "SEEKWIRE_TEST_REGION"];
    // Constants for programs in C begin alike.
    let header =
        fs::read_to_string(repository().join("wire/include/seekwire.h")).expect("a header");
    let is_constant = |name: &str| header.contains(&format!("#define {name} "));
    let mut checked = 0;
    for (path, text) in documents::documents() {
        let names = text
            .split(|c: char| !c.is_ascii_uppercase() && c != '_')
            .filter(|word| word.starts_with("SEEKWIRE_") && *word != "SEEKWIRE_");
        for name in names.filter(|name| !internal.contains(name) && !is_constant(name)) {
            assert!(all.contains(name), "{}: {name} is in no manual page", path.display());
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} variables in the documents");
}

/// The scripts start no program: none is left.
#[test]
fn shells_complete_the_commands_and_their_options() {
    let stage = Stage::new(Mode::Plain);
    let root = copied_installation(&stage);
    fs::remove_dir_all(root.join("opt/lib")).expect("a directory");
    fs::remove_dir_all(root.join("opt/bin")).expect("a directory");
    let share = root.join("opt/share");
    let bash = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _seekwire \"$1\" \"${!#}\"; \
                printf '%s\\n' \"${COMPREPLY[@]}\"";
    let fish = "source $argv[1]; complete -C \"$argv[2..]\" | string split -f1 \\t";
    for (words, offered) in [
        (&["seekwire", ""][..], &["run", "status", "doctor", "lab", "nic"][..]),
        (&["seekwire", "lab", ""], &["list", "show", "run", "report", "pack"]),
        (&["seekwire", "lab", "run", "--weak"], &["--weak-peer", "--weak-cpu"]),
        (&["seekwire", "nic", "tune", "--"], &["--goal", "--lasting"]),
        (&["seekwire", "vm", ""], &["map", "attach", "hold", "detach", "status", "plan"]),
        (&["seekwire", "slides", "--tls"], &["--tls-certificate", "--tls-key"]),
    ] {
        let mut by_bash = stage.plain_command(installed("bash"));
        by_bash
            .args(["-c", bash])
            .arg(share.join("bash-completion/completions/seekwire"))
            .args(words);
        let mut by_fish = stage.plain_command(installed("fish"));
        by_fish
            .args(["--no-config", "-c", fish])
            .arg(share.join("fish/vendor_completions.d/seekwire.fish"));
        by_fish.args(words).env("HOME", stage.path(""));
        let mut by_zsh = stage.plain_command(installed("zsh"));
        by_zsh.arg("-f").arg(source("complete.zsh")).arg(share.join("zsh/site-functions"));
        by_zsh.arg(words.join(" ")).env("HOME", stage.path(""));
        for mut command in [by_bash, by_fish, by_zsh] {
            let text = stage.run(&mut command).success();
            let found: BTreeSet<&str> = text.lines().collect();
            assert!(offered.iter().all(|word| found.contains(word)), "{words:?}: {found:?}");
            for hidden in ["probe", "lab-peer", "left", "generate"] {
                assert!(!found.contains(hidden), "{words:?}: {found:?}");
            }
        }
    }
}

#[test]
fn a_missing_program_leaves_the_completion_of_the_others() {
    let stage = Stage::new(Mode::Plain);
    let root = copied_installation(&stage);
    fs::remove_file(root.join("opt/lib/seekwire/seekwire-lab")).expect("a file");
    let mut command = stage.plain_command(root.join("opt/bin/seekwire"));
    let generated = stage.run(command.args(["generate", "completion", "bash"]));
    assert!(generated.stderr.contains("seekwire-lab was not found"), "{}", generated.stderr);
    let script = generated.success();
    assert!(script.contains("--lasting") && script.contains("seekwire,lab)"), "{script}");
    assert!(!script.contains("--weak-peer"), "{script}");
}

/// Where everything is installed, once for all tests that leave it as it is.
fn installation() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = library_directory().join("installed");
        if root.exists() {
            fs::remove_dir_all(&root).expect("what another run has left");
        }
        make(&Stage::new(Mode::Plain), "install", &root);
        root
    })
}

/// A copy of that, for a test which removes files or adds some.
fn copied_installation(stage: &Stage) -> PathBuf {
    let root = stage.path("root");
    stage.run(Command::new("cp").arg("-al").arg(installation()).arg(&root)).success();
    root
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
