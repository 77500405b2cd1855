//! The pipeline of `flow-peers` (see [`seekwire_lab::pipeline`]) over PUSH and PULL, as in the
//! guide of libzmq. Every copy is a thread with sockets of its own. Source and second step are one
//! process, first step and sink another, so that every block passes from process to process three
//! times.
//!
//! The limit of a stream is divided among its connections as high-water marks, for either end:
//! libzmq counts messages.

use std::io::{BufRead, stdin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use seekwire_lab::messaging;
use seekwire_lab::pipeline::{
    BlockSource, PipelineOrder, PipelineReport, Resident, Sink, StepWork, is_block,
};
use zmq::{Context, Message, Socket, SocketType};

/// How often a thread that waits for a block checks whether any will come.
const LOOK_MS: i32 = 20;

/// State that the threads of this process share.
struct Shared<'c> {
    context: &'c Context,
    order: PipelineOrder,
    report: Mutex<PipelineReport>,
    is_over: AtomicBool,
}

impl Shared<'_> {
    fn socket(&self, kind: SocketType, pipes: usize) -> Result<Socket> {
        let socket = self.context.socket(kind)?;
        let mark = (self.order.room() / pipes).max(1) as i32;
        socket.set_sndhwm(mark)?;
        socket.set_rcvhwm(mark)?;
        socket.set_linger(0)?;
        Ok(socket)
    }

    fn bound(&self, address: &str, name: &str, pipes: usize) -> Result<(Socket, String)> {
        let socket = self.socket(zmq::PUSH, pipes)?;
        // The system chooses ports; we choose other names.
        let own = if address.starts_with("tcp:") {
            address.to_owned()
        } else {
            format!("{address}-{name}")
        };
        let address = crate::frames::bind(&socket, &own)?;
        Ok((socket, address))
    }

    fn connected(&self, to: &[String], pipes: usize) -> Result<Socket> {
        let socket = self.socket(zmq::PULL, pipes)?;
        socket.set_rcvtimeo(LOOK_MS)?;
        for address in to {
            crate::frames::connect(&socket, address)?;
        }
        Ok(socket)
    }

    fn add(&self, report: PipelineReport) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).join(report);
    }

    /// The next message; `None` once the pipeline has finished.
    fn next(&self, from: &Socket) -> Result<Option<Message>> {
        loop {
            match from.recv_msg(0) {
                Ok(message) => return Ok(Some(message)),
                Err(zmq::Error::EAGAIN) if self.is_over.load(Ordering::Acquire) => return Ok(None),
                Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn step(&self, mut work: StepWork, number: usize, from: &Socket, to: &Socket) -> Result<()> {
        while let Some(message) = self.next(from)? {
            if is_block(&message, &self.order) {
                work.work(&message);
            }
            to.send(message, 0)?;
        }
        self.add(work.report(number));
        Ok(())
    }
}

/// One of the two processes: `place`, where it listens; then its rank and the numbers of the order.
pub(crate) fn run(address: &str, arguments: &[String]) -> Result<()> {
    let (rank, order) = arguments.split_first().context("say which rank")?;
    let order = PipelineOrder::parse(order)?;
    let context = Context::new();
    let shared = Shared {
        context: &context,
        order,
        report: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    match rank.as_str() {
        "0" => source_and_second(&shared, address)?,
        _ => first_and_sink(&shared, address)?,
    }
    let mut report =
        std::mem::take(&mut *shared.report.lock().unwrap_or_else(PoisonError::into_inner));
    report.resident = report.resident.map(Resident::end);
    messaging::report(&report)
}

/// Prints where this process listens, and reads where both do.
fn exchange_addresses(addresses: &[String]) -> Result<[Vec<String>; 2]> {
    messaging::ready(&addresses.join(" "))?;
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    let all: [String; 2] = serde_json::from_str(&line).context("not the addresses of both")?;
    Ok(all.map(|addresses| addresses.split(' ').map(str::to_owned).collect()))
}

fn source_and_second(shared: &Shared<'_>, address: &str) -> Result<()> {
    let PipelineOrder { copies, .. } = shared.order;
    let (source, source_at) = shared.bound(address, "source", copies)?;
    let mut addresses = vec![source_at];
    let mut to = Vec::new();
    for copy in 0..copies {
        let (socket, address) = shared.bound(address, &format!("second{copy}"), copies)?;
        to.push(socket);
        addresses.push(address);
    }
    let [_, theirs] = exchange_addresses(&addresses)?;
    let pipes = copies * copies;
    let from = (0..copies).map(|_| shared.connected(&theirs, pipes)).collect::<Result<Vec<_>>>()?;
    shared.add(PipelineReport { resident: Resident::begin(), ..PipelineReport::default() });
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (from, to) in from.into_iter().zip(to) {
            let work = StepWork::second(shared.order);
            threads.push(scope.spawn(move || shared.step(work, 1, &from, &to)));
        }
        let mut making = BlockSource::new(shared.order);
        while let Some(block) = making.next() {
            source.send(Message::from(block), 0)?;
        }
        // The number of blocks takes the way of the blocks, and is none of them.
        source.send(&making.count().to_ne_bytes()[..], 0)?;
        // The other process ends this one by ending its input.
        stdin().lock().read_line(&mut String::new())?;
        shared.is_over.store(true, Ordering::Release);
        all(threads)
    })
}

fn first_and_sink(shared: &Shared<'_>, address: &str) -> Result<()> {
    let PipelineOrder { copies, .. } = shared.order;
    let pipes = copies * copies;
    let mut addresses = Vec::new();
    let mut to = Vec::new();
    for copy in 0..copies {
        let (socket, address) = shared.bound(address, &format!("first{copy}"), pipes)?;
        to.push(socket);
        addresses.push(address);
    }
    let [theirs, _] = exchange_addresses(&addresses)?;
    let (source, second) = theirs.split_first().context("there is no source")?;
    let source = std::slice::from_ref(source);
    let from = (0..copies).map(|_| shared.connected(source, copies)).collect::<Result<Vec<_>>>()?;
    let into_sink = shared.connected(second, copies)?;
    shared.add(PipelineReport { resident: Resident::begin(), ..PipelineReport::default() });
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (copy, (from, to)) in from.into_iter().zip(to).enumerate() {
            let work = StepWork::new(shared.order, copy == 0);
            threads.push(scope.spawn(move || shared.step(work, 0, &from, &to)));
        }
        let mut sink = Sink::new(shared.order);
        let mut total = None;
        while total.is_none_or(|total| sink.count() < total) {
            let Some(message) = shared.next(&into_sink)? else { break };
            if is_block(&message, &shared.order) {
                sink.take(&message);
            } else {
                let bytes = message[..].try_into().context("neither a block nor their number")?;
                total = Some(u64::from_ne_bytes(bytes));
            }
        }
        shared.add(sink.report());
        shared.is_over.store(true, Ordering::Release);
        all(threads)
    })
}

fn all(threads: Vec<thread::ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    ensure!(!threads.is_empty(), "there are no copies");
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a copy panicked"))??;
    }
    Ok(())
}
