//! Workers: processes that share the work, and come and go.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster::{Bed, Slurm};
use crate::common::{Service, aperio};
use rustix::process::{Pid, Signal, kill_process};
use seekwire_launch::Secret;
use seekwire_slides::WorkerSettings;

/// A worker, killed when the test ends.
struct Worker(Child);

impl Worker {
    fn command(server: SocketAddr, secret: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"));
        let server = server.to_string();
        command
            .args(["slides", "worker", &server, "--threads", "2", "--worker-secret"])
            .arg(secret);
        command.stderr(Stdio::null());
        command
    }

    fn start(server: &TestServer) -> Self {
        Self(Self::command(server.service.workers.unwrap(), &server.secret).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that caches nothing, so that everything is made again, and that accepts workers.
struct TestServer {
    service: Service,
    secret: PathBuf,
    _directory: tempfile::TempDir,
}

impl TestServer {
    fn new(listen: &str, change: impl FnOnce(&mut seekwire_slides::Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let secret = Secret::random().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, secret.to_hex() + "\n").unwrap();
        let service = Service::start(&aperio(), |settings| {
            settings.listen = format!("{listen}:0");
            settings.image_cache = 0;
            settings.tile_cache = 0;
            settings.workers = Some(WorkerSettings { listen: format!("{listen}:0"), secret });
            change(settings);
        });
        Self { service, secret: path, _directory: directory }
    }

    fn status(&self) -> serde_json::Value {
        self.service.get("/status").json()
    }

    /// True if work is dealt, false if the server does all of it alone.
    fn deals(&self) -> bool {
        let status = self.status();
        ["decompress", "finish"].iter().any(|work| status[work]["dealt"].as_bool().unwrap())
    }

    /// Waits until so many workers are in that state.
    fn wait(&self, state: &str, count: usize) {
        while self.all(state).len() != count {
            std::thread::yield_now();
        }
    }

    /// The numbers of pieces done by workers in that state.
    fn all(&self, state: &str) -> Vec<u64> {
        let status = self.status();
        let all = status["workers"]["all"].as_array().unwrap().iter();
        all.filter(|worker| worker["state"] == state)
            .map(|worker| worker["done"].as_u64().unwrap())
            .collect()
    }
}

/// Tiles that are scaled, lossless tiles, and a region.
fn addresses() -> Vec<String> {
    let tiles = (1..3).flat_map(|row| (0..4).map(move |column| (column, row)));
    let mut all: Vec<String> =
        tiles.map(|(column, row)| format!("/aperio.svs_files/11/{column}_{row}.jpg")).collect();
    all.push("/aperio.svs_files/12/3_4.png".to_owned());
    all.push("/iiif/3/aperio.svs/100,200,500,300/111,/22.5/gray.png".to_owned());
    all
}

/// The results of the server alone, computed once for all tests.
fn expected() -> &'static [(String, Vec<u8>)] {
    static EXPECTED: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let alone = Service::of(&aperio());
        let get = |address: String| {
            let answer = alone.get(&address);
            assert_eq!(answer.status, 200, "{address}: {}", String::from_utf8_lossy(&answer.body));
            (address, answer.body)
        };
        addresses().into_iter().map(get).collect()
    })
}

fn check(service: &Service, answer: &(String, Vec<u8>)) {
    let (address, body) = answer;
    let answer = service.get(address);
    assert_eq!(answer.status, 200, "{address}: {}", String::from_utf8_lossy(&answer.body));
    assert!(answer.body == *body, "{address} differs from the result of the server alone");
}

