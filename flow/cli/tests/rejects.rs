//! Units that continue without a part of their input, and report it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::harness::{chain, flow, text, write_pipeline};

const REJECTED: Option<i32> = Some(3);

/// The output of that program for these bytes.
fn through(program: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(bytes).unwrap();
    drop(input);
    child.wait_with_output().unwrap().stdout
}

#[test]
fn what_stands_behind_compressed_data_loses_none_of_them() {
    let content: String = (0..3000).map(|line| format!("line {line}\n")).collect();
    for (program, run) in [("gzip", "gunzip"), ("zstd", "unzstd")] {
        let member = through(program, content.as_bytes());
        let twice = content.repeat(2);
        let zeros = vec![0; 10_000];
        for (behind, expected, status) in [
            (&b""[..], &content, Some(0)),
            (&member[..], &twice, Some(0)),
            (&zeros[..], &content, Some(0)),
            (&zeros[..1], &content, Some(0)),
            (b"text of another kind\n", &content, REJECTED),
            (&member[..1], &content, REJECTED),
            (&[&zeros[..512], b"text"].concat(), &content, REJECTED),
            (&[&zeros[..512], &member].concat(), &content, REJECTED),
        ] {
            // Some blocks end in the middle of a member's beginning.
            for block in ["1", "7", "64KiB"] {
                let filters = [
                    ("read", &*format!("run = \"read\"\nblock = \"{block}\"")),
                    ("back", &format!("run = \"{run}\"")),
                    ("write", "run = \"write\""),
                ];
                let directory = write_pipeline("back.toml", &chain(&filters, ""));
                fs::write(directory.path().join("data"), [&member, behind].concat()).unwrap();
                let output = flow(directory.path(), &["run", "-q", "back.toml", "data"]);
                let said = text(&output.stderr);
                let what = format!("{run}, {} bytes behind, by {block}: {said}", behind.len());
                assert!(text(&output.stdout) == *expected, "{what}");
                assert_eq!(output.status.code(), status, "{what}");
                let is_reported = said.contains("filter back, copy 0: the data are complete; ")
                    && said.contains("seekwire: filter back has rejected 1\n");
                assert_eq!(is_reported, status == REJECTED, "{what}");
            }
        }
        // Trailing bytes that begin like a member are an incomplete member.
        let filters = [
            ("read", "run = \"read\""),
            ("back", &*format!("run = \"{run}\"")),
            ("write", "run = \"write\""),
        ];
        let directory = write_pipeline("back.toml", &chain(&filters, ""));
        let half = &member[..member.len() / 2];
        fs::write(directory.path().join("data"), [&member, half].concat()).unwrap();
        assert_eq!(flow(directory.path(), &["run", "back.toml", "data"]).status.code(), Some(1));
    }
}

/// Images in one directory; every third one is invalid.
fn images(directory: &Path) -> usize {
    let below = directory.join("images");
    fs::create_dir(&below).unwrap();
    for number in 0..30 {
        let content = match number % 3 {
            1 => format!("no image {number}"),
            _ => format!("P5 1 1 255\n{}", char::from(b'a' + number as u8)),
        };
        fs::write(below.join(format!("{number:02}.pgm")), content).unwrap();
    }
    10
}

fn decoding(on_error: &str, copies: usize) -> TempDir {
    let mut file = format!(
        "[filter.read]\nrun = \"read\"\nfiles = [\"*.pgm\"]\nwhole = true\n\
         [filter.decode]\nrun = \"decode-image\"\ncopies = {copies}\n{on_error}\n\
         [filter.write]\nrun = \"write\"\npath = \"decoded\"\n\
         [[stream]]\nfrom = \"read\"\nto = \"decode\"\n\
         [[stream]]\nfrom = \"decode\"\nto = \"write\"\nordered = true\n"
    );
    if on_error.contains("to =") {
        file += "[filter.rejects]\nrun = \"write\"\npath = \"rejected-{block}\"\n\
                 [[stream]]\nfrom = \"decode.rejects\"\nto = \"rejects\"\nordered = true\n";
    }
    write_pipeline("decode.toml", &file)
}

/// The gray of each image that was decoded, in order.
fn decoded(directory: &Path) -> String {
    let decoded = fs::read(directory.join("decoded")).unwrap();
    let images = decoded.chunks("P6\n1 1\n255\naaa".len());
    images.map(|image| char::from(image[image.len() - 1])).collect()
}

