//! `/metrics`: counters in the text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::render::farm::Farm;
use crate::web::App;
use crate::workers::remote::State;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    DeepZoom,
    Iiif,
    DicomWeb,
    /// About one slide: the viewer, properties, associated images.
    Slide,
    Other,
}

const ROUTES: [(Route, &str); 5] = [
    (Route::DeepZoom, "deepzoom"),
    (Route::Iiif, "iiif"),
    (Route::DicomWeb, "dicomweb"),
    (Route::Slide, "slide"),
    (Route::Other, "other"),
];

impl Route {
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with("/iiif/") {
            Self::Iiif
        } else if path.starts_with("/dicomweb/") {
            Self::DicomWeb
        } else if path.starts_with("/slides/") {
            Self::Slide
        } else if path.ends_with(".dzi") || path.contains("_files/") {
            Self::DeepZoom
        } else {
            Self::Other
        }
    }
}

/// Upper bounds of the buckets for times, in seconds.
const BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Requests of each kind, by the first digit of their status.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    routes: [Counts; ROUTES.len()],
}

#[derive(Debug, Default)]
struct Counts {
    /// Indexed from 1 to 5.
    statuses: [AtomicU64; 6],
    buckets: [AtomicU64; BUCKETS.len()],
    nanoseconds: AtomicU64,
}

impl Requests {
    pub(crate) fn add(&self, route: Route, status: u16, took: Duration) {
        let Some(at) = ROUTES.iter().position(|(known, _)| *known == route) else { return };
        let counts = &self.routes[at];
        let class = usize::from(status / 100).min(5);
        counts.statuses[class].fetch_add(1, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        counts.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn write(&self, text: &mut Text) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.family("requests_total", "counter", "Requests answered.");
        for ((_, name), counts) in ROUTES.iter().zip(&self.routes) {
            for (class, count) in counts.statuses.iter().enumerate().skip(1) {
                let labels = format!("route=\"{name}\",status=\"{class}xx\"");
                text.sample("requests_total", &labels, of(count) as f64);
            }
        }
        let name = "request_seconds";
        text.family(
            name,
            "histogram",
            "Time from a request's headers to its response's, in seconds.",
        );
        for ((_, route), counts) in ROUTES.iter().zip(&self.routes) {
            let mut sum = 0;
            for (bound, count) in BUCKETS.iter().zip(&counts.buckets) {
                sum += of(count);
                let labels = format!("route=\"{route}\",le=\"{bound}\"");
                text.sample(&format!("{name}_bucket"), &labels, sum as f64);
            }
            let all = counts.statuses.iter().map(of).sum::<u64>() as f64;
            let labels = format!("route=\"{route}\"");
            text.sample(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), all);
            let seconds = of(&counts.nanoseconds) as f64 / 1e9;
            text.sample(&format!("{name}_sum"), &labels, seconds);
            text.sample(&format!("{name}_count"), &labels, all);
        }
    }
}

/// All metrics as text.
pub(crate) fn text(app: &App) -> String {
    let mut text = Text(String::new());
    for (name, about, count) in app.counters.all() {
        text.single(name, "counter", about, count as f64);
    }
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let counts = app.prefetch.counts();
    for (name, about, counter) in [
        ("made", "Neighbours of tiles made while the server was idle.", &counts.made),
        ("given_up", "Neighbours abandoned because of a client's request.", &counts.given_up),
        ("used", "Neighbours requested by a client while they were being made.", &counts.used),
    ] {
        text.single(&format!("prefetch_{name}_total"), "counter", about, of(counter));
    }
    if let Some(disk) = app.images.disk() {
        let counts = disk.counts();
        for (name, about, counter) in [
            ("found", "Images found on disk.", &counts.found),
            ("missing", "Images not found on disk.", &counts.missing),
            ("broken", "Images on disk that were corrupted.", &counts.broken),
            ("written", "Images written to disk.", &counts.written),
            ("failed", "Images that could not be written at all or in time.", &counts.failed),
            ("removed", "Images removed because others were used more recently.", &counts.removed),
        ] {
            text.single(&format!("disk_{name}_total"), "counter", about, of(counter));
        }
    }
    app.requests.write(&mut text);
    let (images, tiles) = (app.images.bytes(), app.images.tiles().bytes());
    text.family("cache_bytes", "gauge", "Bytes in the cache.");
    text.sample("cache_bytes", "of=\"images\"", images.0 as f64);
    text.sample("cache_bytes", "of=\"tiles\"", tiles.0 as f64);
    let annotations = app.annotations.bytes();
    text.sample("cache_bytes", "of=\"annotations\"", annotations.0 as f64);
    let disk = app.images.disk().map_or((0, 0), |disk| disk.bytes());
    text.sample("cache_bytes", "of=\"disk\"", disk.0 as f64);
    text.family("cache_limit_bytes", "gauge", "Maximum bytes in the cache.");
    text.sample("cache_limit_bytes", "of=\"images\"", images.1 as f64);
    text.sample("cache_limit_bytes", "of=\"tiles\"", tiles.1 as f64);
    text.sample("cache_limit_bytes", "of=\"annotations\"", annotations.1 as f64);
    text.sample("cache_limit_bytes", "of=\"disk\"", disk.1 as f64);
    let open = app.slides.count() as f64;
    text.single("slides_open", "gauge", "Open slides.", open);
    let about = "Requests whose response has not been sent completely, including this one.";
    text.single("requests_in_flight", "gauge", about, app.in_flight() as f64);
    let about = "Threads reading from web servers, or about to.";
    text.single("remote_reads", "gauge", about, app.remote.threads.taken() as f64);
    let about = "Bytes in memory of responses being sent.";
    text.single("sending_bytes", "gauge", about, app.room.taken() as f64);
    text.family("work_seconds_total", "counter", "Time spent by worker threads, in seconds.");
    let farms: [(&str, &Farm); 2] =
        [("decompress", app.images.tiles().farm()), ("finish", app.images.farm())];
    for (name, farm) in farms {
        text.sample("work_seconds_total", &format!("work=\"{name}\""), farm.busy().as_secs_f64());
    }
    workers(&mut text, app);
    guarantee(&mut text, app);
    text.0
}

