//! The command `seekwire slides`. Its doc comments are the help and the manual page.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use seekwire_flow::{Guarantee, Policy};

use crate::privacy::Whom;
use crate::render::{promise, work};

/// The part of the command `seekwire` for whole-slide images
#[derive(Debug, Parser)]
#[command(
    name = "seekwire",
    bin_name = "seekwire",
    version,
    propagate_version = false,
    max_term_width = 100
)]
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
/// Serves the slides in directories, in files and on web servers by HTTP/1.1 and HTTP/2, encrypted if
/// a certificate is given: a gallery, a viewer for each slide, and the addresses that other viewers ask for,
/// by Deep Zoom, the IIIF Image API and DICOMweb. Formats are tiled TIFF and BigTIFF, Aperio SVS,
/// OME-TIFF, DICOM and OME-Zarr, and where OpenSlide is installed those of scanners that it reads.
///
/// In a directory, all slides are served that are in it or below it, also those that come later.
/// Files whose name begins with a dot are not, nor are links that lead out of the directory. A
/// slide is known by its path there, in which / stands as %2F in addresses. Of several locations
/// with the same last name, the later ones are known by it and the name of what they are in, such as
/// case2/slide.svs.
///
/// Stored JPEG tiles that fit a request are given out as they are. All else is decoded, scaled and
/// encoded once for all that ask for it, by as many threads as there are processors, and kept
/// within the memory that options allow. What nobody waits for any more is not begun.
///
/// A broken slide gives an error to those that ask for it, and the others are served.
///
/// With --workers, other processes can do a part of the work, here or on other hosts: those of
/// `seekwire slides worker`. They may come and go. What one of them leaves undone is done by others.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Addresses:
  /                                       gallery; /slides.json is the same for programs
  /slides/ID                              viewer
  /slides/ID/properties.json              size, levels, microns per pixel, what the file says
  /slides/ID/label.jpg                    an associated image: label, macro
  /slides/ID/thumbnail.jpg?width=N        the slide with at most N pixels along a side
  /slides/ID/annotations.json?bbox=L,T,R,B&zoom=Z
                                          annotations in a view, as GeoJSON
  /ID.dzi                                 Deep Zoom: descriptor
  /ID_files/LEVEL/COLUMN_ROW.jpg          Deep Zoom: tile; .png and .webp, too
  /iiif/3/ID/info.json                    IIIF Image API 3.0, level 2; /iiif/2 is version 2.1
  /iiif/3/ID/full/max/0/default.jpg       an image; region, size, rotation, quality.format
  /dicomweb/studies                       DICOMweb for slides in DICOM: WADO-RS and QIDO-RS
  /status                                 workers, how work is dealt, what is guaranteed
  /healthz                                \"ok\", for whoever looks whether the server is alive
  /metrics                                counts, for Prometheus

  Images of slides with a colour profile are converted to sRGB. With ?icc=embed they have the
  colours that are stored and the profile, with ?icc=raw only these colours. Stored tiles fit only
  then.

Environment:
  SEEKWIRE_SLIDES_TOKEN=TOKEN  as what --token-file has
  SEEKWIRE_SLIDES_WORKER_SECRET=SECRET
                               as what --worker-secret has
  SEEKWIRE_DEMO_SLIDE=FILE     what --demo serves
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
                               who asks for s3://BUCKET/KEY; if not set, keys of a profile or a
                               role are looked for, and else requests are not signed
  AWS_PROFILE                  whose keys in ~/.aws/credentials and ~/.aws/config to take
  AWS_REGION, AWS_ENDPOINT_URL where the buckets are [default: us-east-1 of AWS]
  SSL_CERT_FILE=FILE           whom to believe by https:// instead of the system's authorities

Signals:
  SIGTERM, SIGINT  accept nothing new, answer what was asked for, and end; the second one ends at
                   once
  SIGHUP           read the certificate and its key again, if there is one

