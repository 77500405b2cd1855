//! Slides from untrusted sources: opened and read within small limits, or refused. The target
//! generates small valid slides; an input selects one of them and the bytes to change, or is a file
//! of its own.
#![no_main]

#[path = "../image/tests/common/seeds.rs"]
mod seeds;

use libfuzzer_sys::fuzz_target;
use seeds::{Dataset, Files, JPEG, JPEG_2000, NATIVE};
use seekwire_slides_image::{
    Layer, Limits, MemorySource, Plane, Region, Rendering, Result, Slide, Source, Store,
    StoredTile, Tile,
};
use std::panic::{set_hook, take_hook};
use std::sync::{Arc, Once, OnceLock};

/// Enough for the generated slides, and small enough for many executions per second.
fn limits() -> Limits {
    Limits {
        directories: 16,
        entries: 64,
        tables: 1 << 16,
        value: 1 << 16,
        profile: 1 << 12,
        stored: 1 << 16,
        tile_pixels: 1 << 14,
        region_pixels: 1 << 14,
        side: 1 << 20,
        files: 4,
        ..Limits::default()
    }
}

struct Memory(Files);

impl Store for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn open(&self, key: &str) -> Result<Option<Arc<dyn Source>>> {
        let bytes = self.0.get(key).cloned();
        Ok(bytes.map(|bytes| Arc::new(MemorySource::new(key, bytes)) as Arc<dyn Source>))
    }
}

fn files() -> &'static [Vec<u8>] {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| {
        let (tile, raw) = (seeds::jpeg(), seeds::native(2 * 64 * 64));
        let waves = seeds::jpeg_2000();
        let encapsulated = |table| seeds::encapsulated(&[&tile, &tile], table);
        let grey = seeds::tiff(&[], 0, &[7; 4096]);
        let mut files = vec![
            grey.clone(),
            seeds::tiff(&[(259, seeds::SHORT, 1, 7)], 0, &tile),
            seeds::tiff(&[(259, seeds::SHORT, 1, 5), (317, seeds::SHORT, 1, 2)], 0, &[0x80; 64]),
            Dataset::slide().file(NATIVE, &raw),
            Dataset::slide().file(JPEG, &encapsulated(true)),
            Dataset::sparse(true).file(JPEG, &encapsulated(true)),
            Dataset::sparse(false).file(JPEG, &encapsulated(false)),
            seeds::tiff(&[(259, seeds::SHORT, 1, 34712)], 0, &waves),
            Dataset::slide().file(JPEG_2000, &seeds::encapsulated(&[&waves, &waves], false)),
        ];
        let slide = Slide::from_source(MemorySource::new("seed", grey), limits());
        files.extend(slide.and_then(|slide| slide.tile(0, 0, 0)).map(|tile| tile.to_block()));
        files
    })
}

fn stores() -> &'static [Files] {
    static STORES: OnceLock<Vec<Files>> = OnceLock::new();
    STORES.get_or_init(|| {
        vec![
            seeds::zarr_2("null", &[5; 4096]),
            seeds::zarr_2(r#"{"id": "blosc"}"#, &seeds::blosc(4096)),
            seeds::zarr_3("", &[5; 3 * 4096]),
            seeds::zarr_3(r#", {"name": "zstd"}"#, &[5; 64]),
            seeds::zarr_channels(),
        ]
    })
}

/// Writes each third byte of the edits to the offset that the preceding two give.
fn edit(bytes: &mut [u8], edits: &[u8]) {
    for edit in edits.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
        if let Some(byte) = bytes.get_mut(offset) {
            *byte = edit[2];
        }
    }
}

fn ask(slide: &Slide) {
    for level in 0..slide.levels().len().min(4) {
        for (x, y) in [(0, 0), (60, 30)] {
            let region = Region { x, y, width: 64, height: 64 };
            let _ = (slide.read(level, region), slide.stored_jpeg(level, region));
        }
    }
    let (depth, times) = slide.planes();
    let plane = Plane { z: depth - 1, t: times - 1 };
    let layers = slide.channels().iter().zip(0..).take(3);
    let layers = layers.map(|(of, channel)| Layer { channel, ink: of.ink }).collect();
    let region = Region { x: 0, y: 0, width: 64, height: 64 };
    let _ = slide.read_as(0, region, &Rendering { plane, layers });
    let _ = slide.raw(0, (0, 0), 0, plane);
    let _ = slide.render(Region { x: -9, y: 0, width: 64, height: 64 }, 20, 30);
    for instance in slide.dicom().into_iter().flat_map(|dicom| dicom.instances()) {
        let _ = (instance.frame(1), instance.frame(instance.frames()));
        if let Ok(json) = instance.json("bulk") {
            assert!(json.starts_with('{') && json.ends_with('}'));
        }
    }
    let names: Vec<String> = slide.associated_names().map(str::to_owned).collect();
    for name in names {
        let _ = slide.associated(&name);
    }
}

fn open(bytes: Vec<u8>) {
    if let Ok(tile) = StoredTile::from_block(&bytes.clone().into()) {
        let _ = tile.decode(&limits());
        // The blocks, because a fill value that is not a number is not equal to itself.
        let block = tile.to_block();
        let again = StoredTile::from_block(&block.clone().into());
        assert_eq!(again.map(|tile| tile.to_block()).ok(), Some(block));
    }
    if let Ok(tile) = Tile::from_block(&bytes.clone().into()) {
        let _ = tile.decode(&limits());
    }
    if let Ok(slide) = Slide::from_source(MemorySource::new("memory", bytes), limits()) {
        ask(&slide);
    }
}

/// A panic ends the run, except those in the JPEG 2000 decoder, which become errors of a tile.
fn let_the_decoder_panic() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let ends = take_hook();
        set_hook(Box::new(move |panic| {
            if !panic.location().is_some_and(|location| location.file().contains("hayro-jpeg2000"))
            {
                ends(panic);
            }
        }));
    });
}

fuzz_target!(|bytes: &[u8]| {
    let_the_decoder_panic();
    let Some((which, rest)) = bytes.split_first() else { return };
    let which = usize::from(*which);
    if let Some(file) = files().get(which) {
        let mut file = file.clone();
        edit(&mut file, rest);
        open(file);
    } else if let Some(files) = which.checked_sub(64).and_then(|which| stores().get(which)) {
        let mut files = files.clone();
        // The next byte selects the file.
        let Some((file, rest)) = rest.split_first() else { return };
        let number = usize::from(*file) % files.len();
        if let Some(bytes) = files.values_mut().nth(number) {
            edit(bytes, rest);
        }
        if let Ok(slide) = Slide::from_store(Memory(files), limits()) {
            ask(&slide);
        }
    } else if which % 2 == 0 {
        open(rest.to_vec());
    } else {
        // One chunk with each compression that has frames.
        for compressor in ["blosc", "zstd", "lz4", "zlib"] {
            let files = seeds::zarr_2(&format!("{{\"id\": \"{compressor}\"}}"), rest);
            if let Ok(slide) = Slide::from_store(Memory(files), limits()) {
                ask(&slide);
            }
        }
    }
});
