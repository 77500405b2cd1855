//! Selects the annotations in a view, clipped to it and simplified to its resolution.

use std::collections::BinaryHeap;

use serde::Serialize;

use super::index::{Colour, Feature, GeometryKind, Index, Point};

/// Maximum features of one answer; the largest are chosen.
const FEATURES: usize = 4000;
/// Maximum points of one answer.
const POINTS: usize = 100_000;
/// Maximum classes named in one answer.
const CLASSES: u32 = 32;

/// Maximum error of a line, in pixels of the screen.
const OFF: f32 = 0.5;
/// Features smaller than this are drawn as dots, in pixels of the screen.
const DOT: f32 = 2.0;

/// A part of the slide on a screen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct VisibleArea {
    /// Left, top, right, bottom, in pixels of level 0.
    pub(crate) bounds: [f32; 4],
    /// Pixels of the screen per pixel of level 0.
    pub(crate) zoom: f32,
}

impl VisibleArea {
    /// From `?bbox=` and `?zoom=`; the defaults are the whole slide and full size. `None` if they
    /// are invalid.
    pub(crate) fn parse(bbox: Option<&str>, zoom: Option<f32>) -> Option<Self> {
        let bounds = match bbox {
            None => [f32::MIN, f32::MIN, f32::MAX, f32::MAX],
            Some(text) => {
                let mut sides = [0.0; 4];
                let mut words = text.split(',');
                for side in &mut sides {
                    *side = words.next()?.parse().ok().filter(|side: &f32| side.is_finite())?;
                }
                let [left, top, right, bottom] = sides;
                let is_box = words.next().is_none() && left <= right && top <= bottom;
                is_box.then_some(sides)?
            }
        };
        let zoom = zoom.unwrap_or(1.0);
        (zoom > 0.0 && zoom.is_finite()).then_some(Self { bounds, zoom })
    }
}

/// A GeoJSON feature collection.
#[derive(Debug, Serialize)]
pub(super) struct Collection<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Number of annotations in the view. For those beyond the limit of an answer, only their boxes
    /// are known to intersect the view.
    pub(super) total: usize,
    /// Number of annotations in the file that cannot be shown.
    skipped: usize,
    classes: Vec<ClassOut<'a>>,
    pub(super) features: Vec<FeatureOut<'a>>,
}

#[derive(Debug, Serialize)]
struct ClassOut<'a> {
    name: &'a str,
    color: String,
}

#[derive(Debug, Serialize)]
pub(super) struct FeatureOut<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: u32,
    pub(super) geometry: Geometry,
    properties: PropertiesOut<'a>,
}

#[derive(Debug, Serialize)]
struct PropertiesOut<'a> {
    name: &'a str,
    class: Option<&'a str>,
    color: String,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", content = "coordinates")]
pub(super) enum Geometry {
    Point(Point),
    MultiPoint(Vec<Point>),
    MultiLineString(Vec<Vec<Point>>),
    MultiPolygon(Vec<Vec<Vec<Point>>>),
}

impl Geometry {
    fn points(&self) -> usize {
        match self {
            Self::Point(_) => 1,
            Self::MultiPoint(points) => points.len(),
            Self::MultiLineString(lines) => lines.iter().map(Vec::len).sum(),
            Self::MultiPolygon(areas) => areas.iter().flatten().map(Vec::len).sum(),
        }
    }
}

