//! The server as a whole: from settings to shutdown.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::http::HeaderValue;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seekwire_flow::{DealingPolicy, Guarantee};
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
use crate::iiif::SizeLimit;
use crate::library::SlideLibrary;
use crate::logging;
use crate::prefetch::Prefetch;
use crate::privacy::LabelPolicy;
use crate::render::{Bounds, Images, work};
use crate::sign;
use crate::slide_cache::SlideCache;
use crate::web::access_control::{self, Rate, Token};
use crate::web::sending::Room;
use crate::web::signed::SigningKey;
use crate::web::tls::{Tls, TlsFiles};
use crate::web::{self, App, connections};
use crate::web_limits::Web;
use crate::workers::worker_limits::{self, Allowed};
use crate::workers::{Workers, command as worker, launcher};

/// Contains the token, if no file does.
const VARIABLE: &str = "SEEKWIRE_SLIDES_TOKEN";

/// Blocking tokio threads for reads: a disk handles several reads at a time. Slides on web servers
/// may use three quarters of them.
pub const READERS: usize = 64;
/// How long pending reads are waited for at the end.
const LAST: Duration = Duration::from_secs(1);

/// The settings of a server. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directories, files and addresses.
    pub locations: Vec<String>,
    /// `HOST:PORT`.
    pub listen: String,
    /// URL under which clients reach the server, without a trailing slash; `None` for the host that
    /// the client names.
    pub base_url: Option<String>,
    /// The token that clients must send.
    pub token: Option<String>,
    /// The secret that signs addresses.
    pub secret: Option<String>,
    /// Clients that get no labels and macros; `None` for those with a signed address that does not
    /// allow them.
    pub no_associated: Option<LabelPolicy>,
    /// Whether metadata that may name a person is shown.
    pub shows_persons: bool,
    /// The certificate for TLS; `None` for plain connections.
    pub tls: Option<TlsFiles>,
    /// Threads that decode, and as many that encode.
    pub threads: NonZeroUsize,
    /// JPEG quality, from 1 to 100.
    pub quality: u8,
    /// Cached encoded images.
    pub image_cache: usize,
    /// Cached decoded tiles.
    pub tile_cache: usize,
    /// Directory of cached encoded images, and its limit.
    pub disk_cache: Option<(PathBuf, u64)>,
    /// Neighbours of a tile that are made while the server is idle.
    pub prefetch: u8,
    /// Cached annotations; a little less is the limit of one file.
    pub annotations: usize,
    /// Images in progress.
    pub memory: usize,
    /// Maximum number of open slides.
    pub open_slides: NonZeroUsize,
    /// Whether OpenSlide may read scanner files that are not supported here.
    pub openslide: bool,
    /// Whether libjpeg-turbo, if installed, decodes and encodes JPEG.
    pub turbojpeg: bool,
    /// Pixels of the largest stored tile, at most 64 Mi.
    pub max_tile: u64,
    /// Maximum width and height of an image, in pixels.
    pub max_side: u32,
    /// Pixels of the largest image.
    pub max_area: u64,
    /// Maximum requests of a client per second.
    pub rate: Option<u32>,
    /// Maximum concurrent requests.
    pub requests: u32,
    /// Maximum concurrent connections.
    pub connections: u32,
    /// How long a request may take.
    pub timeout: Duration,
    /// How long requests may take during shutdown.
    pub grace: Duration,
    /// Seconds for which clients may cache images.
    pub max_age: u32,
    /// Where workers connect, if they may.
    pub workers: Option<WorkerSettings>,
    /// Threads of all workers that are given work; each costs four threads here.
    pub worker_threads: NonZeroUsize,
    /// How work is distributed.
    pub policy: DealingPolicy,
    /// The guarantee for updates.
    pub guarantee: Option<Guarantee>,
}

/// How workers connect to a server.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// `HOST:PORT`.
    pub listen: String,
    /// The secret that workers must know.
    pub secret: Secret,
}

impl Settings {
    /// The settings of `seekwire slides` without options, except that the system picks the port.
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
            policy: DealingPolicy::default(),
            guarantee: None,
        }
    }

    /// Blocking threads that the tokio runtime of a server should have (`max_blocking_threads`):
    /// those that read, decode and encode.
    #[must_use]
    pub fn blocking_threads(&self) -> usize {
        self.threads.get().saturating_mul(2).saturating_add(READERS)
    }

    fn of(options: &Options) -> Result<Self> {
        let new = Self::new(options.locations.clone());
        Ok(Self {
            listen: options.listen.or("127.0.0.1", 8080),
            base_url: options.base_url.clone(),
            token: token(options)?,
            secret: options.secret_file.as_deref().map(sign::secret).transpose()?,
            no_associated: options.no_associated,
            shows_persons: options.show_persons,
            tls: options
                .tls_certificate
                .clone()
                .zip(options.tls_key.clone())
                .map(|(certificate, key)| TlsFiles { certificate, key }),
            threads: options.threads.unwrap_or(new.threads),
            quality: options.quality,
            image_cache: options.image_cache.in_memory(),
            tile_cache: options.tile_cache.in_memory(),
            disk_cache: options
                .disk_cache
                .clone()
                .map(|directory| (directory, options.disk_cache_size.get())),
            prefetch: options.prefetch,
            annotations: options.annotation_cache.in_memory(),
            memory: options.memory.in_memory(),
            open_slides: options.open_slides,
            openslide: !options.no_openslide,
            turbojpeg: !options.no_turbojpeg,
            max_tile: options.max_tile,
            max_area: options.max_area,
            rate: options.rate,
            requests: options.requests,
            connections: options.connections,
            timeout: options.timeout.get(),
            grace: options.grace.get(),
            max_age: options.max_age.get().as_secs() as u32,
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
            Err(std::env::VarError::NotUnicode(_)) => bail!("{VARIABLE}: not UTF-8"),
            _ => return Ok(None),
        },
    };
    if !access_control::is_usable(&token) {
        bail!(
            "{from}: a token has visible characters of ASCII, no blanks, quotes, commas, semicolons"
        );
    }
    Ok(Some(token))
}