Exit status:
  0  it was ended by a signal
  1  a location does not exist, the address cannot be listened at, or a file of a token, secret or
     certificate cannot be used
  2  the arguments make no sense

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
    /// Directories, files, and addresses that begin with http://, https:// or s3://; s3://BUCKET/ and
    /// s3://BUCKET/PREFIX/ are directories
    #[arg(value_name = "DIR|FILE|URL", required_unless_present = "demo", value_hint = ValueHint::AnyPath)]
    pub(crate) locations: Vec<String>,
    /// Serve a slide that comes with the server, with an annotation on it, to see what this is
    ///
    /// It is the one that SEEKWIRE_DEMO_SLIDE names, or the real one that scripts/slide has fetched
    /// into the build directory, or else a synthetic one. Standard error says which, and the address
    /// to open.
    #[arg(long, conflicts_with = "locations")]
    pub(crate) demo: bool,
    /// Listen at this address; if PORT is 0, the system picks one
    ///
    /// By default only programs on this host can connect. Standard error says the address.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(crate) listen: String,
    /// Where clients reach this server, such as https://slides.example, if it is behind a proxy
    ///
    /// Addresses in documents of IIIF begin with it. By default they begin with http://, or with
    /// https:// where there is a certificate, and the host that the client has named. A path behind
    /// the host is kept.
    #[arg(long, value_name = "URL", value_parser = base_url)]
    pub(crate) base_url: Option<String>,
    /// Ask clients for the token in the first line of FILE
    ///
    /// Programs send it as `Authorization: Bearer TOKEN`. A browser that opens /?token=TOKEN once
    /// has it in a cookie from then on. Only /healthz is open to all.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Let in whoever has an address that is signed by the secret in the first line of FILE
    ///
    /// `seekwire slides sign` signs addresses. With --token-file, either opens the server.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: Option<PathBuf>,
    /// Give out no labels, macros and other images beside the slide
    ///
    /// Labels often have names of patients on them. By default they are given out to all but those who
    /// come by a signed address, unless it was signed with --with-associated; `links` keeps
    /// them from these, too. Without labels, thumbnails are made from the slide itself, and DICOMweb
    /// knows no instances but those of the slide.
    #[arg(long, value_name = "WHOM", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "everybody", value_enum)]
    pub(crate) no_associated: Option<Whom>,
    /// Show metadata that may name a person, too
    ///
    /// By default /slides/ID/properties.json leaves out properties such as `aperio.User` and
    /// `tiff.ImageDescription`, and lists their keys under `hidden`. DICOMweb always has all metadata.
    #[arg(long)]
    pub(crate) show_persons: bool,
    /// Encrypt connections by TLS, with the certificate in FILE, in PEM
    ///
    /// Those between it and an authority follow in the same file. Both files are read again when they
    /// change, and at SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM, without a password
    #[arg(long, value_name = "FILE", requires = "tls_certificate", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Threads that decode, and as many that scale and encode [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = from_one)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Let workers come to this address; if PORT is 0, the system picks one
    ///
    /// They have to reach it as it stands here, without translation on the way. As rank 0 of a job
    /// of mpiexec or srun, the server tells the other processes its address, and a secret that it
    /// makes up; otherwise --worker-secret is needed.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) workers: Option<String>,
    /// What workers must know: the first line of FILE, 64 hexadecimal digits
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "workers")]
    pub(crate) worker_secret: Option<PathBuf>,
    /// Threads of all workers together that are given work, 16384 at most
    ///
    /// For each of them this server has four, and for a moment eight when workers come or go. If
    /// workers have more threads than that, each gets as even a share as can be. The log says so,
    /// and /status.
    #[arg(long, value_name = "N", default_value = "256", value_parser = worker_threads)]
    #[arg(requires = "workers")]
    pub(crate) worker_threads: NonZeroUsize,
    /// How work is dealt to threads here and at workers
    #[arg(long, value_enum, default_value_t = Dealing::Adaptive)]
    pub(crate) policy: Dealing,
    /// What to hold if it can be: latency=50ms, or updates=10/s
    ///
    /// A latency is that of partial updates, images for which at most four stored tiles are
    /// decompressed, as for a tile of a viewer that pans. Updates in a second are complete ones:
    /// images of more tiles, as a new view is. How many tiles go together in one piece of work is
    /// chosen so that this holds. /status says whether it does.
    #[arg(long, value_name = "latency=TIME|updates=N/s", value_parser = promise::parse)]
    pub(crate) guarantee: Option<Guarantee>,
    /// Quality of encoded JPEG, from 1 to 100, with colours in full from 90 on; stored tiles stay as
    /// they are
    #[arg(long, value_name = "N", default_value_t = 80)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) quality: u8,
    /// Bytes of encoded images to keep; KiB, MiB and GiB can follow the number
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = size)]
    pub(crate) image_cache: usize,
    /// Bytes of decoded tiles to keep
    #[arg(long, value_name = "BYTES", default_value = "128MiB", value_parser = size)]
    pub(crate) tile_cache: usize,
    /// Keep encoded images in DIR, too, so that they are there after a restart
    ///
    /// Several servers can use the same one. It is made for nobody else to read. Images of slides on
    /// web servers and in OME-Zarr, and stored tiles, are not kept. If it cannot be used, the log says
    /// so.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) disk_cache: Option<PathBuf>,
    /// Bytes that DIR may have; those are removed that were not used for longest
    #[arg(long, value_name = "BYTES", default_value = "10GiB", value_parser = size)]
    #[arg(requires = "disk_cache")]
    pub(crate) disk_cache_size: usize,
    /// Neighbours of a tile of Deep Zoom to make when nothing else is to be done, 8 at most
    ///
    /// No request waits for them. With one thread there are none, nor with --guarantee.
    #[arg(long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u8).range(..=8))]
    pub(crate) prefetch: u8,
    /// Bytes of annotations to keep
    ///
    /// One file may take up to seven eighths of it, which is about ten million points in the
    /// default.
    #[arg(long, value_name = "BYTES", default_value = "128MiB", value_parser = size)]
    pub(crate) annotation_cache: usize,
    /// Bytes for images that are being made; requests wait for their turn
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = size)]
    pub(crate) memory: usize,
    /// Slides that stay open
    #[arg(long, value_name = "N", default_value = "64", value_parser = from_one)]
    pub(crate) open_slides: NonZeroUsize,
    /// Do not ask OpenSlide about files of scanners that are not read here
    ///
    /// OpenSlide is a library in C, which is used where it is installed. If strangers can put files
    /// into the directories that are served, do without it: a fault in it is one of the server, and
    /// files of some formats name other files by any path.
    #[arg(long)]
    pub(crate) no_openslide: bool,
    /// Do not decode and encode JPEG by libjpeg-turbo
    ///
    /// It is a library in C, which is used where it is installed, since it is faster than what is
    /// built in. A fault in it is one of the server: if strangers can put files into the
    /// directories that are served, you may prefer to do without it.
    #[arg(long)]
    pub(crate) no_turbojpeg: bool,
    /// Pixels of the largest stored tile: 67108864 are 8192 x 8192, the most that can be
    ///
    /// A slide with larger ones is refused. A thread that decodes a tile may take eleven bytes for each
    /// pixel, and a decoded tile is kept only if --tile-cache has room for its three.
    #[arg(long, value_name = "PIXELS", default_value_t = work::TILE)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=work::LARGEST_TILE))]
    pub(crate) max_tile: u64,
    /// Pixels of the largest image that is given out; the largest width and height is 16384
    #[arg(long, value_name = "PIXELS", default_value_t = 16_777_216)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=268_435_456))]
    pub(crate) max_area: u64,
    /// Requests of one client address in a second, on average; no limit if not given
    ///
    /// Twice as many may come at once. One more is answered with 429. Behind a proxy, all clients
    /// have its address.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Requests that are answered at the same time; one more is answered with 503
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) requests: u32,
    /// Connections at the same time; others wait until one ends
    #[arg(long, value_name = "N", default_value_t = 1024)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) connections: u32,
    /// Seconds after which a request is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) timeout: u32,
    /// Seconds that requests have to be answered when the server is told to end
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=86_400))]
    pub(crate) grace: u32,
    /// Seconds for which clients may keep images without asking again
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=31_536_000))]
    pub(crate) max_age: u32,
    /// What to write to standard error: off, error, warn, info (each request, too) or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: tracing_subscriber::filter::LevelFilter,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    Sign(Sign),
    Worker(Worker),
}

