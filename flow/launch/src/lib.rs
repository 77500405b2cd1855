//! How a process of a parallel job learns about the others: one binary runs alone, under `mpiexec`
//! of MPICH (Hydra), `srun --mpi=pmi2` of Slurm and `mpirun` of Open MPI, and links no MPI library.
//!
//! ```text
//! environment   rank, size and how to reach the others, from variables of the environment
//! pmi           the exchange through the launcher, with PMI-1 (Hydra, Slurm)
//!   lines         its lines, within a time limit
//! directory     the exchange through files, for launchers without one that we speak (Open MPI)
//! encoding      keys and values as every method carries them
//! network       where this process listens, and how to reach another one
//! secret        a secret that only the processes of a job know
//! ```
//!
//! ```
//! use std::net::TcpListener;
//! use seekwire_launch::{Job, Secret};
//!
//! let mut job = Job::join()?;
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! job.publish("address", &listener.local_addr()?.to_string())?;
//! if job.rank() == 0 {
//!     job.publish("secret", &Secret::random()?.to_hex())?;
//! }
//! job.exchange()?;
//! let secret = Secret::from_hex(&job.lookup(0, "secret")?).expect("rank 0 has published one");
//! for rank in 0..job.size() {
//!     println!("rank {rank} listens on {}", job.lookup(rank, "address")?);
//! }
//! job.finish()?;
//! # assert_eq!(secret, secret.clone());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | variable                   | meaning                                                       |
//! |----------------------------|---------------------------------------------------------------|
//! | `SEEKWIRE_FLOW_RENDEZVOUS` | directory to exchange files in; others cannot write in it     |
//! | `SEEKWIRE_FLOW_RANK`       | this process's rank, if no known launcher provides it         |
//! | `SEEKWIRE_FLOW_SIZE`       | the number of processes, likewise                             |
//! | `SEEKWIRE_FLOW_JOB`        | a name for the job, if several use one directory           |
//! | `SEEKWIRE_FLOW_LIMIT`      | time to wait for the launcher and others; default 120 seconds |
//!
//! Whatever a launcher or another process does, each call returns within the limit.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

mod directory;
mod encoding;
mod environment;
mod error;
mod launcher;
mod lines;
pub mod network;
mod pmi;
mod secret;

use directory::Rendezvous;
use environment::{Environment, ExchangeMethod};
pub use error::Error;
pub use launcher::Launcher;
use pmi::Pmi;
use rustix::fs::FileType;
use rustix::net::SocketType;
pub use secret::Secret;

/// This process as a member of a job.
///
/// Dropping it without [`finish`](Self::finish) means failure. With a directory, the others learn
/// of that at their next exchange, or through [`Ending`]. A launcher ends the job when the process
/// has exited with a status other than 0; srun does so only with its option `--kill-on-bad-exit`,
/// without which the others wait until the limit. `Debug` does not show what was published.
pub struct Job {
    launcher: Launcher,
    rank: u32,
    size: u32,
    host: String,
    /// Values that this process has published.
    own: BTreeMap<String, String>,
    exchange: Exchange,
    is_over: bool,
}

impl fmt::Debug for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Job")
            .field("launcher", &self.launcher)
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("host", &self.host)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

/// Detects that another process has ended the job, while this one waits for something other than an
/// exchange. Any thread can ask.
pub struct Ending(Option<Rendezvous>);

impl Ending {
    /// With a launcher that carries the values it detects nothing: the launcher ends the processes.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`]; those of the directory.
    pub fn check(&self) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), Rendezvous::is_stopped)
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Ending(..)")
    }
}

/// How values reach the others.
enum Exchange {
    Memory,
    Pmi(Pmi),
    Directory(Rendezvous),
}

