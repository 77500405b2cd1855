//! A web server that says nothing holds up what is on it, and nothing else.

mod common;

use common::{Service, aperio, odd};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Threads for slides of one web server.
const EACH: usize = seekwire_slides::READERS / 4;

/// A web server with one file at every address, which answers until it is told to be silent.
struct Silent {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    /// A request to which nothing is said.
    asked: Receiver<()>,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Silent {
    fn start(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, asked) = channel();
        let (is_silent, held) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (silent, holds, bytes) = (Arc::clone(&is_silent), Arc::clone(&held), Arc::new(bytes));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (silent, holds) = (Arc::clone(&silent), Arc::clone(&holds));
                let (tell, bytes) = (tell.clone(), Arc::clone(&bytes));
                let stream = stream.unwrap();
                std::thread::spawn(move || serve(&stream, &bytes, (&silent, &holds), &tell));
            }
        });
        Self { address, is_silent, asked, held }
    }

    /// Hangs up on all that wait, and on who comes from now on.
    fn end(&self) {
        for stream in self.held.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn serve(
    stream: &TcpStream,
    bytes: &[u8],
    (is_silent, held): (&AtomicBool, &Mutex<Vec<TcpStream>>),
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

/// Asks, and does not wait for the answer.
fn ask(service: &Service, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(service.address).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    client
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

#[test]
fn slides_of_a_silent_web_server_keep_no_others_from_being_opened() {
    let silent = Silent::start(Vec::new());
    silent.is_silent.store(true, Ordering::SeqCst);
    let fast = Silent::start(std::fs::read(aperio()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = odd(directory.path());
    let service = Service::start(&file, |settings| {
        let slow = (0..100).map(|number| format!("http://{}/{number}.svs", silent.address));
        settings.locations.extend(slow);
        settings.locations.push(format!("http://{}/fast.svs", fast.address));
    });
    let clients: Vec<_> = (0..100).map(|at| ask(&service, &format!("/{at}.svs.dzi"))).collect();
    (0..EACH).for_each(|_| silent.asked.recv().unwrap());
    until(|| service.count("requests_in_flight") > 100);
    // In files, and on another web server.
    assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
    assert_eq!(service.get("/fast.svs_files/12/5_6.png").status, 200);
    assert_eq!(service.count("remote_reads"), EACH as u64);
    assert_eq!(service.count("slides_opened_total"), EACH as u64 + 2);

    // What waits goes with its client.
    drop(clients);
    until(|| service.count("requests_in_flight") == 1);
    silent.is_silent.store(false, Ordering::SeqCst);
    silent.end();
    until(|| service.count("remote_reads") == 0);
    assert_eq!(service.count("slides_opened_total"), EACH as u64 + 2);
}

#[test]
fn tiles_of_a_silent_web_server_keep_no_others_from_being_made() {
    let silent = Silent::start(std::fs::read(aperio()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = odd(directory.path());
    let service = Service::start(&file, |settings| {
        settings.locations.push(format!("http://{}/slow.svs", silent.address));
        settings.memory = 64 << 20;
    });
    assert_eq!(service.get("/slow.svs.dzi").status, 200);
    silent.is_silent.store(true, Ordering::SeqCst);
    let tile = |at: usize| format!("/slow.svs_files/12/{}_{}.png", at % 9, at / 9);
    let clients: Vec<_> = (0..100).map(|at| ask(&service, &tile(at))).collect();
    // From then on, none of the others has a thread.
    (0..EACH).for_each(|_| silent.asked.recv().unwrap());
    for _ in 0..2 {
        assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
        assert_eq!(service.get("/iiif/3/odd.tif/full/max/0/gray.png").status, 200);
        assert_eq!(service.get("/slides/odd.tif/thumbnail.webp").status, 200);
    }
    assert_eq!(service.count("remote_reads"), EACH as u64);

    drop(clients);
    until(|| service.count("requests_in_flight") == 1);
    silent.is_silent.store(false, Ordering::SeqCst);
    silent.end();
    assert_eq!(service.get(&tile(100)).status, 200);
}
