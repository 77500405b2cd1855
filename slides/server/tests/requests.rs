//! Behaviour common to all requests: caches, other sites, tokens, rates, protocols, invalid input,
//! shutdown.

use crate::common::{Service, aperio, odd};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

#[test]
fn clients_that_have_an_image_get_not_modified() {
    let directory = tempfile::tempdir().unwrap();
    let path = odd(directory.path());
    let service = Service::of(&path);
    let address = "/odd.tif_files/9/0_0.png";
    let first = service.get(address);
    let etag = first.header("etag").to_owned();
    assert!(etag.starts_with('"') && etag.len() == 34, "{etag}");
    assert_eq!(first.header("cache-control"), "public, max-age=3600");
    let again = service.ask("GET", address, &[("if-none-match", &etag)]);
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, &*etag));
    let other = service.ask("GET", address, &[("if-none-match", "\"other\"")]);
    assert_eq!((other.status, other.body), (200, first.body.clone()));
    // Other images have other tags, and no image is made to find that out.
    let encoded = service.count("images_encoded_total");
    let grey = "/iiif/3/odd.tif/full/max/0/gray.png";
    assert_eq!(service.ask("GET", grey, &[("if-none-match", &etag)]).status, 200);
    let grey_etag = service.get(grey).header("etag").to_owned();
    assert_ne!(grey_etag, etag);
    assert_eq!(service.count("images_encoded_total"), encoded + 1);
    drop(service);
    // The same after a restart, without making the image.
    let service = Service::of(&path);
    let again = service.ask("GET", grey, &[("if-none-match", &grey_etag)]);
    assert_eq!(again.status, 304);
    assert_eq!(service.count("tiles_decoded_total"), 0);

    let head = service.ask("HEAD", address, &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), first.body.len().to_string());
    for address in ["/odd.tif.dzi", "/iiif/3/odd.tif/info.json", "/static/style.css"] {
        let etag = service.get(address).header("etag").to_owned();
        let again = service.ask("GET", address, &[("if-none-match", &etag)]);
        assert_eq!(again.status, 304, "{address}");
    }
}

#[test]
fn clients_keep_no_image_as_one_of_another_slide() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::of(&odd(directory.path()));
    for path in ["/odd.tif.dzi", "/slides/odd.tif/properties.json", "/iiif/3/odd.tif/info.json"] {
        let document = service.get(path);
        assert_eq!(document.header("cache-control"), "no-cache", "{path}");
        assert!(!document.header("etag").is_empty(), "{path}");
    }
    let page = service.get("/slides/odd.tif");
    let (_, version) = page.text().split_once("data-version=\"").unwrap();
    let (version, _) = version.split_once('"').unwrap();
    let get = |version: &str| service.get(&format!("/odd.tif_files/9/0_0.png?v={version}"));
    let (own, other) = (get(version), get("another-slide"));
    assert_eq!((own.status, own.header("cache-control")), (200, "public, max-age=3600"));
    // The viewer of another slide shows no part of this one.
    assert_eq!((other.status, other.header("cache-control")), (409, "no-cache"));
    assert_eq!(other.text(), "odd.tif: it has been replaced: load the page again\n");
    let descriptor = |version: &str| service.get(&format!("/odd.tif.dzi?v={version}")).status;
    assert_eq!((descriptor(version), descriptor("another-slide")), (200, 409));
}

#[test]
fn a_slide_that_is_replaced_is_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = odd(directory.path());
    let service = Service::of(&path);
    let address = "/odd.tif_files/9/0_0.png";
    let first = service.get(address);
    crate::common::vips(directory.path(), "invert part.v inverted.v");
    crate::common::vips(directory.path(), "tiffsave inverted.v other.tif --tile --pyramid");
    fs::rename(directory.path().join("other.tif"), &path).unwrap();
    let mut second = service.get(address);
    // The server checks the file from time to time.
    while second.body == first.body {
        std::thread::yield_now();
        second = service.get(address);
    }
    assert_ne!(first.header("etag"), second.header("etag"));
    let ours = first.pixels().get_pixel(5, 5).0.map(|colour| 255 - colour);
    assert_eq!(second.pixels().get_pixel(5, 5).0, ours);
}

