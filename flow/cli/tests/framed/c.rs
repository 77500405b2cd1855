//! Filters in C, with the header for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::{root, run, through};
use crate::harness::text;

/// Compiles with every compiler found, with all warnings, and with sanitizers.
fn compiled(directory: &TempDir, source: &Path, name: &str) -> Vec<String> {
    let mut programs = Vec::new();
    for compiler in ["gcc", "clang"] {
        let program = format!("./{name}-{compiler}");
        let flags = "-std=c99 -O1 -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined \
                     -fno-sanitize-recover=all";
        let mut command = Command::new(compiler);
        command.args(flags.split_whitespace()).arg("-I").arg(root().join("flow/include"));
        command.arg(source).args(["-o", &program]).current_dir(directory.path());
        match command.output() {
            Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
            Err(_) => continue,
        }
        programs.push(program);
    }
    assert!(!programs.is_empty(), "a compiler of C is needed, of GNU or LLVM");
    programs
}

#[test]
fn the_example_in_c_computes_checksums() {
    let directory = through(&["true"], "", "ordered = true\nblock = 50000", "");
    let file = fs::read_to_string(directory.path().join("own.toml")).unwrap();
    let example = root().join("flow/examples/checksum.c");
    for program in compiled(&directory, &example, "checksum") {
        let command = format!("[\"{program}\"]\ncopies = 3");
        fs::write(directory.path().join("own.toml"), file.replace("[\"true\"]", &command)).unwrap();
        let output = run(&directory, &["data", "data"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let data = fs::read(directory.path().join("data")).unwrap();
        let mut expected = String::new();
        for (number, block) in data.chunks(50000).enumerate() {
            let mut crc = flate2::Crc::new();
            crc.update(block);
            expected += &format!("{number} {:08x}\n", crc.sum());
        }
        let out = text(&output.stdout);
        // One line of each copy at the end: together they have seen everything.
        let lines = out.lines().filter_map(|line| line.strip_suffix(" bytes"));
        let bytes: usize = lines.map(|bytes| bytes.parse::<usize>().unwrap()).sum();
        assert_eq!(bytes, 2 * data.len(), "{out}");
        let sums: String = out
            .lines()
            .filter(|line| !line.ends_with("bytes"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(sums, expected.repeat(2));
    }
}

#[test]
fn filters_in_c_say_what_went_wrong() {
    const SOURCE: &str = "
#include <seekwire_filter.h>
static unsigned char buffer[1001];
static const char *init(void *state, const char *argument, uint64_t unit,
                        struct seekwire_filter_output *out)
{
    (void)state, (void)unit, (void)out;
    printf(\"told %s\\n\", argument);
    return fflush(stdout) == 0 ? NULL : \"no standard error\";
}
static const char *process(void *state, const struct seekwire_filter_block *block,
                           struct seekwire_filter_output *out)
{
    const char *limit = (const char *)state;
    if (block->length > strtoul(limit, NULL, 10))
        return \"that is too much\";
    return seekwire_filter_send(out, 0, block->bytes, block->length) == 0 ? NULL : \"nobody reads\";
}
static const char *finalize(void *state, struct seekwire_filter_output *out)
{
    (void)state;
    return seekwire_filter_send(out, 0, NULL, 0) == 0 ? NULL : \"nobody reads\";
}
int main(int count, char **arguments)
{
    struct seekwire_filter filter = { init, process, NULL, finalize, NULL, 0 };
    if (count > 2) {
        filter.buffer = buffer;
        filter.buffer_size = sizeof buffer;
    }
    return seekwire_filter_run(&filter, arguments[1]);
}
";
    let directory = through(&["PROGRAM"], "", "block = 1000", "");
    let file = fs::read_to_string(directory.path().join("own.toml")).unwrap();
    fs::write(directory.path().join("own.c"), SOURCE).unwrap();
    for program in compiled(&directory, Path::new("own.c"), "own") {
        let try_it = |arguments: &str, block: usize| {
            let file = file.replace("\"PROGRAM\"", &format!("\"{program}\", {arguments}"));
            let file = file.replace("block = 1000", &format!("block = {block}"));
            fs::write(directory.path().join("own.toml"), file).unwrap();
            let output = run(&directory, &["data"]);
            (output.stdout.len(), text(&output.stderr))
        };
        let (len, said) = try_it("\"1000\"", 1000);
        assert_eq!((len, &*said), (1_600_000, "told data\n"));
        assert_eq!(try_it("\"1000\", \"fixed\"", 1000).0, 1_600_000);
        let (_, said) = try_it("\"5\"", 1000);
        assert!(said.contains(&format!("block 0 (data): {program}: that is too much")), "{said}");
        let (_, said) = try_it("\"5000\", \"fixed\"", 1001);
        assert!(said.contains("a block is larger than the buffer"), "{said}");
        let alone = Command::new(&program).arg("1").current_dir(directory.path()).output().unwrap();
        assert_eq!(alone.status.code(), Some(1));
        assert!(text(&alone.stderr).starts_with("filter: this program is a filter"));
    }
    // Also as C++.
    fs::write(directory.path().join("own.cc"), SOURCE).unwrap();
    let mut command = Command::new("c++");
    command.args([
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fsyntax-only",
        "-I",
    ]);
    command.arg(root().join("flow/include")).arg("own.cc").current_dir(directory.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
