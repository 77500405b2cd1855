//! Misbehaving workers that know the secret.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use seekwire_flow::{Block, DealingPolicy, FilterError, Outputs, Step};

use super::protocol::{MOST, Task, Word};
use super::worker_limits::MOST as MOST_WORKERS;
use super::*;
use crate::counters::Counters;
use crate::render::{Bounds, Images};
use crate::web_limits::Web;

/// A worker that sends arbitrary messages and passes on those it receives.
struct Liar {
    says: Sender<Vec<u8>>,
    hears: Receiver<(Task, u64, Bytes)>,
    /// True if it sends heartbeats.
    beats: Arc<AtomicBool>,
    _running: Running,
}

struct Says(Arc<Mutex<Receiver<Vec<u8>>>>, Arc<AtomicBool>);

impl Filter for Says {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        match self.0.lock().unwrap().recv_timeout(Duration::from_millis(10)) {
            Ok(block) => out.send(0, block)?,
            Err(RecvTimeoutError::Timeout) if self.1.load(Ordering::SeqCst) => {
                out.send(0, Word::Beat.behind(Vec::new()))?;
            }
            Err(RecvTimeoutError::Timeout) if !out.is_ended() => {}
            Err(_) => return Ok(Step::Done),
        }
        Ok(Step::More)
    }
}

struct Hears(Sender<(Task, u64, Bytes)>);

impl Filter for Hears {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let (word, bytes) = Word::of(block.into()).unwrap();
        let Word::Job(task, number) = word else { panic!("{word:?}") };
        let _ = self.0.send((task, number, bytes));
        Ok(())
    }
}

impl Liar {
    fn come(to: &Workers, secret: &Secret) -> Self {
        let (says, said) = channel();
        let said = Arc::new(Mutex::new(said));
        let (heard, hears) = channel();
        let beats = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&beats);
        let graph = protocol::graph([
            Arc::new(|| Box::new(Elsewhere) as Box<dyn Filter>),
            Arc::new(move || Box::new(Hears(heard.clone()))),
            Arc::new(move || Box::new(Says(Arc::clone(&said), Arc::clone(&its)))),
            Arc::new(|| Box::new(Elsewhere)),
        ])
        .unwrap();
        let server = Peer { host: "server".to_owned(), addresses: vec![to.address()] };
        let own = Peer { host: "liar".to_owned(), addresses: vec![] };
        let job = ClusterConfig {
            rank: 1,
            peers: vec![server, own],
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            secret: *secret.as_bytes(),
            limit: Duration::from_secs(60),
            patience: SILENCE_LIMIT,
            called_off: None,
        };
        let running = graph.start_in(&job, SEED).unwrap();
        Self { says, hears, beats, _running: running }
    }

    fn say(&self, word: Word, bytes: &[u8]) {
        // The server may have ended the session.
        let _ = self.says.send(word.behind(bytes.to_vec()));
    }
}