/// Sign addresses, each of which lets in whoever has it, for a time
///
/// Prints each address with `expires` and `signature` at its end. A server that has the same secret
/// by --secret-file answers it without a token until then. If it is that of a viewer, as /slides/ID,
/// the browser that opens it gets all of that slide but its label, macro and other images beside it; any other
/// one is for itself only.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The signature is an HMAC-SHA256 by the secret, in hexadecimal digits, over the word `address`, a
line feed, and the address from its first slash on, up to before &signature=. Whoever has the secret
can make one; nothing is kept of it. Another secret ends all of them.

Examples:
  openssl rand -hex 32 > secret
  seekwire slides /data/slides --secret-file secret
  seekwire slides sign --secret-file secret --valid 7d https://slides.example/slides/case-7.svs")]
pub(crate) struct Sign {
    /// Addresses as browsers send them, whole or from the first slash on
    #[arg(value_name = "ADDRESS", required = true, value_hint = ValueHint::Url)]
    pub(crate) addresses: Vec<String>,
    /// The secret of the server is in the first line of FILE
    #[arg(long, value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: PathBuf,
    /// Let the addresses show labels, macros and metadata that may name a person, too
    ///
    /// Addresses below /dicomweb, which give out whole files, have to be signed with it.
    #[arg(long)]
    pub(crate) with_associated: bool,
    /// How long an address lets in from now on, such as 90m, 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = crate::sign::duration)]
    pub(crate) valid: Duration,
}

