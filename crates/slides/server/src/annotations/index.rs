//! All annotations of a slide, as they are kept: points behind one another, the largest feature
//! first, and an R-tree of the boxes around features.

use std::collections::HashMap;
use std::ops::Range;

use rstar::primitives::{GeomWithData, Rectangle};
use rstar::{AABB, RTree};

use super::read::Node;

pub(super) type Point = [f32; 2];
pub(super) type Colour = [u8; 3];

/// What a feature is drawn in that says nothing.
const PLAIN: Colour = [200, 0, 0];

/// The longest name that is kept, in characters.
const NAME: usize = 200;

/// What a geometry is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Points,
    Lines,
    Areas,
}

impl Kind {
    /// By the name of the geometry; `None` of one that is not shown.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "Point" | "MultiPoint" => Some(Self::Points),
            "LineString" | "MultiLineString" => Some(Self::Lines),
            "Polygon" | "MultiPolygon" => Some(Self::Areas),
            _ => None,
        }
    }
}

/// How a feature is called and drawn.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) class: String,
    pub(super) class_colour: Option<Colour>,
    pub(super) colour: Option<Colour>,
}

impl Named {
    /// That are kept of it at most.
    pub(super) fn bytes(&self) -> usize {
        self.name.len().min(NAME * 4) + self.class.len()
    }
}

/// Points that belong together: those of a line, or of the border of an area.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Behind its last one.
    end: u32,
    /// Whether it is the outer border of an area; those of holes follow it.
    is_outer: bool,
}

#[derive(Debug)]
pub(super) struct Feature {
    pub(super) kind: Kind,
    parts: Range<u32>,
    /// Left, top, right, bottom.
    pub(super) bounds: [f32; 4],
    pub(super) class: Option<u32>,
    colour: Option<Colour>,
    pub(super) name: Box<str>,
}

impl Feature {
    /// Its longer side.
    pub(super) fn extent(&self) -> f32 {
        let [left, top, right, bottom] = self.bounds;
        (right - left).max(bottom - top)
    }
}

/// A kind of annotations, such as a tissue.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) colour: Colour,
}

type Entry = GeomWithData<Rectangle<Point>, u32>;

/// The annotations of one file.
pub(super) struct Index {
    features: Vec<Feature>,
    parts: Vec<Part>,
    points: Vec<Point>,
    pub(super) classes: Vec<Class>,
    tree: RTree<Entry>,
    /// Of which nothing is shown.
    pub(super) skipped: usize,
}

impl Index {
    /// The numbers of those whose boxes meet that one.
    pub(super) fn within(&self, [left, top, right, bottom]: [f32; 4]) -> impl Iterator<Item = u32> {
        let wanted = AABB::from_corners([left, top], [right, bottom]);
        self.tree.locate_in_envelope_intersecting(&wanted).map(|entry| entry.data)
    }

    /// By number: the larger, the smaller its number.
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

    pub(super) fn colour(&self, feature: &Feature) -> Colour {
        let of_class = feature.class.map(|class| self.classes[class as usize].colour);
        feature.colour.or(of_class).unwrap_or(PLAIN)
    }

    pub(super) fn count(&self) -> usize {
        self.features.len()
    }

    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let names: usize = self.features.iter().map(|feature| feature.name.len()).sum();
        let classes: usize = self.classes.iter().map(|class| class.name.len() + 64).sum();
        self.features.len() * Builder::FEATURE
            + size_of_val(&*self.parts)
            + size_of_val(&*self.points)
            + names
            + classes
    }
}

/// An index that is being made.
#[derive(Default)]
pub(super) struct Builder {
    features: Vec<Feature>,
    parts: Vec<Part>,
    points: Vec<Point>,
    classes: Vec<Class>,
    known: HashMap<String, u32>,
    skipped: usize,
}

impl Builder {
    /// What a feature takes besides its points and names: its place in the tree among it.
    pub(super) const FEATURE: usize = size_of::<Feature>() + 2 * size_of::<Entry>();

    /// Leaves a feature out.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Adds a feature; one without points is left out.
    pub(super) fn add(&mut self, kind: Kind, node: Node, named: Named) -> Result<(), &'static str> {
        let (parts, points) = (self.parts.len(), self.points.len());
        match (kind, node) {
            (Kind::Points, Node::Position(point)) => self.part(&[point], false)?,
            (Kind::Points | Kind::Lines, Node::Line(line)) => self.part(&line, false)?,
            (Kind::Lines | Kind::Areas, Node::Nested(lines)) => self.lines(kind, lines)?,
            (Kind::Points, Node::Nested(none)) if none.is_empty() => {}
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
        let class = self.class(named.class, named.class_colour);
        let name = named.name.chars().take(NAME).collect::<String>().into();
        self.features.push(Feature { kind, parts, bounds, class, colour: named.colour, name });
        Ok(())
    }

    /// Of areas: borders, or lists of them.
    fn lines(&mut self, kind: Kind, lines: Vec<Node>) -> Result<(), &'static str> {
        let wrong = "coordinates are not those of the geometry that they are in";
        let mut is_outer = true;
        for line in lines {
            match line {
                Node::Line(line) => self.part(&line, is_outer)?,
                Node::Nested(inner) if kind == Kind::Areas => {
                    for (number, line) in inner.into_iter().enumerate() {
                        let Node::Line(line) = line else { return Err(wrong) };
                        self.part(&line, number == 0)?;
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

    fn part(&mut self, points: &[Point], is_outer: bool) -> Result<(), &'static str> {
        // The end of a border is its beginning; that is known.
        let points = match points {
            [first, rest @ .., last] if first == last && !rest.is_empty() => {
                &points[..points.len() - 1]
            }
            _ => points,
        };
        self.points.extend_from_slice(points);
        let end = u32::try_from(self.points.len()).map_err(|_| "too many points")?;
        self.parts.push(Part { end, is_outer });
        Ok(())
    }

    fn class(&mut self, name: String, colour: Option<Colour>) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        if let Some(known) = self.known.get(&name) {
            return Some(*known);
        }
        let number = u32::try_from(self.classes.len()).ok()?;
        let short = name.chars().take(NAME).collect();
        self.classes.push(Class { name: short, colour: colour.unwrap_or(PLAIN) });
        self.known.insert(name, number);
        Some(number)
    }

    /// Sorts what there is.
    pub(super) fn finish(self) -> Index {
        let Self { mut features, mut parts, mut points, classes, skipped, .. } = self;
        features.sort_by(|one, other| other.extent().total_cmp(&one.extent()));
        features.shrink_to_fit();
        parts.shrink_to_fit();
        points.shrink_to_fit();
        let entry = |(number, feature): (u32, &Feature)| {
            let [left, top, right, bottom] = feature.bounds;
            GeomWithData::new(Rectangle::from_corners([left, top], [right, bottom]), number)
        };
        let tree = RTree::bulk_load((0..).zip(&features).map(entry).collect());
        Index { features, parts, points, classes, tree, skipped }
    }
}
