//! Asks a running pipeline for its status.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::monitor::status::Status;

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(5);

/// The largest answer, in bytes.
const LARGEST: usize = 8 << 20;

/// Where to ask a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatusAddress {
    /// `HOST:PORT`.
    Address(String),
    Socket(PathBuf),
}

impl fmt::Display for StatusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::Socket(path) => path.display().fmt(f),
        }
    }
}

pub(crate) struct StatusClient(Runtime);

impl StatusClient {
    pub(crate) fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self(runtime.context("cannot wait for the network")?))
    }

    pub(crate) fn status(&self, address: &StatusAddress) -> Result<Status> {
        let answered = self.0.block_on(async { timeout(LONGEST, ask(address)).await });
        let body = match answered {
            Ok(body) => body.with_context(|| format!("cannot ask {address}"))?,
            Err(_) => anyhow::bail!("{address} did not answer within {} s", LONGEST.as_secs()),
        };
        serde_json::from_slice(&body)
            .with_context(|| format!("the answer of {address} is not the status of a pipeline"))
    }
}

async fn ask(address: &StatusAddress) -> Result<Bytes> {
    match address {
        StatusAddress::Address(address) => get(TcpStream::connect(address).await?, address).await,
        StatusAddress::Socket(path) => get(UnixStream::connect(path).await?, "localhost").await,
    }
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
) -> Result<Bytes> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/status").header(HOST, host).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status() == StatusCode::OK, "it answers {}", answer.status());
    let body = Limited::new(answer.into_body(), LARGEST).collect().await;
    Ok(body.map_err(anyhow::Error::from_boxed)?.to_bytes())
}
