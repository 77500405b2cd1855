//! All annotations of a slide as they are kept: contiguous points and names, the largest feature
//! first, and a tree of bounding boxes. No feature has an allocation of its own, so the memory of
//! all of them is known.

use std::collections::HashMap;
use std::ops::Range;

use super::tree::{Bounds, Tree};

pub(super) type Point = [f32; 2];
pub(super) type Colour = [u8; 3];

/// Default colour of a feature.
const PLAIN: Colour = [200, 0, 0];

/// Characters of the longest name kept.
const NAME: usize = 200;

/// Kind of the parts of a geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GeometryKind {
    Points,
    Lines,
    Areas,
}

impl GeometryKind {
    /// By the name of the geometry; `None` if it is not shown.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "Point" | "MultiPoint" => Some(Self::Points),
            "LineString" | "MultiLineString" => Some(Self::Lines),
            "Polygon" | "MultiPolygon" => Some(Self::Areas),
            _ => None,
        }
    }
}

/// Coordinates whose geometry is not known yet.
#[derive(Debug)]
pub(super) enum Node {
    Number(f64),
    Position([f32; 2]),
    Line(Vec<[f32; 2]>),
    Nested(Vec<Node>),
}

impl Node {
    /// True if it contains a position outside any slide.
    pub(super) fn is_nowhere(&self) -> bool {
        let is_nowhere = |position: &[f32; 2]| position.iter().any(|number| number.is_nan());
        match self {
            Self::Number(_) => false,
            Self::Position(position) => is_nowhere(position),
            Self::Line(line) => line.iter().any(is_nowhere),
            Self::Nested(nodes) => nodes.iter().any(Self::is_nowhere),
        }
    }
}

/// The name, class and colours of a feature.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) class_colour: Option<Colour>,
    pub(super) colour: Option<Colour>,
}

/// A group of points: a line, or the border of an area.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Index after its last point.
    end: u32,
    /// True for the outer border of an area; the borders of holes follow it.
    is_outer: bool,
}

#[derive(Debug)]
pub(super) struct Feature {
    pub(super) kind: GeometryKind,
    parts: Range<u32>,
    pub(super) bounds: Bounds,
    pub(super) class: Option<u32>,
    colour: Option<Colour>,
    /// Position in all names.
    name: Range<u32>,
}

impl Feature {
    /// The longer side of its bounding box.
    pub(super) fn extent(&self) -> f32 {
        let [left, top, right, bottom] = self.bounds;
        (right - left).max(bottom - top)
    }
}

/// A class of annotations, such as a tissue.
#[derive(Debug)]
struct Class {
    /// Position in all names.
    name: Range<u32>,
    colour: Colour,
}

/// The annotations of one file.
pub(super) struct Index {
    features: Vec<Feature>,
    parts: Vec<Part>,
    points: Vec<Point>,
    classes: Vec<Class>,
    /// The names of features and classes.
    names: String,
    tree: Tree,
    /// Number of features of which nothing is shown.
    pub(super) skipped: usize,
}

impl Index {
    /// Passes the numbers of features whose boxes intersect `wanted` to `give`.
    pub(super) fn within(&self, wanted: Bounds, give: impl FnMut(u32)) {
        self.tree.within(wanted, |number| self.feature(number).bounds, give);
    }

    /// A feature by its number. Larger features have smaller numbers.
    pub(super) fn feature(&self, number: u32) -> &Feature {
        &self.features[number as usize]
    }

    /// The parts of a feature, and whether each begins an area.
    pub(super) fn parts(&self, feature: &Feature) -> impl Iterator<Item = (&[Point], bool)> {
        feature.parts.clone().map(|number| {
            let part = self.parts[number as usize];
            let before = number.checked_sub(1).map_or(0, |before| self.parts[before as usize].end);
            (&self.points[before as usize..part.end as usize], part.is_outer)
        })
    }

