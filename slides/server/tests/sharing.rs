//! Many concurrent clients: work is done once, and not at all for those that have disconnected.

use crate::common::{Service, aperio};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

#[test]
fn a_tile_that_64_clients_want_is_made_once() {
    let service = Service::of(&aperio());
    let start = Barrier::new(64);
    let bodies: HashSet<Vec<u8>> = std::thread::scope(|scope| {
        let ask = || {
            start.wait();
            // Half the size, so that four stored tiles make one here.
            service.get("/aperio.svs_files/11/2_1.jpg").body
        };
        let clients: Vec<_> = (0..64).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(bodies.len(), 1);
    assert_eq!(service.count("images_encoded_total"), 1);
    assert_eq!(service.count("tiles_decoded_total"), 4);
    assert_eq!(service.count("decoded_twice_total"), 0);
    assert_eq!(service.count("slides_opened_total"), 1);
    let (kept, joined) = (service.count("images_kept_total"), service.count("images_joined_total"));
    assert_eq!(kept + joined, 63);
}

#[test]
fn viewers_that_pan_over_the_same_slide_decode_no_tile_twice() {
    // Images are not cached, so each is made from tiles again.
    let service = Service::start(&aperio(), |settings| settings.image_cache = 0);
    std::thread::scope(|scope| {
        for viewer in 0..16 {
            let service = &service;
            scope.spawn(move || {
                for step in 0..8 {
                    // Across borders of tiles; each viewer moves between different positions.
                    let (x, y) =
                        (100 + viewer * 13 + step * 90, 200 + (viewer * 7 + step * 60) % 400);
                    let address = format!("/iiif/3/aperio.svs/{x},{y},300,200/150,/0/default.jpg");
                    assert_eq!(service.get(&address).status, 200);
                }
            });
        }
    });
    assert_eq!(service.count("decoded_twice_total"), 0);
    // Columns 0 to 5 and rows 0 to 3, in full and half size: each at most once.
    let decoded = service.count("tiles_decoded_total");
    assert!((12..=48).contains(&decoded), "{decoded}");
    assert!(service.count("images_encoded_total") > 100);
}

/// A web server for one file, whose answers can be delayed.
struct Slow {
    address: String,
    is_held: Arc<AtomicBool>,
    asked: Receiver<()>,
    answer: Sender<()>,
}

impl Slow {
    fn start(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/slow.svs", listener.local_addr().unwrap());
        let (tell, asked) = channel();
        let (answer, wait) = channel();
        let is_held = Arc::new(AtomicBool::new(false));
        let holds = Arc::clone(&is_held);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                while let Some((from, to)) = range(&mut stream) {
                    let holds = holds.load(Ordering::SeqCst);
                    if holds && (tell.send(()).is_err() || wait.recv().is_err()) {
                        return;
                    }
                    let to = to.min(bytes.len() - 1);
                    let head = format!(
                        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\
                         Content-Range: bytes {from}-{to}/{}\r\n\r\n",
                        to - from + 1,
                        bytes.len()
                    );
                    let whole = [head.as_bytes(), &bytes[from..=to]].concat();
                    if stream.get_mut().write_all(&whole).is_err() {
                        break;
                    }
                }
            }
        });
        Self { address, is_held, asked, answer }
    }
}

/// The range of the next request.
fn range(stream: &mut BufReader<TcpStream>) -> Option<(usize, usize)> {
    let mut range = None;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            return range;
        }
        if let Some(text) = line.strip_prefix("range: bytes=") {
            let (from, to) = text.split_once('-')?;
            range = Some((from.parse().ok()?, to.parse().ok()?));
        }
    }
}

#[test]
fn what_a_client_that_has_gone_wanted_is_not_decoded() {
    let slow = Slow::start(std::fs::read(aperio()).unwrap());
    let service = Service::start(std::path::Path::new(&slow.address), |_| {});
    assert_eq!(service.get("/slow.svs.dzi").status, 200);
    slow.is_held.store(true, Ordering::SeqCst);
    let mut client = TcpStream::connect(service.address).unwrap();
    write!(client, "GET /slow.svs_files/12/5_6.png HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // Its tile is being read when it disconnects.
    slow.asked.recv_timeout(Duration::from_secs(60)).expect("the tile is read");
    drop(client);
    while service.count("images_cancelled_total") == 0 {
        std::thread::yield_now();
    }
    slow.is_held.store(false, Ordering::SeqCst);
    slow.answer.send(()).unwrap();
    while service.count("tiles_unwanted_total") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(service.count("tiles_decoded_total"), 0);

    // Another client gets it; the bytes read are cached.
    let tile = service.get("/slow.svs_files/12/5_6.png");
    assert_eq!(tile.status, 200);
    assert_eq!(service.count("tiles_decoded_total"), 1);
    assert_eq!(service.count("decoded_twice_total"), 0);
}

#[test]
fn memory_for_work_is_shared_and_caches_keep_their_bounds() {
    let service = Service::start(&aperio(), |settings| {
        settings.memory = 8 << 20;
        settings.tile_cache = 1 << 20;
        settings.image_cache = 200 << 10;
    });
    let service = Arc::new(service);
    let clients: Vec<_> = (0..12)
        .map(|client| {
            let service = Arc::clone(&service);
            std::thread::spawn(move || {
                let address =
                    format!("/iiif/3/aperio.svs/{},500,600,500/max/0/default.jpg", client * 100);
                service.get(&address).status
            })
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap() == 200));
    let bytes = |of: &str| {
        let of = format!("{{of=\"{of}\"}}");
        (
            service.count(&format!("cache_bytes{of}")),
            service.count(&format!("cache_limit_bytes{of}")),
        )
    };
    let (images, tiles) = (bytes("images"), bytes("tiles"));
    assert!(0 < images.0 && images.0 <= images.1 && images.1 == 200 << 10, "{images:?}");
    assert!(0 < tiles.0 && tiles.0 <= tiles.1 && tiles.1 == 1 << 20, "{tiles:?}");
    // Associated images take their full size in memory, and small ones little.
    assert_eq!(service.get("/slides/aperio.svs/label.jpg").status, 200);
    // A request that can never get enough memory fails.
    let whole = service.get("/iiif/3/aperio.svs/full/max/0/default.jpg");
    assert_eq!(whole.status, 501);
    assert!(whole.text().contains("MiB"), "{}", whole.text());
}
