//! Neighbours of tiles are prefetched, but only while the server is idle.

use crate::common::{Service, aperio};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

#[test]
fn neighbours_of_a_tile_are_there_before_they_are_asked_for() {
    let service = Service::start(&aperio(), |settings| {
        settings.prefetch = 8;
        settings.threads = 2.try_into().unwrap();
    });
    assert_eq!(service.get("/aperio.svs_files/12/3_3.jpg").status, 200);
    while service.count("prefetch_made_total") < 8 {
        std::thread::yield_now();
    }
    let kept = service.count("images_kept_total");
    for tile in ["4_3", "2_3", "3_4", "3_2", "4_4", "2_2", "4_2", "2_4"] {
        assert_eq!(service.get(&format!("/aperio.svs_files/12/{tile}.jpg")).status, 200, "{tile}");
    }
    assert_eq!(service.count("images_kept_total"), kept + 8);
    assert_eq!(service.count("decoded_twice_total"), 0);
}

/// A web server for one file, which reports requests, and delays the answer to one for a certain
/// byte until it is released.
struct Held {
    address: String,
    /// The first byte of each request, in order.
    asked: Receiver<usize>,
    /// The byte whose request is delayed.
    gate: Arc<(Mutex<Option<usize>>, Condvar)>,
}

impl Held {
    fn start(bytes: Vec<u8>, held: Option<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/slow.svs", listener.local_addr().unwrap());
        let (tell, asked) = channel();
        let gate = Arc::new((Mutex::new(held), Condvar::new()));
        let (bytes, shut) = (Arc::new(bytes), Arc::clone(&gate));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (bytes, shut, tell) = (Arc::clone(&bytes), Arc::clone(&shut), tell.clone());
                std::thread::spawn(move || serve(stream.unwrap(), &bytes, &tell, &shut));
            }
        });
        Self { address, asked, gate }
    }

    fn open(&self) {
        *self.gate.0.lock().unwrap() = None;
        self.gate.1.notify_all();
    }

    /// Waits until that byte is requested.
    fn until(&self, byte: usize) {
        while self.asked.recv_timeout(REQUEST_TIMEOUT).expect("it is asked for") != byte {}
    }

    fn service(&self, prefetch: u8) -> Service {
        Service::start(std::path::Path::new(&self.address), |settings| {
            settings.prefetch = prefetch;
            settings.threads = 2.try_into().unwrap();
        })
    }
}

/// The first byte that is read for a tile, besides those next to the tile above it.
fn below(bytes: &[u8]) -> usize {
    let slow = Held::start(bytes.to_vec(), None);
    let service = slow.service(0);
    for tile in ["4_3", "5_3", "3_3"] {
        assert_eq!(service.get(&format!("/slow.svs_files/12/{tile}.jpg")).status, 200);
    }
    while slow.asked.try_recv().is_ok() {}
    assert_eq!(service.get("/slow.svs_files/12/4_4.jpg").status, 200);
    slow.asked.try_recv().expect("something else is read for it")
}

fn serve(
    stream: TcpStream,
    bytes: &[u8],
    tell: &Sender<usize>,
    gate: &(Mutex<Option<usize>>, Condvar),
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut range = None;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some((from, to)) =
                line.strip_prefix("range: bytes=").and_then(|range| range.split_once('-'))
            {
                range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?));
            }
        }
        let (from, to) = range?;
        let to = to.min(bytes.len() - 1);
        tell.send(from).ok()?;
        let mut held = gate.0.lock().unwrap();
        while held.is_some_and(|byte| (from..=to).contains(&byte)) {
            held = gate.1.wait(held).unwrap();
        }
        drop(held);
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\
             Content-Range: bytes {from}-{to}/{}\r\n\r\n",
            to - from + 1,
            bytes.len()
        );
        stream.get_mut().write_all(head.as_bytes()).ok()?;
        stream.get_mut().write_all(&bytes[from..=to]).ok()?;
    }
}

#[test]
fn no_request_waits_for_what_is_made_before_it_is_asked_for() {
    let bytes = std::fs::read(aperio()).unwrap();
    let byte = below(&bytes);
    let slow = Held::start(bytes, Some(byte));
    let service = slow.service(8);
    // The tile below it is prefetched, and its read is delayed.
    assert_eq!(service.get("/slow.svs_files/12/4_3.jpg").status, 200);
    slow.until(byte);
    let made = service.count("prefetch_made_total");
    // Other requests are answered meanwhile, and the delayed prefetch is abandoned for them.
    assert_eq!(service.get("/slow.svs_files/12/4_1.jpg").status, 200);
    while service.count("prefetch_given_up_total") == 0 {
        std::thread::yield_now();
    }
    while service.count("prefetch_made_total") == made {
        std::thread::yield_now();
    }
    slow.open();
    assert_eq!(service.get("/slow.svs_files/12/4_4.jpg").status, 200);
    assert_eq!(service.count("decoded_twice_total"), 0);
}

#[test]
fn nothing_is_begun_while_a_request_is_under_way() {
    let bytes = std::fs::read(aperio()).unwrap();
    let byte = below(&bytes);
    let slow = Held::start(bytes, Some(byte));
    let service = slow.service(8);
    std::thread::scope(|scope| {
        // A client requests the delayed tile,
        let client = scope.spawn(|| service.get("/slow.svs_files/12/4_4.jpg").status);
        slow.until(byte);
        // and others request different ones, whose neighbours are wanted from now on.
        for _ in 0..20 {
            assert_eq!(service.get("/slow.svs_files/12/4_1.jpg").status, 200);
            assert_eq!(service.count("prefetch_made_total"), 0);
            assert_eq!(service.count("prefetch_given_up_total"), 0);
        }
        slow.open();
        assert_eq!(client.join().unwrap(), 200);
    });
    while service.count("prefetch_made_total") < 8 {
        std::thread::yield_now();
    }
    assert_eq!(service.count("decoded_twice_total"), 0);
}
