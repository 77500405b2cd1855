//! Addresses that admit their holders until they expire. They end with the second of expiry, and
//! with an HMAC-SHA256 (RFC 2104) over everything before it. Nothing is stored for an address, so
//! any program that has the secret can make one.
//!
//! A viewer needs more than one address. A browser that opens a signed viewer address gets a
//! cookie, which admits it to the same slide until the same second, and to nothing else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::stamps::hexadecimal;

const EXPIRES: &str = "expires=";
const SIGNATURE: &str = "&signature=";
/// Part of addresses that also give access to labels and macros, directly before the time. An
/// address may have had it before, so elsewhere it means nothing.
const ASSOCIATED: &str = "associated=yes";

/// The pairs that signing adds to an address.
const ADDED: [&str; 3] = ["associated=", EXPIRES, "signature="];

/// True if an address is signed, or says what only a signature may say.
pub(crate) fn is_signed(address: &str) -> bool {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|pair| ADDED.iter().any(|added| pair.starts_with(added)))
}

/// Prefix of cookies for slides; some digits of a hash of the identifier follow.
const NAME: &str = "seekwire_slides_link_";

/// Minimum length of a secret in bytes.
pub(crate) const SHORTEST: usize = 16;

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// The access that an address or a cookie gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) until: u64,
    /// True if it includes labels, macros and data that names a person.
    pub(super) has_associated: bool,
}

/// The secret that signs addresses.
pub(crate) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    pub(crate) fn new(secret: &str) -> Self {
        // HMAC accepts keys of any length.
        let key = Hmac::new_from_slice(secret.as_bytes());
        Self(key.unwrap_or_else(|_| Hmac::new(&Default::default())))
    }

    /// Signs an address, from its first slash on, with the time.
    fn of_address(&self, address: &str) -> Hmac<Sha256> {
        self.0.clone().chain_update(b"address\n").chain_update(address)
    }

    /// Signs a slide, with the time. A signature for the slide alone is not valid with its label.
    fn of_slide(&self, id: &str, admission: Admission) -> Hmac<Sha256> {
        let what = if admission.has_associated { "slide and associated" } else { "slide" };
        self.0.clone().chain_update(format!("{what}\n{}\n{id}", admission.until))
    }

    /// Appends the signature to an address that begins with its first slash and has none.
    pub(crate) fn sign(&self, address: &str, until: u64, has_associated: bool) -> String {
        let sign = if address.contains('?') { '&' } else { '?' };
        let associated = if has_associated { format!("{ASSOCIATED}&") } else { String::new() };
        let signed = format!("{address}{sign}{associated}{EXPIRES}{until}");
        let signature = hexadecimal(&self.of_address(&signed).finalize().into_bytes());
        format!("{signed}{SIGNATURE}{signature}")
    }

    /// The access that an address gives; `None` if it is not signed or has expired.
    pub(super) fn admits(&self, address: &str, now: u64) -> Option<Admission> {
        let (signed, signature) = address.rsplit_once(SIGNATURE)?;
        let (before, until) = signed.rsplit_once(EXPIRES)?;
        let is_number = until.bytes().all(|byte| byte.is_ascii_digit());
        let until = until.parse().ok().filter(|until| is_number && *until >= now)?;
        let is_whole = before.ends_with(['?', '&']);
        // Constant time, whichever byte differs.
        let is_right = self.of_address(signed).verify_slice(&bytes(signature)?).is_ok();
        let query = before.split_once('?').map_or("", |(_, query)| query);
        let has_associated =
            query.strip_suffix('&').and_then(|query| query.rsplit('&').next()) == Some(ASSOCIATED);
        (is_whole && is_right).then_some(Admission { until, has_associated })
    }

    /// A cookie that admits a browser to the rest of a slide for as long as the address is valid.
    pub(super) fn cookie(
        &self,
        id: &str,
        admission: Admission,
        now: u64,
        end: &str,
    ) -> Option<HeaderValue> {
        let signature = hexadecimal(&self.of_slide(id, admission).finalize().into_bytes());
        let until = admission.until;
        let (name, left) = (name(id), until.saturating_sub(now));
        let cookie = format!("{name}={until}.{signature}; Max-Age={left}; {end}");
        HeaderValue::from_str(&cookie).ok()
    }

    /// The access to a path that a cookie for its slide gives.
    pub(super) fn by_cookie(&self, path: &str, headers: &HeaderMap, now: u64) -> Option<Admission> {
        let texts = headers.get_all(COOKIE).into_iter().filter_map(|one| one.to_str().ok());
        let mut cookies = texts
            .flat_map(|text| text.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| name.starts_with(NAME));
        // The viewer's assets are the same for all clients, and contain no secrets.
        if path.starts_with("/static/") {
            let nothing = Admission { until: now, has_associated: false };
            return cookies.next().map(|_| nothing);
        }
        let id = slide(path)?;
        let expected = name(&id);
        cookies.find_map(|(name, value)| {
            let (until, signature) = value.split_once('.').filter(|_| name == expected)?;
            let until = until.parse().ok().filter(|until| *until >= now)?;
            let signature = bytes(signature)?;
            let either = [true, false].map(|has_associated| Admission { until, has_associated });
            let is_right = |admission: &Admission| {
                self.of_slide(&id, *admission).verify_slice(&signature).is_ok()
            };
            either.into_iter().find(is_right)
        })
    }
}

fn name(id: &str) -> String {
    format!("{NAME}{}", hexadecimal(&Sha256::digest(id)[..8]))
}

