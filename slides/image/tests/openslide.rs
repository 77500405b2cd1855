//! Slides read through OpenSlide, which scripts/deps test installs, and the behaviour without it.

use crate::common::{aperio, base, make, make_of, open, ppm, psnr, run, vips, whole};
use seekwire_slides_image::{Error, Limits, Region, Slide};
use std::path::Path;
use std::process::Command;

/// Set if a test runs in a process where OpenSlide cannot be loaded.
const WITHOUT: &str = "SEEKWIRE_TEST_WITHOUT_OPENSLIDE";

/// Set if version 4 is the one loaded.
const NEWER: &str = "SEEKWIRE_TEST_NEWER_OPENSLIDE";

fn allowed() -> Limits {
    Limits { openslide: true, ..Limits::default() }
}

fn through(path: &Path) -> Result<Slide, Error> {
    Slide::through_openslide(path, allowed())
}

#[test]
fn a_real_slide_is_the_same_through_openslide() {
    let path = aperio();
    let (ours, theirs) = (open(&path), through(&path).unwrap());
    assert_eq!(theirs.format(), "openslide");
    assert_eq!(theirs.properties()["openslide.vendor"], "aperio");
    assert_eq!(theirs.properties()["aperio.AppMag"], ours.properties()["aperio.AppMag"]);
    assert_eq!(theirs.levels(), ours.levels());
    assert_eq!(theirs.microns_per_pixel(), ours.microns_per_pixel());
    // Across tiles, at the lower right corner, and beyond.
    for (x, y, width, height) in [(0, 0, 1, 1), (235, 479, 301, 199), (2001, 2800, 400, 300)] {
        let region = Region { x, y, width, height };
        let (ours, theirs) = (ours.read(0, region).unwrap(), theirs.read(0, region).unwrap());
        let ratio = psnr(&ours, &picture(&theirs));
        assert!(ratio > 40.0, "{ratio} dB at {x}, {y}");
    }
    let names = |slide: &Slide| slide.associated_names().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(&theirs), names(&ours));
    for name in names(&ours) {
        let image = |slide: &Slide| slide.associated(&name).unwrap().unwrap();
        let ratio = psnr(&image(&ours), &picture(&image(&theirs)));
        assert!(ratio > 40.0, "{name}: {ratio} dB");
    }
    // Tiles are pixels, which another process uses directly.
    let tile = theirs.tile(0, 3, 2).unwrap();
    let again = seekwire_slides_image::StoredTile::from_block(&tile.to_block().into()).unwrap();
    let region = Region { x: 3 * 240, y: 2 * 240, width: 240, height: 240 };
    let pixels = again.decode(&Limits::default()).unwrap();
    assert_eq!(pixels, theirs.read(0, region).unwrap());
    assert_eq!(theirs.stored_jpeg(0, region).unwrap(), None);
}

fn picture(raster: &seekwire_slides_image::Raster) -> image::RgbImage {
    let pixels = raster.pixels().to_vec();
    image::RgbImage::from_raw(raster.width(), raster.height(), pixels).unwrap()
}

#[test]
fn every_level_of_a_pyramid_is_the_same_through_openslide() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // Each level has half the size: OpenSlide takes coordinates of level 0.
    base(directory);
    vips(directory, "extract_area base.v even.v 0 0 1024 768");
    // Without the last level of vips, which is smaller than its tile.
    let file = pyramid_of_aperio(directory, "deflate", 3);
    let (ours, theirs) = (open(&file), through(&file).unwrap());
    assert_eq!(theirs.properties()["openslide.vendor"], "aperio");
    assert_eq!(theirs.levels(), ours.levels());
    assert_eq!(ours.levels().len(), 3);
    for number in 0..ours.levels().len() {
        assert_eq!(whole(&theirs, number), whole(&ours, number), "level {number}");
    }
    assert_eq!(psnr(&whole(&theirs, 0), &ppm(directory, "even.v")), f64::INFINITY);
    // Files supported here are not passed to OpenSlide.
    let slide = Slide::open(file.to_str().unwrap(), allowed()).unwrap();
    assert_eq!(slide.format(), "aperio");
    // Larger than allowed.
    for limits in [Limits { side: 1000, ..allowed() }, Limits { directories: 2, ..allowed() }] {
        let error = Slide::through_openslide(&file, limits).err().unwrap();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
    }
}