/// Clients request everything repeatedly while `work` runs, and get correct results.
fn under_load(server: &TestServer, all: &[(String, Vec<u8>)], work: impl FnOnce(&AtomicUsize)) {
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (is_over, answered, service) = (&is_over, &answered, &server.service);
            scope.spawn(move || {
                let turn = all.iter().cycle().skip(client * 7);
                for one in turn.take_while(|_| !is_over.load(Ordering::SeqCst)) {
                    check(service, one);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let ends = Ends(&is_over);
        work(&answered);
        drop(ends);
    });
}

/// Clients end even if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn more(answered: &AtomicUsize, count: usize) {
    let enough = answered.load(Ordering::SeqCst) + count;
    while answered.load(Ordering::SeqCst) < enough {
        std::thread::yield_now();
    }
}

#[test]
fn workers_come_and_go_and_every_answer_is_right() {
    let all = expected();
    let server = TestServer::new("127.0.0.1", |_| {});
    assert!(!server.deals());
    let workers = [Worker::start(&server), Worker::start(&server)];
    server.wait("works", 2);
    under_load(&server, all, |answered| {
        while server.all("works").iter().any(|done| *done < 5) {
            std::thread::yield_now();
        }
        let [killed, stopped] = workers;
        killed.signal(Signal::KILL);
        more(answered, 8);
        server.wait("works", 1);

        stopped.signal(Signal::STOP);
        more(answered, 8);
        server.wait("silent", 1);
        more(answered, 8);
        stopped.signal(Signal::CONT);
        server.wait("works", 1);

        let _third = Worker::start(&server);
        server.wait("works", 2);
        more(answered, 8);
        // A worker that ends normally makes no difference.
        stopped.signal(Signal::TERM);
        server.wait("works", 1);
        assert!(server.deals());
    });
    assert_eq!(server.status()["workers"]["come"], 3);
    while server.status()["workers"]["gone"].as_u64() < Some(2) {
        std::thread::yield_now();
    }
    // The last one has been killed, so the server works alone again.
    while server.deals() {
        std::thread::yield_now();
    }
    all.iter().for_each(|one| check(&server.service, one));
    assert_eq!(server.service.count("decoded_twice_total"), 0);
    assert!(server.service.count("workers_come_total") == 3);
}

#[test]
fn all_policies_give_what_is_right() {
    let all = expected();
    for policy in [seekwire_flow::DealingPolicy::RoundRobin, seekwire_flow::DealingPolicy::Demand] {
        let server = TestServer::new("127.0.0.1", |settings| settings.policy = policy);
        let _worker = Worker::start(&server);
        server.wait("works", 1);
        all.iter().for_each(|one| check(&server.service, one));
        assert!(server.all("works")[0] > 0);
        let status = server.status();
        let workers = &status["workers"];
        assert!(workers["mostThreads"] == 256 && workers["all"][0]["threads"] == 2, "{status}");
    }
}

#[test]
fn an_unauthenticated_client_gets_nothing() {
    let all = expected();
    let server = TestServer::new("127.0.0.1", |_| {});
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("wrong");
    std::fs::write(&wrong, Secret::random().unwrap().to_hex()).unwrap();
    let address = server.service.workers.unwrap();
    let mut command = Worker::command(address, &wrong);
    // Its attempts fail repeatedly, and the first failure is logged.
    let mut unauthenticated = Worker(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(unauthenticated.0.stderr.take().unwrap()).lines();
    let said = lines.nth(1).unwrap().unwrap();
    assert!(said.contains("does not let this worker in: it has another secret"), "{said}");
    assert_eq!(said.matches(&address.to_string()).count(), 1, "{said}");
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096]] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(said).unwrap();
        let mut answer = Vec::new();
        // The connection is closed.
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
    let _silent = TcpStream::connect(address).unwrap();
    all.iter().take(5).for_each(|one| check(&server.service, one));
    // A worker that knows the secret is not kept out by the others.
    let _worker = Worker::start(&server);
    server.wait("works", 1);
    assert_eq!(server.status()["workers"]["come"], 1);
}

