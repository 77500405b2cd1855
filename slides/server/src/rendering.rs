//! Channels, focal planes and times in addresses:
//!
//! ```text
//! ?c=0:0000ff:100-4000,2:ff0000:0-900&z=3&t=1
//! ```
//!
//! Each channel has its number, from 0, its colour, and the values shown as black and in the full
//! colour. Omitted parts take their defaults; channels that are not listed are hidden.

use std::fmt::Write;
use std::sync::Arc;

use seekwire_slides_image::{Channel, Ink, Layer, Number, Plane, Rendering, Window};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::slide_cache::Open;
use crate::stamps;

/// No channel at all.
const NONE: &str = "none";

/// The rendering for the parameters `c`, `z` and `t`; `None` for the default of a slide without
/// channels.
///
/// # Errors
///
/// 400 for settings that the slide does not have.
pub(crate) fn of(
    open: &Open,
    [channels, z, t]: [Option<&str>; 3],
) -> Result<Option<Arc<Rendering>>> {
    if channels.is_none() && z.is_none() && t.is_none() {
        return Ok(open.rendering.clone());
    }
    let usual = open.slide.rendering();
    let plane = plane(open, z, t)?;
    let layers = match channels {
        Some(text) => layers(text, open.slide.channels())?,
        None => usual.layers.clone(),
    };
    let rendering = Rendering { plane, layers };
    match rendering == usual {
        true => Ok(open.rendering.clone()),
        false => Ok(Some(Arc::new(rendering))),
    }
}

/// The plane for the parameters `z` and `t`.
///
/// # Errors
///
/// 400 for one that the slide does not have.
pub(crate) fn plane(open: &Open, z: Option<&str>, t: Option<&str>) -> Result<Plane> {
    let usual = open.slide.rendering().plane;
    let (depth, times) = open.slide.planes();
    Ok(Plane {
        z: index("z", "focal planes", z, depth, usual.z)?,
        t: index("t", "times", t, times, usual.t)?,
    })
}

/// Parses a number below `count`.
fn index(key: &str, what: &str, text: Option<&str>, count: u32, usual: u32) -> Result<u32> {
    let Some(text) = text else { return Ok(usual) };
    let number = digits(text).filter(|number| *number < count);
    let bad = || {
        Failure::bad(format!("{key}: a number from 0 to {}: there are {count} {what}", count - 1))
    };
    number.ok_or_else(bad)
}

/// Parses a number that consists of digits only.
fn digits(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn layers(text: &str, channels: &[Channel]) -> Result<Vec<Layer>> {
    if channels.is_empty() {
        return Err(Failure::bad("c: this slide has no channels: leave it out"));
    }
    if text == NONE {
        return Ok(Vec::new());
    }
    let mut layers: Vec<Layer> = Vec::new();
    for one in text.split(',') {
        let layer = layer(one, channels)?;
        // Sorted, so that equal renderings compare equal.
        match layers.binary_search_by_key(&layer.channel, |layer| layer.channel) {
            Ok(_) => {
                return Err(Failure::bad(format!("c: channel {} is there twice", layer.channel)));
            }
            Err(at) => layers.insert(at, layer),
        }
    }
    Ok(layers)
}

fn layer(text: &str, channels: &[Channel]) -> Result<Layer> {
    let bad = |what: String| Failure::bad(format!("c: {what}"));
    let mut parts = text.split(':');
    let number = digits(parts.next().unwrap_or_default());
    let channel = number.and_then(|number| Some((number, channels.get(number as usize)?)));
    let (channel, of) = channel.ok_or_else(|| {
        bad(format!(
            "channels by their numbers, from 0 to {}, as in c=0:0000ff:100-4000; c={NONE} shows none",
            channels.len() - 1
        ))
    })?;
    let colour = match parts.next().unwrap_or_default() {
        "" => of.ink.colour,
        text => colour(text).ok_or_else(|| {
            bad(format!("channel {channel}: a colour has six hexadecimal digits, as 0000ff has"))
        })?,
    };
    let window = match parts.next().unwrap_or_default() {
        "" => of.ink.window,
        text => window(text).ok_or_else(|| {
            bad(format!(
                "channel {channel}: a window goes from a number to a larger one, as 100-4000"
            ))
        })?,
    };
    match parts.next() {
        Some(_) => Err(bad(format!("channel {channel}: number:colour:window, and no more"))),
        None => Ok(Layer { channel, ink: Ink { colour, window } }),
    }
}

fn colour(text: &str) -> Option<[u8; 3]> {
    let is_one = text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(text, 16).ok().filter(|_| is_one)?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some([red, green, blue])
}

fn window(text: &str) -> Option<Window> {
    // The separator follows a digit; the sign of a number or an exponent does not.
    let between =
        |at: &usize| text.as_bytes()[at - 1].is_ascii_digit() || text.as_bytes()[at - 1] == b'.';
    let mut signs = text.match_indices('-').map(|(at, _)| at).filter(|at| *at > 0);
    let at = signs.find(between)?;
    Window::new(number(&text[..at])?, number(&text[at + 1..])?)
}

fn number(text: &str) -> Option<f64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse().ok().filter(|_| is_number)
}

