//! Channels, focal planes and times of a slide, and which of them a rendering shows.

use serde::Serialize;

use crate::samples::{Layout, Number};

/// Channels of one slide. Each costs a look at its pixels when the slide is opened.
pub(crate) const MOST: u64 = 256;

/// Channels shown by default if the file does not choose.
const SHOWN: usize = 4;

/// Colours of channels for which the file has none, in their order.
const COLOURS: [[u8; 3]; 8] = [
    [0, 0, 255],
    [0, 255, 0],
    [255, 0, 255],
    [255, 255, 0],
    [255, 128, 0],
    [0, 255, 255],
    [255, 255, 255],
    [255, 0, 0],
];

/// The values shown as black and in the full colour. The first is less than the second; both are
/// finite, and so is their difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Window(u64, u64);

impl Window {
    /// `None` if these values make no window.
    pub fn new(black: f64, white: f64) -> Option<Self> {
        // Turns -0 into 0.
        let (black, white) = (black + 0.0, white + 0.0);
        let is_one = black.is_finite() && white.is_finite() && black < white;
        (is_one && ((white - black) * 255.0).is_finite())
            .then(|| Self(black.to_bits(), white.to_bits()))
    }

    /// True if `f32` has the products of all colours and values of 16 bits in it.
    pub(crate) fn is_narrow(self) -> bool {
        let ends = [self.black(), self.white()];
        self.white() - self.black() <= 65536.0
            && ends.iter().all(|end| end.abs() <= 65536.0 && end.fract() == 0.0)
    }

    /// This value and smaller ones are black.
    pub fn black(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// This value and larger ones have the full colour.
    pub fn white(self) -> f64 {
        f64::from_bits(self.1)
    }
}

impl std::fmt::Debug for Window {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.black(), self.white())
    }
}

/// The colour and window of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Ink {
    /// Red, green and blue at the upper end of the window.
    pub colour: [u8; 3],
    /// The values from black to the full colour.
    pub window: Window,
}

/// A channel of a slide.
#[derive(Debug, Clone, PartialEq)]
pub struct Channel {
    /// Its name in the file.
    pub name: Option<String>,
    /// Its default colour and window.
    pub ink: Ink,
    /// Whether the window was measured because the file has none.
    pub is_measured: bool,
    /// The values from which a window is chosen.
    pub range: Window,
    /// Whether it is shown by default.
    pub is_visible: bool,
}

/// One plane of an image: a focal plane at a time, both from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Plane {
    /// The focal plane.
    pub z: u32,
    /// The time.
    pub t: u32,
}

/// A channel in a rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Layer {
    /// Its number in [`Slide::channels`](crate::Slide::channels).
    pub channel: u32,
    /// How it is shown.
    pub ink: Ink,
}

/// The way a slide is shown: channels of one plane, whose colours are added up. A slide without
/// channels has its own colours, and no layers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Rendering {
    /// The plane.
    pub plane: Plane,
    /// The channels, each once, by their numbers.
    pub layers: Vec<Layer>,
}

/// A channel as the file describes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChannelMetadata {
    pub(crate) name: Option<String>,
    pub(crate) colour: Option<[u8; 3]>,
    pub(crate) window: Option<Window>,
    pub(crate) range: Option<Window>,
    pub(crate) is_visible: Option<bool>,
}

/// The channels and planes of a slide. Without channels, its pixels have their own colours.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    pub(crate) channels: Vec<Channel>,
    /// Focal planes, and times.
    pub(crate) planes: (u32, u32),
    /// The plane shown by default.
    pub(crate) plane: Plane,
}

impl Stack {
    /// Without channels. The default is the middle plane at the first time.
    pub(crate) fn of(planes: (u32, u32)) -> Self {
        let plane = Plane { z: planes.0 / 2, t: 0 };
        Self { channels: Vec::new(), planes, plane }
    }

