//! Channels, focal planes and times in files written by other programs, compared with numpy.

use crate::common::cases::check;
use crate::common::seeds::{Files, tiff, zarr_2, zarr_channels};
use seekwire_slides_image::{
    Error, Ink, Layer, Limits, MemorySource, Plane, Region, Rendering, Slide, Source, Store, Window,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn channels_of_ome_zarr_are_as_numpy_blends_them() {
    let directory = tempfile::tempdir().unwrap();
    assert!(check("make_channels.py", &[], directory.path()) >= 17);
}

/// Files in memory.
struct Memory(Files);

impl Store for Memory {
    fn name(&self) -> &str {
        "hostile.zarr"
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>, Error> {
        let bytes = self.0.get(key).cloned();
        Ok(bytes.map(|bytes| Arc::new(MemorySource::new(key, bytes)) as Arc<dyn Source>))
    }
}

/// An image of 100 x 64 pixels in chunks of 64 x 64, with these other axes and lengths.
fn image(axes: &str, shape: &str, chunks: &str, omero: &str) -> Result<Slide, Error> {
    let mut files = zarr_2("null", &[5; 64 * 64]);
    let array = String::from_utf8(files["0/.zarray"].clone()).unwrap();
    let array = array.replace("[3, 64, 100]", shape).replace("[1, 64, 64]", chunks);
    files.insert("0/.zarray".into(), array.into());
    for (channel, z) in (0..2).flat_map(|channel| (0..4).map(move |z| (channel, z))) {
        files.insert(format!("0/{channel}.{z}.0.0"), vec![5; 64 * 64]);
    }
    let attributes = format!(
        r#"{{"multiscales": [{{"axes": [{axes}], "datasets": [{{"path": "0"}}]}}], "omero": {omero}}}"#
    );
    files.insert(".zattrs".into(), attributes.into());
    Slide::from_store(Memory(files), Limits::default())
}

#[test]
fn counts_that_no_image_has_are_refused() {
    const AXES: &str = r#""c", "z", "y", "x""#;
    for (shape, chunks, what) in [
        ("[1000000000, 1, 64, 100]", "[1, 1, 64, 64]", "1000000000 channels, of 256 at most"),
        ("[257, 1, 64, 100]", "[1, 1, 64, 64]", "257 channels"),
        (
            "[2, 18446744073709551615, 64, 100]",
            "[1, 1, 64, 64]",
            "18446744073709551615 focal planes",
        ),
        ("[2, 1, 64, 100]", "[4294967296, 4294967296, 64, 64]", "beyond the limit: 0: chunks"),
        ("[2, 1, 64, 100]", "[1, 1000000, 64, 64]", "beyond the limit: 0: chunks"),
        ("[2, 1, 64, 100]", "[1, 100000, 1, 64]", "too many samples"),
    ] {
        let error = image(AXES, shape, chunks, "null").err().unwrap().to_string();
        assert!(error.contains(what), "{shape} {chunks}: {error}");
    }
    // An axis of unknown meaning.
    let error = image(r#""q", "c", "y", "x""#, "[2, 2, 64, 100]", "[1, 1, 64, 64]", "null");
    let error = error.err().unwrap().to_string();
    assert!(error.contains("other than t, c, z, y and x, with 2 entries"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_as_if_they_were_not_there() {
    let rendering = |omero: &str| {
        let slide = image(r#""c", "z", "y", "x""#, "[2, 4, 64, 100]", "[1, 1, 64, 64]", omero);
        slide.unwrap().rendering()
    };
    let measured = rendering("null");
    assert_eq!(measured.plane, Plane { z: 2, t: 0 });
    // All existing pixels have one value.
    let window = Window::new(5.0, 10.0).unwrap();
    assert_eq!(measured.layers[0].ink, Ink { colour: [0, 0, 255], window });
    for omero in [
        r#"{"channels": [{"window": {"start": 9, "end": 1}}, {"window": {"start": 1, "end": 1}}]}"#,
        r#"{"channels": [{"window": {"start": "a", "end": 1}}, {"window": 7}]}"#,
        r#"{"channels": [{"window": {"start": -1.7e308, "end": 1.7e308}}, {"color": "red"}]}"#,
        r#"{"channels": [{"color": 7, "label": 8, "active": 9}, []]}"#,
        r#"{"channels": 7, "rdefs": []}"#,
        r#"{"channels": [{"color": "FF0000", "active": false}]}"#,
        r#"{"rdefs": {"defaultZ": 4, "defaultT": 18446744073709551615}}"#,
        r#"{"rdefs": {"defaultZ": -1, "defaultT": 0.5}}"#,
        "7",
    ] {
        assert_eq!(rendering(omero), measured, "{omero}");
    }
    let slide = image(
        r#""c", "z", "y", "x""#,
        "[2, 4, 64, 100]",
        "[1, 1, 64, 64]",
        r#"{"channels": [{"color": "FF0000"}]}"#,
    );
    let property = &slide.unwrap().properties()["zarr.Rendering"].clone();
    assert_eq!(property, "not applied: it describes 1 channels, but there are 2");
}

#[test]
fn what_a_slide_does_not_have_is_an_error() {
    let slide =
        image(r#""c", "z", "y", "x""#, "[2, 4, 64, 100]", "[1, 1, 64, 64]", "null").unwrap();
    let region = Region { x: 0, y: 0, width: 9, height: 9 };
    let ink = Ink { colour: [9; 3], window: Window::new(0.0, 1.0).unwrap() };
    let of = |channels: &[u32], z, t| {
        let layers = channels.iter().map(|channel| Layer { channel: *channel, ink }).collect();
        slide.read_as(0, region, &Rendering { plane: Plane { z, t }, layers })
    };
    assert_eq!(of(&[0, 1], 3, 0).unwrap().pixels()[..3], [18; 3]);
    for (channels, z, t, what) in [
        (&[2][..], 0, 0, "no channel 2: there are 2"),
        (&[u32::MAX], 0, 0, "there are 2"),
        (&[1, 0], 0, 0, "twice"),
        (&[0, 0], 0, 0, "twice"),
        (&[0], 4, 0, "there are 4 at 1 times"),
        (&[0], u32::MAX, 0, "there are 4"),
        (&[0], 0, 1, "there are 4"),
    ] {
        let error = of(channels, z, t).unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
    assert!(slide.raw(0, (0, 0), 2, Plane::default()).is_err());
    assert!(slide.raw(0, (2, 0), 0, Plane::default()).is_err());
    assert!(slide.raw(1, (0, 0), 0, Plane::default()).is_err());
    assert_eq!(slide.raw(0, (1, 0), 0, Plane::default()).unwrap().width, 36);
    assert!(slide.tile(0, 0, 0).is_err());
    // Slides without channels have no raw samples.
    let plain = image(r#""c", "y", "x""#, "[3, 64, 100]", "[1, 64, 64]", "null").unwrap();
    assert!(plain.channels().is_empty() && plain.raw(0, (0, 0), 0, Plane::default()).is_err());
    let layers = vec![Layer { channel: 0, ink }];
    assert!(plain.read_as(0, region, &Rendering { plane: Plane::default(), layers }).is_err());
}

#[test]
fn three_channels_are_one_image_unless_their_colours_say_something_else() {
    let is_one = |omero: &str| {
        let slide = image(r#""c", "y", "x""#, "[3, 64, 100]", "[1, 64, 64]", omero).unwrap();
        slide.channels().is_empty()
    };
    let channels = |colours: [&str; 3]| {
        let of = colours.map(|colour| {
            format!(r#"{{"color": "{colour}", "window": {{"start": 0, "end": 9}}}}"#)
        });
        format!(r#"{{"channels": [{}]}}"#, of.join(", "))
    };
    assert!(is_one("null"));
    assert!(is_one(&channels(["FF0000", "00FF00", "0000FF"])));
    assert!(is_one(r#"{"channels": [{"label": "0"}, {"label": "1"}, {"label": "2"}]}"#));
    assert!(!is_one(&channels(["FF0000", "00FF00", "FF00FF"])));
    assert!(!is_one(&channels(["0000FF", "00FF00", "FF0000"])));
}

#[test]
fn channels_of_tiff_are_as_numpy_blends_them() {
    let directory = tempfile::tempdir().unwrap();
    assert!(check("make_stacks.py", &[], directory.path()) >= 24);
}

#[test]
fn optical_paths_of_dicom_are_as_numpy_blends_them() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(check("make_paths.py", &[], directory.path()), 4);
}

/// A TIFF with one grey page of 64 x 64 pixels and this description; the same bytes are its pixels.
fn described(description: &str) -> Result<Slide, Error> {
    let mut text = description.as_bytes().to_vec();
    text.resize(4096, 0);
    // The description begins where the tile does.
    let entries = [(270, 2, text.len() as u32, 8 + 2 + 12 * 10 + 4)];
    let file = MemorySource::new("hostile.tif", tiff(&entries, 0, &text));
    Slide::from_source(file, Limits::default())
}

#[test]
fn planes_that_a_tiff_does_not_have_are_not_shown() {
    let ome = |pixels: &str, data: &str| {
        let size = r#"SizeX="64" SizeY="64" Type="uint8" DimensionOrder="XYCZT""#;
        // If an attribute occurs twice, the XML is invalid.
        let size = match pixels.contains("Type=") || pixels.contains("Order=") {
            true => r#"SizeX="64" SizeY="64""#,
            false => size,
        };
        described(&format!("<OME><Image><Pixels {size} {pixels}>{data}</Pixels></Image></OME>"))
    };
    for (pixels, data, what) in [
        (r#"SizeC="1000000000""#, "", "999999999 other channels"),
        (r#"SizeC="3""#, "<TiffData/>", "2 other channels"),
        (
            r#"SizeC="2""#,
            r#"<TiffData IFD="0" PlaneCount="18446744073709551615"/>"#,
            "1 other channels",
        ),
    ] {
        let slide = ome(pixels, data).unwrap();
        assert!(slide.channels().is_empty(), "{pixels}");
        let property = &slide.properties()["tiff.NotShown"];
        assert!(property.contains(what), "{pixels}: {property}");
    }
    for (pixels, data, what) in [
        (r#"SizeZ="18446744073709551615""#, "", "no number of planes"),
        (r#"SizeT="0""#, "", "no number of planes"),
        (r#"SizeC="-1""#, "", "no number of planes"),
        (r#"SizeZ="4294967295" SizeT="4294967295""#, "", "1 of its 18446744065119617025 planes"),
        (r#"SizeZ="2""#, "<TiffData/>", "1 of its 2 planes are here"),
        (r#"SizeC="2""#, r#"<TiffData FirstC="18446744073709551615"/>"#, "2 other channels"),
        (r#"SizeC="2""#, r#"<TiffData IFD="0"/><TiffData IFD="0" FirstC="1"/>"#, "several planes"),
        (r#"SizeC="2""#, r#"<TiffData FirstC="x"/>"#, "FirstC"),
        (r#"SizeC="2" Type="uint8" DimensionOrder="XYCCC""#, "", "the order"),
        (r#"SizeC="2" Type="uint8" DimensionOrder="XYCZTT""#, "", "the order"),
        (r#"SizeC="2" Type="uint16" DimensionOrder="XYCZT""#, "", "of the type"),
    ] {
        let error = ome(pixels, data).err().unwrap_or_else(|| panic!("{pixels}{data}: read"));
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(what), "{pixels}{data}: {error}");
    }
    let elsewhere = r#"<OME UUID="a"><Image><Pixels SizeX="64" SizeY="64" Type="uint8" SizeC="2">
        <TiffData IFD="0" FirstC="0"><UUID FileName="x.tif">b</UUID></TiffData>
        <TiffData IFD="0" FirstC="1"><UUID FileName="y.tif">a</UUID></TiffData></Pixels></Image></OME>"#;
    let slide = described(elsewhere).unwrap();
    assert_eq!(
        slide.properties()["tiff.NotShown"],
        "1 other channels, which may be in other files"
    );
}

#[test]
fn images_in_other_files_of_a_set_are_not_taken_from_this_one() {
    let image = |name: &str, side: u32, file: &str| {
        format!(
            r#"<Image Name="{name}"><Pixels SizeX="{side}" SizeY="{side}" Type="uint8">
                <TiffData IFD="0">{file}</TiffData></Pixels></Image>"#
        )
    };
    let file = |name: &str, uuid: &str| format!(r#"<UUID FileName="/doe/{name}">{uuid}</UUID>"#);
    let [a, b] = [file("hostile.tif", "A"), file("other.tif", "B")];
    let set =
        |root: &str, images: &[String]| described(&format!("<OME{root}>{}</OME>", images.concat()));
    let both = [image("scan", 64, &a), image("label image", 64, &b)];
    for root in [r#" UUID="A""#, ""] {
        let slide = set(root, &both).unwrap();
        assert_eq!(slide.associated_names().count(), 0);
        assert_eq!(slide.properties()["ome.Name"], "scan");
        assert_eq!(slide.properties()["tiff.NotShown"], "image 1: in another file");
    }
    let turned = [image("scan", 64, &b), image("label image", 64, &a)];
    for (root, images) in [(r#" UUID="B""#, &both), (r#" UUID="A""#, &turned), ("", &turned)] {
        let error = set(root, images).err().unwrap().to_string();
        assert!(error.contains("without the slide: image 0: in another file"), "{error}");
    }
    // Only the first image is of the only directory, and only if it has that size.
    for (label, why) in [
        (image("label", 64, ""), "image 1: of the same directory as image 0"),
        (image("label", 32, ""), "image 1: of the same directory"),
        (image("label", 32, &b), "image 1: in another file"),
    ] {
        let slide = set(r#" UUID="A""#, &[image("scan", 64, &a), label]).unwrap();
        assert_eq!(slide.associated_names().count(), 0);
        let property = &slide.properties()["tiff.NotShown"];
        assert!(property.starts_with(why), "{property}");
    }
    let error = set("", &[image("scan", 65, ""), image("label", 64, "")]).err().unwrap();
    let what = "image 0: 65 x 65 pixels, but its directory has 64 x 64";
    assert!(error.to_string().contains(what), "{error}");
    // A set of one file may have been renamed.
    assert!(set("", &[image("scan", 64, &file("before.tif", "C"))]).is_ok());
}

#[test]
fn stacks_of_imagej_that_are_not_there_are_one_image() {
    for (words, what) in [
        ("images=2\nslices=2", "1 x 2 x 1 planes, 2 images, 1 pages"),
        ("images=3\nchannels=2", "2 x 1 x 1 planes, 3 images"),
        ("images=1\nchannels=4294967295\nslices=4294967295\nframes=4294967295", "4294967295 x"),
        ("channels=0", "invalid counts"),
        ("frames=18446744073709551616", "invalid counts"),
    ] {
        let slide = described(&format!("ImageJ=1.54f\n{words}\n")).unwrap();
        assert!(slide.channels().is_empty() && slide.planes() == (1, 1), "{words}");
        let property = &slide.properties()["tiff.NotShown"];
        assert!(property.contains(what), "{words}: {property}");
    }
    let slide = described("ImageJ=1.54f\nmin=5\nmax=50\n").unwrap();
    assert_eq!(slide.channels()[0].ink.window, Window::new(5.0, 50.0).unwrap());
    for words in ["min=0\nmax=255", "min=9\nmax=9", "min=NaN\nmax=1", "min=5\nmax=1e999"] {
        let slide = described(&format!("ImageJ=1.54f\n{words}\n")).unwrap();
        assert!(slide.channels().is_empty(), "{words}");
    }
}

/// Counts how often a chunk is opened.
struct Counted(Memory, Arc<AtomicUsize>);

impl Store for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>, Error> {
        self.1.fetch_add(usize::from(key.starts_with("0/c")), Ordering::Relaxed);
        self.0.open(key)
    }
}

#[test]
fn chunks_of_many_channels_are_decompressed_a_few_times_only() {
    // 4096 chunks of 134 MB each, all in the same hundred kilobytes.
    let array = r#"{"zarr_format": 3, "node_type": "array", "shape": [256, 255, 1024, 1024],
        "data_type": "float64", "chunk_grid": {"name": "regular",
            "configuration": {"chunk_shape": [256, 255, 1024, 1024]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [256, 255, 16, 16],
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]}"#;
    let group = r#"{"zarr_format": 3, "node_type": "group", "attributes": {"ome": {"multiscales": [
        {"axes": ["c", "z", "y", "x"], "datasets": [{"path": "0"}]}]}}}"#;
    let frame = zstd::bulk::compress(&vec![0; 256 * 255 * 16 * 16 * 8], 1).unwrap();
    let mut shard = frame.clone();
    for word in [0, frame.len() as u64].repeat(4096) {
        shard.extend(word.to_le_bytes());
    }
    let mut files = Files::new();
    files.insert("zarr.json".into(), group.into());
    files.insert("0/zarr.json".into(), array.into());
    files.insert("0/c/0/0/0/0".into(), shard);
    let opened = Arc::new(AtomicUsize::new(0));
    let store = Counted(Memory(files), Arc::clone(&opened));
    let slide = Slide::from_store(store, Limits::default()).unwrap();
    assert_eq!(slide.channels().len(), 256);
    assert_eq!(slide.channels()[255].ink.window, Window::new(0.0, 1.0).unwrap());
    assert!(opened.load(Ordering::Relaxed) < 8, "{opened:?}");
    assert!(slide.decoding(0) > 256 * 255 * 16 * 16 * 8);
}

#[test]
fn broken_images_of_channels_do_no_harm() {
    let files = zarr_channels();
    let look = |files: &Files| -> Result<(), Error> {
        let slide = Slide::from_store(Memory(files.clone()), Limits::default())?;
        let region = Region { x: 0, y: 0, width: 64, height: 64 };
        slide.read(0, region)?;
        let ink = Ink { colour: [255; 3], window: Window::new(0.0, 1.0).unwrap() };
        let layers = vec![Layer { channel: 0, ink }];
        slide.read_as(0, region, &Rendering { plane: Plane::default(), layers })?;
        slide.raw(0, (0, 0), 0, Plane::default()).map(drop)
    };
    look(&files).unwrap();
    for name in ["0/.zarray", ".zattrs"] {
        for at in 0..files[name].len() {
            for byte in [b'0', b'9', b'-', b'"', b'{', 0] {
                let mut files = files.clone();
                files.get_mut(name).unwrap()[at] = byte;
                let _ = look(&files);
            }
        }
    }
}
