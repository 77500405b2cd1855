//! Figures as SVG, through `plotters`.
//!
//! The legend has a column of its own, so it never hides data. Text and axes are black on a white
//! ground; a report may restyle both for a dark page.

use anyhow::{Result, anyhow, bail};
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::{Deserialize, Serialize};

use crate::text;

const SIZE: (u32, u32) = (960, 480);
const LEGEND_WIDTH: u32 = 230;
const FONT: &str = "sans-serif";

/// Colours that stay apart for colour-blind eyes too (Okabe and Ito).
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
    RGBColor(160, 140, 0),
];

/// What a figure may hold at most: more could not be seen, and a result may come from anybody.
const MOST_POINTS: usize = 10_000;
const MOST_NAMES: usize = 500;
const LONGEST_NAME: usize = 500;
/// Numbers beyond it leave no room for arithmetic on axes.
const LARGEST: f64 = 1e100;

/// A figure and the name of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// File name without directory, e.g. `bandwidth.svg`.
    pub file: String,
    /// Heading.
    pub title: String,
    /// What is drawn.
    pub chart: Chart,
}

/// What a figure draws.
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
    /// Evenly, below zero too, with a line at zero.
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
    /// Which colour of the palette it has; the same thing has the same one in all figures.
    pub colour: usize,
    /// Its points, by ascending x.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where it lies.
    pub x: f64,
    /// What is drawn, e.g. the median.
    pub y: f64,
    /// Lower end of the bar, e.g. the smallest sample.
    pub low: f64,
    /// Upper end of the bar.
    pub high: f64,
}

