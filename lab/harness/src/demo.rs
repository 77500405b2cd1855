//! The short tour for `seekwire demo`: real programs, plain and accelerated, in under two minutes.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use seekwire_program::standard;

use crate::context::{self, Context, Description};
use crate::launch::interrupt;
use crate::launch::{ACCELERATED, PLAIN};
use crate::output::Destination;
use crate::plot::Figure;
use crate::programs::{self, DEMO, ProgramDurations};
use crate::progress::Progress;
use crate::{measure, report, search};

/// The question it answers, in a line.
pub const QUESTION: &str =
    "The short tour: what real programs gain, and a receiver that takes messages out of order.";

/// The quantities it measures.
pub const ABOUT: &str = "Unmodified programs exchange bytes over TCP on this machine, plain and accelerated in \
    alternation. In accelerated runs both ends are accelerated. Slide tiles, where they were measured, come from a \
    server of our own, and a part of the slide is compared with what OpenSlide decodes. Message search is a receiver \
    of our own, which takes messages in another order than they arrive in: plain, it copies preceding messages aside \
    and copies them again when it needs them; accelerated, it takes the wanted message out of the middle of the \
    stream.";

const WITHOUT_SLIDES: &str =
    "without slide tiles: `make build` builds seekwire-slides, and `scripts/slide` fetches a slide";

/// How the demo is run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Directory for `report.html`, `result.json`, `raw.csv` and the figures.
    pub out: PathBuf,
    /// Rounds, each with one plain and one accelerated run of everything.
    pub rounds: usize,
    /// `libseekwire.so`, if not the one that [`seekwire_program::library::find`] finds.
    pub library: Option<PathBuf>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { out: PathBuf::from("out/demo"), rounds: 5, library: None }
    }
}

/// Chosen so that five rounds take well under two minutes, most of it redis (16 cases).
const SCALE: ProgramDurations = ProgramDurations {
    iperf3: Duration::from_millis(300),
    redis: Duration::from_millis(250),
    sockperf_seconds: 1,
    file: 256 << 20,
};

/// Runs the demo: progress on standard error, one table on standard output, and a report.
///
/// # Errors
///
/// If the results cannot be written, if a file arrived with a wrong checksum (after the report has
/// been written), or if the user interrupts. Programs that are missing are rows of the table.
pub fn run(options: &DemoOptions) -> Result<()> {
    interrupt::install();
    let begun = Instant::now();
    let destination = Destination::prepare(&options.out)?;
    let settings = context::Options {
        rounds: Some(options.rounds),
        library: options.library.clone(),
        ..context::Options::default()
    };
    let context = Context::new(&settings, Progress::new("demo"))?;
    let description = Description { name: DEMO, about: ABOUT, paper_reference: None };
    let slides = programs::slides::group(&context);
    if slides.is_none() {
        seekwire_program::tell(WITHOUT_SLIDES);
    }
    let completed = measure::measure(
        description,
        &destination,
        || {
            programs::measure(
                &context,
                context.rounds(5, 5),
                SCALE,
                slides.into_iter().chain([search::demo::group(&context)]).collect(),
            )
        },
        programs::findings,
        bars,
    )?;
    drop(context);

    let table =
        report::plain_text(&completed.result.rows, PLAIN, ACCELERATED, programs::is_headline);
    let mut stdout = standard::output()?.lock();
    writeln!(stdout, "{table}")?;
    match options.rounds {
        0 | 1 => write!(stdout, "One round; ratio: accelerated /")?,
        rounds => write!(
            stdout,
            "Medians of {rounds} rounds, in brackets the smallest and the largest value; ratio: \
             accelerated /"
        )?,
    }
    writeln!(stdout)?;
    writeln!(
        stdout,
        "plain, in brackets its 95 % interval; ring: bytes of a run's client that went through shared"
    )?;
    writeln!(
        stdout,
        "memory. Message search: CPU time of a receiver that, plain, copies aside what is in the way,"
    )?;
    writeln!(
        stdout,
        "and, accelerated, takes what it wants out of the middle of a TCP stream. {} s in all.",
        begun.elapsed().as_secs()
    )?;
    writeln!(stdout, "Report: {}", completed.report().display())?;
    match completed.result.violation {
        Some(violation) => bail!("{violation}"),
        None => Ok(()),
    }
}

fn bars(figure: &Figure) -> Result<String> {
    figure.bars()?.with_context(|| format!("{} has no bars", figure.file))
}
