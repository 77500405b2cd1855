//! The command `seekwire slides`. Its doc comments are the help and the manual page.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use seekwire_flow::{DealingPolicy, Guarantee};
use seekwire_program::command_line;
use seekwire_values::{Address, Log, Size, Time};

use crate::privacy::LabelPolicy;
use crate::render::{guarantee, work};

const DAY: Duration = Duration::from_secs(86_400);

/// The part of the command `seekwire` for whole-slide images
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Slides(Slides),
}

/// Serve whole slides to browsers
///
/// Serves the slides in directories, in files and on web servers over HTTP/1.1 and HTTP/2,
/// encrypted if a certificate is given: a gallery, a viewer for each slide, and interfaces for
/// other viewers: Deep Zoom, the IIIF Image API and DICOMweb. Supported formats are tiled TIFF and
/// BigTIFF, Aperio SVS, OME-TIFF, DICOM and OME-Zarr, and, if OpenSlide is installed, the scanner
/// formats that it reads.
///
/// All slides in or below a directory are served, including those added later, except files whose
/// name begins with a dot, and links that lead out of the directory. A slide is identified by its
/// path in the directory; in addresses, / is written as %2F. If several locations have the same
/// last name, the later ones are identified by it and the name of their parent, such as
/// case2/slide.svs.
///
/// Stored JPEG tiles that fit a request are sent unchanged. Anything else is decoded, scaled and
/// encoded once for all clients, by as many threads as there are processors, and cached within the
/// memory that options allow. Work whose clients have all disconnected is not begun.
///
/// Requests for a broken slide fail; other slides are served.
///
/// With --workers, processes started with `seekwire slides worker` share the work, on this host or
/// on others. They may come and go: work that one of them leaves undone is done by others.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Addresses:
  /                                  gallery; for programs, /slides.json
  /slides/ID                         viewer
  /slides/ID/properties.json         size, levels, microns per pixel, metadata
  /slides/ID/label.jpg               an associated image: label, macro
  /slides/ID/thumbnail.jpg?width=N   the slide, at most N pixels along a side
  /slides/ID/annotations.json?bbox=L,T,R,B&zoom=Z
                                     annotations in a view, as GeoJSON
  /ID.dzi                            Deep Zoom: descriptor
  /ID_files/LEVEL/COLUMN_ROW.jpg     Deep Zoom: tile; also .png and .webp
  /iiif/3/ID/info.json               IIIF Image API 3.0, level 2; /iiif/2 is 2.1
  /iiif/3/ID/full/max/0/default.jpg  an image; region, size, rotation, format
  /dicomweb/studies                  slides in DICOM: WADO-RS and QIDO-RS
  /status                            workers, distribution of work, guarantees
  /healthz                           \"ok\", for health checks
  /metrics                           counters, for Prometheus

  Images of slides with a colour profile are converted to sRGB. With ?icc=embed
  they have the stored colours and the profile, with ?icc=raw only the stored
  colours. Only in these two cases can stored tiles be sent unchanged.

Environment:
  SEEKWIRE_SLIDES_TOKEN=TOKEN  the token, instead of --token-file
  SEEKWIRE_SLIDES_WORKER_SECRET=SECRET
                               the secret, instead of --worker-secret
  SEEKWIRE_DEMO_SLIDE=FILE     the slide for --demo
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
                               keys for s3://BUCKET/KEY; if not set, keys of a
                               profile or a role are used, and without these,
                               requests are not signed
  AWS_PROFILE                  the profile in ~/.aws/credentials and
                               ~/.aws/config to use
  AWS_REGION, AWS_ENDPOINT_URL where the buckets are [default: us-east-1 of AWS]
  SSL_CERT_FILE=FILE           authorities to trust for https:// instead of the
                               system's

Signals:
  SIGTERM, SIGINT  accept no new requests, answer pending ones, and exit; a
                   second signal exits at once
  SIGHUP           reload the certificate and its key, if there is one

Exit status:
  0  ended by a signal
  1  a location does not exist, the address cannot be listened on, or the file
     of a token, secret, certificate or log cannot be used
  2  invalid arguments

