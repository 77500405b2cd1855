//! This project's server and its peers: how they are started on this host, and their addresses for
//! the same views.

use std::cell::OnceCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use tempfile::TempDir;

use super::http::HttpClient;
use super::usage::{self, ServerUsage};
use super::view::{Region, Slide, SlideView};
use crate::launch::{self, Error, Mode, Program, Running};

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerKind {
    Seekwire,
    Iipsrv,
    WsiStreamer,
    Openslide,
    LargeImage,
}

/// Memory limits of this project's server: encoded images, decoded tiles, and images that are being
/// made, in MiB.
pub(crate) const BOUNDS: [u64; 3] = [64, 64, 128];
/// Quality of JPEG, the same for all.
const QUALITY: &str = "80";
/// Timeout for a server to start.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

const OPENSLIDE: &str = include_str!("../../peer/slides_openslide.py");
const LARGE_IMAGE: &str = include_str!("../../peer/slides_large_image.py");

/// Listing of a bucket, which an object store returns to show that it exists.
const LISTING: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>slides</Name>\
                       <KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";

/// Its places in Debian.
const IIPSRV: [&str; 2] = ["/usr/lib/iipimage-server/iipsrv.fcgi", "/usr/lib/cgi-bin/iipsrv.fcgi"];

/// Starts servers of the slides in a directory.
#[derive(Debug)]
pub(crate) struct Servers {
    /// The program of the laboratory; the others are beside it.
    command: PathBuf,
    directory: PathBuf,
    /// One for each processor, for servers that use several processes.
    processes: usize,
    pythons: [OnceCell<Result<PathBuf, String>>; 2],
}

/// A server that listens at 127.0.0.1. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningServer {
    pub(crate) peer: ServerKind,
    pub(crate) address: SocketAddr,
    /// Resident bytes before the first request.
    pub(crate) at_start: u64,
    processes: Vec<Running>,
    /// Settings, scripts and logs.
    _files: TempDir,
}

impl RunningServer {
    /// Its address for a view, if it has one.
    pub(crate) fn path(&self, slide: &Slide, view: SlideView) -> Option<String> {
        self.peer.path(slide, view)
    }

    pub(crate) fn usage(&self) -> ServerUsage {
        let groups: Vec<u32> = self.processes.iter().map(Running::id).collect();
        usage::of_groups(&groups)
    }

    /// A count of this project's server.
    ///
    /// # Errors
    ///
    /// If the server has no such count.
    pub(crate) fn count(&self, name: &str) -> Result<f64> {
        count(self.address, name)
    }

    /// `error`, or why the server has gone.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match self.processes.iter().find_map(Running::obituary) {
            Some(obituary) => error.context(obituary),
            None => error,
        }
    }
}

