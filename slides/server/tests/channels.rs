//! Channels, focal planes and times in addresses: Deep Zoom and IIIF return the same pixels, which
//! match those that numpy computes from the samples.

use std::fs;
use std::path::Path;

use crate::common::made_slides::channels;
use crate::common::{Service, odd};
use image::RgbImage;
use serde_json::{Value, json};

/// A rendering made by numpy.
struct Case {
    /// The query in addresses.
    query: String,
    is_default: bool,
    pixels: RgbImage,
}

/// The cases of the largest level of `said.zarr`.
fn cases(directory: &Path) -> Vec<Case> {
    let described = fs::read(directory.join("said.zarr.json")).unwrap();
    let described: Value = serde_json::from_slice(&described).unwrap();
    let cases = described["cases"].as_array().unwrap().iter().filter(|case| case["level"] == 0);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cases = cases.map(|case| {
        let layers = case["layers"].as_array().unwrap().iter().map(|layer| {
            format!("{}:{}:{}-{}", layer[0], text(&layer[1]), layer[2][0], layer[2][1])
        });
        let layers: Vec<String> = layers.collect();
        let layers = if layers.is_empty() { "none".to_owned() } else { layers.join(",") };
        let size = |at: usize| case["size"][at].as_u64().unwrap() as u32;
        let pixels = fs::read(text(&case["pixels"])).unwrap();
        Case {
            query: format!("c={layers}&z={}&t={}", case["z"], case["t"]),
            is_default: case["default"] == true,
            pixels: RgbImage::from_raw(size(0), size(1), pixels).unwrap(),
        }
    });
    cases.collect()
}

/// All tiles of the last Deep Zoom level, assembled.
fn deep_zoom(service: &Service, query: &str, size: (u32, u32)) -> RgbImage {
    let (width, height) = size;
    let mut whole = RgbImage::new(width, height);
    for (column, row) in (0..height.div_ceil(64))
        .flat_map(|row| (0..width.div_ceil(64)).map(move |column| (column, row)))
    {
        let tile = service.get(&format!("/said.zarr_files/8/{column}_{row}.png{query}")).pixels();
        image::imageops::replace(&mut whole, &tile, (column * 64).into(), (row * 64).into());
    }
    whole
}

#[test]
fn settings_in_addresses_are_what_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    channels(directory);
    // Only requested tiles are decoded.
    let service = Service::start(&directory.join("said.zarr"), |settings| settings.prefetch = 0);
    let cases = cases(directory);
    assert!(cases.len() >= 6);
    for case in &cases {
        let size = case.pixels.dimensions();
        let query = format!("?{}", case.query);
        assert_eq!(deep_zoom(&service, &query, size), case.pixels, "{query}");
        for version in [2, 3] {
            let part = format!("/iiif/{version}/said.zarr/5,7,99,77/99,77/0/default.png{query}");
            let expected = image::imageops::crop_imm(&case.pixels, 5, 7, 99, 77).to_image();
            assert_eq!(service.get(&part).pixels(), expected, "{part}");
        }
        if case.is_default {
            assert_eq!(deep_zoom(&service, "", size), case.pixels);
        }
    }
    // Equal settings give the same image, which is cached once.
    let tile = "/said.zarr_files/8/1_0.png";
    let first = service.get(tile);
    let before = service.count("tiles_decoded_total");
    let default = cases.iter().find(|case| case.is_default).unwrap();
    let colours =
        ["0:ff0000:100-3000,2:0000ff:0-2500", "2:0000ff:0-2500.0,0:FF0000:100-3e3", "0,2", "2,0"];
    for query in colours
        .map(|colours| format!("?c={colours}"))
        .iter()
        .chain([&format!("?{}", default.query)])
    {
        let again = service.get(&format!("{tile}{query}"));
        assert_eq!(
            (again.header("etag"), &again.body),
            (first.header("etag"), &first.body),
            "{query}"
        );
    }
    assert_eq!(service.count("tiles_decoded_total"), before);
    let etag = first.header("etag");
    for query in ["c=0", "c=0,1", "c=0,2:0000fe", "c=0,2:0000ff:0-2501", "z=0", "t=1", "c=none"] {
        let other = service.get(&format!("{tile}?{query}"));
        assert_eq!(other.status, 200, "{query}");
        assert_ne!(other.header("etag"), etag, "{query}");
    }
    // One tile each, for which the visible channels are read.
    assert_eq!(service.count("tiles_decoded_total"), before + 7);
    assert_eq!(service.count("decoded_twice_total"), 0);
    let canonical = |query: &str| {
        let image = service.get(&format!("/iiif/3/said.zarr/full/max/0/default.png{query}"));
        let link = image.header("link").to_owned();
        link.split('>').next().unwrap().rsplit('/').next().unwrap().to_owned()
    };
    assert_eq!(canonical(""), "default.png");
    assert_eq!(canonical("?c=0,2&z=1"), "default.png");
    assert_eq!(canonical("?c=2:00ff00&t=1"), "default.png?c=2:00ff00:0-2500&z=1&t=1");
    assert_eq!(canonical("?c=none"), "default.png?c=none&z=1&t=0");
}

