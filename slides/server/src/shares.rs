//! Limits on the resources of slides on web servers: reading threads, memory, and places for
//! requests. A web server that responds slowly or not at all delays its own slides, but not those
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
    /// Threads that read.
    pub(crate) threads: Shares,
    /// Requests that wait for a slide or an image.
    pub(crate) requests: Shares,
}

impl Web {
    pub(crate) fn new(threads: usize, requests: usize) -> Self {
        Self { threads: Shares::of(threads), requests: Shares::of(requests) }
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
    pub(crate) fn taken(&self) -> usize {
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
        let known = |location: &str| host(location).map(|host| host.to_string());
        assert_eq!(known("/slides/http://a"), None);
        assert_eq!(known("http://Host:81/a.svs?b@c").as_deref(), Some("host:81"));
        assert_eq!(known("https://me:word@host/a").as_deref(), Some("host"));
        assert_eq!(known("http://[::1]:8080").as_deref(), Some("[::1]:8080"));
        assert_eq!(known("s3://one/a"), known("s3://other/b"));
    }

    #[test]
    fn one_has_a_quarter_and_all_have_three() {
        let shares = Shares::of(16);
        let hosts: Vec<Host> = ["a", "b", "c", "d"].map(Host::from).to_vec();
        let one = |host| shares.try_take(Some(host));
        let mut held: Vec<_> = (0..4).map(|_| one(&hosts[0]).unwrap()).collect();
        assert!(one(&hosts[0]).is_none());
        held.extend((0..4).map(|_| one(&hosts[1]).unwrap()));
        assert_eq!(shares.taken(), 8);
        // Files get theirs regardless of others.
        assert!(shares.try_take(None).is_some());
        // More than a quarter, if the total allows it, and alone.
        assert!(shares.take(Some(&hosts[2]), 5).now_or_never().is_none());
        held.truncate(4);
        let large = shares.take(Some(&hosts[2]), 8).now_or_never().unwrap().unwrap();
        assert!(one(&hosts[2]).is_none() && one(&hosts[3]).is_none());
        drop((large, held));
        assert_eq!((shares.taken(), shares.each(), shares.most()), (0, 4, 12));
        // There is at least one.
        let little = Shares::of(1);
        let first = little.try_take(Some(&hosts[0])).unwrap();
        assert!(little.try_take(Some(&hosts[1])).is_none());
        drop(first);
    }
}
