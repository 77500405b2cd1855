//! Pixels compared with OpenSlide and vips: equal if compression is lossless.

use crate::common::{aperio, base, open, ppm, psnr, run, vips, whole};
use image::RgbImage;
use seekwire_slides_image::{Format, HALVINGS, Limits, Raster, Region, Slide, StoredTile};
use std::path::Path;
use std::process::Command;

fn decoded(bytes: &[u8]) -> RgbImage {
    image::load_from_memory(bytes).unwrap().into_rgb8()
}

#[test]
fn a_real_slide_is_as_openslide_sees_it() {
    let path = aperio();
    let slide = open(&path);
    assert_eq!(slide.format(), "aperio");
    let [level] = slide.levels()[..] else { panic!("{:?}", slide.levels()) };
    assert_eq!((level.width, level.height, level.tile_width), (2220, 2967, 240));
    assert_eq!(slide.microns_per_pixel(), Some((0.499, 0.499)));
    assert_eq!(slide.properties()["aperio.AppMag"], "20");

    let directory = tempfile::tempdir().unwrap();
    let png = directory.path().join("part.png");
    // Inside, across tiles, and at the lower right corner.
    for (x, y, width, height) in [(0, 0, 1, 1), (235, 479, 301, 199), (2001, 2800, 219, 167)] {
        let arguments = [x, y, 0, width, height].map(|number: i64| number.to_string());
        run(Command::new("openslide-write-png").arg(&path).args(arguments).arg(&png));
        let theirs = image::open(&png).unwrap().into_rgb8();
        let ours =
            slide.read(0, Region { x, y, width: width as u32, height: height as u32 }).unwrap();
        let ratio = psnr(&ours, &theirs);
        assert!(ratio > 40.0, "{ratio} dB at {x}, {y}");
    }

    assert_eq!(slide.associated_names().collect::<Vec<_>>(), ["label", "macro", "thumbnail"]);
    std::fs::copy(&path, directory.path().join("real.svs")).unwrap();
    // As pages of a TIFF: through OpenSlide, vips may crash on these.
    let pages = [("thumbnail", 1, 40.0), ("label", 2, f64::INFINITY), ("macro", 3, 40.0)];
    for (name, page, least) in pages {
        vips(directory.path(), &format!("tiffload real.svs part.v --page {page}"));
        let ratio =
            psnr(&slide.associated(name).unwrap().unwrap(), &ppm(directory.path(), "part.v"));
        assert!(ratio >= least, "{name}: {ratio} dB");
    }
    assert!(slide.associated("none").unwrap().is_none());
}

/// Similarity of pixels in dB (PSNR).
fn likeness(one: &Raster, other: &Raster) -> f64 {
    assert_eq!((one.width(), one.height()), (other.width(), other.height()));
    let seen = RgbImage::from_raw(other.width(), other.height(), other.pixels().to_vec());
    psnr(one, &seen.unwrap())
}

#[test]
fn a_tile_is_decoded_to_less_than_its_size() {
    let slide = open(&aperio());
    let fast = Limits { turbojpeg: true, ..Limits::default() };
    // Inside, and at the border of the level.
    for (column, row) in [(2, 1), (9, 12)] {
        let tile = slide.tile(0, column, row).unwrap();
        let whole = tile.decode(&Limits::default()).unwrap();
        assert!(likeness(&whole, &tile.decode(&fast).unwrap()) > 45.0);
        let all = (0.0, 0.0, f64::from(whole.width()), f64::from(whole.height()));
        for halvings in 1..=HALVINGS {
            let (width, height) = (whole.width() >> halvings, whole.height() >> halvings);
            let means = whole.scale(all, width, height).unwrap();
            // As a process without the file sees it.
            let small = StoredTile::from_block(&tile.clone().halved(halvings).to_block().into());
            let small = small.unwrap();
            assert_eq!(small.decode(&Limits::default()).unwrap(), means);
            let like = likeness(&means, &small.decode(&fast).unwrap());
            assert!(like > 30.0, "{halvings}: {like} dB");
        }
    }
    let most = slide.tile(0, 0, 0).unwrap().halved(99);
    assert_eq!(most.decode(&fast).unwrap().width(), 240 >> HALVINGS);
}

#[test]
fn a_stored_tile_is_given_out_and_decoded_elsewhere() {
    let slide = open(&aperio());
    let region = Region { x: 480, y: 240, width: 240, height: 240 };
    let pixels = slide.read(0, region).unwrap();
    let jpeg = slide.stored_jpeg(0, region).unwrap().unwrap();
    assert!(psnr(&pixels, &decoded(&jpeg)) > 40.0);

    let tile = slide.tile(0, 2, 1).unwrap();
    assert!(jpeg.len() > tile.bytes().len());
    let block = tile.to_block().into();
    assert_eq!(StoredTile::from_block(&block).unwrap(), tile);
    let elsewhere = std::thread::spawn(move || {
        StoredTile::from_block(&block).unwrap().decode(&Limits::default()).unwrap()
    });
    assert_eq!(elsewhere.join().unwrap(), pixels);

    // Not a tile, and a tile that extends beyond the border.
    for (x, y, width) in [(481, 240, 240), (480, 240, 239), (2160, 240, 240), (-240, 0, 240)] {
        let region = Region { x, y, width, height: 240 };
        assert_eq!(slide.stored_jpeg(0, region).unwrap(), None);
    }
    assert!(slide.tile(0, 10, 0).is_err());
    assert!(slide.tile(1, 0, 0).is_err());
}

