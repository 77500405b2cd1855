//! `seekwire bench`: a server and a client of the user, plain and accelerated in turn.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use regex_lite::Regex;
use seekwire_endpoint::Config;
use seekwire_program::table::{self, Align};
use seekwire_program::{library, standard};

use crate::launch::{self, Error, Finished, Mode, Program, Registry, Running, Traffic, interrupt};
use crate::progress::Progress;
use crate::schedule;
use crate::stats::{self, Ratio, Spread};
use crate::text::three_digits;

/// A measurement of a client.
#[derive(Clone, Debug)]
pub struct Bench {
    /// Rounds that count, each with one plain and one accelerated run.
    pub rounds: usize,
    /// Program and arguments of the server; `None`: the client needs none, or one runs already.
    pub server: Option<Server>,
    /// How to find a rate in the client's output.
    pub rate: Option<Regex>,
    /// How long each run of the client may take.
    pub limit: Duration,
    /// Program and arguments of the client.
    pub client: Vec<OsString>,
}

/// A server that is started for each run.
#[derive(Clone, Debug)]
pub struct Server {
    /// Program and arguments.
    pub words: Vec<String>,
    /// The TCP port on which it listens.
    pub port: u16,
}

/// One run of the client.
#[derive(Clone, Copy, Debug)]
struct Reading {
    seconds: f64,
    rate: Option<f64>,
    traffic: Option<Traffic>,
}

/// The names of the two modes, in the order of readings.
const MODES: [&str; 2] = [launch::PLAIN, launch::ACCELERATED];

/// How long a server may take until it listens.
const READY: Duration = Duration::from_secs(30);

/// Runs the rounds, after one that does not count, and prints what they show.
///
/// # Errors
///
/// The library was not found, a server did not listen, a client failed, its output has no rate, or
/// the user interrupted.
pub fn run(bench: &Bench) -> Result<()> {
    interrupt::install();
    let registry = Registry::new().context("cannot make a directory for the registry")?;
    let library = library::find().map_err(|error| anyhow!("{error}"))?;
    let modes = [Mode::Plain, Mode::Accelerated { library, registry }];
    let mut readings = [Vec::new(), Vec::new()];
    let progress = Progress::new("bench");
    progress.expect(2 * (bench.rounds + 1));
    for round in 0..=bench.rounds {
        for pick in schedule::order(modes.len(), round, 0) {
            progress.step(&match round {
                0 => format!("warm-up, {}", MODES[pick]),
                _ => format!("round {round} of {}, {}", bench.rounds, MODES[pick]),
            });
            let reading = bench.measure(&modes[pick]).with_context(|| MODES[pick])?;
            if round > 0 {
                readings[pick].push(reading);
            }
        }
    }
    drop(progress);
    standard::output()?.lock().write_all(report(&readings).as_bytes())?;
    Ok(())
}

impl Bench {
    fn measure(&self, mode: &Mode) -> Result<Reading> {
        let server = self.server.as_ref().map(|server| server.start(mode)).transpose()?;
        let mut client = Program::new(&self.client[0], mode).args(&self.client[1..]);
        if server.is_none() {
            // A server that already runs looks for its peers where other programs do.
            client = client.env("SEEKWIRE_DIR", &Config::get().dir);
        }
        let finished = client.timeout(self.limit).run().map_err(|error| {
            let obituary = server.as_ref().and_then(Running::obituary);
            match (obituary, error) {
                (Some(obituary), error) => anyhow!("the server {obituary} ({error})"),
                (None, error @ Error::TimedOut { .. }) => {
                    anyhow!("{error}; --limit gives the client more time")
                }
                (None, error) => anyhow!("the client {error}"),
            }
        })?;
        let rate = self.rate.as_ref().map(|rate| find_rate(rate, &finished)).transpose()?;
        if let Some(server) = server {
            server.stop()?;
        }
        Ok(Reading { seconds: finished.wall.as_secs_f64(), rate, traffic: finished.traffic })
    }
}

