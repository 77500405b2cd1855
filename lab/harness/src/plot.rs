//! Figures as data, and bars drawn as SVG. The laboratory draws curves, with a plotting library.
//!
//! Text and axes are black on a white ground; a report may restyle both for a dark page.

use anyhow::{Result, bail};
use maud::html;
use serde::{Deserialize, Serialize};

use crate::text;

/// Width and height of curves; the height of bars depends on their number.
pub const SIZE: (u32, u32) = (960, 480);
/// The family of all text.
pub const FONT: &str = "sans-serif";

/// Colours that colour-blind readers can also distinguish (Okabe and Ito), red, green and blue.
pub const PALETTE: [[u8; 3]; 8] = [
    [0, 114, 178],
    [230, 159, 0],
    [0, 158, 115],
    [213, 94, 0],
    [204, 121, 167],
    [86, 180, 233],
    [110, 110, 110],
    [160, 140, 0],
];

/// Limits of a figure: more could not be seen, and a result may come from anyone.
const MOST_POINTS: usize = 10_000;
const MOST_NAMES: usize = 500;
const LONGEST_NAME: usize = 500;
/// Larger numbers leave no room for arithmetic on axes.
const LARGEST: f64 = 1e100;

/// A figure and the name of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// File name without directory, e.g. `bandwidth.svg`.
    pub file: String,
    /// Heading.
    pub title: String,
    /// Its curves or bars.
    pub chart: Chart,
}

/// The drawing of a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// Curves with a bar at each point, e.g. from the smallest to the largest sample.
    Curves {
        /// Horizontal axis.
        x: Axis,
        /// Vertical axis.
        y: Axis,
        /// The curves.
        series: Vec<Series>,
    },
    /// Horizontal bars with intervals, and a line at 1: ratios.
    Ratios {
        /// Label of the axis.
        label: String,
        /// The bars, from top to bottom.
        bars: Vec<Bar>,
    },
    /// The same in two colours: published numbers, and ours next to them.
    Published {
        /// Label of the axis.
        label: String,
        /// The bars, from top to bottom, and which colour of the palette each has.
        bars: Vec<(usize, Bar)>,
    },
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Name and unit.
    pub label: String,
    /// How values are laid out.
    pub scale: Scale,
}

/// How values are laid out on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// Evenly, also below zero, with a line at zero.
    Signed,
    /// By powers of ten.
    Log10,
    /// By powers of two.
    Log2,
    /// By powers of two, labelled as sizes in bytes.
    Sizes,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its colour in the palette; the same variant has the same colour in all figures.
    pub colour: usize,
    /// Its points, by ascending x.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place on the horizontal axis.
    pub x: f64,
    /// The drawn value, e.g. the median.
    pub y: f64,
    /// Lower end of the bar, e.g. the smallest sample.
    pub low: f64,
    /// Upper end of the bar.
    pub high: f64,
}

/// A ratio with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The comparison.
    pub name: String,
    /// The ratio.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
}

impl Scale {
    /// A number of the axis, for people.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Sizes if value >= 1.0 => text::size(value.round() as u64),
            Self::Linear | Self::Signed | Self::Log10 | Self::Log2 | Self::Sizes => {
                text::short(value)
            }
        }
    }
}

