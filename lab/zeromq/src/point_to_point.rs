//! Request and reply, push and pull between two ends, with libzmq's default options, as in its perf
//! tools (<https://github.com/zeromq/libzmq/tree/v4.3.4/perf>).

use anyhow::{Result, anyhow, ensure};
use seekwire_lab::messaging::{self, Ask, Drive, MessagePattern, MessagingTest, TestReading};
use zmq::{Message, Socket};

use crate::frames::{bind, connect};

/// A socket that replies.
struct Rep(Socket, Message);
/// A socket that sends requests, and its next request.
struct Req(Socket, Message);
/// A socket that receives.
struct Pull(Socket, Message);
/// A socket that sends.
struct Push(Socket);

impl messaging::Replier for Rep {
    fn answer(&mut self) -> Result<usize> {
        let Self(socket, message) = self;
        socket.recv(message, 0)?;
        let message = std::mem::replace(message, Message::new());
        let length = message.len();
        socket.send(message, 0)?;
        Ok(length)
    }
}

impl messaging::Requester for Req {
    fn set(&mut self, message: &[u8]) {
        self.1 = Message::from(message);
    }

    fn message(&mut self) -> &mut [u8] {
        &mut self.1
    }

    fn exchange(&mut self) -> Result<()> {
        let Self(socket, message) = self;
        socket.send(std::mem::replace(message, Message::new()), 0)?;
        Ok(socket.recv(message, 0)?)
    }
}

impl messaging::Puller for Pull {
    fn pull(&mut self) -> Result<&[u8]> {
        let Self(socket, message) = self;
        socket.recv(message, 0)?;
        Ok(message)
    }
}

impl messaging::Pusher for Push {
    fn push(&mut self, message: &[u8]) -> Result<()> {
        Ok(self.0.send(message, 0)?)
    }
}

/// The end that listens on `address`.
pub(crate) fn serve(address: &str) -> Result<()> {
    let context = zmq::Context::new();
    let control = context.socket(zmq::REP)?;
    let bound = bind(&control, address)?;
    messaging::ready(&bound)?;
    serve_on(&context, &control, address)
}

fn serve_on(context: &zmq::Context, control: &Socket, address: &str) -> Result<()> {
    let mut tests = 0;
    loop {
        let Ask::Begin(test) = serde_json::from_slice(&control.recv_bytes(0)?)? else {
            control.send("", 0)?;
            return Ok(());
        };
        tests += 1;
        // The system chooses ports; we choose other names.
        let own = if address.starts_with("tcp:") {
            address.to_owned()
        } else {
            format!("{address}-{tests}")
        };
        let socket = |kind| -> Result<Socket> {
            let socket = context.socket(kind)?;
            let bound = bind(&socket, &own)?;
            control.send(&bound, 0)?;
            Ok(socket)
        };
        let measured = match test.kind {
            MessagePattern::RequestReply => {
                messaging::reply(&mut Rep(socket(zmq::REP)?, Message::new()), test.size)?
            }
            MessagePattern::PushPull => {
                messaging::pull(&mut Pull(socket(zmq::PULL)?, Message::new()), test.size)?
            }
        };
        let finish: Ask = serde_json::from_slice(&control.recv_bytes(0)?)?;
        ensure!(finish == Ask::Finish, "{finish:?} arrived instead of the end");
        control.send(&serde_json::to_vec(&measured)?, 0)?;
    }
}

/// The end that connects and reports.
pub(crate) fn drive(order: &str) -> Result<()> {
    let Drive { address, tests } = messaging::parse(order)?;
    drive_in(&zmq::Context::new(), &address, &tests)
}

/// Both ends, in two threads.
pub(crate) fn alone(order: &str) -> Result<()> {
    let Drive { address, tests } = messaging::parse(order)?;
    let context = zmq::Context::new();
    let control = context.socket(zmq::REP)?;
    bind(&control, &address)?;
    let server = std::thread::spawn({
        let (context, address) = (context.clone(), address.clone());
        move || serve_on(&context, &control, &address)
    });
    // If this end fails the process ends, and the other end with it.
    drive_in(&context, &address, &tests)?;
    server.join().map_err(|_| anyhow!("the other end panicked"))?
}

fn drive_in(context: &zmq::Context, address: &str, tests: &[MessagingTest]) -> Result<()> {
    let control = context.socket(zmq::REQ)?;
    connect(&control, address)?;
    let ask = |ask: Ask| -> Result<Vec<u8>> {
        control.send(serde_json::to_vec(&ask)?, 0)?;
        Ok(control.recv_bytes(0)?)
    };
    for &test in tests {
        let data = String::from_utf8(ask(Ask::Begin(test))?)?;
        let socket = |kind| -> Result<Socket> {
            let socket = context.socket(kind)?;
            connect(&socket, &data)?;
            Ok(socket)
        };
        // The socket is closed when the other end has everything: over ipc:// libzmq 4.3.4
        // sometimes loses what is left, however long it may linger.
        let (mine, theirs) = match test.kind {
            MessagePattern::RequestReply => {
                let mut end = Req(socket(zmq::REQ)?, Message::new());
                (messaging::request(&mut end, test.size, test.time())?, ask(Ask::Finish)?)
            }
            MessagePattern::PushPull => {
                let mut end = Push(socket(zmq::PUSH)?);
                (messaging::push(&mut end, test.size, test.time())?, ask(Ask::Finish)?)
            }
        };
        messaging::report(&TestReading::of(test, mine, serde_json::from_slice(&theirs)?)?)?;
    }
    ask(Ask::Leave)?;
    Ok(())
}
