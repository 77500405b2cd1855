//! A Zarr array in format version 2 or 3: the location and compression of its chunks.

use super::store::{Store, Text, malformed, unsupported};
use crate::codec::Codec;
use crate::samples::Number;
use crate::source::{self, Source};
use crate::{Error, Limits, Result};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// Metadata common to both versions.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) shape: Vec<u64>,
    /// Shape of the unit of compression.
    pub(super) chunk: Vec<u64>,
    /// The axes, slowest-varying first.
    order: Vec<usize>,
    pub(super) number: Number,
    pub(super) bits: u8,
    pub(super) big_endian: bool,
    pub(super) codec: Codec,
    pub(super) fill: f64,
    /// True if a CRC-32C follows the compressed bytes.
    checksum: bool,
    /// Prefix of the names of all chunks.
    prefix: String,
    separator: char,
    shards: Option<Shards>,
}

/// Several chunks in one file, with an index of their offsets.
#[derive(Debug)]
struct Shards {
    /// Shape in chunks.
    shape: Vec<u64>,
    /// Bytes of the index, and whether it is at the end.
    index: u64,
    at_end: bool,
}

#[derive(Deserialize)]
struct Version2 {
    shape: Vec<u64>,
    chunks: Vec<u64>,
    dtype: Value,
    compressor: Option<Value>,
    fill_value: Option<Value>,
    order: Option<String>,
    filters: Option<Vec<Value>>,
    dimension_separator: Option<String>,
}

#[derive(Deserialize)]
struct Version3 {
    shape: Vec<u64>,
    data_type: Value,
    chunk_grid: Named,
    chunk_key_encoding: Named,
    fill_value: Option<Value>,
    codecs: Vec<Named>,
}

/// An extension, as Zarr 3 defines it.
#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    configuration: Value,
}

impl Array {
    /// Opens the array at a path of a store.
    pub(super) fn open(store: &dyn Store, limits: &Limits, path: &str) -> Result<Self> {
        let old = Text::read(store, limits, &format!("{path}/.zarray"))?;
        let array = match old {
            Some(text) => Self::version2(store, path, text.parse()?)?,
            None => {
                let text = Text::read(store, limits, &format!("{path}/zarr.json"))?;
                let Some(text) = text else {
                    return Err(malformed(store, format!("there is no array {path:?}")));
                };
                Self::version3(store, path, text.parse()?)?
            }
        };
        let ranks = [array.shape.len(), array.chunk.len()];
        if ranks.iter().any(|rank| *rank != ranks[0] || !(2..=8).contains(rank))
            || array.chunk.contains(&0)
            || array.shape.contains(&0)
        {
            let what = format!("{path}: a shape of {:?} in {:?}", array.shape, array.chunk);
            return Err(malformed(store, what));
        }
        Ok(array)
    }

    fn version2(store: &dyn Store, path: &str, old: Version2) -> Result<Self> {
        let order = Value::from(old.order.as_deref().unwrap_or("C"));
        let Some(order) = transposed(&order, old.shape.len()) else {
            return Err(unsupported(store, format!("{path}: the order {order} of samples")));
        };
        if old.filters.is_some_and(|filters| !filters.is_empty()) {
            return Err(unsupported(store, format!("{path}: filters")));
        }
        let kind = old.dtype.as_str().map(|name| (name.trim_start_matches(['<', '>', '|']), name));
        let parsed = kind.and_then(|(kind, name)| Some((number(kind)?, name.starts_with('>'))));
        let Some(((number, bits), big_endian)) = parsed else {
            return Err(unsupported(store, format!("{path}: samples of {}", old.dtype)));
        };
        let compressor = old.compressor.unwrap_or_default();
        let codec = match compressor["id"].as_str() {
            None if compressor.is_null() => Codec::Raw,
            Some("blosc") => Codec::Blosc,
            Some("zstd") => Codec::Zstd,
            Some("gzip") => Codec::Gzip,
            Some("zlib") => Codec::Deflate,
            Some("lz4") => Codec::Lz4,
            _ => return Err(unsupported(store, format!("{path}: compression {compressor}"))),
        };
        let separator = old.dimension_separator.as_deref().unwrap_or(".");
        Ok(Self {
            shape: old.shape,
            chunk: old.chunks,
            order,
            number,
            bits,
            big_endian,
            codec,
            fill: fill(old.fill_value.as_ref()),
            checksum: false,
            prefix: format!("{path}/"),
            separator: one_separator(store, separator)?,
            shards: None,
        })
    }

