//! Many programs, one after the other.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::compare::{Failure, compare};
use crate::generate::generate;
use crate::program::Program;
use crate::run::{Mode, run};
use crate::shrink::shrink;
use crate::{PATIENCE, sys};

#[derive(Args)]
pub(crate) struct Settings {
    /// The first program's; the others follow
    #[arg(long)]
    seed: Option<u64>,
    /// How many programs
    #[arg(long, default_value_t = u64::MAX)]
    programs: u64,
    /// For how long
    #[arg(long, default_value_t = f64::INFINITY)]
    hours: f64,
    /// libseekwire.so; by default the one beside this program
    #[arg(long)]
    library: Option<PathBuf>,
    /// Where small programs that fail are written
    #[arg(long)]
    out: Option<PathBuf>,
    /// Kinds of failures that are known, a line each, in which * stands for anything
    #[arg(long)]
    expected: Option<PathBuf>,
    /// Does not make failing programs smaller
    #[arg(long)]
    no_shrink: bool,
    /// Ends after so many failures that are not expected
    #[arg(long, default_value_t = usize::MAX)]
    failures: usize,
}

/// How often a failing program is run again to see whether it was chance.
const AGAIN: usize = 3;

struct Bench {
    library: PathBuf,
    directory: tempfile::TempDir,
    calls: u64,
    ring: u64,
    /// Programs whose calls could not be compared one by one to the end.
    loose: u64,
}

impl Bench {
    fn new(library: Option<PathBuf>) -> Result<Self> {
        let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("libseekwire.so"));
        let library = library.map_or_else(beside, Ok)?;
        if !library.exists() {
            bail!("{} is missing: build it with cargo build -p seekwire-preload", library.display());
        }
        sys::process::adopt_orphans();
        let directory = tempfile::Builder::new().prefix("seekwire-differential-").tempdir_in("/dev/shm")?;
        Ok(Self { library: fs::canonicalize(library)?, directory, calls: 0, ring: 0, loose: 0 })
    }

    /// Runs a program both ways.
    fn try_once(&mut self, program: &Program, patience: Duration, verbose: bool) -> Result<Option<Failure>> {
        let mode = |library| Mode { library, patience, verbose };
        let directory = self.directory.path().join("run");
        let plain = run(program, &mode(None), &directory)?;
        let accelerated = run(program, &mode(Some(self.library.clone())), &directory)?;
        let (failure, loose) = compare(program, &plain, &accelerated);
        self.calls += accelerated.calls;
        self.ring += accelerated.ring;
        self.loose += u64::from(loose);
        Ok(failure)
    }

    /// How many of a few patient runs fail in this way.
    fn confirm(&mut self, program: &Program, kind: &str, times: usize) -> Result<usize> {
        let mut count = 0;
        for _ in 0..times {
            let failure = self.try_once(program, PATIENCE[1], false)?;
            count += usize::from(failure.is_some_and(|failure| failure.kind == kind));
        }
        Ok(count)
    }

    fn smaller(&mut self, program: &Program, failure: &Failure) -> Program {
        let mut fails = |candidate: &Program| {
            (0..2).all(|_| {
                let found = self.try_once(candidate, PATIENCE[0] * 2, false).ok().flatten();
                found.is_some_and(|found| found.kind == failure.kind)
            })
        };
        let mut start = program.clone();
        start.steps.truncate(failure.step.saturating_add(1));
        let start = if fails(&start) { start } else { program.clone() };
        shrink(&start, 250, fails)
    }
}

fn is_expected(expected: &[String], kind: &str) -> bool {
    expected.iter().any(|pattern| matches(pattern, kind))
}

/// Whether a pattern stands for a text: each * for any part of it.
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
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

