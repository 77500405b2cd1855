//! Keys that sign requests to a bucket: from the environment, from the files of a profile, from
//! single sign-on, or from the role of a pod, a container or a machine, in this order. All buckets
//! share the keys, which are renewed before they expire.

use crate::tls;
use bytes::Bytes;
use futures_executor::block_on;
use reqsign_aws_v4::{Credential, DefaultCredentialProvider, RequestSigner};
use reqsign_core::{Context, Error, ErrorKind, FileRead, HttpSend, OsEnv, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::request::Parts;
use ureq::http::{Request, Response};

pub(crate) type Signer = reqsign_core::Signer<Credential>;

/// Timeout for link-local services: the machine's own answers at once; on other machines, the
/// address may not be routed.
const NEAR: Duration = Duration::from_secs(1);
const WHOLE: Duration = Duration::from_secs(10);
/// Maximum bytes of a response with keys.
const MOST: u64 = 1 << 20;
/// If no keys were found, they are looked for again after this time.
const AGAIN: Duration = Duration::from_secs(60);

const PROFILE: &str = "AWS_PROFILE";
const ROLE: &str = "AWS_ROLE_ARN";
const TOKEN: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
/// If one of these is set, requests must be signed.
const WANTED: [&str; 5] = [
    PROFILE,
    ROLE,
    TOKEN,
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Has no region yet: the signers of all regions share the keys.
static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let context = Context::new().with_file_read(Files).with_http_send(Services).with_env(OsEnv);
    Signer::new(context, keys(), RequestSigner::new("s3", ""))
});
/// True once a request has been signed.
static HAS_SIGNED: AtomicBool = AtomicBool::new(false);
/// When keys were last looked for in vain.
static NONE_AT: Mutex<Option<Instant>> = Mutex::new(None);

/// The first variable that names a source of keys.
fn wanted() -> Option<&'static str> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    WANTED.into_iter().find(is_set)
}

/// The sources of keys. If the environment names one, no other is used: keys from elsewhere might
/// be somebody else's. Programs that print keys are not started.
fn keys() -> DefaultCredentialProvider {
    let builder = DefaultCredentialProvider::builder().no_process();
    let builder = match wanted() {
        Some(PROFILE) => builder.no_web_identity().no_ecs().no_imds(),
        Some(ROLE | TOKEN) => builder.no_ecs().no_imds(),
        Some(_) => builder.no_imds(),
        None => builder,
    };
    builder.build()
}

/// The signer of requests to buckets in a region.
pub(crate) fn signer(region: &str) -> Signer {
    SIGNER.clone().with_request_signer(RequestSigner::new("s3", region))
}

/// Signs a request, unless no keys exist.
///
/// # Errors
/// Keys that are no longer available, or that the environment points to but that cannot be read.
pub(crate) fn sign(signer: &Signer, parts: &mut Parts) -> std::result::Result<(), String> {
    // Until keys are found, one thread looks for them, and the others wait for the result.
    let mut none_at = (!HAS_SIGNED.load(Ordering::Relaxed))
        .then(|| NONE_AT.lock().unwrap_or_else(PoisonError::into_inner));
    if none_at.as_ref().is_some_and(|none_at| none_at.is_some_and(|at| at.elapsed() < AGAIN)) {
        return Ok(());
    }
    match (block_on(signer.sign(parts, None)), &mut none_at) {
        (Ok(()), _) => HAS_SIGNED.store(true, Ordering::Relaxed),
        (Err(error), Some(none_at)) if error.kind() == ErrorKind::CredentialInvalid => {
            if let Some(name) = wanted() {
                return Err(format!("{name} is set, but yields no keys"));
            }
            **none_at = Some(Instant::now());
        }
        (Err(error), _) => return Err(format!("the request cannot be signed: {error}")),
    }
    Ok(())
}

/// Files with profiles and tokens.
#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> Result<Vec<u8>> {
        std::fs::read(path).map_err(|error| Error::unexpected(path).with_source(error))
    }
}

/// Services that provide keys. Errors do not contain the address: it may include a token.
#[derive(Debug)]
struct Services;

impl HttpSend for Services {
    async fn http_send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let host = request.uri().host().unwrap_or_default();
        let is_near = host.starts_with("169.254.") || host.starts_with("[fd00:ec2:");
        let configuration = Agent::config_builder()
            .timeout_connect(Some(if is_near { NEAR } else { WHOLE }))
            .timeout_global(Some(WHOLE))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls::configuration());
        let failed = |error| Error::unexpected("a service that gives keys out").with_source(error);
        let agent = configuration.build().new_agent();
        let answer = agent.run(request.map(|body| body.to_vec())).map_err(failed)?;
        let (parts, body) = answer.into_parts();
        let body = body.into_with_config().limit(MOST).read_to_vec().map_err(failed)?;
        Ok(Response::from_parts(parts, body.into()))
    }
}