fn workers(text: &mut Text, app: &App) {
    let Some(workers) = &app.workers else { return };
    let (remotes, come, gone) = workers.all();
    let known: Vec<_> = remotes
        .iter()
        .filter_map(|remote| {
            let host = &remote.hello()?.host;
            // Names are printable; these two characters need escaping.
            let host = host.replace('\\', "\\\\").replace('"', "\\\"");
            Some((remote, format!("worker=\"{}\",host=\"{host}\"", remote.number)))
        })
        .collect();
    text.single("workers_come_total", "counter", "Workers that have connected.", come as f64);
    text.single("workers_gone_total", "counter", "Workers that have disconnected.", gone as f64);
    text.family("worker_works", "gauge", "1 for a worker that works, 0 for a silent one.");
    for (remote, labels) in &known {
        text.sample("worker_works", labels, f64::from(remote.state() == State::Works));
    }
    text.family("worker_done_total", "counter", "Pieces of work done by a worker.");
    for (remote, labels) in &known {
        text.sample("worker_done_total", labels, remote.done.load(Ordering::Relaxed) as f64);
    }
    let about = "Pieces of work that a worker left to others.";
    text.family("worker_undone_total", "counter", about);
    for (remote, labels) in &known {
        text.sample("worker_undone_total", labels, remote.undone.load(Ordering::Relaxed) as f64);
    }
}

fn guarantee(text: &mut Text, app: &App) {
    let Some(kept) = app.images.promise().map(|promise| promise.kept()) else { return };
    if let Some(holds) = kept.holds {
        let about = "Whether the guarantee holds, judging by the last updates.";
        text.single("guarantee_holds", "gauge", about, f64::from(holds));
    }
    let kinds = [("partial", &kept.partial), ("complete", &kept.complete)];
    text.family("updates_total", "counter", "Updates done, if there is a guarantee.");
    for (kind, measured) in kinds {
        text.sample("updates_total", &format!("kind=\"{kind}\""), measured.updates as f64);
    }
    text.family("update_seconds", "gauge", "Mean time of the last updates.");
    for (kind, measured) in kinds {
        let Some(recent) = measured.recent() else { continue };
        text.sample("update_seconds", &format!("kind=\"{kind}\""), recent.as_secs_f64());
    }
}

struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, about: &str) {
        let name = format!("seekwire_slides_{name}");
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.0, "seekwire_slides_{name}{labels} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, about: &str, value: f64) {
        self.family(name, kind, about);
        self.sample(name, "", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_bucket() {
        let requests = Requests::default();
        requests.add(Route::of("/a.svs.dzi"), 200, Duration::from_micros(700));
        requests.add(Route::of("/a.svs_files/0/0_0.jpg"), 404, Duration::from_secs(9));
        requests.add(Route::of("/iiif/3/a.svs/info.json"), 200, Duration::from_millis(2));
        let mut text = Text(String::new());
        requests.write(&mut text);
        for line in [
            "requests_total{route=\"deepzoom\",status=\"2xx\"} 1",
            "requests_total{route=\"deepzoom\",status=\"4xx\"} 1",
            "request_seconds_bucket{route=\"deepzoom\",le=\"0.0005\"} 0",
            "request_seconds_bucket{route=\"deepzoom\",le=\"0.001\"} 1",
            "request_seconds_bucket{route=\"deepzoom\",le=\"5\"} 1",
            "request_seconds_bucket{route=\"deepzoom\",le=\"+Inf\"} 2",
            "request_seconds_count{route=\"iiif\"} 1",
            "request_seconds_sum{route=\"iiif\"} 0.002",
        ] {
            assert!(text.0.contains(&format!("seekwire_slides_{line}\n")), "{line}:\n{}", text.0);
        }
        assert_eq!(Route::of("/slides/a.svs"), Route::Slide);
        assert_eq!(Route::of("/slides.json"), Route::Other);
    }
}
