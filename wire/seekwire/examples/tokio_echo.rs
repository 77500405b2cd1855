//! The example `echo` on tokio: one thread serves any number of clients, each through shared memory
//! if possible.
//!
//! ```text
//! cargo run --release --features tokio --example tokio_echo -- serve 127.0.0.1:7000
//! cargo run --release --features tokio --example tokio_echo -- ask 127.0.0.1:7000 100000 8
//! ```
//!
//! Either end may also be any other program, such as `echo`.

use std::io;
use std::time::Instant;

use seekwire::tokio::{Listener, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address).await,
        ["ask", address, rounds, clients] => {
            let number = |text: &str| text.parse().map_err(io::Error::other);
            ask_all(address, number(rounds)?, number(clients)?).await
        }
        _ => Err(io::Error::other(
            "usage: tokio_echo serve ADDRESS | tokio_echo ask ADDRESS ROUNDS CLIENTS",
        )),
    }
}

async fn serve(address: &str) -> io::Result<()> {
    let listener = Listener::bind(address).await?;
    loop {
        let (stream, from) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = echo(stream).await {
                eprintln!("{from}: connection lost: {error}");
            }
        });
    }
}

async fn echo(mut stream: Stream) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n]).await?,
        }
    }
}

async fn ask_all(address: &str, rounds: u32, clients: u32) -> io::Result<()> {
    let begin = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let stream = Stream::connect(address).await?;
        asking.spawn(ask(stream, rounds));
    }
    while let Some(asked) = asking.join_next().await {
        println!("{}", asked??);
    }
    let all = f64::from(rounds) * f64::from(clients);
    println!("{:.2} us a round", begin.elapsed().as_secs_f64() * 1e6 / all);
    Ok(())
}

async fn ask(mut stream: Stream, rounds: u32) -> io::Result<String> {
    let mut answer = [0; 64];
    for round in 0..rounds {
        let question = [round as u8; 64];
        stream.write_all(&question).await?;
        stream.read_exact(&mut answer).await?;
        if answer != question {
            return Err(io::Error::other("the echo differs from the sent bytes"));
        }
    }
    Ok(format!("sent by {}", stream.status()?.tx))
}
