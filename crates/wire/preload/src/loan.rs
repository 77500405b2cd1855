//! Keeps track of what an application has borrowed.

use seekwire_endpoint::LoanPiece;

/// A piece on loan to the application, which knows it as an `iovec`.
pub(crate) struct IovecLoan {
    pub(crate) address: usize,
    pub(crate) len: usize,
    /// Where the bytes are. A copy lives as long as this.
    pub(crate) piece: LoanPiece,
}
