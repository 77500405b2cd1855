//! Symbolic links in slides that are directories: they are followed only as far as allowed.

use crate::common::open;
use crate::common::seeds::{Dataset, NATIVE, native, zarr_2};
use rustix::fs::{CWD, Mode, mkfifoat};
use seekwire_slides_image::{DatasetSummary, Error, FileSource, Limits, Region, Slide};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn read(slide: &Slide) -> Result<Vec<u8>, String> {
    let region = Region { x: 0, y: 0, width: 64, height: 64 };
    let raster = slide.read(0, region).map_err(|error| error.to_string())?;
    Ok(raster.pixels().to_vec())
}

#[test]
fn chunks_are_inside_of_the_directory_or_of_a_larger_one() {
    let outer = tempfile::tempdir().unwrap();
    let outer = outer.path();
    let root = outer.join("root");
    let image = root.join("image.zarr");
    for (name, bytes) in zarr_2("null", &[5; 64 * 64]) {
        let file = image.join(&name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, &bytes).unwrap();
    }
    let chunk = image.join("0/1.0.0");
    let lead_to = |path: &Path| {
        fs::remove_file(&chunk).unwrap();
        symlink(path, &chunk).unwrap();
    };
    for path in ["secret", "root/beside"] {
        fs::write(outer.join(path), [77; 64 * 64]).unwrap();
    }
    // To another chunk.
    lead_to(Path::new("0.0.0"));
    assert_eq!(read(&open(&image)).unwrap()[..3], [5; 3]);

    lead_to(Path::new("../../beside"));
    let within = |root: &Path| Slide::open_within(text(&image), root, Limits::default());
    assert_eq!(read(&within(&root).unwrap()).unwrap()[..3], [5, 77, 5]);
    let error = read(&open(&image)).unwrap_err();
    assert!(error.contains("leads out of the directory"), "{error}");

    for path in [outer.join("secret"), Path::new("../../../secret").to_owned()] {
        lead_to(&path);
        let error = read(&within(&root).unwrap()).unwrap_err();
        assert!(error.contains("0/1.0.0: a symbolic link"), "{error}");
    }
    // A missing chunk is white, and a dangling link counts as missing.
    lead_to(Path::new("nowhere"));
    assert_eq!(read(&within(&root).unwrap()).unwrap()[..3], [5, 9, 5]);

    // The directory of a level.
    fs::rename(image.join("0"), outer.join("level")).unwrap();
    symlink("../../level", image.join("0")).unwrap();
    let error = within(&root).err().unwrap().to_string();
    assert!(error.contains("leads out of the directory"), "{error}");
    let error = Slide::open_within(text(outer), &root, Limits::default()).err().unwrap();
    assert!(error.to_string().contains("leads out of the directory"), "{error}");
}

#[test]
fn files_of_a_series_are_inside_of_the_directory_or_of_a_larger_one() {
    let outer = tempfile::tempdir().unwrap();
    let outer = outer.path();
    let root = outer.join("root");
    let series = root.join("series");
    fs::create_dir_all(&series).unwrap();
    let instance = |uid: &str, (width, height): (u32, u32)| {
        let mut dataset = Dataset::slide();
        dataset.set(0x0008_0018, "UI", uid.as_bytes());
        dataset.long(0x0048_0006, width);
        dataset.long(0x0048_0007, height);
        dataset.file(NATIVE, &native(2 * 64 * 64))
    };
    fs::write(series.join("a"), instance("1.2.3", (100, 64))).unwrap();
    fs::write(root.join("beside"), instance("1.2.4", (50, 32))).unwrap();
    fs::write(outer.join("secret"), instance("1.2.5", (25, 16))).unwrap();
    symlink("../beside", series.join("b")).unwrap();
    symlink("../../secret", series.join("c")).unwrap();
    symlink("nowhere", series.join("d")).unwrap();
    for path in [&series, &series.join("a")] {
        let widths = |slide: &Slide| -> Vec<u32> {
            slide.levels().iter().map(|level| level.width).collect()
        };
        let within = Slide::open_within(text(path), &root, Limits::default()).unwrap();
        assert_eq!(widths(&within), [100, 50]);
        assert_eq!(widths(&open(path)), [100]);
    }
    // A link leads to one file, and not to others beside that.
    fs::write(root.join("unlisted"), instance("1.2.6", (25, 16))).unwrap();
    let within = Slide::open_within(text(&series.join("b")), &root, Limits::default()).unwrap();
    assert_eq!(within.levels().iter().map(|level| level.width).collect::<Vec<_>>(), [100, 50]);
}

#[test]
fn a_pipe_in_place_of_a_file_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let path = directory.join("slide");
    fs::write(directory.join("file"), "text").unwrap();
    fs::copy(directory.join("file"), &path).unwrap();
    mkfifoat(CWD, directory.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let swaps = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for name in ["pipe", "file"] {
                    fs::hard_link(directory.join(name), directory.join("new")).unwrap();
                    fs::rename(directory.join("new"), &path).unwrap();
                }
            }
        });
        let opened = (0..2000).map(|_| FileSource::open(&path));
        let wrong = opened
            .take_while(|_| !swaps.is_finished())
            .find(|opened| !matches!(opened, Ok(_) | Err(Error::Unsupported { .. })));
        over.store(true, Ordering::Relaxed);
        assert!(wrong.is_none(), "{wrong:?}");
    });
}

#[test]
fn the_beginning_of_a_file_says_of_which_series_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("one");
    let mut dataset = Dataset::slide();
    dataset.set(0x0010_0020, "LO", b"number 7");
    dataset.set(0x0008_1030, "LO", &[b'x'; 2000]);
    let whole = dataset.file(NATIVE, &native(2 * 64 * 64));
    fs::write(&file, &whole).unwrap();
    let (heading, _) = DatasetSummary::read(&file, &Limits::default()).unwrap().unwrap();
    assert_eq!((&*heading.study, &*heading.series), ("1.2.1", "1.2.2"));
    let json: serde_json::Value = serde_json::from_str(&heading.json).unwrap();
    assert_eq!(json["00100020"], serde_json::json!({"vr": "LO", "Value": ["number 7"]}));
    assert_eq!(json.as_object().unwrap().len(), 3, "{json}");
    // The rest is not examined, and malformed beginnings do no harm.
    for length in (0..whole.len().min(4000)).step_by(11) {
        fs::write(&file, &whole[..length]).unwrap();
        let _ = DatasetSummary::read(&file, &Limits::default());
    }
    dataset.set(0x0008_0016, "UI", b"1.2.840.10008.5.1.4.1.1.2");
    fs::write(&file, dataset.file(NATIVE, &native(2 * 64 * 64))).unwrap();
    assert_eq!(DatasetSummary::read(&file, &Limits::default()).unwrap(), None);
    fs::write(&file, "text").unwrap();
    assert_eq!(DatasetSummary::read(&file, &Limits::default()).unwrap(), None);
}
