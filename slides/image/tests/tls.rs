//! A slide on a real web server, over TLS with a certificate of an authority made for the test. The
//! trusted authorities are in the environment, so separate processes make the requests: this
//! program again.

use crate::common::nginx::Nginx;
use crate::common::{aperio, open, run};
use seekwire_slides_image::{Limits, Region, Slide};
use std::path::Path;
use std::process::Command;

const ADDRESS: &str = "SEEKWIRE_TEST_TLS";
const REGION: Region = Region { x: 100, y: 200, width: 501, height: 301 };

fn openssl(directory: &Path, words: &str) {
    run(Command::new("openssl").args(words.split(' ')).current_dir(directory));
}

/// Reads the address in a child process. Returns its result or error.
fn read(address: &str, authorities: &Path) -> String {
    let output = run(Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "tls::what_a_process_of_its_own_does"])
        .env(ADDRESS, address)
        .env_remove("SSL_CERT_DIR")
        .env("SSL_CERT_FILE", authorities));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("said: ")).expect("an answer").to_owned()
}

#[test]
fn what_a_process_of_its_own_does() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let said = match Slide::open(&address, Limits::default()) {
        Ok(slide) => format!("{:?}", &slide.read(0, REGION).unwrap().pixels()[90_000..90_030]),
        Err(error) => error.to_string(),
    };
    println!("\nsaid: {said}");
}

#[test]
fn a_slide_comes_by_tls_from_who_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::copy(aperio(), directory.join("real.svs")).unwrap();
    let new = "req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1";
    for name in ["own", "other"] {
        openssl(directory, &format!("{new} -subj /CN={name} -keyout {name}.key -out {name}.pem"));
    }
    let of = "-CA own.pem -CAkey own.key -addext basicConstraints=critical,CA:false";
    let names = "-addext subjectAltName=IP:127.0.0.1 -keyout server.key -out server.pem";
    openssl(directory, &format!("{new} -subj /CN=server {of} {names}"));
    let server = Nginx::start_tls(directory);
    let address = server.address("real.svs").replace("http:", "https:");

    let near = open(&directory.join("real.svs")).read(0, REGION).unwrap();
    let near = format!("{:?}", &near.pixels()[90_000..90_030]);
    assert_eq!(read(&address, &directory.join("own.pem")), near);
    let error = read(&address, &directory.join("other.pem"));
    assert!(error.starts_with(&address) && error.contains("UnknownIssuer"), "{error}");
    let plain = address.replace("real.svs", "plain/real.svs");
    let error = read(&plain, &directory.join("own.pem"));
    assert!(error.contains("which is not followed"), "{error}");
    let error = read(&address.replace("127.0.0.1", "localhost"), &directory.join("own.pem"));
    assert!(error.contains("not valid for name"), "{error}");
    let error = read(&address, &directory.join("none.pem"));
    assert!(error.contains("set SSL_CERT_FILE: "), "{error}");
}
