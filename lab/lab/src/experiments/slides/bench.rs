//! One run of one server.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::Value;

use super::cases::{
    CACHED, COLD, CPU, EFFORT, FIRST, HELD, LOAD, MEDIAN, MISSING, PEAK, PSNR, RATE, SIZE, TAIL,
    TWICE, closed, real, viewers,
};
use crate::record::Metric;
use crate::schedule::Trial;
use crate::slides::http::HttpClient;
use crate::slides::load::{self, ClientLoad, LoadMeasurement, Pace, TimedRequest};
use crate::slides::pixels::Picture;
use crate::slides::servers::{BOUNDS, RunningServer, ServerKind, Servers};
use crate::slides::test_slides::Material;
use crate::slides::trace::{self, TileRequest};
use crate::slides::usage::ServerUsage;
use crate::slides::view::{Slide, SlideView, ViewKind};

/// The work of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// On this many connections, without a pause.
    Closed(ViewKind, u64),
    /// For this many viewers that pan.
    Viewers(ViewKind, u64),
    /// A first tile of a slide that it has not opened.
    Cold,
    /// All tiles of the real slide, one after the other.
    Real(ViewKind),
}

/// Maximum number of regions of a closed load.
const REGIONS: usize = 4000;
/// Number of views that are requested before a load and not in it, so that every process has opened
/// the slide.
pub(super) const BEFORE: usize = 32;
/// Connections of a viewer, as browsers have for a server.
pub(super) const CONNECTIONS: usize = 6;
/// Time within which all viewers have arrived and seen their first view.
pub(super) const COMING: Duration = Duration::from_secs(1);
/// Timeout for an answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of pictures that are compared, and their minimum contrast: empty ones would all be alike.
const COMPARED: usize = 3;
const CONTRAST: f64 = 12.0;
/// Servers scale in different ways, with offsets of up to half a pixel. So squares of this many
/// pixels are compared: squares of the same place have more than [`SAME`] dB in common, and those
/// of a place 16 pixels away have less.
const SQUARE: usize = 4;
const SAME: f64 = 22.0;

type Pictures = Vec<(SlideView, Picture)>;
/// The file of a slide, and the kind of its views.
type Part = (String, ViewKind);

pub(super) struct Bench {
    servers: Servers,
    material: Material,
    quick: bool,
    /// Some views as vips renders them.
    expected: RefCell<BTreeMap<Part, Result<Pictures, String>>>,
    /// For each server that has shown the right pictures: the PSNR of the worst one.
    shown: RefCell<BTreeMap<(ServerKind, Part), f64>>,
    violation: OnceCell<String>,
    /// The slide with channels, made on demand, or why it cannot be made.
    channels: OnceCell<Result<Slide, String>>,
}

/// A load on a server: the slide, what was requested of it, and the case that it is recorded as.
struct Loaded<'a> {
    slide: &'a Slide,
    what: ViewKind,
    case: &'a str,
    x: Option<f64>,
}

impl Bench {
    pub(super) fn new(command: &Path, material: Material, quick: bool) -> Self {
        let servers = Servers::new(command, &material.directory);
        let (expected, shown, violation, channels) = Default::default();
        Self { servers, material, quick, expected, shown, violation, channels }
    }

    /// How long a load is measured: at most if it is closed.
    pub(super) fn milliseconds(&self, is_open: bool) -> u64 {
        match (self.quick, is_open) {
            (true, false) => 300,
            (true, true) => 1000,
            (false, false) => 1500,
            (false, true) => 3000,
        }
    }

    /// An event that must never happen, if one did.
    pub(super) fn violation(&self) -> Option<String> {
        self.violation.get().cloned()
    }

