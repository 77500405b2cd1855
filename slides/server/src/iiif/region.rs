//! `full`, `square`, `x,y,w,h` and `pct:x,y,w,h`.

use crate::failure::{Failure, Result};
use crate::render::plan::BaseRegion;

/// Parses a region; the part outside the image is cut off.
pub(super) fn parse(text: &str, size: (u32, u32)) -> Result<BaseRegion> {
    let (width, height) = size;
    match text {
        "full" => return Ok(BaseRegion { x: 0, y: 0, width, height }),
        "square" => {
            let side = width.min(height);
            let (x, y) = ((width - side) / 2, (height - side) / 2);
            return Ok(BaseRegion { x, y, width: side, height: side });
        }
        _ => {}
    }
    let part = match text.strip_prefix("pct:") {
        Some(text) => percent(text, (width, height)),
        None => pixels(text),
    };
    let [x, y, wide, high] = part.ok_or_else(|| {
        Failure::bad("region: full, square, x,y,w,h or pct:x,y,w,h, of more than nothing")
    })?;
    if x >= u64::from(width) || y >= u64::from(height) {
        return Err(Failure::bad(format!("region: the image has {width} x {height} pixels")));
    }
    // Less than the size of the image, so it fits into 32 bits.
    let (x, y) = (x as u32, y as u32);
    let width = wide.min(u64::from(width - x)) as u32;
    let height = high.min(u64::from(height - y)) as u32;
    Ok(BaseRegion { x, y, width, height })
}

fn pixels(text: &str) -> Option<[u64; 4]> {
    let numbers: Option<Vec<u64>> = text.split(',').map(whole).collect();
    let numbers: [u64; 4] = numbers?.try_into().ok()?;
    (numbers[2] > 0 && numbers[3] > 0).then_some(numbers)
}

/// From border to border, each rounded to the nearest pixel; at least one pixel.
fn percent(text: &str, size: (u32, u32)) -> Option<[u64; 4]> {
    let (width, height) = size;
    let numbers: Option<Vec<f64>> = text.split(',').map(decimal).collect();
    let [x, y, wide, high]: [f64; 4] = numbers?.try_into().ok()?;
    if wide <= 0.0 || high <= 0.0 {
        return None;
    }
    let borders = |start: f64, length: f64, side: u32| {
        let at = |percent: f64| (percent * f64::from(side) / 100.0).round();
        let from = at(start);
        (from as u64, (at(start + length) - from).max(1.0) as u64)
    };
    let (left, across) = borders(x, wide, width);
    let (top, down) = borders(y, high, height);
    Some([left, top, across, down])
}

/// An unsigned integer.
pub(super) fn whole(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// A decimal number without sign and exponent.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let points = text.bytes().filter(|byte| *byte == b'.').count();
    let is_number = digits > 0 && points <= 1 && digits + points == text.len();
    text.parse().ok().filter(|number: &f64| is_number && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(u32, u32, u32, u32)> {
        let part = parse(text, (301, 199)).ok()?;
        Some((part.x, part.y, part.width, part.height))
    }

    #[test]
    fn parts_are_clipped_to_the_image() {
        let rows = [
            ("full", (0, 0, 301, 199)),
            ("square", (51, 0, 199, 199)),
            ("0,0,1,1", (0, 0, 1, 1)),
            ("300,198,1,1", (300, 198, 1, 1)),
            ("300,198,999999999999,5", (300, 198, 1, 1)),
            ("0,0,301,199", (0, 0, 301, 199)),
            ("pct:0,0,100,100", (0, 0, 301, 199)),
            ("pct:50,50,50,50", (151, 100, 150, 99)),
            ("pct:33.3,0,0.01,1000", (100, 0, 1, 199)),
        ];
        for (text, part) in rows {
            assert_eq!(of(text), Some(part), "{text}");
        }
    }

    #[test]
    fn parts_without_pixels_are_refused() {
        let rows = [
            "",
            "full ",
            "301,0,1,1",
            "0,199,1,1",
            "0,0,0,1",
            "0,0,1,0",
            "0,0,1",
            "0,0,1,1,1",
            "-1,0,1,1",
            "+1,0,1,1",
            "0,0,1.5,1",
            " 0,0,1,1",
            "a,b,c,d",
            ",,,",
            "99999999999999999999,0,1,1",
            "pct:100,0,1,1",
            "pct:0,0,0,1",
            "pct:0,0,1",
            "pct:-1,0,1,1",
            "pct:1e1,0,1,1",
            "pct:inf,0,1,1",
            "pct:NaN,0,1,1",
            "pct:.,0,1,1",
            "pct:",
            "PCT:0,0,1,1",
        ];
        for text in rows {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
