//! TLS: a certificate and its key in two files, which are reloaded when they change.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, ServerConfig, crypto};

use crate::stamps::Stamp;

/// How often the files are checked.
const PERIOD: Duration = Duration::from_secs(2);

/// Protocols offered, in order of preference (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The names of the two files, in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

type Stamps = [Option<Stamp>; 2];

impl TlsFiles {
    /// The stamps of both files; `None` for one that is missing.
    fn stamps(&self) -> Stamps {
        [&self.certificate, &self.key].map(|path| fs::metadata(path).ok().as_ref().map(Stamp::of))
    }

    fn load(&self) -> Result<Arc<CertifiedKey>> {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.display());
        let chain = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("{certificate}: not in PEM"))?;
        if chain.is_empty() {
            bail!("{certificate}: it contains no PEM certificate (BEGIN CERTIFICATE)");
        }
        let bytes = read(&self.key)?;
        let private = match PrivateKeyDer::from_pem_slice(&bytes) {
            Ok(private) => private,
            Err(pem::Error::NoItemsFound) => {
                let encrypted = b"BEGIN ENCRYPTED PRIVATE KEY";
                if bytes.windows(encrypted.len()).any(|part| part == encrypted) {
                    bail!("{key}: the key is encrypted; one without a password is needed");
                }
                bail!("{key}: it contains no PEM private key (BEGIN PRIVATE KEY)");
            }
            Err(error) => {
                return Err(error).with_context(|| format!("{key}: not in PEM"));
            }
        };
        match CertifiedKey::from_der(chain, private, &crypto::ring::default_provider()) {
            Ok(pair) => Ok(Arc::new(pair)),
            Err(Error::InconsistentKeys(_)) => {
                bail!("{key}: it is not the key of the certificate in {certificate}")
            }
            Err(error @ (Error::InvalidCertificate(_) | Error::NoCertificatesPresented)) => {
                Err(error).with_context(|| certificate.to_string())
            }
            Err(error) => Err(error).with_context(|| key.to_string()),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// The certificate and key for new connections.
#[derive(Debug)]
struct Current(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Everything needed to accept TLS connections.
pub(crate) struct Tls {
    files: TlsFiles,
    current: Arc<Current>,
    acceptor: TlsAcceptor,
    stamps: Stamps,
    hangup: Signal,
}

impl Tls {
    /// Reads the files. From now on, SIGHUP causes them to be reread.
    ///
    /// # Errors
    ///
    /// Unreadable files, an invalid certificate, or a key that does not match it.
    pub(crate) fn new(files: &TlsFiles) -> Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        let stamps = files.stamps();
        let current = Arc::new(Current(Mutex::new(files.load()?)));
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { files: files.clone(), current, acceptor, stamps, hangup })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Checks the files periodically and on SIGHUP. Never returns. If new files are invalid, this
    /// is logged, and the current certificate stays in use.
    pub(crate) async fn keep(mut self) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_asked = tokio::select! {
                _ = ticks.tick() => false,
                _ = self.hangup.recv() => true,
            };
            let (files, before) = (self.files.clone(), self.stamps);
            let look = move || {
                let stamps = files.stamps();
                (stamps, (is_asked || stamps != before).then(|| files.load()))
            };
            let Ok((stamps, loaded)) = tokio::task::spawn_blocking(look).await else { return };
            self.stamps = stamps;
            match loaded {
                None => {}
                Some(Ok(pair)) => {
                    *self.current.0.lock().unwrap_or_else(PoisonError::into_inner) = pair;
                    tracing::info!("the certificate was read again");
                }
                Some(Err(error)) => tracing::error!("the certificate stays as it was: {error:#}"),
            }
        }
    }
}