impl ServerKind {
    /// Its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seekwire => "Seekwire",
            Self::Iipsrv => "iipsrv",
            Self::WsiStreamer => "wsi-streamer",
            Self::Openslide => "OpenSlide Deep Zoom",
            Self::LargeImage => "large_image",
        }
    }

    /// The address of a view, if it has one.
    pub(crate) fn path(self, slide: &Slide, view: SlideView) -> Option<String> {
        let path = self.plain(slide, view)?;
        match (slide.channels, self) {
            (None, _) => Some(path),
            (Some(channels), Self::Seekwire | Self::LargeImage) => {
                Some(format!("{path}?c={channels}"))
            }
            (Some(_), _) => None,
        }
    }

    /// The address of a view without channels.
    fn plain(self, slide: &Slide, view: SlideView) -> Option<String> {
        let Slide { file, width, height, tile, images, .. } = slide;
        let Region { x, y, width: wide, height: high, to } = view.region(slide);
        // The last level of Deep Zoom is the slide.
        let last = u32::BITS - (width.max(height) - 1).leading_zeros();
        let iiif = format!("{x},{y},{wide},{high}/{},{}/0/default.jpg", to.0, to.1);
        Some(match (self, view) {
            (Self::Seekwire, SlideView::Tile(column, row)) => {
                format!("/{file}_files/{last}/{column}_{row}.jpg")
            }
            (Self::Seekwire, SlideView::Half(column, row)) => {
                format!("/{file}_files/{}/{column}_{row}.jpg", last - 1)
            }
            (Self::Seekwire, SlideView::Region(_)) => format!("/iiif/3/{file}/{iiif}"),
            (Self::Iipsrv, SlideView::Tile(column, row)) => {
                let number = row * width.div_ceil(*tile) + column;
                // It numbers resolutions from the smallest one on, and takes all images for
                // resolutions.
                format!("/iipsrv?FIF={file}&JTL={},{number}", images - 1)
            }
            (Self::Iipsrv, SlideView::Half(..) | SlideView::Region(_)) => {
                format!("/iipsrv?IIIF={file}/{iiif}")
            }
            (Self::WsiStreamer, SlideView::Tile(column, row)) => {
                format!("/tiles/{file}/0/{column}/{row}.jpg")
            }
            (Self::Openslide, SlideView::Tile(column, row)) => {
                format!("/{tile}/{file}_files/{last}/{column}_{row}.jpg")
            }
            (Self::Openslide, SlideView::Half(column, row)) => {
                format!("/{tile}/{file}_files/{}/{column}_{row}.jpg", last - 1)
            }
            // The levels above the slide itself.
            (Self::LargeImage, SlideView::Tile(column, row)) => {
                format!("/{file}/0/{column}/{row}.jpg")
            }
            (Self::LargeImage, SlideView::Half(column, row)) => {
                format!("/{file}/1/{column}/{row}.jpg")
            }
            (Self::LargeImage, SlideView::Region(_)) => {
                format!("/{file}/region/{x},{y},{wide},{high}/{},{}.jpg", to.0, to.1)
            }
            (Self::WsiStreamer, SlideView::Half(..) | SlideView::Region(_))
            | (Self::Openslide, SlideView::Region(_)) => return None,
        })
    }
}

impl Servers {
    pub(crate) fn new(command: &Path, directory: &Path) -> Self {
        let processes = std::thread::available_parallelism().map_or(1, usize::from);
        let (command, directory) = (command.to_owned(), directory.to_owned());
        Self { command, directory, processes, pythons: Default::default() }
    }

    /// Starts one that has not opened any slide yet.
    ///
    /// # Errors
    ///
    /// If it is not installed, with what to do about that, or does not start.
    pub(crate) fn start(&self, peer: ServerKind) -> Result<RunningServer> {
        const ATTEMPTS: usize = 3;
        let mut attempt = 1;
        loop {
            // A port is free only until another process takes it.
            let error = match self.try_start(peer) {
                Ok(server) => return Ok(server),
                Err(error) => error,
            };
            let ended_early = matches!(error.downcast_ref(), Some(Error::EndedEarly { .. }));
            if !ended_early || attempt == ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
        }
    }

    fn try_start(&self, peer: ServerKind) -> Result<RunningServer> {
        let files = tempfile::tempdir().context("cannot make a directory for a server")?;
        let port = launch::free_port()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let processes = match peer {
            ServerKind::Seekwire => vec![self.seekwire(address)?],
            ServerKind::Iipsrv => self.iipsrv(port, files.path())?,
            ServerKind::WsiStreamer => self.wsi_streamer(port, files.path())?,
            ServerKind::Openslide => vec![self.python(0, address, files.path())?],
            ServerKind::LargeImage => vec![self.python(1, address, files.path())?],
        };
        // The last process is the one that listens there.
        if let Some(server) = processes.last() {
            server.wait_for_port(address)?;
        }
        let mut server = RunningServer { peer, address, at_start: 0, processes, _files: files };
        server.at_start = server.usage().resident;
        Ok(server)
    }

    fn seekwire(&self, address: SocketAddr) -> Result<Running> {
        let program = Program::new(slides_program(&self.command)?, &Mode::Plain);
        let program = options(program.arg("slides").arg(&self.directory), &address.to_string());
        Ok(program.timeout(STARTUP_TIMEOUT).start()?)
    }

