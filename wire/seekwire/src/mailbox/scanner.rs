//! Finds the headers, one after the other.

use seekwire_protocol::message::{HEADER, HELLO, MessageHeader};
use seekwire_protocol::span::Span;

use super::error::{End, Failed, PeerMisbehaved};
use super::incoming_message::IncomingMessage;
use super::reader::{MessageReader, Wait};
use super::view::SMALL;
use crate::SeekError;
use crate::seek::SeekSocket;

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedHeader {
    pub(super) header: MessageHeader,
    /// All of it has arrived, and it is small enough to be copied from a view.
    is_small: bool,
}

/// Why there is no header.
#[derive(Debug)]
pub(super) enum Stop {
    /// The header has not arrived.
    Wait(Wait),
    /// No header will come.
    End(End),
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

#[derive(Debug)]
pub(super) struct Scanner {
    /// Position of the next header, and its number.
    next: u64,
    sequence: u32,
    greeted: bool,
    /// The last message that was found may not have arrived completely.
    is_open: bool,
    /// Maximum length of a message in bytes.
    most: u32,
}

impl Scanner {
    pub(super) fn new(start: u64, most: u32) -> Self {
        Self { next: start, sequence: 0, greeted: false, is_open: false, most }
    }

    /// Moves past the message that was found. The next header follows it.
    pub(super) fn pass(&mut self, scanned: ScannedHeader) -> IncomingMessage {
        let ScannedHeader { header, is_small } = scanned;
        let incoming = IncomingMessage::new(header, is_small, self.next);
        self.is_open = !is_small;
        self.next += header.total();
        self.sequence = self.sequence.wrapping_add(1);
        incoming
    }

    /// Finds the next header. A small message is not found before all of it has arrived.
    pub(super) fn look(
        &mut self,
        stream: &impl SeekSocket,
        reader: &mut MessageReader,
    ) -> Result<ScannedHeader, Stop> {
        if !self.greeted {
            self.greet(stream, reader)?;
        }
        let mut need = HEADER;
        loop {
            if reader.coming.get(self.next, need).is_none() {
                self.arrived(stream, reader, need)?;
            }
            let bytes =
                reader.coming.get(self.next, HEADER).and_then(|bytes| bytes.try_into().ok());
            let header = MessageHeader::decode(bytes.unwrap_or_default(), self.sequence, self.most)
                .map_err(|error| End::Misbehaved(error.into()))?;
            let total = header.total() as usize;
            let is_small = total <= SMALL;
            if !is_small || total <= need {
                reader.note_size(total);
                return Ok(ScannedHeader { header, is_small });
            }
            need = total;
        }
    }

    fn greet(&mut self, stream: &impl SeekSocket, reader: &mut MessageReader) -> Result<(), Stop> {
        let looked = self.arrived(stream, reader, HELLO.len());
        let seen = reader.coming.from(self.next);
        let seen = &seen[..seen.len().min(HELLO.len())];
        if !HELLO.starts_with(seen) {
            return Err(End::Misbehaved(PeerMisbehaved::Hello { found: seen.to_vec() }).into());
        }
        looked?;
        let hello = Span { start: self.next, end: self.next + HELLO.len() as u64 };
        reader.coming.used();
        reader.mark_consumed(stream, hello);
        self.next = hello.end;
        self.greeted = true;
        Ok(())
    }

    /// Looks at the next bytes, at least `need` of them.
    fn arrived(
        &mut self,
        stream: &impl SeekSocket,
        reader: &mut MessageReader,
        need: usize,
    ) -> Result<(), Stop> {
        let stop = match reader.look(stream, self.next, need) {
            Ok(n) if n >= need => return Ok(()),
            Ok(0) => self.no_more(stream).into(),
            Ok(n) => End::Misbehaved(PeerMisbehaved::CutOff { missing: (need - n) as u64 }).into(),
            Err(SeekError::WouldBlock) => {
                Stop::Wait(self.rest(stream).unwrap_or_else(|| Wait::all(self.next, need as u64)))
            }
            Err(SeekError::NoRoom) => {
                Stop::Wait(Wait { starved: true, ..Wait::all(self.next, need as u64) })
            }
            Err(error) => End::Failed(Failed::from(&error)).into(),
        };
        Err(stop)
    }

    /// The bytes of the last message that are missing: another thread may receive it, and the peer
    /// may send nothing more before that.
    fn rest(&mut self, stream: &impl SeekSocket) -> Option<Wait> {
        if !self.is_open {
            return None;
        }
        let arrived = stream.extent().ok()?.arrived;
        self.is_open = arrived < self.next;
        self.is_open.then(|| Wait::rest(Span { start: arrived, end: self.next }))
    }

    /// The reason why the stream has ended, perhaps in the middle of the last message.
    fn no_more(&self, stream: &impl SeekSocket) -> End {
        match stream.extent() {
            Ok(extent) if extent.arrived < self.next => {
                End::Misbehaved(PeerMisbehaved::CutOff { missing: self.next - extent.arrived })
            }
            Ok(_) => End::Closed,
            Err(error) => End::Failed(Failed::from(&error)),
        }
    }
}
