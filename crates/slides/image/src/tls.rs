//! Encryption of what web servers are asked, and whom to believe: the authorities of this system,
//! or those in the file or directory that `SSL_CERT_FILE` or `SSL_CERT_DIR` names.

use std::sync::{Arc, OnceLock};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

struct Authorities {
    certificates: Arc<Vec<Certificate<'static>>>,
    wrong: String,
}

/// Read once.
fn authorities() -> &'static Authorities {
    static FOUND: OnceLock<Authorities> = OnceLock::new();
    FOUND.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        let owned = found.certs.iter().map(|der| Certificate::from_der(der).to_owned());
        let wrong = found.errors.iter().map(|error| format!(": {error}")).collect();
        Authorities { certificates: Arc::new(owned.collect()), wrong }
    })
}

/// Whether anybody is believed.
pub(crate) fn check() -> Result<(), String> {
    let Authorities { certificates, wrong } = authorities();
    if !certificates.is_empty() {
        return Ok(());
    }
    let install = "install ca-certificates, or set SSL_CERT_FILE";
    Err(format!("https without certificates of authorities; {install}{wrong}"))
}

/// For all agents.
pub(crate) fn configuration() -> TlsConfig {
    let certificates = Arc::clone(&authorities().certificates);
    TlsConfig::builder()
        .root_certs(RootCerts::Specific(certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
