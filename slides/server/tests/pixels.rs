//! Compares served pixels with those of the slide.

use crate::common::{Service, aperio, odd, vips};
use image::RgbImage;
use image::imageops;
use seekwire_slides_image::{Limits, Raster, Region, Slide};
use std::path::Path;

fn open(path: &Path) -> Slide {
    Slide::open(path.to_str().unwrap(), Limits::default()).unwrap()
}

fn image(raster: Raster) -> RgbImage {
    RgbImage::from_raw(raster.width(), raster.height(), raster.into_pixels()).unwrap()
}

fn render(slide: &Slide, region: (u32, u32, u32, u32), to: (u32, u32)) -> RgbImage {
    let (x, y, width, height) = region;
    let region = Region { x: x.into(), y: y.into(), width, height };
    image(slide.render(region, to.0, to.1).unwrap())
}

#[test]
fn stored_tiles_are_given_out_as_they_are() {
    let path = aperio();
    let slide = open(&path);
    let service = Service::of(&path);
    let stored = |x: i64, y: i64| {
        let region = Region { x: x * 240, y: y * 240, width: 240, height: 240 };
        slide.stored_jpeg(0, region).unwrap().unwrap()
    };
    let tile = service.get("/aperio.svs_files/12/2_1.jpg");
    assert_eq!((tile.status, tile.header("content-type")), (200, "image/jpeg"));
    assert_eq!(tile.body, stored(2, 1));
    let region = service.get("/iiif/3/aperio.svs/720,480,240,240/240,/0/default.jpg");
    assert_eq!(region.body, stored(3, 2));
    let region = service.get("/iiif/2/aperio.svs/960,480,240,240/full/0/color.jpg");
    assert_eq!(region.body, stored(4, 2));
    assert_eq!(service.count("images_stored_total"), 3);
    assert_eq!(service.count("tiles_decoded_total"), 0);

    // Anything but a whole stored tile is decoded.
    for path in [
        "/aperio.svs_files/12/9_1.jpg",
        "/aperio.svs_files/12/2_1.png",
        "/iiif/3/aperio.svs/720,480,240,240/max/90/default.jpg",
        "/iiif/3/aperio.svs/720,480,240,240/max/0/gray.jpg",
        "/iiif/3/aperio.svs/721,480,240,240/max/0/default.jpg",
        "/iiif/3/aperio.svs/720,480,240,240/120,/0/default.jpg",
    ] {
        let before = service.count("images_encoded_total");
        assert_eq!(service.get(path).status, 200, "{path}");
        assert_eq!(service.count("images_encoded_total"), before + 1, "{path}");
    }
}

#[test]
fn tiles_of_deep_zoom_are_parts_of_levels() {
    let directory = tempfile::tempdir().unwrap();
    let path = odd(directory.path());
    let slide = open(&path);
    let service = Service::of(&path);
    let descriptor = service.get("/odd.tif.dzi");
    assert_eq!(descriptor.header("content-type"), "application/xml");
    // Stored tiles are not square, so these have a size of their own.
    let words = ["TileSize=\"256\"", "Overlap=\"0\"", "Width=\"301\"", "Height=\"199\""];
    for word in words {
        assert!(descriptor.text().contains(word), "{}", descriptor.text());
    }
    let rows = [
        ("9/0_0", (0, 0, 256, 199), (256, 199)),
        ("9/1_0", (256, 0, 45, 199), (45, 199)),
        ("8/0_0", (0, 0, 301, 199), (151, 100)),
        ("3/0_0", (0, 0, 301, 199), (5, 4)),
        ("0/0_0", (0, 0, 301, 199), (1, 1)),
    ];
    for (tile, part, to) in rows {
        let ours = render(&slide, part, to);
        for format in ["png", "webp"] {
            let theirs = service.get(&format!("/odd.tif_files/{tile}.{format}"));
            assert_eq!(theirs.header("content-type"), format!("image/{format}"));
            assert_eq!(theirs.pixels(), ours, "{tile}.{format}");
        }
        let jpeg = service.get(&format!("/odd.tif_files/{tile}.jpg")).pixels();
        assert_eq!(jpeg.dimensions(), ours.dimensions());
    }
    for tile in ["9/2_0", "9/0_1", "10/0_0", "9/-1_0", "9/00_0", "9/0", "x/0_0", "9/0_0_0"] {
        assert_eq!(service.get(&format!("/odd.tif_files/{tile}.png")).status, 404, "{tile}");
    }
    assert_eq!(service.get("/odd.tif_files/9/0_0.gif").status, 415);
    assert_eq!(service.get("/odd.svs_files/9/0_0.png").status, 404);
}