    pub(super) fn name(&self, feature: &Feature) -> &str {
        self.named(&feature.name)
    }

    /// The name of a class, and its colour.
    pub(super) fn class(&self, number: u32) -> (&str, Colour) {
        let Class { name, colour } = &self.classes[number as usize];
        (self.named(name), *colour)
    }

    /// Number of classes.
    pub(super) fn classes(&self) -> u32 {
        self.classes.len() as u32
    }

    fn named(&self, name: &Range<u32>) -> &str {
        &self.names[name.start as usize..name.end as usize]
    }

    pub(super) fn colour(&self, feature: &Feature) -> Colour {
        let of_class = feature.class.map(|class| self.classes[class as usize].colour);
        feature.colour.or(of_class).unwrap_or(PLAIN)
    }

    pub(super) fn count(&self) -> usize {
        self.features.len()
    }

    /// Bytes allocated for the index, including unused capacity.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.features.capacity() * size_of::<Feature>()
            + self.parts.capacity() * size_of::<Part>()
            + self.points.capacity() * size_of::<Point>()
            + self.classes.capacity() * size_of::<Class>()
            + self.names.capacity()
            + self.tree.bytes()
    }
}

/// An index under construction.
#[derive(Default)]
pub(super) struct Builder {
    features: Vec<Feature>,
    parts: Vec<Part>,
    points: Vec<Point>,
    classes: Vec<Class>,
    names: String,
    class_numbers: HashMap<String, u32>,
    skipped: usize,
}

impl Builder {
    /// Bytes of an empty index.
    pub(super) const BESIDES: usize = size_of::<Index>() + Tree::BESIDES;

    /// Bytes of a feature without coordinates and names, including its position in the tree.
    const FEATURE: usize = size_of::<Feature>() + Tree::EACH;

    /// Bytes of a class without its name. While it is read, this includes its entry in a hash table
    /// that may be half empty.
    const CLASS: usize = size_of::<Class>() + 2 * size_of::<(String, u32)>();

    /// Bytes of a feature that is added. While annotations are read, the full name of a class is in
    /// memory twice.
    pub(super) fn cost(&self, node: &Node, named: &Named) -> usize {
        let is_new = !named.class.is_empty() && !self.class_numbers.contains_key(&named.class);
        let class = if is_new { Self::CLASS + 2 * named.class.len() } else { 0 };
        Self::FEATURE + coordinates(node) + short(&named.name).len() + class
    }

