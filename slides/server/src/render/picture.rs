//! Images that can be requested, and their formats.

use std::sync::Arc;

use seekwire_slides_image::{Layer, Rendering};
use serde::{Serialize, Serializer};

use crate::render::colour::ColourMode;
use crate::render::plan::BaseRegion;
use crate::render::rotation::{Quality, Turn};

/// The content of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Shown {
    /// A part of a slide without channels, in the default plane.
    Part(BaseRegion),
    /// A part of a slide in another rendering, or of a slide with channels.
    Of(BaseRegion, #[serde(serialize_with = "shared")] Arc<Rendering>),
    /// An associated image.
    Associated(String),
}

impl Shown {
    /// A part of a slide, with a rendering if the slide has several.
    pub(crate) fn part(part: BaseRegion, rendering: Option<&Arc<Rendering>>) -> Self {
        match rendering {
            Some(rendering) => Self::Of(part, Arc::clone(rendering)),
            None => Self::Part(part),
        }
    }

    /// The part of the slide, and its rendering.
    pub(crate) fn parts(&self) -> Option<(BaseRegion, Option<&Arc<Rendering>>)> {
        match self {
            Self::Part(part) => Some((*part, None)),
            Self::Of(part, rendering) => Some((*part, Some(rendering))),
            Self::Associated(_) => None,
        }
    }
}

/// Bytes of a rendering in a cache key.
pub(crate) fn cost(rendering: Option<&Arc<Rendering>>) -> usize {
    let of = |rendering: &Arc<Rendering>| rendering.layers.len() * size_of::<Layer>();
    rendering.map_or(0, |rendering| size_of::<Rendering>() + of(rendering))
}

/// The colours, plane and channels of an image of a slide.
#[derive(Debug, Clone)]
pub(crate) struct Appearance {
    pub(crate) colours: ColourMode,
    /// `None` for the colours of the pixels in the default plane.
    pub(crate) rendering: Option<Arc<Rendering>>,
}

/// A requested image.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(crate) struct Picture {
    pub(crate) shown: Shown,
    /// Size before turning. An associated image is not enlarged.
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) turn: Turn,
    pub(crate) quality: Quality,
    pub(crate) kind: ImageFormat,
    pub(crate) colours: ColourMode,
}

/// The version of the encoding of cache keys. A change of the types that are encoded, or of the pixels
/// that they stand for, needs another one.
const KEYS: u32 = 2;

/// The part of a cache key that says which image it is: for entity tags, and on disk.
pub(crate) fn key(of: &impl Serialize) -> String {
    serde_json::to_string(&(KEYS, of)).expect("plain data, with names as keys")
}

fn shared<S: Serializer>(rendering: &Arc<Rendering>, to: S) -> Result<S::Ok, S::Error> {
    rendering.as_ref().serialize(to)
}

/// A part of a frame, and its size in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct FrameCrop {
    /// Left, top, width, height.
    pub(crate) part: [u32; 4],
    pub(crate) to: (u32, u32),
}

/// The encoding of an image.
///
/// The compiler does not find these uses of a new one: [`Self::of`], the media types in
/// web/dicomweb/render.rs, the decoder of orders in work.rs, the formats in iiif/info.rs, and the
/// messages and documents that list "jpg, png or webp".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum ImageFormat {
    Jpeg,
    Png,
    WebP,
}

impl ImageFormat {
    /// By file extension.
    pub(crate) fn of(extension: &str) -> Option<Self> {
        match extension {
            "jpg" | "jpeg" => Some(Self::Jpeg),
            "png" => Some(Self::Png),
            "webp" => Some(Self::WebP),
            _ => None,
        }
    }

    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::WebP => "webp",
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::WebP => "image/webp",
        }
    }
}
