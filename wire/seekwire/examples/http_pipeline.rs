//! Pipelined HTTP/1.1, received by several threads at once: the application that Douglas and Pai
//! name for seekable sockets. All requests go out on one connection. The answers come in order;
//! each thread takes some of them out of the stream, by position, and hashes them. No answer waits
//! until an earlier one has been processed.
//!
//! ```text
//! cargo run --release --example http_pipeline 127.0.0.1:8080 4 /a /b /c
//! ```
//!
//! With 0 threads an ordinary client reads one answer after the other; the output is the same.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};

use seekwire::{At, SeekOptions, SeekSocket, SeekStream};

/// Upper limit for the head of an answer, in bytes.
const MOST_HEAD: usize = 16 << 10;

/// An answer as it is printed.
#[derive(Clone, Copy, Debug)]
struct Answer {
    status: u16,
    length: usize,
    hash: u64,
}

/// The number of the next answer, and where it begins in the stream.
struct Next {
    number: usize,
    position: u64,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, threads, paths @ ..] = &arguments[..] else {
        return Err(io::Error::other("usage: http_pipeline ADDRESS THREADS PATH..."));
    };
    let threads: usize = threads.parse().map_err(io::Error::other)?;
    let stream = TcpStream::connect(address)?;
    let requests = requests(address, paths);
    let sender = stream.try_clone()?;
    // In a thread of its own: a server that cannot send may stop reading.
    let sending = std::thread::spawn(move || (&sender).write_all(&requests));
    let answers = match threads {
        0 => in_order(stream, paths.len())?,
        _ => by_seeking(&SeekStream::new(stream), paths.len(), threads)?,
    };
    sending.join().map_err(|_| io::Error::other("the sending thread panicked"))??;
    for (path, answer) in paths.iter().zip(answers) {
        println!("{path} {} {} {:016x}", answer.status, answer.length, answer.hash);
    }
    Ok(())
}

fn requests(host: &str, paths: &[String]) -> Vec<u8> {
    let mut text = String::new();
    for (number, path) in paths.iter().enumerate() {
        let connection = if number + 1 == paths.len() { "close" } else { "keep-alive" };
        text += &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: {connection}\r\n\r\n");
    }
    text.into_bytes()
}

/// The answers to `count` requests, each taken by one of the threads.
fn by_seeking(stream: &SeekStream, count: usize, threads: usize) -> io::Result<Vec<Answer>> {
    let next = Mutex::new(Next { number: 0, position: 0 });
    let mut answers = vec![None; count];
    let slots = Mutex::new(&mut answers);
    std::thread::scope(|scope| {
        let work = || -> io::Result<()> {
            while let Some((number, status, at, length)) = claim(stream, &next, count)? {
                let mut body = vec![0; length];
                take(stream, at, &mut body)?;
                let answer = Answer { status, length, hash: hash(&body) };
                slots.lock().unwrap_or_else(PoisonError::into_inner)[number] = Some(answer);
            }
            Ok(())
        };
        let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        working.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| io::Error::other("a thread panicked"))?
        })
    })?;
    answers
        .into_iter()
        .map(|answer| answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()))
        .collect()
}

/// Reads the head of the next answer: its number, its status, and where its body lies.
fn claim(
    stream: &SeekStream,
    next: &Mutex<Next>,
    count: usize,
) -> io::Result<Option<(usize, u16, u64, usize)>> {
    // Only the heads are read one after the other: each determines where the next one begins.
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    if next.number == count {
        return Ok(None);
    }
    let mut room = [0; MOST_HEAD];
    let mut arrived = 0;
    let (status, head, length) = loop {
        let options = SeekOptions::PEEK.partial(true);
        let at = At::Position(next.position);
        // At least one byte more than has arrived.
        stream.wait_seek(at, arrived as u64 + 1, None)?;
        arrived = stream.seek_recv_vectored(&mut [IoSliceMut::new(&mut room)], at, options)?;
        match parse(&room[..arrived])? {
            Some(head) => break head,
            None if arrived == 0 || arrived == MOST_HEAD => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            None => {}
        }
    };
    take(stream, next.position, &mut room[..head])?;
    let (number, body) = (next.number, next.position + head as u64);
    *next = Next { number: number + 1, position: body + length as u64 };
    Ok(Some((number, status, body, length)))
}

/// Takes the bytes at `position` out of the stream.
fn take(stream: &SeekStream, position: u64, into: &mut [u8]) -> io::Result<()> {
    let wanted = into.len();
    let at = At::Position(position);
    match stream.seek_recv_vectored(&mut [IoSliceMut::new(into)], at, SeekOptions::TAKE)? {
        taken if taken == wanted => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Receives the answers in order, as an ordinary client does.
fn in_order(mut stream: TcpStream, count: usize) -> io::Result<Vec<Answer>> {
    let mut read = Vec::new();
    let mut answers = Vec::new();
    while answers.len() < count {
        let Some((status, head, length)) = parse(&read)? else {
            more(&mut stream, &mut read)?;
            continue;
        };
        while read.len() < head + length {
            more(&mut stream, &mut read)?;
        }
        answers.push(Answer { status, length, hash: hash(&read[head..head + length]) });
        read.drain(..head + length);
    }
    Ok(answers)
}

fn more(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<()> {
    let mut room = [0; MOST_HEAD];
    match stream.read(&mut room)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        n => {
            read.extend_from_slice(&room[..n]);
            Ok(())
        }
    }
}

/// Status, length of the head and length of the body of an answer (RFC 9112); `None` while the head
/// is not complete.
fn parse(bytes: &[u8]) -> io::Result<Option<(u16, usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| invalid("the head is not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok())
        .ok_or_else(|| invalid("not an answer of HTTP/1.1"))?;
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .ok_or_else(|| invalid("an answer without a Content-Length"))?;
    Ok(Some((status, end + 4, length)))
}

/// FNV-1a, 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
