//! The module `tokio`, as a user sees it. Every test runs on a single-threaded and on a multi-threaded
//! runtime.

mod seek;
mod streams;

use std::future::Future;
use std::net::TcpStream;
use std::time::Duration;

use seekwire::tokio::Stream;
use tokio::runtime::Builder;

const LONG: Duration = Duration::from_secs(20);

/// Runs a test on one thread, then on four. A test that hangs fails.
pub(crate) fn on_both<F: Future<Output = ()> + Send + 'static>(test: impl Fn() -> F) {
    let runtimes = [Builder::new_current_thread(), Builder::new_multi_thread()];
    for mut runtime in runtimes {
        let runtime = runtime.worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(async {
            // In a task of its own, so that a panic also fails the test.
            let test = tokio::spawn(test());
            tokio::time::timeout(6 * LONG, test).await.expect("it hangs").unwrap();
        });
    }
}

/// A pair whose sends travel on the ring in both directions.
pub(crate) async fn upgraded() -> (Stream, Stream) {
    upgraded_after(|_| ()).await
}

/// The same, of a connecting end that was prepared before.
pub(crate) async fn upgraded_after(prepare: fn(&TcpStream)) -> (Stream, Stream) {
    let streams = tokio::task::spawn_blocking(move || {
        let listener = seekwire::Listener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&socket);
        let client = seekwire::Stream::from_connected(socket).unwrap();
        let (server, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| client.upgrade(LONG).unwrap());
            assert!(server.upgrade(LONG).unwrap());
            assert!(client.join().unwrap());
        });
        (client, server)
    });
    let (client, server) = streams.await.unwrap();
    (Stream::new(client).unwrap(), Stream::new(server).unwrap())
}