#[test]
fn pages_from_elsewhere_may_read() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::of(&odd(directory.path()));
    for address in
        ["/odd.tif.dzi", "/iiif/3/odd.tif/info.json", "/nothing", "/odd.tif_files/0/0_0.jpg"]
    {
        let answer = service.ask("GET", address, &[("origin", "http://elsewhere")]);
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{address}");
        assert!(answer.header("access-control-expose-headers").contains("Link"), "{address}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{address}");
    }
    for address in ["/metrics", "/status"] {
        let answer = service.ask("GET", address, &[("origin", "http://elsewhere")]);
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, ""));
    }
    let preflight = service.ask("OPTIONS", "/odd.tif.dzi", &[("origin", "http://elsewhere")]);
    assert_eq!(preflight.status, 204);
    assert!(preflight.header("access-control-allow-headers").contains("Authorization"));
    let post = service.ask("POST", "/odd.tif.dzi", &[]);
    assert_eq!((post.status, post.header("allow")), (405, "GET,HEAD"));
    assert!(post.text().starts_with("only GET, HEAD and OPTIONS"), "{post:?}");
    let width = service.get("/slides/odd.tif/thumbnail.jpg?width=abc");
    assert_eq!((width.status, width.text()), (400, "width: a number of pixels, from 1 on\n"));
}

#[test]
fn who_does_not_know_the_token_gets_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(&odd(directory.path()), |settings| {
        settings.token = Some("s3cret".to_owned());
    });
    for address in
        ["/", "/metrics", "/odd.tif.dzi", "/nothing", "/static/style.css", "/?token=s3cre"]
    {
        let answer = service.get(address);
        assert_eq!(answer.status, 401, "{address}");
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{address}");
    }
    assert_eq!(service.get("/healthz").text(), "ok\n");
    let bearer = [("authorization", "Bearer s3cret")];
    let tile = service.ask("GET", "/odd.tif_files/0/0_0.jpg", &bearer);
    assert_eq!((tile.status, tile.header("cache-control")), (200, "private, max-age=3600"));
    let login = service.get("/slides/odd.tif?token=s3cret");
    assert_eq!((login.status, login.header("location")), (303, "./odd.tif"));
    let cookie = login.header("set-cookie").split(';').next().unwrap().to_owned();
    assert!(login.header("set-cookie").contains("HttpOnly; SameSite=Strict"));
    assert_eq!(service.ask("GET", "/", &[("cookie", &cookie)]).status, 200);
}

#[test]
fn a_client_that_asks_too_often_has_to_wait() {
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(&odd(directory.path()), |settings| settings.rate = Some(1));
    let statuses: Vec<u16> = (0..6).map(|_| service.get("/slides.json").status).collect();
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
    let refused = (0..6).map(|_| service.get("/")).find(|answer| answer.status == 429).unwrap();
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(service.get("/healthz").status, 200);
}

/// Sends raw bytes. Returns the status and the answer; status 0 means that the connection was just
/// closed.
fn raw(service: &Service, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(service.address).unwrap();
    stream.write_all(request).unwrap();
    let mut said = Vec::new();
    // A server that is sent too much may close the connection early.
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    let status = said.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), said)
}

fn line(service: &Service, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    raw(service, request.as_bytes())
}

