//! Serves the status of the pipeline by HTTP, in a thread of its own: at an address for Prometheus,
//! and at a Unix socket for `flow top`.
//!
//! It uses hyper and tokio, without a framework: they have limits for a client that is slow,
//! that never ends, or that sends nonsense; small blocking servers have none.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use hyper::http::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::monitor::prometheus;
use crate::monitor::status::{Status, Watched};

/// Connections at a time, of each listener: one more closes the one that has been silent for
/// longest.
const MOST: usize = 64;

/// How long a client may take for request and answer.
const LONGEST: Duration = Duration::from_secs(5);

/// The longest request line and headers.
const LARGEST: usize = 16 << 10;

/// How long a status is reused: frequent requests do not keep the copies from work.
const FRESH: Duration = Duration::from_millis(50);

/// Pause before the next accept after one has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves at these addresses until the process ends.
pub(crate) fn start(
    watched: Arc<Watched>,
    address: Option<TcpListener>,
    socket: Option<UnixListener>,
) -> io::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let guard = runtime.enter();
    let address = address.map(|listener| {
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    });
    let socket = socket.map(|listener| {
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    });
    let (address, socket) = (address.transpose()?, socket.transpose()?);
    drop(guard);
    let answers = Arc::new(Answers { watched, last: Mutex::new(None) });
    let serve = move || {
        runtime.block_on(async {
            let of_address = address.map(|listener| {
                let answers = Arc::clone(&answers);
                tokio::spawn(accept(listener, answers))
            });
            if let Some(listener) = socket {
                accept(listener, answers).await;
            }
            if let Some(of_address) = of_address {
                // The task ends only by a panic.
                let _ = of_address.await;
            }
        });
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
    Ok(())
}

/// A source of connections.
trait Listener: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for tokio::net::TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

impl Listener for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

async fn accept<L: Listener + Sync>(listener: L, answers: Arc<Answers>) {
    let mut open: VecDeque<(AbortHandle, Arc<AtomicBool>)> = VecDeque::new();
    loop {
        match listener.next().await {
            Ok(stream) => {
                open.retain(|(connection, _)| !connection.is_finished());
                if open.len() >= MOST {
                    let silent =
                        open.iter().position(|(_, has_asked)| !has_asked.load(Ordering::Relaxed));
                    if let Some((oldest, _)) = open.remove(silent.unwrap_or(0)) {
                        oldest.abort();
                    }
                }
                let has_asked = Arc::<AtomicBool>::default();
                let serve = connection(stream, Arc::clone(&answers), Arc::clone(&has_asked));
                open.push_back((tokio::spawn(serve).abort_handle(), has_asked));
                // The client may have sent its request already: read it before others can take its
                // place.
                tokio::task::yield_now().await;
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One request and its answer.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    answers: Arc<Answers>,
    has_asked: Arc<AtomicBool>,
) {
    let service = service_fn(move |request| {
        has_asked.store(true, Ordering::Relaxed);
        let answer = answers.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(LONGEST)
        .max_buf_size(LARGEST)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Errors of a client concern only that client.
    let _ = timeout(LONGEST, connection).await;
}

struct Answers {
    watched: Arc<Watched>,
    last: Mutex<Option<(Instant, Arc<Status>)>>,
}

impl Answers {
    fn status(&self) -> Arc<Status> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, status)) = last.as_ref().filter(|(read, _)| read.elapsed() < FRESH) {
            return Arc::clone(status);
        }
        let status = Arc::new(self.watched.status());
        *last = Some((Instant::now(), Arc::clone(&status)));
        status
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let text = "text/plain; charset=utf-8";
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = response(StatusCode::METHOD_NOT_ALLOWED, text, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/metrics" => {
                let body = prometheus::text(&self.status());
                response(StatusCode::OK, seekwire_program::metrics::CONTENT_TYPE, body)
            }
            "/status" => match serde_json::to_vec(&*self.status()) {
                Ok(body) => response(StatusCode::OK, "application/json", body),
                Err(error) => {
                    response(StatusCode::INTERNAL_SERVER_ERROR, text, format!("{error}\n"))
                }
            },
            "/healthz" => response(StatusCode::OK, text, "ok\n"),
            _ => response(StatusCode::NOT_FOUND, text, "there are /metrics, /status, /healthz\n"),
        }
    }
}

fn response(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