/// An independent reference: part, then size, then mirror, then rotation.
fn expected(
    slide: &Slide,
    part: (u32, u32, u32, u32),
    to: (u32, u32),
    is_mirrored: bool,
    degrees: u32,
) -> RgbImage {
    let mut image = render(slide, part, to);
    if is_mirrored {
        image = imageops::flip_horizontal(&image);
    }
    match degrees {
        90 => imageops::rotate90(&image),
        180 => imageops::rotate180(&image),
        270 => imageops::rotate270(&image),
        _ => image,
    }
}

#[test]
fn regions_sizes_and_rotations_of_iiif_go_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = odd(directory.path());
    let slide = open(&path);
    let service = Service::of(&path);
    let regions = [
        ("full", (0, 0, 301, 199)),
        ("square", (51, 0, 199, 199)),
        ("7,11,101,53", (7, 11, 101, 53)),
        ("250,150,500,500", (250, 150, 51, 49)),
        ("300,198,1,1", (300, 198, 1, 1)),
        ("pct:10,20,33.3,50", (30, 40, 100, 99)),
    ];
    let mut tried = 0;
    for (region, part) in regions {
        let (wide, high) = (f64::from(part.2), f64::from(part.3));
        let side = |side: f64| side.round() as u32;
        let half = ((wide / 2.0).round().max(1.0), (high / 2.0).round().max(1.0));
        let box_factor = (33.0 / wide).min(29.0 / high);
        let sizes = [
            ("max".to_owned(), Some((part.2, part.3))),
            ("pct:50".to_owned(), Some((side(wide / 2.0), side(high / 2.0)))),
            (format!("{},", half.0), Some((side(half.0), side(high * half.0 / wide)))),
            (format!(",{}", half.1), Some((side(wide * half.1 / high), side(half.1)))),
            ("1,1".to_owned(), Some((1, 1))),
            ("^350,17".to_owned(), Some((350, 17))),
            (
                "^!33,29".to_owned(),
                Some((side(wide * box_factor).max(1), side(high * box_factor).max(1))),
            ),
            ("9999,1".to_owned(), None),
        ];
        for (number, (size, to)) in sizes.into_iter().enumerate() {
            // Each rotation with each region and each size.
            let turns =
                [(false, 0), (false, 90), (true, 180), (true, 270), (true, 0), (false, 180)];
            for (index, (is_mirrored, degrees)) in turns.into_iter().enumerate() {
                if number > 2 && index % 3 != number % 3 {
                    continue;
                }
                let mark = if is_mirrored { "!" } else { "" };
                let address =
                    format!("/iiif/3/odd.tif/{region}/{size}/{mark}{degrees}/default.png");
                let answer = service.get(&address);
                let Some(to) = to.filter(|to| to.0 > 0 && to.1 > 0) else {
                    assert_eq!(answer.status, 400, "{address}");
                    continue;
                };
                let ours = expected(&slide, part, to, is_mirrored, degrees);
                assert_eq!(answer.pixels().dimensions(), ours.dimensions(), "{address}");
                assert_eq!(answer.pixels(), ours, "{address}");
                tried += 1;
                // The canonical address returns the same image.
                let link = answer.header("link").to_owned();
                let canonical = link.trim_start_matches('<').split('>').next().unwrap();
                let path = canonical.split_once("/iiif/").unwrap().1;
                let again = service.get(&format!("/iiif/{path}"));
                assert_eq!(again.body, answer.body, "{address}: {canonical}");
                assert_eq!(again.header("link"), link, "{address}");
            }
        }
    }
    assert!(tried > 100, "{tried}");
    // A rotation by any angle is inside its bounding box.
    let turned = service.get("/iiif/3/odd.tif/full/150,100/30.5/default.png").pixels();
    assert_eq!(turned.dimensions(), (180, 162));
    assert_eq!(service.count("decoded_twice_total"), 0);
}

