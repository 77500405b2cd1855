//! Objects in a bucket of S3 and of stores that are asked in the same way: where they are, and how
//! requests are signed (AWS Signature Version 4), with keys from wherever Amazon's own programs take
//! them.

use crate::http::encoded;
use crate::keys::{self, Signer};
use crate::{Error, Result};
use std::fmt::Debug;
use ureq::http::HeaderMap;

pub(crate) const SCHEME: &str = "s3://";
const REGION: &str = "us-east-1";

/// A bucket, and who asks.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Scheme, host and port, without a path.
    origin: String,
    /// What stands before keys.
    path: String,
    signer: Signer,
}

impl Bucket {
    /// The bucket of an address `s3://BUCKET/KEY`, as the environment says where it is, and the
    /// key; `None` of other addresses.
    pub(crate) fn of(address: &str) -> Result<Option<(Self, String)>> {
        let Some(place) = address.strip_prefix(SCHEME) else { return Ok(None) };
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        match Self::by(place, set) {
            Ok(found) => Ok(Some(found)),
            Err(what) => Err(Error::Argument(format!("{address}: {what}"))),
        }
    }

    /// As variables have it.
    fn by(
        place: &str,
        set: impl Fn(&str) -> Option<String>,
    ) -> std::result::Result<(Self, String), String> {
        let (name, key) = place.split_once('/').unwrap_or((place, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_name) {
            return Err("no name of a bucket".into());
        }
        if key.is_empty() {
            return Err("no key of an object".into());
        }
        let region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| REGION.into());
        if !region.bytes().all(is_name) {
            return Err(format!("a region {region:?}"));
        }
        let endpoint = set("AWS_ENDPOINT_URL_S3").or_else(|| set("AWS_ENDPOINT_URL"));
        let (origin, path) = match endpoint {
            Some(endpoint) => {
                let (origin, path) = split(&endpoint).ok_or(format!("an endpoint {endpoint:?}"))?;
                (origin, format!("{path}/{name}"))
            }
            // Certificates are for one name before the host's only.
            None if name.contains(['.', '_']) => {
                (format!("https://s3.{region}.amazonaws.com"), format!("/{name}"))
            }
            None => (format!("https://{name}.s3.{region}.amazonaws.com"), String::new()),
        };
        if set("AWS_ACCESS_KEY_ID").is_some() != set("AWS_SECRET_ACCESS_KEY").is_some() {
            return Err("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set".into());
        }
        let signer = keys::signer(&region);
        Ok((Self { origin, path, signer }, key.to_owned()))
    }

    /// The address of an object.
    pub(crate) fn url(&self, key: &str) -> String {
        format!("{}{}/{}", self.origin, self.path, encoded(key))
    }

    /// The headers of a request to get some bytes of an address of this bucket: signed, or only the
    /// range where nobody has keys.
    ///
    /// # Errors
    /// Keys that cannot be had.
    pub(crate) fn headers(&self, url: &str, range: &str) -> std::result::Result<HeaderMap, String> {
        keys::signed(&self.signer, url, range)
    }
}

/// Scheme, host and port of an address, as requests have them, and its path without a slash at the
/// end.
fn split(address: &str) -> Option<(String, String)> {
    let is_usable = address.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@".contains(&byte));
    let (scheme, rest) = address.split_once("://").filter(|_| is_usable)?;
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    (!host.is_empty())
        .then(|| (format!("{scheme}://{host}"), path.trim_end_matches('/').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(place: &str, set: &[(&str, &str)]) -> std::result::Result<(Bucket, String), String> {
        let get = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Bucket::by(place, get)
    }

    #[test]
    fn the_environment_says_where() {
        let url = |place: &str, set: &[(&str, &str)]| {
            let (bucket, key) = by(place, set).unwrap();
            bucket.url(&key)
        };
        assert_eq!(
            url("b/a b/ä?.svs", &[]),
            "https://b.s3.us-east-1.amazonaws.com/a%20b/%C3%A4%3F.svs"
        );
        let region = ("AWS_DEFAULT_REGION", "eu-west-1");
        assert_eq!(url("b.c/k", &[region]), "https://s3.eu-west-1.amazonaws.com/b.c/k");
        let endpoint = ("AWS_ENDPOINT_URL", "http://Host:80/store/");
        assert_eq!(url("b/k", &[region, endpoint]), "http://host/store/b/k");
        let endpoint = ("AWS_ENDPOINT_URL_S3", "https://[::1]:9000");
        assert_eq!(url("b/k//l", &[endpoint]), "https://[::1]:9000/b/k//l");

        let id = ("AWS_ACCESS_KEY_ID", "id");
        for (place, set) in [
            ("", &[][..]),
            ("b", &[]),
            ("b/", &[]),
            ("../k", &[]),
            ("b@c/k", &[]),
            ("b/k", &[id]),
            ("b/k", &[("AWS_ENDPOINT_URL", "host")]),
            ("b/k", &[("AWS_ENDPOINT_URL", "http://user@host")]),
            ("b/k", &[("AWS_REGION", "a/b")]),
        ] {
            assert!(by(place, set).is_err(), "{place} {set:?}");
        }
    }
}
