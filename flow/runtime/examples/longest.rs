//! Custom filters: which line is the longest, in each of some files?
//!
//! ```sh
//! cargo run --package seekwire-flow --example longest -- README.md CHANGELOG.md
//! ```
//!
//! Each file is a unit of work. `Lines` reads it, and four copies of `Longest` share its lines. Each
//! keeps the longest line that it has seen, and sends it at the end of the unit. `Print` receives
//! one line from each copy, and prints the longest of them.

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::Read;

use seekwire_flow::{
    Block, Cut, Filter, FilterError, Graph, Outputs, Ports, Step, StreamOptions, Unit,
};

/// The source: the bytes of the file that the unit of work names. The stream cuts them into lines.
#[derive(Default)]
struct Lines {
    file: Option<File>,
}

impl Filter for Lines {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let file = File::open(argument).map_err(|error| format!("{argument}: {error}"))?;
        self.file = Some(file);
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let Some(file) = &mut self.file else { return Ok(Step::Done) };
        let mut bytes = vec![0; 64 << 10];
        let count = file.read(&mut bytes)?;
        if count == 0 {
            return Ok(Step::Done);
        }
        bytes.truncate(count);
        out.send(0, bytes)?;
        Ok(Step::More)
    }
}

/// Each copy has an instance of its own for each unit, so its state is not shared.
#[derive(Default)]
struct Longest {
    line: Vec<u8>,
}

impl Longest {
    fn see(&mut self, block: &[u8]) {
        for line in block.split(|byte| *byte == b'\n') {
            if line.len() > self.line.len() {
                self.line = line.to_vec();
            }
        }
    }
}

impl Filter for Longest {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.see(&block);
        Ok(())
    }

    fn finalize(&mut self, out: &mut Outputs<'_>) -> Result<(), FilterError> {
        out.send(0, std::mem::take(&mut self.line))
    }
}

#[derive(Default)]
struct Print(Longest);

impl Filter for Print {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.0.see(&block);
        Ok(())
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        println!("{}", String::from_utf8_lossy(&self.0.line));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut graph = Graph::new();
    graph.filter("lines", 1, Ports::source(), Lines::default)?;
    graph.filter("longest", 4, Ports::step(), Longest::default)?;
    graph.filter("print", 1, Ports::sink(), Print::default)?;
    let lines = StreamOptions { cut: Cut::Lines(16 << 10), ..StreamOptions::default() };
    graph.connect("lines", "longest", lines)?;
    graph.connect("longest", "print", StreamOptions::default())?;
    let running = graph.start()?;
    let files: Vec<String> = env::args().skip(1).collect();
    let mut failed = 0;
    for file in &files {
        if let Err(failure) = running.submit(Unit::new(file)).wait() {
            eprintln!("{failure}");
            failed += 1;
        }
    }
    if failed > 0 {
        return Err(format!("{failed} of {} files could not be read", files.len()).into());
    }
    Ok(())
}