#[test]
fn blocks_that_are_errors_are_left_out_and_counted() {
    let expected: String =
        (0..30).filter(|number| number % 3 != 1).map(|number| char::from(b'a' + number)).collect();
    for copies in [1, 4] {
        for on_error in ["on_error = \"skip\"", "on_error = { to = \"rejects\" }"] {
            let directory = decoding(on_error, copies);
            let bad = images(directory.path());
            let output = flow(directory.path(), &["run", "-q", "decode.toml", "images"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), REJECTED, "{said}");
            assert_eq!(decoded(directory.path()), expected, "{on_error}: {said}");
            let lines =
                said.lines().filter(|line| line.starts_with("seekwire: rejected: unit 0: "));
            assert_eq!(lines.count(), bad, "{said}");
            assert!(said.contains(", block 28 (images/28.pgm): "), "{said}");
            assert!(said.ends_with(&format!("filter decode has rejected {bad}\n")), "{said}");
            let rejected =
                |at: usize| fs::read_to_string(directory.path().join(format!("rejected-{at}")));
            for at in 0..bad {
                let content = rejected(at);
                match on_error.contains("to =") {
                    true => assert_eq!(content.unwrap(), format!("no image {}", 3 * at + 1)),
                    false => assert!(content.is_err()),
                }
            }
            assert!(rejected(bad).is_err());
        }
        for on_error in ["", "on_error = \"fail\""] {
            let directory = decoding(on_error, copies);
            images(directory.path());
            let output = flow(directory.path(), &["run", "-q", "decode.toml", "images"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let named =
                [1, 4, 7, 10].map(|number| format!("block {number} (images/{number:02}.pgm): "));
            assert!(named.iter().any(|named| said.contains(named)), "{said}");
        }
    }
}

/// After filters that treat each block by itself, blocks still have the names of their files.
#[test]
fn an_error_names_the_file_and_the_position() {
    let error = |filters: &[(&str, &str)], stream: &str, unit: &str| {
        let directory = write_pipeline("error.toml", &chain(filters, stream));
        images(directory.path());
        fs::write(directory.path().join("text"), "twelve bytes".repeat(1000)).unwrap();
        let output = flow(directory.path(), &["run", "-q", "error.toml", unit]);
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let pass = "run = \"burn\"\nnanoseconds-per-byte = 0";
    let images = "run = \"read\"\nfiles = [\"*.pgm\"]\nwhole = true";
    let decode = ("decode", "run = \"decode-image\"");
    let write = ("write", "run = \"write\"");
    let said = error(&[("read", images), ("pass", pass), decode, write], "", "images");
    assert!(said.contains("filter decode, copy 0, block 1 (images/01.pgm): "), "{said}");
    // The origin of a block is right whether the source or the stream cuts it. The first one is no
    // image, either.
    let second = "block = \"5000\"";
    for (read, stream) in [("run = \"read\"", second), (&*format!("run = \"read\"\n{second}"), "")]
    {
        let skip = "run = \"decode-image\"\non_error = \"skip\"";
        let said = error(&[("read", read), ("decode", skip), write], stream, "text");
        for named in ["block 0 (text): ", "block 1 (text from byte 5000): ", "from byte 10000): "] {
            assert!(said.contains(named), "{said}");
        }
    }
}

/// The pipeline in the documents does what the text promises.
#[test]
fn the_pipeline_in_the_documents_keeps_rejects() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap();
    let mut examples =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let directory =
        write_pipeline("photos.toml", examples.find(|it| it.contains("on_error")).unwrap());
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("photos")).unwrap();
    fs::write(path("photos/a.ppm"), "P6 1 1 255\nabc").unwrap();
    fs::write(path("photos/b.png"), "no image").unwrap();
    fs::write(path("photos/c.ppm"), "P6 1 1 255\nabc").unwrap();
    let output = flow(directory.path(), &["run", "-q", "photos.toml", "photos"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), REJECTED, "{said}");
    assert!(said.contains("block 1 (photos/b.png): "), "{said}");
    assert_eq!(fs::read(path("rejected-0")).unwrap(), b"no image");
    for name in ["photos-0.jpg", "photos-1.jpg"] {
        assert!(fs::read(path(name)).unwrap().starts_with(&[0xff, 0xd8]), "{name}");
    }
}

#[test]
fn only_what_treats_each_block_by_itself_can_reject() {
    for (run, on_error, expected) in [
        ("gunzip", "\"skip\"", "gunzip does not treat each block by itself"),
        ("sha256", "\"skip\"", "sha256 does not treat each block by itself"),
        ("burn", "\"ignore\"", "`on_error` of filter step must be \"fail\", \"skip\", or a port"),
        ("burn", "{ too = \"rejects\" }", "`on_error` of filter step must be"),
        ("burn", "{ to = \"a.b\" }", "`on_error` of filter step must be"),
        ("burn", "{ to = \"out\" }", "burn has an output port out already"),
        ("burn", "{ to = \"rejects\" }", "output port step.rejects is not connected"),
    ] {
        let step = format!("run = \"{run}\"\non_error = {on_error}");
        let filters = [("read", "run = \"read\""), ("step", &*step), ("write", "run = \"write\"")];
        let directory = write_pipeline("copy.toml", &chain(&filters, ""));
        let output = flow(directory.path(), &["check", "copy.toml"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