/// A listening server.
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
    /// Finds the slides, starts the threads and listens. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// A location that does not exist, two slides of one name, an address that cannot be listened
    /// on, an unusable certificate, or no threads.
    pub async fn bind(settings: Settings) -> Result<Self> {
        let locations = settings.locations;
        let library = tokio::task::spawn_blocking(move || SlideLibrary::new(&locations)).await??;
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
        let disk =
            settings.disk_cache.and_then(|(directory, bytes)| Disk::start(&directory, bytes));
        let threads = settings.threads.get();
        let web = Arc::new(Web::new(READERS, threads, settings.requests as usize));
        let images = Arc::new(Images::new(bounds, disk, Arc::clone(&web), Arc::clone(&counters))?);
        // One thread stays free for requests; and a guarantee covers requested images only.
        let may_prefetch = settings.threads.get() > 1 && settings.guarantee.is_none();
        let most = if may_prefetch { settings.prefetch } else { 0 };
        let prefetch = Arc::new(Prefetch::new(most.into()));
        // With a token, shared caches must not store answers.
        let is_open = settings.token.is_none() && settings.secret.is_none();
        let who = if is_open { "public" } else { "private" };
        let cache = HeaderValue::from_str(&format!("{who}, max-age={}", settings.max_age))?;
        let workers = settings.workers.map(|workers| {
            let listener = std::net::TcpListener::bind(&workers.listen);
            let listener = listener
                .with_context(|| format!("cannot listen for workers at {}", workers.listen))?;
            let threads = settings.worker_threads.get();
            let most = Allowed { workers: worker_limits::MOST, threads };
            Workers::start(listener, workers.secret, most, Arc::clone(&images))
        });
        let workers = workers.transpose()?;
        let app = App {
            slides: Arc::new(SlideCache::new(
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
            most: SizeLimit { side: settings.max_side, area: settings.max_area },
            base: settings.base_url,
            cache,
            token: settings.token.as_deref().map(Token::new),
            key: settings.secret.as_deref().map(SigningKey::new),
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

    /// The address on which it listens.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address for workers, if there is one.
    #[must_use]
    pub fn worker_address(&self) -> Option<SocketAddr> {
        self.workers.as_ref().map(|workers| workers.address())
    }

    /// Serves until `end` completes, and until earlier requests are answered.
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
        // It has released its resources.
        let _ = prefetching.await;
    }
}

/// Waits for either signal.
async fn next([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Raises the limit of open files to the maximum: a DICOM slide has many files.
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
    logging::start(&options.log)?;
    let mut settings = Settings::of(options)?;
    allow_files();
    let mut launched = None;
    if let Some(workers) = &options.workers {
        launched = launcher::server()?;
        let file_secret = worker::secret(options.worker_secret.as_deref())?;
        let secret = match (file_secret, &launched) {
            (Some(secret), _) => secret,
            (None, Some(_)) => Secret::random()?,
            (None, None) => bail!("workers need a secret: --worker-secret FILE"),
        };
        settings.workers = Some(WorkerSettings { listen: worker::address(workers), secret });
    }
    let secret = settings.workers.as_ref().map(|workers| workers.secret.clone());
    let demo = if options.demo { Some(Demo::prepare()?) } else { None };
    if let Some(demo) = &demo {
        settings.locations = vec![demo.location.clone()];
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(settings.blocking_threads())
        .build()?;
    let served = runtime.block_on(async {
        // From now on, these signals shut the server down cleanly.
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
                launcher::tell(launched, address, &secret)?;
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
        let (stop, end) = oneshot::channel();
        let signalled = async {
            next(&mut signals).await;
            let _ = stop.send(());
            next(&mut signals).await;
        };
        let ended = async {
            let _ = end.await;
        };
        tokio::select! {
            () = server.run(ended) => {}
            () = signalled => tracing::warn!("second signal: pending requests are not answered"),
        }
        Ok(())
    });
    // Hung reads are not waited for.
    runtime.shutdown_timeout(LAST);
    served
}