#[test]
fn no_path_leads_out_of_the_directory() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("case")).unwrap();
    let slide = odd(outer.path());
    fs::copy(&slide, outer.path().join("secret.tif")).unwrap();
    fs::copy(&slide, root.join("case/a b.tif")).unwrap();
    symlink("../secret.tif", root.join("link.tif")).unwrap();
    symlink("case/a b.tif", root.join("inside.tif")).unwrap();
    let service = Service::of(&root);
    let listed = service.get("/slides.json").json();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|slide| &slide["id"]).collect();
    assert_eq!(ids, ["case/a b.tif", "inside.tif"]);
    assert_eq!(service.get("/case%2Fa%20b.tif.dzi").status, 200);
    assert_eq!(service.get("/iiif/3/case%2Fa%20b.tif/full/max/0/default.jpg").status, 200);
    assert_eq!(service.get("/slides/inside.tif").status, 200);

    for path in [
        "/../secret.tif.dzi",
        "/..%2Fsecret.tif.dzi",
        "/%2e%2e%2fsecret.tif.dzi",
        "/%2e%2e/secret.tif.dzi",
        "/..%252Fsecret.tif.dzi",
        "/case%2F..%2F..%2Fsecret.tif.dzi",
        "/link.tif.dzi",
        "/%2Fetc%2Fpasswd.dzi",
        "/inside.tif%00.dzi",
        "/inside.tif%00",
        "/iiif/3/..%2Fsecret.tif/info.json",
        "/iiif/3/../../secret.tif/info.json",
        "/iiif/3//info.json",
        "/slides/..%2Fsecret.tif",
        "/slides/../secret.tif",
        "/static/..%2Fviewer.js",
        "/static/../../Cargo.toml",
        "/static/%2Fetc%2Fpasswd",
        "//etc/passwd",
        "/.dzi",
        "/_files/0/0_0.jpg",
    ] {
        let (status, said) = line(&service, path);
        assert!(matches!(status, 400 | 404), "{path}: {said}");
        assert!(!said.contains(root.to_str().unwrap()), "{path}: {said}");
    }
    // Bytes that are not UTF-8.
    for path in ["/%ff%fe.dzi", "/slides/%ff", "/iiif/3/%c0%af/info.json", "/%.dzi", "/%zz.dzi"] {
        let (status, said) = line(&service, path);
        assert!(matches!(status, 400 | 404), "{path}: {said}");
    }
}

#[test]
fn nonsense_is_refused_and_the_server_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::rename(odd(directory.path()), root.join("odd.tif")).unwrap();
    fs::write(root.join("text.svs"), "this is no slide").unwrap();
    let whole = fs::read(aperio()).unwrap();
    fs::write(root.join("cut.svs"), &whole[..whole.len() / 2]).unwrap();
    let service = Service::of(&root);
    let image = "/iiif/3/odd.tif";
    for (path, status) in [
        ("/text.svs.dzi", 501),
        ("/cut.svs.dzi", 500),
        ("/iiif/1/odd.tif/info.json", 404),
        (&*format!("{image}/full/max/0/native.jpg"), 400),
        (&*format!("{image}/full/max/0/default.pdf"), 415),
        (&*format!("{image}/full/max/0/default"), 415),
        (&*format!("{image}/full/max/0"), 404),
        (&*format!("{image}/full/max/0/default.jpg/more"), 404),
        (&*format!("{image}/full/max/400/default.jpg"), 400),
        (&*format!("{image}/full/^100000,100000/0/default.jpg"), 400),
        (&*format!("{image}/full/^99999999999999999999,/0/default.jpg"), 400),
        (&*format!("{image}/full/0,0/0/default.jpg"), 400),
        (&*format!("{image}/-1,-1,1,1/max/0/default.jpg"), 400),
        (&*format!("{image}/1e9,0,1,1/max/0/default.jpg"), 400),
        (&*format!("{image}/999,999,9,9/max/0/default.jpg"), 400),
        (&*format!("{image}/0,0,99999999999999999999,1/max/0/default.jpg"), 400),
        (&*format!("{image}/pct:0,0,1e308,1/max/0/default.jpg"), 400),
        ("/odd.tif_files/99999999999/0_0.jpg", 404),
        ("/odd.tif_files/9/4294967295_4294967295.jpg", 404),
        ("/slides/odd.tif/thumbnail.jpg?width=99999999999", 400),
        ("/slides/odd.tif/thumbnail.jpg?width=-1", 400),
        ("/?page=99999999999999999999999", 400),
        ("/?page=0", 200),
    ] {
        let answer = service.get(path);
        assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }
    let cut = service.get("/cut.svs.dzi");
    assert!(cut.text().starts_with("cut.svs: "), "{}", cut.text());

    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100_000));
    let many: String = (0..1000).map(|number| format!("x{number}: y\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\n{many}\r\n");
    for request in [&*long, &*many, "GET\r\n\r\n", "\r\n \r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let (status, _) = raw(&service, request.as_bytes());
        assert!(status == 0 || (400..500).contains(&status), "{status}: {request:.40}");
    }
    // A host that could break out of a header or a document.
    let host =
        "GET /iiif/3/odd.tif/info.json HTTP/1.1\r\nHost: a\"><b\r\nConnection: close\r\n\r\n";
    assert_eq!(raw(&service, host.as_bytes()).0, 400);
    let none = "GET /iiif/3/odd.tif/info.json HTTP/1.0\r\n\r\n";
    assert_eq!(raw(&service, none.as_bytes()).0, 400);
    assert_eq!(service.get("/odd.tif_files/9/0_0.jpg").status, 200);
}