    fn version3(store: &dyn Store, path: &str, new: Version3) -> Result<Self> {
        let Some((number, bits)) = new.data_type.as_str().and_then(number) else {
            return Err(unsupported(store, format!("{path}: samples of {}", new.data_type)));
        };
        if new.chunk_grid.name != "regular" {
            return Err(unsupported(store, format!("{path}: chunks {:?}", new.chunk_grid.name)));
        }
        let outer = lengths(store, &new.chunk_grid.configuration["chunk_shape"])?;
        let keys = &new.chunk_key_encoding;
        let (prefix, usual) = match keys.name.as_str() {
            "default" => (format!("{path}/c"), "/"),
            "v2" => (format!("{path}/"), "."),
            other => return Err(unsupported(store, format!("{path}: chunk names {other:?}"))),
        };
        let separator = keys.configuration["separator"].as_str().unwrap_or(usual);
        let mut array = Self {
            order: (0..new.shape.len()).collect(),
            shape: new.shape,
            chunk: outer,
            number,
            bits,
            big_endian: false,
            codec: Codec::Raw,
            fill: fill(new.fill_value.as_ref()),
            checksum: false,
            separator: one_separator(store, separator)?,
            prefix,
            shards: None,
        };
        if keys.name == "default" {
            array.prefix.push(array.separator);
        }
        match &new.codecs[..] {
            [shards] if shards.name == "sharding_indexed" => {
                array.sharded(store, path, &shards.configuration)?;
            }
            codecs => array.codecs(store, path, codecs)?,
        }
        Ok(array)
    }

    fn sharded(&mut self, store: &dyn Store, path: &str, configuration: &Value) -> Result<()> {
        let inner = lengths(store, &configuration["chunk_shape"])?;
        let whole = inner.len() == self.chunk.len()
            && inner.iter().zip(&self.chunk).all(|(inner, outer)| *inner > 0 && outer % inner == 0);
        if !whole {
            let what = format!("{path}: shards of {:?} in chunks of {inner:?}", self.chunk);
            return Err(malformed(store, what));
        }
        let shape: Vec<u64> = self.chunk.iter().zip(&inner).map(|(all, one)| all / one).collect();
        let chunks = shape.iter().try_fold(16_u64, |all, side| all.checked_mul(*side));
        let read = |codecs: &Value| {
            Vec::<Named>::deserialize(codecs)
                .map_err(|error| malformed(store, format!("{path}: codecs: {error}")))
        };
        let checked = match &read(&configuration["index_codecs"])?[..] {
            [bytes] if bytes.name == "bytes" => 0,
            [bytes, check] if bytes.name == "bytes" && check.name == "crc32c" => 4,
            _ => return Err(unsupported(store, format!("{path}: a compressed index"))),
        };
        let index = chunks.and_then(|bytes| bytes.checked_add(checked));
        let index =
            index.ok_or_else(|| malformed(store, format!("{path}: shards of {shape:?}")))?;
        let at_end = configuration["index_location"].as_str() != Some("start");
        self.codecs(store, path, &read(&configuration["codecs"])?)?;
        self.chunk = inner;
        self.shards = Some(Shards { shape, index, at_end });
        Ok(())
    }

    /// Reads the codecs from samples to stored bytes.
    fn codecs(&mut self, store: &dyn Store, path: &str, mut codecs: &[Named]) -> Result<()> {
        if let [transpose, others @ ..] = codecs
            && transpose.name == "transpose"
        {
            let rank = self.shape.len();
            let order = transposed(&transpose.configuration["order"], rank);
            let what = || format!("{path}: the transposition {}", transpose.configuration);
            self.order = order.ok_or_else(|| malformed(store, what()))?;
            codecs = others;
        }
        let Some((bytes, mut rest)) =
            codecs.split_first().filter(|(bytes, _)| bytes.name == "bytes")
        else {
            let names: Vec<&str> = codecs.iter().map(|codec| codec.name.as_str()).collect();
            return Err(unsupported(store, format!("{path}: codecs {names:?}")));
        };
        self.big_endian = bytes.configuration["endian"].as_str() == Some("big");
        let codec = rest.first().and_then(|codec| match codec.name.as_str() {
            "blosc" => Some(Codec::Blosc),
            "zstd" => Some(Codec::Zstd),
            "gzip" => Some(Codec::Gzip),
            _ => None,
        });
        if let Some(codec) = codec {
            self.codec = codec;
            rest = &rest[1..];
        }
        match rest {
            [] => Ok(()),
            [check] if check.name == "crc32c" => {
                self.checksum = true;
                Ok(())
            }
            [other, ..] => Err(unsupported(store, format!("{path}: the codec {:?}", other.name))),
        }
    }

    /// The distance, in samples, between neighbours along each axis of a chunk, and the number of
    /// samples in it; `None` if that overflows.
    pub(super) fn steps(&self) -> Option<(Vec<u64>, u64)> {
        let mut steps = vec![0; self.order.len()];
        let mut count = 1_u64;
        for axis in self.order.iter().rev() {
            steps[*axis] = count;
            count = count.checked_mul(self.chunk[*axis])?;
        }
        Some((steps, count))
    }

    /// True if the samples of a chunk are in the order of the axes.
    pub(super) fn is_in_order(&self) -> bool {
        self.order.is_sorted()
    }

