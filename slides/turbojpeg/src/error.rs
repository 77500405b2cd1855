//! Why a call fails.

/// Errors of libjpeg-turbo.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library is missing or cannot be used. Contains the loader's message.
    #[error("libjpeg-turbo cannot be loaded: {0}")]
    Missing(String),
    /// The library's message about a faulty image.
    #[error("{0}")]
    Broken(String),
    /// An invalid size.
    #[error("{0}")]
    Argument(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