/// A policy of dealing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dealing {
    /// To one that can begin it now; a piece that takes longer than usual goes to another, too
    Adaptive,
    /// To the one with the fewest pieces that it has not begun
    Demand,
    /// In turn
    RoundRobin,
}

impl From<Dealing> for Policy {
    fn from(dealing: Dealing) -> Self {
        match dealing {
            Dealing::Adaptive => Self::Adaptive,
            Dealing::Demand => Self::Demand,
            Dealing::RoundRobin => Self::RoundRobin,
        }
    }
}

/// Decompress, scale and encode for a server, on this host
///
/// Comes to a server of slides that lets workers come (--workers), and does what it has to be done,
/// with threads of its own. It needs no slides. It can be ended at any time: what it has not done,
/// others do. If the server is not there, or goes, it tries again until it is ended.
///
/// As a process of the same job of mpiexec or srun as the server, it learns address and secret from
/// rank 0, and ends with the server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Environment:
  SEEKWIRE_SLIDES_WORKER_SECRET=SECRET  as what --worker-secret has

Exit status:
  0  the server of the job has ended, or has workers enough
  1  there is no secret, no address, or no server in this job
  2  the arguments make no sense

Examples:
  openssl rand -hex 32 > secret
  seekwire slides /data/slides --workers 10.0.0.1:7000 --worker-secret secret
  seekwire slides worker 10.0.0.1:7000 --worker-secret secret
  mpiexec -n 1 seekwire slides /data/slides --workers node1:0 : -n 4 seekwire slides worker")]
pub(crate) struct Worker {
    /// Where the server lets workers come; in a job with it, not needed
    #[arg(value_name = "HOST:PORT")]
    pub(crate) server: Option<String>,
    /// What the server has as --worker-secret
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    pub(crate) worker_secret: Option<PathBuf>,
    /// Threads that work [default: the number of processors]
    #[arg(long, value_name = "N", value_parser = from_one)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Do not decode and encode JPEG by libjpeg-turbo, a library in C that is used where it is installed
    #[arg(long)]
    pub(crate) no_turbojpeg: bool,
    /// What to write to standard error: off, error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: tracing_subscriber::filter::LevelFilter,
}

/// A number that is not zero.
fn from_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "a number, from 1 on".to_owned())
}

/// No filter of a pipeline has more copies.
fn worker_threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = from_one(text).ok().filter(|number| number.get() <= 16_384);
    number.ok_or_else(|| "a number, from 1 to 16384".to_owned())
}

/// A number of bytes.
fn size(text: &str) -> Result<usize, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.iter().find_map(|(unit, power)| Some((text.strip_suffix(unit)?, *power)));
    let (digits, power) = unit.unwrap_or((text, 0));
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<usize>().ok().filter(|_| is_number);
    let bytes = number.and_then(|number| number.checked_mul(1 << power));
    bytes.ok_or_else(|| "bytes, such as 1000000, 64KiB, 100MiB, 1GiB".to_owned())
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
    fn sizes_have_units() {
        assert_eq!((size("7"), size("2KiB"), size("1GiB")), (Ok(7), Ok(2048), Ok(1 << 30)));
        for wrong in
            ["", "KiB", "-1", "+1", "1 MiB", "1MB", "99999999999999999999", "99999999999GiB"]
        {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(from_one("3").map(NonZeroUsize::get), Ok(3));
        assert!(["", "0", "-1", "x"].iter().all(|text| from_one(text).is_err()));
        assert!(worker_threads("16384").is_ok() && worker_threads("16385").is_err());
        assert_eq!(base_url("https://a/b/"), Ok("https://a/b".to_owned()));
        assert!(base_url("a").is_err() && base_url("http://a\n").is_err());
    }
}