    /// Counts a feature as left out.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Adds a feature; one without points is left out.
    pub(super) fn add(
        &mut self,
        kind: GeometryKind,
        node: Node,
        named: Named,
    ) -> Result<(), &'static str> {
        let (parts, points) = (self.parts.len(), self.points.len());
        match (kind, node) {
            (GeometryKind::Points, Node::Position(point)) => self.part(kind, &[point], false)?,
            (GeometryKind::Points | GeometryKind::Lines, Node::Line(line)) => {
                self.part(kind, &line, false)?
            }
            (GeometryKind::Lines | GeometryKind::Areas, Node::Nested(lines)) => {
                self.lines(kind, lines)?
            }
            (GeometryKind::Points, Node::Nested(none)) if none.is_empty() => {}
            _ => return Err("coordinates are not those of the geometry that they are in"),
        }
        let bounds = self.points[points..].iter().fold(None, |bounds, [x, y]| {
            let [left, top, right, bottom] = bounds.unwrap_or([*x, *y, *x, *y]);
            Some([x.min(left), y.min(top), x.max(right), y.max(bottom)])
        });
        let Some(bounds) = bounds else {
            self.skip();
            return Ok(());
        };
        let number = |count: usize| u32::try_from(count).map_err(|_| "too many points");
        let parts = number(parts)?..number(self.parts.len())?;
        let class = self.class(named.class, named.class_colour)?;
        let name = self.name(&named.name)?;
        self.features.push(Feature { kind, parts, bounds, class, colour: named.colour, name });
        Ok(())
    }

    /// Adds areas, which are borders or lists of them, or lines.
    fn lines(&mut self, kind: GeometryKind, lines: Vec<Node>) -> Result<(), &'static str> {
        let wrong = "coordinates are not those of the geometry that they are in";
        let mut is_outer = true;
        for line in lines {
            match line {
                Node::Line(line) => self.part(kind, &line, is_outer)?,
                Node::Nested(inner) if kind == GeometryKind::Areas => {
                    for (number, line) in inner.into_iter().enumerate() {
                        let Node::Line(line) = line else { return Err(wrong) };
                        self.part(kind, &line, number == 0)?;
                    }
                    continue;
                }
                Node::Nested(none) if none.is_empty() => {}
                _ => return Err(wrong),
            }
            is_outer = false;
        }
        Ok(())
    }

    fn part(
        &mut self,
        kind: GeometryKind,
        points: &[Point],
        is_outer: bool,
    ) -> Result<(), &'static str> {
        // A border ends where it begins, so its last point is redundant. A line's is not.
        let points = match points {
            [first, rest @ .., last]
                if kind == GeometryKind::Areas && first == last && !rest.is_empty() =>
            {
                &points[..points.len() - 1]
            }
            _ => points,
        };
        self.points.extend_from_slice(points);
        let end = u32::try_from(self.points.len()).map_err(|_| "too many points")?;
        self.parts.push(Part { end, is_outer });
        Ok(())
    }

    fn class(&mut self, name: String, colour: Option<Colour>) -> Result<Option<u32>, &'static str> {
        if name.is_empty() {
            return Ok(None);
        }
        if let Some(number) = self.class_numbers.get(&name) {
            return Ok(Some(*number));
        }
        let number = u32::try_from(self.classes.len()).map_err(|_| "too many classes")?;
        let shown = self.name(&name)?;
        self.classes.push(Class { name: shown, colour: colour.unwrap_or(PLAIN) });
        self.class_numbers.insert(name, number);
        Ok(Some(number))
    }

    /// Appends a name and returns its position.
    fn name(&mut self, name: &str) -> Result<Range<u32>, &'static str> {
        let end = |names: &str| u32::try_from(names.len()).map_err(|_| "too many names");
        let start = end(&self.names)?;
        self.names.push_str(short(name));
        Ok(start..end(&self.names)?)
    }

    /// Sorts the features and builds the index.
    pub(super) fn finish(self) -> Index {
        let Self {
            mut features,
            mut parts,
            mut points,
            mut classes,
            mut names,
            class_numbers,
            skipped,
        } = self;
        drop(class_numbers);
        // Features of the same extent keep the order of the file; this sort needs no extra memory.
        features.sort_unstable_by(|one, other| {
            let by_extent = other.extent().total_cmp(&one.extent());
            by_extent.then(one.parts.start.cmp(&other.parts.start))
        });
        features.shrink_to_fit();
        parts.shrink_to_fit();
        points.shrink_to_fit();
        classes.shrink_to_fit();
        names.shrink_to_fit();
        // Every feature has a part, and parts are counted with 32 bits.
        let count = features.len() as u32;
        let tree = Tree::new(count, |number| features[number as usize].bounds);
        Index { features, parts, points, classes, names, tree, skipped }
    }
}

/// Bytes kept of these coordinates.
fn coordinates(node: &Node) -> usize {
    match node {
        Node::Number(_) => 0,
        Node::Position(_) => size_of::<Part>() + size_of::<Point>(),
        Node::Line(line) => size_of::<Part>() + size_of_val(&line[..]),
        Node::Nested(nodes) => nodes.iter().map(coordinates).sum(),
    }
}

/// The part of a name that is kept.
fn short(name: &str) -> &str {
    name.char_indices().nth(NAME).map_or(name, |(end, _)| &name[..end])
}