/// A guarantee that is met and one that cannot be, with a worker.
#[test]
fn what_is_guaranteed_is_measured() {
    let all = expected();
    for (guarantee, holds) in [("latency=100s", true), ("latency=0.001ms", false)] {
        let server = TestServer::new("127.0.0.1", |settings| {
            let time = guarantee.strip_prefix("latency=").unwrap();
            let seconds = match time.strip_suffix("ms") {
                Some(milliseconds) => milliseconds.parse::<f64>().unwrap() / 1e3,
                None => time.strip_suffix('s').unwrap().parse().unwrap(),
            };
            let time = Duration::from_secs_f64(seconds);
            settings.guarantee = Some(seekwire_flow::Guarantee::Latency(time));
        });
        assert_eq!(server.status()["guarantee"]["holds"], serde_json::Value::Null);
        assert!(server.deals());
        let _worker = Worker::start(&server);
        server.wait("works", 1);
        let clients = all.chunks(3);
        std::thread::scope(|scope| {
            for some in clients {
                let server = &server;
                scope.spawn(move || some.iter().for_each(|one| check(&server.service, one)));
            }
        });
        let status = server.status();
        let kept = &status["guarantee"];
        assert_eq!(kept["holds"], holds, "{status}");
        // The region needs more than four tiles.
        assert_eq!(kept["complete"]["count"], 1, "{status}");
        assert_eq!(kept["partial"]["count"].as_u64(), Some(all.len() as u64 - 1), "{status}");
        assert!(kept["partial"]["worstMilliseconds"].as_f64().unwrap() > 0.0, "{status}");
        assert_eq!(server.service.count("guarantee_holds"), u64::from(holds));
        let page = server.service.ask("GET", "/status", &[("Accept", "text/html")]);
        let word = if holds { ">held<" } else { ">not held<" };
        assert!(page.text().contains(word), "{}", page.text());
    }
}

/// If this process may create network namespaces: one worker is connected through a cable that is
/// unplugged.
#[test]
fn a_link_that_is_cut_loses_nothing() {
    let Some(bed) = Bed::new() else { return };
    let all = expected();
    let (near, far) = (bed.near(), bed.far());
    near.run(|| {
        let server = TestServer::new(&near.address().to_string(), |_| {});
        let mut command = Worker::command(server.service.workers.unwrap(), &server.secret);
        let _worker = Worker(far.spawn(&mut command).unwrap());
        server.wait("works", 1);
        all.iter().for_each(|one| check(&server.service, one));
        assert!(server.all("works")[0] > 0);
        under_load(&server, all, |answered| {
            let interface = far.interface().to_owned();
            let pulled =
                far.run(|| Command::new("ip").args(["link", "set", &interface, "down"]).status());
            assert!(pulled.unwrap().unwrap().success());
            server.wait("works", 0);
            more(answered, 8);
        });
    })
    .unwrap();
}

/// If this process may create network namespaces: an answer takes longer than the limit for
/// silence.
#[test]
fn a_worker_on_a_slow_link_is_not_taken_for_silent() {
    let Some(bed) = Bed::new() else { return };
    let (near, far) = (bed.near(), bed.far());
    let directory = tempfile::tempdir().unwrap();
    let slide = crate::common::odd(directory.path());
    near.run(|| {
        let server = TestServer::new(&near.address().to_string(), |settings| {
            settings.locations.push(slide.to_str().unwrap().to_owned());
            settings.policy = seekwire_flow::DealingPolicy::RoundRobin;
            settings.threads = std::num::NonZeroUsize::MIN;
        });
        let mut command = Worker::command(server.service.workers.unwrap(), &server.secret);
        let _worker = Worker(far.spawn(&mut command).unwrap());
        server.wait("works", 1);
        while server.status()["workers"]["all"][0]["threadsGiven"] != 2 {
            std::thread::yield_now();
        }
        far.limit_rate(2_000_000).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut silent = 0;
                while !is_over.load(Ordering::SeqCst) {
                    silent += server.all("silent").len();
                }
                silent
            });
            let ends = Ends(&is_over);
            // Small tiles, and an image of a megabyte.
            for width in [900, 901, 902] {
                let address = format!("/iiif/3/odd.tif/full/^{width},/0/default.png");
                assert_eq!(server.service.get(&address).status, 200);
            }
            drop(ends);
            assert_eq!(looks.join().unwrap(), 0);
        });
        assert!(server.all("works")[0] > 0);
    })
    .unwrap();
}