/// A ratio with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What was compared.
    pub name: String,
    /// The ratio.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
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

    /// The figure as an SVG document.
    ///
    /// # Errors
    ///
    /// If it holds more than can be seen, a number that has no place on any axis, or the drawing
    /// library cannot draw it.
    pub fn to_svg(&self) -> Result<String> {
        self.check()?;
        let mut svg = String::new();
        let drawn = match &self.chart {
            Chart::Curves { x, y, series } => self.curves(&mut svg, x, y, series),
            Chart::Ratios { label, bars } => {
                let bars: Vec<(usize, &Bar)> = bars.iter().map(|bar| (0, bar)).collect();
                self.ratios(&mut svg, label, &bars)
            }
            Chart::Published { label, bars } => {
                let bars: Vec<(usize, &Bar)> =
                    bars.iter().map(|(colour, bar)| (*colour, bar)).collect();
                self.ratios(&mut svg, label, &bars)
            }
        };
        drawn.map_err(|error| anyhow!("cannot draw {}: {error}", self.file))?;
        Ok(svg)
    }

    fn check(&self) -> Result<()> {
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
            bail!("{} has a number that no axis has a place for", self.file);
        }
        Ok(())
    }

    fn curves(
        &self,
        svg: &mut String,
        x: &Axis,
        y: &Axis,
        series: &[Series],
    ) -> Result<(), DrawError> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&self.title, (FONT, 20))?;
        let (left, right) = root.split_horizontally(SIZE.0 - LEGEND_WIDTH);

        let reach = reach(series.iter().flat_map(|series| &series.points).map(|point| point.y));
        let cut = |point: &Point| Point {
            low: point.low.max(-reach),
            high: point.high.min(reach),
            ..*point
        };
        let series: Vec<Series> = series
            .iter()
            .map(|one| Series { points: one.points.iter().map(cut).collect(), ..one.clone() })
            .collect();
        let series = &series[..];
        let points = || series.iter().flat_map(|series| &series.points);
        let across =
            Extent::of(x.scale, points().map(|point| point.x), points().map(|point| point.x));
        let up =
            Extent::of(y.scale, points().map(|point| point.low), points().map(|point| point.high));
        match (across, up) {
            (Extent::Linear(across), Extent::Linear(up)) => draw(&left, across, up, x, y, series)?,
            (Extent::Linear(across), Extent::Log(up)) => draw(&left, across, up, x, y, series)?,
            (Extent::Log(across), Extent::Linear(up)) => draw(&left, across, up, x, y, series)?,
            (Extent::Log(across), Extent::Log(up)) => draw(&left, across, up, x, y, series)?,
        }
        legend(&right, series)?;
        root.present()
    }

    fn ratios(
        &self,
        svg: &mut String,
        label: &str,
        bars: &[(usize, &Bar)],
    ) -> Result<(), DrawError> {
        let height = 110 + 26 * bars.len() as u32;
        let root = SVGBackend::with_string(svg, (SIZE.0, height)).into_drawing_area();
        root.fill(&WHITE)?;
        let root = root.titled(&self.title, (FONT, 20))?;

        // Reading order is from the top, coordinates are from the bottom.
        let count = bars.len() as f64;
        let middle = |index: usize| count - 0.5 - index as f64;
        let reach = reach(bars.iter().map(|(_, bar)| bar.value));
        let largest =
            bars.iter().map(|(_, bar)| bar.high.min(reach).max(bar.value)).fold(1.0, f64::max);
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_right(40)
            .x_label_area_size(45)
            .y_label_area_size(300)
            .build_cartesian_2d(0.0..largest * 1.1, 0.0..count)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .max_light_lines(4)
            .light_line_style(BLACK.mix(0.05))
            .bold_line_style(BLACK.mix(0.15))
            .label_style((FONT, 14))
            .x_desc(label)
            // Named below: an axis would name the boundaries between bars.
            .y_labels(0)
            .draw()?;
        let name_style =
            TextStyle::from((FONT, 14).into_font()).pos(Pos::new(HPos::Right, VPos::Center));
        for (index, (bar_colour, bar)) in bars.iter().enumerate() {
            let middle = middle(index);
            let corners = [(0.0, middle - 0.3), (bar.value, middle + 0.3)];
            chart.draw_series([Rectangle::new(corners, colour(*bar_colour).mix(0.75).filled())])?;
            let interval = [(bar.low.max(-reach), middle), (bar.high.min(reach), middle)];
            chart.draw_series([PathElement::new(interval, BLACK.stroke_width(2))])?;
            let (left, height) = chart.backend_coord(&(0.0, middle));
            let (_, top) = root.get_base_pixel();
            root.draw(&Text::new(bar.name.clone(), (left - 8, height - top), name_style.clone()))?;
        }
        let unity = [(1.0, 0.0), (1.0, count)];
        chart.draw_series([PathElement::new(unity, PALETTE[3].stroke_width(2))])?;
        root.present()
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
/// interval beside which the numbers themselves could not be seen. What is longer ends there.
fn reach(values: impl Iterator<Item = f64>) -> f64 {
    let largest = values.map(f64::abs).fold(0.0, f64::max);
    if largest > 0.0 { 8.0 * largest } else { f64::INFINITY }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// The range of an axis.
enum Extent {
    Linear(RangedCoordf64),
    Log(Logarithmic),
}

/// A logarithmic axis on which no point is named twice: `plotters` ends one power and begins the
/// next with the same one.
struct Logarithmic(LogCoord<f64>);

impl Ranged for Logarithmic {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.0.map(value, limit)
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        let mut points = self.0.key_points(hint);
        points.sort_by(f64::total_cmp);
        points.dedup_by(|next, last| (*next / *last - 1.0).abs() < 1e-9);
        points
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.range()
    }
}

impl Extent {
    fn of(scale: Scale, low: impl Iterator<Item = f64>, high: impl Iterator<Item = f64>) -> Self {
        if scale == Scale::Signed {
            let (low, high) = (low.fold(0.0, f64::min), high.fold(0.0, f64::max));
            let air = if high > low { 0.08 * (high - low) } else { 1.0 };
            return Self::Linear((low - air..high + air).into());
        }
        let high = high.fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let low = low.filter(|&value| value > 0.0).fold(high, f64::min);
        match scale {
            Scale::Linear | Scale::Signed => Self::Linear((0.0..high * 1.08).into()),
            // Some air, and never an empty range.
            Scale::Log10 => Self::Log(Logarithmic((low / 1.3..high * 1.3).log_scale().into())),
            Scale::Log2 | Scale::Sizes => {
                Self::Log(Logarithmic((low / 1.2..high * 1.2).log_scale().base(2.0).into()))
            }
        }
    }
}

impl Scale {
    fn show(self, value: f64) -> String {
        match self {
            Self::Sizes if value >= 1.0 => text::size(value.round() as u64),
            Self::Linear | Self::Signed | Self::Log10 | Self::Log2 | Self::Sizes => {
                text::short(value)
            }
        }
    }
}

fn draw<X, Y>(
    area: &Area<'_>,
    across: X,
    up: Y,
    x: &Axis,
    y: &Axis,
    series: &[Series],
) -> Result<(), DrawError>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.05))
        .bold_line_style(BLACK.mix(0.15))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .x_desc(&x.label)
        .y_desc(&y.label)
        .x_labels(12)
        .max_light_lines(4)
        .x_label_formatter(&|value| x.scale.show(*value))
        .y_label_formatter(&|value| y.scale.show(*value))
        .draw()?;
    if y.scale == Scale::Signed {
        let across = chart.x_range();
        let zero = [(across.start, 0.0), (across.end, 0.0)];
        chart.draw_series([PathElement::new(zero, BLACK.stroke_width(1))])?;
    }
    for series in series {
        let colour = colour(series.colour);
        chart.draw_series(LineSeries::new(
            series.points.iter().map(|p| (p.x, p.y)),
            colour.stroke_width(2),
        ))?;
        chart.draw_series(
            series
                .points
                .iter()
                .map(|p| ErrorBar::new_vertical(p.x, p.low, p.y, p.high, colour.filled(), 7)),
        )?;
    }
    Ok(())
}

fn legend(area: &Area<'_>, series: &[Series]) -> Result<(), DrawError> {
    for (index, series) in series.iter().enumerate() {
        let y = 20 + 24 * index as i32;
        area.draw(&PathElement::new([(0, y), (22, y)], colour(series.colour).stroke_width(3)))?;
        area.draw(&Text::new(series.name.clone(), (30, y - 8), (FONT, 15)))?;
    }
    Ok(())
}

fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(scale: Scale, points: Vec<Point>) -> Figure {
        let series = vec![
            Series { name: "TCP <loopback>".to_owned(), colour: 0, points: points.clone() },
            Series { name: "accelerated".to_owned(), colour: 1, points },
        ];
        let x = Axis { label: "message size (bytes)".to_owned(), scale: Scale::Sizes };
        let y = Axis { label: "bandwidth (GB/s)".to_owned(), scale };
        Figure {
            file: "f.svg".to_owned(),
            title: "Bandwidth".to_owned(),
            chart: Chart::Curves { x, y, series },
        }
    }

    fn points() -> Vec<Point> {
        (0..23)
            .map(|i| (f64::from(1u32 << i), f64::from(i + 1)))
            .map(|(x, y)| Point { x, y, low: y * 0.9, high: y * 1.1 })
            .collect()
    }

    #[test]
    fn a_long_interval_does_not_hide_the_numbers() {
        let points = vec![
            Point { x: 1.0, y: 2.0, low: 0.1, high: 1e12 },
            Point { x: 2.0, y: 3.0, low: 2.0, high: 4.0 },
        ];
        let curves = curves(Scale::Linear, points).to_svg().unwrap();
        let bar = Bar { name: "pairs".to_owned(), value: 2.0, low: 0.1, high: 1e12 };
        let chart = Chart::Ratios { label: "ratio".to_owned(), bars: vec![bar] };
        let ratios =
            Figure { file: "r".to_owned(), title: "Ratios".to_owned(), chart }.to_svg().unwrap();
        for svg in [curves, ratios] {
            let numbers: Vec<f64> = svg.lines().filter_map(|line| line.parse().ok()).collect();
            assert!(
                !numbers.is_empty() && numbers.iter().all(|number| *number < 30.0),
                "{numbers:?}"
            );
        }
    }

    #[test]
    fn no_label_stands_twice_on_an_axis() {
        // As of the latencies of one run: 1000 was there twice.
        let points = [(1.0, 27.0), (64.0, 35.0), (65536.0, 860.0)];
        let points = points.map(|(x, y)| Point { x, y, low: y * 0.9, high: y * 1.1 }).to_vec();
        let svg = curves(Scale::Log10, points).to_svg().unwrap();
        let mut labels: Vec<f64> = svg.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(labels.contains(&1000.0) && labels.contains(&100.0), "{labels:?}");
        labels.sort_by(f64::total_cmp);
        let all = labels.len();
        labels.dedup();
        assert_eq!(labels.len(), all, "{labels:?}");
    }

    #[test]
    fn curves_are_labelled_and_escaped() {
        for scale in [Scale::Linear, Scale::Log10, Scale::Log2] {
            let svg = curves(scale, points()).to_svg().unwrap();
            for text in
                ["bandwidth (GB/s)", "message size (bytes)", "TCP &lt;loopback&gt;", "64 KiB"]
            {
                assert!(svg.contains(text), "{text} is missing with {scale:?}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{scale:?}");
        }
    }

    #[test]
    fn a_single_point_and_a_zero_can_be_drawn() {
        curves(Scale::Log10, vec![Point { x: 1.0, y: 0.0, low: 0.0, high: 0.0 }]).to_svg().unwrap();
        assert!(curves(Scale::Linear, Vec::new()).is_empty());
    }

    #[test]
    fn what_is_below_zero_is_drawn() {
        let points = vec![
            Point { x: 10.0, y: -5.0, low: -7.0, high: -3.0 },
            Point { x: 100.0, y: 40.0, low: 39.0, high: 41.0 },
        ];
        let svg = curves(Scale::Signed, points).to_svg().unwrap();
        assert!(svg.contains(">\n0\n<") && svg.contains(">\n−"), "{svg}");
    }

    #[test]
    fn published_bars_have_a_colour_of_their_own() {
        let bar = |name: &str| Bar { name: name.to_owned(), value: 2.0, low: 1.0, high: 3.0 };
        let chart = Chart::Published {
            label: "ratio".to_owned(),
            bars: vec![(6, bar("paper")), (0, bar("here"))],
        };
        let figure = Figure { file: "p.svg".to_owned(), title: "Published".to_owned(), chart };
        assert!(!figure.is_empty());
        let svg = figure.to_svg().unwrap();
        assert!(svg.contains("paper") && svg.contains("here"));
        assert!(svg.contains("fill=\"#6E6E6E\"") && svg.contains("fill=\"#0072B2\""), "{svg}");
    }

    #[test]
    fn ratios_name_every_bar() {
        let bars = ["GET 64 B", "SET 16 KiB"].map(|name| Bar {
            name: name.to_owned(),
            value: 1.5,
            low: 1.2,
            high: 1.9,
        });
        let chart = Chart::Ratios { label: "accelerated / plain".to_owned(), bars: bars.to_vec() };
        let svg = Figure { file: "r.svg".to_owned(), title: "Ratios".to_owned(), chart }
            .to_svg()
            .unwrap();
        assert!(svg.contains("GET 64 B") && svg.contains("SET 16 KiB"), "{svg}");
    }
}