impl Job {
    /// Finds out how this process was started, and its rank. A process joins once: the second time,
    /// the launcher or the directory would take it for another process.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`], [`Error::UnknownLauncher`]; [`Error::NoExchange`]: there are others,
    /// and no way to reach them; [`Error::Unsafe`], [`Error::InUse`]: this directory cannot be
    /// used; [`Error::System`]; and those of the launcher: [`Error::Protocol`], [`Error::Refused`],
    /// [`Error::Gone`], [`Error::Silent`].
    pub fn join() -> Result<Self, Error> {
        Self::join_as(&|name| std::env::var_os(name), None)
    }

    /// The same, with a limit for waiting for the launcher and the others, here and in each call.
    /// It overrides `SEEKWIRE_FLOW_LIMIT`.
    ///
    /// # Errors
    ///
    /// As [`Job::join`].
    pub fn join_within(limit: Duration) -> Result<Self, Error> {
        Self::join_as(&|name| std::env::var_os(name), Some(limit))
    }

    fn join_as(
        variable: &dyn Fn(&str) -> Option<OsString>,
        limit: Option<Duration>,
    ) -> Result<Self, Error> {
        let environment = Environment(variable);
        let limit = limit.map_or_else(|| environment.limit(), Ok)?;
        let info = environment.launch_info()?;
        let (mut launcher, mut rank, mut size) = (info.launcher, info.rank, info.size);
        let exchange = match info.method {
            ExchangeMethod::Memory => Exchange::Memory,
            ExchangeMethod::Descriptor(number) => {
                let what = format!("take the descriptor {number}, which PMI_FD names");
                let socket = seekwire::os::inherited(number).map_err(Error::system(&what))?;
                // Anything else with this number is not the launcher's, or comes from a process
                // that has kept the variable and closed the descriptor.
                let kind =
                    rustix::net::sockopt::socket_type(&socket).map_err(Error::system(&what))?;
                if kind != SocketType::STREAM {
                    return Err(Error::system(&what)(rustix::io::Errno::PROTOTYPE));
                }
                Exchange::Pmi(Pmi::inherited(socket, rank, limit)?)
            }
            ExchangeMethod::Port(addresses, id) => {
                let (pmi, its_rank, its_size) = Pmi::port(&addresses, id, limit)?;
                (rank, size) = (its_rank, its_size);
                Exchange::Pmi(pmi)
            }
            ExchangeMethod::Directory(path, job) => {
                Exchange::Directory(Rendezvous::join(&path, &job, rank, size, limit)?)
            }
        };
        if let Exchange::Pmi(pmi) = &exchange {
            let step = variable("PMI_JOBID");
            launcher = pmi.launcher(step.as_ref().and_then(|step| step.to_str()));
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (own, is_over) = (BTreeMap::new(), false);
        Ok(Self { launcher, rank, size, host, own, exchange, is_over })
    }

    /// The rank of this process, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of processes.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The name of this host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The launcher that started this process.
    #[must_use]
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    /// Publishes a value that others can look up after the next [`exchange`](Self::exchange). A key
    /// has 1 to 32 letters, digits, `_` and `-`, and is published once. A value is any text of up
    /// to 16 KiB.
    ///
    /// # Errors
    ///
    /// [`Error::Key`], [`Error::LongKey`], [`Error::TooLong`], [`Error::Twice`]: nothing was
    /// published; and those of the launcher.
    pub fn publish(&mut self, key: &str, value: &str) -> Result<(), Error> {
        encoding::check_key(key)?;
        encoding::check_value(key, value)?;
        if self.own.contains_key(key) {
            return Err(Error::Twice(key.into()));
        }
        match &mut self.exchange {
            Exchange::Memory => {}
            Exchange::Pmi(pmi) => pmi.put(key, value)?,
            Exchange::Directory(rendezvous) => rendezvous.put(key, value)?,
        }
        self.own.insert(key.into(), value.into());
        Ok(())
    }

    /// Waits until all processes of the job have called this as often as this one. After that, each
    /// can look up the values that the others had published before.
    ///
    /// # Errors
    ///
    /// [`Error::Silent`]: a process has not called this; [`Error::Aborted`]: the job has ended;
    /// those of the launcher, or of the directory.
    pub fn exchange(&mut self) -> Result<(), Error> {
        match &mut self.exchange {
            Exchange::Memory => Ok(()),
            Exchange::Pmi(pmi) => pmi.barrier(),
            Exchange::Directory(rendezvous) => rendezvous.exchange(),
        }
    }

    /// The value that a process had published before the last [`exchange`](Self::exchange); for its
    /// own rank, what it has published so far.
    ///
    /// # Errors
    ///
    /// [`Error::Key`]; [`Error::NoSuchRank`]; [`Error::NotPublished`]; [`Error::Aborted`]; those of
    /// the launcher, or of the directory.
    pub fn lookup(&mut self, rank: u32, key: &str) -> Result<String, Error> {
        encoding::check_key(key)?;
        if rank >= self.size {
            return Err(Error::NoSuchRank { rank, size: self.size });
        }
        let value = match &mut self.exchange {
            _ if rank == self.rank => self.own.get(key).cloned(),
            Exchange::Memory => None,
            Exchange::Pmi(pmi) => pmi.get(rank, key)?,
            Exchange::Directory(rendezvous) => rendezvous.get(rank, key)?,
        };
        value.ok_or_else(|| Error::NotPublished { rank, key: key.into() })
    }

    /// An object that detects whether another process has ended the job.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: no descriptor is left for it.
    pub fn ending(&self) -> Result<Ending, Error> {
        Ok(Ending(match &self.exchange {
            Exchange::Directory(rendezvous) => Some(rendezvous.observer()?),
            Exchange::Memory | Exchange::Pmi(_) => None,
        }))
    }

    /// Leaves the job after success. With a directory, rank 0 waits for the others, and then
    /// removes their files.
    ///
    /// # Errors
    ///
    /// Those of the launcher, or of the directory.
    pub fn finish(mut self) -> Result<(), Error> {
        self.is_over = true;
        match &mut self.exchange {
            Exchange::Memory => Ok(()),
            Exchange::Pmi(pmi) => pmi.finish(),
            Exchange::Directory(rendezvous) => rendezvous.finish(),
        }
    }

    /// The same, if rank 0 knows that no process will make another lookup: it waits for none of
    /// them, not even for those that are gone.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_settled(mut self) -> Result<(), Error> {
        self.is_over = true;
        match &mut self.exchange {
            Exchange::Memory => Ok(()),
            Exchange::Pmi(pmi) => pmi.finish(),
            Exchange::Directory(rendezvous) => rendezvous.finish_settled(),
        }
    }