impl Figure {
    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        match &self.chart {
            Chart::Curves { series, .. } => series.iter().all(|series| series.points.is_empty()),
            Chart::Ratios { bars, .. } => bars.is_empty(),
            Chart::Published { bars, .. } => bars.is_empty(),
        }
    }

    /// Horizontal bars as an SVG document; none for curves.
    ///
    /// # Errors
    ///
    /// If it holds more than can be seen, or a number that no axis can show.
    pub fn bars(&self) -> Result<Option<String>> {
        self.check()?;
        let (label, bars): (_, Vec<(usize, &Bar)>) = match &self.chart {
            Chart::Curves { .. } => return Ok(None),
            Chart::Ratios { label, bars } => (label, bars.iter().map(|bar| (0, bar)).collect()),
            Chart::Published { label, bars } => {
                (label, bars.iter().map(|(colour, bar)| (*colour, bar)).collect())
            }
        };
        Ok(Some(draw(&self.title, label, &bars)))
    }

    /// Checks that the figure can be drawn.
    ///
    /// # Errors
    ///
    /// If it holds more than can be seen, or a number that no axis can show.
    pub fn check(&self) -> Result<()> {
        let (names, numbers): (Vec<&str>, Vec<f64>) = match &self.chart {
            Chart::Curves { x, y, series } => {
                let names = [&x.label, &y.label]
                    .into_iter()
                    .chain(series.iter().map(|series| &series.name));
                let points = series.iter().flat_map(|series| &series.points);
                let numbers = points.flat_map(|point| [point.x, point.y, point.low, point.high]);
                (names.map(String::as_str).collect(), numbers.collect())
            }
            Chart::Ratios { label, bars } => of_bars(label, &mut bars.iter()),
            Chart::Published { label, bars } => {
                of_bars(label, &mut bars.iter().map(|(_, bar)| bar))
            }
        };
        let is_long = |name: &&str| name.len() > LONGEST_NAME;
        if names.len() > MOST_NAMES || numbers.len() > 4 * MOST_POINTS || names.iter().any(is_long)
        {
            bail!("{} holds more than a plot can show", self.file);
        }
        if self.title.len() > LONGEST_NAME || self.file.len() > LONGEST_NAME {
            bail!("the name of a plot is too long");
        }
        if numbers.iter().any(|number| number.is_nan() || number.abs() > LARGEST) {
            bail!("{} has a number that no axis can show", self.file);
        }
        Ok(())
    }
}

fn of_bars<'a>(
    label: &'a str,
    bars: &mut dyn Iterator<Item = &'a Bar>,
) -> (Vec<&'a str>, Vec<f64>) {
    let (mut names, mut numbers) = (vec![label], Vec::new());
    for bar in bars {
        names.push(&bar.name);
        numbers.extend([bar.value, bar.low, bar.high]);
    }
    (names, numbers)
}

/// How far from zero bars of spread are drawn, for numbers of this size: two rounds can give an
/// interval beside which the numbers themselves could not be seen. Longer bars end there.
#[must_use]
pub fn reach(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.map(f64::abs).fold(0.0, f64::max);
    if largest > 0.0 { 8.0 * largest } else { f64::INFINITY }
}

const LEFT: f64 = 308.0;
const RIGHT: f64 = 912.0;
const TOP: f64 = 40.0;
const ROW: f64 = 26.0;

fn draw(title: &str, label: &str, bars: &[(usize, &Bar)]) -> String {
    let reach = reach(bars.iter().map(|(_, bar)| bar.value));
    let largest =
        bars.iter().map(|(_, bar)| bar.high.min(reach).max(bar.value)).fold(1.0, f64::max) * 1.1;
    let x = |value: f64| LEFT + (RIGHT - LEFT) * value.clamp(0.0, largest) / largest;
    let bottom = TOP + ROW * bars.len() as f64;
    let step = step(largest / 10.0);
    let ticks = || (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= largest);
    let line = |from: (f64, f64), to: (f64, f64), colour: &str, width: f64| {
        html! {
            line x1=(round(from.0)) y1=(round(from.1)) x2=(round(to.0)) y2=(round(to.1))
                stroke=(colour) stroke-width=(width) {}
        }
    };
    let write = |at: (f64, f64), anchor: &str, size: u32, text: &str| {
        html! {
            text x=(round(at.0)) y=(round(at.1)) text-anchor=(anchor) font-family=(FONT) font-size=(size)
                fill="#000000" { (text) }
        }
    };
    let height = bottom + 70.0;
    let middle = (LEFT + RIGHT) / 2.0;
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(SIZE.0) height=(height)
            viewBox=(format_args!("0 0 {} {height}", SIZE.0)) {
            rect width=(SIZE.0) height=(height) fill="#FFFFFF" {}
            (write((f64::from(SIZE.0) / 2.0, 24.0), "middle", 20, title))
            @for tick in ticks() {
                (line((x(tick), TOP), (x(tick), bottom), "#000000", 0.2))
                (write((x(tick), bottom + 18.0), "middle", 14, &text::short(tick)))
            }
            @for (index, (colour, bar)) in bars.iter().enumerate() {
                @let middle = TOP + ROW * (index as f64 + 0.5);
                rect x=(LEFT) y=(round(middle - 8.0)) width=(round(x(bar.value) - LEFT)) height="16"
                    fill=(colour_name(*colour)) fill-opacity="0.75" {}
                (line((x(bar.low.max(-reach)), middle), (x(bar.high.min(reach)), middle), "#000000", 2.0))
                (write((LEFT - 8.0, middle + 5.0), "end", 14, &bar.name))
            }
            (line((LEFT, TOP), (LEFT, bottom), "#000000", 1.0))
            (line((LEFT, bottom), (RIGHT, bottom), "#000000", 1.0))
            (line((x(1.0), TOP), (x(1.0), bottom), &colour_name(3), 2.0))
            (write((middle, bottom + 44.0), "middle", 14, label))
        }
    };
    svg.into_string()
}

