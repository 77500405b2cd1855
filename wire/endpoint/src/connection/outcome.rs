//! The outcome of one attempt to receive.

use seekwire_protocol::Carrier;

pub(super) enum RecvOutcome {
    /// This many bytes were moved; 0 is the end of the stream, or a zero-length request.
    Moved(usize),
    /// Nothing more for this call, which has received something: anything further is for the next
    /// call.
    Over,
    /// Nothing now; wait for the ring or for the kernel's socket.
    Wait(Carrier),
    /// The connection has begun to seek: receive through the engine.
    Seeking,
}
