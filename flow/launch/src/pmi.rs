//! PMI-1, the process management interface of MPICH, as text ("PMI: A Scalable Parallel
//! Process-Management Interface for Extreme-Scale Systems", P. Balaji et al., EuroMPI 2010; the
//! lines are those of simple_pmi.c in MPICH). Each process puts keys and values into a space of the
//! job; after a barrier, all can get them. Hydra speaks it, and so does Slurm's plugin `pmi2` if
//! the process begins with it.
//!
//! ```text
//!   cmd=init pmi_version=1 pmi_subversion=1      cmd=response_to_init ... rc=0
//!   cmd=get_maxes                                cmd=maxes kvsname_max= keylen_max= vallen_max=
//!   cmd=get_my_kvsname                           cmd=my_kvsname kvsname=
//!   cmd=put kvsname= key= value=                 cmd=put_result rc=0
//!   cmd=barrier_in                               cmd=barrier_out
//!   cmd=get kvsname= key=                        cmd=get_result rc=0 value=
//!   cmd=finalize                                 cmd=finalize_ack
//! ```

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::Launcher;
use crate::encoding;
use crate::error::{Error, shown};
use crate::lines::Lines;

/// Most bytes of a value in one line, even if the launcher takes more: the buffers of some hold
/// 1024 bytes of a whole line.
const PIECE: usize = 512;
/// Most pieces of a value. Their number precedes the first, with a `:`.
const PIECES: usize = 999;
const COUNT: usize = "999:".len();

/// The space of the job.
#[derive(Debug)]
pub(crate) struct Pmi {
    lines: Lines,
    space: String,
    rank: u32,
    longest_key: usize,
    piece: usize,
    /// True if an answer was missing or wrong. The next one would then belong to an earlier
    /// request.
    broken: bool,
}

impl Pmi {
    /// Uses a socket that this process has inherited.
    pub(crate) fn inherited(socket: OwnedFd, rank: u32, limit: Duration) -> Result<Self, Error> {
        let lines = Lines::inherited(socket, limit)
            .map_err(Error::system("use the descriptor that PMI_FD names"))?;
        Self::begin(lines, rank)
    }

    /// Connects to a port, where the launcher tells this process its rank. Also returns rank and
    /// size.
    pub(crate) fn port(
        addresses: &[SocketAddr],
        id: u32,
        limit: Duration,
    ) -> Result<(Self, u32, u32), Error> {
        let purpose = "for this process's rank";
        let end = Instant::now() + limit;
        let mut failed = None;
        let mut socket = None;
        for address in addresses {
            let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(address, left) {
                Ok(connected) => {
                    socket = Some(connected);
                    break;
                }
                Err(error) => failed = Some((address, error)),
            }
        }
        let Some(socket) = socket else {
            let (address, reason) = match failed {
                Some((address, reason)) => (address.to_string(), reason),
                None => (String::new(), std::io::ErrorKind::AddrNotAvailable.into()),
            };
            let what = format!("connect to the launcher at {address}, which PMI_PORT names");
            return Err(Error::system(what)(reason));
        };
        let mut lines = Lines::port(socket, limit)
            .map_err(Error::system("use the connection to the launcher"))?;
        Answer::of(lines.ask(&format!("cmd=initack pmiid={id}"), purpose)?, "initack", purpose)?;
        let mut number = |name| {
            let answer = Answer::of(lines.next(purpose)?, "set", purpose)?;
            answer.number(name, purpose)
        };
        let (size, rank) = (number("size")?, number("rank")?);
        let _debug = number("debug")?;
        let most = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
        if rank >= size || size > most {
            let said = format!("rank {rank} of {size}");
            return Err(Error::Protocol { purpose: purpose.into(), said });
        }
        let (rank, size) = (rank as u32, size as u32);
        Ok((Self::begin(lines, rank)?, rank, size))
    }

    fn begin(lines: Lines, rank: u32) -> Result<Self, Error> {
        let (space, longest_key, piece, broken) = (String::new(), 0, 0, false);
        let mut pmi = Self { lines, space, rank, longest_key, piece, broken };
        let purpose = "to begin";
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", purpose)?
            .success(purpose)?;
        let purpose = "how long a key and a value may be";
        let maxima = pmi.ask("cmd=get_maxes", "maxes", purpose)?;
        // Both include the zero byte at the end.
        pmi.longest_key = maxima.number("keylen_max", purpose)?.saturating_sub(1);
        pmi.piece = maxima.number("vallen_max", purpose)?.saturating_sub(1).min(PIECE);
        if pmi.piece <= COUNT {
            return Err(maxima.senseless(purpose));
        }
        let purpose = "for the name of the job's space";
        let name = pmi.ask("cmd=get_my_kvsname", "my_kvsname", purpose)?;
        pmi.space = name.field("kvsname", purpose)?.to_owned();
        if pmi.space.is_empty() || pmi.space.len() > 256 {
            return Err(name.senseless(purpose));
        }
        Ok(pmi)
    }

