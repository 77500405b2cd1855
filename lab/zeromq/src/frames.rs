//! Messages of several frames, and the sockets of all programs.

use anyhow::{Context as _, Result, anyhow};
use zmq::{Message, SNDMORE, Socket};

/// Listens on `address`, and returns the actual address: the system chooses ports.
pub(crate) fn bind(socket: &Socket, address: &str) -> Result<String> {
    socket.bind(address).with_context(|| format!("cannot listen on {address}"))?;
    socket
        .get_last_endpoint()?
        .map_err(|_| anyhow!("libzmq named its address in no known encoding"))
}

/// Connects to an address that [`bind`] returned elsewhere.
pub(crate) fn connect(socket: &Socket, address: &str) -> Result<()> {
    socket.connect(address).with_context(|| format!("cannot connect to {address}"))
}

/// All frames of the next message.
pub(crate) fn receive(socket: &Socket) -> Result<Vec<Message>> {
    let mut frames = vec![socket.recv_msg(0)?];
    while frames.last().is_some_and(Message::get_more) {
        frames.push(socket.recv_msg(0)?);
    }
    Ok(frames)
}

/// The same, if it has exactly this many frames.
pub(crate) fn receive_exactly<const N: usize>(socket: &Socket) -> Result<[Message; N]> {
    let frames = receive(socket)?;
    frames
        .try_into()
        .map_err(|frames: Vec<_>| anyhow!("{} frames arrived instead of {N}", frames.len()))
}

/// Sends `frames` as one message.
pub(crate) fn send<F: Into<Message>>(
    socket: &Socket,
    frames: impl IntoIterator<Item = F>,
) -> Result<()> {
    let mut frames = frames.into_iter().peekable();
    while let Some(frame) = frames.next() {
        socket.send(frame, if frames.peek().is_some() { SNDMORE } else { 0 })?;
    }
    Ok(())
}