/// Runs programs until there are enough; false if one could tell the difference in a way that is not expected.
pub(crate) fn run_many(settings: &Settings) -> Result<bool> {
    let expected = expectations(settings.expected.as_deref())?;
    let mut bench = Bench::new(settings.library.clone())?;
    let first = settings.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("seed {first}");
    let began = Instant::now();
    let mut seen: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let (mut programs, mut chance, mut unexpected) = (0, 0, 0);
    while programs < settings.programs && began.elapsed().as_secs_f64() < settings.hours * 3600.0 {
        let seed = first + programs;
        programs += 1;
        let program = generate(seed);
        let Some(failure) =
            bench.try_once(&program, PATIENCE[0], false).with_context(|| format!("seed {seed}"))?
        else {
            continue;
        };
        if let Some((_, count)) = seen.get_mut(&failure.kind) {
            *count += 1;
            continue;
        }
        if is_expected(&expected, &failure.kind) {
            seen.insert(failure.kind, (seed, 1));
            continue;
        }
        let again = bench.confirm(&program, &failure.kind, AGAIN)?;
        if again == 0 {
            chance += 1;
            println!("seed {seed}: once only: {}", failure.kind);
            continue;
        }
        println!(
            "seed {seed}, program {programs}: {} ({again} of {AGAIN} again)\n{}",
            failure.kind, failure.text
        );
        unexpected += 1;
        if let Some(out) = &settings.out {
            let smaller = if settings.no_shrink { program } else { bench.smaller(&program, &failure) };
            write(out, seed, &failure.kind, &smaller)?;
        }
        seen.insert(failure.kind, (seed, 1));
        std::io::stdout().flush()?;
        if unexpected >= settings.failures {
            break;
        }
    }
    for (kind, (seed, count)) in &seen {
        println!("{count} times, first with seed {seed}: {kind}");
    }
    println!(
        "{programs} programs, {} calls compared, {} bytes on the ring, {} programs compared in part, {chance} differences \
         that did not come again, {unexpected} kinds of failures, {:.0} s",
        bench.calls,
        bench.ring,
        bench.loose,
        began.elapsed().as_secs_f64()
    );
    if bench.calls == 0 || bench.ring == 0 {
        bail!("nothing was compared: {} calls, {} bytes on the ring", bench.calls, bench.ring);
    }
    Ok(unexpected == 0)
}

fn write(directory: &Path, seed: u64, kind: &str, program: &Program) -> Result<()> {
    fs::create_dir_all(directory)?;
    let name: String =
        kind.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let path = directory.join(format!("{name}-{seed}.json"));
    fs::write(&path, serde_json::to_string(program)?.replace("{\"by\"", "\n{\"by\""))?;
    println!("  {} steps in {}", program.steps.len(), path.display());
    Ok(())
}

/// Runs programs from files; false if one could tell the difference.
pub(crate) fn replay(
    files: &[PathBuf],
    library: Option<PathBuf>,
    times: usize,
    verbose: bool,
) -> Result<bool> {
    let mut bench = Bench::new(library)?;
    let mut well = true;
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let program: Program = serde_json::from_str(&text).with_context(|| format!("{}", file.display()))?;
        let mut failures = Vec::new();
        for _ in 0..times {
            failures.extend(bench.try_once(&program, PATIENCE[1], verbose)?);
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
                well = false;
            }
        }
    }
    println!("{} programs, {} calls compared, {} bytes on the ring", files.len(), bench.calls, bench.ring);
    Ok(well && bench.calls > 0)
}

/// Prints the smallest program that fails as that of a seed does.
pub(crate) fn print_shrunk(seed: u64, library: Option<PathBuf>) -> Result<()> {
    let mut bench = Bench::new(library)?;
    let program = generate(seed);
    let failure = bench
        .try_once(&program, PATIENCE[1], false)?
        .with_context(|| format!("seed {seed} does not fail"))?;
    eprintln!("{}\n{}", failure.kind, failure.text);
    let smaller = bench.smaller(&program, &failure);
    println!("{}", serde_json::to_string(&smaller)?.replace("{\"by\"", "\n{\"by\""));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_stands_for_what_it_says() {
        assert!(matches("a*c", "abc") && matches("*", "") && matches("a*", "a") && matches("a*b*", "a--b"));
        assert!(!matches("a*c", "ab") && !matches("a", "ab") && !matches("*b", "a"));
    }
}
