//! A slide on a real web server.

mod common;

use common::aperio;
use common::seeds::{blosc, zarr_2, zarr_3};
use seekwire_slides_image::{Error, HttpSource, Limits, Region, Slide, Source};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Nginx(Child, u16);

impl Nginx {
    /// Serves a directory; what is below `/whole/` without ranges.
    fn start(directory: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let root = directory.display();
        let configuration = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/log;\n\
             events {{}}\n\
             http {{ access_log {root}/access; client_body_temp_path {root}/t1;\n\
             proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3; uwsgi_temp_path {root}/t4;\n\
             scgi_temp_path {root}/t5;\n\
             server {{ listen 127.0.0.1:{port}; root {root};\n\
             location /whole/ {{ alias {root}/; max_ranges 0; }}\n\
             location /broken/ {{ return 503; }} }} }}\n"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let child = Command::new("/usr/bin/env")
            .args(["nginx", "-c"])
            .arg(&file)
            .env("PATH", path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self(child, port);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "nginx has ended");
            std::thread::yield_now();
        }
        server
    }

    fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.1)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_slide_on_a_web_server_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("real.svs");
    std::fs::copy(aperio(), &file).unwrap();
    let server = Nginx::start(directory.path());
    let near = Slide::open(file.to_str().unwrap(), Limits::default()).unwrap();
    let address = server.address("real.svs?signature=secret");
    let far = Slide::open(&address, Limits::default()).unwrap();
    let region = Region { x: 100, y: 200, width: 501, height: 301 };
    assert_eq!(far.read(0, region).unwrap(), near.read(0, region).unwrap());
    let count = || {
        let text = std::fs::read_to_string(directory.path().join("access")).unwrap();
        text.lines().count()
    };
    let before = count();
    far.read(0, region).unwrap();
    assert_eq!(count(), before, "blocks that are kept were asked for");
    assert!(before < 30, "{before} requests");

    for (path, what) in [
        ("none.svs", "404"),
        ("whole/real.svs", "does not answer ranges"),
        ("broken/real.svs", "503 Service Unavailable (3 attempts)"),
    ] {
        let error = HttpSource::open(&server.address(path)).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains(path), "{error}");
    }
    let error = Slide::open("https://localhost/a.svs", Limits::default()).err().unwrap();
    assert!(cfg!(feature = "https") || matches!(error, Error::Unsupported { .. }), "{error}");

    // Another file of the same length in its place.
    let source = HttpSource::open(&address).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.reverse();
    std::fs::write(directory.path().join("other"), bytes).unwrap();
    let old = std::fs::metadata(&file).unwrap().modified().unwrap();
    let other = std::fs::File::options().write(true).open(directory.path().join("other")).unwrap();
    other.set_modified(old + std::time::Duration::from_secs(60)).unwrap();
    std::fs::rename(directory.path().join("other"), &file).unwrap();
    let error = source.read_at(100_000, &mut [0; 10]).unwrap_err().to_string();
    assert!(error.contains("has changed") && !error.contains("secret"), "{error}");
}

#[test]
fn an_image_in_many_files_on_a_web_server_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let compressed = zarr_2(r#"{"id": "blosc"}"#, &blosc(4096));
    for (name, files) in [("two.zarr", compressed), ("three.zarr", zarr_3("", &[5; 3 * 4096]))] {
        for (file, bytes) in files {
            let path = directory.path().join(name).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }
    let server = Nginx::start(directory.path());
    for name in ["two.zarr", "three.zarr"] {
        let near = directory.path().join(name);
        let near = Slide::open(near.to_str().unwrap(), Limits::default()).unwrap();
        let address = server.address(&format!("{name}/?signature=secret"));
        let far = Slide::open(&address, Limits::default()).unwrap();
        let region = Region { x: 30, y: 20, width: 60, height: 40 };
        assert_eq!(far.read(0, region).unwrap(), near.read(0, region).unwrap());
    }
    let access = std::fs::read_to_string(directory.path().join("access")).unwrap();
    assert!(access.lines().all(|line| line.contains("?signature=secret")), "{access}");
    let error = Slide::open(&server.address("none.zarr"), Limits::default()).err().unwrap();
    assert!(error.to_string().contains("without an image"), "{error}");
}
