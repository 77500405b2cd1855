//! Rendering settings in OMERO's format: names, colours and windows of channels. Settings of the
//! wrong type are ignored.

use crate::channels::{self, ChannelMetadata, Plane, Window};
use serde_json::Value;

const RGB: [[u8; 3]; 3] = [[255, 0, 0], [0, 255, 0], [0, 0, 255]];

/// The value of the key `omero`.
pub(super) struct Omero<'a>(pub(super) &'a Value);

impl Omero<'_> {
    /// Number of channels that it describes.
    pub(super) fn count(&self) -> usize {
        self.0["channels"].as_array().map_or(0, Vec::len)
    }

    pub(super) fn said(&self, channel: usize) -> ChannelMetadata {
        let of = &self.0["channels"][channel];
        let window = |low: &str, high: &str| {
            let number = |key: &str| of["window"][key].as_f64();
            Window::new(number(low)?, number(high)?)
        };
        ChannelMetadata {
            name: of["label"].as_str().map(str::to_owned),
            colour: of["color"].as_str().and_then(channels::colour),
            window: window("start", "end"),
            range: window("min", "max"),
            is_visible: of["active"].as_bool(),
        }
    }

    /// True if three channels can be red, green and blue of one image: they have these colours or
    /// none and, with more than 8 bits, a common window.
    pub(super) fn is_one_image(&self, bits: u8) -> bool {
        let said: Vec<ChannelMetadata> =
            (0..self.count().min(3)).map(|channel| self.said(channel)).collect();
        let has_colour = said.iter().any(|said| said.colour.is_some());
        let is_rgb = said.iter().zip(RGB).all(|(said, colour)| said.colour == Some(colour));
        let has_one_window = said.windows(2).all(|pair| pair[0].window == pair[1].window);
        (is_rgb || !has_colour) && (bits == 8 || has_one_window)
    }

    /// The window of an image in colours.
    pub(super) fn window(&self) -> Option<Window> {
        (0..self.count()).find_map(|channel| self.said(channel).window)
    }

    /// The default plane; `usual` if none is set.
    pub(super) fn plane(&self, depth: u32, times: u32, usual: Plane) -> Plane {
        let index = |key: &str, most: u32, usual: u32| {
            let said = self.0["rdefs"][key].as_u64().and_then(|index| u32::try_from(index).ok());
            said.filter(|index| *index < most).unwrap_or(usual)
        };
        Plane { z: index("defaultZ", depth, usual.z), t: index("defaultT", times, usual.t) }
    }
}

/// Red, green and blue as channels, for images whose chunks cannot be read as colours.
pub(super) fn rgb(white: f64) -> Vec<ChannelMetadata> {
    let window = Window::new(0.0, white);
    let colours = RGB.map(Some).into_iter();
    colours.map(|colour| ChannelMetadata { colour, window, ..ChannelMetadata::default() }).collect()
}
