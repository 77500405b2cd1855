//! The server as a whole: from settings to its end.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::http::HeaderValue;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seekwire_flow::{Guarantee, Policy};
use seekwire_launch::Secret;
use seekwire_slides_image::Limits;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::annotations::Annotations;
use crate::arguments::{Action, Slides as Options};
use crate::counters::Counters;
use crate::demo::Demo;
use crate::disk::Disk;
use crate::iiif::Most;
use crate::library::Library;
use crate::opened::Slides;
use crate::prefetch::Prefetch;
use crate::privacy::Whom;
use crate::render::{Bounds, Images, work};
use crate::shares::Web;
use crate::sign;
use crate::web::gate::{self, Rate, Token};
use crate::web::sending::Room;
use crate::web::signed::Key;
use crate::web::tls::{Files, Tls};
use crate::web::{self, App, connections};
use crate::workers::allowance::{self, Allowed};
use crate::workers::{Workers, command as worker, launched};

/// Holds the token, if no file does.
const VARIABLE: &str = "SEEKWIRE_SLIDES_TOKEN";

/// Threads of tokio that read: a disk answers more than one at a time. A runtime that a server runs in
/// should have no fewer (`max_blocking_threads`): slides on web servers may have three quarters of
/// them.
pub const READERS: usize = 64;
/// How long those that still read are waited for at the end.
const LAST: Duration = Duration::from_secs(1);

/// How a server works. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directories, files and addresses.
    pub locations: Vec<String>,
    /// `HOST:PORT`.
    pub listen: String,
    /// Where clients reach it, without a slash at the end; `None`: as they say.
    pub base_url: Option<String>,
    /// What clients must know.
    pub token: Option<String>,
    /// By which addresses are signed that let in whoever has them.
    pub secret: Option<String>,
    /// From whom labels and macros are kept; `None`: from those whose signed address does not say
    /// otherwise.
    pub no_associated: Option<Whom>,
    /// Whether metadata are shown that may name a person.
    pub shows_persons: bool,
    /// What connections are encrypted by; `None`: nothing.
    pub tls: Option<Files>,
    /// Threads that decode, and as many that encode.
    pub threads: NonZeroUsize,
    /// Of JPEG, from 1 to 100.
    pub quality: u8,
    /// Encoded images that are kept.
    pub image_cache: usize,
    /// Decoded tiles that are kept.
    pub tile_cache: usize,
    /// Where encoded images are kept, too, and how much of them.
    pub disk_cache: Option<(PathBuf, u64)>,
    /// Neighbours of a tile that are made when nothing else is to be done.
    pub prefetch: u8,
    /// Annotations that are kept; a little less of it is what one file may take.
    pub annotations: usize,
    /// Images that are being made.
    pub memory: usize,
    /// Slides that stay open.
    pub open_slides: NonZeroUsize,
    /// Whether OpenSlide is asked about files of scanners that are not read here.
    pub openslide: bool,
    /// Whether libjpeg-turbo decodes and encodes JPEG, where it is installed.
    pub turbojpeg: bool,
    /// Pixels of the largest stored tile, 64 Mi at most.
    pub max_tile: u64,
    /// Pixels of the largest image along a side.
    pub max_side: u32,
    /// Pixels of the largest image.
    pub max_area: u64,
    /// Requests of a client in a second.
    pub rate: Option<u32>,
    /// Requests at the same time.
    pub requests: u32,
    /// Connections at the same time.
    pub connections: u32,
    /// After which a request is given up.
    pub timeout: Duration,
    /// That requests have at the end.
    pub grace: Duration,
    /// Seconds for which clients may keep images.
    pub max_age: u32,
    /// Lets workers come.
    pub workers: Option<WorkerSettings>,
    /// Threads of all workers together that are given work; each costs four threads here.
    pub worker_threads: NonZeroUsize,
    /// By which work is dealt.
    pub policy: Policy,
    /// What is to be held.
    pub guarantee: Option<Guarantee>,
}

