//! Reads the frames of a link.

use bytes::Bytes;

use super::link_error::LinkError;
use super::message::{Frame, HEAD, Message, lengths};
use super::protocol_error::ProtocolError;

/// Bytes to read at once.
const BUFFER: usize = 64 << 10;

/// Payloads from this size on are read in place; smaller ones are copied.
const IN_PLACE: usize = 16 << 10;

/// Assembles frames from the bytes that are read.
pub(super) struct FrameReader<R> {
    /// Reads at least one byte.
    read: R,
    /// Bytes that were read and belong to an incomplete frame, from `start` to `end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: FnMut(&mut [u8]) -> Result<usize, LinkError>> FrameReader<R> {
    pub(super) fn new(read: R) -> Self {
        Self { read, buffer: vec![0; BUFFER], start: 0, end: 0 }
    }

    /// Waits for the next frame. No payload is longer than `largest`.
    pub(super) fn frame(&mut self, largest: usize) -> Result<Frame, LinkError> {
        self.fill(HEAD)?;
        let mut head = [0; HEAD];
        head.copy_from_slice(self.take(HEAD));
        let (message, payload) = lengths(head, largest)?;
        self.fill(message)?;
        let message = Message::read(self.take(message))?;
        if !message.has_payload() && payload > 0 {
            return Err(ProtocolError::Payload.into());
        }
        Ok(Frame { message, payload: self.payload(payload)? })
    }

    /// Whether a whole frame is there.
    pub(super) fn has_frame(&self) -> bool {
        let there = &self.buffer[self.start..self.end];
        let Some(head) = there.first_chunk::<HEAD>() else { return false };
        lengths(*head, usize::MAX)
            .is_ok_and(|(message, payload)| message.saturating_add(payload) <= there.len() - HEAD)
    }

    /// Reads until this many bytes are there.
    fn fill(&mut self, bytes: usize) -> Result<(), LinkError> {
        while self.end - self.start < bytes {
            if self.start + bytes > self.buffer.len() || self.start == self.end {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                self.buffer.resize(bytes.max(BUFFER), 0);
                self.buffer.shrink_to(bytes.max(BUFFER));
            }
            self.end += (self.read)(&mut self.buffer[self.end..])?;
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> &[u8] {
        let start = self.start;
        self.start += bytes;
        &self.buffer[start..self.start]
    }

    /// Reads the payload into memory of its own, since it stays as long as its block.
    fn payload(&mut self, bytes: usize) -> Result<Bytes, LinkError> {
        if bytes < IN_PLACE {
            self.fill(bytes)?;
            return Ok(Bytes::copy_from_slice(self.take(bytes)));
        }
        let mut there = (self.end - self.start).min(bytes);
        let mut payload = vec![0; bytes];
        payload[..there].copy_from_slice(self.take(there));
        while there < bytes {
            there += (self.read)(&mut payload[there..])?;
        }
        Ok(payload.into())
    }
}
