//! Images through the filters that decode, scale and encode them.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};

use crate::harness::{chain, flow, text, write_pipeline};

fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.into().write_to(&mut Cursor::new(&mut bytes), format).unwrap();
    bytes
}

/// Left half of one colour, right half of another.
fn halves(width: u32, height: u32, [left, right]: [[u8; 3]; 2]) -> RgbImage {
    RgbImage::from_fn(width, height, |x, _| Rgb(if x < width / 2 { left } else { right }))
}

/// Runs the bytes through the filters. Returns their output, or an error.
fn through(bytes: &[u8], filters: &[(&str, &str)]) -> Result<Vec<u8>, String> {
    let read = [("read", "run = \"read\"\nwhole = true")];
    let write = [("write", "run = \"write\"")];
    let directory = write_pipeline("image.toml", &chain(&[&read, filters, &write].concat(), ""));
    fs::write(directory.path().join("image"), bytes).unwrap();
    let output = flow(directory.path(), &["run", "-q", "image.toml", "image"]);
    if output.status.success() { Ok(output.stdout) } else { Err(text(&output.stderr)) }
}

const DECODE: (&str, &str) = ("decode", "run = \"decode-image\"");

fn ppm(image: &RgbImage) -> Vec<u8> {
    let header = format!("P6\n{} {}\n255\n", image.width(), image.height());
    [header.as_bytes(), image.as_raw()].concat()
}