/// How workers come to a server.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// `HOST:PORT`.
    pub listen: String,
    /// What they must know.
    pub secret: Secret,
}

impl Settings {
    /// What holds for `seekwire slides` without options, but at a port that the system picks.
    #[must_use]
    pub fn new(locations: Vec<String>) -> Self {
        Self {
            locations,
            listen: "127.0.0.1:0".to_owned(),
            base_url: None,
            token: None,
            secret: None,
            no_associated: None,
            shows_persons: false,
            tls: None,
            threads: available_parallelism().unwrap_or(NonZeroUsize::MIN),
            quality: 80,
            image_cache: 256 << 20,
            tile_cache: 128 << 20,
            disk_cache: None,
            prefetch: 8,
            annotations: 128 << 20,
            memory: 512 << 20,
            open_slides: NonZeroUsize::new(64).unwrap_or(NonZeroUsize::MIN),
            openslide: true,
            turbojpeg: true,
            max_tile: work::TILE,
            max_side: 16_384,
            max_area: 16 << 20,
            rate: None,
            requests: 1024,
            connections: 1024,
            timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            max_age: 3600,
            workers: None,
            worker_threads: NonZeroUsize::new(256).unwrap_or(NonZeroUsize::MIN),
            policy: Policy::default(),
            guarantee: None,
        }
    }

    fn of(options: &Options) -> Result<Self> {
        let new = Self::new(options.locations.clone());
        Ok(Self {
            listen: options.listen.clone(),
            base_url: options.base_url.clone(),
            token: token(options)?,
            secret: options.secret_file.as_deref().map(secret).transpose()?,
            no_associated: options.no_associated,
            shows_persons: options.show_persons,
            tls: options
                .tls_certificate
                .clone()
                .zip(options.tls_key.clone())
                .map(|(certificate, key)| Files { certificate, key }),
            threads: options.threads.unwrap_or(new.threads),
            quality: options.quality,
            image_cache: options.image_cache,
            tile_cache: options.tile_cache,
            disk_cache: options
                .disk_cache
                .clone()
                .map(|directory| (directory, options.disk_cache_size as u64)),
            prefetch: options.prefetch,
            annotations: options.annotation_cache,
            memory: options.memory,
            open_slides: options.open_slides,
            openslide: !options.no_openslide,
            turbojpeg: !options.no_turbojpeg,
            max_tile: options.max_tile,
            max_area: options.max_area,
            rate: options.rate,
            requests: options.requests,
            connections: options.connections,
            timeout: Duration::from_secs(options.timeout.into()),
            grace: Duration::from_secs(options.grace.into()),
            max_age: options.max_age,
            worker_threads: options.worker_threads,
            policy: options.policy.into(),
            guarantee: options.guarantee,
            ..new
        })
    }
}

fn token(options: &Options) -> Result<Option<String>> {
    let (token, from) = match &options.token_file {
        Some(path) => {
            let from = path.display().to_string();
            let text = fs::read_to_string(path).with_context(|| from.clone())?;
            (text.lines().next().unwrap_or_default().trim().to_owned(), from)
        }
        // An empty variable counts as not set.
        None => match std::env::var(VARIABLE) {
            Ok(token) if !token.is_empty() => (token, VARIABLE.to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => bail!("{VARIABLE}: not a text"),
            _ => return Ok(None),
        },
    };
    if !gate::is_usable(&token) {
        bail!(
            "{from}: a token has visible characters of ASCII, no blanks, quotes, commas, semicolons"
        );
    }
    Ok(Some(token))
}

/// The secret that a file has.
pub(crate) fn secret(path: &Path) -> Result<String> {
    let from = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| from.clone())?;
    sign::secret(&text, &from)
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    slides: usize,
    connections: u32,
    grace: Duration,
    workers: Option<Arc<Workers>>,
    prefetching: JoinHandle<()>,
}

