//! Curves as SVG, through `plotters`.
//!
//! The legend has a column of its own, so it never hides data.

use anyhow::{Result, anyhow};
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::plot::{Axis, Chart, FONT, Figure, PALETTE, Point, SIZE, Scale, Series, reach};

const LEGEND_WIDTH: u32 = 230;

/// A figure as an SVG document.
///
/// # Errors
/// If it holds more than can be seen, a number that no axis can show, or the drawing library cannot
/// draw it.
/// library cannot draw it.
pub(crate) fn svg(figure: &Figure) -> Result<String> {
    if let Some(svg) = figure.bars()? {
        return Ok(svg);
    }
    let mut svg = String::new();
    if let Chart::Curves { x, y, series } = &figure.chart {
        draw_all(&mut svg, &figure.title, x, y, series)
            .map_err(|error| anyhow!("cannot draw {}: {error}", figure.file))?;
    }
    Ok(svg)
}

fn draw_all(
    svg: &mut String,
    title: &str,
    x: &Axis,
    y: &Axis,
    series: &[Series],
) -> Result<(), DrawError> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, (FONT, 20))?;
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND_WIDTH);

    let reach = reach(series.iter().flat_map(|series| &series.points).map(|point| point.y));
    let cut =
        |point: &Point| Point { low: point.low.max(-reach), high: point.high.min(reach), ..*point };
    let series: Vec<Series> = series
        .iter()
        .map(|one| Series { points: one.points.iter().map(cut).collect(), ..one.clone() })
        .collect();
    let series = &series[..];
    let points = || series.iter().flat_map(|series| &series.points);
    let across = Extent::of(x.scale, points().map(|point| point.x), points().map(|point| point.x));
    let up = Extent::of(y.scale, points().map(|point| point.low), points().map(|point| point.high));
    match (across, up) {
        (Extent::Linear(across), Extent::Linear(up)) => draw(&left, across, up, x, y, series)?,
        (Extent::Linear(across), Extent::Log(up)) => draw(&left, across, up, x, y, series)?,
        (Extent::Log(across), Extent::Linear(up)) => draw(&left, across, up, x, y, series)?,
        (Extent::Log(across), Extent::Log(up)) => draw(&left, across, up, x, y, series)?,
    }
    legend(&right, series)?;
    root.present()
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
            // Some margin, and never an empty range.
            Scale::Log10 => Self::Log(Logarithmic((low / 1.3..high * 1.3).log_scale().into())),
            Scale::Log2 | Scale::Sizes => {
                Self::Log(Logarithmic((low / 1.2..high * 1.2).log_scale().base(2.0).into()))
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
    let [red, green, blue] = PALETTE[index % PALETTE.len()];
    RGBColor(red, green, blue)
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
        let svg = svg(&curves(Scale::Linear, points)).unwrap();
        let numbers: Vec<f64> = svg.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(!numbers.is_empty() && numbers.iter().all(|number| *number < 30.0), "{numbers:?}");
    }

    #[test]
    fn no_label_stands_twice_on_an_axis() {
        // As of the latencies of one run: 1000 was there twice.
        let points = [(1.0, 27.0), (64.0, 35.0), (65536.0, 860.0)];
        let points = points.map(|(x, y)| Point { x, y, low: y * 0.9, high: y * 1.1 }).to_vec();
        let svg = svg(&curves(Scale::Log10, points)).unwrap();
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
            let svg = svg(&curves(scale, points())).unwrap();
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
        svg(&curves(Scale::Log10, vec![Point { x: 1.0, y: 0.0, low: 0.0, high: 0.0 }])).unwrap();
        assert!(curves(Scale::Linear, Vec::new()).is_empty());
    }

    #[test]
    fn what_is_below_zero_is_drawn() {
        let points = vec![
            Point { x: 10.0, y: -5.0, low: -7.0, high: -3.0 },
            Point { x: 100.0, y: 40.0, low: 39.0, high: 41.0 },
        ];
        let svg = svg(&curves(Scale::Signed, points)).unwrap();
        assert!(svg.contains(">\n0\n<") && svg.contains(">\n−"), "{svg}");
    }
}