/// `even.v` as a pyramid that looks like Aperio's, with at most so many levels.
fn pyramid_of_aperio(directory: &Path, compression: &str, levels: usize) -> std::path::PathBuf {
    let file = directory.join(format!("{compression}.svs"));
    let options = format!("--tile --pyramid --properties --compression {compression}");
    vips(directory, &format!("tiffsave even.v made.tif {options}"));
    std::fs::rename(directory.join("made.tif"), &file).unwrap();
    make("make_tiff.py", &[Path::new("aperio"), Path::new(&levels.to_string()), &file]);
    file
}

#[test]
fn a_level_smaller_than_its_tile_comes_through_openslide_only_as_jpeg() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    vips(directory, "extract_area base.v even.v 0 0 1024 768");
    let file = pyramid_of_aperio(directory, "jpeg", 4);
    let (ours, theirs) = (open(&file), through(&file).unwrap());
    assert_eq!(theirs.levels(), ours.levels());
    let last = ours.levels()[3];
    assert!(last.height < last.tile_height, "{last:?}");
    for number in 0..ours.levels().len() {
        let ratio = psnr(&whole(&ours, number), &picture(&whole(&theirs, number)));
        assert!(ratio > 40.0, "level {number}: {ratio} dB");
    }

    // libtiff decodes these, and may leave a part of the tile uninitialised.
    let memory = "OpenSlide is not used because it may fill tiles with memory of other slides";
    let file = pyramid_of_aperio(directory, "deflate", 4);
    assert_eq!(open(&file).levels().len(), 4);
    let error = through(&file).err().unwrap();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    let size = "an image of 128 x 96 pixels in tiles of 128 x 128";
    assert!(error.to_string().ends_with(&format!("{memory}: {size}")), "{error}");
    let file = directory.join("small.tiff");
    make("make_tiff.py", &[Path::new("small"), &file]);
    let error = Slide::open(file.to_str().unwrap(), allowed()).err().unwrap();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("Philips TIFF; {memory}")), "{error}");
}

#[test]
fn a_tiff_of_no_scanner_is_not_given_to_openslide() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    base(directory);
    // Pyramids that are supported here, and one that is not, although OpenSlide has a reader for
    // it.
    vips(directory, "tiffsave base.v read.tif --tile --pyramid --compression deflate");
    vips(directory, "tiffsave base.v zstd.tif --tile --pyramid --compression zstd");
    vips(directory, "cast base.v complex.v complex");
    vips(directory, "tiffsave complex.v complex.tif --tile --compression deflate");
    for (name, what) in [
        ("read.tif", None),
        ("zstd.tif", None),
        ("complex.tif", Some("samples of 64 bits in format [6, 6, 6]")),
    ] {
        let file = directory.join(name);
        match (Slide::open(file.to_str().unwrap(), allowed()), what) {
            (Ok(slide), None) => assert_eq!(slide.format(), "tiff"),
            (Err(Error::Unsupported { what: reason, .. }), Some(what)) => assert_eq!(reason, what),
            (other, _) => panic!("{name}: {:?}", other.err()),
        }
        let Err(Error::Unsupported { what, .. }) = through(&file) else { panic!("{name}") };
        assert_eq!(
            what,
            "a TIFF that is not in a scanner's format, for which OpenSlide is not used"
        );
    }
}

/// A slide in Philips format with the pixels of a generic one, and its file.
fn philips(directory: &Path) -> std::path::PathBuf {
    let file = directory.join("philips.tiff");
    make("make_tiff.py", &[Path::new("philips"), &file]);
    file
}

