//! Images from the test suites of other projects, compared with other readers: each has the same
//! pixels, or is as near as its lossy compression lets decoders be, or is refused for the reason in
//! tables/corpus. With `BLESS=1` in the environment, that table is rewritten.

use crate::common::{make, psnr, run};
use image::RgbImage;
use seekwire_slides_image::{Error, Limits, Raster, Region, Slide};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Minimum similarity of pixels in dB (PSNR), for lossy compression.
const NEAR: f64 = 40.0;

/// The outcome for each image, by its path.
type Outcomes = BTreeMap<String, String>;

#[test]
fn images_of_others_are_as_other_readers_see_them_or_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = run(&mut Command::new(root.join("../../scripts/slide-corpus"))).stdout;
    let corpus = PathBuf::from(String::from_utf8(corpus).unwrap().trim_end());
    let directory = tempfile::tempdir().unwrap();
    make("read_corpus.py", &[&corpus, directory.path()]);
    let index = std::fs::read(directory.path().join("index.json")).unwrap();
    let index: Vec<Value> = serde_json::from_slice(&index).unwrap();

    let (mut outcomes, mut wrong) = (Outcomes::new(), Vec::new());
    for of in &index {
        let path = of["path"].as_str().unwrap();
        match both(&corpus.join(path), of) {
            Ok(outcome) => _ = outcomes.insert(path.to_owned(), outcome),
            Err(what) => wrong.push(format!("{path}: {what}")),
        }
    }
    println!("{}", reasons(&outcomes));
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));

    let table = root.join("tests/tables/corpus");
    if std::env::var_os("BLESS").is_some() {
        let lines = outcomes.iter().map(|(path, outcome)| format!("{path}\t{outcome}\n"));
        std::fs::write(&table, lines.collect::<String>()).unwrap();
    }
    let expected = std::fs::read_to_string(&table).unwrap();
    let pairs = expected.lines().map(|line| line.split_once('\t').unwrap());
    let expected: Outcomes = pairs.map(|(path, of)| (path.to_owned(), of.to_owned())).collect();
    let paths = expected.keys().chain(outcomes.keys().filter(|path| !expected.contains_key(*path)));
    let differing: Vec<String> = paths
        .filter(|path| outcomes.get(*path) != expected.get(*path))
        .map(|path| format!("{path}: {:?}, not {:?}", outcomes.get(path), expected.get(path)))
        .collect();
    let help = "with BLESS=1, this test writes tests/tables/corpus anew";
    assert!(differing.is_empty(), "{}\n{help}", differing.join("\n"));

    let page = std::fs::read_to_string(root.join("../docs/slides.md")).unwrap();
    let missing: Vec<String> =
        summary(&outcomes).into_iter().filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "slides/docs/slides.md lacks:\n{}", missing.join("\n"));
}

/// The outcome for an image: `exact`, `near`, or the reason why it is refused. If libjpeg-turbo may
/// decode the image, the result must be at least as near. A wrong image is an error.
fn both(path: &Path, of: &Value) -> Result<String, String> {
    let own = outcome(path, of, false)?;
    if of["lossy"] == true && !own.starts_with("refused") {
        let fast = outcome(path, of, true)?;
        if fast.starts_with("refused") {
            return Err(format!("{own}, but {fast} by libjpeg-turbo"));
        }
    }
    Ok(own)
}

fn outcome(path: &Path, of: &Value, turbojpeg: bool) -> Result<String, String> {
    let refused = |error: Error| {
        let text = error.to_string().replace(&format!("{}: ", path.display()), "");
        let text = text.replace(" (OpenSlide, which may read it, is not allowed)", "");
        Ok(format!("refused: {text}"))
    };
    let slide = Slide::open(path.to_str().unwrap(), Limits { turbojpeg, ..Limits::default() });
    let slide = match slide {
        Ok(slide) => slide,
        Err(error) => return refused(error),
    };
    let sizes: Vec<_> = slide.levels().iter().map(|level| (level.width, level.height)).collect();
    if let Some(why) = of["unread"].as_str() {
        // The pixels may only now turn out to be broken.
        return match read(&slide, 0) {
            Ok(_) => Err(format!("{sizes:?} is read, but the other reader says: {why}")),
            Err(error) => refused(error),
        };
    }
    let theirs = of["levels"].as_array().unwrap();
    let size = |of: &Value| {
        let side = |at: usize| of["size"][at].as_u64().unwrap() as u32;
        (side(0), side(1))
    };
    let expected: Vec<_> = theirs.iter().map(size).collect();
    if sizes != expected {
        return Err(format!("levels are {sizes:?}, not {expected:?}"));
    }
    let least = if of["lossy"] == true { NEAR } else { f64::INFINITY };
    let mut nearest = f64::INFINITY;
    for (number, of) in theirs.iter().enumerate() {
        let ours = match read(&slide, number) {
            Ok(pixels) => pixels,
            Err(error) => return refused(error),
        };
        let (width, height) = size(of);
        let theirs = std::fs::read(of["pixels"].as_str().unwrap()).unwrap();
        let theirs = RgbImage::from_raw(width, height, theirs).unwrap();
        let near = psnr(&ours, &theirs);
        if near < least {
            return Err(format!("level {number}: {near:.1} dB, not {least}"));
        }
        nearest = nearest.min(near);
    }
    Ok(if nearest == f64::INFINITY { "exact" } else { "near" }.into())
}

fn read(slide: &Slide, level: usize) -> Result<Raster, Error> {
    let size = slide.levels()[level];
    slide.read(level, Region { x: 0, y: 0, width: size.width, height: size.height })
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "dcm")) => "DICOM",
        Some((_, "svs")) => "Aperio SVS",
        Some((_, "tif" | "tiff")) => "TIFF",
        _ => "OME-Zarr",
    }
}

/// The rows of the table in slides/docs/slides.md: for each format, the number of images with each
/// outcome.
fn summary(outcomes: &Outcomes) -> Vec<String> {
    let mut counts: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for (path, outcome) in outcomes {
        let column = match outcome.as_str() {
            "exact" => 1,
            "near" => 2,
            _ => 3,
        };
        for kind in [kind(path), "all"] {
            let counts = counts.entry(kind).or_default();
            counts[0] += 1;
            counts[column] += 1;
        }
    }
    let row = |(kind, [all, exact, near, refused]): (&str, [usize; 4])| {
        format!("| {kind:10} | {all:6} | {exact:5} | {near:4} | {refused:7} |")
    };
    counts.into_iter().map(row).collect()
}

/// The same with each reason, for the test's output.
fn reasons(outcomes: &Outcomes) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (path, outcome) in outcomes {
        *counts.entry((kind(path), outcome)).or_default() += 1;
    }
    let mut text = format!("{} images\n", outcomes.len());
    for ((kind, outcome), count) in counts {
        let _ = writeln!(text, "{count:5} {kind:10} {outcome}");
    }
    text
}