Examples:
  seekwire slides --demo
  seekwire slides /data/slides
  seekwire slides case-7.svs http://archive.example/slides/42.tiff
  seekwire slides s3://archive/2026/
  seekwire slides /data/slides --listen 0.0.0.0:80 --token-file token --rate 200
  seekwire slides /data/slides --workers 10.0.0.1:7000 --worker-secret secret
  seekwire slides /data/slides --guarantee latency=50ms
  curl -H \"Authorization: Bearer $(cat token)\" http://host/slides.json")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Slides {
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
    /// Directories, files, and addresses that begin with http://, https:// or s3://; s3://BUCKET/
    /// and s3://BUCKET/PREFIX/ are directories
    #[arg(value_name = "DIR|FILE|URL", required_unless_present = "demo", value_hint = ValueHint::AnyPath)]
    pub(crate) locations: Vec<String>,
    /// Serve an example slide with an annotation, to try the server out
    ///
    /// The slide is the one that SEEKWIRE_DEMO_SLIDE names, or the real one that scripts/slide has
    /// fetched into the build directory, or else a synthetic one. Standard error reports which, and
    /// the address to open.
    #[arg(long, conflicts_with = "locations")]
    pub(crate) demo: bool,
    /// Listen at this address; if PORT is 0, the system picks one
    ///
    /// A part that is left out is that of the default. With 127.0.0.1, only programs on this host
    /// can connect. Standard error reports the address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: Address,
    /// URL under which clients reach this server, such as https://slides.example, if it is behind a
    /// proxy
    ///
    /// Addresses in IIIF documents begin with it. By default they begin with http://, or https://
    /// if there is a certificate, and the host that the client has named. The URL may include a
    /// path.
    #[arg(long, value_name = "URL", value_parser = base_url)]
    pub(crate) base_url: Option<String>,
    /// Require clients to send the token in the first line of FILE
    ///
    /// Programs send it as `Authorization: Bearer TOKEN`. A browser that opens /?token=TOKEN once
    /// keeps it in a cookie. Only /healthz is open to all.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Admit clients with addresses signed with the secret in the first line of FILE
    ///
    /// `seekwire slides sign` signs addresses. With --token-file, either is sufficient.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: Option<PathBuf>,
    /// Do not serve labels, macros and other associated images
    ///
    /// Labels often show names of patients. By default all clients get them, except those with a
    /// signed address that was not signed with --with-associated; `links` withholds them from all
    /// signed addresses. Without labels, thumbnails are made from the slide itself, and DICOMweb
    /// lists only instances of the slide.
    #[arg(long, value_name = "WHOM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "everybody", value_enum)]
    pub(crate) no_associated: Option<LabelPolicy>,
    /// Also show metadata that may name a person
    ///
    /// By default /slides/ID/properties.json leaves out properties such as `aperio.User` and
    /// `tiff.ImageDescription`, and lists their keys under `hidden`. DICOMweb always has all
    /// metadata.
    #[arg(long)]
    pub(crate) show_persons: bool,
    /// Encrypt connections with TLS, using the certificate in FILE, in PEM
    ///
    /// Intermediate certificates follow in the same file. Both files are reloaded when they change,
    /// and at SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM, without a password
    #[arg(long, value_name = "FILE", requires = "tls_certificate", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Threads that decode, and as many that scale and encode [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Accept workers at this address; if PORT is 0, the system picks one
    ///
    /// HOST is 127.0.0.1 if it is left out, which only this host can reach, and PORT 7000. Workers
    /// must reach exactly this address, without address translation. As rank 0 of an
    /// mpiexec or srun job, the server passes its address and a generated secret to the other
    /// processes; otherwise --worker-secret is required.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) workers: Option<Address>,
    /// Secret of the workers: the first line of FILE, 64 hexadecimal digits
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "workers")]
    pub(crate) worker_secret: Option<PathBuf>,
    /// Maximum threads of all workers together that are given work, up to 16384
    ///
    /// Each of them costs four threads in this server, and eight for a moment when workers come or
    /// go. If workers have more threads in total, each gets as even a share as possible; the log
    /// and /status report this.
    #[arg(long, value_name = "N", default_value = "256", value_parser = threads)]
    #[arg(requires = "workers")]
    pub(crate) worker_threads: NonZeroUsize,
    /// How work is distributed among threads here and at workers
    ///
    /// Without workers and --guarantee, each thread takes the next piece of work when it is free.
    #[arg(long, value_enum, default_value_t = PolicyArgument::Adaptive)]
    pub(crate) policy: PolicyArgument,
    /// Guarantee to keep if possible: latency=50ms or updates=10/s
    ///
    /// A latency is that of partial updates: images for which at most four stored tiles are
    /// decompressed, such as a tile of a viewer that pans. A rate is that of complete updates:
    /// images of more tiles, such as a new view. The server chooses how many tiles form one piece
    /// of work so that the guarantee is met. /status reports whether it is.
    #[arg(long, value_name = "latency=TIME|updates=N/s", value_parser = guarantee::parse)]
    pub(crate) guarantee: Option<Guarantee>,
    /// Quality of encoded JPEG, from 1 to 100, with full colour resolution from 90 on and where
    /// channels are blended; stored tiles are not changed
    #[arg(long, value_name = "N", default_value_t = 80)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) quality: u8,
    /// Memory for encoded images that are cached
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = Size::within(0..=u64::MAX))]
    pub(crate) image_cache: Size,
    /// Memory for decoded tiles that are cached
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = Size::within(0..=u64::MAX))]
    pub(crate) tile_cache: Size,
    /// Also cache encoded images in DIR, so that they survive a restart
    ///
    /// Several servers can share a directory. It is created without access for other users. Images
    /// of slides on web servers and in OME-Zarr, and stored tiles, are not cached there. If the
    /// directory cannot be used, this is logged.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) disk_cache: Option<PathBuf>,
    /// Maximum size of all images in DIR; the least recently used ones are removed
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = Size::within(0..=u64::MAX))]
    #[arg(requires = "disk_cache")]
    pub(crate) disk_cache_size: Size,
    /// Neighbours of a Deep Zoom tile to make while the server is idle, at most 8
    ///
    /// No request waits for them. They are disabled with one thread, and with --guarantee.
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u8).range(..=8))]
    pub(crate) prefetch: u8,
    /// Memory for annotations that are cached
    ///
    /// One file may take up to seven eighths of it, which is about ten million points by default.
    #[arg(long, value_name = "SIZE", default_value = "128MiB", value_parser = Size::within(0..=u64::MAX))]
    pub(crate) annotation_cache: Size,
    /// Memory for images in progress; requests wait for their turn
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = Size::within(0..=u64::MAX))]
    pub(crate) memory: Size,
    /// Maximum number of open slides
    #[arg(long, value_name = "N", default_value = "64", value_parser = from_one)]
    pub(crate) open_slides: NonZeroUsize,
    /// Do not let OpenSlide read scanner files that are not supported here
    ///
    /// OpenSlide is a C library, which is used if it is installed. If untrusted users can put files
    /// into the directories that are served, do without it: a fault in it is a fault of the server,
    /// and files of some formats name other files by any path.
    #[arg(long)]
    pub(crate) no_openslide: bool,
    /// Do not decode and encode JPEG with libjpeg-turbo
    ///
    /// It is a C library, which is used if it is installed, because it is faster than the built-in
    /// code. A fault in it is a fault of the server: if untrusted users can put files into the
    /// directories that are served, you may prefer to do without it.
    #[arg(long)]
    pub(crate) no_turbojpeg: bool,
    /// Pixels of the largest stored tile: 67108864 are 8192 x 8192, the maximum
    ///
    /// Slides with larger tiles are refused. A thread that decodes a tile may take eleven bytes per
    /// pixel, and a decoded tile is cached only if --tile-cache has room for its three.
    #[arg(long, value_name = "PIXELS", default_value_t = work::TILE)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=work::LARGEST_TILE))]
    pub(crate) max_tile: u64,
    /// Pixels of the largest image served; the maximum width and height is 16384
    #[arg(long, value_name = "PIXELS", default_value_t = 16_777_216)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=268_435_456))]
    pub(crate) max_area: u64,
    /// Requests of one client address per second, on average; unlimited if not given
    ///
    /// Twice as many may come at once. Further requests are answered with 429. Behind a proxy, all
    /// clients share its address.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Maximum concurrent requests; further ones are answered with 503
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) requests: u32,
    /// Maximum concurrent connections; others wait until one is closed
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Timeout of a request
    #[arg(long, value_name = "TIME", default_value = "60s")]
    #[arg(value_parser = Time::within(Duration::from_secs(1)..=DAY))]
    pub(crate) timeout: Time,
    /// Time that requests have to finish when the server shuts down
    #[arg(long, value_name = "TIME", default_value = "10s")]
    #[arg(value_parser = Time::within(Duration::ZERO..=DAY))]
    pub(crate) grace: Time,
    /// Time for which clients may cache images without revalidation
    #[arg(long, value_name = "TIME", default_value = "1h")]
    #[arg(value_parser = Time::within(Duration::ZERO..=DAY * 365))]
    pub(crate) max_age: Time,
    /// Write the log to `stderr` or to a file, with this level
    ///
    /// LEVEL is off, error, warn, info (including each request), debug or trace. A level alone is
    /// that of a log on standard error. If the file name contains a colon, add the level.
    #[arg(long, value_name = "DEST:LEVEL", default_value = "info")]
    #[arg(value_parser = command_line::log())]
    pub(crate) log: Log,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    Sign(Sign),
    Worker(Worker),
}

