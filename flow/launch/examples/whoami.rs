//! Prints its rank in its job, and what it learns from every other process.
//!
//! ```sh
//! mpiexec.hydra -n 2 whoami
//! srun -n 2 --mpi=pmi2 whoami
//! mpirun.openmpi -n 2 whoami
//! ```
//!
//! With `abort RANK`, `leave RANK` or `stay RANK`, this rank aborts the job, exits, or hangs before
//! the exchange.

use std::error::Error;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::process::ExitCode;
use std::thread;

use seekwire_launch::{Job, Secret};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whoami: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut job = Job::join()?;
    let (rank, size) = (job.rank(), job.size());
    // Each line is written at once, so that lines of several processes do not mix.
    println!("{rank} of {size} by {}", job.launcher());

    let listener = TcpListener::bind("127.0.0.1:0")?;
    job.publish("address", &listener.local_addr()?.to_string())?;
    let host = job.host().to_owned();
    job.publish("host", &host)?;
    job.publish("network", &fs::read_link("/proc/self/ns/net")?.to_string_lossy())?;
    // Longer than one line of any launcher, and with characters that they do not carry.
    job.publish("long", &format!("{rank} = \u{e4};\n").repeat(1000))?;
    if rank == 0 {
        job.publish("secret", &Secret::random()?.to_hex())?;
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["abort", who] if who.parse() == Ok(rank) => job.abort(7, "as requested"),
        ["leave", who] if who.parse() == Ok(rank) => return Err("exits as requested".into()),
        ["stay", who] if who.parse() == Ok(rank) => loop {
            thread::park();
        },
        _ => {}
    }
    job.exchange()?;

    let secret = Secret::from_hex(&job.lookup(0, "secret")?).ok_or("that is no secret")?;
    for other in (0..size).filter(|other| *other != rank) {
        let long = job.lookup(other, "long")? == format!("{other} = \u{e4};\n").repeat(1000);
        let line = format!(
            "{rank} sees {other}: address={} host={} network={} long={long}",
            job.lookup(other, "address")?,
            job.lookup(other, "host")?,
            job.lookup(other, "network")?
        );
        println!("{line}");
    }
    let mut hasher = DefaultHasher::new();
    secret.as_bytes().hash(&mut hasher);
    println!("{rank} knows a secret: {:016x}", hasher.finish());

    // Values that depend on the first exchange need a second one.
    job.publish("others", &(size - 1).to_string())?;
    job.exchange()?;
    let next = (rank + 1) % size;
    println!("{rank} hears that {next} has {} others", job.lookup(next, "others")?);
    job.finish()?;
    Ok(())
}
