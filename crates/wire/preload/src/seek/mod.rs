//! Receiving out of the middle of a stream (Douglas and Pai, "Seekable sockets"), as
//! include/seekwire.h declares it.
//!
//! ```text
//!   receive    seek_recv, seek_recvmsg     lend       seek_recv_borrow, seek_recv_return
//!   open       seek_socket                 extent     seek_avail
//!   adopt      sockets that the library did not track before
//! ```

mod adopt;
mod call;
mod extent;
mod lend;
mod open;
mod receive;
mod request;
