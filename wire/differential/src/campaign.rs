//! Runs many programs, several at a time.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::bench::{BLOCKED_AFTER, Bench, Confirmed, SHRINKING, Totals};
use crate::generate::generate;
use crate::program::TestProgram;

#[derive(Args)]
pub(crate) struct Settings {
    /// Seed of the first program; the others follow it
    #[arg(long)]
    seed: Option<u64>,
    /// Number of programs to run
    #[arg(long, default_value_t = u64::MAX)]
    programs: u64,
    /// Number of hours to run
    #[arg(long, default_value_t = f64::INFINITY)]
    hours: f64,
    /// Number of programs that run at a time; by default three for each processor
    #[arg(long)]
    jobs: Option<usize>,
    /// libseekwire.so; by default the one beside this program
    #[arg(long)]
    library: Option<PathBuf>,
    /// Directory for small programs that fail
    #[arg(long)]
    out: Option<PathBuf>,
    /// File of known kinds of failures, one a line, in which * matches anything
    #[arg(long)]
    expected: Option<PathBuf>,
    /// Do not make failing programs smaller
    #[arg(long)]
    no_shrink: bool,
    /// Stop after this many unexpected failures
    #[arg(long, default_value_t = usize::MAX)]
    failures: usize,
}

/// Whether a kind of failure is expected. Wrong bytes never are.
fn is_expected(expected: &[String], kind: &str) -> bool {
    !kind.ends_with(": wrong bytes") && expected.iter().any(|pattern| matches(pattern, kind))
}

/// Whether a pattern matches a text: each * matches any part of it.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|end| matches(rest, end)))
        }),
    }
}

fn expectations(file: Option<&Path>) -> Result<Vec<String>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let text =
        fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// Failures found in all programs.
#[derive(Default)]
struct Findings {
    /// Kinds that are known by now: the first seed, and how many programs failed in this way.
    seen: BTreeMap<String, (u64, u64)>,
    /// Differences that came again too seldom to be sure of them, with the first seed.
    sometimes: BTreeMap<String, (u64, u64)>,
    chance: u64,
    unexpected: usize,
    /// For the end of the log.
    reports: Vec<String>,
}

struct Campaign<'a> {
    settings: &'a Settings,
    expected: Vec<String>,
    bench: Bench,
    first: u64,
    began: Instant,
    programs: AtomicU64,
    findings: Mutex<Findings>,
}

/// Runs programs until there are enough; false if one could tell the difference in an unexpected
/// way.
pub(crate) fn run_many(settings: &Settings) -> Result<bool> {
    let campaign = Campaign {
        settings,
        expected: expectations(settings.expected.as_deref())?,
        bench: Bench::new(settings.library.clone())?,
        first: settings.seed.unwrap_or_else(|| fastrand::u64(..1 << 40)),
        began: Instant::now(),
        programs: AtomicU64::new(0),
        findings: Mutex::default(),
    };
    println!("seed {}", campaign.first);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = settings.jobs.unwrap_or(3 * processors).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| campaign.work())).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    campaign.report()
}

impl Campaign<'_> {
    /// Takes one program after the other.
    fn work(&self) -> Result<()> {
        loop {
            let hours = self.began.elapsed().as_secs_f64() / 3600.0;
            let failures = self.findings.lock().expect("nobody panics").unexpected;
            if hours >= self.settings.hours || failures >= self.settings.failures {
                return Ok(());
            }
            let taken = self.programs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < self.settings.programs).then_some(count + 1)
            });
            let Ok(count) = taken else { return Ok(()) };
            let seed = self.first + count;
            self.program(seed).with_context(|| format!("seed {seed}"))?;
        }
    }

    fn program(&self, seed: u64) -> Result<()> {
        let program = generate(seed);
        let Some(failure) = self.bench.try_once(&program, BLOCKED_AFTER[0], false)? else {
            return Ok(());
        };
        if self.is_seen(&failure.kind, seed) {
            return Ok(());
        }
        let (count, failure) = match self.bench.confirm(&program)? {
            Confirmed::Real(count, failure) => (count, failure),
            Confirmed::Sometimes(count, failure) => {
                println!("seed {seed}: {} again: {}", Confirmed::share(count), failure.kind);
                let mut findings = self.findings.lock().expect("nobody panics");
                findings.sometimes.entry(failure.kind).or_insert((seed, 0)).1 += 1;
                return Ok(());
            }
            Confirmed::Chance => {
                self.findings.lock().expect("nobody panics").chance += 1;
                return Ok(());
            }
        };
        if self.is_seen(&failure.kind, seed) {
            return Ok(());
        }
        {
            let mut findings = self.findings.lock().expect("nobody panics");
            findings.seen.insert(failure.kind.clone(), (seed, 1));
            if is_expected(&self.expected, &failure.kind) {
                return Ok(());
            }
            findings.unexpected += 1;
        }
        let heading = format!("seed {seed}: {} ({} again)", failure.kind, Confirmed::share(count));
        println!("{heading}\n{}", failure.text);
        let program = if self.settings.no_shrink {
            program
        } else {
            self.bench.smaller(&program, &failure, SHRINKING[0])
        };
        let mut report = format!("{}\n{heading}\n{}", text(&program)?, failure.text);
        if let Some(out) = &self.settings.out {
            report += &format!("\n  in {}", write(out, seed, &failure.kind, &program)?.display());
        }
        self.findings.lock().expect("nobody panics").reports.push(report);
        Ok(())
    }

    /// Counts a failure of a kind that is known already.
    fn is_seen(&self, kind: &str, seed: u64) -> bool {
        let mut findings = self.findings.lock().expect("nobody panics");
        if let Some((first, count)) = findings.seen.get_mut(kind) {
            *count += 1;
            *first = seed.min(*first);
            return true;
        }
        false
    }

    fn report(self) -> Result<bool> {
        let findings = self.findings.into_inner().expect("nobody panics");
        let totals = self.bench.totals.into_inner().expect("nobody panics");
        print_table(&totals);
        for (title, kinds) in
            [("", &findings.seen), ("too seldom to be sure: ", &findings.sometimes)]
        {
            for (kind, (seed, count)) in kinds {
                println!("{title}{count} times, first with seed {seed}: {kind}");
            }
        }
        for report in &findings.reports {
            println!("{report}");
        }
        println!(
            "{} programs, {} calls compared of {}, {} bytes on the ring, {} programs compared in part, {} differences \
             that did not come again, {} too seldom, {} kinds of failures, {:.0} s",
            self.programs.into_inner(),
            totals.compared(),
            totals.made,
            totals.ring,
            totals.loose,
            findings.chance,
            findings.sometimes.values().map(|(_, count)| count).sum::<u64>(),
            findings.unexpected,
            self.began.elapsed().as_secs_f64()
        );
        if totals.compared() == 0 || totals.ring == 0 {
            bail!(
                "nothing was compared: {} calls, {} bytes on the ring",
                totals.compared(),
                totals.ring
            );
        }
        Ok(findings.unexpected == 0)
    }
}

