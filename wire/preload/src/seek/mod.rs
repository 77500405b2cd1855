//! Receiving out of the middle of a stream (Douglas and Pai, "Seekable sockets"), as declared in
//! wire/include/seekwire.h.
//!
//! ```text
//!   receive    seek_recv, seekwire_recvmsg
//!   lend       seekwire_recv_borrow, seekwire_recv_return
//!   extent     seekwire_avail
//!   open       seekwire_socket
//!   adopt      sockets that the library did not track before
//! ```

mod adopt;
mod call;
mod extent;
mod lend;
mod open;
mod receive;
mod request;
