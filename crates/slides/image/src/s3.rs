//! Objects in a bucket of S3 and of stores that are asked in the same way: where they are, and how
//! requests are signed (AWS Signature Version 4).
//!
//! What crates there are for this bring an HTTP client, or the tables of international host names,
//! for what is two pages here.

use crate::http::encoded;
use crate::{Error, Result};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::time::SystemTime;

pub(crate) const SCHEME: &str = "s3://";
const REGION: &str = "us-east-1";
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A bucket, and who asks.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// Scheme, host and port, without a path.
    origin: String,
    /// What stands before keys.
    path: String,
    region: String,
    /// Without them, nothing is signed.
    keys: Option<Keys>,
}

#[derive(Clone)]
struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
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
        let keys = match (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => Some(Keys { id, secret, token: set("AWS_SESSION_TOKEN") }),
            (None, None) => None,
            _ => {
                return Err("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set".into());
            }
        };
        let sendable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_sendable = keys
            .as_ref()
            .is_none_or(|keys| sendable(&keys.id) && keys.token.as_deref().is_none_or(sendable));
        if !is_sendable {
            return Err("AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN with blanks".into());
        }
        Ok((Self { origin, path, region, keys }, key.to_owned()))
    }

    /// The address of an object.
    pub(crate) fn url(&self, key: &str) -> String {
        format!("{}{}/{}", self.origin, self.path, encoded(key))
    }

    /// The headers that sign a request to get some bytes of an address of this bucket.
    pub(crate) fn signed(
        &self,
        url: &str,
        range: &str,
        now: SystemTime,
    ) -> Vec<(&'static str, String)> {
        let Some(keys) = &self.keys else { return Vec::new() };
        let time = stamp(now);
        let day = &time[..8];
        let host = self.origin.split_once("://").map_or("", |(_, host)| host);
        let path = url.strip_prefix(&self.origin).unwrap_or_default();
        let nothing = hex(&Sha256::digest([]));
        // In the order of their names.
        let mut headers = vec![
            ("host", host.to_owned()),
            ("range", range.to_owned()),
            ("x-amz-content-sha256", nothing.clone()),
            ("x-amz-date", time.clone()),
        ];
        headers.extend(keys.token.iter().map(|token| ("x-amz-security-token", token.clone())));
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let request = format!("GET\n{path}\n\n{lines}\n{names}\n{nothing}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let request = hex(&Sha256::digest(request));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{request}");
        let secret = format!("AWS4{}", keys.secret).into_bytes();
        let key = [day, &self.region, "s3", "aws4_request"]
            .iter()
            .fold(secret, |key, part| authenticated(&key, part));
        let signature = hex(&authenticated(&key, &text));
        let credential = format!("Credential={}/{scope}", keys.id);
        let authorization =
            format!("AWS4-HMAC-SHA256 {credential},SignedHeaders={names},Signature={signature}");
        // Host and range are in the request already.
        headers.drain(..2);
        headers.push(("authorization", authorization));
        headers
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

fn authenticated(key: &[u8], text: &str) -> Vec<u8> {
    // A key may have any length.
    let Ok(mut code) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    code.update(text.as_bytes());
    code.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Nothing fails that writes into a text.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A time as `20130524T000000Z`.
fn stamp(time: SystemTime) -> String {
    // `Fri, 24 May 2013 00:00:00 GMT`
    let date = httpdate::fmt_http_date(time);
    let parts: Vec<&str> = date.split(' ').collect();
    let [_, day, month, year, clock, _] = parts[..] else { return String::new() };
    let month = MONTHS.iter().position(|known| *known == month).unwrap_or(0) + 1;
    format!("{year}{month:02}{day}T{}Z", clock.replace(':', ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn by(place: &str, set: &[(&str, &str)]) -> std::result::Result<(Bucket, String), String> {
        let get = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Bucket::by(place, get)
    }

    /// The example of a request for a part of an object in the documentation of S3, "Signature
    /// Calculations for the Authorization Header".
    #[test]
    fn the_documented_request_is_signed_as_documented() {
        let (bucket, key) = by(
            "examplebucket/test.txt",
            &[
                ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
                ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                ("AWS_ENDPOINT_URL", "https://unused.example"),
            ],
        )
        .unwrap();
        let bucket = Bucket {
            origin: "https://examplebucket.s3.amazonaws.com".into(),
            path: String::new(),
            ..bucket
        };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_369_353_600);
        let signed = bucket.signed(&bucket.url(&key), "bytes=0-9", time);
        let (_, authorization) = signed.last().unwrap();
        assert_eq!(
            authorization,
            "AWS4-HMAC-SHA256 \
             Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert!(!format!("{bucket:?}").contains("wJalr"));
    }

    #[test]
    fn the_environment_says_where_and_who() {
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
        assert!(by("b/k", &[]).unwrap().0.signed("", "", SystemTime::now()).is_empty());

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
            ("b/k", &[id, ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "a\nb")]),
        ] {
            assert!(by(place, set).is_err(), "{place} {set:?}");
        }
    }
}