/// Horizontal and vertical sampling factors of luminance in a JPEG file.
fn sampling(jpeg: &[u8]) -> u8 {
    let mut at = 2;
    loop {
        let length = usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        // The header of a baseline frame: its length, 8 bits, two sides, three components; then
        // each component's number and factors.
        if jpeg[at..at + 2] == [0xff, 0xc0] {
            return jpeg[at + 11];
        }
        at += 2 + length;
    }
}

#[test]
fn blended_channels_have_colours_of_full_resolution() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    channels(directory);
    odd(directory);
    let service = Service::of(directory);
    let of = |image: &str| sampling(&service.get(&format!("/iiif/3/{image}/0/default.jpg")).body);
    assert_eq!(of("said.zarr/5,7,99,77/99,77"), 0x11);
    assert_eq!(of("odd.tif/full/50,"), 0x22);
}

#[test]
fn properties_say_what_there_is_and_what_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    channels(directory);
    let service = Service::of(directory);
    let properties = |of: &str| service.get(&format!("/slides/{of}")).json();
    let said = properties("said.zarr/properties.json");
    let channel = |number: usize, name: &str, color: &str, window: [f64; 2], shown: bool| {
        json!({"number": number, "name": name, "color": color, "window": window,
            "windowIs": "declared", "range": [0.0, 4095.0], "shown": shown})
    };
    assert_eq!(
        said["channels"],
        json!([
            channel(0, "DAPI", "ff0000", [100.0, 3000.0], true),
            channel(1, "FITC", "00ff00", [50.5, 900.0], false),
            channel(2, "Cy5", "0000ff", [0.0, 2500.0], true),
        ])
    );
    assert_eq!(
        (&said["z"], &said["t"]),
        (&json!({"count": 3, "shown": 1}), &json!({"count": 2, "shown": 0}))
    );
    assert_eq!(said["sampleType"], "uint16");
    assert_eq!(said["rendering"], "c=0:ff0000:100-3000,2:0000ff:0-2500&z=1&t=0");
    let asked = properties("said.zarr/properties.json?c=1::7-8&t=1");
    assert_eq!(asked["rendering"], "c=1:00ff00:7-8&z=1&t=1");
    let of = |at: usize, key: &str| asked["channels"][at][key].clone();
    assert_eq!(
        (of(1, "shown"), of(1, "windowIs"), of(0, "shown")),
        (json!(true), json!("asked"), json!(false))
    );
    let measured = properties("float.zarr/properties.json");
    assert_eq!(measured["channels"][3]["windowIs"], "measured");
    assert_eq!(
        (&measured["sampleType"], &measured["channels"][4]["shown"]),
        (&json!("float32"), &json!(false))
    );
    assert_eq!(
        measured["properties"]["zarr.Rendering"],
        "not applied: it describes 3 channels, but there are 5"
    );
}