    /// Recognizes the launcher by the name of the space: Hydra begins it with `kvs_`, and Slurm
    /// uses the step, which it has also put into the environment. A job of Hydra may run within one
    /// of Slurm, so other variables prove nothing.
    pub(crate) fn launcher(&self, slurm: Option<&str>) -> Launcher {
        if slurm == Some(&self.space) {
            Launcher::Slurm
        } else if self.space.starts_with("kvs_") {
            Launcher::Hydra
        } else {
            Launcher::Pmi1
        }
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.lines.begin();
        let encoded = encoding::encode(value);
        let room = self.piece - COUNT;
        let (length, limit) = (encoded.len(), room * PIECES);
        if length > limit {
            return Err(Error::TooLong { key: key.into(), length, limit });
        }
        // The output of `encode` is ASCII, so pieces can be cut anywhere.
        let mut pieces: Vec<&str> = Vec::new();
        let mut left = encoded.as_str();
        loop {
            let (piece, rest) = left.split_at(left.len().min(room));
            pieces.push(piece);
            left = rest;
            if left.is_empty() {
                break;
            }
        }
        let (length, limit) = (name(self.rank, key, PIECES).len(), self.longest_key);
        if length > limit {
            return Err(Error::LongKey { key: key.into(), length, limit });
        }
        let purpose = format!("to publish `{key}`");
        for (number, piece) in pieces.iter().enumerate() {
            let count = if number == 0 { format!("{}:", pieces.len()) } else { String::new() };
            let (space, name) = (&self.space, name(self.rank, key, number));
            let request = format!("cmd=put kvsname={space} key={name} value={count}{piece}");
            self.ask(&request, "put_result", &purpose)?.success(&purpose)?;
        }
        Ok(())
    }

    pub(crate) fn barrier(&mut self) -> Result<(), Error> {
        self.lines.begin();
        let purpose = "to wait for all other processes";
        self.ask("cmd=barrier_in", "barrier_out", purpose)?.success(purpose)
    }

    pub(crate) fn get(&mut self, rank: u32, key: &str) -> Result<Option<String>, Error> {
        self.lines.begin();
        let purpose = format!("for `{key}` of rank {rank}");
        let Some((first, answer)) = self.piece_of(rank, key, 0, &purpose)? else { return Ok(None) };
        let parts = first.split_once(':').and_then(|(count, start)| {
            let count = count.parse().ok().filter(|count| (1..=PIECES).contains(count))?;
            Some((count, start.to_owned()))
        });
        let Some((count, mut whole)) = parts else { return Err(answer.senseless(&purpose)) };
        for number in 1..count {
            match self.piece_of(rank, key, number, &purpose)? {
                Some((more, _)) => whole.push_str(&more),
                None => {
                    let said = format!("piece {number} of {count} is not there");
                    return Err(Error::Protocol { purpose, said });
                }
            }
        }
        match encoding::decode(&whole) {
            Some(value) => Ok(Some(value)),
            None => Err(Error::Protocol { purpose, said: shown(whole.as_bytes()) }),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.lines.begin();
        let purpose = "to let this process go";
        self.ask("cmd=finalize", "finalize_ack", purpose)?.success(purpose)
    }

    /// The launcher kills the processes of the job, perhaps this one first, so there is no answer.
    pub(crate) fn abort(&mut self, code: i32) -> Result<(), Error> {
        self.lines.begin();
        self.lines.tell(&format!("cmd=abort exitcode={code}"), "to end the job")
    }

    fn piece_of(
        &mut self,
        rank: u32,
        key: &str,
        number: usize,
        purpose: &str,
    ) -> Result<Option<(String, Answer)>, Error> {
        let request = format!("cmd=get kvsname={} key={}", self.space, name(rank, key, number));
        let answer = self.ask(&request, "get_result", purpose)?;
        if answer.number("rc", purpose).unwrap_or(1) != 0 {
            return Ok(None);
        }
        Ok(Some((answer.field("value", purpose)?.to_owned(), answer)))
    }

    fn ask(&mut self, request: &str, expected: &str, purpose: &str) -> Result<Answer, Error> {
        if self.broken {
            return Err(Error::Broken);
        }
        let line = self.lines.ask(request, purpose);
        let answer = line.and_then(|line| Answer::of(line, expected, purpose));
        self.broken = answer.is_err();
        answer
    }
}

/// The name of a piece of a value in the space. At most 51 characters.
fn name(rank: u32, key: &str, piece: usize) -> String {
    format!("sw.{rank}.{key}.{piece}")
}

/// One line: `cmd=` and other fields, between spaces.
#[derive(Debug)]
struct Answer {
    line: String,
    fields: BTreeMap<String, String>,
}

impl Answer {
    fn of(line: String, expected: &str, purpose: &str) -> Result<Self, Error> {
        let mut fields = BTreeMap::new();
        // Messages for people may have words without `=`.
        for (name, value) in line.split(' ').filter_map(|word| word.split_once('=')) {
            fields.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        let answer = Self { line, fields };
        if answer.fields.get("cmd").map(String::as_str) != Some(expected) {
            return Err(answer.senseless(purpose));
        }
        Ok(answer)
    }

    fn field(&self, name: &str, purpose: &str) -> Result<&str, Error> {
        self.fields.get(name).map(String::as_str).ok_or_else(|| self.senseless(purpose))
    }

    fn number(&self, name: &str, purpose: &str) -> Result<usize, Error> {
        self.field(name, purpose)?.parse().map_err(|_| self.senseless(purpose))
    }

    /// Not every launcher has a return code in every answer.
    fn success(&self, purpose: &str) -> Result<(), Error> {
        match self.fields.get("rc").map(String::as_str) {
            None | Some("0") => Ok(()),
            Some(_) => {
                let why = shown(self.line.as_bytes());
                Err(Error::Refused { purpose: purpose.into(), why })
            }
        }
    }

    fn senseless(&self, purpose: &str) -> Error {
        Error::Protocol { purpose: purpose.into(), said: shown(self.line.as_bytes()) }
    }
}

#[cfg(test)]
mod tests;
