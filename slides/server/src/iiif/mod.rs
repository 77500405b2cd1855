//! IIIF Image API 3.0 (<https://iiif.io/api/image/3.0/>) and 2.1
//! (<https://iiif.io/api/image/2.1/>), both at level 2: parses the parts of an address.
//!
//! ```text
//! {region}/{size}/{rotation}/{quality}.{format}
//! ```

mod info;
mod region;
mod size;

pub(crate) use info::{MEDIA_TYPE, SizeLimit, Version, context, information};

use crate::failure::{Failure, Result};
use crate::render::plan::BaseRegion;
use crate::render::rotation::{CIRCLE, Quality, Turn};
use crate::render::{Appearance, ImageFormat, Picture, Shown};
use region::decimal;

/// A parsed address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImageRequest {
    version: Version,
    /// Size of the whole image.
    whole: (u32, u32),
    part: BaseRegion,
    to: (u32, u32),
    /// The size that `max` means.
    most: (u32, u32),
    turn: Turn,
    quality: Quality,
    kind: ImageFormat,
}

impl ImageRequest {
    /// Parses an address of an image of size `whole`.
    ///
    /// # Errors
    ///
    /// 400 for invalid or out-of-range parameters, 415 for an unsupported format.
    pub(crate) fn parse(
        version: Version,
        whole: (u32, u32),
        most: SizeLimit,
        [region, size, rotation, file]: [&str; 4],
    ) -> Result<Self> {
        let part = region::parse(region, whole)?;
        let extent = (part.width, part.height);
        let to = size::parse(version, size, extent, most)?;
        let turn = rotation_of(rotation)?;
        let (quality, kind) = quality_and_format(file)?;
        if !most.has(turn.size(to.0, to.1)) {
            return Err(size::too_large(to, most));
        }
        let most = most.fitted(extent, 1.0);
        Ok(Self { version, whole, part, to, most, turn, quality, kind })
    }

    /// The canonical address of all equivalent requests.
    pub(crate) fn canonical(&self) -> String {
        let BaseRegion { x, y, width, height } = self.part;
        let region = match (x, y, (width, height)) {
            (0, 0, extent) if extent == self.whole => "full".to_owned(),
            _ => format!("{x},{y},{width},{height}"),
        };
        let size = size::canonical(self.version, (width, height), self.to, self.most);
        let mirrored = if self.turn.is_mirrored { "!" } else { "" };
        let degrees = f64::from(self.turn.thousandths) / 1000.0;
        let quality = match self.quality {
            Quality::Colour => "default",
            Quality::Grey => "gray",
            Quality::Bitonal => "bitonal",
        };
        let format = self.kind.extension();
        format!("{region}/{size}/{mirrored}{degrees}/{quality}.{format}")
    }

    /// The picture to make.
    pub(crate) fn picture(&self, look: &Appearance) -> Picture {
        Picture {
            shown: Shown::part(self.part, look.rendering.as_ref()),
            width: self.to.0,
            height: self.to.1,
            turn: self.turn,
            quality: self.quality,
            kind: self.kind,
            colours: look.colours,
        }
    }
}

fn rotation_of(text: &str) -> Result<Turn> {
    let (is_mirrored, degrees) = match text.strip_prefix('!') {
        Some(degrees) => (true, degrees),
        None => (false, text),
    };
    let degrees = decimal(degrees).filter(|degrees| *degrees <= 360.0);
    let degrees = degrees.ok_or_else(|| {
        Failure::bad("rotation: a number from 0 to 360, after ! if the image is mirrored first")
    })?;
    let thousandths = (degrees * 1000.0).round() as u32 % CIRCLE;
    Ok(Turn { is_mirrored, thousandths })
}

fn quality_and_format(file: &str) -> Result<(Quality, ImageFormat)> {
    let (quality, format) = file.rsplit_once('.').unwrap_or((file, ""));
    let quality = match quality {
        "default" | "color" => Quality::Colour,
        "gray" => Quality::Grey,
        "bitonal" => Quality::Bitonal,
        _ => return Err(Failure::bad("quality: default, color, gray or bitonal")),
    };
    // Only these names: each image has one address.
    let kind = ImageFormat::of(format).filter(|kind| kind.extension() == format);
    let kind = kind.ok_or_else(|| Failure::format("format: jpg, png or webp"))?;
    Ok((quality, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;

    const MOST: SizeLimit = SizeLimit { side: 2000, area: 1_000_000 };

    fn parse(version: Version, path: &str) -> Result<ImageRequest> {
        let parts: Vec<&str> = path.split('/').collect();
        ImageRequest::parse(version, (301, 199), MOST, parts.try_into().unwrap())
    }

    #[test]
    fn each_address_has_a_canonical_one() {
        let rows = [
            (Version::Three, "full/max/0/default.jpg", "full/max/0/default.jpg"),
            (Version::Three, "0,0,301,199/301,199/360/color.jpg", "full/max/0/default.jpg"),
            (Version::Three, "0,0,999,999/150,/!90.0/gray.png", "full/150,99/!90/gray.png"),
            (
                Version::Three,
                "10,20,30,40/^60,/22.50/bitonal.webp",
                "10,20,30,40/^60,80/22.5/bitonal.webp",
            ),
            (Version::Three, "square/!50,60/0/default.jpg", "51,0,199,199/50,50/0/default.jpg"),
            (Version::Two, "full/full/0/default.jpg", "full/full/0/default.jpg"),
            (Version::Two, "full/150,99/0/default.jpg", "full/150,/0/default.jpg"),
            (Version::Two, "full/100,100/0/default.jpg", "full/100,100/0/default.jpg"),
            (Version::Two, "pct:0,0,100,100/pct:50/0/default.jpg", "full/151,/0/default.jpg"),
        ];
        for (version, path, canonical) in rows {
            let request = parse(version, path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(request.canonical(), canonical, "{path}");
            let again = parse(version, canonical).unwrap();
            assert_eq!(again, request, "{path}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bad = StatusCode::BAD_REQUEST;
        let rows = [
            ("full/max/361/default.jpg", bad),
            ("full/max/-1/default.jpg", bad),
            ("full/max/1e1/default.jpg", bad),
            ("full/max/nan/default.jpg", bad),
            ("full/max/!/default.jpg", bad),
            ("full/max//default.jpg", bad),
            ("full/max/0/native.jpg", bad),
            ("full/max/0/default", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ("full/max/0/.jpg", bad),
            ("full/max/0/default.jpeg", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ("full/max/0/default.tif", StatusCode::UNSUPPORTED_MEDIA_TYPE),
            ("full/max/0/default.jpg.jpg", bad),
            ("Full/max/0/default.jpg", bad),
        ];
        for (path, status) in rows {
            for version in [Version::Two, Version::Three] {
                assert_eq!(parse(version, path).unwrap_err().status, status, "{path}");
            }
        }
        // It fits, but its bounding box after rotation does not.
        let long = "full/^1300,700/45/default.jpg";
        assert_eq!(parse(Version::Three, long).unwrap_err().status, bad);
        assert!(parse(Version::Three, "full/^1300,700/90/default.jpg").is_ok());
    }
}
