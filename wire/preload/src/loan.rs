//! Keeps track of the memory that an application has borrowed.

use seekwire_endpoint::LoanPiece;

/// A piece on loan to the application, which knows it as an `iovec`.
pub(crate) struct IovecLoan {
    pub(crate) address: usize,
    pub(crate) len: usize,
    /// The location of the bytes. A copy lives as long as this.
    pub(crate) piece: LoanPiece,
}