impl Server {
    /// Looks for the slides, starts the threads and listens. Within a runtime of tokio.
    ///
    /// # Errors
    ///
    /// A location that does not exist, two slides of one name, an address at which one cannot
    /// listen, a certificate that cannot be used, no threads.
    pub async fn bind(settings: Settings) -> Result<Self> {
        let locations = settings.locations;
        let library = tokio::task::spawn_blocking(move || Library::new(&locations)).await??;
        let slides = library.list().len();
        let counters = Arc::new(Counters::default());
        let bounds = Bounds {
            threads: settings.threads.get(),
            images: settings.image_cache,
            tiles: settings.tile_cache,
            work: settings.memory,
            tile: settings.max_tile,
            quality: settings.quality,
            turbojpeg: settings.turbojpeg,
            policy: settings.policy,
            guarantee: settings.guarantee,
        };
        let tls = settings.tls.as_ref().map(Tls::new).transpose()?;
        let listener = TcpListener::bind(&settings.listen).await;
        let listener = listener.with_context(|| format!("cannot listen at {}", settings.listen))?;
        let disk = settings.disk_cache.and_then(|(place, bytes)| Disk::start(&place, bytes));
        let web = Arc::new(Web::new(READERS, settings.requests as usize));
        let images = Arc::new(Images::new(bounds, disk, Arc::clone(&web), Arc::clone(&counters))?);
        // A thread is left for who asks; and what is guaranteed is about what is asked for.
        let may_prefetch = settings.threads.get() > 1 && settings.guarantee.is_none();
        let most = if may_prefetch { settings.prefetch } else { 0 };
        let prefetch = Arc::new(Prefetch::new(most.into()));
        // With a token, no cache that others share may have what one was given.
        let is_open = settings.token.is_none() && settings.secret.is_none();
        let who = if is_open { "public" } else { "private" };
        let cache = HeaderValue::from_str(&format!("{who}, max-age={}", settings.max_age))?;
        let workers = settings.workers.map(|workers| {
            let listener = std::net::TcpListener::bind(&workers.listen);
            let listener = listener
                .with_context(|| format!("cannot let workers come to {}", workers.listen))?;
            let threads = settings.worker_threads.get();
            let most = Allowed { workers: allowance::MOST, threads };
            Workers::start(listener, workers.secret, most, Arc::clone(&images))
        });
        let workers = workers.transpose()?;
        let app = App {
            slides: Arc::new(Slides::new(
                library,
                settings.open_slides,
                Limits {
                    openslide: settings.openslide,
                    turbojpeg: settings.turbojpeg,
                    ..work::limits_with(settings.max_tile)
                },
                Arc::clone(&web),
                Arc::clone(&counters),
            )),
            prefetch: Arc::clone(&prefetch),
            annotations: Arc::new(Annotations::new(settings.annotations)),
            images: Arc::clone(&images),
            remote: web,
            workers: workers.clone(),
            counters,
            requests: Default::default(),
            most: Most { side: settings.max_side, area: settings.max_area },
            base: settings.base_url,
            cache,
            token: settings.token.as_deref().map(Token::new),
            key: settings.secret.as_deref().map(Key::new),
            is_encrypted: tls.is_some(),
            no_associated: settings.no_associated,
            shows_persons: settings.shows_persons,
            rate: settings.rate.map(Rate::new),
            permits: Arc::new(Semaphore::new(settings.requests as usize)),
            most_requests: settings.requests as usize,
            room: Arc::new(Room::new(settings.memory as u64)),
            timeout: settings.timeout,
        };
        let prefetching = tokio::spawn(prefetch.run(images));
        let router = web::router(Arc::new(app));
        let (connections, grace) = (settings.connections, settings.grace);
        Ok(Self { listener, router, tls, slides, connections, grace, workers, prefetching })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where workers come to, if they may.
    #[must_use]
    pub fn worker_address(&self) -> Option<SocketAddr> {
        self.workers.as_ref().map(|workers| workers.address())
    }

    /// Serves until `end` comes, and until what was asked for before is answered.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Self { listener, router, tls, connections, grace, workers, prefetching, .. } = self;
        let acceptor = tls.as_ref().map(Tls::acceptor);
        let keeper = tls.map(|tls| tokio::spawn(tls.keep()));
        connections::serve(listener, router, acceptor, connections, grace, end).await;
        if let Some(keeper) = keeper {
            keeper.abort();
        }
        if let Some(workers) = workers {
            // A panic there ends nothing else.
            let _ = tokio::task::spawn_blocking(move || workers.end()).await;
        }
        prefetching.abort();
        // It has let go of what it held.
        let _ = prefetching.await;
    }
}

