//! Runs suites, each in all modes, and collects the results.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::execution::Stage;
use crate::mode::SuiteMode;
use crate::outcome::{Outcomes, TestOutcome};
use crate::record::{self, Circumstances, Record, RunEnd};
use crate::suite::{self, Suite};
use crate::verdict::{self, Difference};

#[derive(Args)]
pub(crate) struct SuiteSettings {
    /// Names of suites; by default all
    names: Vec<String>,
    /// Modes in which they run; plain always runs as well, for comparison
    #[arg(long = "mode", value_enum, value_delimiter = ',')]
    modes: Vec<SuiteMode>,
    /// Run only the fast suites, and the fast parts of others
    #[arg(long)]
    fast: bool,
    /// Directory for results and logs
    #[arg(long, default_value = "out/suites")]
    out: PathBuf,
    /// libseekwire.so; by default the one beside this program
    #[arg(long)]
    library: Option<PathBuf>,
    /// Directory for files that suites fetch and build; by default seekwire/suites in the user's
    /// cache
    #[arg(long, env = "SEEKWIRE_SUITES_CACHE")]
    cache: Option<PathBuf>,
}

/// Runs suites and prints the results. True: no test fails only accelerated.
pub(crate) fn run(suites: &Path, settings: &SuiteSettings) -> Result<bool> {
    let suites = chosen(suites, settings)?;
    let scripts = std::path::absolute("scripts")?;
    let library = library(settings)?;
    let cache = cache(settings)?;
    let isolated = scripts.join("isolated");
    let stage =
        Stage { library: &library, cache: &cache, isolated: &isolated, fast: settings.fast };
    let circumstances = circumstances(&library)?;
    let out = std::path::absolute(&settings.out)?;

    let (mut passed, mut ours, mut not_run) = (0, 0, 0);
    for suite in &suites {
        let records = run_one(&stage, suite, settings, &circumstances, &scripts, &out)?;
        for record in &records {
            match &record.end {
                RunEnd::NotRun(_) => not_run += 1,
                _ => passed += record.count(TestOutcome::Passed),
            }
            ours += failures(suite, record).len();
        }
    }
    println!(
        "suites: {passed} tests passed, {ours} failed accelerated only, {not_run} suites not run"
    );
    Ok(ours == 0)
}

/// Failures in a record that are Seekwire's fault, a line each.
pub(crate) fn failures(suite: &Suite, record: &Record) -> Vec<String> {
    let mut problems: Vec<String> = record
        .differences
        .iter()
        .filter(|one| one.is_ours())
        .map(|one| {
            format!(
                "{}: fails in {} of {} runs, plain in none",
                one.test, one.accelerated, one.runs
            )
        })
        .collect();
    let ran = !matches!(record.end, RunEnd::NotRun(_));
    if ran && !suite.ring && record.counters.connections.attached > 0 {
        problems
            .push("connections were attached by programs that do not load the library".to_owned());
    }
    problems
}

fn chosen(directory: &Path, settings: &SuiteSettings) -> Result<Vec<Suite>> {
    let mut suites = suite::all(directory)?;
    for name in &settings.names {
        ensure!(
            suites.iter().any(|suite| suite.name == *name),
            "no suite called {name}; seekwire-suites list names them"
        );
    }
    if !settings.names.is_empty() {
        suites.retain(|suite| settings.names.contains(&suite.name));
    }
    if settings.fast {
        suites.retain(|suite| suite.fast);
    }
    Ok(suites)
}

fn library(settings: &SuiteSettings) -> Result<PathBuf> {
    let path = match &settings.library {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("libseekwire.so"),
    };
    ensure!(
        path.is_file(),
        "no library at {}: build it first, with cargo build -p seekwire-preload",
        path.display()
    );
    Ok(std::path::absolute(path)?)
}

fn cache(settings: &SuiteSettings) -> Result<PathBuf> {
    if let Some(path) = &settings.cache {
        return Ok(std::path::absolute(path)?);
    }
    let user = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(user
        .context("neither XDG_CACHE_HOME nor HOME is set: name a directory by --cache")?
        .join("seekwire/suites"))
}

