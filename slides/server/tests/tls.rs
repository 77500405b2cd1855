//! TLS: protocols, certificates that change, and invalid ones.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::common::{Service, odd, run};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use seekwire_slides::CertificateFiles;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Makes a key and a self-signed certificate for `localhost`.
fn certificate(directory: &Path, name: &str) -> CertificateFiles {
    let file = |end: &str| directory.join(format!("{name}.{end}"));
    let config = "[req]\ndistinguished_name = name\nx509_extensions = own\nprompt = no\n\
        [name]\nCN = localhost\n[own]\nsubjectAltName = DNS:localhost\n";
    fs::write(file("config"), config).unwrap();
    let (key, certificate) = (file("key"), file("pem"));
    run(Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes".split(' '))
        .args(["-days", "30", "-config"])
        .arg(file("config"))
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate));
    CertificateFiles { certificate, key }
}

/// Connects, and trusts only that certificate.
async fn connect(
    address: SocketAddr,
    trusted: &Path,
    protocols: &[&str],
) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = tokio::net::TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn request(path: &str) -> hyper::Request<Empty<hyper::body::Bytes>> {
    let uri = format!("https://localhost{path}");
    hyper::Request::get(uri).header("host", "localhost").body(Empty::new()).unwrap()
}

#[test]
fn both_protocols_are_spoken_by_tls() {
    let directory = tempfile::tempdir().unwrap();
    let slide = odd(directory.path());
    let files = certificate(directory.path(), "one");
    let trusted = files.certificate.clone();
    let service = Service::start(&slide, |settings| {
        settings.tls = Some(files);
        settings.token = Some("s3cret".to_owned());
    });
    runtime().block_on(async {
        let stream = connect(service.address, &trusted, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let io = TokioIo::new(stream);
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let get = |path: &str| {
            let mut request = request(path);
            let token = "Bearer s3cret".parse().unwrap();
            request.headers_mut().insert("authorization", token);
            request.headers_mut().remove("host");
            request
        };
        let answer = send.send_request(get("/iiif/3/odd.tif/info.json")).await.unwrap();
        assert_eq!(answer.version(), hyper::Version::HTTP_2);
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let information: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(information["id"], "https://localhost/iiif/3/odd.tif");
        let tile = send.send_request(get("/odd.tif_files/9/0_0.png")).await.unwrap();
        assert_eq!(tile.status(), 200);
        assert!(tile.into_body().collect().await.unwrap().to_bytes().starts_with(b"\x89PNG"));

        let stream = connect(service.address, &trusted, &["http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let io = TokioIo::new(stream);
        let (mut send, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let login = send.send_request(request("/?token=s3cret")).await.unwrap();
        assert_eq!((login.version(), login.status().as_u16()), (hyper::Version::HTTP_11, 303));
        let cookie = login.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.ends_with("; SameSite=Strict; Secure"), "{cookie}");
    });
    // A client without TLS gets no answer, and does not delay others.
    let mut plain = TcpStream::connect(service.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    let _silent = TcpStream::connect(service.address).unwrap();
    runtime().block_on(async { connect(service.address, &trusted, &[]).await.unwrap() });
}

/// The program, ended on drop.
struct Program {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    address: SocketAddr,
}

impl Program {
    fn start(slide: &Path, files: &CertificateFiles) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"))
            .args(["slides", "--listen", "127.0.0.1:0", "--tls-certificate"])
            .arg(&files.certificate)
            .arg("--tls-key")
            .arg(&files.key)
            .arg(slide)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("seekwire: one slide at https://");
        let address = address.and_then(|address| address.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        Self { child, said, address }
    }

    /// Waits for a line in the log that contains a text.
    fn until(&mut self, what: &str) -> String {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "{what}");
        }
        line
    }

    fn trusts(&self, trusted: &Path) -> bool {
        runtime().block_on(connect(self.address, trusted, &[])).is_ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn certificates_that_change_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let slide = odd(directory.path());
    let [one, two] = ["one", "two"].map(|name| certificate(directory.path(), name));
    let used = CertificateFiles {
        certificate: directory.path().join("used.pem"),
        key: directory.path().join("used.key"),
    };
    let put = |from: &Path, to: &PathBuf| {
        let new = directory.path().join("new");
        fs::copy(from, &new).unwrap();
        fs::rename(&new, to).unwrap();
    };
    put(&one.certificate, &used.certificate);
    put(&one.key, &used.key);
    let mut program = Program::start(&slide, &used);
    assert!(program.trusts(&one.certificate) && !program.trusts(&two.certificate));
    // A new certificate without its key is not used. The change is noticed without a signal.
    put(&two.certificate, &used.certificate);
    let line = program.until("stays as it was");
    assert!(line.contains("used.key: it is not the key of the certificate in"), "{line}");
    assert!(program.trusts(&one.certificate));
    put(&two.key, &used.key);
    program.until("was read again");
    assert!(program.trusts(&two.certificate) && !program.trusts(&one.certificate));
    // A signal also reloads unchanged files.
    let id = program.child.id().to_string();
    run(Command::new("kill").args(["-HUP", &id]));
    program.until("was read again");
    assert!(program.trusts(&two.certificate));
}

#[test]
fn what_is_wrong_with_files_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let [one, two] = ["one", "two"].map(|name| certificate(directory, name));
    let encrypted = directory.join("encrypted");
    run(Command::new("openssl")
        .args(["pkcs8", "-topk8", "-passout", "pass:x", "-in"])
        .arg(&one.key)
        .arg("-out")
        .arg(&encrypted));
    let broken = directory.join("broken");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let cut = directory.join("cut");
    fs::write(&cut, "-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
    let said = |certificate: &Path, key: &Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"))
            .args(["slides", ".", "--listen", "127.0.0.1:0", "--tls-certificate"])
            .arg(certificate)
            .arg("--tls-key")
            .arg(key)
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for (certificate, key, what) in [
        (&*one.certificate, &*two.key, "two.key: it is not the key of the certificate in"),
        (&one.key, &one.key, "one.key: it contains no PEM certificate"),
        (&one.certificate, &one.certificate, "one.pem: it contains no PEM private key"),
        (&one.certificate, &encrypted, "encrypted: the key is encrypted"),
        (&one.certificate, &cut, "cut: not in PEM"),
        (&broken, &one.key, "broken"),
        (Path::new("/nowhere"), &one.key, "/nowhere"),
        (&one.certificate, Path::new("/nowhere"), "/nowhere"),
        (directory, &one.key, "directory"),
    ] {
        let said = said(certificate, key);
        assert!(said.contains(what), "{what}: {said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"))
        .args(["slides", ".", "--tls-key", "/nowhere"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--tls-certificate"));
}