    /// The compressed bytes of a chunk inside the array; `None` if there is no such chunk.
    pub(super) fn read(
        &self,
        store: &dyn Store,
        limits: &Limits,
        at: &[u64],
    ) -> Result<Option<Bytes>> {
        let Some(shards) = &self.shards else {
            let Some(source) = store.open(&self.key(at.iter().copied()))? else {
                return Ok(None);
            };
            return self.bytes(&*source, limits, 0, source.length()).map(Some);
        };
        let outer = at.iter().zip(&shards.shape).map(|(at, side)| at / side);
        let Some(source) = store.open(&self.key(outer))? else { return Ok(None) };
        let inner = at.iter().zip(&shards.shape).map(|(at, side)| (at % side, side));
        let number = inner.fold(0, |number, (at, side)| number * side + at);
        let index = if shards.at_end {
            source.length().checked_sub(shards.index).ok_or_else(|| Error::Malformed {
                name: source.name().into(),
                at: 0,
                what: "a shard that is shorter than its index".into(),
            })?
        } else {
            0
        };
        // The index has a checksum, which is not verified: all of it would have to be read for each
        // chunk.
        let entry = source::read(&*source, index + 16 * number, 16)?;
        let word = |at: usize| {
            entry[at..at + 8].iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
        };
        match (word(0), word(8)) {
            (u64::MAX, u64::MAX) => Ok(None),
            (at, length) => self.bytes(&*source, limits, at, length).map(Some),
        }
    }

    fn key(&self, at: impl Iterator<Item = u64>) -> String {
        let mut key = self.prefix.clone();
        for (number, index) in at.enumerate() {
            if number > 0 {
                key.push(self.separator);
            }
            key.push_str(&index.to_string());
        }
        key
    }

    fn bytes(&self, source: &dyn Source, limits: &Limits, at: u64, length: u64) -> Result<Bytes> {
        let name = || source.name().to_owned();
        if length > limits.stored {
            let what = format!("a chunk of {length} bytes");
            return Err(Error::Limit { name: name(), what });
        }
        let malformed = |what: &str| Error::Malformed { name: name(), at, what: what.to_owned() };
        let bytes = Bytes::from(source::read(source, at, length)?);
        // A copy that broke off leaves an empty file.
        if bytes.is_empty() {
            return Err(malformed("a chunk without bytes"));
        }
        if !self.checksum {
            return Ok(bytes);
        }
        let split = bytes.len().checked_sub(4);
        let right = split.filter(|split| bytes[*split..] == crc32c(&bytes[..*split]).to_le_bytes());
        let Some(split) = right else {
            return Err(malformed("a chunk whose checksum does not match"));
        };
        Ok(bytes.slice(..split))
    }
}

fn one_separator(store: &dyn Store, separator: &str) -> Result<char> {
    match separator {
        "." => Ok('.'),
        "/" => Ok('/'),
        other => Err(unsupported(store, format!("{other:?} in the names of chunks"))),
    }
}

fn lengths(store: &dyn Store, of: &Value) -> Result<Vec<u64>> {
    Vec::deserialize(of).map_err(|error| malformed(store, format!("the shape of chunks: {error}")))
}

/// The number type and bits of a data type, with the names of both versions.
fn number(name: &str) -> Option<(Number, u8)> {
    Some(match name {
        "u1" | "uint8" => (Number::Unsigned, 8),
        "u2" | "uint16" => (Number::Unsigned, 16),
        "u4" | "uint32" => (Number::Unsigned, 32),
        "u8" | "uint64" => (Number::Unsigned, 64),
        "i1" | "int8" => (Number::Signed, 8),
        "i2" | "int16" => (Number::Signed, 16),
        "i4" | "int32" => (Number::Signed, 32),
        "i8" | "int64" => (Number::Signed, 64),
        "f2" | "float16" => (Number::Float, 16),
        "f4" | "float32" => (Number::Float, 32),
        "f8" | "float64" => (Number::Float, 64),
        _ => return None,
    })
}

/// The axes in the order given by the array or by the codec `transpose`.
fn transposed(order: &Value, rank: usize) -> Option<Vec<usize>> {
    let order = match order.as_str() {
        Some("C") => (0..rank).collect(),
        Some("F") => (0..rank).rev().collect(),
        _ => Vec::<usize>::deserialize(order).ok()?,
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    sorted.into_iter().eq(0..rank).then_some(order)
}

/// The value of samples that are not stored.
fn fill(value: Option<&Value>) -> f64 {
    match value.and_then(Value::as_str) {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        _ => value.and_then(Value::as_f64).unwrap_or(0.0),
    }
}

/// CRC-32C (RFC 3720, B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut sum = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                sum = (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 };
                bit += 1;
            }
            table[byte] = sum;
            byte += 1;
        }
        table
    };
    !bytes.iter().fold(u32::MAX, |sum, byte| (sum >> 8) ^ TABLE[usize::from(sum as u8 ^ byte)])
}
