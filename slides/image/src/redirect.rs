//! Redirections that are followed (RFC 9110, section 15.4): only within the same web server. Others
//! could reach hosts in an internal network that the requester has no access to.

use ureq::http::Uri;

/// Maximum redirections of one request.
pub(crate) const MOST: u32 = 10;

/// The absolute address of a `Location` relative to the requested one; `None` unless it has the
/// same scheme, host and port, or the same host with https instead of http.
pub(crate) fn next(from: &str, location: &str) -> Option<String> {
    let asked: Uri = from.parse().ok()?;
    let location = location.split('#').next().unwrap_or_default();
    let scheme = asked.scheme_str()?;
    let origin = format!("{scheme}://{}", asked.authority()?);
    let to = if location.split(['/', '?']).next().is_some_and(|start| start.contains(':')) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else if location.starts_with('?') {
        format!("{origin}{}{location}", asked.path())
    } else {
        let (directory, _) = asked.path().rsplit_once('/')?;
        format!("{origin}{directory}/{location}")
    };
    let next: Uri = to.parse().ok()?;
    let same_host = next.host()?.eq_ignore_ascii_case(asked.host()?);
    let same_port = port(&next)? == port(&asked)?;
    let is_allowed = match (scheme, next.scheme_str()?) {
        ("http", "https") => true,
        (asked, next) => asked == next && same_port,
    };
    (same_host && is_allowed).then_some(to)
}

fn port(of: &Uri) -> Option<u16> {
    let usual = match of.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    Some(of.port_u16().unwrap_or(usual))
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn only_the_same_host_is_asked() {
        let from = "http://host:80/a/b.svs?key=1";
        for (location, to) in [
            ("/c", "http://host:80/c"),
            ("c.svs?key=2", "http://host:80/a/c.svs?key=2"),
            ("?key=2", "http://host:80/a/b.svs?key=2"),
            ("//HOST/c", "http://HOST/c"),
            ("http://host/c#part", "http://host/c"),
            ("HTTP://host/c", "HTTP://host/c"),
            ("https://host/c", "https://host/c"),
            ("https://host:8443/c", "https://host:8443/c"),
        ] {
            assert_eq!(next(from, location).as_deref(), Some(to), "{location}");
        }
        for location in [
            "http://169.254.169.254/latest",
            "//other/c",
            "https://other/c",
            "http://host:81/c",
            "http://host@other/c",
            "http://[::1]/c",
            "http:///c",
            "http:c",
            "ftp://host/c",
            "file:///etc/passwd",
            "/a b",
        ] {
            assert_eq!(next(from, location), None, "{location}");
        }
        assert_eq!(next("https://host/a", "http://host/a"), None);
        assert_eq!(next("https://host/a", "https://host:80/a"), None);
        assert_eq!(next("https://host/a", "/b").as_deref(), Some("https://host/b"));
    }
}
