//! The view that the dynamic loader and a compiler have of libseekwire.so: its name, its symbols,
//! and the header that declares those of the C API.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::elf::{DT_NEEDED, DT_SONAME, FileHeader64, SHN_UNDEF, SHT_DYNSYM};
use object::read::elf::{Dyn, FileHeader, Sym};
use object::{Endianness, StringTable};

const TABLE: &str = include_str!("tables/exports");
const HEADER: &str = include_str!("../../include/seekwire.h");

/// The name, dependencies and symbols that the dynamic loader reads from the library.
struct Library {
    name: String,
    needed: BTreeSet<String>,
    exported: BTreeSet<String>,
}

fn path() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    [deps.parent().unwrap().join("libseekwire.so"), deps.join("libseekwire.so")]
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo build -p seekwire-preload comes first")
}

fn library() -> Library {
    let data = fs::read(path()).expect("the library");
    let data = &*data;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let read = || {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let symbols = sections.symbols(endian, data, SHT_DYNSYM)?;
        let mut exported = BTreeSet::new();
        for symbol in symbols.iter().filter(|symbol| symbol.st_shndx(endian) != SHN_UNDEF) {
            let name = symbol.name(endian, symbols.strings())?;
            if !name.is_empty() {
                exported.insert(text(name));
            }
        }
        let (entries, strings) = sections.dynamic(endian, data)?.expect("a shared library");
        let strings: StringTable<_> = sections.strings(endian, data, strings)?;
        let named = |tag| {
            let of_tag = entries.iter().filter(move |entry| entry.tag(endian) == tag);
            of_tag.map(|entry| Ok(text(entry.string(endian, strings)?)))
        };
        let name = named(DT_SONAME).next().expect("a name for the loader")?;
        let needed = named(DT_NEEDED).collect::<Result<_, object::Error>>()?;
        Ok::<_, object::Error>(Library { name, needed, exported })
    };
    read().expect("an ELF file")
}

/// The names in the table, of one group or of all.
fn listed(group: Option<&str>) -> BTreeSet<String> {
    let mut of_group = false;
    let mut names = BTreeSet::new();
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            of_group = group.is_none_or(|group| line == group);
        } else if of_group {
            assert!(names.insert(line.to_owned()), "{line} is there twice");
        }
    }
    names
}

/// The functions that seekwire.h declares: the words before a parenthesis, outside of comments.
fn declared() -> BTreeSet<String> {
    let code = HEADER.split("*/").map(|part| part.split("/*").next().unwrap_or_default());
    let code: String = code.collect();
    let before_parentheses = code.split('(').map(str::trim_end);
    let names = before_parentheses
        .filter_map(|part| part.rsplit(|one: char| !one.is_alphanumeric() && one != '_').next());
    names.filter(|name| name.starts_with("seek")).map(str::to_owned).collect()
}

#[test]
fn exactly_what_is_listed_is_exported() {
    let exported = library().exported;
    let listed = listed(None);
    let too_many: Vec<_> = exported.difference(&listed).collect();
    let missing: Vec<_> = listed.difference(&exported).collect();
    assert!(
        too_many.is_empty() && missing.is_empty(),
        "exported, and not in tests/tables/exports: {too_many:?}\nin it, and not exported: {missing:?}"
    );
}

#[test]
fn the_header_declares_all_of_the_c_api() {
    assert_eq!(declared(), listed(Some("[The C API.]")));
}

/// The name that the loader looks for when it starts a program that was linked with the library.
#[test]
fn the_loader_knows_it_by_the_version_of_its_interface() {
    assert_eq!(library().name, "libseekwire.so.0");
}