/// A server and two workers started by mpiexec find each other.
#[test]
fn a_job_of_mpiexec_is_a_server_and_its_workers() {
    let program = env!("CARGO_BIN_EXE_seekwire-slides");
    let slide = aperio();
    let slide = slide.to_str().unwrap();
    let server = [program, "slides", slide, "--listen", "127.0.0.1:0", "--workers", "127.0.0.1:0"];
    let mut command = Command::new("mpiexec.hydra");
    command.args(["-n", "1"]).args(server).args([":", "-n", "2"]);
    command.args([program, "slides", "worker", "--threads", "1"]);
    let mut job = command.stderr(Stdio::piped()).spawn().expect("scripts/deps test installs it");
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    let mut job = Worker(job);
    let address = loop {
        let line = lines.next().expect("the server starts").unwrap();
        if let Some((_, address)) = line.split_once("one slide at http://") {
            break address.trim_end_matches('/').to_owned();
        }
    };
    let mut come = 0;
    while come < 2 {
        let line = lines.next().expect("workers come").unwrap();
        come += usize::from(line.contains("has come"));
    }
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let status = get("/status");
    assert_eq!(status.matches("\"state\":\"works\"").count(), 2, "{status}");
    assert!(get("/aperio.svs_files/11/2_1.jpg").starts_with("HTTP/1.1 200"));
    // The workers end with the server, without errors.
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let mut words = line.split('\0');
        let is_server = words.next() == Some(program) && words.any(|word| word == "--workers");
        is_server.then(|| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))?
    });
    for server in processes {
        kill_process(server, Signal::TERM).unwrap();
    }
    // The rest of the output must be read, or its writers block.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(job.0.wait().unwrap().success(), "{rest:#?}");
}

/// Runs the script in slides/docs/slides.md unchanged on two nodes.
#[test]
fn a_job_of_slurm_is_a_server_and_its_workers() {
    let Some(bed) = Bed::new() else { return };
    let slurm = Slurm::start(&bed);
    let directory = crate::cluster::directory();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for name in ["bin", "slides"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let program = env!("CARGO_BIN_EXE_seekwire-slides");
    std::os::unix::fs::symlink(program, path("bin/seekwire")).unwrap();
    std::fs::copy(aperio(), path("slides/aperio.svs")).unwrap();
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/slides.md");
    let document = std::fs::read_to_string(document).unwrap();
    let script = document.split("```sh\n").find(|block| block.starts_with("#!")).unwrap();
    std::fs::write(path("script"), script.split("```").next().unwrap()).unwrap();
    let search = format!("{}:{}", path("bin"), std::env::var("PATH").unwrap());
    let sbatch = ["sbatch", "--chdir", &path(""), "--output", &path("output"), &path("script")];
    let outcome = slurm.run(&bed, &sbatch, &[("PATH", &search)]);
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let address = SocketAddr::new(bed.near().address().into(), 8080);
    bed.near()
        .run(|| {
            let end = std::time::Instant::now() + Duration::from_secs(60);
            let output = || std::fs::read_to_string(path("output")).unwrap_or_default();
            while !output().contains("workers at") {
                assert!(std::time::Instant::now() < end, "{}", output());
                std::thread::yield_now();
            }
            let service = Service::at(address);
            let worker = || service.get("/status").json()["workers"]["all"][0].clone();
            while worker()["state"] != "works" {
                assert!(std::time::Instant::now() < end, "{}", output());
                std::thread::yield_now();
            }
            assert_eq!(worker()["host"], "two");
            check(&service, &expected()[0]);
        })
        .unwrap();
}
