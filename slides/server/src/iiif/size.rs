//! `max`, `w,`, `,h`, `pct:n`, `w,h`, `!w,h`; in version 3 each with `^` if the image may become
//! larger than the region; in version 2 also `full`.

use super::info::{SizeLimit, Version};
use super::region::{decimal, whole};
use crate::failure::{Failure, Result};

/// Parses the size of the image of a region.
pub(super) fn parse(
    version: Version,
    text: &str,
    region: (u32, u32),
    most: SizeLimit,
) -> Result<(u32, u32)> {
    let wrong = || {
        let more = if version == Version::Two { "full" } else { "or these after ^" };
        Failure::bad(format!("size: max, w,  ,h  pct:n  w,h  !w,h  {more}"))
    };
    let (grows, text) = match (version, text.strip_prefix('^')) {
        (Version::Two, _) => (true, text),
        (Version::Three, Some(text)) => (true, text),
        (Version::Three, None) => (false, text),
    };
    let (wide, high) = (f64::from(region.0), f64::from(region.1));
    let size = match text {
        // Here the limit is part of the request.
        "max" if version == Version::Three && grows => {
            return Ok(most.fitted(region, f64::INFINITY));
        }
        "max" => return Ok(most.fitted(region, 1.0)),
        "full" if version == Version::Two => region,
        _ => {
            if let Some(percent) = text.strip_prefix("pct:") {
                let factor = decimal(percent).ok_or_else(wrong)? / 100.0;
                (side(wide * factor)?, side(high * factor)?)
            } else if let Some(text) = text.strip_prefix('!') {
                let (width, height) = pair(text).ok_or_else(wrong)?;
                let (width, height) = (width.ok_or_else(wrong)?, height.ok_or_else(wrong)?);
                let factor = (width / wide).min(height / high);
                // As large as possible within all limits.
                let factor =
                    if version == Version::Two || grows { factor } else { factor.min(1.0) };
                if side(width).and(side(height)).is_err() {
                    return Err(too_small());
                }
                return Ok(most.fitted(region, factor));
            } else {
                match pair(text).ok_or_else(wrong)? {
                    (Some(width), Some(height)) => (side(width)?, side(height)?),
                    (Some(width), None) => (side(width)?, side(high * width / wide)?),
                    (None, Some(height)) => (side(wide * height / high)?, side(height)?),
                    (None, None) => return Err(wrong()),
                }
            }
        }
    };
    if !grows && (size.0 > region.0 || size.1 > region.1) {
        return Err(Failure::bad(format!(
            "size: the region has {} x {} pixels; ^ makes it larger",
            region.0, region.1
        )));
    }
    if !most.has(size) {
        return Err(too_large(size, most));
    }
    Ok(size)
}

/// Parses the numbers on both sides of the comma.
fn pair(text: &str) -> Option<(Option<f64>, Option<f64>)> {
    let (width, height) = text.split_once(',')?;
    let side = |text: &str| match text {
        "" => Some(None),
        _ => whole(text).map(|side| Some(side as f64)),
    };
    Some((side(width)?, side(height)?))
}

fn side(side: f64) -> Result<u32> {
    match side.round() {
        side if side < 1.0 => Err(too_small()),
        // Larger than any limit.
        side => Ok(side as u32),
    }
}

fn too_small() -> Failure {
    Failure::bad("size: the image would have no pixels")
}

pub(super) fn too_large(size: (u32, u32), most: SizeLimit) -> Failure {
    let (width, height) = size;
    Failure::bad(format!(
        "size: {width} x {height} exceeds the limit of {} pixels along a side and {} in all",
        most.side, most.area
    ))
}

/// The size in the canonical address; `most` is the size that `max` means.
pub(super) fn canonical(
    version: Version,
    region: (u32, u32),
    to: (u32, u32),
    most: (u32, u32),
) -> String {
    let (width, height) = to;
    let is_larger = width > region.0 || height > region.1;
    match version {
        Version::Three if to == most => "max".to_owned(),
        Version::Three if is_larger => format!("^{width},{height}"),
        Version::Three => format!("{width},{height}"),
        Version::Two if to == region => "full".to_owned(),
        Version::Two => {
            let kept = f64::from(region.1) * f64::from(width) / f64::from(region.0);
            match kept.round() as u32 == height {
                true => format!("{width},"),
                false => format!("{width},{height}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: SizeLimit = SizeLimit { side: 400, area: 100_000 };

    fn of(version: Version, text: &str) -> Option<(u32, u32)> {
        parse(version, text, (301, 199), MOST).ok()
    }

    #[test]
    fn sizes_of_both_versions() {
        let both = [
            ("max", Some((301, 199))),
            ("150,", Some((150, 99))),
            (",100", Some((151, 100))),
            ("7,190", Some((7, 190))),
            ("301,199", Some((301, 199))),
            ("pct:50", Some((151, 100))),
            ("pct:100.0", Some((301, 199))),
            ("!100,100", Some((100, 66))),
            ("!300,10", Some((15, 10))),
            ("", None),
            (",", None),
            ("0,", None),
            (",0", None),
            ("0,10", None),
            ("!0,10", None),
            ("!10,", None),
            ("pct:0", None),
            ("pct:-1", None),
            ("pct:0.0001", None),
            ("pct:", None),
            ("1.5,", None),
            ("1,2,3", None),
            ("!!1,1", None),
            ("401,", None),
            ("99999999999,1", None),
            ("9999999999999999999999,", None),
            ("banana", None),
        ];
        for (text, size) in both {
            assert_eq!(of(Version::Two, text), size, "{text}");
            assert_eq!(of(Version::Three, text), size, "{text}");
        }
    }

    #[test]
    fn images_grow_by_what_each_version_asks() {
        let two = [
            ("full", Some((301, 199))),
            ("302,", Some((302, 200))),
            ("pct:101", Some((304, 201))),
            ("!350,350", Some((350, 231))),
            ("^302,", None),
            ("^max", None),
        ];
        let three = [
            ("full", None),
            ("^full", None),
            ("302,", None),
            (",200", None),
            ("pct:101", None),
            // As large as possible without growing.
            ("!350,350", Some((301, 199))),
            ("^302,", Some((302, 200))),
            ("^302,10", Some((302, 10))),
            ("^pct:101", Some((304, 201))),
            ("^!350,350", Some((350, 231))),
            ("^!4000,4000", Some((388, 257))),
            ("^max", Some((388, 257))),
            ("^401,", None),
            ("^400,400", None),
            ("^^10,", None),
        ];
        for (text, size) in two {
            assert_eq!(of(Version::Two, text), size, "{text}");
        }
        for (text, size) in three {
            assert_eq!(of(Version::Three, text), size, "{text}");
        }
    }

    #[test]
    fn an_image_that_is_too_large_is_given_as_large_as_it_may_be() {
        let of = |version, text| parse(version, text, (4000, 100), MOST).ok();
        for version in [Version::Two, Version::Three] {
            assert_eq!(of(version, "max"), Some((400, 10)));
        }
        assert_eq!(of(Version::Two, "full"), None);
        assert_eq!(canonical(Version::Three, (4000, 100), (400, 10), (400, 10)), "max");
    }
}
