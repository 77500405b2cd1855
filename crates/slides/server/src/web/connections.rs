//! Connections: accepted up to a number, HTTP/1.1 or HTTP/2 as the client begins (RFC 9113, section
//! 3.3), and ended well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
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
                let (builder, router) = (Arc::clone(&builder), router.clone());
                let ended = ended.clone();
                tokio::spawn(async move {
                    connection(&builder, stream, peer, router, ended).await;
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

/// Until the client ends it, or `ended` changes and what it has asked for is answered.
async fn connection(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    mut ended: watch::Receiver<()>,
) {
    // Tiles are small, and each is wanted at once. Without this they still come.
    let _ = stream.set_nodelay(true);
    // Who connects and says nothing is not waited for longer than others, nor at the end.
    tokio::select! {
        ready = timeout(PATIENCE, stream.readable()) => {
            if ready.is_err() {
                return;
            }
        }
        _ = ended.changed() => return,
    }
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        router.clone().call(request)
    });
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    // What is wrong with a client is the client's.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = ended.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
