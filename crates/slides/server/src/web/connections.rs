//! Connections: accepted up to a number, HTTP/1.1 or HTTP/2 as the client begins (RFC 9113, section
//! 3.3) by TLS or without, and ended well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// So long a client may take for a request, or say nothing between two.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest request line and headers.
const LARGEST: usize = 32 << 10;
/// Requests of one HTTP/2 connection at a time.
const STREAMS: u32 = 128;
/// Before another connection is accepted, where that has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// From where a request comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Serves at most `most` connections at a time until `end` comes; what is under way then may take
/// as long as `grace`.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    most: u32,
    grace: Duration,
    end: impl Future<Output = ()>,
) {
    let permits = Arc::new(Semaphore::new(most as usize));
    let builder = Arc::new(builder());
    let (ending, ended) = watch::channel(());
    let mut end = std::pin::pin!(end);
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            next = next => next,
            () = &mut end => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let connection = Connection {
                    builder: Arc::clone(&builder),
                    router: router.clone(),
                    peer,
                    ended: ended.clone(),
                };
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    connection.begin(stream, acceptor).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    let _ = ending.send(());
    if timeout(grace, permits.acquire_many(most)).await.is_err() {
        tracing::warn!("some requests were not answered in time");
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(LARGEST);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PATIENCE)
        .keep_alive_timeout(PATIENCE)
        .max_header_list_size(LARGEST as u32)
        .max_concurrent_streams(STREAMS);
    builder
}

/// What a connection needs until the client ends it, or `ended` changes and what it has asked for is
/// answered.
struct Connection {
    builder: Arc<Builder<TokioExecutor>>,
    router: Router,
    peer: SocketAddr,
    ended: watch::Receiver<()>,
}

impl Connection {
    async fn begin(mut self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        // Tiles are small, and each is wanted at once. Without this they still come.
        let _ = stream.set_nodelay(true);
        // Who connects and says nothing is not waited for longer than others, nor at the end.
        tokio::select! {
            ready = timeout(PATIENCE, stream.readable()) => {
                if ready.is_err() {
                    return;
                }
            }
            _ = self.ended.changed() => return,
        }
        let Some(acceptor) = acceptor else { return self.serve(TokioIo::new(stream)).await };
        let accepted = tokio::select! {
            accepted = timeout(PATIENCE, acceptor.accept(stream)) => accepted,
            _ = self.ended.changed() => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.serve(TokioIo::new(stream)).await,
            Ok(Err(error)) => tracing::debug!(peer = %self.peer, "no TLS: {error}"),
            Err(_) => tracing::debug!(peer = %self.peer, "no TLS in time"),
        }
    }

    async fn serve(self, stream: impl Read + Write + Unpin + Send + 'static) {
        let Self { builder, router, peer, mut ended } = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            router.clone().call(request)
        });
        let serving = builder.serve_connection(stream, service);
        let mut serving = std::pin::pin!(serving);
        // What is wrong with a client is the client's.
        tokio::select! {
            _ = serving.as_mut() => return,
            _ = ended.changed() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    }
}
