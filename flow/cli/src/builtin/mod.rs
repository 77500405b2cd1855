//! The filters that pipeline files can use.

mod built_filter;
mod compress;
mod compute;
mod directory_walk;
pub(crate) mod exec;
pub(crate) mod file_uses;
mod file_writers;
pub(crate) mod files;
mod filter_protocol;
mod filter_session;
mod framed;
mod images;
mod members;
pub(crate) mod process;
mod read_buffer;

use std::fmt::Write;
use std::ops::Range;

use crate::options::{Fault, OptionTable};

pub(crate) use built_filter::{Blockwise, BuiltFilter};

struct BuiltinFilter {
    name: &'static str,
    about: &'static str,
    /// Name and meaning.
    options: &'static [(&'static str, &'static str)],
    build: fn(&mut OptionTable<'_>) -> Result<BuiltFilter, Fault>,
}

const PIXELS: (&str, &str) =
    ("pixels", "most pixels that an image may have; a larger one is an error (default 100000000)");

const FILTERS: &[BuiltinFilter] = &[
    BuiltinFilter {
        name: "read",
        about: "source: the bytes of a file, of standard input, or of all files below a directory",
        options: &[
            ("path", "file; - is standard input (default: the argument of the unit of work)"),
            (
                "files",
                "path is a directory: patterns of names, with * and ?, of files to read below it",
            ),
            (
                "names",
                "true: send the names of these files, one per line, instead of their content",
            ),
            ("block", "bytes to read at once (default 64KiB)"),
            ("whole", "true: each file is one block"),
            ("end-lines", "true: add a newline to a file that does not end with one"),
        ],
        build: files::read,
    },
    BuiltinFilter {
        name: "write",
        about: "sink: writes blocks to a file, to a file for each block, or to standard output",
        options: &[(
            "path",
            "file; - is standard output (default); {} becomes the number of the unit, from 0 on, \
             {name} the name of its argument without directories and suffix, {block} the number of \
             the block",
        )],
        build: files::write,
    },
    BuiltinFilter {
        name: "gzip",
        about: "compresses with gzip; the unit becomes one member",
        options: &[("level", "0 to 9 (default 6)")],
        build: compress::gzip,
    },
    BuiltinFilter {
        name: "gunzip",
        about: "decompresses gzip, including several members",
        options: &[],
        build: compress::gunzip,
    },
    BuiltinFilter {
        name: "zstd",
        about: "compresses with Zstandard; the unit becomes one frame",
        options: &[("level", "1 to 19 (default 3)")],
        build: compress::zstd,
    },
    BuiltinFilter {
        name: "unzstd",
        about: "decompresses Zstandard, including several frames",
        options: &[],
        build: compress::unzstd,
    },
    BuiltinFilter {
        name: "sha256",
        about: "sends the SHA-256 of its input, as a line of hexadecimal digits",
        options: &[],
        build: compute::sha256,
    },
    BuiltinFilter {
        name: "count",
        about: "sends the size of its input, as a line: blocks, lines and bytes",
        options: &[("what", "blocks, lines or bytes: that number alone (default: all three)")],
        build: compute::count,
    },
    BuiltinFilter {
        name: "decode-image",
        about: "decodes each block, an image in JPEG, PNG or PNM, to a PPM of 8 bits: upright, \
                transparent parts on white, without a colour profile",
        options: &[PIXELS],
        build: images::decode,
    },
    BuiltinFilter {
        name: "scale-image",
        about: "scales each block, a PPM",
        options: &[
            ("width", "width to fit into, in pixels"),
            ("height", "height to fit into, in pixels; the shape is kept"),
            ("exact", "true: exactly this width and height, whatever the shape was"),
            ("percent", "of the original size, instead: 1 to 10000"),
            ("method", "lanczos (default), cubic, linear or nearest"),
            PIXELS,
        ],
        build: images::scale,
    },
    BuiltinFilter {
        name: "encode-image",
        about: "encodes each block, a PPM, as JPEG or PNG",
        options: &[
            ("format", "jpeg (default) or png"),
            ("quality", "of a JPEG: 1 to 100 (default 85)"),
            PIXELS,
        ],
        build: images::encode,
    },
    BuiltinFilter {
        name: "burn",
        about: "computes for a time that depends on the size of a block, and passes it on",
        options: &[("nanoseconds-per-byte", "how long (default 18)")],
        build: compute::burn,
    },
    BuiltinFilter {
        name: "exec",
        about: "any program, from its standard input to its output: a process for each copy and unit; \
                blocks after it has closed its input are dropped",
        options: &[
            ("command", "program and arguments, a list of strings"),
            ("success", "exit statuses that are no error (default [0])"),
        ],
        build: exec::exec,
    },
    BuiltinFilter {
        name: "framed",
        about: "a program that speaks the filter protocol (flow/docs/filter-protocol.md): it receives blocks \
                as frames, and its answers keep their place; a process for each copy, for all units",
        options: &[
            ("command", "program and arguments, a list of strings"),
            ("inputs", "names of its input ports (default [\"in\"]); without any it is a source"),
            ("outputs", "names of its output ports (default [\"out\"])"),
            ("largest", "size of the largest block that it may send (default 64MiB)"),
            (
                "start",
                "time that it may take to say hello, in seconds or such as \"500ms\" (default 60)",
            ),
            (
                "timeout",
                "longest time without progress before it has answered (default: unlimited)",
            ),
        ],
        build: framed::framed,
    },
];

/// Builds the filter that `run` names; `at` is the location of that name.
pub(crate) fn build(
    run: &str,
    at: Range<usize>,
    mut options: OptionTable<'_>,
) -> Result<BuiltFilter, Fault> {
    let Some(filter) = FILTERS.iter().find(|filter| filter.name == run) else {
        let names = names().collect::<Vec<_>>().join(", ");
        let message = format!("there is no filter {run}; there are {names}");
        return Err((at, message));
    };
    let built = (filter.build)(&mut options)?;
    options.finish()?;
    Ok(built)
}

/// The names of all filters.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FILTERS.iter().map(|filter| filter.name)
}

/// Describes all filters for people.
pub(crate) fn help() -> String {
    let mut text = String::new();
    for BuiltinFilter { name, about, options, .. } in FILTERS {
        let _ = writeln!(text, "{name}");
        for line in wrapped(about, COLUMNS - 4) {
            let _ = writeln!(text, "    {line}");
        }
        for (option, meaning) in *options {
            let mut before = *option;
            for line in wrapped(meaning, COLUMNS - 26) {
                let _ = writeln!(text, "    {before:22}{line}");
                before = "";
            }
        }
    }
    text
}

/// Columns of a terminal, less the margin of a manual page.
const COLUMNS: usize = 70;

/// Lines of whole words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_is_as_wide_as_a_terminal() {
        let help = help();
        assert!(
            help.lines().all(|line| line.len() <= COLUMNS && line == line.trim_end()),
            "{help}"
        );
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let of = |filter: &BuiltinFilter| -> Vec<String> {
            let options = filter.options.iter().flat_map(|(option, meaning)| [option, meaning]);
            [&filter.name, &filter.about]
                .into_iter()
                .chain(options)
                .flat_map(|text| words(text))
                .collect()
        };
        assert_eq!(words(&help), FILTERS.iter().flat_map(of).collect::<Vec<_>>());
    }
}
