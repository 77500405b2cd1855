//! Sending and receiving without a copy: numbers are written into the segment that the other end
//! reads, and summed where they lie.
//!
//! ```text
//! cargo run --release --example in_place
//! ```

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use seekwire::{Listener, Stream};

const BLOCKS: usize = 10_000;

fn main() -> io::Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let producer = std::thread::spawn(move || produce(&Stream::connect(address)?));
    let (stream, _) = listener.accept()?;
    let sum = consume(&stream)?;
    let sent = producer.join().map_err(|_| io::Error::other("the producer panicked"))??;
    println!("sum of the sent numbers {sent}, of the received ones {sum}");
    println!("{:?}", stream.status().map(|status| status.totals));
    Ok(())
}

fn produce(stream: &Stream) -> io::Result<u64> {
    stream.upgrade(Duration::from_secs(5))?;
    let mut sum = 0;
    for block in 0..BLOCKS {
        let len = Stream::max_reserve();
        let mut segment = stream.reserve(len)?;
        segment.fill(block as u8);
        sum += len as u64 * u64::from(block as u8);
        segment.commit(len)?;
    }
    Ok(sum)
}

fn consume(stream: &Stream) -> io::Result<u64> {
    stream.upgrade(Duration::from_secs(5))?;
    let mut sum = 0;
    loop {
        let bytes = stream.borrow()?;
        if bytes.is_empty() {
            return Ok(sum);
        }
        sum += bytes
            .as_atomic()
            .iter()
            .map(|byte| u64::from(byte.load(Ordering::Relaxed)))
            .sum::<u64>();
        let len = bytes.len();
        bytes.consume(len)?;
    }
}