    /// Adds channels with samples of this layout. Missing windows are measured; `measure` returns
    /// `None` for channels without values.
    pub(crate) fn with<E>(
        mut self,
        said: Vec<ChannelMetadata>,
        layout: &Layout,
        mut measure: impl FnMut(u32) -> Result<Option<Window>, E>,
    ) -> Result<Self, E> {
        let is_alone = said.len() == 1;
        let none_is_said = said.iter().all(|said| said.is_visible.is_none());
        for (number, said) in said.into_iter().enumerate() {
            let full = full(layout);
            let window = match said.window {
                Some(window) => window,
                None => measure(number as u32)?.or(full).unwrap_or(Window(0, 1_f64.to_bits())),
            };
            let usual = if is_alone { [255; 3] } else { COLOURS[number % COLOURS.len()] };
            let range = said.range.or(full.filter(|_| layout.bits <= 16)).unwrap_or(window);
            self.channels.push(Channel {
                name: said.name.filter(|name| !name.is_empty()),
                ink: Ink { colour: said.colour.unwrap_or(usual), window },
                is_measured: said.window.is_none(),
                range,
                is_visible: said.is_visible.unwrap_or(none_is_said && number < SHOWN),
            });
        }
        Ok(self)
    }

    /// The default rendering.
    pub(crate) fn rendering(&self) -> Rendering {
        let visible = self.channels.iter().zip(0..).filter(|(channel, _)| channel.is_visible);
        let layers = visible.map(|(of, channel)| Layer { channel, ink: of.ink }).collect();
        Rendering { plane: self.plane, layers }
    }
}

/// From the smallest to the largest value that integers of so many bits can have.
fn full(layout: &Layout) -> Option<Window> {
    let bits = i32::from(layout.bits);
    match layout.number {
        Number::Unsigned => Window::new(0.0, 2_f64.powi(bits) - 1.0),
        Number::Signed => Window::new(-2_f64.powi(bits - 1), 2_f64.powi(bits - 1) - 1.0),
        Number::Float => None,
    }
}

/// A colour in six hexadecimal digits, red first.
pub(crate) fn colour(text: &str) -> Option<[u8; 3]> {
    let digits = text.trim_start_matches('#');
    let is_one = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_one)?;
    let [_, red, green, blue] = number.to_be_bytes();
    Some([red, green, blue])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Codec;
    use std::convert::Infallible;

    #[test]
    fn a_window_is_finite_and_goes_up() {
        let window = Window::new(-0.0, 4.5).unwrap();
        assert_eq!((window.black(), window.white()), (0.0, 4.5));
        assert_eq!(Window::new(0.0, 4.5), Some(window));
        assert_eq!(format!("{window:?}"), "0-4.5");
        for (black, white) in [
            (1.0, 1.0),
            (2.0, 1.0),
            (f64::NAN, 1.0),
            (0.0, f64::NAN),
            (0.0, f64::INFINITY),
            (f64::NEG_INFINITY, 0.0),
            (-1.7e308, 1.7e308),
        ] {
            assert_eq!(Window::new(black, white), None, "{black} {white}");
        }
    }

    #[test]
    fn what_is_not_said_is_chosen() {
        let layout = Layout { bits: 16, ..Layout::of_bytes((8, 8), Codec::Raw) };
        let measured = Window::new(5.0, 9.0);
        let of = |said: Vec<ChannelMetadata>| {
            let measure = |_| Ok::<_, Infallible>(measured);
            Stack::of((5, 2)).with(said, &layout, measure).unwrap()
        };
        let stack = of(vec![ChannelMetadata::default(); 6]);
        assert_eq!(stack.plane, Plane { z: 2, t: 0 });
        let rendering = stack.rendering();
        assert_eq!(
            rendering.layers.iter().map(|layer| layer.channel).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert_eq!(stack.channels[5].ink, Ink { colour: [0, 255, 255], window: measured.unwrap() });
        assert!(stack.channels[5].is_measured);
        assert_eq!(stack.channels[5].range, Window::new(0.0, 65_535.0).unwrap());
        // A single channel is white; if the file marks some channels as visible, the others are
        // hidden.
        assert_eq!(of(vec![ChannelMetadata::default()]).channels[0].ink.colour, [255; 3]);
        let visible = ChannelMetadata { is_visible: Some(true), ..ChannelMetadata::default() };
        let rendering = of(vec![ChannelMetadata::default(), visible]).rendering();
        assert_eq!(rendering.layers.len(), 1);
        assert_eq!(rendering.layers[0].channel, 1);
    }

    #[test]
    fn colours_have_six_digits() {
        assert_eq!(colour("00Ff10"), Some([0, 255, 16]));
        assert_eq!(colour("#00ff10"), Some([0, 255, 16]));
        for text in ["", "00ff1", "00ff100", "+0ff10", "00ff1g", "é0ff1"] {
            assert_eq!(colour(text), None, "{text}");
        }
    }
}
