//! `/metrics`: the counters of all parts of the server.

use std::sync::atomic::{AtomicU64, Ordering};

use seekwire_program::metrics::Metrics;

use super::app::App;
use crate::render::farm::Farm;
use crate::workers::remote::WorkerState;

/// All metrics as text.
pub(super) fn text(app: &App) -> String {
    let mut text = Metrics::new("seekwire_slides_");
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
    text.sample("cache_bytes", &[("of", "images")], images.0 as f64);
    text.sample("cache_bytes", &[("of", "tiles")], tiles.0 as f64);
    let annotations = app.annotations.bytes();
    text.sample("cache_bytes", &[("of", "annotations")], annotations.0 as f64);
    let disk = app.images.disk().map_or((0, 0), |disk| disk.bytes());
    text.sample("cache_bytes", &[("of", "disk")], disk.0 as f64);
    text.family("cache_limit_bytes", "gauge", "Maximum bytes in the cache.");
    text.sample("cache_limit_bytes", &[("of", "images")], images.1 as f64);
    text.sample("cache_limit_bytes", &[("of", "tiles")], tiles.1 as f64);
    text.sample("cache_limit_bytes", &[("of", "annotations")], annotations.1 as f64);
    text.sample("cache_limit_bytes", &[("of", "disk")], disk.1 as f64);
    let open = app.slides.count() as f64;
    text.single("slides_open", "gauge", "Open slides.", open);
    let about = "Requests whose response has not been sent completely, including this one.";
    text.single("requests_in_flight", "gauge", about, app.in_flight() as f64);
    let about = "Threads reading from web servers, or about to.";
    text.single("remote_reads", "gauge", about, app.remote.threads.used() as f64);
    let about = "Bytes in memory of responses being sent.";
    text.single("sending_bytes", "gauge", about, app.room.used() as f64);
    text.family("work_seconds_total", "counter", "Time spent by worker threads, in seconds.");
    let farms: [(&str, &Farm); 2] =
        [("decompress", app.images.tiles().farm()), ("finish", app.images.farm())];
    for (name, farm) in farms {
        text.sample("work_seconds_total", &[("work", name)], farm.busy().as_secs_f64());
    }
    workers(&mut text, app);
    guarantee(&mut text, app);
    text.into_text()
}

fn workers(text: &mut Metrics, app: &App) {
    let Some(workers) = &app.workers else { return };
    let (remotes, come, gone) = workers.all();
    let labelled: Vec<_> = remotes
        .iter()
        .filter_map(|remote| Some((remote, remote.number.to_string(), &*remote.hello()?.host)))
        .collect();
    text.single("workers_come_total", "counter", "Workers that have connected.", come as f64);
    text.single("workers_gone_total", "counter", "Workers that have disconnected.", gone as f64);
    text.family("worker_works", "gauge", "1 for a worker that works, 0 for a silent one.");
    for (remote, number, host) in &labelled {
        let labels = [("worker", &**number), ("host", host)];
        text.sample("worker_works", &labels, f64::from(remote.state() == WorkerState::Works));
    }
    text.family("worker_done_total", "counter", "Pieces of work done by a worker.");
    for (remote, number, host) in &labelled {
        let labels = [("worker", &**number), ("host", host)];
        text.sample("worker_done_total", &labels, remote.done.load(Ordering::Relaxed) as f64);
    }
    let about = "Pieces of work that a worker left to others.";
    text.family("worker_undone_total", "counter", about);
    for (remote, number, host) in &labelled {
        let labels = [("worker", &**number), ("host", host)];
        text.sample("worker_undone_total", &labels, remote.undone.load(Ordering::Relaxed) as f64);
    }
}

fn guarantee(text: &mut Metrics, app: &App) {
    let Some(kept) = app.images.promise().map(|promise| promise.kept()) else { return };
    if let Some(holds) = kept.holds {
        let about = "Whether the guarantee holds, judging by the last updates.";
        text.single("guarantee_holds", "gauge", about, f64::from(holds));
    }
    let kinds = [("partial", &kept.partial), ("complete", &kept.complete)];
    text.family("updates_total", "counter", "Updates done, if there is a guarantee.");
    for (kind, measured) in kinds {
        text.sample("updates_total", &[("kind", kind)], measured.updates as f64);
    }
    text.family("update_seconds", "gauge", "Mean time of the last updates.");
    for (kind, measured) in kinds {
        let Some(recent) = measured.recent() else { continue };
        text.sample("update_seconds", &[("kind", kind)], recent.as_secs_f64());
    }
}