#[test]
fn versions_and_qualities_of_iiif() {
    let directory = tempfile::tempdir().unwrap();
    let path = odd(directory.path());
    let slide = open(&path);
    let service = Service::of(&path);
    let colour = render(&slide, (0, 0, 301, 199), (301, 199));
    let two = service.get("/iiif/2/odd.tif/full/full/0/color.png");
    assert_eq!(two.pixels(), colour);
    let base = format!("http://{}/iiif/2/odd.tif", service.address);
    assert_eq!(
        two.header("link"),
        format!(
            "<{base}/full/full/0/default.png>;rel=\"canonical\",\
             <http://iiif.io/api/image/2/level2.json>;rel=\"profile\""
        )
    );
    let grey = service.get("/iiif/3/odd.tif/full/max/0/gray.png").pixels();
    let bitonal = service.get("/iiif/3/odd.tif/full/max/0/bitonal.png").pixels();
    for (colour, (grey, bitonal)) in colour.pixels().zip(grey.pixels().zip(bitonal.pixels())) {
        let [red, green, blue] = colour.0.map(f64::from);
        let luminance = 0.299 * red + 0.587 * green + 0.114 * blue;
        assert!((f64::from(grey.0[0]) - luminance).abs() <= 1.0, "{colour:?}, {grey:?}");
        assert!(grey.0[0] == grey.0[1] && grey.0[1] == grey.0[2]);
        assert_eq!(bitonal.0, if grey.0[0] < 128 { [0; 3] } else { [255; 3] });
    }

    let information = service.get("/iiif/3/odd.tif/info.json");
    assert_eq!(information.header("content-type"), "application/json");
    let information = information.json();
    assert_eq!(information["id"], format!("http://{}/iiif/3/odd.tif", service.address));
    assert_eq!((&information["width"], &information["profile"]), (&301.into(), &"level2".into()));
    let accept = [("accept", "application/ld+json")];
    let linked = service.ask("GET", "/iiif/2/odd.tif/info.json", &accept);
    assert_eq!(linked.header("content-type"), "application/ld+json");
    assert_eq!(linked.json()["@id"], base);
    let moved = service.get("/iiif/2/odd.tif");
    assert_eq!((moved.status, moved.header("location")), (303, &*format!("{base}/info.json")));
    for size in linked.json()["sizes"].as_array().unwrap() {
        let (width, height) = (&size["width"], &size["height"]);
        let image = service.get(&format!("/iiif/2/odd.tif/full/{width},{height}/0/default.jpg"));
        assert_eq!(image.pixels().width(), width.as_u64().unwrap() as u32);
    }
}

#[test]
fn associated_images_and_properties() {
    let path = aperio();
    let slide = open(&path);
    // Pixels are compared with those of the built-in decoder.
    let service = Service::start(&path, |settings| settings.turbojpeg = false);
    let label = service.get("/slides/aperio.svs/label.png");
    assert_eq!(label.pixels(), image(slide.associated("label").unwrap().unwrap()));
    let small = service.get("/slides/aperio.svs/macro.png?width=100").pixels();
    assert_eq!(small.width().max(small.height()), 100);
    let small = service.get("/slides/aperio.svs/thumbnail.jpg").pixels();
    assert_eq!(small.width().max(small.height()), 256);
    let large = service.get("/slides/aperio.svs/thumbnail.png?width=500").pixels();
    assert_eq!(large, render(&slide, (0, 0, 2220, 2967), (374, 500)));
    assert_eq!(service.get("/slides/aperio.svs/none.jpg").status, 404);
    assert_eq!(service.get("/slides/aperio.svs/label.bmp").status, 415);
    assert_eq!(service.get("/slides/aperio.svs/label.png?width=0").status, 400);

    let properties = service.get("/slides/aperio.svs/properties.json").json();
    assert_eq!(properties["format"], "aperio");
    assert_eq!(properties["micronsPerPixel"][0], 0.499);
    assert_eq!(properties["properties"]["aperio.AppMag"], "20");
    assert_eq!(properties["levels"][0]["tileWidth"], 240);
    assert_eq!(properties["associated"][0], "label");

    let page = service.get("/slides/aperio.svs");
    assert!(page.text().contains("data-microns=\"0.499\""), "{}", page.text());
    assert!(page.text().contains("aperio.svs/label.jpg"), "{}", page.text());
    assert!(page.header("content-security-policy").contains("default-src 'none'"));
    let gallery = service.get("/");
    assert!(
        gallery.text().contains("src=\"slides/aperio.svs/thumbnail.jpg\""),
        "{}",
        gallery.text()
    );
    assert_eq!(service.get("/slides.json").json()[0]["deepZoom"], "aperio.svs.dzi");
    for file in ["viewer.js", "style.css", "openseadragon.js"] {
        let file = service.get(&format!("/static/{file}"));
        assert_eq!(file.status, 200, "scripts/openseadragon fetches it");
    }
    let viewer = service.get("/static/openseadragon.js");
    assert!(viewer.text().starts_with("/*!\nCopyright") && viewer.body.len() > 100_000);
}

