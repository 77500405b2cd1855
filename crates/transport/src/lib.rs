//! The queue pair, kernel TCP, and every system call.