impl Server {
    /// Starts it, and waits until it listens.
    fn start(&self, mode: &Mode) -> Result<Running> {
        let Self { words, port } = self;
        ensure!(
            !is_listening("self", *port),
            "something listens on port {port} already: end it, or choose another port for the \
             server and --port"
        );
        let (program, arguments) = words.split_first().context("--server names no program")?;
        let server = Program::new(program, mode).args(arguments).timeout(READY);
        let server = server.start().map_err(|error| anyhow!("the server {error}"))?;
        let process = server.id().to_string();
        server.wait_until(|| is_listening(&process, *port)).map_err(|error| match error {
            Error::EndedEarly { .. } => anyhow!(
                "the server {error}; it has to stay in the foreground until it gets SIGTERM"
            ),
            Error::TimedOut { .. } => anyhow!(
                "the server {error}; nothing listens on port {port}: --port has to name the \
                 server's port"
            ),
            error => error.into(),
        })?;
        Ok(server)
    }
}

/// Whether a socket in the network namespace of a process listens on `port`. Connecting to it would
/// disturb servers for a single client.
fn is_listening(process: &str, port: u16) -> bool {
    // proc_pid_net(5): the local address is the second field, the state the fourth; 0A is LISTEN.
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
            matches!(fields[..], [_, local, _, "0A"] if local.ends_with(&suffix))
        })
    })
}

/// The number in the last match.
fn find_rate(pattern: &Regex, finished: &Finished) -> Result<f64> {
    for output in [&finished.stdout, &finished.stderr] {
        let Some(found) = pattern.captures_iter(output).last() else { continue };
        let number = found.get(1).or(found.get(0)).map_or("", |number| number.as_str());
        let parsed = number.trim().replace(',', "").parse().ok().filter(|rate: &f64| *rate > 0.0);
        return parsed.with_context(|| {
            format!("--rate-pattern finds '{number}', which is no number above 0; put the number into ( )")
        });
    }
    bail!(
        "--rate-pattern matches nothing in the client's output{}",
        launch::last_words(&finished.stdout)
    )
}

/// A table, and what follows from it.
fn report(readings: &[Vec<Reading>; 2]) -> String {
    let [plain, accelerated] = readings;
    let rounds = plain.len();
    let values = |of: &dyn Fn(&Reading) -> Option<f64>| {
        [plain, accelerated].map(|readings| readings.iter().filter_map(of).collect::<Vec<f64>>())
    };
    let seconds = values(&|reading| Some(reading.seconds));
    let rates = values(&|reading| reading.rate);
    let pairs = |above: &[f64], below: &[f64]| -> Option<Ratio> {
        let pairs: Vec<(f64, f64)> = above.iter().copied().zip(below.iter().copied()).collect();
        Some(stats::ratio_of_medians(&pairs)?.widened(rounds))
    };
    // How many times as fast it became.
    let by_time = pairs(&seconds[0], &seconds[1]);
    let by_rate = pairs(&rates[1], &rates[0]);

    let columns = [
        ("", Align::Left),
        (MODES[0], Align::Right),
        (MODES[1], Align::Right),
        ("times as fast", Align::Right),
    ];
    let row = |name: &str, [plain, accelerated]: &[Vec<f64>; 2], ratio: Option<Ratio>| {
        let shown = |values: &[f64]| {
            Spread::of(values).map_or("-".to_owned(), |spread| {
                let [median, q1, q3] = [spread.median, spread.q1, spread.q3].map(three_digits);
                format!("{median} ({q1}–{q3})")
            })
        };
        let ratio = ratio.map_or("-".to_owned(), |Ratio { value, low, high, .. }| {
            let [value, low, high] = [value, low, high].map(three_digits);
            format!("{value} ({low}–{high})")
        });
        vec![name.to_owned(), shown(plain), shown(accelerated), ratio]
    };
    let mut rows = vec![row("time, s", &seconds, by_time)];
    if !rates[0].is_empty() {
        rows.push(row("rate", &rates, by_rate));
    }
    let mut text = table::layout(&columns, &rows);
    let _ = writeln!(
        text,
        "Medians of {rounds} rounds, quartiles in brackets; times as fast with its 95 % interval."
    );
    if let Some(ratio) = by_rate.or(by_time) {
        let _ = writeln!(text, "{}", verdict(ratio));
    }
    let _ = writeln!(text, "{}", carried(accelerated));
    text
}

fn verdict(ratio: Ratio) -> String {
    let Ratio { value, low, high, .. } = ratio;
    let times = three_digits(value);
    match () {
        () if !ratio.has_interval() => {
            "These rounds are too few to say which is faster: raise --rounds.".to_owned()
        }
        () if low > 1.0 => format!("Accelerated, the client is {times} times as fast."),
        () if high < 1.0 => format!("Accelerated, the client is slower: {times} times as fast."),
        () => "Neither is faster for certain: the interval contains 1. More --rounds narrow it."
            .to_owned(),
    }
}

