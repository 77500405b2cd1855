//! Pixels in OpenSlide's format: 32 bits each, alpha in the upper eight, premultiplied colours.

/// Red, green and blue of each pixel, blended over a background.
pub(crate) fn over(pixels: &[u32], background: [u8; 3]) -> Vec<u8> {
    let mut mixed = Vec::with_capacity(pixels.len() * 3);
    pixels.iter().for_each(|pixel| mixed.extend_from_slice(&one(*pixel, background)));
    mixed
}

fn one(pixel: u32, background: [u8; 3]) -> [u8; 3] {
    let [alpha, colours @ ..] = pixel.to_be_bytes();
    if alpha == 255 {
        return colours;
    }
    let rest = 255 - u16::from(alpha);
    let mut mixed = background;
    for (below, above) in mixed.iter_mut().zip(colours) {
        let shown = (u16::from(*below) * rest + 127) / 255 + u16::from(above);
        *below = shown.min(255) as u8;
    }
    mixed
}

/// Parses a colour as in the property `openslide.background-color`: six hexadecimal digits.
pub(crate) fn colour(text: &str) -> Option<[u8; 3]> {
    let is_colour = text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(text, 16).ok().filter(|_| is_colour)?;
    let [_, colours @ ..] = number.to_be_bytes();
    Some(colours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_transparent_shows_the_background() {
        let pixels = [0xff01_0203, 0x0000_0000, 0x8040_0080, 0x01ff_ffff];
        let mixed = over(&pixels, [255, 100, 0]);
        assert_eq!(mixed, [1, 2, 3, 255, 100, 0, 191, 50, 128, 255, 255, 255]);
    }

    #[test]
    fn colours_are_six_digits() {
        assert_eq!(colour("FF8001"), Some([255, 128, 1]));
        for wrong in ["", "FFF", "+F8001", "FF80012", "GG8001", "ÄÄÄ"] {
            assert_eq!(colour(wrong), None, "{wrong}");
        }
    }
}