#[test]
fn every_level_of_a_pyramid_is_as_vips_wrote_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let all = base(directory);
    let lossless = f64::INFINITY;
    let rows = [
        ("--compression none --tile-width 240 --tile-height 208", "page", lossless),
        ("--compression lzw --predictor horizontal", "page", lossless),
        ("--compression deflate --predictor none --bigtiff --subifd", "subifd", lossless),
        ("--compression jpeg --Q 90", "page", 38.0),
        ("--compression jpeg --Q 75 --bigtiff --subifd", "subifd", 38.0),
    ];
    for (options, by, least) in rows {
        vips(directory, &format!("tiffsave base.v made.tif --tile --pyramid {options}"));
        let slide = open(&directory.join("made.tif"));
        let levels = slide.levels();
        assert!(levels.len() >= 3, "{options}: {levels:?}");
        for (number, level) in levels.iter().enumerate() {
            let name = match (number, by) {
                (0, _) => "made.tif".into(),
                (_, "page") => format!("made.tif[page={number}]"),
                _ => format!("made.tif[subifd={}]", number - 1),
            };
            let ratio = psnr(&whole(&slide, number), &ppm(directory, &name));
            assert!(ratio >= least, "{options}, {level:?}: {ratio} dB");
        }
        if least == lossless {
            parts(&slide, &all);
        }
    }

    // Sixteen bits, strips, grey: the upper bytes of values multiplied by 256.
    vips(directory, "cast base.v wide.v ushort --shift");
    vips(directory, "tiffsave wide.v wide.tif --tile --compression lzw --predictor horizontal");
    assert_eq!(psnr(&whole(&open(&directory.join("wide.tif")), 0), &all), lossless);
    vips(directory, "tiffsave base.v strips.tif --compression lzw");
    assert_eq!(psnr(&whole(&open(&directory.join("strips.tif")), 0), &all), lossless);
    vips(directory, "colourspace base.v grey.v b-w");
    vips(directory, "tiffsave grey.v grey.tif --tile --compression deflate");
    let grey = ppm(directory, "grey.tif");
    assert_eq!(psnr(&whole(&open(&directory.join("grey.tif")), 0), &grey), lossless);
    vips(directory, "tiffsave grey.v grey.tif --tile --compression jpeg");
    let grey = ppm(directory, "grey.tif");
    assert!(psnr(&whole(&open(&directory.join("grey.tif")), 0), &grey) > 40.0);

    scales(&open(&directory.join("made.tif")), directory);
}

/// Parts at borders and beyond them.
fn parts(slide: &Slide, all: &RgbImage) {
    for (x, y, width, height) in
        [(0, 0, 1, 1), (-5, -7, 33, 29), (1100, 770, 41, 43), (255, 207, 3, 5), (4000, 0, 9, 9)]
    {
        let ours = slide.read(0, Region { x, y, width, height }).unwrap();
        let theirs = RgbImage::from_fn(width, height, |column, row| {
            let (x, y) = (x + i64::from(column), y + i64::from(row));
            let inside = (0..1111).contains(&x) && (0..777).contains(&y);
            if inside { *all.get_pixel(x as u32, y as u32) } else { [255; 3].into() }
        });
        assert_eq!(psnr(&ours, &theirs), f64::INFINITY, "{x}, {y}, {width} x {height}");
    }
    let far = Region { x: i64::MAX, y: i64::MIN, width: 2, height: 2 };
    assert_eq!(slide.read(0, far).unwrap().pixels(), [255; 12]);
    assert!(slide.read(0, Region { x: 0, y: 0, width: 0, height: 2 }).is_err());
    assert!(slide.read(0, Region { x: 0, y: 0, width: u32::MAX, height: u32::MAX }).is_err());
}

/// A size between levels, compared with vips, and all formats.
fn scales(slide: &Slide, directory: &Path) {
    let region = Region { x: 0, y: 0, width: 1111, height: 777 };
    let ours = slide.render(region, 417, 291).unwrap();
    // From the same level as ours; the pyramid itself is compressed.
    vips(directory, "copy made.tif[subifd=0] level.v");
    vips(directory, "thumbnail_image level.v small.v 417 --height 291 --size force");
    let ratio = psnr(&ours, &ppm(directory, "small.v"));
    assert!(ratio > 28.0, "{ratio} dB");
    for format in [Format::Png, Format::WebP] {
        assert_eq!(
            psnr(&ours, &decoded(&ours.encode(format, None, false).unwrap())),
            f64::INFINITY
        );
    }
    let jpeg = ours.encode(Format::Jpeg { quality: 90, full_colour: true }, None, true).unwrap();
    assert!(psnr(&ours, &decoded(&jpeg)) > 30.0);
    let jpeg = ours
        .encode(Format::Jpeg { quality: 90, full_colour: true }, Some(b"profile"), true)
        .unwrap();
    assert!(psnr(&ours, &decoded(&jpeg)) > 30.0);
    assert!(jpeg.windows(7).any(|bytes| bytes == b"profile"));
    assert!(slide.render(region, 0, 1).is_err());
}