    /// As many processes as there are processors, since each handles one request at a time, behind
    /// lighttpd.
    fn iipsrv(&self, port: u16, files: &Path) -> Result<Vec<Running>> {
        let program = IIPSRV.iter().find(|path| Path::new(path).is_file());
        let program =
            program.context("iipsrv is not installed (Debian package: iipimage-server)")?;
        let mut processes = Vec::new();
        let mut backends = Vec::new();
        for _ in 0..self.processes {
            let backend = launch::free_port()?;
            let iipsrv = Program::new(program, &Mode::Plain)
                .args(["--bind", &format!("127.0.0.1:{backend}"), "--backlog", "1024"])
                .env("FILESYSTEM_PREFIX", format!("{}/", self.directory.display()))
                .env("JPEG_QUALITY", QUALITY)
                .env("VERBOSITY", "0")
                .timeout(STARTUP_TIMEOUT)
                .start()?;
            iipsrv.wait_for_port(SocketAddr::from((Ipv4Addr::LOCALHOST, backend)))?;
            processes.push(iipsrv);
            backends.push(format!(
                "( \"host\" => \"127.0.0.1\", \"port\" => {backend}, \"check-local\" => \"disable\" )"
            ));
        }
        let more = format!("fastcgi.server = ( \"/iipsrv\" => ( {} ) )", backends.join(", "));
        processes.push(lighttpd(port, files, files, "\"mod_fastcgi\"", &more)?);
        Ok(processes)
    }

    /// It reads slides from object stores only: lighttpd answers ranges, as these do.
    fn wsi_streamer(&self, port: u16, files: &Path) -> Result<Vec<Running>> {
        let program = self.programs().join("wsi-streamer/bin/wsi-streamer");
        let program = if program.is_file() { program } else { "wsi-streamer".into() };
        let (root, bucket) = (files.join("store"), "slides");
        std::fs::create_dir(&root)?;
        std::os::unix::fs::symlink(&self.directory, root.join(bucket))?;
        // At its start it requests a listing, and an empty one suffices.
        std::fs::write(root.join("listing.xml"), LISTING)?;
        let store = launch::free_port()?;
        let listing = lighttpd(store, files, &root, "", "index-file.names = ( \"/listing.xml\" )")?;
        listing.wait_for_port(SocketAddr::from((Ipv4Addr::LOCALHOST, store)))?;
        let streamer = Program::new(program, &Mode::Plain)
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--no-tracing"])
            .args(["--s3-endpoint", &format!("http://127.0.0.1:{store}"), "--s3-bucket"])
            .arg(bucket)
            .args(["--jpeg-quality", QUALITY])
            .env("AWS_ACCESS_KEY_ID", "anybody")
            .env("AWS_SECRET_ACCESS_KEY", "anything")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .timeout(STARTUP_TIMEOUT);
        let streamer = streamer.start().map_err(|error| match error {
            Error::NotInstalled { .. } => anyhow!(
                "wsi-streamer is not installed: `scripts/deps lab` builds it beside the build, or `cargo install \
                 wsi-streamer`"
            ),
            error => error.into(),
        })?;
        Ok(vec![listing, streamer])
    }

    /// A script under gunicorn: that of OpenSlide, or that of `large_image`.
    fn python(&self, which: usize, address: SocketAddr, files: &Path) -> Result<Running> {
        let (name, script) = [("openslide", OPENSLIDE), ("large_image", LARGE_IMAGE)][which];
        let python = self.pythons[which]
            .get_or_init(|| self.interpreter(name).map_err(|error| error.to_string()));
        let python = python.as_ref().map_err(|why| anyhow!("{why}"))?;
        let module = format!("slides_{name}");
        std::fs::write(files.join(format!("{module}.py")), script)?;
        let program = Program::new(python, &Mode::Plain)
            .args(["-m", "gunicorn", "--bind", &address.to_string(), "--chdir"])
            .arg(files)
            .args(["--workers", &self.processes.to_string()])
            // Other worker classes close the connection after each answer.
            .args(["--worker-class", "gthread", "--threads", "4", "--keep-alive", "120"])
            .args(["--log-level", "warning", "--preload", &format!("{module}:application")])
            .env("SLIDES", &self.directory)
            .env("QUALITY", QUALITY);
        Ok(program.timeout(STARTUP_TIMEOUT).start()?)
    }

    /// Directory of the programs that `scripts/deps lab` installs beside the build.
    fn programs(&self) -> PathBuf {
        let build = self.command.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        build.join("programs")
    }