fn circumstances(library: &Path) -> Result<Circumstances> {
    let output = |program: &str, arguments: &[&str]| -> Result<String> {
        let output =
            Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
        if !output.status.success() {
            bail!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"])?;
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let system = rustix::system::uname();
    let cpus = std::thread::available_parallelism()?;
    let build = library.parent().and_then(Path::file_name).unwrap_or_default();
    Ok(Circumstances {
        commit: if changed.is_empty() { commit } else { format!("{commit}, changed") },
        date: output("date", &["-u", "+%F"])?,
        machine: format!(
            "Linux {}, {}, {cpus} CPUs",
            system.release().to_string_lossy(),
            system.machine().to_string_lossy()
        ),
        build: build.to_string_lossy().into_owned(),
    })
}

fn run_one(
    stage: &Stage<'_>,
    suite: &Suite,
    settings: &SuiteSettings,
    circumstances: &Circumstances,
    scripts: &Path,
    out: &Path,
) -> Result<Vec<Record>> {
    let directory = record::directory(out, &suite.name);
    std::fs::create_dir_all(&directory)?;
    let log = |name: &str| directory.join(format!("{name}.log"));
    let mut record = Record {
        suite: suite.name.clone(),
        mode: SuiteMode::Plain,
        circumstances: circumstances.clone(),
        version: String::new(),
        fast: settings.fast,
        end: RunEnd::Finished,
        seconds: 0,
        counters: Default::default(),
        outcomes: Outcomes::new(),
        differences: Vec::new(),
    };

    eprintln!("{}: fetching", suite.name);
    let why = match install(suite, scripts)? {
        None => stage.fetch(suite, &log("fetch"))?,
        why => why,
    };
    if let Some(why) = why {
        println!("{}: not run: {why}", suite.name);
        record.end = RunEnd::NotRun(why);
        record.store(out)?;
        return Ok(vec![record]);
    }
    let version =
        std::fs::read_to_string(stage.cache_of(suite).join("version")).unwrap_or_default();
    record.version = version.lines().collect::<Vec<_>>().join(", ");

    let mut records: Vec<Record> = Vec::new();
    for mode in SuiteMode::ALL {
        let asked = settings.modes.is_empty() || settings.modes.contains(&mode);
        if mode.is_accelerated() && !asked {
            continue;
        }
        let seen = stage.tests(suite, mode, &[], &log(&mode.to_string()))?;
        let mut record = Record {
            mode,
            end: seen.end,
            seconds: seen.seconds,
            counters: seen.counters,
            outcomes: seen.outcomes,
            ..record.clone()
        };
        if let Some(plain) = records.first() {
            record.differences = compare(stage, suite, plain, &record, &log)?;
        }
        print_result(suite, &record);
        record.store(out)?;
        records.push(record);
    }
    Ok(records)
}

/// Repeats the tests that differ, and judges them by their repeats.
fn compare(
    stage: &Stage<'_>,
    suite: &Suite,
    plain: &Record,
    record: &Record,
    log: &impl Fn(&str) -> PathBuf,
) -> Result<Vec<Difference>> {
    let suspects = verdict::suspects(&plain.outcomes, &record.outcomes);
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    eprintln!("    {} {}: {} differ and are repeated", suite.name, record.mode, suspects.len());
    let repeat = |mode: SuiteMode| {
        (1..=verdict::REPEATS)
            .map(|number| {
                let name = format!("{}-repeat-{number}-{mode}", record.mode);
                Ok(stage.tests(suite, mode, &suspects, &log(&name))?.outcomes)
            })
            .collect::<Result<Vec<Outcomes>>>()
    };
    Ok(verdict::judge(&suspects, &repeat(SuiteMode::Plain)?, &repeat(record.mode)?))
}

fn print_result(suite: &Suite, record: &Record) {
    let end = match &record.end {
        RunEnd::Finished => String::new(),
        RunEnd::TimedOut => ", over its limit".to_owned(),
        RunEnd::Died(how) => format!(", ended with {how}"),
        RunEnd::NotRun(why) => format!(", not run: {why}"),
    };
    println!(
        "{:12} {:8} {:5} passed {:4} failed {:4} skipped, {} of {} connections attached, {} bytes by the ring, {} s{end}",
        suite.name,
        record.mode,
        record.count(TestOutcome::Passed),
        record.count(TestOutcome::Failed),
        record.count(TestOutcome::Skipped),
        record.counters.connections.attached,
        record.counters.connections.tracked,
        record.counters.ring(),
        record.seconds
    );
    for line in failures(suite, record) {
        println!("    FAILED {line}");
    }
    for one in record.differences.iter().filter(|one| !one.is_ours()) {
        println!(
            "    unsteady {}: {} accelerated, {} plain of {}",
            one.test, one.accelerated, one.plain, one.runs
        );
    }
}

/// Installs the Debian packages that a suite needs. `Some`: why they cannot be installed.
fn install(suite: &Suite, scripts: &Path) -> Result<Option<String>> {
    if suite.packages.is_empty() {
        return Ok(None);
    }
    let output =
        Command::new(scripts.join("deps")).arg("packages").args(&suite.packages).output()?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(Some(text.lines().last().unwrap_or("its packages cannot be installed").to_owned()))
}
