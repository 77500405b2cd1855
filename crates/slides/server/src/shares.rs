//! What slides on web servers may have of what all slides share: threads that read, memory, places
//! for requests. A web server that answers slowly, or not at all, holds up what is on it, and
//! neither the slides of other web servers nor those in files.
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

/// What a web server is known by.
pub(crate) type Host = Arc<str>;

/// The web server that a slide is on; `None`: it is a file. All buckets are on one, as they mostly
/// are.
pub(crate) fn host(location: &str) -> Option<Host> {
    if !library::is_address(location) {
        return None;
    }
    let (scheme, rest) = location.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    Some(if scheme == "s3" { "s3".into() } else { host.to_lowercase().into() })
}

/// Threads that read, and requests: of which there are so many.
pub(crate) struct Web {
    /// That read.
    pub(crate) threads: Shares,
    /// That wait for a slide or an image.
    pub(crate) requests: Shares,
}

impl Web {
    pub(crate) fn new(threads: usize, requests: usize) -> Self {
        Self { threads: Shares::of(threads), requests: Shares::of(requests) }
    }
}

/// How many there are for web servers of something that there is only so much of.
pub(crate) struct Shares {
    /// For one.
    each: usize,
    /// For all.
    most: usize,
    all: Arc<Semaphore>,
    /// Those that have had some: no more than were named when the server was started.
    hosts: Mutex<HashMap<Host, Arc<Semaphore>>>,
}

/// A part of it, until it is dropped. What is in files takes nothing.
#[derive(Debug)]
pub(crate) struct Share {
    _permits: Option<[OwnedSemaphorePermit; 2]>,
}

impl Shares {
    /// Of so many.
    pub(crate) fn of(whole: usize) -> Self {
        let each = (whole / 4).max(1);
        let most = (whole - each).max(1);
        let (all, hosts) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Self { each, most, all, hosts }
    }

    /// For one web server.
    pub(crate) fn each(&self) -> usize {
        self.each
    }

    /// For all of them.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// How many all of them have now.
    pub(crate) fn taken(&self) -> usize {
        self.most - self.all.available_permits()
    }

    fn of_host(&self, host: &Host) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(self.each));
        Arc::clone(hosts.entry(Arc::clone(host)).or_insert_with(new))
    }

    /// Waits until a web server can have so many, of [`most`](Self::most) at most. One that takes
    /// more than [`each`](Self::each) has no others meanwhile.
    pub(crate) async fn take(&self, host: Option<&Host>, count: usize) -> Result<Share> {
        let Some(host) = host else { return Ok(Share { _permits: None }) };
        let ends = |_| Failure::unavailable("the server ends");
        let own = self.of_host(host).acquire_many_owned(count.min(self.each) as u32);
        let own = own.await.map_err(ends)?;
        let all = Arc::clone(&self.all).acquire_many_owned(count.min(self.most) as u32);
        let all = all.await.map_err(ends)?;
        Ok(Share { _permits: Some([own, all]) })
    }

    /// One, if a web server can have it now.
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
        // Files have theirs whatever others have.
        assert!(shares.try_take(None).is_some());
        // More than a quarter, if all of them leave room for it, and alone.
        assert!(shares.take(Some(&hosts[2]), 5).now_or_never().is_none());
        held.truncate(4);
        let large = shares.take(Some(&hosts[2]), 8).now_or_never().unwrap().unwrap();
        assert!(one(&hosts[2]).is_none() && one(&hosts[3]).is_none());
        drop((large, held));
        assert_eq!((shares.taken(), shares.each(), shares.most()), (0, 4, 12));
        // Of little there is one.
        let little = Shares::of(1);
        let first = little.try_take(Some(&hosts[0])).unwrap();
        assert!(little.try_take(Some(&hosts[1])).is_none());
        drop(first);
    }
}
