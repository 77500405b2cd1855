//! A server that sends back what it gets, and a client that asks it.
//!
//! ```text
//! cargo run --release --example echo -- serve 127.0.0.1:7000
//! cargo run --release --example echo -- ask 127.0.0.1:7000 100000
//! ```
//!
//! Either end may also be any other program: under `seekwire run` it shares memory, otherwise the
//! bytes go by TCP.

use std::io::{self, Read, Write};
use std::time::Instant;

use seekwire::{Listener, Stream};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address),
        ["ask", address, rounds] => ask(address, rounds.parse().map_err(io::Error::other)?),
        _ => Err(io::Error::other("usage: echo serve ADDRESS | echo ask ADDRESS ROUNDS")),
    }
}

fn serve(address: &str) -> io::Result<()> {
    for stream in Listener::bind(address)?.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            if let Err(error) = echo(stream) {
                eprintln!("connection lost: {error}");
            }
        });
    }
    Ok(())
}

fn echo(mut stream: Stream) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

fn ask(address: &str, rounds: u32) -> io::Result<()> {
    let mut stream = Stream::connect(address)?;
    let begin = Instant::now();
    let mut answer = [0; 64];
    for round in 0..rounds {
        let question = [round as u8; 64];
        stream.write_all(&question)?;
        stream.read_exact(&mut answer)?;
        if answer != question {
            return Err(io::Error::other("the echo differs from the sent bytes"));
        }
    }
    let status = stream.status()?;
    println!(
        "{:.2} us a round, sent by {}",
        begin.elapsed().as_secs_f64() * 1e6 / f64::from(rounds),
        status.tx
    );
    Ok(())
}
