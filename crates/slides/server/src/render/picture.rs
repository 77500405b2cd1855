//! What can be asked for: images, and how they are written.

use crate::render::colour::Colours;
use crate::render::plan::Part;
use crate::render::turn::{Quality, Turn};

/// What an image shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Shown {
    /// A part of the slide.
    Part(Part),
    /// An associated image.
    Associated(String),
}

/// An image that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Picture {
    pub(crate) shown: Shown,
    /// Before it is turned. An associated image is not made larger.
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) turn: Turn,
    pub(crate) quality: Quality,
    pub(crate) kind: Kind,
    pub(crate) colours: Colours,
}

/// A part of a frame, and the size that it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Left, top, width, height.
    pub(crate) part: [u32; 4],
    pub(crate) to: (u32, u32),
}

/// How an image is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Jpeg,
    Png,
    WebP,
}

impl Kind {
    /// By the end of a name.
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