/// A thread that may be cancelled at any instruction may be in any of them, and a frame with
/// cleanup code can be unwound at its calls only.
#[test]
fn no_interposed_function_has_anything_to_undo() {
    let interposed = listed(Some("[The C library's, interposed.]"));
    let [symbols, frames] = [
        ("nm", ["--dynamic", "--defined-only"].as_slice()),
        ("readelf", &["--wide", "--debug-dump=frames"]),
    ]
    .map(|(tool, arguments)| {
        let output = Command::new(tool).args(arguments).arg(path()).output().expect("binutils");
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let number = |digits: &str| u64::from_str_radix(digits, 16).expect("a hexadecimal number");
    let begins: HashMap<u64, Vec<&str>> =
        symbols.lines().fold(HashMap::new(), |mut begins, line| {
            if let [address, _, name] = line.split(' ').collect::<Vec<_>>()[..] {
                begins.entry(number(address)).or_default().push(name);
            }
            begins
        });
    let (mut looked_at, mut undo) = (0, BTreeSet::new());
    for frame in frames.split("\n\n") {
        let Some((_, place)) = frame.split_once(" pc=") else { continue };
        let begin = number(place.split("..").next().expect("a range"));
        for name in begins.get(&begin).into_iter().flatten() {
            // _exit never returns, and is not a cancellation point.
            if interposed.contains(*name) && *name != "_exit" {
                looked_at += 1;
                let data =
                    frame.lines().find_map(|line| line.trim().strip_prefix("Augmentation data:"));
                if data.is_some_and(|data| data.split_whitespace().any(|byte| byte != "00")) {
                    undo.insert(*name);
                }
            }
        }
    }
    assert!(looked_at > 100, "{looked_at}");
    assert!(undo.is_empty(), "{undo:?}");
}

/// Programs also have to start in minimal images, which have no libgcc_s.
#[test]
fn it_needs_the_c_library_alone() {
    let of_c = |name: &String| name.starts_with("libc.so") || name.starts_with("ld-linux");
    let needed = library().needed;
    assert!(!needed.is_empty() && needed.iter().all(of_c), "{needed:?}");
}

/// In every order with the headers that define similar names, and without any warning.
#[test]
fn the_header_goes_with_those_of_the_system() {
    const OTHERS: [&str; 6] =
        ["stdio.h", "unistd.h", "fcntl.h", "sys/socket.h", "linux/fs.h", "linux/tcp.h"];
    // Each of them before it, and after it; the values of the system must stay unchanged.
    let after = OTHERS.map(|other| format!("#include <{other}>\n")).concat();
    let check = "#if SEEK_SET != 0 || SEEK_END != 2 || SEEK_DATA != 3 || SEEK_HOLE != 4\n#error\n#endif\n\
                 int main(void) { return seekwire_version() == NULL || SEEKWIRE_PARTIAL == 0; }\n";
    let texts = [
        format!("#include <seekwire.h>\n{after}{check}"),
        format!("{after}#include <seekwire.h>\n#include <seekwire.h>\n{check}"),
        "#include <seekwire.h>\nint main(void) { return seekwire_version() == 0; }\n".to_owned(),
    ];
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header");
    fs::create_dir_all(&directory).unwrap();
    let mut tried = BTreeSet::new();
    for (compilers, suffix, standard) in
        [(["gcc", "clang"], "c", "-std=c11"), (["g++", "clang++"], "cc", "-std=c++17")]
    {
        for compiler in compilers {
            for (at, text) in texts.iter().enumerate() {
                let source = directory.join(format!("{at}.{suffix}"));
                fs::write(&source, text).unwrap();
                for defined in [&["-D_GNU_SOURCE"][..], &[]] {
                    // Without it, the C library does not declare the names that the test needs.
                    if defined.is_empty() && at < 2 {
                        continue;
                    }
                    if compiles(compiler, standard, defined, &source) {
                        tried.insert(suffix);
                    }
                }
            }
        }
    }
    assert_eq!(tried.len(), 2, "a compiler of C and one of C++ are needed, of GNU or LLVM");
}

/// Whether the compiler exists.
fn compiles(compiler: &str, standard: &str, defined: &[&str], source: &Path) -> bool {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let result = Command::new(compiler)
        .args([standard, "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(defined)
        .arg("-I")
        .arg(include)
        .arg(source)
        .output();
    let Ok(output) = result else { return false };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {standard} {defined:?}: {said}");
    true
}