    /// The slides, for reports.
    pub(super) fn slides(&self) -> Result<Value> {
        let Material { real, pyramid, flat, large, .. } = &self.material;
        let of = |slide: &Slide, what: &str| -> Result<Value> {
            let Slide { width, height, tile, .. } = slide;
            let mebibytes = self.material.bytes(slide)? as f64 / f64::from(1 << 20);
            let text = format!("{what}: {width} x {height} pixels in tiles of {tile}");
            Ok(format!("{text}, {mebibytes:.0} MiB").into())
        };
        let mut all = vec![
            of(real, "real, one level (all of \"real slide\")")?,
            of(pyramid, "synthetic, all levels (stored tiles, regions)")?,
            of(flat, "synthetic, one level (decoded tiles)")?,
            of(large, "synthetic, all levels (cold open)")?,
        ];
        if let Some(Ok(slide)) = self.channels.get() {
            all.push(of(
                slide,
                "synthetic, five channels of 16 bits, all levels (tiles of five channels)",
            )?);
        }
        Ok(all.into())
    }

    pub(super) fn run(&self, peer: ServerKind, work: Work, trial: &mut Trial) -> Result<()> {
        match work {
            Work::Closed(what, connections) => self.closed(peer, what, connections, trial),
            Work::Viewers(what, count) => self.viewers(peer, what, count, trial),
            Work::Cold => self.cold(peer, trial),
            Work::Real(what) => self.real(peer, what, trial),
        }
    }

    fn slide(&self, what: ViewKind) -> Result<&Slide> {
        Ok(match what {
            ViewKind::Stored | ViewKind::Regions => &self.material.pyramid,
            ViewKind::Decoded => &self.material.flat,
            ViewKind::Channels => {
                let made = self.channels.get_or_init(|| {
                    let python = self.servers.large_image();
                    let made = python.and_then(|python| self.material.channels(python));
                    made.map_err(|error| format!("{error:#}"))
                });
                made.as_ref().map_err(|why| anyhow!("{why}"))?
            }
        })
    }

    /// A server that has shown the right pictures, and has the slide open in all its processes.
    fn server(&self, peer: ServerKind, slide: &Slide, what: ViewKind) -> Result<RunningServer> {
        let server = self.servers.start(peer)?;
        let part = (slide.file.clone(), what);
        let is_known = self.shown.borrow().contains_key(&(peer, part.clone()));
        if !is_known {
            let worst = self.compare(&server, slide, what);
            let worst = worst.map_err(|error| server.explain(error))?;
            self.shown.borrow_mut().insert((peer, part), worst);
        }
        Ok(server)
    }

