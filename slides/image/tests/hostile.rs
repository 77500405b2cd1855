//! Malformed and malicious files: each gives an error, within the limits.

use crate::common::aperio;
use crate::common::seeds::{Entry, LONG, SHORT, jpeg, tiff};
use seekwire_slides_image::{Error, Limits, MemorySource, Region, Slide, StoredTile};

fn open(bytes: Vec<u8>) -> Result<Slide, Error> {
    Slide::from_source(MemorySource::new("hostile.tif", bytes), Limits::default())
}

fn read(slide: &Slide) -> Result<(), Error> {
    slide.read(0, Region { x: 0, y: 0, width: 64, height: 64 }).map(drop)
}

#[test]
fn what_is_wrong_is_said() {
    let tile = [7; 4096];
    read(&open(tiff(&[], 0, &tile)).unwrap()).unwrap();
    let million = 1_000_000_000;
    let opens: &[(&[Entry], u32, &str)] = &[
        (&[], 8, "a loop"),
        (&[], 0xffff_fff0, "the file ends"),
        (&[(330, LONG, 1, 8)], 0, "a loop"),
        (&[(256, LONG, 1, million), (257, LONG, 1, million)], 0, "beyond the limit"),
        (&[(322, LONG, 1, million), (323, LONG, 1, million)], 0, "beyond the limit"),
        (&[(322, LONG, 1, 0)], 0, "tiles without pixels"),
        (&[(256, LONG, 1, 0)], 0, "without pixels"),
        (&[(256, LONG, 1, 6400)], 0, "offsets of only 1"),
        (&[(324, LONG, u32::MAX, 8)], 0, "beyond the limit"),
        (&[(324, LONG, 1000, 4000)], 0, "the file ends"),
        (&[(324, 99, 1, 8)], 0, "not a number"),
        (&[(259, SHORT, 1, 34712), (277, SHORT, 1, 2)], 0, "2 samples of a pixel"),
        (&[(259, SHORT, 1, 34712), (258, SHORT, 1, 32)], 0, "Grey of 32 bits by Jpeg2000"),
        (&[(259, SHORT, 1, 34712), (266, SHORT, 1, 2)], 0, "fill order 2 by Jpeg2000"),
        (&[(259, SHORT, 1, 34712), (339, SHORT, 1, 2)], 0, "Grey of 8 bits by Jpeg2000"),
        (&[(259, SHORT, 1, 4)], 0, "compression 4"),
        (&[(258, SHORT, 1, 3)], 0, "samples of 3 bits"),
        (&[(277, SHORT, 1, 1000)], 0, "1000 samples"),
        (&[(32997, LONG, 1, 5)], 0, "a volume"),
        (&[(32998, LONG, 1, 8)], 0, "a volume"),
    ];
    for (changes, next, what) in opens {
        let error = open(tiff(changes, *next, &tile)).err();
        let error = error.unwrap_or_else(|| panic!("{what}: opened")).to_string();
        assert!(error.contains(what) && error.contains("hostile.tif"), "{what}: {error}");
    }
    let reads: &[(&[Entry], &str)] = &[
        (&[(324, LONG, 1, 1_000_000)], "the file ends"),
        (&[(325, LONG, 1, 100)], "100 bytes of 4096"),
        (&[(325, LONG, 1, u32::MAX)], "beyond the limit"),
        (&[(259, SHORT, 1, 7)], "does not begin as a JPEG"),
        (&[(259, SHORT, 1, 8)], "deflate"),
        (&[(259, SHORT, 1, 33003)], "its JPEG 2000: it does not begin as JPEG 2000"),
        (&[(259, SHORT, 1, 5)], "tile 0, 0"),
    ];
    for (changes, what) in reads {
        let error = read(&open(tiff(changes, 0, &tile)).unwrap()).err();
        let error = error.unwrap_or_else(|| panic!("{what}: read")).to_string();
        assert!(error.contains(what) && error.contains("hostile.tif"), "{what}: {error}");
    }
    for bytes in [&b""[..], b"II", b"II\x2a\0", b"MM\0\x2b\0\x08\0\0", b"\x89PNG\r\n\x1a\n"] {
        assert!(matches!(open(bytes.to_vec()), Err(Error::Unsupported { .. })), "{bytes:?}");
    }
}