    /// The Python that has large_image, and the modules that make slides with channels.
    ///
    /// # Errors
    ///
    /// If it is not installed, with what to do about that.
    pub(crate) fn large_image(&self) -> Result<&Path> {
        let python = self.pythons[1]
            .get_or_init(|| self.interpreter("large_image").map_err(|error| error.to_string()));
        python.as_deref().map_err(|why| anyhow!("{why}"))
    }

    /// A Python that has the module and gunicorn.
    fn interpreter(&self, module: &str) -> Result<PathBuf> {
        let candidates = [
            self.programs().join("large-image/bin/python"),
            PathBuf::from("/usr/bin/python3"),
            PathBuf::from("python3"),
        ];
        // OpenSlide for Python is measured as Debian packages it, where it is installed.
        let from = usize::from(module == "openslide");
        let import = format!("import gunicorn, {module}");
        let has_it = |python: &&PathBuf| {
            let program = Program::new(python.as_path(), &Mode::Plain).args(["-c", &import]);
            program.timeout(STARTUP_TIMEOUT).run().is_ok()
        };
        candidates[from..].iter().find(has_it).cloned().with_context(|| match module {
            "openslide" => {
                "OpenSlide for Python is not installed (Debian packages: python3-openslide gunicorn)"
            }
            _ => {
                "large_image is not installed: `scripts/deps lab` puts it beside the build, or `pip install large-image \
                 large-image-source-tiff large-image-source-ometiff large-image-source-openslide tifffile gunicorn`"
            }
        })
    }
}

/// Options of this project's server whenever it is measured.
pub(crate) fn options(program: Program, listen: &str) -> Program {
    let [images, tiles, memory] = BOUNDS.map(|mebibytes| format!("{mebibytes}MiB"));
    program.args([
        "--listen",
        listen,
        "--log",
        "warn",
        "--quality",
        QUALITY,
        "--image-cache",
        &images,
        "--tile-cache",
        &tiles,
        "--memory",
        &memory,
    ])
}

/// A count of this project's server: the sum of all that have the name.
///
/// # Errors
///
/// If it does not answer, or has no such count.
pub(crate) fn count(address: SocketAddr, name: &str) -> Result<f64> {
    let metrics = HttpClient::connect(address, STARTUP_TIMEOUT)?.get("/metrics")?;
    sum(&String::from_utf8_lossy(&metrics), name)
}

fn sum(metrics: &str, name: &str) -> Result<f64> {
    let name = format!("seekwire_slides_{name}");
    let is_declared = metrics.lines().any(|line| {
        line.strip_prefix("# TYPE ").and_then(|line| line.split(' ').next()) == Some(&name)
    });
    ensure!(is_declared, "the server does not count {name}");
    let mut sum = 0.0;
    for line in metrics.lines() {
        let rest = line.strip_prefix(&name).filter(|rest| rest.starts_with(['{', ' ']));
        let Some((_, value)) = rest.and_then(|rest| rest.rsplit_once(' ')) else { continue };
        sum += value.parse::<f64>().with_context(|| line.to_owned())?;
    }
    Ok(sum)
}

/// The program of this project that serves slides: beside `command`, as in a build directory, or in
/// `../lib/seekwire` of its directory, as installed.
pub(crate) fn slides_program(command: &Path) -> Result<PathBuf> {
    const NAME: &str = "seekwire-slides";
    let beside = command.parent().unwrap_or(Path::new("."));
    let candidates = ["", "../lib/seekwire"].map(|relative| beside.join(relative).join(NAME));
    candidates.iter().find(|path| path.is_file()).cloned().with_context(|| {
        let looked_at = candidates.each_ref().map(|path| path.display().to_string()).join(", ");
        format!("not installed: {NAME} (looked at {looked_at}); run `make build`")
    })
}