#[test]
fn programs_that_speak_http_2_are_answered_in_it() {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let directory = tempfile::tempdir().unwrap();
    let service = Service::of(&odd(directory.path()));
    let address = service.address;
    let expected = service.get("/odd.tif_files/9/0_0.png").body;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let stream = TokioIo::new(stream);
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let get = |path: &str| {
            let uri = format!("http://{address}{path}");
            hyper::Request::get(uri).body(Empty::<hyper::body::Bytes>::new()).unwrap()
        };
        let tile = send.send_request(get("/odd.tif_files/9/0_0.png")).await.unwrap();
        assert_eq!(tile.version(), hyper::Version::HTTP_2);
        assert_eq!(tile.into_body().collect().await.unwrap().to_bytes(), expected);
        let info = send.send_request(get("/iiif/3/odd.tif/info.json")).await.unwrap();
        let info = info.into_body().collect().await.unwrap().to_bytes();
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(info["id"], format!("http://{address}/iiif/3/odd.tif"));
    });
}

#[test]
fn an_answer_that_nobody_takes_counts_as_a_request() {
    use http_body_util::Empty;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(&odd(directory.path()), |settings| settings.requests = 1);
    let address = service.address;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0_u32);
        let handshake = builder.handshake(TokioIo::new(stream));
        let (mut send, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let uri = format!("http://{address}/odd.tif_files/9/0_0.png");
        let request = hyper::Request::get(uri).body(Empty::<hyper::body::Bytes>::new()).unwrap();
        let answer = send.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(service.get("/odd.tif.dzi").status, 503);
        assert_eq!(service.get("/healthz").status, 200);
    });
    // The socket belongs to a task of this runtime: without the task it is closed.
    drop(runtime);
    while service.get("/odd.tif.dzi").status == 503 {
        std::thread::yield_now();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"));
    command.arg("slides").args(arguments);
    command
}

#[test]
fn the_program_serves_until_it_is_terminated() {
    let path = aperio();
    let mut child = program(&[path.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("seekwire: one slide at http://").unwrap();
    let address = address.strip_suffix('/').unwrap();
    let mut idle = TcpStream::connect(address).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    // Requested before the end, and answered.
    let request = "GET /iiif/3/aperio.svs/full/500,/0/default.jpg HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 1];
    let signal = |name: &str| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    // Once the answer begins, the request has been read.
    stream.read_exact(&mut first).unwrap();
    signal("-TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.starts_with(b"TTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&rest[..40]));
    assert_eq!(idle.read(&mut first).unwrap(), 0);
    assert!(child.wait().unwrap().success());
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    assert!(log.contains("status=200") && log.contains("aperio.svs/full"), "{log}");
}

#[test]
fn a_hangup_is_no_end_and_a_second_interrupt_is() {
    // A web server that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let slide = format!("http://{}/a.svs", silent.local_addr().unwrap());
    let long = ["--listen", "127.0.0.1:0", "--timeout", "3600", "--grace", "3600"];
    let mut child =
        program(&[&[slide.as_str()][..], &long].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("seekwire: one slide at http://").unwrap();
    let address = address.strip_suffix('/').unwrap().to_owned();
    let signal = |name: &str| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal("-HUP");
    said.clear();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("SIGHUP changes nothing"), "{said:?}");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /a.svs.dzi HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // Once the server requests the slide, it has read the request.
    let _asked = silent.accept().unwrap();
    signal("-INT");
    while TcpStream::connect(&address).is_ok() {
        std::thread::yield_now();
    }
    signal("-INT");
    assert!(child.wait().unwrap().success());
    said.clear();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("second signal"), "{said}");
}