/// Prints how often each kind of call was compared, and with what result.
fn print_table(totals: &Totals) {
    println!("{:<34} {:>9} {:>9} {:>9}", "call", "compared", "blocked", "failed");
    for (name, tally) in &totals.calls {
        println!("{name:<34} {:>9} {:>9} {:>9}", tally.compared, tally.blocked, tally.failed);
    }
}

/// A program in the form in which files hold it.
fn text(program: &TestProgram) -> Result<String> {
    Ok(serde_json::to_string(program)?.replace("{\"by\"", "\n{\"by\""))
}

fn write(directory: &Path, seed: u64, kind: &str, program: &TestProgram) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let name: String = kind
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let path = directory.join(format!("{name}-{seed}.json"));
    fs::write(&path, text(program)?)?;
    Ok(path)
}

/// Runs programs from files; false if one could tell the difference.
pub(crate) fn replay(
    files: &[PathBuf],
    library: Option<PathBuf>,
    times: usize,
    verbose: bool,
) -> Result<bool> {
    let bench = Bench::new(library)?;
    let mut well = true;
    for file in files {
        let text = fs::read_to_string(file)
            .with_context(|| format!("{} cannot be read", file.display()))?;
        let program: TestProgram =
            serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?;
        let mut failures = Vec::new();
        for _ in 0..times {
            failures.extend(bench.try_once(&program, BLOCKED_AFTER[1], verbose)?);
        }
        match failures.first() {
            None => println!("{}: {times} of {times} the same", file.display()),
            Some(failure) => {
                println!(
                    "{}: {} of {times} fail: {}\n{}",
                    file.display(),
                    failures.len(),
                    failure.kind,
                    failure.text
                );
                well &= !matches!(bench.confirm(&program)?, Confirmed::Real(..));
            }
        }
    }
    let totals = bench.totals.into_inner().expect("nobody panics");
    println!(
        "{} programs, {} calls compared, {} bytes on the ring",
        files.len(),
        totals.compared(),
        totals.ring
    );
    Ok(well && totals.compared() > 0)
}

/// Prints the smallest program that fails as that of a seed does.
pub(crate) fn print_shrunk(seed: u64, library: Option<PathBuf>) -> Result<()> {
    let bench = Bench::new(library)?;
    let program = generate(seed);
    let failure = bench
        .try_once(&program, BLOCKED_AFTER[1], false)?
        .with_context(|| format!("seed {seed} does not fail"))?;
    eprintln!("{}\n{}", failure.kind, failure.text);
    println!("{}", text(&bench.smaller(&program, &failure, SHRINKING[1]))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{is_expected, matches};

    #[test]
    fn a_pattern_stands_for_what_it_says() {
        assert!(
            matches("a*c", "abc")
                && matches("*", "")
                && matches("a*", "a")
                && matches("a*b*", "a--b")
        );
        assert!(!matches("a*c", "ab") && !matches("a", "ab") && !matches("*b", "a"));
    }

    #[test]
    fn wrong_bytes_are_never_expected() {
        let all = ["*".to_owned()];
        assert!(is_expected(&all, "closed unseen: Receive: other bytes"));
        assert!(!is_expected(&all, "stream: wrong bytes"));
        assert!(!is_expected(&all, "closed unseen: model: wrong bytes"));
    }
}