fn lighttpd(port: u16, files: &Path, root: &Path, modules: &str, more: &str) -> Result<Running> {
    let settings = format!(
        "server.document-root = \"{}\"\n\
         server.bind = \"127.0.0.1\"\n\
         server.port = {port}\n\
         server.modules = ( {modules} )\n\
         server.errorlog = \"{}/errors\"\n\
         server.max-keep-alive-requests = 65535\n\
         server.max-keep-alive-idle = 120\n\
         server.max-fds = 4096\n\
         {more}\n",
        root.display(),
        files.display()
    );
    let path = files.join("lighttpd.conf");
    std::fs::write(&path, settings)?;
    // Servers live in sbin, which is not in every PATH.
    let program = Path::new("/usr/sbin/lighttpd");
    let program = if program.is_file() { program } else { Path::new("lighttpd") };
    let program = Program::new(program, &Mode::Plain).arg("-D").arg("-f").arg(&path);
    program.timeout(STARTUP_TIMEOUT).start().map_err(|error| match error {
        Error::NotInstalled { .. } => {
            anyhow!("lighttpd is not installed (Debian package: lighttpd)")
        }
        error => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_view_has_an_address_everywhere_or_none() {
        let slide = Slide {
            file: "a.tif".to_owned(),
            width: 6660,
            height: 5934,
            tile: 256,
            images: 6,
            channels: None,
        };
        let path = |peer: ServerKind, view| peer.path(&slide, view);
        let region = Region { x: 1, y: 2, width: 600, height: 900, to: (200, 300) };
        let views = [SlideView::Tile(3, 5), SlideView::Half(3, 5), SlideView::Region(region)];
        let of = |peer| views.map(|view| path(peer, view).unwrap_or_default());
        assert_eq!(
            of(ServerKind::Seekwire),
            [
                "/a.tif_files/13/3_5.jpg",
                "/a.tif_files/12/3_5.jpg",
                "/iiif/3/a.tif/1,2,600,900/200,300/0/default.jpg"
            ]
        );
        assert_eq!(
            of(ServerKind::Iipsrv),
            [
                "/iipsrv?FIF=a.tif&JTL=5,138",
                "/iipsrv?IIIF=a.tif/1536,2560,512,512/256,256/0/default.jpg",
                "/iipsrv?IIIF=a.tif/1,2,600,900/200,300/0/default.jpg"
            ]
        );
        assert_eq!(of(ServerKind::WsiStreamer), ["/tiles/a.tif/0/3/5.jpg", "", ""]);
        assert_eq!(
            of(ServerKind::Openslide),
            ["/256/a.tif_files/13/3_5.jpg", "/256/a.tif_files/12/3_5.jpg", ""]
        );
        assert_eq!(
            of(ServerKind::LargeImage),
            ["/a.tif/0/3/5.jpg", "/a.tif/1/3/5.jpg", "/a.tif/region/1,2,600,900/200,300.jpg"]
        );
        let slide = Slide { channels: Some("0:ff0000:0-9"), ..slide };
        let all = [
            ServerKind::Seekwire,
            ServerKind::Iipsrv,
            ServerKind::WsiStreamer,
            ServerKind::Openslide,
            ServerKind::LargeImage,
        ];
        let paths = all.map(|peer| peer.path(&slide, SlideView::Tile(3, 5)).unwrap_or_default());
        let tile = "/a.tif_files/13/3_5.jpg?c=0:ff0000:0-9";
        assert_eq!(paths, [tile, "", "", "", "/a.tif/0/3/5.jpg?c=0:ff0000:0-9"]);
    }

    #[test]
    fn counts_with_labels_add_up() {
        let metrics = "# TYPE seekwire_slides_done_total counter\n\
                       seekwire_slides_done_total{worker=\"1\",host=\"a b\"} 3\n\
                       seekwire_slides_done_total{worker=\"2\",host=\"c\"} 4\n\
                       # TYPE seekwire_slides_done_total_now gauge\nseekwire_slides_done_total_now 9\n\
                       # TYPE seekwire_slides_none gauge\n";
        let of = |name| sum(metrics, name);
        assert_eq!(of("done_total").unwrap(), 7.0);
        assert_eq!((of("done_total_now").unwrap(), of("none").unwrap()), (9.0, 0.0));
        assert!(of("done").is_err());
    }

    #[test]
    fn a_server_that_was_not_built_is_named() {
        let error = slides_program(Path::new("/nowhere/bin/seekwire-lab")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/bin/seekwire-slides"), "{error}");
    }
}
