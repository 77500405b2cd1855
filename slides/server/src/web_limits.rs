//! Limits on reading threads. Those that decode are bounded by `--threads`. Slides on web servers
//! have limits on their resources as well: reading threads, memory, and slots for requests. A web server that responds slowly or not at all delays its own slides, but not those
//! of other web servers or in files.
//!
//! ```text
//! a quarter   the slides of one web server
//! three       those of all web servers
//! the rest    slides in files alone
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::{Failure, Result};
use crate::library;

/// For requests beyond the limit of those that wait for one web server.
pub(crate) const TOO_MANY: &str = "too many requests are waiting for the slide's web server";

/// Identifies a web server.
pub(crate) type Host = Arc<str>;

/// The web server of a slide; `None` if it is a file. All buckets count as one server, which is
/// usually true.
pub(crate) fn host(location: &str) -> Option<Host> {
    if !library::is_address(location) {
        return None;
    }
    let (scheme, rest) = location.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(if scheme == "s3" { "s3".into() } else { host.to_lowercase().into() })
}

/// The shares in reading threads and in requests.
pub(crate) struct Web {
    /// Permits for reading threads to decode.
    decoders: Arc<Semaphore>,
    /// Threads that read.
    pub(crate) threads: Shares,
    /// Requests that wait for a slide or an image.
    pub(crate) requests: Shares,
}

impl Web {
    /// Divides up so many reading threads, of which `decoders` may decode at a time, and requests.
    pub(crate) fn new(threads: usize, decoders: usize, requests: usize) -> Self {
        let decoders = Arc::new(Semaphore::new(decoders));
        Self { decoders, threads: Shares::of(threads), requests: Shares::of(requests) }
    }

    /// Waits until a reading thread may decode. For slides on web servers their shares of the
    /// threads are the limit: waiting for their server, they would keep others from decoding.
    pub(crate) async fn decoder(&self, host: Option<&Host>) -> Option<OwnedSemaphorePermit> {
        match host {
            // Nobody closes it.
            None => Arc::clone(&self.decoders).acquire_owned().await.ok(),
            Some(_) => None,
        }
    }
}

/// Web servers' shares of a limited resource.
pub(crate) struct Shares {
    /// Limit of one web server.
    each: usize,
    /// Limit of all web servers.
    most: usize,
    all: Arc<Semaphore>,
    /// One entry per web server that has used the resource: at most as many as the command line
    /// names.
    hosts: Mutex<HashMap<Host, Arc<Semaphore>>>,
}

/// A share, released on drop. For slides in files it is empty.
#[derive(Debug)]
pub(crate) struct Share {
    _permits: Option<[OwnedSemaphorePermit; 2]>,
}

impl Shares {
    /// Divides up a resource of this size.
    pub(crate) fn of(whole: usize) -> Self {
        let each = (whole / 4).max(1);
        let most = (whole - each).max(1);
        let (all, hosts) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Self { each, most, all, hosts }
    }

    /// Limit of one web server.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// Limit of all web servers.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Amount that all web servers use now.
    pub(crate) fn used(&self) -> usize {
        self.most - self.all.available_permits()
    }

    fn of_host(&self, host: &Host) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(self.each));
        Arc::clone(hosts.entry(Arc::clone(host)).or_insert_with(new))
    }

    /// Waits for a share of `count`, at most [`most`](Self::most), for a web server. A request for
    /// more than [`each`](Self::each) waits until the web server has no other shares.
    pub(crate) async fn take(&self, host: Option<&Host>, count: usize) -> Result<Share> {
        let Some(host) = host else { return Ok(Share { _permits: None }) };
        let ends = |_| Failure::unavailable("the server is shutting down");
        let own = self.of_host(host).acquire_many_owned(count.min(self.each) as u32);
        let own = own.await.map_err(ends)?;
        let all = Arc::clone(&self.all).acquire_many_owned(count.min(self.most) as u32);
        let all = all.await.map_err(ends)?;
        Ok(Share { _permits: Some([own, all]) })
    }

    /// A share of one, if the web server can have it now.
    pub(crate) fn try_take(&self, host: Option<&Host>) -> Option<Share> {
        let Some(host) = host else { return Some(Share { _permits: None }) };
        let own = self.of_host(host).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Share { _permits: Some([own, all]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_web_server_is_known_by_host_and_port() {
        let host_of = |location: &str| host(location).map(|host| host.to_string());
        assert_eq!(host_of("/slides/http://a"), None);
        assert_eq!(host_of("http://Host:81/a.svs?b@c").as_deref(), Some("host:81"));
        assert_eq!(host_of("https://me:word@host/a").as_deref(), Some("host"));
        assert_eq!(host_of("http://[::1]:8080").as_deref(), Some("[::1]:8080"));
        assert_eq!(host_of("s3://one/a"), host_of("s3://other/b"));
    }

    #[test]
    fn threads_that_decode_wait_for_each_other_and_for_no_web_server() {
        let web = Web::new(64, 2, 1024);
        let host = Host::from("slow");
        let mut held: Vec<_> = (0..2).map(|_| web.decoder(None).now_or_never().unwrap()).collect();
        assert!(web.decoder(None).now_or_never().is_none());
        assert!(web.decoder(Some(&host)).now_or_never().is_some());
        held.pop();
        assert!(web.decoder(None).now_or_never().unwrap().is_some());
    }

    #[test]
    fn one_has_a_quarter_and_all_have_three() {
        let shares = Shares::of(16);
        let hosts: Vec<Host> = ["a", "b", "c", "d"].map(Host::from).to_vec();
        let one = |host| shares.try_take(Some(host));
        let mut held: Vec<_> = (0..4).map(|_| one(&hosts[0]).unwrap()).collect();
        assert!(one(&hosts[0]).is_none());
        held.extend((0..4).map(|_| one(&hosts[1]).unwrap()));
        assert_eq!(shares.used(), 8);
        // Files get theirs regardless of others.
        assert!(shares.try_take(None).is_some());
        // More than a quarter, if the total allows it, and alone.
        assert!(shares.take(Some(&hosts[2]), 5).now_or_never().is_none());
        held.truncate(4);
        let large = shares.take(Some(&hosts[2]), 8).now_or_never().unwrap().unwrap();
        assert!(one(&hosts[2]).is_none() && one(&hosts[3]).is_none());
        drop((large, held));
        assert_eq!((shares.used(), shares.each(), shares.most()), (0, 4, 12));
        // There is at least one.
        let little = Shares::of(1);
        let first = little.try_take(Some(&hosts[0])).unwrap();
        assert!(little.try_take(Some(&hosts[1])).is_none());
        drop(first);
    }
}
