//! Errors of reading a slide. Each names the file.

/// Why a slide or a part of it is unavailable. An error concerns one file; others are not affected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The server did not return the requested bytes.
    #[error("{name}: {what}")]
    Http {
        /// The address.
        name: String,
        /// The server's answer, or why it is unusable.
        what: String,
    },
    /// The file is not the one that was opened, or has changed since.
    #[error("{name}: the file has changed since it was opened")]
    Changed {
        /// The file, or its address.
        name: String,
    },
    /// The file contradicts its format or is truncated.
    #[error("{name}: at byte {at}: {what}")]
    Malformed {
        /// The file.
        name: String,
        /// Where.
        at: u64,
        /// Description of the fault.
        what: String,
    },
    /// A format, or a part of one, that is not supported.
    #[error("{name}: not supported: {what}")]
    Unsupported {
        /// The file.
        name: String,
        /// The unsupported feature.
        what: String,
    },
    /// More than [`Limits`](crate::Limits) allows.
    #[error("{name}: beyond the limit: {what}")]
    Limit {
        /// The file.
        name: String,
        /// The quantity that exceeds its limit.
        what: String,
    },
    /// Tiles of more pixels than [`Limits::tile_pixels`](crate::Limits::tile_pixels) allows.
    #[error("{name}: beyond the limit: {what} pixels, of {most} in all at most")]
    LargeTiles {
        /// The file.
        name: String,
        /// Size of the tiles.
        what: String,
        /// Pixels of the largest tile allowed.
        most: u64,
    },
    /// OpenSlide reports an error in a file.
    #[error("{name}: {what}")]
    OpenSlide {
        /// The file.
        name: String,
        /// OpenSlide's message.
        what: String,
    },
    /// A tile whose compressed bytes cannot be decoded.
    #[error("{tile}: {what}")]
    Tile {
        /// File, level and position of the tile.
        tile: String,
        /// Why it cannot be decoded.
        what: String,
    },
    /// An argument is invalid, or names something that does not exist.
    #[error("{0}")]
    Argument(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