fn hexadecimal([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// The annotations in a view.
pub(super) fn collection(index: &Index, view: VisibleArea) -> Collection<'_> {
    let (mut total, numbers) = largest(index, view);
    let mut left = POINTS;
    let mut features = Vec::new();
    for number in numbers {
        let feature = index.feature(number);
        let Some(geometry) = geometry(index, feature, view) else {
            total -= 1;
            continue;
        };
        let Some(fewer) = left.checked_sub(geometry.points()) else { break };
        left = fewer;
        let class = feature.class.map(|class| index.class(class).0);
        let color = hexadecimal(index.colour(feature));
        let properties = PropertiesOut { name: index.name(feature), class, color };
        features.push(FeatureOut { kind: "Feature", id: number, geometry, properties });
    }
    let class = |number| {
        let (name, colour) = index.class(number);
        ClassOut { name, color: hexadecimal(colour) }
    };
    let classes = (0..index.classes().min(CLASSES)).map(class).collect();
    Collection { kind: "FeatureCollection", total, skipped: index.skipped, classes, features }
}

/// The number of features in the view, and the numbers of the largest, in descending order of size.
fn largest(index: &Index, view: VisibleArea) -> (usize, Vec<u32>) {
    let mut total = 0;
    let mut heap = BinaryHeap::new();
    index.within(view.bounds, |number| {
        total += 1;
        if heap.len() < FEATURES {
            heap.push(number);
        } else if let Some(mut last) = heap.peek_mut()
            && number < *last
        {
            *last = number;
        }
    });
    (total, heap.into_sorted_vec())
}

/// The visible part of a feature; `None` if only its box intersects the view.
fn geometry(index: &Index, feature: &Feature, view: VisibleArea) -> Option<Geometry> {
    let [left, top, right, bottom] = feature.bounds;
    let within = view.bounds;
    if feature.kind != GeometryKind::Points && feature.extent() * view.zoom < DOT {
        let middle = [(left + right) / 2.0, (top + bottom) / 2.0];
        return Some(Geometry::Point(rounded(middle)));
    }
    let is_inside =
        within[0] <= left && within[1] <= top && within[2] >= right && within[3] >= bottom;
    let off = OFF / view.zoom;
    let parts = index.parts(feature);
    match feature.kind {
        GeometryKind::Points => {
            let points = parts.flat_map(|(points, _)| points);
            let points: Vec<Point> = points.filter(|point| has(within, **point)).copied().collect();
            match points[..] {
                [] => None,
                [point] => Some(Geometry::Point(point)),
                _ => Some(Geometry::MultiPoint(thinned(&points, off, 1))),
            }
        }
        GeometryKind::Lines => {
            let (mut lines, mut count) = (Vec::new(), 0);
            for (points, _) in parts {
                let before = lines.len();
                match is_inside {
                    true => lines.push(thinned(points, off, 2)),
                    false => {
                        let pieces = cut_line(points, within).into_iter();
                        lines.extend(pieces.map(|piece| thinned(&piece, off, 2)));
                    }
                }
                count += lines[before..].iter().map(Vec::len).sum::<usize>();
                if count > POINTS {
                    break;
                }
            }
            (!lines.is_empty()).then_some(Geometry::MultiLineString(lines))
        }
        GeometryKind::Areas => {
            let mut areas: Vec<Vec<Vec<Point>>> = Vec::new();
            let (mut is_there, mut count) = (false, 0);
            for (points, is_outer) in parts {
                let mut ring = match is_inside {
                    true => thinned(points, off, 3),
                    false => {
                        let mut border = Border::new(off);
                        cut_area(points, within, &mut |point| border.add(point));
                        border.end()
                    }
                };
                let is_seen = ring.len() > 2;
                if let Some(first) = ring.first().copied() {
                    ring.push(first);
                }
                let length = ring.len();
                match (is_outer, areas.last_mut()) {
                    (true, _) => {
                        is_there = is_seen;
                        if is_seen {
                            areas.push(vec![ring]);
                            count += length;
                        }
                    }
                    // Without its area, a hole is left out.
                    (false, Some(area)) if is_there && is_seen => {
                        area.push(ring);
                        count += length;
                    }
                    _ => {}
                }
                if count > POINTS {
                    break;
                }
            }
            (!areas.is_empty()).then_some(Geometry::MultiPolygon(areas))
        }
    }
}

fn has([left, top, right, bottom]: [f32; 4], [x, y]: Point) -> bool {
    (left..=right).contains(&x) && (top..=bottom).contains(&y)
}

/// Rounds to hundredths of a pixel.
fn rounded([x, y]: Point) -> Point {
    [x, y].map(|number| (number * 100.0).round() / 100.0)
}

/// Drops points within `off` of the previous one, but keeps at least `least`. Stops once there are
/// more than an answer may have.
fn thinned(points: &[Point], off: f32, least: usize) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::new();
    let mut last: Option<Point> = None;
    let too_few = points.len() <= least;
    for (at, point) in points.iter().enumerate() {
        if kept.len() > POINTS {
            break;
        }
        let is_near = last.is_some_and(|[x, y]| (point[0] - x).hypot(point[1] - y) < off);
        // The end of a line stays in place.
        let is_end = least == 2 && at + 1 == points.len();
        if too_few || is_end || !is_near {
            kept.push(rounded(*point));
            last = Some(*point);
        }
    }
    kept
}

/// The border of an area, [thinned] point by point.
struct Border {
    off: f32,
    /// The first three points, which are kept if there are no more.
    first: Vec<Point>,
    count: usize,
    kept: Vec<Point>,
    last: Option<Point>,
}

impl Border {
    fn new(off: f32) -> Self {
        Self { off, first: Vec::new(), count: 0, kept: Vec::new(), last: None }
    }

