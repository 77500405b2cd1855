//! Images that can be requested, and their formats.

use std::sync::Arc;

use seekwire_slides_image::{Layer, Rendering};

use crate::render::colour::Colours;
use crate::render::plan::Part;
use crate::render::turn::{Quality, Turn};

/// The content of an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Shown {
    /// A part of a slide without channels, in the default plane.
    Part(Part),
    /// A part of a slide in another rendering, or of a slide with channels.
    Of(Part, Arc<Rendering>),
    /// An associated image.
    Associated(String),
}

impl Shown {
    /// A part of a slide, with a rendering if the slide has several.
    pub(crate) fn part(part: Part, rendering: Option<&Arc<Rendering>>) -> Self {
        match rendering {
            Some(rendering) => Self::Of(part, Arc::clone(rendering)),
            None => Self::Part(part),
        }
    }

    /// The part of the slide, and its rendering.
    pub(crate) fn parts(&self) -> Option<(Part, Option<&Arc<Rendering>>)> {
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
pub(crate) struct Look {
    pub(crate) colours: Colours,
    /// `None` for the colours of the pixels in the default plane.
    pub(crate) rendering: Option<Arc<Rendering>>,
}

/// A requested image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Picture {
    pub(crate) shown: Shown,
    /// Size before turning. An associated image is not enlarged.
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) turn: Turn,
    pub(crate) quality: Quality,
    pub(crate) kind: Kind,
    pub(crate) colours: Colours,
}

/// A part of a frame, and its size in the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Left, top, width, height.
    pub(crate) part: [u32; 4],
    pub(crate) to: (u32, u32),
}

/// The encoding of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Jpeg,
    Png,
    WebP,
}

impl Kind {
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