#[test]
fn what_is_not_read_here_is_read_through_openslide() {
    let directory = tempfile::tempdir().unwrap();
    let file = philips(directory.path());
    let location = file.to_str().unwrap();
    let error = Slide::open(location, Limits::default()).err().unwrap().to_string();
    if std::env::var_os(WITHOUT).is_some() {
        let error = Slide::open(location, allowed()).err().unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        println!("without: {error}");
        return;
    }
    assert!(error.contains("Philips TIFF (OpenSlide, which may read it, is not"), "{error}");
    let slide = Slide::open(location, allowed()).unwrap();
    assert_eq!((slide.format(), slide.levels().len()), ("openslide", 2));
    assert_eq!(slide.properties()["openslide.vendor"], "philips");
    assert_eq!(slide.properties()["philips.DICOM_MANUFACTURER"], "Nobody");
    assert_eq!(slide.microns_per_pixel(), Some((0.5, 0.25)));
    // Red increases to the right, green downwards; the second tile of level 0 was not scanned.
    let pixel = |level, x, y| {
        let region = Region { x, y, width: 1, height: 1 };
        slide.read(level, region).unwrap().into_pixels()
    };
    assert_eq!(pixel(0, 7, 300), [7, 44, 9]);
    assert_eq!(pixel(0, 256 + 7, 7), [255; 3]);
    assert_eq!(pixel(1, 9, 40), [18, 80, 9]);

    // Unknown formats, and files that do not exist.
    for (name, bytes) in [("a.tif", &b"PNG, perhaps"[..]), ("b.ndpi", b""), ("c.tif", b"II\x2a\0")]
    {
        let file = directory.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let error = Slide::open(file.to_str().unwrap(), allowed()).err().unwrap().to_string();
        assert!(error.contains("OpenSlide does not read it either"), "{error}");
    }
    let error = Slide::open(directory.path().to_str().unwrap(), allowed()).err().unwrap();
    assert!(!error.to_string().contains("OpenSlide"), "{error}");
    let error = through(&directory.path().join("none")).err().unwrap();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
}

#[test]
fn slides_of_scanners_are_not_read_as_other_tiffs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("slide.tif");
    for (kind, what) in [
        ("ndpi", "Hamamatsu NDPI"),
        ("scn", "Leica SCN"),
        ("bif", "Ventana BIF"),
        ("trestle", "Trestle TIFF"),
    ] {
        make("make_tiff.py", &[Path::new(kind), &file]);
        let error = Slide::open(file.to_str().unwrap(), Limits::default()).err().unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{kind}: {error}");
        assert!(error.to_string().contains(what), "{kind}: {error}");
    }
}

#[test]
fn jpeg_2000_is_the_same_through_openslide() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    make("make_jpeg2000.py", &[directory]);
    let differ = |name: &str, ours: &Slide, theirs: &Slide| {
        assert_eq!(theirs.levels(), ours.levels(), "{name}");
        let (ours, theirs) = (whole(ours, 0).into_pixels(), whole(theirs, 0).into_pixels());
        ours.iter().zip(&theirs).map(|(one, other)| one.abs_diff(*other)).max().unwrap()
    };
    for (name, most) in [
        ("exact.svs", 0),
        ("big-tag.svs", 0),
        ("ycc.svs", 1),
        ("ycc-422.svs", 1),
        ("ycc-420.svs", 1),
    ] {
        let file = directory.join(name);
        let ours = Slide::open(file.to_str().unwrap(), allowed()).unwrap();
        assert_eq!(ours.format(), "aperio");
        let theirs = through(&file).unwrap();
        assert_eq!(theirs.properties()["openslide.vendor"], "aperio");
        let difference = differ(name, &ours, &theirs);
        assert!(difference <= most, "{name}: {difference}");
    }

    // DICOM, which OpenSlide supports from version 4 on.
    let series = directory.join("series");
    std::fs::create_dir(&series).unwrap();
    let of = |(number, name): (usize, &str), photometric: &str, syntax: &str| {
        serde_json::json!({
            "file": series.join(format!("{name}.dcm")), "frames": directory.join(name),
            "jpeg": true, "syntax": format!("1.2.840.10008.1.2.4.{syntax}"),
            "photometric": photometric, "samples": 3, "tile": [64, 64], "size": [128, 128],
            "kind": "VOLUME", "organization": "TILED_FULL", "table": "basic",
            "study": "1.2.826.0.1.1", "series": format!("1.2.826.0.1.{}", 2 + number),
            "spacing": ["0.0006", "0.0005"],
        })
    };
    let made = serde_json::json!([
        of((0, "named-rgb"), "RGB", "90"),
        of((1, "rct"), "YBR_RCT", "90"),
        // Labelled with a compression that neither decodes.
        of((2, "no-transform"), "RGB", "70"),
    ]);
    make_of("make_dicom.py", &[Path::new("make")], directory, &made);
    let is_newer = std::env::var_os(NEWER).is_some();
    for name in ["named-rgb", "rct"] {
        let file = series.join(format!("{name}.dcm"));
        let ours = Slide::open(file.to_str().unwrap(), allowed()).unwrap();
        assert_eq!(ours.format(), "dicom");
        if is_newer {
            let theirs = through(&file).unwrap();
            assert_eq!(theirs.properties()["openslide.vendor"], "dicom");
            assert_eq!(theirs.microns_per_pixel(), Some((0.5, 0.6)));
            assert_eq!(theirs.icc(), Some(&b"profile!"[..]));
            assert_eq!(differ(name, &ours, &theirs), 0, "{name}");
        }
    }
    let error =
        Slide::open(series.join("no-transform.dcm").to_str().unwrap(), allowed()).err().unwrap();
    let what = match is_newer {
        true => "compression by lossless JPEG; OpenSlide does not read it: ",
        false => "compression by lossless JPEG; OpenSlide does not read it either",
    };
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn a_broken_tile_is_an_error_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let file = philips(directory.path());
    let mut bytes = std::fs::read(&file).unwrap();
    // Replaces the stream of the last tile of level 0 with bytes that are not zlib.
    let slide = Slide::open(file.to_str().unwrap(), allowed()).unwrap();
    let ours = {
        let plain = directory.path().join("plain.tiff");
        make("make_tiff.py", &[Path::new("plain"), &plain]);
        open(&plain)
    };
    let stored = ours.tile(0, 1, 1).unwrap();
    let offset = bytes.windows(stored.bytes().len()).rposition(|part| part == &stored.bytes()[..]);
    let offset = offset.unwrap();
    bytes[offset..offset + 16].fill(0xff);
    let good = whole(&slide, 0);
    std::fs::write(&file, &bytes).unwrap();

    let slide = Slide::open(file.to_str().unwrap(), allowed()).unwrap();
    let part = |x, y| Region { x, y, width: 256, height: 256 };
    let read = |x, y| slide.read(0, part(x, y));
    for _ in 0..2 {
        let error = read(256, 256).unwrap_err();
        assert!(matches!(error, Error::Tile { .. }), "{error}");
        assert!(error.to_string().contains("level 0, tile 1, 1: OpenSlide: "), "{error}");
        // The other tiles can be read, at the same time and by others.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| read(0, 256).unwrap())).collect();
            for thread in threads {
                let raster = thread.join().unwrap();
                assert_eq!(raster.pixels()[..3], good.pixels()[256 * 3 * 512..][..3]);
            }
        });
    }
    // Good and bad tiles at the same time: no request gets the error of another.
    let read = &read;
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                for _ in 0..8 {
                    let is_bad = number % 2 == 0;
                    let raster = read(if is_bad { 256 } else { 0 }, 256);
                    assert_eq!(raster.is_err(), is_bad, "{:?}", raster.err());
                }
            });
        }
    });
    // Truncated: the error does not name a directory.
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let error = Slide::through_openslide(&file, allowed()).err().unwrap().to_string();
    assert!(error.matches(directory.path().to_str().unwrap()).count() <= 1, "{error}");
}

