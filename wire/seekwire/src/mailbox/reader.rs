//! Taking messages out of the stream: large ones straight into the receiver's buffer, small ones
//! from a view.

use std::io::IoSliceMut;

use seekwire_protocol::message::HEADER;
use seekwire_protocol::span::Span;
use seekwire_transport::seek::cost::{self, Average};

use super::consumed::Consumed;
use super::error::{End, Failed, PeerMisbehaved};
use super::incoming_message::IncomingMessage;
use super::view::View;
use crate::SeekError;
use crate::seek::{At, SeekOptions, SeekSocket};

/// Consumed bytes are taken out of the stream when there are this many.
const FLUSH: u64 = 64 << 10;
/// Maximum number of bytes of a large message to wait for at a time.
const PIECE: u64 = 32 << 10;

/// The bytes to wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) at: u64,
    /// Minimum number of bytes.
    pub(super) least: u64,
    /// Preferred number of bytes: more bytes mean fewer wake-ups.
    pub(super) len: u64,
    /// The bytes may have arrived, but there is no memory in which to look at them.
    pub(super) starved: bool,
}

impl Wait {
    pub(super) fn all(at: u64, len: u64) -> Self {
        Self { at, least: len, len, starved: false }
    }

    /// For the rest of a large message.
    pub(super) fn rest(of: Span) -> Self {
        Self { least: 1, ..Self::all(of.start, of.len().min(PIECE)) }
    }
}

/// The progress of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill {
    /// The receiver has the whole message.
    Done,
    /// The buffer is full, and there are more bytes.
    Room,
    /// The next bytes have not arrived.
    Wait(Wait),
    /// The stream cannot have more holes.
    Crowded,
}

/// The result of taking the consumed bytes out of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flushed {
    /// At least one span was taken out.
    pub(super) any: bool,
    /// No spans are left.
    pub(super) all: bool,
}

#[derive(Debug)]
pub(super) struct MessageReader {
    /// A copy of bytes where new messages are found.
    pub(super) coming: View,
    /// A copy of bytes where messages were left in the stream.
    left: View,
    /// Average size of the messages, headers included.
    sizes: Average,
    consumed: Consumed,
    /// Number of consumed bytes at which they are taken out.
    flush_at: u64,
}

fn cut_off(missing: u64) -> End {
    End::Misbehaved(PeerMisbehaved::CutOff { missing })
}

impl MessageReader {
    pub(super) fn new() -> Self {
        Self {
            coming: View::new(),
            left: View::new(),
            sizes: Average::default(),
            consumed: Consumed::default(),
            flush_at: FLUSH,
        }
    }

    /// Looks at the bytes from `at` on, at least `need` of them: [`View::refill`].
    pub(super) fn look(
        &mut self,
        stream: &impl SeekSocket,
        at: u64,
        need: usize,
    ) -> Result<usize, SeekError> {
        self.coming.refill(stream, at, need, self.sizes.is_below(cost::switch()))
    }

    /// A message of `total` bytes has been found in the view of new messages.
    pub(super) fn note_size(&mut self, total: usize) {
        self.coming.used();
        self.sizes.note(total);
    }

    /// Moves the bytes of a message that have arrived into the receiver's buffer; `into` may be
    /// just a first part of it. All or nothing unless `partial`.
    pub(super) fn fill(
        &mut self,
        stream: &impl SeekSocket,
        incoming: &mut IncomingMessage,
        into: &mut [u8],
        partial: bool,
    ) -> Result<Fill, End> {
        if !incoming.owned.is_empty() {
            let Some(first) = into.get_mut(..incoming.owned.len()) else { return Ok(Fill::Room) };
            first.copy_from_slice(&incoming.owned);
            incoming.done = incoming.owned.len();
            incoming.owned = Vec::new();
        }
        if incoming.is_untouched() && incoming.is_small {
            return self.copy(stream, incoming, &mut into[..incoming.len]);
        }
        while !incoming.span().is_empty() {
            if incoming.done == into.len() && incoming.header == 0 {
                return Ok(Fill::Room);
            }
            match self.take(stream, incoming, into, partial) {
                Ok(0) => return Err(cut_off(incoming.span().len())),
                Ok(_) if partial || incoming.span().is_empty() => {}
                Ok(_) => return Err(cut_off(incoming.span().len())),
                Err(SeekError::WouldBlock) => {
                    return Ok(Fill::Wait(Wait::rest(incoming.span())));
                }
                Err(SeekError::NoRoom) => return Ok(Fill::Crowded),
                Err(error) => return Err(End::Failed(Failed::from(&error))),
            }
        }
        Ok(Fill::Done)
    }

