//! Streams and mailboxes as a program uses them, both ends in one process.

mod content;

mod mailbox;
mod mailbox_ends;
mod mailbox_model;
mod seek;
mod stream;
mod stream_seek;
