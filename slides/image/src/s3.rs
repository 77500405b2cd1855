//! Objects in an S3 bucket or a compatible store: their addresses, and the signing of requests (AWS
//! Signature Version 4), with keys from the same sources as Amazon's own programs use.

use crate::s3_credentials::{self, Signer};
use crate::{Error, Result};
use std::fmt::Write;
use ureq::http::request::Parts;

pub(crate) const SCHEME: &str = "s3://";
const REGION: &str = "us-east-1";

/// A bucket, and the signer of requests to it.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Scheme, host and port, without a path.
    pub(crate) origin: String,
    /// The part of the path before keys.
    path: String,
    signer: Signer,
}

impl Bucket {
    /// The bucket of an address `s3://BUCKET/KEY`, located by environment variables, and the key;
    /// `None` for other addresses.
    pub(crate) fn of(address: &str) -> Result<Option<(Self, String)>> {
        let Some(path) = address.strip_prefix(SCHEME) else { return Ok(None) };
        match Self::by(path, environment) {
            Ok(bucket) => Ok(Some(bucket)),
            Err(what) => Err(Error::Argument(format!("{address}: {what}"))),
        }
    }

    /// The bucket of an address `s3://BUCKET/PREFIX/`, and the prefix.
    pub(crate) fn of_directory(address: &str) -> Result<(Self, String)> {
        let error = |what| Error::Argument(format!("{address}: {what}"));
        let path = address.strip_prefix(SCHEME).filter(|path| path.ends_with('/'));
        let path =
            path.ok_or_else(|| error("not the address of a directory in a bucket".into()))?;
        // Any name will do as a key.
        let (bucket, key) = Self::by(&format!("{path}x"), environment).map_err(error)?;
        Ok((bucket, key[..key.len() - 1].to_owned()))
    }

    /// Locates a bucket with the variables of `set`.
    fn by(
        path: &str,
        set: impl Fn(&str) -> Option<String>,
    ) -> std::result::Result<(Self, String), String> {
        let (name, key) = path.split_once('/').unwrap_or((path, ""));
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
        let signer = s3_credentials::signer(&region);
        Ok((Self { origin, path, signer }, key.to_owned()))
    }

    /// The address of an object.
    pub(crate) fn url(&self, key: &str) -> String {
        format!("{}{}/{}", self.origin, self.path, encoded(key))
    }

    /// The address of one page of the listing of objects and directories directly below a prefix.
    pub(crate) fn list_url(&self, prefix: &str, from: Option<&str>) -> String {
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
        s3_credentials::sign(&self.signer, parts)
    }
}

/// Percent-encodes a path for a URL.
pub(crate) fn encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(byte.into());
            }
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
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

    fn by(path: &str, set: &[(&str, &str)]) -> std::result::Result<(Bucket, String), String> {
        let get = |name: &str| {
            set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        };
        Bucket::by(path, get)
    }

    #[test]
    fn the_environment_says_where() {
        let url = |path: &str, set: &[(&str, &str)]| {
            let (bucket, key) = by(path, set).unwrap();
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
        for (path, set) in [
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
            assert!(by(path, set).is_err(), "{path} {set:?}");
        }
    }
}
