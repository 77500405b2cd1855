//! What can be wrong with a slide. Each error names the file.

/// Why a slide, or a part of it, cannot be had. An error concerns one file; others are as before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The server did not give the bytes that were asked for.
    #[error("{name}: {what}")]
    Http {
        /// The address.
        name: String,
        /// What it answered.
        what: String,
    },
    /// The file is another one than when it was opened.
    #[error("{name}: the file has changed since it was opened")]
    Changed {
        /// The file, or its address.
        name: String,
    },
    /// The file contradicts its format, or is cut.
    #[error("{name}: at byte {at}: {what}")]
    Malformed {
        /// The file.
        name: String,
        /// Where.
        at: u64,
        /// What is wrong there.
        what: String,
    },
    /// A format, or a part of one, that is not read.
    #[error("{name}: not supported: {what}")]
    Unsupported {
        /// The file.
        name: String,
        /// What is not supported.
        what: String,
    },
    /// More than [`Limits`](crate::Limits) allows.
    #[error("{name}: beyond the limit: {what}")]
    Limit {
        /// The file.
        name: String,
        /// What is too large.
        what: String,
    },
    /// Tiles of more pixels than [`Limits::tile_pixels`](crate::Limits::tile_pixels) allows.
    #[error("{name}: beyond the limit: {what} pixels, of {most} in all at most")]
    LargeTiles {
        /// The file.
        name: String,
        /// Of which size they are.
        what: String,
        /// Pixels of the largest one that is allowed.
        most: u64,
    },
    /// What OpenSlide says is wrong with a file.
    #[error("{name}: {what}")]
    OpenSlide {
        /// The file.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A tile whose compressed bytes cannot be decoded.
    #[error("{tile}: {what}")]
    Tile {
        /// File, level and place of the tile.
        tile: String,
        /// What is wrong with it.
        what: String,
    },
    /// What was asked for does not exist or makes no sense.
    #[error("{0}")]
    Argument(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