#[test]
fn pixels_that_are_black_or_white_as_readers_please_are_refused() {
    let mut bytes = tiff(&[], 0, &[7; 4096]);
    // Replaces the tag of the photometric interpretation with an unknown one.
    let at = bytes.windows(2).position(|tag| tag == 262_u16.to_le_bytes()).unwrap();
    bytes[at..at + 2].copy_from_slice(&65_000_u16.to_le_bytes());
    let error = open(bytes).err().unwrap().to_string();
    assert!(error.contains("without a photometric interpretation"), "{error}");
}

#[test]
fn a_tile_in_jpeg_that_is_too_small_is_an_error() {
    // Tiles of 128 x 128 pixels, in which there is a JPEG of 64 x 64.
    let of = |width: u32, height: u32| {
        let size = [(256, LONG, 1, width), (257, LONG, 1, height)];
        let tile = [(322, LONG, 1, 128), (323, LONG, 1, 128), (259, SHORT, 1, 7)];
        open(tiff(&[&size[..], &tile].concat(), 0, &jpeg())).unwrap()
    };
    // At the border, a tile may end where the image does.
    read(&of(64, 64)).unwrap();
    for (width, height) in [(65, 64), (64, 65), (128, 128)] {
        let error = read(&of(width, height)).unwrap_err().to_string();
        assert!(error.contains("tile 0, 0: it has only 64 x 64 pixels"), "{error}");
    }
}

#[test]
fn a_tile_without_one_of_its_colours_is_an_error() {
    let of = |counts: [u32; 3]| {
        // Eleven entries come before the table of offsets.
        let table = 8 + 2 + 12 * 11 + 4;
        let offsets = [0, 1, 2].map(|plane| table + 24 + 4096 * plane);
        let tables = offsets.into_iter().chain(counts).flat_map(u32::to_le_bytes);
        let rest: Vec<u8> = tables.chain([7; 3 * 4096]).collect();
        let planes = [(262, SHORT, 1, 2), (277, SHORT, 1, 3), (284, SHORT, 1, 2)];
        let places = [(324, LONG, 3, table), (325, LONG, 3, table + 12)];
        open(tiff(&[&planes[..], &places].concat(), 0, &rest)).unwrap()
    };
    read(&of([4096; 3])).unwrap();
    for counts in [[4096, 4096, 0], [0, 4096, 4096]] {
        let error = read(&of(counts)).unwrap_err().to_string();
        assert!(error.contains("some of its samples have no bytes"), "{error}");
    }
}

#[test]
fn tables_of_many_directories_count_together() {
    const LENGTH: u32 = 1 << 20;
    const COUNT: u32 = 8;
    // The tables of each begin `step` bytes after those of the previous one.
    let open = |step: u32| {
        let below = |offset| {
            let jpeg = [(254, LONG, 1, 1), (259, SHORT, 1, 7), (347, 7, LENGTH, offset)];
            tiff(&jpeg, 0, &[1])[8..].to_vec()
        };
        let size = below(0).len() as u32;
        // After the main directory of eleven entries: the list of the others, the others, and the
        // tables.
        let list = 8 + 2 + 12 * 11 + 4;
        let first = list + 4 * COUNT;
        let tables = first + COUNT * size;
        let mut rest = Vec::new();
        rest.extend((0..COUNT).flat_map(|number| (first + number * size).to_le_bytes()));
        rest.extend((0..COUNT).flat_map(|number| below(tables + number * step)));
        rest.resize(rest.len() + (LENGTH + COUNT) as usize, 0);
        let size = [256, 257, 322, 323].map(|tag| (tag, LONG, 1, 128));
        let jpeg = [(259, SHORT, 1, 7), (330, LONG, COUNT, list), (347, 7, LENGTH, tables)];
        let main = [&size[..], &jpeg].concat();
        let limits = Limits { tables: 4 << 20, ..Limits::default() };
        Slide::from_source(MemorySource::new("hostile.tif", tiff(&main, 0, &rest)), limits)
    };
    // Tables at the same offset count once.
    assert!(open(0).is_ok());
    let error = open(1).err().unwrap();
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    assert!(error.to_string().contains("tag 347 of 1048576 bytes"), "{error}");
}

