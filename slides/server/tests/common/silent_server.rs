//! A web server for slides that can be made to stop answering.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use super::Service;

/// A web server with one file at every address, which answers until it is silenced or asked to
/// delay answers.
pub(crate) struct Silent {
    pub(crate) address: SocketAddr,
    pub(crate) is_silent: Arc<AtomicBool>,
    /// Signals a request that is not answered, or not yet.
    pub(crate) asked: Receiver<()>,
    held: Arc<Mutex<Vec<TcpStream>>>,
    gate: Arc<Gate>,
}

/// Answers pass through it.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opens.notify_all();
    }

    fn pass(&self, tell: &Sender<()>) {
        let mut is_closed = self.is_closed.lock().unwrap();
        if *is_closed {
            let _ = tell.send(());
        }
        while *is_closed {
            is_closed = self.opens.wait(is_closed).unwrap();
        }
    }
}

impl Silent {
    pub(crate) fn start(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, asked) = channel();
        let (is_silent, held) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (silent, holds, bytes) = (Arc::clone(&is_silent), Arc::clone(&held), Arc::new(bytes));
        let gate = Arc::<Gate>::default();
        let closed = Arc::clone(&gate);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (silent, holds) = (Arc::clone(&silent), Arc::clone(&holds));
                let (tell, bytes, gate) = (tell.clone(), Arc::clone(&bytes), Arc::clone(&closed));
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(&stream, &bytes, &silent, &holds, &gate, &tell));
            }
        });
        Self { address, is_silent, asked, held, gate }
    }

    /// Delays answers until they are released.
    pub(crate) fn wait(&self) {
        self.gate.set(true);
    }

    pub(crate) fn go_on(&self) {
        self.gate.set(false);
    }

    /// Closes all delayed connections, and every new one.
    pub(crate) fn end(&self) {
        for stream in self.held.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn serve(
    stream: &TcpStream,
    bytes: &[u8],
    is_silent: &AtomicBool,
    held: &Mutex<Vec<TcpStream>>,
    gate: &Gate,
    tell: &Sender<()>,
) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    loop {
        let mut range = None;
        loop {
            let Some(line) = lines.next() else { return };
            let line = line.to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("range: bytes=") {
                range = text.split_once('-').map(|(from, to)| (from.to_owned(), to.to_owned()));
            }
        }
        if is_silent.load(Ordering::SeqCst) {
            held.lock().unwrap().push(stream.try_clone().unwrap());
            let _ = tell.send(());
            return;
        }
        gate.pass(tell);
        let Some((from, to)) = range else { return };
        let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
        let to = to.min(bytes.len() - 1);
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\
             Content-Range: bytes {from}-{to}/{}\r\n\r\n",
            to - from + 1,
            bytes.len()
        );
        let whole = [head.as_bytes(), &bytes[from..=to]].concat();
        if (&mut &*stream).write_all(&whole).is_err() {
            return;
        }
    }
}

/// Sends a request, and does not wait for the answer.
pub(crate) fn ask(service: &Service, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(service.address).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    client
}

pub(crate) fn until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}