#[test]
fn a_directory_becomes_thumbnails_in_its_order() {
    let filters = [
        ("read", "run = \"read\"\npath = \"photos\"\nfiles = [\"*.jpg\", \"*.png\"]\nwhole = true"),
        ("decode", "run = \"decode-image\"\ncopies = 3"),
        ("scale", "run = \"scale-image\"\nwidth = 40\nheight = 40\ncopies = 2"),
        ("encode", "run = \"encode-image\"\nquality = 95\ncopies = 2"),
        ("write", "run = \"write\"\npath = \"thumb-{block}.jpg\""),
    ];
    let directory = write_pipeline("thumbs.toml", &chain(&filters, "ordered = true"));
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("photos")).unwrap();
    let colours = |at: u8| [[20 * at, 0, 250 - 20 * at], [0, 250 - 20 * at, 20 * at]];
    for at in 0..10 {
        let size = 100 + 40 * u32::from(at);
        let image = halves(size, if at % 2 == 0 { size / 2 } else { size * 2 }, colours(at));
        let (suffix, format) =
            if at < 5 { ("jpg", ImageFormat::Jpeg) } else { ("png", ImageFormat::Png) };
        fs::write(path(&format!("photos/{at}.{suffix}")), encoded(image, format)).unwrap();
    }
    let output = flow(directory.path(), &["run", "-q", "thumbs.toml"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for at in 0..10 {
        let bytes = fs::read(path(&format!("thumb-{at}.jpg"))).unwrap();
        let image = image::load_from_memory_with_format(&bytes, ImageFormat::Jpeg).unwrap();
        let image = image.into_rgb8();
        assert_eq!(image.dimensions(), if at % 2 == 0 { (40, 20) } else { (20, 40) });
        let [left, right] = colours(at);
        for (x, colour) in [(3, left), (image.width() - 4, right)] {
            let is = image.get_pixel(x, image.height() / 2).0;
            let far = is.iter().zip(colour).map(|(is, to_be)| is.abs_diff(to_be)).max().unwrap();
            assert!(far < 12, "image {at}: {is:?} for {colour:?}");
        }
    }
}

#[test]
fn images_are_decoded_as_they_are_to_be_seen() {
    let photo = halves(30, 20, [[200, 100, 0], [0, 100, 200]]);
    let decoded = |bytes: &[u8]| through(bytes, &[DECODE]).unwrap();
    assert!(decoded(&encoded(photo.clone(), ImageFormat::Png)) == ppm(&photo));
    assert!(decoded(&ppm(&photo)) == ppm(&photo));
    assert_eq!(
        decoded(b"P2\n# grey\n2 1\n15\n0 15\n"),
        ppm(&RgbImage::from_fn(2, 1, |x, _| Rgb([255 * x as u8; 3])))
    );

    let deep = DynamicImage::from(photo.clone()).into_rgb16();
    assert!(decoded(&encoded(deep, ImageFormat::Png)) == ppm(&photo));
    let clear = RgbaImage::from_fn(3, 1, |x, _| Rgba([100, 0, 255, [0, 255, 102][x as usize]]));
    let flat = [[255, 255, 255], [100, 0, 255], [193, 153, 255]];
    assert_eq!(
        decoded(&encoded(clear, ImageFormat::Png)),
        ppm(&RgbImage::from_fn(3, 1, |x, _| Rgb(flat[x as usize])))
    );

    // A camera held upright: the left side of the file is the top of the image.
    let jpeg = encoded(photo, ImageFormat::Jpeg);
    let exif =
        b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let upright = decoded(&[&jpeg[..2], exif, &jpeg[2..]].concat());
    let upright = image::load_from_memory_with_format(&upright, ImageFormat::Pnm).unwrap();
    let upright = upright.into_rgb8();
    assert_eq!(upright.dimensions(), (20, 30));
    // The video of a motion photo follows the image.
    let motion = [&jpeg[..], b"....ftypmp42 \xff\xda\x01\x02"].concat();
    assert!(decoded(&motion) == decoded(&jpeg));
    let (top, bottom) = (upright.get_pixel(10, 2).0, upright.get_pixel(10, 27).0);
    assert!(top[0] > 150 && top[2] < 50 && bottom[0] < 50 && bottom[2] > 150, "{top:?} {bottom:?}");
}

#[test]
fn sizes_are_as_they_are_asked_for() {
    let photo = ppm(&halves(60, 40, [[200, 100, 0], [0, 100, 200]]));
    for (options, expected) in [
        ("width = 30", "30 20"),
        ("height = 10", "15 10"),
        ("width = 30\nheight = 10", "15 10"),
        ("width = 30\nheight = 10\nexact = true", "30 10"),
        ("percent = 150", "90 60"),
        ("percent = 1\nmethod = \"nearest\"", "1 1"),
        ("width = 120\nmethod = \"cubic\"", "120 80"),
        ("width = 59\nmethod = \"linear\"", "59 39"),
    ] {
        let options = format!("run = \"scale-image\"\n{options}");
        let made = through(&photo, &[("scale", &options)]).unwrap();
        let header = format!("P6\n{expected}\n255\n");
        assert!(made.starts_with(header.as_bytes()), "{options}");
    }
    // An image of one colour keeps it.
    let plain = ppm(&halves(64, 64, [[10, 200, 77]; 2]));
    let made = through(&plain, &[("scale", "run = \"scale-image\"\nwidth = 9")]).unwrap();
    assert_eq!(made, ppm(&halves(9, 9, [[10, 200, 77]; 2])));
}

#[test]
fn a_png_loses_nothing() {
    let photo = RgbImage::from_fn(123, 45, |x, y| Rgb([(x * y) as u8, x as u8, (y * 5) as u8]));
    let encode = ("encode", "run = \"encode-image\"\nformat = \"png\"");
    let made = through(&ppm(&photo), &[encode]).unwrap();
    assert!(made.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert!(through(&made, &[("again", DECODE.1)]).unwrap() == ppm(&photo));
    let sizes = [1, 50, 100].map(|quality| {
        let encode = format!("run = \"encode-image\"\nquality = {quality}");
        through(&ppm(&photo), &[("encode", &encode)]).unwrap().len()
    });
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "{sizes:?}");
}

/// A PNG without data that claims this size.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut png = encoded(halves(1, 1, [[0; 3]; 2]), ImageFormat::Png);
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let mut crc = flate2::Crc::new();
    crc.update(&png[12..29]);
    png[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    png
}

#[test]
fn data_that_are_no_image_or_too_large_are_reported() {
    let photo = halves(300, 200, [[200, 100, 0], [0, 100, 200]]);
    let jpeg = encoded(photo.clone(), ImageFormat::Jpeg);
    let png = encoded(photo.clone(), ImageFormat::Png);
    let mut huge = jpeg.clone();
    let sof = huge.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    huge[sof + 5..sof + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let few = ("decode", "run = \"decode-image\"\npixels = 59999");
    let scale = ("scale", "run = \"scale-image\"\nwidth = 65535\npixels = 60000");
    let encode = ("encode", "run = \"encode-image\"");
    for (bytes, filter, expected) in [
        (
            &b"no image"[..],
            DECODE,
            "filter decode, copy 0, block 0 (image): this is not a JPEG, PNG",
        ),
        (b"", DECODE, "this is not a JPEG, PNG or PNM image (each block must be a whole image"),
        (b"GIF89a\x01\0\x01\0\0\0\0;", DECODE, "this is not a JPEG, PNG or PNM image"),
        (&jpeg[..jpeg.len() - 2], DECODE, "this JPEG is truncated (each block must be"),
        (&jpeg[..jpeg.len() / 2], DECODE, "this JPEG is truncated"),
        (&jpeg[..100], DECODE, "filter decode, copy 0, block 0 (image): "),
        (&png[..png.len() / 2], DECODE, "filter decode, copy 0, block 0 (image): "),
        (&ppm(&photo)[..5000], DECODE, "filter decode, copy 0, block 0 (image): "),
        (&bomb(60_000, 60_000), DECODE, "an image of 60000 x 60000 pixels has more than 100000000"),
        (&bomb(1 << 31, 1), DECODE, "filter decode, copy 0, block 0 (image): "),
        (&huge, DECODE, "an image of 65500 x 65500 pixels has more than 100000000, which `pixels`"),
        (b"P6\n60000 60000\n255\n", DECODE, "an image of 60000 x 60000 pixels has more"),
        (b"P6\n4294967295 4294967295\n255\n", DECODE, "filter decode, copy 0, block 0 (image): "),
        (&jpeg, few, "an image of 300 x 200 pixels has more than 59999, which `pixels` allows"),
        (&ppm(&photo), scale, "an image of 65535 x 43690 pixels has more than 60000"),
        (&jpeg, scale, "this is not a PPM image: convert it with decode-image first"),
        (&jpeg, encode, "this is not a PPM image"),
        (
            &b"P6\n70000 1\n255\n".iter().copied().chain([0; 210_000]).collect::<Vec<_>>(),
            encode,
            "filter encode",
        ),
    ] {
        let said = through(bytes, &[filter]).expect_err(expected);
        assert!(said.contains(expected), "{expected}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

/// Whatever the content, no decoder panics or hangs.
#[test]
fn broken_images_are_errors_or_images() {
    let mut random = fastrand::Rng::with_seed(11);
    let photo = halves(64, 48, [[200, 100, 0], [0, 100, 200]]);
    let directory = write_pipeline(
        "image.toml",
        &chain(
            &[("read", "run = \"read\"\nwhole = true"), DECODE, ("write", "run = \"write\"")],
            "",
        ),
    );
    let mut names = Vec::new();
    for (at, format) in
        [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::Pnm].into_iter().enumerate()
    {
        let whole = encoded(photo.clone(), format);
        for number in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..=random.usize(..4) {
                let at = random.usize(2..bytes.len());
                bytes[at] = random.u8(..);
            }
            let name = format!("{at}-{number}");
            fs::write(directory.path().join(&name), bytes).unwrap();
            names.push(name);
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let output = flow(directory.path(), &[&["run", "-q", "image.toml"], &names[..]].concat());
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert!(said.contains(": unit ") && !output.stdout.is_empty(), "{said}");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    for (filter, expected) in [
        ("run = \"scale-image\"", "scale-image needs width, height or both, or percent"),
        (
            "run = \"scale-image\"\nwidth = 5\npercent = 5",
            "scale-image needs width, height or both",
        ),
        ("run = \"scale-image\"\nwidth = 0", "width must be 1 to 65535"),
        ("run = \"scale-image\"\nwidth = 5\nexact = true", "exact requires both width and height"),
        (
            "run = \"scale-image\"\nwidth = 5\nmethod = \"x\"",
            "one of lanczos, cubic, linear, nearest",
        ),
        ("run = \"encode-image\"\nquality = 101", "quality must be 1 to 100"),
        ("run = \"encode-image\"\nformat = \"png\"\nquality = 5", "quality is for jpeg"),
        ("run = \"encode-image\"\nformat = \"gif\"", "one of jpeg, png"),
        ("run = \"decode-image\"\npixels = 0", "pixels must be 1 to 357913941"),
    ] {
        let said = through(b"", &[("own", filter)]).unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
}

/// The pipeline in the documents can run.
#[test]
fn the_pipeline_in_the_documents_makes_thumbnails() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pipelines.md");
    let page = fs::read_to_string(page).unwrap();
    let mut examples =
        page.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let example = examples.find(|example| example.contains("scale-image")).unwrap();
    let directory = write_pipeline("thumbnails.toml", example);
    fs::create_dir(directory.path().join("thumbnails")).unwrap();
    let photo = halves(640, 480, [[200, 100, 0], [0, 100, 200]]);
    fs::write(directory.path().join("beach.png"), encoded(photo.clone(), ImageFormat::Png))
        .unwrap();
    fs::write(directory.path().join("dog.jpeg"), encoded(photo, ImageFormat::Jpeg)).unwrap();
    let output = flow(directory.path(), &["run", "thumbnails.toml", "beach.png", "dog.jpeg"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["beach", "dog"] {
        let made = fs::read(directory.path().join(format!("thumbnails/{name}.jpg"))).unwrap();
        let made = image::load_from_memory_with_format(&made, ImageFormat::Jpeg).unwrap();
        assert_eq!((made.width(), made.height()), (256, 192));
    }
}
