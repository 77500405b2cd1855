//! Objects in an S3 bucket or a compatible store: their addresses, and the signing of requests (AWS
//! Signature Version 4), with keys from the same sources as Amazon's own programs use.

use crate::http::{self, Failure, encoded};
use crate::keys::{self, Signer};
use crate::{Error, Result};
use percent_encoding::percent_decode_str;
use roxmltree::{Document, Node};
use std::borrow::Cow;
use std::collections::BTreeMap;
use ureq::http::request::Parts;
use ureq::http::{HeaderMap, StatusCode};

/// Bytes of one page of a listing, which has at most a thousand keys.
const LIST: u64 = 4 << 20;
/// Maximum names in a directory.
const MOST: usize = 1 << 20;
/// Maximum pages of a listing.
const PARTS: usize = 1 << 10;
/// Maximum bytes of a name: keys have at most 1024.
const LONGEST: usize = 1024;
pub(crate) const SCHEME: &str = "s3://";
const REGION: &str = "us-east-1";

/// A bucket, and the signer of requests to it.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Scheme, host and port, without a path.
    origin: String,
    /// The part of the path before keys.
    path: String,
    signer: Signer,
}

impl Bucket {
    /// The bucket of an address `s3://BUCKET/KEY`, located by environment variables, and the key;
    /// `None` for other addresses.
    pub(crate) fn of(address: &str) -> Result<Option<(Self, String)>> {
        let Some(place) = address.strip_prefix(SCHEME) else { return Ok(None) };
        match Self::by(place, environment) {
            Ok(found) => Ok(Some(found)),
            Err(what) => Err(Error::Argument(format!("{address}: {what}"))),
        }
    }

    /// The bucket of an address `s3://BUCKET/PREFIX/`, and the prefix.
    fn of_directory(address: &str) -> Result<(Self, String)> {
        let error = |what| Error::Argument(format!("{address}: {what}"));
        let place = address.strip_prefix(SCHEME).filter(|place| place.ends_with('/'));
        let place =
            place.ok_or_else(|| error("not the address of a directory in a bucket".into()))?;
        // Any name will do as a key.
        let (bucket, key) = Self::by(&format!("{place}x"), environment).map_err(error)?;
        Ok((bucket, key[..key.len() - 1].to_owned()))
    }

    /// Locates a bucket with the variables of `set`.
    fn by(
        place: &str,
        set: impl Fn(&str) -> Option<String>,
    ) -> std::result::Result<(Self, String), String> {
        let (name, key) = place.split_once('/').unwrap_or((place, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_name) {
            return Err("the name of the bucket is invalid".into());
        }
        if key.is_empty() {
            return Err("the key of the object is missing".into());
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
            // Certificates cover only one label before the host's name.
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

    /// The address of one page of the listing of objects and directories directly below a prefix.
    fn list_url(&self, prefix: &str, from: Option<&str>) -> String {
        let value = |text: &str| encoded(text).replace('/', "%2F");
        let from = from.map(|from| format!("continuation-token={}&", value(from)));
        let (origin, path) = (&self.origin, &self.path);
        let (from, prefix) = (from.unwrap_or_default(), value(prefix));
        format!("{origin}{path}/?{from}delimiter=%2F&encoding-type=url&list-type=2&prefix={prefix}")
    }

    /// Signs a request to this bucket.
    ///
    /// # Errors
    /// Keys that are unavailable.
    pub(crate) fn sign(&self, parts: &mut Parts) -> std::result::Result<(), String> {
        keys::sign(&self.signer, parts)
    }
}

/// Lists the names directly below a prefix in a bucket, with `true` for each that has more below
/// it. Names that are not UTF-8 are left out.
///
/// # Errors
/// An address that is not `s3://BUCKET/` or `s3://BUCKET/PREFIX/`, no such bucket, no permission to
/// list it, a malformed listing, and one that exceeds a million names or a thousand pages.
pub fn list(address: &str) -> Result<BTreeMap<String, bool>> {
    let error = |what: String| Error::Http { name: address.to_owned(), what };
    let (bucket, prefix) = Bucket::of_directory(address)?;
    let agent = http::agent(address, &bucket.origin)?;
    let (mut names, mut from) = (BTreeMap::new(), None);
    for _ in 0..PARTS {
        let url = bucket.list_url(&prefix, from.as_deref());
        let attempt = || {
            let mut response = http::get(&agent, &url, HeaderMap::new(), Some(&bucket))?;
            if response.status() != StatusCode::OK {
                return Err(http::failure(&mut response));
            }
            let body = response.body_mut().with_config().limit(LIST).read_to_string();
            body.map_err(|error| Failure::Passing(error.to_string()))
        };
        let text = http::patiently(address, attempt)?.ok_or_else(|| error(http::ABSENT.into()))?;
        let list = Document::parse(&text).map_err(|why| error(format!("no list came: {why}")))?;
        let of = |node: Node<'_, '_>, name| {
            let child = node.children().find(|child| child.tag_name().name() == name);
            child.and_then(|child| child.text().map(str::to_owned))
        };
        // A store may ignore the requested encoding.
        let is_encoded = of(list.root_element(), "EncodingType").is_some();
        names.extend(list.root_element().children().filter_map(|node| {
            let (key, is_directory) = match node.tag_name().name() {
                "Contents" => (of(node, "Key")?, false),
                "CommonPrefixes" => (of(node, "Prefix")?, true),
                _ => return None,
            };
            let key = if is_encoded { decoded(&key)? } else { key };
            let name = key.strip_prefix(&prefix)?.trim_end_matches('/');
            let is_name = !name.is_empty() && name.len() <= LONGEST;
            is_name.then(|| (name.to_owned(), is_directory))
        }));
        if names.len() > MOST {
            return Err(error(format!("more than {MOST} names")));
        }
        let next = of(list.root_element(), "NextContinuationToken");
        if next.is_none() {
            return Ok(names);
        }
        if next == from {
            return Err(error("the listing does not advance".into()));
        }
        from = next;
    }
    Err(error(format!("more than {PARTS} parts of a list")))
}

/// Decodes a key from a listing.
fn decoded(key: &str) -> Option<String> {
    let key = key.replace('+', " ");
    percent_decode_str(&key).decode_utf8().ok().map(Cow::into_owned)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Scheme, host and port of an address, in normal form, and its path without a trailing slash.
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