    fn add(&mut self, point: Point) {
        self.count += 1;
        if self.count <= 3 {
            self.first.push(rounded(point));
        }
        let is_near = self.last.is_some_and(|[x, y]| (point[0] - x).hypot(point[1] - y) < self.off);
        if !is_near && self.kept.len() <= POINTS {
            self.kept.push(rounded(point));
            self.last = Some(point);
        }
    }

    fn end(self) -> Vec<Point> {
        if self.count <= 3 { self.first } else { self.kept }
    }
}

/// Where a line from `a` to `b` enters and leaves the box, as fractions of its length (Liang and
/// Barsky, ACM Transactions on Graphics 3(1), 1984).
fn inside(a: Point, b: Point, [left, top, right, bottom]: [f32; 4]) -> Option<(f32, f32)> {
    let [across, down] = [b[0] - a[0], b[1] - a[1]];
    let (mut enters, mut leaves) = (0.0_f32, 1.0_f32);
    for (step, room) in
        [(-across, a[0] - left), (across, right - a[0]), (-down, a[1] - top), (down, bottom - a[1])]
    {
        if step == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if step < 0.0 {
            enters = enters.max(room / step);
        } else {
            leaves = leaves.min(room / step);
        }
    }
    (enters <= leaves).then_some((enters, leaves))
}

/// The pieces of a line inside the box, unless they exceed the limit of an answer.
fn cut_line(points: &[Point], within: [f32; 4]) -> Vec<Vec<Point>> {
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    let mut goes_on = false;
    for pair in points.windows(2) {
        // Each piece has at least two points.
        if 2 * pieces.len() > POINTS {
            break;
        }
        let (a, b) = (pair[0], pair[1]);
        let Some((enters, leaves)) = inside(a, b, within) else {
            goes_on = false;
            continue;
        };
        let at = |part: f32| match part {
            0.0 => a,
            1.0 => b,
            _ => [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part],
        };
        match pieces.last_mut() {
            Some(piece) if goes_on && enters == 0.0 => piece.push(at(leaves)),
            _ => pieces.push(vec![at(enters), at(leaves)]),
        }
        goes_on = leaves == 1.0;
    }
    pieces
}

/// The part of an area inside the box, clipped at one side after another (Sutherland and Hodgman,
/// Communications of the ACM 17(1), 1974). Each point passes all sides before the next one, so the
/// points are not copied. Separate parts are connected along the sides of the box.
fn cut_area(points: &[Point], [left, top, right, bottom]: [f32; 4], give: &mut dyn FnMut(Point)) {
    let sides = [(0, left, true), (0, right, false), (1, top, true), (1, bottom, false)];
    let side =
        |(axis, limit, is_least)| ClipSide { axis, limit, is_least, first: None, last: None };
    let mut sides = sides.map(side);
    for point in points {
        cut(&mut sides, *point, give);
    }
    close(&mut sides, give);
}

/// A side of the box, and the state of clipping at it.
struct ClipSide {
    axis: usize,
    limit: f32,
    is_least: bool,
    first: Option<Point>,
    last: Option<Point>,
}

impl ClipSide {
    fn is_in(&self, point: Point) -> bool {
        match self.is_least {
            true => point[self.axis] >= self.limit,
            false => point[self.axis] <= self.limit,
        }
    }

    /// Where a line crosses the side, if it does.
    fn border(&self, from: Point, to: Point) -> Option<Point> {
        if self.is_in(from) == self.is_in(to) {
            return None;
        }
        let axis = self.axis;
        let part = (self.limit - from[axis]) / (to[axis] - from[axis]);
        let mut border = [0, 1].map(|axis| from[axis] + (to[axis] - from[axis]) * part);
        border[axis] = self.limit;
        Some(border)
    }
}

/// Passes a point through the sides.
fn cut(sides: &mut [ClipSide], point: Point, give: &mut dyn FnMut(Point)) {
    let Some((side, others)) = sides.split_first_mut() else { return give(point) };
    side.first = side.first.or(Some(point));
    let before = side.last.replace(point);
    if let Some(border) = before.and_then(|before| side.border(before, point)) {
        cut(others, border, give);
    }
    if side.is_in(point) {
        cut(others, point, give);
    }
}

