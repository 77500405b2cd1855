//! The listing of a bucket.

use crate::http::{self, HttpFailure};
use crate::s3::Bucket;
use crate::{Error, Result};
use percent_encoding::percent_decode_str;
use roxmltree::{Document, Node};
use std::borrow::Cow;
use std::collections::BTreeMap;
use ureq::http::{HeaderMap, StatusCode};

/// Bytes of one page of a listing, which has at most a thousand keys.
const LIST: u64 = 4 << 20;
/// Maximum names in a directory.
const MOST: usize = 1 << 20;
/// Maximum pages of a listing.
const PARTS: usize = 1 << 10;
/// Maximum bytes of a name: keys have at most 1024.
const LONGEST: usize = 1024;

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
            body.map_err(|error| HttpFailure::Passing(error.to_string()))
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
