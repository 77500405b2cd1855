//! Access control and rate limits.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderValue};
use lru::LruCache;
use sha2::{Digest, Sha256};

/// Name of the cookie that contains the token.
const NAME: &str = "seekwire_slides";

/// A secret that clients must present.
pub(crate) struct Token {
    /// Hashes are compared, so that the time taken reveals nothing.
    hash: [u8; 32],
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Token {
    pub(crate) fn new(token: &str) -> Self {
        Self { hash: hash(token.as_bytes()) }
    }

    pub(crate) fn is(&self, token: &str) -> bool {
        hash(token.as_bytes()) == self.hash
    }

    /// True if a request contains it: as a bearer token (RFC 6750), or as a cookie.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let texts = |name| headers.get_all(name).into_iter().filter_map(|one| one.to_str().ok());
        let bearer = texts(AUTHORIZATION).filter_map(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let cookies = texts(COOKIE).flat_map(|text| text.split(';')).filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == NAME).then_some(value)
        });
        bearer.chain(cookies).any(|token| self.is(token))
    }
}

/// Makes a browser send the token from now on, to this server only. `end` is [`manners`].
pub(crate) fn cookie(token: &str, end: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{NAME}={token}; {end}")).ok()
}

/// Cookie attributes: no page can read the cookies, and no other site can use them.
pub(crate) fn manners(is_encrypted: bool) -> &'static str {
    match is_encrypted {
        true => "Path=/; HttpOnly; SameSite=Strict; Secure",
        false => "Path=/; HttpOnly; SameSite=Strict",
    }
}

/// True if a token can be part of headers and cookies.
pub(crate) fn is_usable(token: &str) -> bool {
    let is_usable = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
    !token.is_empty() && token.bytes().all(is_usable)
}

/// Maximum clients whose requests are counted; those idle for longest are forgotten.
const CLIENTS: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();
/// Seconds' worth of requests that may come at once.
const BURST: f64 = 2.0;

/// The address under which requests are counted; for IPv6, that of the /64 network.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// A token bucket for each client.
pub(crate) struct Rate {
    per_second: f64,
    buckets: Mutex<LruCache<IpAddr, (f64, Instant)>>,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        let buckets = Mutex::new(LruCache::new(CLIENTS));
        Self { per_second: per_second.into(), buckets }
    }

    /// True if a request from this address, at this time, is within the limit.
    pub(crate) fn admits(&self, address: IpAddr, now: Instant) -> bool {
        let full = self.per_second * BURST;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let (level, since) = buckets.get_or_insert_mut(client(address), || (full, now));
        let passed = now.saturating_duration_since(*since).as_secs_f64();
        *level = (*level + passed * self.per_second).min(full);
        *since = now;
        if *level < 1.0 {
            return false;
        }
        *level -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    #[test]
    fn tokens_are_bearers_or_cookies() {
        let token = Token::new("s3cret");
        let rows = [
            (AUTHORIZATION, "Bearer s3cret", true),
            (AUTHORIZATION, "bearer s3cret", true),
            (AUTHORIZATION, "Bearer s3cre", false),
            (AUTHORIZATION, "Bearer s3cret2", false),
            (AUTHORIZATION, "Basic s3cret", false),
            (AUTHORIZATION, "s3cret", false),
            (COOKIE, "a=b; seekwire_slides=s3cret", true),
            (COOKIE, "seekwire_slides=other", false),
            (COOKIE, "other=s3cret", false),
        ];
        for (name, value, expected) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(token.is_in(&headers), expected, "{value}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert!(is_usable("abc-._~+/=") && !is_usable("") && !is_usable("a b") && !is_usable("a;"));
    }

    #[test]
    fn each_client_has_a_rate_of_its_own() {
        let rate = Rate::new(10);
        let (one, two) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from([10, 0, 0, 1]));
        let start = Instant::now();
        let count = |address, at| (0..100).filter(|_| rate.admits(address, at)).count();
        assert_eq!(count(one, start), 20);
        assert_eq!(count(two, start), 20);
        let of = |address: &str| address.parse::<IpAddr>().unwrap();
        assert_eq!(count(of("2001:db8:1:2::3"), start), 20);
        assert_eq!(count(of("2001:db8:1:2:ffff::4"), start), 0);
        assert_eq!(count(of("2001:db8:1:3::3"), start), 20);
        assert_eq!(count(of("::ffff:10.0.0.1"), start), 0);
        assert_eq!(count(of("::ffff:10.0.0.2"), start), 20);
        assert_eq!(count(one, start + Duration::from_millis(500)), 5);
        assert_eq!(count(one, start + Duration::from_secs(100)), 20);
    }
}