    /// Copies a small message from a view.
    fn copy(
        &mut self,
        stream: &impl SeekSocket,
        incoming: &mut IncomingMessage,
        into: &mut [u8],
    ) -> Result<Fill, End> {
        let Span { start: at, end } = incoming.span();
        let total = HEADER + incoming.len;
        let bytes = match self.coming.get(at, total) {
            Some(bytes) => bytes,
            None => {
                if self.left.get(at, total).is_none() {
                    match self.left.refill(stream, at, total, self.sizes.is_below(cost::switch())) {
                        Ok(n) if n >= total => {}
                        Ok(n) => return Err(cut_off((total - n) as u64)),
                        Err(error) => return Err(End::Failed(Failed::from(&error))),
                    }
                }
                self.left.used();
                self.left.get(at, total).unwrap_or_default()
            }
        };
        into.copy_from_slice(&bytes[HEADER..]);
        incoming.took(total);
        self.mark_consumed(stream, Span { start: at, end });
        Ok(Fill::Done)
    }

    /// Takes bytes of a message, together with its header and the consumed bytes before it, so that
    /// they leave a single hole.
    fn take(
        &mut self,
        stream: &impl SeekSocket,
        incoming: &mut IncomingMessage,
        into: &mut [u8],
        partial: bool,
    ) -> Result<usize, SeekError> {
        let before = self.consumed.before(incoming.at);
        let skip = before.len() + incoming.header as u64;
        let body = &mut into[incoming.done..];
        let is_wanted = !body.is_empty();
        let n = stream.try_seek(
            At::Position(before.start),
            &mut [IoSliceMut::new(body)],
            SeekOptions::TAKE.partial(partial).skip(skip),
        )?;
        if n == 0 && is_wanted {
            return Ok(0);
        }
        self.consumed.taken(before.start);
        let taken = incoming.header + n;
        incoming.took(taken);
        Ok(taken)
    }

    /// Moves a message that has arrived into memory. Returns `false` if it has not arrived, or if
    /// there would be one hole more.
    pub(super) fn move_out(
        &mut self,
        stream: &impl SeekSocket,
        incoming: &mut IncomingMessage,
    ) -> bool {
        let mut body = vec![0; incoming.len];
        let taken = self.take(stream, incoming, &mut body, false);
        // A message that is cut off by the end of the stream is taken in part.
        incoming.give_back(&body);
        taken.is_ok() && incoming.span().is_empty()
    }

    /// Copies a small message that has just been found into memory of its own.
    pub(super) fn own(&mut self, stream: &impl SeekSocket, incoming: &mut IncomingMessage) {
        let span = incoming.span();
        if let Some(bytes) = self.coming.get(span.start, span.len() as usize) {
            let body = bytes[HEADER..].to_vec();
            incoming.moved_to(body);
            self.mark_consumed(stream, span);
        }
    }

    /// Marks bytes of the stream as consumed.
    pub(super) fn mark_consumed(&mut self, stream: &impl SeekSocket, span: Span) {
        self.consumed.add(span);
        if self.consumed.bytes() >= self.flush_at {
            self.flush(stream);
            // Bytes that cannot be taken out now stay consumed. Other calls report errors of the
            // stream.
            self.flush_at = self.consumed.bytes() + FLUSH;
        }
    }

    fn take_out(&mut self, stream: &impl SeekSocket, span: Span) -> Result<(), SeekError> {
        stream.try_seek(At::Position(span.start), &mut [], SeekOptions::TAKE.skip(span.len()))?;
        self.consumed.taken(span.start);
        Ok(())
    }

    /// Takes all consumed bytes out.
    pub(super) fn flush(&mut self, stream: &impl SeekSocket) -> Flushed {
        let mut flushed = Flushed { any: false, all: true };
        for span in self.consumed.all() {
            if self.take_out(stream, span).is_err() {
                return Flushed { all: false, ..flushed };
            }
            flushed.any = true;
        }
        flushed
    }
}
