//! Pages and texts: readable errors, names that look like markup, compression.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{Service, odd};

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[test]
fn an_error_is_a_page_for_browsers_and_text_for_programs() {
    let directory = tempfile::tempdir().unwrap();
    odd(directory.path());
    fs::write(directory.path().join("broken.svs"), "II*").unwrap();
    let service = Service::of(directory.path());
    for (path, status, back) in [
        ("/slides/broken.svs", 501, "href=\"../\""),
        ("/slides/none.svs", 404, "href=\"../\""),
        ("/nowhere", 404, "href=\"./\""),
        ("/iiif/3/none.svs/full/max/0/default.jpg", 404, "href=\"../../../../../../\""),
    ] {
        let page = service.ask("GET", path, &[BROWSER]);
        assert_eq!(
            (page.status, page.header("content-type")),
            (status, "text/html; charset=utf-8")
        );
        assert!(page.text().contains(back) && page.text().contains("width=device-width"), "{path}");
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        let text = service.get(path);
        assert_eq!(
            (text.status, text.header("content-type")),
            (status, "text/plain; charset=utf-8")
        );
        assert!(page.text().contains(text.text().trim()), "{}", page.text());
    }
    let refused =
        Service::start(directory.path(), |settings| settings.token = Some("s3cret".into()));
    let page = refused.ask("GET", "/", &[BROWSER]);
    assert_eq!(page.status, 401);
    assert!(page.header("www-authenticate").starts_with("Bearer"));
    assert!(page.text().contains("a token is needed") && !page.text().contains("All slides"));
    let icon = service.get("/static/icon.svg");
    assert_eq!((icon.status, icon.header("content-type")), (200, "image/svg+xml"));
}

#[test]
fn names_that_are_markup_are_text_on_all_pages() {
    let directory = tempfile::tempdir().unwrap();
    let name = "<img src=x onerror=alert(1)>\"'&{{cards}}.tif";
    fs::rename(odd(directory.path()), directory.path().join(name)).unwrap();
    fs::write(directory.path().join("<script>alert(2)\".svs"), "II*").unwrap();
    let service = Service::of(directory.path());
    let encoded = "%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%22%27%26%7B%7Bcards%7D%7D.tif";
    let broken = "/slides/%3Cscript%3Ealert%282%29%22.svs";
    let hostile = "/slides/%3Cscript%3Ealert(3)%3C%2Fscript%3E";
    let paths = [
        "/".to_owned(),
        format!("/slides/{encoded}"),
        broken.to_owned(),
        hostile.to_owned(),
        "/?page=%3Cscript%3E".to_owned(),
        "/%3Cscript%3E.dzi".to_owned(),
        "/iiif/3/%3Cscript%3E/info.json".to_owned(),
        "/dicomweb/studies/%3Cscript%3E".to_owned(),
    ];
    for path in &paths {
        let page = service.ask("GET", path, &[BROWSER]);
        let text = page.text();
        assert!(!text.contains("<img src=x") && !text.contains("<script>"), "{path}: {text}");
    }
    assert_eq!(service.get(&paths[1]).status, 200);
}

/// Headers and body as transmitted.
fn raw(service: &Service, path: &str, headers: &str) -> (String, Vec<u8>) {
    let mut client = TcpStream::connect(service.address).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8(bytes[..at].to_vec()).unwrap().to_lowercase(), bytes[at + 4..].to_vec())
}

#[test]
fn text_is_compressed_and_images_are_not() {
    let directory = tempfile::tempdir().unwrap();
    odd(directory.path());
    let point = |x: u32| {
        format!(
            "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[{x},7]}}}}"
        )
    };
    let points: Vec<String> = (0..300).map(point).collect();
    fs::write(directory.path().join("odd.geojson"), format!("[{}]", points.join(","))).unwrap();
    let service = Service::of(directory.path());
    let takes = "Accept-Encoding: gzip\r\n";
    for path in [
        "/static/style.css",
        "/static/viewer.js",
        "/slides/odd.tif/annotations.json",
        "/slides/odd.tif",
    ] {
        let (head, small) = raw(&service, path, takes);
        assert!(
            head.contains("content-encoding: gzip") && head.contains("accept-encoding"),
            "{path}: {head}"
        );
        let (head, plain) = raw(&service, path, "");
        assert!(!head.contains("content-encoding"), "{path}: {head}");
        assert!(small.len() * 2 < plain.len() + 200, "{path}: {} of {}", small.len(), plain.len());
    }
    for path in ["/odd.tif_files/9/0_0.jpg", "/slides/odd.tif/thumbnail.png", "/healthz"] {
        let (head, _) = raw(&service, path, takes);
        assert!(
            head.starts_with("http/1.1 200") && !head.contains("content-encoding"),
            "{path}: {head}"
        );
    }
}