pub(super) fn images() -> Arc<Images> {
    let bounds = Bounds {
        threads: 1,
        images: 0,
        tiles: 0,
        work: 64 << 20,
        tile: crate::render::work::TILE,
        quality: 80,
        turbojpeg: true,
        policy: DealingPolicy::RoundRobin,
        guarantee: None,
    };
    let (web, counters) = (Arc::new(Web::new(4, 4, 4)), Arc::new(Counters::default()));
    Arc::new(Images::new(bounds, None, web, counters).unwrap())
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

/// Not a region: any worker that finishes it reports an error, but only the server's own is
/// trusted.
const NONE: &[u8] = b"no region";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_worker_says_work_is_done_and_the_server_goes_on() {
    let images = images();
    let secret = Secret::random().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let most = Allowed { workers: MOST_WORKERS, threads: 8 };
    let workers = Workers::start(listener, secret.clone(), most, Arc::clone(&images)).unwrap();
    let farm = Arc::clone(images.tiles().farm());
    let alone = farm.window();
    let strange: [&(dyn Fn(&Liar) + Sync); 7] = [
        // Not a valid message.
        &|liar| drop(liar.says.send(vec![9; 40])),
        &|liar| drop(liar.says.send(vec![])),
        // Messages that only the server sends, and a second hello.
        &|liar| liar.say(Word::Job(Task::Finish, 3), b""),
        &|liar| liar.say(Word::Hello(2), b"again"),
        // Answers to no question, and larger than allowed; then the worker is dropped.
        &|liar| {
            liar.say(Word::Answer(true, 77), &vec![1; MOST + (1 << 19)]);
            liar.say(Word::Hello(2), b"again");
        },
        // Answers to a question: nonsense, and a failure.
        &|liar| {
            while let Ok((_, number, _)) = liar.hears.recv_timeout(Duration::from_millis(500)) {
                liar.say(Word::Answer(true, number), b"these are no pixels");
            }
        },
        &|liar| {
            while let Ok((_, number, _)) = liar.hears.recv_timeout(Duration::from_millis(500)) {
                liar.say(Word::Answer(false, number), b"it is your fault");
            }
        },
    ];
    for (number, lie) in strange.iter().enumerate() {
        let liar = Liar::come(&workers, &secret);
        liar.say(Word::Hello(1), b"liar");
        until(|| farm.window() > alone);
        let jobs: Vec<_> = (0..6)
            .map(|_| {
                let farm = Arc::clone(&farm);
                let make = || Some(Bytes::from_static(NONE));
                tokio::spawn(async move { farm.run(Task::Finish, None, None, make).await })
            })
            .collect();
        tokio::task::yield_now().await;
        tokio::task::block_in_place(|| lie(&liar));
        for job in jobs {
            let failure = job.await.unwrap().unwrap().unwrap().unwrap_err();
            assert!(failure.contains("not a region"), "{number}: {failure}");
        }
        drop(liar);
        until(|| farm.window() == alone);
    }
    // A worker that is gone or silent is not waited for.
    let nameless = Liar::come(&workers, &secret);
    until(|| workers.all().1 == 8);
    assert_eq!(farm.window(), alone);
    for hello in [Word::Hello(0), Word::Hello(u32::MAX)] {
        let liar = Liar::come(&workers, &secret);
        liar.say(hello, b"liar");
        until(|| liar.says.send(Word::Beat.behind(vec![])).is_err() || workers.all().2 > 7);
    }
    drop(nameless);
    workers.end();
}

#[test]
fn threads_that_workers_claim_cost_no_more_than_is_allowed() {
    let images = images();
    let secret = Secret::random().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let most = Allowed { workers: MOST_WORKERS, threads: 5 };
    let workers = Workers::start(listener, secret.clone(), most, Arc::clone(&images)).unwrap();
    let farm = Arc::clone(images.tiles().farm());
    let alone = farm.window();
    let mut liars = Vec::new();
    for expected in [&[5][..], &[3, 2], &[2, 2, 1]] {
        let liar = Liar::come(&workers, &secret);
        liar.say(Word::Hello(protocol::MOST_THREADS), b"liar");
        liar.beats.store(true, Ordering::SeqCst);
        liars.push(liar);
        until(|| {
            let (all, ..) = workers.all();
            let assigned = all.iter().map(|remote| remote.assigned.load(Ordering::SeqCst));
            assigned.eq(expected.iter().copied())
        });
        // Two copies for each thread, and two jobs for each copy.
        assert_eq!(farm.window(), alone + 5 * 2 * 2);
    }
    drop(liars);
    until(|| farm.window() == alone);
    workers.end();
}

#[test]
fn for_a_worker_that_gets_nothing_nothing_changes() {
    let secret = Secret::random().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let most = Allowed { workers: MOST_WORKERS, threads: 1 };
    let workers = Workers::start(listener, secret.clone(), most, images()).unwrap();
    let liars = [(); 2].map(|()| {
        let liar = Liar::come(&workers, &secret);
        liar.say(Word::Hello(1), b"liar");
        liar.beats.store(true, Ordering::SeqCst);
        liar
    });
    let all = || workers.all().0;
    until(|| all().iter().filter(|remote| remote.state() == WorkerState::Works).count() == 2);
    let assigned = workers.share_out(&all(), &WarnOnce::default());
    let assigned: Vec<_> = assigned.iter().map(|one| (one.remote.number, one.threads)).collect();
    assert_eq!(assigned, [(all()[0].number, 1)]);
    drop(liars);
    workers.end();
}

/// Connections at that port that this process has not closed.
fn connections(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_there = words[1].ends_with(&format!(":{port:04X}"));
        is_there && words[3] != "0A" && words[9] != "0"
    };
    table.lines().skip(1).filter(is_one).count()
}

#[test]
fn who_is_sent_away_counts_until_its_connection_is_closed() {
    let secret = Secret::random().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let most = Allowed { workers: MOST_WORKERS, threads: 1 };
    let workers = Workers::start(listener, secret.clone(), most, images()).unwrap();
    for number in 1..10 {
        let liar = Liar::come(&workers, &secret);
        until(|| workers.all().1 == number);
        let (all, ..) = workers.all();
        assert_eq!((all.len(), connections(workers.address().port())), (1, 1));
        all[0].end();
        until(|| workers.all().2 == number);
        assert_eq!(connections(workers.address().port()), 0);
        drop(liar);
    }
    workers.end();
}