#[test]
fn samples_of_one_channel_are_given_out_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    channels(directory);
    let service = Service::of(directory);
    let expected = fs::read(directory.join("said.zarr.raw")).unwrap();
    let (width, height) = (130, 90);
    let mut whole = vec![0; width * height * 2];
    for (column, row) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
        let answer = service.get(&format!("/slides/said.zarr/raw/0/{column}_{row}?c=2&z=2&t=1"));
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        let length = 2 * (width - column * 64).min(64);
        for (y, line) in answer.body.chunks_exact(length).enumerate() {
            let at = ((row * 64 + y) * width + column * 64) * 2;
            whole[at..at + length].copy_from_slice(line);
        }
        assert_eq!(answer.body.len(), length * (height - row * 64).min(64));
    }
    assert!(whole == expected);
    let address = "/slides/said.zarr/raw/0/0_0";
    let first = service.get(&format!("{address}?c=2"));
    let etag = first.header("etag").to_owned();
    let again = service.ask("GET", &format!("{address}?c=2"), &[("if-none-match", &etag)]);
    assert_eq!(again.status, 304);
    for (path, status, what) in [
        (format!("{address}?c=3"), 400, "from 0 to 2"),
        (address.to_owned(), 400, "from 0 to 2"),
        (format!("{address}?c=0:ff0000"), 400, "from 0 to 2"),
        (format!("{address}?c=0&z=3"), 400, "3 focal planes"),
        ("/slides/said.zarr/raw/2/0_0?c=0".to_owned(), 404, "no such tile"),
        ("/slides/said.zarr/raw/0/3_0?c=0".to_owned(), 404, "no such tile"),
        ("/slides/said.zarr/raw/0/0?c=0".to_owned(), 404, "no such tile"),
    ] {
        let answer = service.get(&path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(what), "{path}: {}", answer.text());
    }
}

#[test]
fn settings_that_a_slide_does_not_have_are_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    channels(directory);
    odd(directory);
    let service = Service::of(directory);
    let addresses = |id: &str| {
        [
            "/ID_files/8/0_0.png",
            "/ID.dzi",
            "/iiif/3/ID/full/10,/0/default.jpg",
            "/slides/ID/thumbnail.jpg",
            "/slides/ID/properties.json",
        ]
        .map(|path| path.replace("ID", id))
    };
    for (query, what) in [
        ("c=3", "from 0 to 2, as in c=0:0000ff:100-4000"),
        ("c=0:blue", "six hexadecimal digits"),
        ("c=0:0000ff:4000-100", "from a number to a larger one, as 100-4000"),
        ("c=0:0000ff:NaN-100", "from a number to a larger one"),
        ("c=1,1", "channel 1 is there twice"),
        ("z=3", "from 0 to 2: there are 3 focal planes"),
        ("z=18446744073709551616", "from 0 to 2"),
        ("t=-1", "from 0 to 1: there are 2 times"),
    ] {
        for address in addresses("said.zarr") {
            let answer = service.get(&format!("{address}?{query}"));
            assert_eq!(answer.status, 400, "{address}?{query}");
            assert!(answer.text().contains(what), "{address}?{query}: {}", answer.text());
        }
    }
    // A slide without channels has one plane, which is shown anyway.
    for address in addresses("odd.tif") {
        let plain = service.get(&address);
        let same = service.get(&format!("{address}?z=0&t=0"));
        assert_eq!((plain.status, same.status), (200, 200), "{address}");
        assert_eq!((plain.header("etag"), &plain.body), (same.header("etag"), &same.body));
        let answer = service.get(&format!("{address}?c=0"));
        assert_eq!(answer.status, 400, "{address}");
        assert!(answer.text().contains("no channels: leave it out"), "{}", answer.text());
    }
    assert_eq!(service.get("/slides/odd.tif/raw/0/0_0?c=0").status, 404);
    assert_eq!(service.get("/slides/odd.tif/properties.json").json()["channels"], json!([]));
}

#[test]
fn samples_of_a_channel_take_memory_for_the_whole_chunk() {
    let directory = tempfile::tempdir().unwrap();
    let slide = directory.path().join("deep.zarr");
    fs::create_dir_all(slide.join("0")).unwrap();
    let group = json!({"multiscales": [{"axes": ["c", "y", "x"], "datasets": [{"path": "0"}]}]});
    fs::write(slide.join(".zattrs"), group.to_string()).unwrap();
    let array = json!({
        "zarr_format": 2, "shape": [64, 64, 64], "chunks": [64, 64, 64], "dtype": "<u2",
        "compressor": null, "fill_value": 0, "order": "C", "filters": null,
    });
    fs::write(slide.join("0/.zarray"), array.to_string()).unwrap();
    fs::write(slide.join("0/0.0.0"), vec![1; 64 * 64 * 64 * 2]).unwrap();
    for (memory, status) in [(1 << 20, 200), (256 << 10, 501)] {
        let service = Service::start(directory.path(), |settings| settings.memory = memory);
        let answer = service.get("/slides/deep.zarr/raw/0/0_0?c=5");
        assert_eq!(answer.status, status, "{}", String::from_utf8_lossy(&answer.body));
    }
}
