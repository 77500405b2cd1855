//! The names of slides, derived from the locations on the command line.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use anyhow::{Result as Anyhow, bail};
use seekwire_slides_image::public;

/// The parts of an address: host or bucket, then the parts of the path or key.
pub(super) fn parts_of(address: &str) -> Anyhow<Vec<String>> {
    let is_object = address.starts_with("s3://");
    let path = public(address);
    let (_, rest) = path.split_once("://").unwrap_or(("", &path));
    let parts = rest.split('/').filter(|part| !part.is_empty());
    let parts: Vec<String> = parts
        .map(|part| match is_object {
            true => part.to_owned(),
            false => percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned(),
        })
        .collect();
    if is_object && parts.len() < 2 {
        bail!("{path}: it has no key: a slide in a bucket is s3://BUCKET/KEY");
    }
    if !parts.last().is_some_and(|name| is_text(name)) {
        bail!("{path}: an address without a name");
    }
    Ok(parts)
}

/// The parts of a path.
pub(super) fn parts(path: &Path) -> Vec<String> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_)));
    named.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
}

/// The last part, or, if that is taken, with as many preceding parts as make it unique.
pub(super) fn free(used_names: &mut BTreeSet<String>, parts: &[String]) -> Anyhow<String> {
    let names = (0..parts.len().max(1)).rev().map(|at| parts[at..].join("/"));
    let mut last = String::new();
    for name in names {
        if !name.contains(char::is_control) && used_names.insert(name.clone()) {
            return Ok(name);
        }
        last = name;
    }
    bail!("two slides are called {last}");
}

pub(super) fn is_text(name: &str) -> bool {
    is_printable(name) && !name.contains(char::REPLACEMENT_CHARACTER)
}

pub(super) fn is_printable(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

/// True if a slide is on a web server.
pub(crate) fn is_address(location: &str) -> bool {
    ["http://", "https://", "s3://"].iter().any(|scheme| location.starts_with(scheme))
}
