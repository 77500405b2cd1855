//! Connections: accepted up to a limit, HTTP/1.1 or HTTP/2 as the client begins (RFC 9113, section
//! 3.3), with or without TLS, and closed gracefully, or once they are idle or stuck.

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

use super::idle_detection::{CloseReason, TrackedStream, Traffic};

/// How long a client may take for a request, stay silent between two, or accept nothing of a
/// response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of the request line and headers.
const LARGEST: usize = 32 << 10;
/// Maximum concurrent requests of one HTTP/2 connection.
const STREAMS: u32 = 128;
/// Pause after a failure to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAddress(pub(crate) SocketAddr);

/// Serves at most `most` connections at a time until `end` completes; requests then under way have
/// `grace` to finish.
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
                    patience: IDLE_TIMEOUT,
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
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(LARGEST);
    // No pings: over a slow link, the reply to one comes after all pending data.
    builder.http2().max_header_list_size(LARGEST as u32).max_concurrent_streams(STREAMS);
    builder
}

/// Everything a connection needs until the client closes it, or until `ended` changes and its
/// requests have been answered.
struct Connection {
    builder: Arc<Builder<TokioExecutor>>,
    router: Router,
    peer: SocketAddr,
    patience: Duration,
    ended: watch::Receiver<()>,
}

impl Connection {
    async fn begin(mut self, stream: TcpStream, acceptor: Option<TlsAcceptor>) {
        // Tiles are small, and each is needed at once. A failure only costs time.
        let _ = stream.set_nodelay(true);
        // A client that connects and sends nothing is given no longer than others, and does not
        // delay shutdown.
        tokio::select! {
            ready = timeout(self.patience, stream.readable()) => {
                if ready.is_err() {
                    return;
                }
            }
            _ = self.ended.changed() => return,
        }
        let stream = TrackedStream::new(stream);
        let Some(acceptor) = acceptor else {
            return self.serve(TokioIo::new(stream.clone()), stream).await;
        };
        let shared = stream.clone();
        let accepted = tokio::select! {
            accepted = timeout(self.patience, acceptor.accept(stream)) => accepted,
            _ = self.ended.changed() => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.serve(TokioIo::new(stream), shared).await,
            Ok(Err(error)) => tracing::debug!(peer = %self.peer, "no TLS: {error}"),
            Err(_) => tracing::debug!(peer = %self.peer, "no TLS in time"),
        }
    }

    async fn serve(
        self,
        stream: impl Read + Write + Unpin + Send + 'static,
        shared: TrackedStream,
    ) {
        let Self { builder, router, peer, patience, mut ended } = self;
        let traffic = Arc::new(Traffic::default());
        let of = Arc::clone(&traffic);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ClientAddress(peer));
            request.extensions_mut().insert(Arc::clone(&of));
            let (asked, answer) = (Traffic::asked(&of), router.clone().call(request));
            async move {
                let answer = answer.await;
                drop(asked);
                answer
            }
        });
        let serving = builder.serve_connection(stream, service);
        let mut serving = std::pin::pin!(serving);
        // Errors caused by a client are not logged.
        let is_idle = tokio::select! {
            _ = serving.as_mut() => return,
            end = traffic.ended(&shared, patience) => match end {
                CloseReason::Idle => true,
                CloseReason::Stuck => return shared.forget(),
            },
            _ = ended.changed() => false,
        };
        // Requests that arrive before the client learns of the shutdown are answered.
        serving.as_mut().graceful_shutdown();
        tokio::select! {
            _ = serving => {}
            _ = traffic.ended(&shared, patience) => shared.forget(),
            _ = ended.changed(), if is_idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sending::{self, Room};
    use super::*;
    use axum::body::Body;
    use axum::response::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// How a client begins HTTP/2: no window for responses, and a request.
    const CLOSED: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
        \0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\
        \0\0\x06\x01\x05\0\0\0\x01\x82\x84\x86\x41\x01a";
    /// Length of the same without the request.
    const IDLE: usize = 24 + 15;
    const GOAWAY: u8 = 7;

    /// A response larger than the kernel buffers.
    async fn large(request: Request) -> Response {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let traffic = request.extensions().get::<Arc<Traffic>>().unwrap();
        let response = Response::new(Body::from(vec![0; 32 << 20]));
        let room = Arc::new(Room::new(0));
        sending::holding(response, permit, &room, traffic, request.version()).unwrap()
    }

    /// A client that sends these bytes and reads nothing; returns what the server sent before
    /// closing.
    async fn ended(says: &[u8]) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(says).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let (_ending, ended) = watch::channel(());
        let connection = Connection {
            builder: Arc::new(builder()),
            router: Router::new().fallback(large),
            peer,
            patience: Duration::from_millis(100),
            ended,
        };
        connection.begin(stream, None).await;
        let mut sent = Vec::new();
        // The connection may have been reset.
        let _ = client.read_to_end(&mut sent).await;
        sent
    }

    /// The types of frames.
    fn frames(mut sent: &[u8]) -> Vec<u8> {
        let mut types = Vec::new();
        while let [a, b, c, kind, ..] = sent {
            types.push(*kind);
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            sent = sent.get(9 + length..).unwrap_or_default();
        }
        types
    }

    #[tokio::test]
    async fn who_takes_nothing_of_an_answer_loses_the_connection() {
        let sent = ended(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(sent.len() < 32 << 20);
        let sent = ended(CLOSED).await;
        assert!(!frames(&sent).contains(&GOAWAY), "{:?}", frames(&sent));
    }

    #[tokio::test]
    async fn who_asks_for_nothing_loses_the_connection() {
        assert!(frames(&ended(&CLOSED[..IDLE]).await).contains(&GOAWAY));
        // Not even the protocol is known yet.
        assert!(ended(&CLOSED[..3]).await.is_empty());
    }
}
