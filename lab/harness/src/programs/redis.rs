//! `redis-server` and `redis-benchmark`: GET and SET of small and large values, few and many
//! clients, with and without pipelining.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::pairs::{
    LATENCY, LATENCY_TAIL, Listening, PerMode, REQUESTS, Shared, WorkAmount, compare, is_plain,
    listen, with_package,
};
use crate::context::Context;
use crate::launch::{Mode, Program, Running};
use crate::schedule::{Group, Trial};
use crate::text;

const SERVER_PACKAGE: &str = "redis-server";
const CLIENT_PACKAGE: &str = "redis-tools";

/// The key that redis-benchmark uses unless it is asked to vary it.
const KEY: &str = "key:__rand_int__";

const SIZES: [u64; 2] = [64, 16 << 10];
const CLIENTS: [u32; 2] = [1, 50];
const PIPELINES: [u32; 2] = [1, 16];

/// One configuration of redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub struct RedisCase {
    /// GET, or else SET.
    pub get: bool,
    /// Bytes of a value.
    pub size: u64,
    /// Number of connections.
    pub clients: u32,
    /// Requests in flight on each.
    pub pipeline: u32,
}

impl RedisCase {
    /// Ends with the size, so that "pipeline 1," and "pipeline 16," differ.
    pub fn name(self) -> String {
        let Self { get, size, clients, pipeline } = self;
        let (command, plural) =
            (if get { "GET" } else { "SET" }, if clients == 1 { "" } else { "s" });
        format!(
            "redis {command}, {clients} client{plural}, pipeline {pipeline}, {}",
            text::size(size)
        )
    }

    /// Requests of the first run, which takes some ten milliseconds.
    pub fn first_requests(self) -> u64 {
        u64::from(self.pipeline) * if self.size > 4096 { 500 } else { 1500 }
    }

    /// Rounds up to whole rounds: if redis-benchmark exceeds its number it can report that all
    /// clients had disconnected (redis pull request 4575).
    pub fn whole(self, requests: u64) -> u64 {
        requests.next_multiple_of(u64::from(self.clients) * u64::from(self.pipeline))
    }

    /// Arguments of redis-benchmark.
    pub fn arguments(self, requests: u64) -> Vec<String> {
        let command = if self.get { "get" } else { "set" };
        let (size, clients) = (self.size.to_string(), self.clients.to_string());
        let (pipeline, requests) = (self.pipeline.to_string(), requests.to_string());
        ["-t", command, "-d", &size, "-c", &clients, "-P", &pipeline, "-n", &requests, "--csv"]
            .map(str::to_owned)
            .to_vec()
    }
}

fn cases() -> impl Iterator<Item = RedisCase> {
    [true, false].into_iter().flat_map(|get| {
        SIZES.into_iter().flat_map(move |size| {
            CLIENTS.into_iter().flat_map(move |clients| {
                PIPELINES.into_iter().map(move |pipeline| RedisCase {
                    get,
                    size,
                    clients,
                    pipeline,
                })
            })
        })
    })
}

pub(super) fn groups<'a>(context: &Context<'_>, time: Duration) -> Vec<Group<'a>> {
    let servers = PerMode::new();
    cases()
        .map(|case| {
            let work = WorkAmount::default();
            compare(context, case.name(), |mode| {
                let (server, work) = (servers.of(&mode), work.clone());
                move |trial: &mut Trial| run(trial, &server, &mode, case, &work, time)
            })
        })
        .collect()
}

fn run(
    trial: &mut Trial,
    server: &Shared<Listening>,
    mode: &Mode,
    case: RedisCase,
    work: &WorkAmount,
    time: Duration,
) -> Result<()> {
    let server = server.get(|| start(mode))?;
    let requests = case.whole(work.amount(trial, time, case.first_requests()));
    let mut control = Control::connect(server.port)?;
    if case.get {
        control.set(KEY, case.size)?;
    }
    let missed = control.misses()?;
    let client = Program::new("redis-benchmark", mode)
        .args(["-h", "127.0.0.1", "-p", &server.port.to_string()])
        .args(case.arguments(requests));
    let finished = server.serve(client, |error| with_package(error, CLIENT_PACKAGE))?;
    trial.count(finished.traffic);
    ensure!(control.misses()? == missed, "redis-benchmark asked for a key that does not exist");

    let figures = Figures::parse(&finished.stdout)?;
    work.learn(is_plain(mode), figures.rate);
    let name = case.name();
    trial.record(&name, None, REQUESTS, figures.rate);
    trial.record(&name, None, LATENCY, figures.p50_us);
    trial.record(&name, None, LATENCY_TAIL, figures.p99_us);
    Ok(())
}