    /// Ends the whole job: prints the reason to standard error, notifies the launcher, and exits
    /// with the given status. The status must not be 0, which means success to launchers; 0 becomes
    /// 1. The exit status of mpiexec, srun or mpirun is for them to decide.
    pub fn abort(mut self, code: i32, message: &str) -> ! {
        self.is_over = true;
        let code = if code == 0 { 1 } else { code };
        // The process exits in any case, and nobody could do anything about an error.
        let _ = writeln!(io::stderr(), "rank {} of {}: {message}", self.rank, self.size);
        let _ = match &mut self.exchange {
            Exchange::Memory => Ok(()),
            Exchange::Pmi(pmi) => {
                wait_for_reader(io::stderr());
                if self.launcher != Launcher::Hydra {
                    thread::sleep(PASSING_ON);
                }
                pmi.abort(code)
            }
            Exchange::Directory(rendezvous) => rendezvous.abort(message),
        };
        std::process::exit(code)
    }
}

/// How long a launcher has to pass on what it has read. Slurm does so in another thread than the
/// one that ends the job, without any sign of completion: without a pause, one message in fifteen
/// was lost. Hydra does one thing after the other.
const PASSING_ON: Duration = Duration::from_millis(100);

/// Waits until a reader has emptied the pipe, or a second has passed. A launcher that is asked to
/// end the job does so at once, and may discard what it has not read by then.
fn wait_for_reader(pipe: impl AsFd) {
    let is_pipe = rustix::fs::fstat(&pipe)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo);
    let end = Instant::now() + Duration::from_secs(1);
    while is_pipe
        && rustix::io::ioctl_fionread(&pipe).is_ok_and(|unread| unread > 0)
        && Instant::now() < end
    {
        thread::sleep(Duration::from_millis(1));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Exchange::Directory(rendezvous) = &mut self.exchange {
            // Otherwise the others wait until their limit.
            let _ = rendezvous.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn alone_a_process_finds_itself() {
        let mut job = Job::join_as(&|_| None, None).unwrap();
        assert_eq!((job.launcher(), job.rank(), job.size()), (Launcher::Alone, 0, 1));
        assert!(!job.host().is_empty());
        job.publish("address", "a b").unwrap();
        assert!(matches!(job.publish("address", "c"), Err(Error::Twice(_))));
        assert!(matches!(job.publish("a b", "c"), Err(Error::Key(_))));
        let long = "x".repeat(encoding::VALUE + 1);
        assert!(matches!(job.publish("long", &long), Err(Error::TooLong { .. })));
        job.exchange().unwrap();
        job.ending().unwrap().check().unwrap();
        assert_eq!(job.lookup(0, "address").unwrap(), "a b");
        assert!(matches!(job.lookup(0, "long"), Err(Error::NotPublished { .. })));
        assert!(matches!(job.lookup(1, "address"), Err(Error::NoSuchRank { .. })));
        job.finish().unwrap();
    }

    #[test]
    fn a_descriptor_that_is_not_the_launchers_is_refused() {
        let file = File::open("/dev/null").unwrap();
        let datagrams = UnixDatagram::unbound().unwrap();
        for number in [file.as_raw_fd(), datagrams.as_raw_fd(), i32::MAX] {
            let error = Job::join_as(
                &|name| match name {
                    "PMI_FD" => Some(number.to_string().into()),
                    "PMI_RANK" => Some("0".into()),
                    "PMI_SIZE" => Some("2".into()),
                    _ => None,
                },
                None,
            );
            let text = error.unwrap_err().to_string();
            assert!(text.contains("PMI_FD"), "{text}");
        }
    }

    #[test]
    fn a_pipe_is_waited_for_until_it_is_read() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut write = File::from(write);
        let reader = thread::spawn(move || {
            let mut read = BufReader::new(File::from(read));
            let mut line = String::new();
            read.read_line(&mut line).unwrap();
            line
        });
        write.write_all(b"why\n").unwrap();
        wait_for_reader(&write);
        assert_eq!(rustix::io::ioctl_fionread(&write).unwrap(), 0);
        assert_eq!(reader.join().unwrap(), "why\n");
    }

    #[test]
    fn who_leaves_early_is_named_to_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let join = |rank: u32| {
            let path = directory.path().as_os_str().to_owned();
            Job::join_as(
                &move |name| match name {
                    "SEEKWIRE_FLOW_RANK" => Some(rank.to_string().into()),
                    "SEEKWIRE_FLOW_SIZE" => Some("2".into()),
                    "SEEKWIRE_FLOW_RENDEZVOUS" => Some(path.clone()),
                    _ => None,
                },
                None,
            )
            .unwrap()
        };
        let mut first = join(0);
        let ending = first.ending().unwrap();
        ending.check().unwrap();
        let mut second = join(1);
        second.publish("secret", "0123abcd").unwrap();
        let shown = format!("{second:?}");
        assert!(shown.contains("rank: 1") && !shown.contains("0123abcd"), "{shown}");
        drop(second);
        let text = ending.check().unwrap_err().to_string();
        assert!(text.contains("rank 1: it left without finishing"), "{text}");
        let text = first.exchange().unwrap_err().to_string();
        assert!(text.contains("rank 1: it left without finishing"), "{text}");
    }
}
