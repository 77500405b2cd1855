//! GeoJSON (RFC 7946) as microscopy programs write it: features whose coordinates are pixels of
//! level 0, with names and classes in QuPath's format. It is read as a stream, and each piece is
//! charged to a budget before it is kept. Coordinates are charged before their geometry is known,
//! and released once it is; what remains charged is what is kept. During reading, lists grow by
//! doubling, and old and new buffer exist together for a moment: memory is at most three times the
//! charge.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::budget::Budget;
use super::index::{Builder, GeometryKind, Named, Node};

/// Larger coordinates are outside any slide, and f32 is hardly precise to a pixel there.
const FURTHEST: f64 = 1e7;

/// Replaces a position outside any slide: its geometry is left out.
const NOWHERE: [f32; 2] = [f32::NAN; 2];

/// Bytes of the name of a derived class.
const DERIVED: usize = 64 << 10;

/// Maximum nesting of coordinate arrays: that of a `MultiPolygon`.
const DEEPEST: u8 = 4;

/// Overhead of an allocation, in bytes.
const PIECE: usize = 16;

/// Minimum capacity of a growing list.
const FEWEST: usize = 4;

#[derive(Clone, Copy)]
struct Coordinates<'a> {
    budget: &'a Budget,
    depth: u8,
}

impl Coordinates<'_> {
    /// Appends to a list whose capacity is charged to the budget.
    fn push<T, E: Error>(self, list: &mut Vec<T>, item: T) -> Result<(), E> {
        if list.len() == list.capacity() {
            let more = list.capacity().max(FEWEST);
            let piece = if list.is_empty() { PIECE } else { 0 };
            self.budget.spend::<E>(more * size_of::<T>() + piece)?;
            list.reserve_exact(more);
        }
        list.push(item);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Coordinates<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Coordinates<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("coordinates")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        Ok(Node::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number as f64))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number as f64))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(A::Error::custom("coordinates are nested too deep"));
        };
        let inner = Self { depth, ..self };
        let mixed = || A::Error::custom("coordinates are not a list of one kind");
        match from.next_element_seed(inner)? {
            None => Ok(Node::Nested(Vec::new())),
            Some(Node::Number(x)) => {
                let Some(Node::Number(y)) = from.next_element_seed(inner)? else {
                    return Err(A::Error::custom("a position has two numbers"));
                };
                // A height is not used.
                while from.next_element::<IgnoredAny>()?.is_some() {}
                if x.abs() > FURTHEST || y.abs() > FURTHEST {
                    return Ok(Node::Position(NOWHERE));
                }
                Ok(Node::Position([x as f32, y as f32]))
            }
            Some(Node::Position(first)) => {
                let mut line = Vec::new();
                self.push::<_, A::Error>(&mut line, first)?;
                while let Some(node) = from.next_element_seed(inner)? {
                    let Node::Position(position) = node else { return Err(mixed()) };
                    self.push::<_, A::Error>(&mut line, position)?;
                }
                Ok(Node::Line(line))
            }
            Some(first) => {
                let mut nested = Vec::new();
                self.push::<_, A::Error>(&mut nested, first)?;
                while let Some(node) = from.next_element_seed(inner)? {
                    match node {
                        Node::Line(_) | Node::Nested(_) => {
                            self.push::<_, A::Error>(&mut nested, node)?
                        }
                        _ => return Err(mixed()),
                    }
                }
                Ok(Node::Nested(nested))
            }
        }
    }
}

/// A text or a number; empty for anything else.
#[derive(Debug, Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfText;
        impl<'de> Visitor<'de> for OfText {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
                Ok(Text::default())
            }

            fn visit_unit<E>(self) -> Result<Text, E> {
                Ok(Text::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Text, A::Error> {
                while from.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Text::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Text, A::Error> {
                while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Text::default())
            }
        }
        from.deserialize_any(OfText)
    }
}

/// Red, green and blue: as a list, as a number of 24 bits, or as `#rrggbb`; `None` for anything
/// else.
#[derive(Debug, Default, Clone, Copy)]
struct Colour(Option<[u8; 3]>);

