//! Counts of requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use seekwire_program::metrics::Metrics;

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
        let Some(at) = ROUTES.iter().position(|(name, _)| *name == route) else { return };
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

    pub(super) fn write(&self, text: &mut Metrics) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.family("requests_total", "counter", "Requests answered.");
        for ((_, name), counts) in ROUTES.iter().zip(&self.routes) {
            for (class, count) in counts.statuses.iter().enumerate().skip(1) {
                let labels = [("route", *name), ("status", &format!("{class}xx"))];
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
                let labels = [("route", *route), ("le", &bound.to_string())];
                text.sample(&format!("{name}_bucket"), &labels, sum as f64);
            }
            let all = counts.statuses.iter().map(of).sum::<u64>() as f64;
            let labels = [("route", *route)];
            text.sample(&format!("{name}_bucket"), &[labels[0], ("le", "+Inf")], all);
            let seconds = of(&counts.nanoseconds) as f64 / 1e9;
            text.sample(&format!("{name}_sum"), &labels, seconds);
            text.sample(&format!("{name}_count"), &labels, all);
        }
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
        let mut text = Metrics::new("seekwire_slides_");
        requests.write(&mut text);
        let text = text.into_text();
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
            assert!(text.contains(&format!("seekwire_slides_{line}\n")), "{line}:\n{text}");
        }
        assert_eq!(Route::of("/slides/a.svs"), Route::Slide);
        assert_eq!(Route::of("/slides.json"), Route::Other);
    }
}