fn start(mode: &Mode) -> Result<Listening> {
    // Nothing is written to disk, so that only the network is measured.
    let program = |port: u16| {
        Program::new("redis-server", mode)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
    };
    let ready = |process: &Running, _| {
        process.wait_for_line(|line| line.contains("Ready to accept connections")).map(|_| ())
    };
    listen(program, ready).map_err(|error| with_package(error, SERVER_PACKAGE))
}

/// The report of redis-benchmark.
#[derive(Debug, PartialEq)]
pub struct Figures {
    /// Requests a second.
    pub rate: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
}

impl Figures {
    /// Reads the last record by the names in the header, because versions differ in their columns.
    pub fn parse(output: &str) -> Result<Self> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .from_reader(output.as_bytes());
        let records: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>()?;
        let header = records.iter().position(|record| record.get(0) == Some("test"));
        let header = header.context("redis-benchmark printed no header")?;
        let values = records.get(header + 1).context("redis-benchmark printed no result")?;
        let field = |name: &str| {
            let column = records[header].iter().position(|title| title == name);
            let value = column
                .and_then(|column| values.get(column))
                .with_context(|| format!("no column {name}"))?;
            value.parse::<f64>().with_context(|| format!("column {name} holds '{value}'"))
        };
        Ok(Self {
            rate: field("rps")?,
            p50_us: field("p50_latency_ms")? * 1e3,
            p99_us: field("p99_latency_ms")? * 1e3,
        })
    }
}

/// A connection of our own to a redis server, to prepare it and to look at its counters.
struct Control(BufReader<TcpStream>);

impl Control {
    fn connect(port: u16) -> Result<Self> {
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot reach redis-server")?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command; returns the reply, without its type if it is a string.
    fn command(&mut self, words: &[&str]) -> Result<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", reply)) => Ok(reply.to_owned()),
            Some(("$", length)) => {
                let mut reply = vec![0; length.parse::<usize>().context("no such key")? + 2];
                self.0.read_exact(&mut reply)?;
                Ok(String::from_utf8_lossy(&reply).trim_end().to_owned())
            }
            _ => bail!("redis-server answered '{line}'"),
        }
    }

    /// Makes sure that `key` holds `size` bytes.
    fn set(&mut self, key: &str, size: u64) -> Result<()> {
        self.command(&["SET", key, &"x".repeat(size as usize)])?;
        let length = self.command(&["STRLEN", key])?;
        ensure!(length == size.to_string(), "redis-server stored {length} bytes instead of {size}");
        Ok(())
    }

    /// Number of requests for keys that did not exist.
    fn misses(&mut self) -> Result<u64> {
        let info = self.command(&["INFO", "stats"])?;
        let count = info.lines().find_map(|line| line.trim().strip_prefix("keyspace_misses:"));
        count
            .and_then(|count| count.parse().ok())
            .context("redis-server did not say how many keys were missed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let output = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                      \"p99_latency_ms\",\"max_latency_ms\"\n\"GET\",\"499999.97\",\"0.023\",\"0.016\",\"0.025\",\
                      \"0.039\",\"0.5\",\"0.087\"\n";
        let figures = Figures::parse(output).unwrap();
        assert_eq!(figures, Figures { rate: 499_999.97, p50_us: 25.0, p99_us: 500.0 });
        assert!(Figures::parse("Could not connect to Redis").is_err());
    }

    #[test]
    fn cases_cover_the_whole_product_and_have_names_of_their_own() {
        let names: std::collections::BTreeSet<String> = cases().map(RedisCase::name).collect();
        assert_eq!(names.len(), 16);
        assert!(names.contains("redis GET, 50 clients, pipeline 16, 16 KiB"));
    }
}
