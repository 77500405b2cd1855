//! `info.json`: the version and the limits of the service, and the levels of an image.

use seekwire_slides_image::Level;
use serde_json::{Value, json};

/// The version of the Image API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Two,
    Three,
}

impl Version {
    /// Parses the version in an address.
    pub(crate) fn of(text: &str) -> Option<Self> {
        match text {
            "2" => Some(Self::Two),
            "3" => Some(Self::Three),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// The URI of compliance level 2.
    pub(crate) fn profile(self) -> String {
        format!("http://iiif.io/api/image/{}/level2.json", self.number())
    }
}

/// Limits of served images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeLimit {
    /// Maximum pixels of the width and of the height.
    pub(crate) side: u32,
    /// Maximum pixels of the image.
    pub(crate) area: u64,
}

impl SizeLimit {
    /// True if an image of that size may be served.
    pub(crate) fn has(self, size: (u32, u32)) -> bool {
        let (width, height) = size;
        width.max(height) <= self.side && u64::from(width) * u64::from(height) <= self.area
    }

    /// The largest factor by which an image may be scaled.
    pub(super) fn factor(self, size: (u32, u32)) -> f64 {
        let (width, height) = size;
        let (wide, high) = (f64::from(width), f64::from(height));
        let side = f64::from(self.side);
        (side / wide).min(side / high).min((self.area as f64 / (wide * high)).sqrt())
    }

    /// The size of an image scaled by this factor, or by the largest one allowed.
    pub(super) fn fitted(self, size: (u32, u32), factor: f64) -> (u32, u32) {
        let (width, height) = size;
        let most = self.factor((width, height));
        // Rounds down if the limit applies, so as not to exceed it.
        let side = |side: u32| match factor <= most {
            true => (f64::from(side) * factor).round(),
            false => (f64::from(side) * most).floor(),
        };
        (side(width).max(1.0) as u32, side(height).max(1.0) as u32)
    }
}

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
    most: SizeLimit,
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
        let most = SizeLimit { side: 16_384, area: 1_000_000 };
        let info = information(Version::Three, "http://h/iiif/3/a", &levels, 240, most);
        assert_eq!(info["tiles"][0]["scaleFactors"], json!([1, 2, 4, 8, 16]));
        assert_eq!(info["sizes"], json!([{ "width": 555, "height": 741 }]));
        let info = information(Version::Two, "http://h/iiif/2/a", &levels[1..], 1024, most);
        assert_eq!(info["tiles"][0]["scaleFactors"], json!([1]));
    }
}