/// Sign addresses, each of which admits its holder until it expires
///
/// Prints each address with `expires` and `signature` appended. A server that has the same secret
/// in --secret-file serves it without a token until then. If the address is that of a viewer, such
/// as /slides/ID, the browser that opens it gets all of that slide except its label, macro and
/// other associated images; any other address gives access only to itself.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The signature is an HMAC-SHA256 with the secret as key, in hexadecimal digits,
over the word `address`, a line feed, and the address from its first slash on,
up to but excluding &signature=. Any program that has the secret can make one;
the server stores nothing. Changing the secret invalidates all signed addresses.

Examples:
  openssl rand -hex 32 > secret
  seekwire slides /data/slides --secret-file secret
  seekwire slides sign --secret-file secret --valid 7d \\
      https://slides.example/slides/case-7.svs")]
pub(crate) struct Sign {
    /// Addresses as browsers send them, complete or from the first slash on
    #[arg(value_name = "ADDRESS", required = true, value_hint = ValueHint::Url)]
    pub(crate) addresses: Vec<String>,
    /// File with the server's secret in its first line
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: PathBuf,
    /// Let the addresses also show labels, macros and metadata that may name a person
    ///
    /// Addresses below /dicomweb, which serve whole files, must be signed with it.
    #[arg(long)]
    pub(crate) with_associated: bool,
    /// How long an address is valid from now on, such as 90m, 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "1d")]
    #[arg(value_parser = Time::within(Duration::from_secs(1)..=DAY * 36_600))]
    pub(crate) valid: Time,
}