#[test]
fn what_could_not_be_opened_for_want_of_descriptors_is_opened_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = odd(directory.path());
    let run = "ulimit -Sn 200 && exec \"$0\" slides \"$1\" --listen 127.0.0.1:0 --log off";
    let mut child = Command::new("sh")
        .args(["-c", run, env!("CARGO_BIN_EXE_seekwire-slides"), path.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("seekwire: one slide at http://").unwrap();
    let service = Service::at(address.strip_suffix('/').unwrap().parse().unwrap());
    let id = Pid::from_child(&child);
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let open: Vec<u64> =
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    let free = (0..).find(|number| !open.contains(number)).unwrap();
    // Enough for the connection, and nothing else.
    let few = Rlimit { current: Some(free + 1), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(id), Resource::Nofile, few).unwrap();
    let failed = service.get("/odd.tif.dzi");
    prlimit(Some(id), Resource::Nofile, before).unwrap();
    let mut later = service.get("/odd.tif.dzi");
    while later.status != 200 {
        later = service.get("/odd.tif.dzi");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(failed.text().contains("Too many open files"), "{failed:?}");
    // The server had raised its limit to the maximum.
    assert_eq!(before.current, before.maximum);
}

#[test]
fn a_demo_says_what_it_shows_and_where() {
    let ended = |child: &mut std::process::Child| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(child.wait().unwrap().success());
    };
    let directory = tempfile::tempdir().unwrap();
    let odd = odd(directory.path());
    for slide in [Some(odd), None] {
        let mut command = program(&["--demo", "--listen", "127.0.0.1:0"]);
        if let Some(slide) = &slide {
            command.env("SEEKWIRE_DEMO_SLIDE", slide);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // From then on nothing reads its log, which does not stop it.
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find(|line| line.contains("; open ")).unwrap();
        let address = said.split("; open ").nth(1).unwrap();
        let list = ureq::get(&format!("{address}slides.json")).call().unwrap();
        let list: serde_json::Value =
            serde_json::from_reader(list.into_body().into_reader()).unwrap();
        let id = list[0]["id"].as_str().unwrap();
        let expected = match slide {
            Some(_) => "your slide",
            None if id == "aperio.svs" => "a real slide",
            None => "a synthetic slide",
        };
        assert!(said.contains(expected), "{said}: {id}");
        let viewer = ureq::get(&format!("{address}slides/{id}")).call().unwrap();
        let page = viewer.into_body().read_to_string().unwrap();
        let annotated = if slide.is_some() { "\"no\"" } else { "\"yes\"" };
        assert!(page.contains(&format!("data-annotated={annotated}")), "{page}");
        ended(&mut child);
    }
}

#[test]
fn wrong_arguments_are_explained() {
    let said = |arguments: &[&str]| {
        let output = program(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["/nowhere"]).contains("/nowhere"));
    assert!(said(&[".", "--listen", "nonsense"]).contains("cannot listen at nonsense"));
    assert!(said(&[".", "--memory", "many"]).contains("64KiB"));
    assert!(said(&[".", "--token-file", "/nowhere"]).contains("/nowhere"));
}