#[test]
fn a_description_of_many_properties_is_read_in_part() {
    let pairs: String = (0..3000).map(|number| format!("|{number}=1")).collect();
    let text = format!("Aperio{pairs}");
    // The description begins where the tile does.
    let entries = [(270, 2, text.len() as u32, 8 + 2 + 12 * 10 + 4)];
    let slide = open(tiff(&entries, 0, text.as_bytes())).unwrap();
    assert_eq!((slide.format(), slide.properties().len()), ("aperio", 1024));
    assert_eq!(slide.properties()["aperio.1023"], "1");
}

#[test]
fn a_colour_profile_has_a_limit_of_its_own() {
    let most = Limits::default().profile as u32;
    let of = |length: u32| {
        let rest = vec![0; length as usize];
        // The profile begins where the tile does.
        open(tiff(&[(34675, 7, length, 8 + 2 + 12 * 10 + 4)], 0, &rest))
    };
    assert_eq!(of(most).unwrap().icc().map(<[u8]>::len), Some(most as usize));
    let slide = of(most + 1).unwrap();
    assert_eq!(slide.icc(), None);
    let property = &slide.properties()["tiff.ColourProfile"];
    assert_eq!(property, "not applied: it has 4194305 bytes, of 4194304 at most");
}

#[test]
fn what_is_not_applied_or_elsewhere_is_said() {
    let slide = open(tiff(&[(274, SHORT, 1, 6)], 0, &[7; 4096])).unwrap();
    let property = &slide.properties()["tiff.Orientation"];
    assert_eq!(property, "6: not applied, the image is shown as it is stored");
    let xml = b"<OME><BinaryOnly MetadataFile=\"a.companion.ome\"/></OME>\0";
    let entries = [(270, 2, xml.len() as u32, 8 + 2 + 12 * 10 + 4)];
    let error = open(tiff(&entries, 0, xml)).err().unwrap().to_string();
    assert!(error.contains("\"a.companion.ome\""), "{error}");
    // Places of tiles in the tags for strips.
    let mut bytes = tiff(&[], 0, &[7; 4096]);
    for (tag, other) in [(324_u16, 273_u16), (325, 279)] {
        let at = (10..).step_by(12).find(|at| bytes[*at..*at + 2] == tag.to_le_bytes()).unwrap();
        bytes[at..at + 2].copy_from_slice(&other.to_le_bytes());
    }
    read(&open(bytes).unwrap()).unwrap();
}

#[test]
fn xml_does_not_grow() {
    let xml = b"<!DOCTYPE b [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY c \"&a;&a;&a;\">]><OME>&c;</OME>\0";
    // The description begins where the tile does.
    let entries = [(270, 2, xml.len() as u32, 8 + 2 + 12 * 10 + 4)];
    let error = open(tiff(&entries, 0, xml)).err().unwrap().to_string();
    assert!(error.contains("OME-XML"), "{error}");
}

#[test]
fn a_bomb_is_not_unpacked() {
    use std::io::Write;
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&vec![0; 32 << 20]).unwrap();
    let bytes = tiff(&[(259, SHORT, 1, 8)], 0, &packer.finish().unwrap());
    // Only as much is read as fits into the tile.
    read(&open(bytes).unwrap()).unwrap();
}

#[test]
fn a_real_slide_cut_or_changed_anywhere_does_no_harm() {
    let whole = std::fs::read(aperio()).unwrap();
    let directory = 1_275_950;
    // Cut in and after the first directory; beyond that, the missing bytes belong to other images.
    for length in (directory - 3..directory + 2200).step_by(97).chain([100, 1_474_370, 1_938_900]) {
        assert!(open(whole[..length].to_vec()).is_err(), "{length}");
    }
    for at in directory..directory + 198 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        if let Ok(slide) = open(bytes) {
            let _ = slide.read(0, Region { x: 1, y: 1, width: 9, height: 9 });
        }
    }
    let slide = open(whole).unwrap();
    let block = slide.tile(0, 0, 0).unwrap().to_block();
    for at in 0..block.len() {
        let mut bytes = block.clone();
        bytes[at] ^= 0x55;
        // Every header byte, and some of the JPEG.
        if (at < 900 || at % 499 == 0)
            && let Ok(tile) = StoredTile::from_block(&bytes.into())
        {
            let limits = Limits { tile_pixels: 1 << 17, ..Limits::default() };
            let _ = tile.decode(&limits);
            let _ = tile.decode(&Limits { turbojpeg: true, ..limits });
        }
    }
    for length in [0, 4, 29, block.len() - 1] {
        assert!(StoredTile::from_block(&block[..length].to_vec().into()).is_err());
    }
}