/// How work is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyArgument {
    /// To a copy that can begin now; a piece that takes longer than usual also goes to another
    Adaptive,
    /// To the copy with the fewest pieces waiting
    Demand,
    /// In turn
    RoundRobin,
}

impl From<PolicyArgument> for DealingPolicy {
    fn from(argument: PolicyArgument) -> Self {
        match argument {
            PolicyArgument::Adaptive => Self::Adaptive,
            PolicyArgument::Demand => Self::Demand,
            PolicyArgument::RoundRobin => Self::RoundRobin,
        }
    }
}

/// Decompress, scale and encode for a server, on this host
///
/// Connects to a slide server that accepts workers (--workers), and does a share of its work with
/// its own threads. It needs no slides. It can be ended at any time: others do the work that it
/// leaves undone. If the server is missing or goes away, it keeps trying until it is ended.
///
/// As a process of the same mpiexec or srun job as the server, it gets address and secret from rank
/// 0, and ends with the server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Environment:
  SEEKWIRE_SLIDES_WORKER_SECRET=SECRET  the secret, instead of --worker-secret

Exit status:
  0  the server of the job has ended, or has enough workers
  1  no secret, no address, or no server in this job
  2  invalid arguments

Examples:
  openssl rand -hex 32 > secret
  seekwire slides /data/slides --workers 10.0.0.1:7000 --worker-secret secret
  seekwire slides worker 10.0.0.1:7000 --worker-secret secret
  mpiexec -n 1 seekwire slides /data/slides --workers node1:0 : \\
      -n 4 seekwire slides worker")]
pub(crate) struct Worker {
    /// Address of the server for workers, as its --workers; not needed in a job with it
    #[arg(value_name = "HOST:PORT")]
    pub(crate) server: Option<Address>,
    /// The same file as --worker-secret of the server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    pub(crate) worker_secret: Option<PathBuf>,
    /// Threads that work [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = from_one)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Do not decode and encode JPEG with libjpeg-turbo, a C library that is used if it is
    /// installed
    #[arg(long)]
    pub(crate) no_turbojpeg: bool,
    /// Write the log to `stderr` or to a file, with this level
    ///
    /// LEVEL is off, error, warn, info, debug or trace. A level alone is that of a log on standard
    /// error. If the file name contains a colon, add the level.
    #[arg(long, value_name = "DEST:LEVEL", default_value = "info")]
    #[arg(value_parser = command_line::log())]
    pub(crate) log: Log,
}

/// Parses a number other than zero.
fn from_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "a number, from 1 on".to_owned())
}

/// Parses a number of threads: at most as many as a filter of a pipeline may have copies.
fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = from_one(text).ok().filter(|number| number.get() <= 16_384);
    number.ok_or_else(|| "a number, from 1 to 16384".to_owned())
}

fn base_url(text: &str) -> Result<String, String> {
    let is_address = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    let is_printable =
        text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"?#".contains(&byte));
    match is_address && is_printable {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err("an address, such as https://slides.example".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_addresses_are_checked() {
        assert_eq!(from_one("3").map(NonZeroUsize::get), Ok(3));
        assert!(["", "0", "-1", "x"].iter().all(|text| from_one(text).is_err()));
        assert!(threads("16384").is_ok() && threads("16385").is_err());
        assert_eq!(base_url("https://a/b/"), Ok("https://a/b".to_owned()));
        assert!(base_url("a").is_err() && base_url("http://a\n").is_err());
    }

    #[test]
    fn every_policy_has_an_argument_of_its_name() {
        for policy in DealingPolicy::ALL {
            let argument = PolicyArgument::from_str(policy.name(), false).unwrap();
            assert_eq!(DealingPolicy::from(argument), policy);
        }
    }
}