/// The identifier of the slide to which a path belongs, if any.
pub(super) fn slide(path: &str) -> Option<String> {
    let path = path.strip_prefix('/')?;
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let id = match first {
        "slides" => rest.split('/').next()?,
        "iiif" => rest.split('/').nth(1)?,
        _ if rest.is_empty() => first.strip_suffix(".dzi")?,
        _ => first.strip_suffix("_files")?,
    };
    let id = percent_encoding::percent_decode_str(id).decode_utf8().ok()?;
    (!id.is_empty()).then(|| id.into_owned())
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn an_address_lets_in_until_its_time_and_no_other_does() {
        let key = SigningKey::new(SECRET);
        for address in [
            "/",
            "/slides/a%2Fb.svs",
            "/iiif/3/a/full/max/0/default.jpg?icc=raw",
            "/?a=b&expires=1",
        ] {
            let signed = key.sign(address, 1000, false);
            assert!(signed.starts_with(address), "{signed}");
            let admission = Some(Admission { until: 1000, has_associated: false });
            assert_eq!(key.admits(&signed, 999), admission, "{signed}");
            assert_eq!(key.admits(&signed, 1000), admission);
            let full = key.sign(address, 1000, true);
            let all = Some(Admission { until: 1000, has_associated: true });
            assert_eq!(key.admits(&full, 1000), all, "{full}");
            for changed in [
                full.replace("associated=yes&", ""),
                full.replace("associated=yes", "associated=no"),
                signed.replace("expires=1000", "associated=yes&expires=1000"),
                format!("{signed}&associated=yes"),
                signed.replacen(address, &format!("{address}?associated=yes"), 1),
            ] {
                assert_eq!(key.admits(&changed, 0), None, "{changed}");
            }
            assert_eq!(key.admits(&signed, 1001), None);
            assert_eq!(SigningKey::new("another secret..").admits(&signed, 0), None);
            for (from, to) in [
                ("expires=1000", "expires=2000"),
                ("expires=1000", "expires=+1000"),
                ("expires=1000", "xexpires=1000"),
                ("/", "//"),
                ("signature=", "signature=0"),
            ] {
                let changed = signed.replacen(from, to, 1);
                assert_eq!(key.admits(&changed, 0), None, "{changed}");
            }
            // A program may sign what was signed before.
            for old in
                ["associated=yes", "associated=yes&expires=9&signature=0", "associated=yes&&"]
            {
                let sign = if address.contains('?') { '&' } else { '?' };
                let again = key.sign(&format!("{address}{sign}{old}&"), 1000, false);
                assert_eq!(key.admits(&again, 1000), admission, "{again}");
            }
            for more in ["&a=b", "0", "#"] {
                assert_eq!(key.admits(&format!("{signed}{more}"), 0), None);
            }
            assert_eq!(key.admits(address, 0), None);
        }
        // Other programs must compute the same: HMAC-SHA256 as in openssl.
        assert_eq!(
            key.sign("/slides/a.svs", 4_102_444_800, false),
            "/slides/a.svs?expires=4102444800&signature=\
             e6c41128e8570565ffbbea8af5b00d05be5ef1d092e7b17d13c0e25159b4d4ff"
        );
    }

    #[test]
    fn a_cookie_is_for_one_slide() {
        let key = SigningKey::new(SECRET);
        let admission = Admission { until: 1000, has_associated: false };
        let cookie = key.cookie("case/a.svs", admission, 900, "Path=/").unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.ends_with("; Max-Age=100; Path=/"), "{cookie}");
        let mut headers = HeaderMap::new();
        let pair = format!("a=b; {}; c=d", cookie.split(';').next().unwrap());
        headers.insert(COOKIE, pair.parse().unwrap());
        for (path, expected) in [
            ("/slides/case%2Fa.svs", true),
            ("/slides/case%2Fa.svs/thumbnail.jpg", true),
            ("/case%2Fa.svs.dzi", true),
            ("/case%2Fa.svs_files/0/0_0.jpg", true),
            ("/iiif/3/case%2Fa.svs/info.json", true),
            ("/iiif/2/case%2Fa.svs/full/max/0/default.jpg", true),
            ("/static/viewer.js", true),
            ("/slides/case%2Fb.svs", false),
            ("/slides/case", false),
            ("/", false),
            ("/slides.json", false),
            ("/metrics", false),
            ("/dicomweb/studies", false),
            ("/case%2Fa.svs", false),
        ] {
            let by = |key: &SigningKey, headers: &HeaderMap, now| key.by_cookie(path, headers, now);
            assert_eq!(by(&key, &headers, 1000), expected.then_some(admission), "{path}");
            assert_eq!(by(&key, &HeaderMap::new(), 1000), None, "{path}");
            let is_static = path.starts_with("/static/");
            assert_eq!(by(&key, &headers, 1001).is_some(), is_static, "{path}");
            let other = SigningKey::new("another secret..");
            assert_eq!(by(&other, &headers, 1000).is_some(), is_static, "{path}");
        }
        let all = Admission { has_associated: true, ..admission };
        let full = key.cookie("case/a.svs", all, 900, "Path=/").unwrap();
        headers.insert(COOKIE, full.to_str().unwrap().split(';').next().unwrap().parse().unwrap());
        assert_eq!(key.by_cookie("/slides/case%2Fa.svs", &headers, 1000), Some(all));
        for cookie in ["x", "1000", "1000.", "9999.00", "1000.zz", "1000.é"] {
            let pair = format!("{}={cookie}", name("case/a.svs"));
            headers.insert(COOKIE, HeaderValue::from_bytes(pair.as_bytes()).unwrap());
            assert_eq!(key.by_cookie("/slides/case%2Fa.svs", &headers, 0), None, "{cookie}");
        }
    }
}