/// The query of a rendering, with its question mark; empty for the default.
pub(crate) fn query(open: &Open, rendering: Option<&Rendering>) -> String {
    match rendering.filter(|rendering| open.rendering.as_deref() != Some(rendering)) {
        Some(rendering) => format!("?{}", text(open, rendering)),
        None => String::new(),
    }
}

fn text(open: &Open, rendering: &Rendering) -> String {
    let mut text = String::new();
    if !open.slide.channels().is_empty() {
        text.push_str("c=");
        for (at, layer) in rendering.layers.iter().enumerate() {
            let (colour, window) = (hexadecimal(layer.ink.colour), layer.ink.window);
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{}:{colour}:{window:?}", layer.channel);
        }
        if rendering.layers.is_empty() {
            text.push_str(NONE);
        }
    }
    for (key, index, count) in [
        ("z", rendering.plane.z, open.slide.planes().0),
        ("t", rendering.plane.t, open.slide.planes().1),
    ] {
        if count > 1 {
            let and = if text.is_empty() { "" } else { "&" };
            let _ = write!(text, "{and}{key}={index}");
        }
    }
    text
}

fn hexadecimal(colour: [u8; 3]) -> String {
    stamps::hexadecimal(&colour)
}

/// Adds channels, planes and the rendering to the properties of a slide.
pub(crate) fn describe(properties: &mut Value, open: &Open, rendering: Option<&Rendering>) {
    let slide = &open.slide;
    let usual = slide.rendering();
    let shown = rendering.unwrap_or(&usual);
    let (depth, times) = slide.planes();
    let channels = slide.channels().iter().zip(0..).map(|(channel, number)| {
        let layer = shown.layers.iter().find(|layer| layer.channel == number);
        let ink = layer.map_or(channel.ink, |layer| layer.ink);
        json!({
            "number": number,
            "name": channel.name,
            "color": hexadecimal(ink.colour),
            "window": [ink.window.black(), ink.window.white()],
            "windowIs": if ink.window != channel.ink.window { "asked" }
                else if channel.is_measured { "measured" } else { "declared" },
            "range": [channel.range.black(), channel.range.white()],
            "shown": layer.is_some(),
        })
    });
    properties["channels"] = channels.collect();
    properties["z"] = json!({ "count": depth, "shown": shown.plane.z });
    properties["t"] = json!({ "count": times, "shown": shown.plane.t });
    if !slide.channels().is_empty() {
        let (number, bits) = slide.sample();
        let kind = match number {
            Number::Unsigned => "uint",
            Number::Signed => "int",
            Number::Float => "float",
        };
        // Samples smaller than a byte are expanded to one.
        properties["sampleType"] = format!("{kind}{}", bits.max(8)).into();
    }
    properties["rendering"] = text(open, shown).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels() -> Vec<Channel> {
        let channel = |colour| Channel {
            name: None,
            ink: Ink { colour, window: Window::new(0.0, 9.0).unwrap() },
            is_measured: true,
            range: Window::new(0.0, 65_535.0).unwrap(),
            is_visible: true,
        };
        vec![channel([0, 0, 255]), channel([0, 255, 0]), channel([255, 0, 0])]
    }

    #[test]
    fn settings_mean_channels_colours_and_windows() {
        let channels = channels();
        let of = |text: &str| layers(text, &channels).unwrap();
        let one = |channel, colour, (black, white): (f64, f64)| {
            let window = Window::new(black, white).unwrap();
            Layer { channel, ink: Ink { colour, window } }
        };
        let example = of("2:ff0000:0-900,0:0000ff:100-4000");
        assert_eq!(example[0], one(0, [0, 0, 255], (100.0, 4000.0)));
        assert_eq!(example[1], one(2, [255, 0, 0], (0.0, 900.0)));
        assert_eq!(of("1"), [one(1, [0, 255, 0], (0.0, 9.0))]);
        assert_eq!(of("1:0A0b0C"), [one(1, [10, 11, 12], (0.0, 9.0))]);
        for (text, window) in [
            ("-5-5", (-5.0, 5.0)),
            ("-5--1.5", (-5.0, -1.5)),
            ("1e-3-2.5e+2", (0.001, 250.0)),
            ("-1e-3--1e-4", (-0.001, -0.0001)),
            ("0.-.5", (0.0, 0.5)),
        ] {
            assert_eq!(of(&format!("0::{text}")), [one(0, [0, 0, 255], window)], "{text}");
        }
        assert_eq!(of("none"), []);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_there_is() {
        let channels = channels();
        for (text, what) in [
            ("", "from 0 to 2"),
            ("3", "from 0 to 2"),
            ("-1", "from 0 to 2"),
            ("+1", "from 0 to 2"),
            ("99999999999999999999", "from 0 to 2"),
            ("0,", "from 0 to 2"),
            ("0,1,0", "channel 0 is there twice"),
            ("0:red", "six hexadecimal digits"),
            ("0:#0000ff", "six hexadecimal digits"),
            ("0:+000ff", "six hexadecimal digits"),
            ("0:0000ff:9-1", "to a larger one"),
            ("0:0000ff:1-1", "to a larger one"),
            ("0:0000ff:1", "to a larger one"),
            ("0:0000ff:-", "to a larger one"),
            ("0:0000ff:-1", "to a larger one"),
            ("0:0000ff:1-", "to a larger one"),
            ("0:0000ff:NaN-1", "to a larger one"),
            ("0:0000ff:0-inf", "to a larger one"),
            ("0:0000ff:0-1e999", "to a larger one"),
            ("0:0000ff:-1.7e308-1.7e308", "to a larger one"),
            ("0:0000ff:1-2-3", "to a larger one"),
            ("0:0000ff:é-3", "to a larger one"),
            ("0:0000ff:1-2:3", "and no more"),
        ] {
            let failure = layers(text, &channels).unwrap_err();
            assert_eq!(failure.status.as_u16(), 400);
            assert!(failure.what.contains(what), "{text}: {failure}");
        }
        assert!(layers("0", &[]).unwrap_err().what.contains("leave it out"));
        for text in ["3", "-1", "x", "", "18446744073709551615", "4294967296"] {
            let failure = index("z", "focal planes", Some(text), 3, 0).unwrap_err();
            assert!(failure.what.contains("from 0 to 2: there are 3 focal planes"), "{failure}");
        }
        assert_eq!(index("z", "", Some("2"), 3, 0).unwrap(), 2);
        assert_eq!(index("z", "", None, 3, 1).unwrap(), 1);
    }
}