#[test]
fn without_openslide_an_error_says_what_to_install() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["libopenslide.so.0", "libopenslide.so.1"] {
        std::fs::write(directory.path().join(name), "no library").unwrap();
    }
    let output = run(Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--nocapture",
            "openslide::what_is_not_read_here_is_read_through_openslide",
        ])
        .env("LD_LIBRARY_PATH", directory.path())
        .env(WITHOUT, "1"));
    let text = String::from_utf8_lossy(&output.stdout);
    let line =
        text.lines().find(|line| line.contains("without: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("Philips TIFF; install OpenSlide (on Debian: libopenslide0)"), "{line}");
    assert!(line.contains("libopenslide.so.1: ") && line.contains("libopenslide.so.0: "), "{line}");
}

/// Version 4 from PyPI, which has additional functions.
#[test]
fn a_newer_openslide_does_the_same() {
    let directory = make("make_tiff.py", &[Path::new("openslide")]);
    let directory = String::from_utf8(directory.stdout).unwrap();
    let output = run(Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--test-threads", "2"])
        .args([
            "openslide::a_real_slide_is_the_same_through_openslide",
            "openslide::a_broken_tile_is_an_error_of_its_own",
        ])
        .args(["openslide::every_level_of_a_pyramid_is_the_same_through_openslide"])
        .args(["openslide::a_level_smaller_than_its_tile_comes_through_openslide_only_as_jpeg"])
        .args(["openslide::a_tiff_of_no_scanner_is_not_given_to_openslide"])
        .args(["openslide::jpeg_2000_is_the_same_through_openslide"])
        .args(["openslide::what_is_not_read_here_is_read_through_openslide"])
        .env(NEWER, "1")
        .env("LD_LIBRARY_PATH", directory.trim_end()));
    assert!(String::from_utf8_lossy(&output.stdout).contains("7 passed"));
}
