//! A server in this process, on a loopback port, and a client.

pub(crate) mod made_slides;
pub(crate) mod silent_server;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::thread::JoinHandle;

use image::RgbImage;
use seekwire_slides::{Server, Settings};
use tokio::sync::oneshot;

/// A server that runs until it is dropped.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    /// The address for workers.
    pub(crate) workers: Option<SocketAddr>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let header = self.headers.iter().find(|(other, _)| other == name);
        header.map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{}", self.text());
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn pixels(&self) -> RgbImage {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        image::load_from_memory(&self.body).unwrap().into_rgb8()
    }
}

impl Service {
    /// Serves a location, with settings modified by `change`.
    pub(crate) fn start(path: &Path, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new(vec![path.to_str().unwrap().to_owned()]);
        // Prefetched images would be counted as well.
        settings.prefetch = 0;
        change(&mut settings);
        let (sender, address) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                // As in the program.
                .max_blocking_threads(settings.blocking_threads())
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::bind(settings).await.unwrap();
                sender.send((server.address().unwrap(), server.worker_address())).unwrap();
                let ended = async {
                    let _ = ended.await;
                };
                server.run(ended).await;
            });
        });
        let (address, workers) = address.recv().expect("the server starts");
        Self { address, workers, end: Some(end), thread: Some(thread) }
    }

    /// Serves one file.
    pub(crate) fn of(path: &Path) -> Self {
        Self::start(path, |_| {})
    }

    /// A server started elsewhere.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, workers: None, end: None, thread: None }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build()
            .into();
        let mut response = agent.run(request.body(()).unwrap()).unwrap();
        let headers = response.headers().iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let headers = headers.collect();
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(1 << 30).read_to_vec().unwrap();
        Answer { status, headers, body }
    }

    /// A count in `/metrics`, by name and labels.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let answer = self.get("/metrics");
        let name = format!("seekwire_slides_{name} ");
        let line = answer.text().lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in {}", answer.text())).parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

/// The path that a script of this repository prints.
pub(crate) fn script(name: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name);
    let output = run(&mut Command::new(script));
    String::from_utf8(output.stdout).unwrap().trim_end().into()
}

/// A slide of an Aperio scanner, fetched if it is missing.
pub(crate) fn aperio() -> PathBuf {
    script("slide")
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error} (scripts/deps test installs it)"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs a vips operation in a directory; words are separated by spaces.
pub(crate) fn vips(directory: &Path, words: &str) {
    run(Command::new("vips").args(words.split(' ')).current_dir(directory));
}

/// Creates `odd.tif`, a part of the real slide: 301 x 199 pixels, with smaller levels, lossless;
/// and the same as `part.v`, for vips.
pub(crate) fn odd(directory: &Path) -> PathBuf {
    // Made once for all tests of a program.
    static MADE: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let names = ["odd.tif", "part.v"];
    let made = MADE.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        std::fs::copy(aperio(), directory.join("real.svs")).unwrap();
        vips(directory, "openslideload real.svs whole.v");
        vips(directory, "extract_area whole.v area.v 700 900 301 199");
        vips(directory, "flatten area.v part.v");
        let options = "--tile --pyramid --compression lzw --tile-width 48 --tile-height 32";
        vips(directory, &format!("tiffsave part.v odd.tif {options}"));
        names.map(|name| std::fs::read(directory.join(name)).unwrap())
    });
    for (name, bytes) in names.iter().zip(made) {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
    directory.join("odd.tif")
}