    /// The PSNR of the worst of some pictures.
    fn compare(&self, server: &RunningServer, slide: &Slide, what: ViewKind) -> Result<f64> {
        let mut expected = self.expected.borrow_mut();
        let part = (slide.file.clone(), what);
        let expected = expected
            .entry(part)
            .or_insert_with(|| self.pictures(slide, what).map_err(|error| format!("{error:#}")));
        let expected = expected.as_ref().map_err(|why| anyhow!("{why}"))?;
        let mut client = HttpClient::connect(server.address, RESPONSE_TIMEOUT)?;
        let mut worst = f64::INFINITY;
        for (view, picture) in expected {
            let path = path(server, slide, *view)?;
            let body = client.get(&path)?;
            let shown = Picture::of_jpeg(&body).with_context(|| {
                let text = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
                format!("{path}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
            })?;
            let psnr = shown.psnr(picture).with_context(|| path.clone())?;
            let common = shown.coarse(SQUARE)?.psnr(&picture.coarse(SQUARE)?)?;
            if common < SAME {
                let wrong = format!("{path}: another picture, with {common:.1} dB in common");
                if server.peer == ServerKind::Seekwire {
                    let _ = self.violation.set(wrong.clone());
                }
                return Err(anyhow!(wrong));
            }
            worst = worst.min(psnr);
        }
        Ok(worst)
    }

    /// Some views with visible contents.
    fn pictures(&self, slide: &Slide, what: ViewKind) -> Result<Pictures> {
        let mut pictures = Pictures::new();
        for view in what.views(slide, REGIONS).into_iter().take(30) {
            let picture = self.material.expected(slide, view)?;
            if picture.contrast() >= CONTRAST {
                pictures.push((view, picture));
            }
            if pictures.len() == COMPARED {
                return Ok(pictures);
            }
        }
        Err(anyhow!("{} of {} show nothing to compare", what.name(), slide.file))
    }

    fn closed(
        &self,
        peer: ServerKind,
        what: ViewKind,
        connections: u64,
        trial: &mut Trial,
    ) -> Result<()> {
        let slide = self.slide(what)?;
        let server = self.server(peer, slide, what)?;
        let views = what.views(slide, REGIONS);
        let paths = views.iter().map(|view| path(&server, slide, *view));
        let paths: Vec<String> = paths.collect::<Result<_>>()?;
        let (before, paths) = paths.split_at(BEFORE.min(paths.len() / 4));
        self.load(&server, before, connections, RESPONSE_TIMEOUT)?;
        let time = Duration::from_millis(self.milliseconds(false));
        let time = if trial.is_warm_up() { time / 4 } else { time };
        let idle = server.usage();
        let measured = self.load(&server, paths, connections, time)?;
        let case = closed(what, connections);
        let x = Some(connections as f64);
        trial.record(&case, x, RATE, measured.rate());
        self.record(&server, &Loaded { slide, what, case: &case, x }, &measured, idle, trial)
    }

    fn load(
        &self,
        server: &RunningServer,
        paths: &[String],
        connections: u64,
        time: Duration,
    ) -> Result<LoadMeasurement> {
        let clients = [without_a_pause(paths.len(), connections)];
        let measured = load::run(server.address, paths, &clients, Pace::Closed(time));
        measured.map_err(|error| server.explain(error))
    }

    fn viewers(
        &self,
        peer: ServerKind,
        what: ViewKind,
        count: u64,
        trial: &mut Trial,
    ) -> Result<()> {
        let slide = self.slide(what)?;
        let server = self.server(peer, slide, what)?;
        let time = Duration::from_millis(self.milliseconds(true));
        let time = if trial.is_warm_up() { time / 4 } else { time };
        let (views, clients) = panning(slide, what, count, time);
        let paths = views.into_iter().map(|view| path(&server, slide, view));
        let paths: Vec<String> = paths.collect::<Result<_>>()?;
        // The first tiles are those that the first viewer sees in any case.
        self.load(
            &server,
            &paths[..BEFORE.min(paths.len() / 4)],
            CONNECTIONS as u64,
            RESPONSE_TIMEOUT,
        )?;
        let idle = server.usage();
        let measured = load::run(server.address, &paths, &clients, Pace::Open(COMING));
        let measured = measured.map_err(|error| server.explain(error))?;
        let (case, x) = (viewers(what, count), Some(count as f64));
        let all = measured.answers + measured.unanswered;
        trial.record(&case, x, MISSING, 100.0 * measured.unanswered as f64 / all as f64);
        self.record(&server, &Loaded { slide, what, case: &case, x }, &measured, idle, trial)
    }

    fn real(&self, peer: ServerKind, what: ViewKind, trial: &mut Trial) -> Result<()> {
        let slide = &self.material.real;
        let server = self.server(peer, slide, what)?;
        let views = what.views(slide, 0);
        let paths = views.iter().map(|view| path(&server, slide, *view));
        let paths: Vec<String> = paths.collect::<Result<_>>()?;
        let idle = server.usage();
        let measured = self.load(&server, &paths, 1, RESPONSE_TIMEOUT)?;
        trial.record(real(what), None, RATE, measured.rate());
        self.record(
            &server,
            &Loaded { slide, what, case: &real(what), x: None },
            &measured,
            idle,
            trial,
        )
    }

    /// Records the readings that all loads have in common.
    fn record(
        &self,
        server: &RunningServer,
        loaded: &Loaded<'_>,
        measured: &LoadMeasurement,
        idle: ServerUsage,
        trial: &mut Trial,
    ) -> Result<()> {
        if trial.is_warm_up() {
            // It may have been too short for anything to be measured.
            return Ok(());
        }
        let Loaded { slide, what, case, x } = *loaded;
        let used = server.usage();
        let cpu = used.cpu.saturating_sub(idle.cpu).as_secs_f64();
        let mut record = |metric: Metric, value: f64| trial.record(case, x, metric, value);
        for (metric, which) in [(MEDIAN, 0.5), (TAIL, 0.99)] {
            let quantile = measured.latencies.quantile(which).context("nothing was measured")?;
            record(metric, quantile as f64 / 1e6);
        }
        record(CPU, 100.0 * cpu / measured.seconds);
        record(EFFORT, 1e6 * cpu / measured.answers as f64);
        record(SIZE, measured.bytes as f64 / measured.answers as f64 / 1024.0);
        record(PEAK, used.peak as f64 / f64::from(1 << 20));
        record(LOAD, 100.0 * measured.cpu.as_secs_f64() / measured.seconds);
        let part = (slide.file.clone(), what);
        if let Some(psnr) = self.shown.borrow().get(&(server.peer, part)) {
            record(PSNR, *psnr);
        }
        if server.peer == ServerKind::Seekwire {
            let allowed = BOUNDS.iter().sum::<u64>() << 20;
            record(HELD, used.peak.saturating_sub(server.at_start) as f64 / allowed as f64);
            record(TWICE, server.count("decoded_twice_total")?);
        }
        Ok(())
    }

    fn cold(&self, peer: ServerKind, trial: &mut Trial) -> Result<()> {
        let slide = &self.material.large;
        // Compared before, because comparing opens it.
        let part = (slide.file.clone(), ViewKind::Stored);
        let is_known = self.shown.borrow().contains_key(&(peer, part));
        if !is_known {
            drop(self.server(peer, slide, ViewKind::Stored)?);
        }
        let server = self.servers.start(peer)?;
        let cached = self.material.forget(slide)?;
        let side = slide.tile;
        let view = SlideView::Tile(slide.width / side / 2, slide.height / side / 2);
        let path = path(&server, slide, view)?;
        let mut client = HttpClient::connect(server.address, RESPONSE_TIMEOUT)?;
        let began = Instant::now();
        let body = client.get(&path).map_err(|error| server.explain(error))?;
        let took = began.elapsed();
        ensure!(body.starts_with(&[0xff, 0xd8]), "{path}: no JPEG");
        trial.record(COLD, None, FIRST, took.as_secs_f64() * 1e3);
        trial.record(COLD, None, PEAK, server.usage().peak as f64 / f64::from(1 << 20));
        if let Some(bytes) = cached {
            trial.record(COLD, None, CACHED, bytes as f64 / f64::from(1 << 20));
        }
        Ok(())
    }
}

/// Connections that request this many paths, one after the other.
pub(super) fn without_a_pause(paths: usize, connections: u64) -> ClientLoad {
    let timed = (0..paths).map(|path| TimedRequest { due: Duration::ZERO, path }).collect();
    ClientLoad { connections: connections as usize, requests: timed }
}

/// Viewers that pan, and the views that they request: all tiles, row by row.
pub(super) fn panning(
    slide: &Slide,
    what: ViewKind,
    count: u64,
    time: Duration,
) -> (Vec<SlideView>, Vec<ClientLoad>) {
    let grid = what.grid(slide);
    let row = |row| (0..grid.columns).map(move |column| what.tile(column, row));
    let number = |request: &TileRequest| {
        request.row as usize * grid.columns as usize + request.column as usize
    };
    let client = |viewer| {
        let requests = trace::viewer(grid, viewer, COMING + time);
        let timed =
            requests.iter().map(|request| TimedRequest { due: request.at, path: number(request) });
        ClientLoad { connections: CONNECTIONS, requests: timed.collect() }
    };
    ((0..grid.rows).flat_map(row).collect(), (0..count).map(client).collect())
}

fn path(server: &RunningServer, slide: &Slide, view: SlideView) -> Result<String> {
    let path = server.path(slide, view);
    path.with_context(|| format!("{} has no address for this", server.peer.name()))
}
