//! Levels in TIFF: labels, masks and thumbnails are never mistaken for levels.

use crate::common::{make, open, whole};
use seekwire_slides_image::{Raster, Region};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Size and hash, in the format of the program that made the files.
fn described(raster: &Raster) -> Value {
    let hash: String =
        Sha256::digest(raster.pixels()).iter().map(|byte| format!("{byte:02x}")).collect();
    serde_json::json!([raster.width(), raster.height(), hash])
}

#[test]
fn only_what_is_certainly_a_level_is_shown_as_tissue() {
    let directory = tempfile::tempdir().unwrap();
    make("make_levels.py", &[directory.path()]);
    let mut seen = 0;
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "tif") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let expected: Value =
            serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        let slide = open(&path);
        let levels: Vec<Value> =
            (0..slide.levels().len()).map(|level| described(&whole(&slide, level))).collect();
        assert_eq!(Value::from(levels), expected["levels"], "{name}");
        let associated: serde_json::Map<String, Value> = slide
            .associated_names()
            .map(|name| (name.to_owned(), described(&slide.associated(name).unwrap().unwrap())))
            .collect();
        assert_eq!(Value::from(associated), expected["associated"], "{name}");
        // Tissue is shown at any scale, and no part of a label or mask.
        let all = Region { x: 0, y: 0, width: 1024, height: 1024 };
        for side in [1024, 512, 256, 128, 64] {
            let view = slide.render(all, side, side).unwrap();
            assert!(view.pixels().iter().all(|sample| *sample < 160), "{name} at {side}");
        }
        // Pages that are neither are listed as not shown.
        let complete = ["plain", "label_by_name", "tiled_thumbnail_in_front", "aperio"];
        let complete = complete.contains(&name) || name == "ome_with_the_label_first";
        let others = slide.properties().get("tiff.NotShown");
        assert_eq!(others.is_none(), complete, "{name}: {others:?}");
        seen += 1;
    }
    assert_eq!(seen, 15);
}