impl Colour {
    fn of_number(number: i64) -> Self {
        let [blue, green, red, ..] = number.to_le_bytes();
        Self(Some([red, green, blue]))
    }
}

impl<'de> Deserialize<'de> for Colour {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfColour;
        impl<'de> Visitor<'de> for OfColour {
            type Value = Colour;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a colour")
            }

            fn visit_str<E>(self, text: &str) -> Result<Colour, E> {
                let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
                let number = digits.and_then(|digits| i64::from_str_radix(digits, 16).ok());
                Ok(number.map_or(Colour::default(), Colour::of_number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Colour, E> {
                Ok(Colour::of_number(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Colour, E> {
                Ok(Colour::of_number(number as i64))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Colour, E> {
                Ok(Colour::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Colour, E> {
                Ok(Colour::default())
            }

            fn visit_unit<E>(self) -> Result<Colour, E> {
                Ok(Colour::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Colour, A::Error> {
                let mut parts = [0; 3];
                let mut count = 0;
                while let Some(Text(part)) = from.next_element()? {
                    let value = part.parse::<u8>().ok();
                    match (parts.get_mut(count), value) {
                        (Some(coordinate), Some(value)) => *coordinate = value,
                        (None, _) => {}
                        (Some(_), None) => count = parts.len(),
                    }
                    count += 1;
                }
                // A fourth value is opacity.
                Ok(Colour(matches!(count, 3 | 4).then_some(parts)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Colour, A::Error> {
                while from.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Colour::default())
            }
        }
        from.deserialize_any(OfColour)
    }
}

/// The names of a derived class, in the format of QuPath since version 0.4, joined to one text.
#[derive(Debug, Default)]
struct Names(String);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfNames;
        impl<'de> Visitor<'de> for OfNames {
            type Value = Names;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names")
            }

            fn visit_unit<E>(self) -> Result<Names, E> {
                Ok(Names::default())
            }

            fn visit_str<E>(self, name: &str) -> Result<Names, E> {
                Ok(Names(name.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Names, A::Error> {
                let mut all = String::new();
                while let Some(Text(name)) = from.next_element()? {
                    if !name.is_empty() && all.len() + name.len() <= DERIVED {
                        let between = if all.is_empty() { "" } else { ": " };
                        all.extend([between, &name]);
                    }
                }
                Ok(Names(all))
            }
        }
        from.deserialize_any(OfNames)
    }
}

/// The class of an annotation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Class {
    name: Text,
    names: Names,
    color: Colour,
    /// QuPath's older format.
    #[serde(rename = "colorRGB")]
    number: Colour,
}

/// A class, or only its name.
#[derive(Debug, Default)]
struct Classification(Class);

impl<'de> Deserialize<'de> for Classification {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OfClass;
        impl<'de> Visitor<'de> for OfClass {
            type Value = Classification;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a class or its name")
            }

            fn visit_str<E>(self, text: &str) -> Result<Classification, E> {
                Ok(Classification(Class { name: Text(text.to_owned()), ..Class::default() }))
            }

            fn visit_unit<E>(self) -> Result<Classification, E> {
                Ok(Classification::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<Classification, A::Error> {
                let from = serde::de::value::MapAccessDeserializer::new(from);
                Class::deserialize(from).map(Classification)
            }
        }
        from.deserialize_any(OfClass)
    }
}

/// The properties of a feature that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Properties {
    name: Text,
    color: Colour,
    #[serde(rename = "colorRGB")]
    number: Colour,
    stroke: Colour,
    classification: Classification,
}

impl Properties {
    fn named(self) -> Named {
        let Class { name, names, color, number } = self.classification.0;
        let class = if names.0.is_empty() { name.0 } else { names.0 };
        Named {
            name: self.name.0,
            class,
            class_colour: color.0.or(number.0),
            colour: self.color.0.or(self.number.0).or(self.stroke.0),
        }
    }
}

/// Kind and coordinates of a geometry; empty if there is none.
#[derive(Clone, Copy)]
struct Geometry<'a>(&'a Budget);

impl<'de> DeserializeSeed<'de> for Geometry<'_> {
    type Value = Option<(String, Node)>;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Geometry<'_> {
    type Value = Option<(String, Node)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a geometry or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let (mut kind, mut node) = (None, None);
        while let Some(key) = from.next_key::<String>()? {
            match &*key {
                "type" => kind = Some(from.next_value::<Text>()?.0),
                "coordinates" => {
                    let coordinates = Coordinates { budget: self.0, depth: DEEPEST };
                    node = Some(from.next_value_seed(coordinates)?);
                }
                _ => drop(from.next_value::<IgnoredAny>()?),
            }
        }
        Ok(kind.zip(node))
    }
}

/// Reads a feature collection, a list of features, one feature, or a bare geometry into the
/// builder.
pub(super) struct Document<'a> {
    pub(super) builder: &'a mut Builder,
    pub(super) budget: &'a Budget,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a GeoJSON FeatureCollection or Feature")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Self { builder, budget } = self;
        loop {
            let feature = Feature { builder: &mut *builder, budget, is_inner: true };
            if from.next_element_seed(feature)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<(), A::Error> {
        Feature { builder: self.builder, budget: self.budget, is_inner: false }.visit_map(from)
    }
}

/// A feature; at the top level it may be a collection.
struct Feature<'a> {
    builder: &'a mut Builder,
    budget: &'a Budget,
    is_inner: bool,
}

impl<'de> DeserializeSeed<'de> for Feature<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Feature<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a GeoJSON Feature")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let Self { builder, budget, is_inner } = self;
        let (mut geometry, mut properties) = (None, Properties::default());
        let (mut is_collection, mut charged) = (false, 0);
        // For a geometry without a feature.
        let (mut bare, mut kind_of_bare) = (None, String::new());
        while let Some(key) = from.next_key::<String>()? {
            match &*key {
                "geometry" => {
                    let before = budget.left();
                    geometry = from.next_value_seed(Geometry(budget))?;
                    charged += before - budget.left();
                }
                "properties" => {
                    properties = from.next_value::<Option<Properties>>()?.unwrap_or_default();
                }
                "features" if !is_inner => {
                    is_collection = true;
                    from.next_value_seed(Features { builder: &mut *builder, budget })?;
                }
                "type" if !is_inner => kind_of_bare = from.next_value::<Text>()?.0,
                "coordinates" if !is_inner => {
                    let before = budget.left();
                    let coordinates = Coordinates { budget, depth: DEEPEST };
                    bare = Some(from.next_value_seed(coordinates)?);
                    charged += before - budget.left();
                }
                _ => drop(from.next_value::<IgnoredAny>()?),
            }
        }
        let is_bare_collection = bare.is_none() && kind_of_bare == "GeometryCollection";
        match geometry.or_else(|| bare.map(|node| (kind_of_bare, node))) {
            Some((_, node)) if node.is_nowhere() => {
                drop(node);
                builder.skip();
            }
            Some((kind, node)) => match GeometryKind::of(&kind) {
                Some(kind) => {
                    let named = properties.named();
                    budget.spend(builder.cost(&node, &named))?;
                    builder.add(kind, node, named).map_err(A::Error::custom)?;
                }
                None => {
                    drop(node);
                    builder.skip();
                }
            },
            None if is_collection => {}
            None if is_inner || is_bare_collection => builder.skip(),
            None => return Err(A::Error::custom("not a GeoJSON Feature or FeatureCollection")),
        }
        // In any case, the parsed coordinates have been dropped.
        budget.give(charged);
        Ok(())
    }
}

/// The list of features in a collection.
struct Features<'a> {
    builder: &'a mut Builder,
    budget: &'a Budget,
}

impl<'de> DeserializeSeed<'de> for Features<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Features<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of features")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<(), A::Error> {
        Document { builder: self.builder, budget: self.budget }.visit_seq(from)
    }
}