#[test]
fn compressed_and_plain_text_share_a_weak_tag_and_images_have_strong_ones() {
    let directory = tempfile::tempdir().unwrap();
    odd(directory.path());
    fs::write(directory.path().join("odd.geojson"), "{\"features\": []}").unwrap();
    let service = Service::of(directory.path());
    let tag = |head: &str| {
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: "));
        tag.unwrap_or_else(|| panic!("{head}")).to_owned()
    };
    for path in [
        "/static/style.css",
        "/static/icon.svg",
        "/odd.tif.dzi",
        "/slides/odd.tif/properties.json",
        "/slides/odd.tif/annotations.json?bbox=0,0,9,9&zoom=1",
        "/iiif/3/odd.tif/info.json",
        "/odd.tif_files/9/0_0.jpg",
        "/slides/odd.tif/thumbnail.png",
    ] {
        let is_image = path.ends_with("g") && !path.ends_with(".svg");
        for takes in ["", "Accept-Encoding: gzip\r\n"] {
            let (head, _) = raw(&service, path, takes);
            let etag = tag(&head);
            assert_eq!(etag.starts_with("w/\""), !is_image, "{path}: {head}");
            let etag = etag.replace("w/", "W/");
            let (head, body) = raw(&service, path, &format!("{takes}If-None-Match: {etag}\r\n"));
            assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{path}: {head}");
            assert_eq!(tag(&head).replace("w/", "W/"), etag, "{path}");
        }
    }
}

#[test]
fn the_access_log_has_the_bytes_that_were_sent() {
    let directory = tempfile::tempdir().unwrap();
    let slide = odd(directory.path());
    let mut child = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"))
        .args(["slides", slide.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.next().unwrap();
    let address = said.rsplit_once("http://").unwrap().1.trim_end_matches('/');
    let service = Service::at(address.parse().unwrap());
    for takes in ["", "Accept-Encoding: gzip\r\n"] {
        let (_, body) = raw(&service, "/static/style.css", takes);
        // In chunked encoding, the lengths of chunks are not part of the body.
        let sent = if takes.is_empty() { body.len() } else { unchunked(&body).len() };
        let line = lines.next().unwrap();
        let bytes = line.split_once(" bytes=").unwrap().1.split(' ').next().unwrap();
        assert_eq!(bytes.parse::<usize>().unwrap(), sent, "{line}");
        assert!(sent > 500);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Decodes a chunked body (RFC 9112, section 7.1).
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|two| two == b"\r\n").unwrap();
        let length =
            usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[line + 2..][..length]);
        body = &body[line + 2 + length + 2..];
    }
}

#[test]
fn the_gallery_is_searched_and_has_folders() {
    let directory = tempfile::tempdir().unwrap();
    let slide = odd(directory.path());
    for name in ["a/Case-1.tif", "a/b/case-2.tif", "c&d/\"e\".tif"] {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(&slide, path).unwrap();
    }
    let service = Service::of(directory.path());
    let listed = |query: &str| -> Vec<String> {
        let page = service.get(query);
        assert_eq!(page.status, 200);
        let parts = page.text().split("<li><a href=\"slides/").skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
    };
    let all = ["a%2FCase-1.tif", "a%2Fb%2Fcase-2.tif", "c%26d%2F%22e%22.tif", "odd.tif"];
    let reversed: Vec<&str> = all.into_iter().rev().collect();
    assert_eq!(listed("/"), all);
    assert_eq!(listed("/?sort=reversed"), reversed);
    assert_eq!(listed("/?q=CASE"), all[..2]);
    // The third is the oldest, and the second the largest.
    let change = |name: &str, date: u64, more: usize| {
        let mut file =
            fs::OpenOptions::new().append(true).open(directory.path().join(name)).unwrap();
        file.write_all(&vec![0; more]).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(date)).unwrap();
    };
    for (name, date, more) in [
        ("a/Case-1.tif", 2000, 20),
        ("a/b/case-2.tif", 3000, 30),
        ("c&d/\"e\".tif", 1000, 10),
        ("odd.tif", 4000, 0),
    ] {
        change(name, date, more);
    }
    let at = |indices: [usize; 4]| indices.map(|index| all[index]);
    assert_eq!(listed("/?sort=newest"), at([3, 1, 0, 2]));
    assert_eq!(listed("/?sort=oldest"), at([2, 0, 1, 3]));
    assert_eq!(listed("/?sort=largest"), at([1, 0, 2, 3]));
    assert_eq!(listed("/?sort=smallest"), at([3, 2, 0, 1]));
    assert_eq!(listed("/?sort=nonsense"), all);
    assert!(
        service.get("/?sort=oldest&folder=a").text().contains("folder=a%2Fb&amp;sort=oldest\"")
    );
    assert_eq!(listed("/?q=case&folder=a%2Fb&sort=reversed&page=9"), all[1..2]);
    assert_eq!(listed("/?folder=a"), all[..2]);
    assert_eq!(listed("/?folder=%2Fc%26d%2F"), all[2..3]);
    assert_eq!(listed("/?q=%22"), all[2..3]);
    let nothing: [&str; 0] = [];
    for query in ["/?folder=..", "/?folder=a%2Fb%2Fc", "/?q=%3Cscript%3E&folder=%22%3E%3Cscript%3E"]
    {
        assert_eq!(listed(query), nothing, "{query}");
        assert!(!service.get(query).text().contains("<script>"));
    }
    let page = service.get("/?q=x%22y&folder=a");
    assert!(page.text().contains("?q=x%22y&amp;folder=a%2Fb\">b/ (1)</a>"), "{}", page.text());
    assert!(page.text().contains("value=\"x&quot;y\""));
    assert!(service.get("/").text().contains("c&amp;d/ (1)"));
    assert_eq!(service.get("/?page=x").status, 400);
}