/// Until one of them comes.
async fn next([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Takes all descriptors that the process may have: a slide in DICOM has one for each file.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!("the limit of open files stays {:?}: {error}", limit.current);
    }
}

/// `seekwire slides`
pub(crate) fn command(options: &Options) -> Result<()> {
    if let Some(Action::Sign(options)) = &options.action {
        return sign::command(options);
    }
    tracing_subscriber::fmt()
        .with_max_level(options.log)
        .with_ansi(false)
        .with_writer(io::stderr)
        // Nobody may read it any more; that is no reason to panic.
        .log_internal_errors(false)
        .init();
    let mut settings = Settings::of(options)?;
    allow_files();
    let mut launched = None;
    if let Some(listen) = options.workers.clone() {
        launched = launched::server()?;
        let given = worker::secret(options.worker_secret.as_deref())?;
        let secret = match (given, &launched) {
            (Some(secret), _) => secret,
            (None, Some(_)) => Secret::random()?,
            (None, None) => bail!("what must workers know? --worker-secret FILE"),
        };
        settings.workers = Some(WorkerSettings { listen, secret });
    }
    let secret = settings.workers.as_ref().map(|workers| workers.secret.clone());
    let demo = if options.demo { Some(Demo::prepare()?) } else { None };
    if let Some(demo) = &demo {
        settings.locations = vec![demo.location.clone()];
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(READERS)
        .build()?;
    let served = runtime.block_on(async {
        // From now on they end it well.
        let mut signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let mut hangup = signal(SignalKind::hangup())?;
        let server = tokio::select! {
            server = Server::bind(settings) => server?,
            () = next(&mut signals) => return Ok(()),
        };
        let count = match server.slides {
            1 => "one slide".to_owned(),
            count => format!("{count} slides"),
        };
        let address = server.address()?;
        let scheme = if server.tls.is_some() { "https" } else { "http" };
        seekwire_program::tell(format_args!("seekwire: {count} at {scheme}://{address}/"));
        if let (Some(address), Some(secret)) = (server.worker_address(), secret) {
            if let Some(launched) = launched {
                launched::tell(launched, address, &secret)?;
            }
            seekwire_program::tell(format_args!("seekwire: workers at {address}"));
        }
        if let Some(demo) = &demo {
            let about = demo.about;
            seekwire_program::tell(format_args!("seekwire: {about}; open {scheme}://{address}/"));
        }
        let has_certificate = server.tls.is_some();
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                if !has_certificate {
                    tracing::info!("SIGHUP changes nothing: there is no certificate to read again");
                }
            }
        });
        let (told, end) = oneshot::channel();
        let signalled = async {
            next(&mut signals).await;
            let _ = told.send(());
            next(&mut signals).await;
        };
        let ended = async {
            let _ = end.await;
        };
        tokio::select! {
            () = server.run(ended) => {}
            () = signalled => tracing::warn!("told to end again: what is asked for is not answered"),
        }
        Ok(())
    });
    // Reads of what does not answer are not waited for.
    runtime.shutdown_timeout(LAST);
    served
}
