//! Why a call fails.

/// Errors of OpenSlide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is missing or cannot be used. Contains the loader's message.
    #[error("OpenSlide cannot be loaded: {0}")]
    Missing(String),
    /// The file has an unknown format, or cannot be read.
    #[error("OpenSlide does not know the format")]
    Unknown,
    /// The file is a TIFF that is not in a scanner's format.
    #[error("a TIFF that is not in a scanner's format, for which OpenSlide is not used")]
    Generic,
    /// OpenSlide's message about a faulty file.
    #[error("OpenSlide: {0}")]
    Broken(String),
    /// The requested item does not exist, or is larger than allowed.
    #[error("{0}")]
    Argument(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
