//! Work and urgent orders over one connection: the worker takes the orders first, even if work
//! arrived before them, and the results come back into buffers that were posted for them.
//!
//! ```text
//! cargo run --release --example mailbox
//! ```

use std::error::Error;
use std::net::{TcpListener, TcpStream};

use seekwire::SeekStream;
use seekwire::mailbox::{Mailbox, RecvError, Selector};

const ORDER: u64 = 1;
/// Set in the tags of blocks; the other bits are the block's number.
const BLOCK: u64 = 1 << 63;
const BLOCKS: u64 = 8;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let office = TcpStream::connect(listener.local_addr()?)?;
    let (worker, _) = listener.accept()?;
    let worker =
        std::thread::spawn(move || work(&Mailbox::from_tcp(worker).map_err(RecvError::Io)?));

    let office = Mailbox::from_tcp(office)?;
    let results: Vec<_> =
        (0..BLOCKS).map(|n| office.post(Selector::exact(BLOCK | n), vec![0; 8])).collect();
    for n in 0..BLOCKS {
        office.send(BLOCK | n, &vec![n as u8; 100_000])?;
    }
    office.send(ORDER, b"only the odd ones")?;
    office.finish()?;

    for (n, ticket) in results.into_iter().enumerate() {
        match office.wait(ticket) {
            Ok(result) => {
                println!(
                    "office: block {n} sums up to {}",
                    u64::from_le_bytes(result.bytes().try_into()?)
                )
            }
            Err(RecvError::Closed) => println!("office: block {n} was not asked for"),
            Err(error) => return Err(error.into()),
        }
    }
    let order = worker.join().map_err(|_| "the worker panicked")??;
    println!("the order was: {order}");
    Ok(())
}

fn work(worker: &Mailbox<SeekStream>) -> Result<String, Failure> {
    // The blocks that were sent before the order stay in the stream.
    let (_, order) = worker.recv_vec(Selector::exact(ORDER))?;
    let waiting = worker.probe(Selector::ANY)?.ok_or("there are blocks")?;
    println!("worker: the order is here, the block with tag {:#x} waits", waiting.tag);
    let mut block = vec![0; 100_000];
    let odd = Selector { tag: BLOCK | 1, mask: BLOCK | 1 };
    loop {
        match worker.recv(odd, &mut block) {
            Ok(envelope) => {
                let sum: u64 = block[..envelope.len].iter().map(|byte| u64::from(*byte)).sum();
                worker.send(envelope.tag, &sum.to_le_bytes())?;
            }
            Err(RecvError::Closed) => break,
            Err(error) => return Err(error.into()),
        }
    }
    worker.finish()?;
    Ok(String::from_utf8(order)?)
}