#[test]
fn colours_are_converted_or_the_profile_is_sent_along() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let service = Service::of(&odd(directory));
    let plain = service.get("/iiif/3/odd.tif/full/max/0/default.png");
    for icc in ["raw", "srgb", "embed"] {
        // It has no profile.
        let image = service.get(&format!("/iiif/3/odd.tif/full/max/0/default.png?icc={icc}"));
        assert_eq!(image.body, plain.body, "{icc}");
    }
    assert_eq!(service.get("/odd.tif_files/9/0_0.jpg?icc=cmyk").status, 400);
    drop(service);

    let options =
        "--tile --tile-width 128 --tile-height 128 --compression jpeg --Q 95 --profile p3";
    vips(directory, &format!("tiffsave part.v wide.tif {options}"));
    vips(directory, "icc_transform wide.tif narrow.v srgb --embedded --intent perceptual");
    vips(directory, "copy narrow.v narrow.png");
    let narrow = image::open(directory.join("narrow.png")).unwrap().into_rgb8();
    let service = Service::of(&directory.join("wide.tif"));
    let full = "/iiif/3/wide.tif/full/max/0/default.png";
    let raw = service.get(&format!("{full}?icc=raw")).pixels();
    let ratio = |one: &RgbImage, other: &RgbImage| {
        let pairs = one.as_raw().iter().zip(other.as_raw());
        let sum: f64 = pairs.map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
        10.0 * (255.0 * 255.0 * one.as_raw().len() as f64 / sum).log10()
    };
    let converted = service.get(full).pixels();
    let (same, before) = (ratio(&converted, &narrow), ratio(&raw, &narrow));
    assert!(same > 38.0 && before < same - 6.0, "{same} dB, {before} dB before");
    let embedded = service.get(&format!("{full}?icc=embed"));
    assert_eq!(embedded.pixels(), raw);
    assert!(embedded.body.windows(4).any(|bytes| bytes == b"iCCP"));

    // The canonical address returns the same colours.
    for query in ["", "?icc=raw", "?icc=embed"] {
        let link = service.get(&format!("{full}{query}")).header("link").to_owned();
        assert!(link.contains(&format!("/default.png{query}>;rel=\"canonical\"")), "{link}");
    }

    // A stored tile is in the stored colours.
    let tile = "/wide.tif_files/9/1_0.jpg";
    assert_eq!(service.get(tile).status, 200);
    assert_eq!(service.count("images_stored_total"), 0);
    let stored = service.get(&format!("{tile}?icc=raw"));
    let with = service.get(&format!("{tile}?icc=embed"));
    assert_eq!(service.count("images_stored_total"), 2);
    assert_eq!(stored.pixels(), with.pixels());
    let profile = service.get("/slides/wide.tif/properties.json").json()["profileBytes"].clone();
    let added = with.body.len() - stored.body.len();
    assert_eq!(profile.as_u64().unwrap() as usize + 18, added);
}
