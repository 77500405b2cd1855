//! TLS to web servers. The trusted authorities are those of this system, or those in the file or
//! directory that `SSL_CERT_FILE` or `SSL_CERT_DIR` names.

use std::sync::{Arc, OnceLock};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

struct Authorities {
    certificates: Arc<Vec<Certificate<'static>>>,
    wrong: String,
}

/// The trusted authorities, read once.
fn authorities() -> &'static Authorities {
    static FOUND: OnceLock<Authorities> = OnceLock::new();
    FOUND.get_or_init(|| {
        let loaded = rustls_native_certs::load_native_certs();
        let owned = loaded.certs.iter().map(|der| Certificate::from_der(der).to_owned());
        let wrong = loaded.errors.iter().map(|error| format!(": {error}")).collect();
        Authorities { certificates: Arc::new(owned.collect()), wrong }
    })
}

/// Checks that there are trusted authorities.
pub(crate) fn check() -> Result<(), String> {
    let Authorities { certificates, wrong } = authorities();
    if !certificates.is_empty() {
        return Ok(());
    }
    let install = "install ca-certificates, or set SSL_CERT_FILE";
    Err(format!("https needs certificates of authorities; {install}{wrong}"))
}

/// The configuration of all agents.
pub(crate) fn configuration() -> TlsConfig {
    let certificates = Arc::clone(&authorities().certificates);
    TlsConfig::builder()
        .root_certs(RootCerts::Specific(certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
