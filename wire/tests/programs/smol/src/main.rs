//! An echo server and a client on smol, whose waits are system calls of its own.
//!
//!     smol-echo serve          prints its port, and sends back what one connection says
//!     smol-echo talk PORT      sends messages and checks what comes back; prints "ok"

use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};

const ROUNDS: usize = 400;

fn main() -> std::io::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    smol::block_on(async {
        match arguments[..] {
            ["serve"] => serve().await,
            ["talk", port] => talk(port.parse().expect("a port")).await,
            _ => panic!("smol-echo serve | talk PORT"),
        }
    })
}

async fn serve() -> std::io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("{}", listener.local_addr()?.port());
    let (mut stream, _) = listener.accept().await?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            n => stream.write_all(&bytes[..n]).await?,
        }
    }
}

async fn talk(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    for round in 0..ROUNDS {
        let sent: Vec<u8> = (0..1 + round * 37 % 5000).map(|at| (at + round) as u8).collect();
        let mut got = vec![0; sent.len()];
        stream.write_all(&sent).await?;
        stream.read_exact(&mut got).await?;
        assert_eq!(got, sent, "round {round}");
    }
    println!("ok");
    Ok(())
}