/// How much of the accelerated client's traffic went through shared memory.
fn carried(accelerated: &[Reading]) -> String {
    let mut sum = Traffic::default();
    let counted = accelerated.iter().filter_map(|reading| reading.traffic);
    counted.for_each(|traffic| sum += traffic);
    if sum.ring == 0 {
        return "Nothing went through shared memory: `seekwire run --summary` before the client says \
                why."
            .to_owned();
    }
    let share = 100.0 * sum.ring as f64 / (sum.ring + sum.tcp) as f64;
    format!("{} % of the accelerated client's bytes went through shared memory.", share as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(server: Option<Server>, client: &[&str]) -> Bench {
        let client = client.iter().map(OsString::from).collect();
        let limit = Duration::from_secs(60);
        Bench { rounds: 1, server, rate: None, limit, client }
    }

    fn refusal(bench: &Bench) -> String {
        bench.measure(&Mode::Plain).unwrap_err().to_string()
    }

    fn shell(script: &str, port: u16) -> Option<Server> {
        Some(Server { words: ["sh", "-c", script].map(str::to_owned).to_vec(), port })
    }

    #[test]
    fn a_client_that_fails_is_quoted() {
        let said = refusal(&bench(None, &["sh", "-c", "echo no such host >&2; exit 3"]));
        assert!(said.starts_with("the client sh failed (exit status: 3)"), "{said}");
        assert!(said.ends_with(": no such host"), "{said}");
        let missing = refusal(&bench(None, &["no-such-client"]));
        assert!(missing.contains("no-such-client is not installed"), "{missing}");
    }

    #[test]
    fn a_server_that_does_not_listen_is_explained() {
        let port = launch::free_port().unwrap();
        let said = refusal(&bench(shell("echo cannot bind >&2; exit 1", port), &["true"]));
        assert!(said.contains("cannot bind") && said.contains("foreground"), "{said}");
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let said = refusal(&bench(shell("cat", port), &["true"]));
        assert!(said.contains("something listens on port"), "{said}");
    }

    #[test]
    fn the_last_match_is_the_rate() {
        let mut bench = bench(None, &["echo", "1 per second\n12,000.5 per second"]);
        let mut with = |pattern: &str| {
            bench.rate = Some(Regex::new(pattern).unwrap());
            bench.measure(&Mode::Plain).map(|reading| reading.rate.unwrap())
        };
        assert_eq!(with("([0-9.,]+) per second").unwrap(), 12_000.5);
        assert_eq!(with("[0-9]+").unwrap(), 5.0);
        assert!(with("per second").unwrap_err().to_string().contains("'per second'"));
        assert!(with("nothing").unwrap_err().to_string().contains("12,000.5 per second"));
    }

    #[test]
    fn the_interval_decides() {
        let reading = |seconds, rate, ring| {
            let traffic = Some(Traffic { ring, tcp: 1, ..Traffic::default() });
            Reading { seconds, rate, traffic }
        };
        let report = |plain: [f64; 4], accelerated: [f64; 4], ring| {
            report(&[plain, accelerated].map(|all| all.map(|s| reading(s, None, ring)).to_vec()))
        };
        let steady = [2.0, 2.1, 1.9, 2.0];
        let said = report(steady, [1.0, 1.0, 1.1, 0.9], 3);
        assert!(said.contains("the client is 2.00 times as fast.\n"), "{said}");
        assert!(
            said.ends_with("75 % of the accelerated client's bytes went through shared memory.\n")
        );
        let said = report([1.0, 1.0, 1.1, 0.9], steady, 0);
        assert!(said.contains("slower: 0.500 times as fast.\nNothing went through"), "{said}");
        let said = report(steady, [1.0, 3.0, 2.0, 2.5], 3);
        assert!(said.contains("Neither is faster for certain: the interval contains 1"), "{said}");
        let rates = [Some(10.0), Some(30.0)].map(|rate| vec![reading(1.0, rate, 3); 3]);
        let said = super::report(&rates);
        assert!(said.contains("rate") && said.contains("3.00 times as fast."), "{said}");
    }
}
