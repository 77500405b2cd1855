//! `info.json`.

use seekwire_slides_image::Level;
use serde_json::{Value, json};

use super::{Most, Version};

/// Media type of the document, if a client requests JSON-LD.
pub(crate) const MEDIA_TYPE: &str = "application/ld+json";

/// The JSON-LD context, which defines the terms of the document.
pub(crate) fn context(version: Version) -> String {
    format!("http://iiif.io/api/image/{}/context.json", version.number())
}

/// Describes the image with these levels at the address `id`.
pub(crate) fn information(
    version: Version,
    id: &str,
    levels: &[Level],
    tile: u32,
    most: Most,
) -> Value {
    let (width, height) = levels.first().map_or((0, 0), |level| (level.width, level.height));
    let sizes: Vec<Value> = levels
        .iter()
        .rev()
        .filter(|level| most.has((level.width, level.height)))
        .map(|level| json!({ "width": level.width, "height": level.height }))
        .collect();
    let mut factors = vec![1_u32];
    // Up to the factor at which one tile covers the image.
    while let Some(next) = factors.last().map(|last| last * 2) {
        if u64::from(tile) * u64::from(next) >= u64::from(width.max(height)) * 2 {
            break;
        }
        factors.push(next);
    }
    let tiles = json!([{ "width": tile, "height": tile, "scaleFactors": factors }]);
    match version {
        Version::Three => json!({
            "@context": context(version),
            "id": id,
            "type": "ImageService3",
            "protocol": "http://iiif.io/api/image",
            "profile": "level2",
            "width": width,
            "height": height,
            "maxWidth": most.side,
            "maxHeight": most.side,
            "maxArea": most.area,
            "sizes": sizes,
            "tiles": tiles,
            "preferredFormats": ["jpg"],
            "extraFormats": ["webp"],
            "extraQualities": ["color", "gray", "bitonal"],
            "extraFeatures": [
                "canonicalLinkHeader", "mirroring", "profileLinkHeader", "rotationArbitrary",
                "sizeUpscaling",
            ],
        }),
        Version::Two => json!({
            "@context": context(version),
            "@id": id,
            "protocol": "http://iiif.io/api/image",
            "width": width,
            "height": height,
            "sizes": sizes,
            "tiles": tiles,
            "profile": [version.profile(), {
                "maxWidth": most.side,
                "maxHeight": most.side,
                "maxArea": most.area,
                "formats": ["jpg", "png", "webp"],
                "qualities": ["default", "color", "gray", "bitonal"],
                "supports": [
                    "canonicalLinkHeader", "mirroring", "profileLinkHeader", "regionSquare",
                    "rotationArbitrary", "sizeAboveFull",
                ],
            }],
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_factors_end_where_one_tile_is_all() {
        let level = |width, height| Level {
            width,
            height,
            tile_width: 240,
            tile_height: 240,
            downsample: 2220.0 / f64::from(width),
        };
        let levels = [level(2220, 2967), level(555, 741)];
        let most = Most { side: 16_384, area: 1_000_000 };
        let info = information(Version::Three, "http://h/iiif/3/a", &levels, 240, most);
        assert_eq!(info["tiles"][0]["scaleFactors"], json!([1, 2, 4, 8, 16]));
        assert_eq!(info["sizes"], json!([{ "width": 555, "height": 741 }]));
        let info = information(Version::Two, "http://h/iiif/2/a", &levels[1..], 1024, most);
        assert_eq!(info["tiles"][0]["scaleFactors"], json!([1]));
    }
}