/// Passes the line from the last point to the first through the sides.
fn close(sides: &mut [ClipSide], give: &mut dyn FnMut(Point)) {
    let Some((side, others)) = sides.split_first_mut() else { return };
    let line = side.last.zip(side.first);
    if let Some(border) = line.and_then(|(last, first)| side.border(last, first)) {
        cut(others, border, give);
    }
    close(others, give);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOX: [f32; 4] = [0.0, 0.0, 10.0, 10.0];

    #[test]
    fn lines_are_cut_into_what_is_inside() {
        let zigzag = [[-5.0, 5.0], [5.0, 5.0], [15.0, 5.0], [5.0, 15.0], [5.0, 5.0]];
        let pieces = cut_line(&zigzag, BOX);
        assert_eq!(pieces[0], [[0.0, 5.0], [5.0, 5.0], [10.0, 5.0]]);
        assert_eq!(pieces.last().unwrap(), &[[5.0, 10.0], [5.0, 5.0]]);
        assert!(cut_line(&[[-5.0, -5.0], [-5.0, 20.0]], BOX).is_empty());
        let through = cut_line(&[[-10.0, -10.0], [20.0, 20.0]], BOX);
        assert_eq!(through.len(), 1);
    }

    #[test]
    fn areas_are_cut_to_the_box() {
        fn cut_area(points: &[Point], within: [f32; 4]) -> Vec<Point> {
            let mut cut = Vec::new();
            super::cut_area(points, within, &mut |point| cut.push(point));
            cut
        }
        let large = [[-5.0, -5.0], [20.0, -5.0], [20.0, 20.0], [-5.0, 20.0]];
        let mut cut = cut_area(&large, BOX);
        cut.sort_by(|one, other| one.partial_cmp(other).unwrap());
        assert_eq!(cut, [[0.0, 0.0], [0.0, 10.0], [10.0, 0.0], [10.0, 10.0]]);
        assert!(cut_area(&[[20.0, 0.0], [30.0, 0.0], [30.0, 9.0]], BOX).is_empty());
        assert!(cut_area(&[], BOX).is_empty());
        for point in cut_area(&[[5.0, -5.0], [15.0, 5.0], [5.0, 15.0], [-5.0, 5.0]], BOX) {
            assert!(has(BOX, point), "{point:?}");
        }
    }

    #[test]
    fn indistinguishable_points_are_one() {
        let line: Vec<Point> = (0..1000).map(|x| [x as f32 / 100.0, 0.0]).collect();
        assert_eq!(
            thinned(&line, 1.0, 2),
            [
                [0.0, 0.0],
                [1.0, 0.0],
                [2.0, 0.0],
                [3.0, 0.0],
                [4.0, 0.0],
                [5.0, 0.0],
                [6.0, 0.0],
                [7.0, 0.0],
                [8.0, 0.0],
                [9.0, 0.0],
                [9.99, 0.0]
            ]
        );
        assert_eq!(thinned(&line[..2], 1.0, 2).len(), 2);
        // A border is thinned the same way as a whole and point by point.
        for count in [0, 1, 2, 3, 4, 1000] {
            let mut border = Border::new(1.0);
            line[..count].iter().for_each(|point| border.add(*point));
            assert_eq!(border.end(), thinned(&line[..count], 1.0, 3), "{count}");
        }
    }

    #[test]
    fn more_points_than_an_answer_may_have_are_not_collected() {
        let line: Vec<Point> = (0..3 * POINTS).map(|x| [x as f32, 0.0]).collect();
        assert_eq!(thinned(&line, 0.5, 3).len(), POINTS + 1);
        let mut border = Border::new(0.5);
        line.iter().for_each(|point| border.add(*point));
        assert_eq!(border.end().len(), POINTS + 1);
        let zigzag: Vec<Point> = (0..3 * POINTS).map(|x| [x as f32, (x % 2) as f32]).collect();
        let thin = [0.0, 0.4, f32::MAX, 0.6];
        assert_eq!(cut_line(&zigzag, thin).len(), POINTS / 2 + 1);
    }

    #[test]
    fn views_are_boxes() {
        let view = VisibleArea::parse(Some("1,-2,3.5,4"), Some(0.5)).unwrap();
        assert_eq!(view, VisibleArea { bounds: [1.0, -2.0, 3.5, 4.0], zoom: 0.5 });
        assert!(VisibleArea::parse(None, None).is_some());
        for wrong in ["", "1,2,3", "1,2,3,4,5", "3,2,1,4", "1,4,3,2", "a,2,3,4", "NaN,2,3,4"] {
            assert_eq!(VisibleArea::parse(Some(wrong), None), None, "{wrong}");
        }
        for zoom in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(VisibleArea::parse(None, Some(zoom)), None, "{zoom}");
        }
    }
}