/// To a tenth of a pixel.
fn round(pixels: f64) -> f64 {
    (10.0 * pixels).round() / 10.0
}

/// The round number that is not below `least`: 1, 2 or 5 times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

fn colour_name(index: usize) -> String {
    let [red, green, blue] = PALETTE[index % PALETTE.len()];
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(chart: Chart) -> String {
        let figure = Figure { file: "r.svg".to_owned(), title: "Ratios".to_owned(), chart };
        assert!(!figure.is_empty());
        figure.bars().unwrap().unwrap()
    }

    fn bar(name: &str, value: f64, low: f64, high: f64) -> Bar {
        Bar { name: name.to_owned(), value, low, high }
    }

    /// The numbers in an attribute.
    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let mark = format!(" {attribute}=\"");
        let parts = svg.split(&mark).skip(1);
        parts.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
    }

    #[test]
    fn a_long_interval_does_not_hide_the_numbers() {
        let bars = vec![bar("pairs", 2.0, 0.1, 1e12), bar("more", 1.0, -1e12, 1.0)];
        let svg = figure(Chart::Ratios { label: "ratio".to_owned(), bars });
        let widths = numbers(&svg, "width");
        // The figure, its ground, and two bars, which can be seen.
        assert!(widths.len() == 4 && widths.iter().all(|width| *width > 10.0), "{widths:?}");
        let ends = [numbers(&svg, "x1"), numbers(&svg, "x2")].concat();
        assert!(ends.iter().all(|x| (LEFT..=RIGHT).contains(x)), "{ends:?}");
    }

    #[test]
    fn published_bars_have_a_colour_of_their_own() {
        let bars = vec![(6, bar("paper", 2.0, 1.0, 3.0)), (0, bar("here", 2.0, 1.0, 3.0))];
        let svg = figure(Chart::Published { label: "ratio".to_owned(), bars });
        assert!(svg.contains(">paper<") && svg.contains(">here<"));
        assert!(svg.contains("fill=\"#6E6E6E\"") && svg.contains("fill=\"#0072B2\""), "{svg}");
    }

    #[test]
    fn ratios_name_every_bar_and_escape_the_names() {
        let bars = ["GET <64 B>", "SET 16 KiB"].map(|name| bar(name, 1.5, 1.2, 1.9));
        let svg =
            figure(Chart::Ratios { label: "accelerated / plain".to_owned(), bars: bars.to_vec() });
        for text in ["GET &lt;64 B&gt;", "SET 16 KiB", "accelerated / plain", "Ratios"] {
            assert!(svg.contains(&format!(">{text}<")), "{svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn ticks_are_few_and_round() {
        for (least, expected) in
            [(0.11, 0.2), (0.2, 0.2), (0.9, 1.0), (1.3, 2.0), (3.0, 5.0), (700.0, 1000.0)]
        {
            assert!((step(least) / expected - 1.0).abs() < 1e-9, "{least}: {}", step(least));
        }
    }

    #[test]
    fn numbers_without_a_place_are_refused() {
        for value in [f64::NAN, f64::INFINITY, 1e101] {
            let chart =
                Chart::Ratios { label: String::new(), bars: vec![bar("a", value, 1.0, 2.0)] };
            let figure = Figure { file: "r.svg".to_owned(), title: "Ratios".to_owned(), chart };
            assert!(figure.bars().is_err(), "{value}");
        }
    }
}
