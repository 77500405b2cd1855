//! The socket calls of an unmodified program.
