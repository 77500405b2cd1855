//! Streams for programs that run on [tokio](https://docs.rs/tokio), with the cargo feature `tokio`.
//!
//! ```text
//!   stream, listener   AsyncRead and AsyncWrite, by TCP or shared memory
//!   seek_stream        receiving out of the middle of an ordinary TCP stream
//!   wakers             the tasks that wait, and what wakes them
//! ```
//!
//! They relate to the streams of this crate as tokio's `TcpStream` relates to std's: no method
//! blocks, a task that waits costs nothing, and no thread is started. Create them within a runtime
//! that has I/O and time enabled, by [`enable_all`](::tokio::runtime::Builder::enable_all) or
//! `#[tokio::main]`. Elsewhere they panic, as tokio's do. Any number of tasks may share one stream:
//! one reads, one writes, and any number seek. tokio's [`split`] makes two halves of a stream.
//!
//! [`split`]: https://docs.rs/tokio/latest/tokio/io/fn.split.html
//!
//! A read, write or seek that is dropped before it completes has moved no byte.
//!
//! ```
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let listener = seekwire::tokio::Listener::bind("127.0.0.1:0").await?;
//! let mut client = seekwire::tokio::Stream::connect(listener.local_addr()?).await?;
//! let (mut server, _) = listener.accept().await?;
//! client.write_all(b"ping").await?;
//! let mut question = [0; 4];
//! server.read_exact(&mut question).await?;
//! assert_eq!(&question, b"ping");
//! # Ok(())
//! # }
//! ```

mod listener;
mod seek_stream;
mod stream;
mod wakers;

pub use listener::Listener;
pub use seek_stream::SeekStream;
pub use stream::Stream;
