//! Parses a pipeline, from TOML or one line to a graph, with errors that name the place.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use seekwire_flow::{
    Cut, DEFAULT_LIMIT, DealingPolicy, Graph, GraphError, Guarantee, OnError, SizeBounds,
    StreamOptions,
};
use seekwire_launch::Launcher;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::builtin::process::ProgramName;
use crate::builtin::{self, Blockwise, BuiltFilter};
use crate::decision_text;
use crate::expression::{self, Named};
use crate::job::Member;
use crate::located_error::LocatedError;
use crate::options::{Fault, OptionTable, Rejects, is_name};
use crate::origin::Origin;
use crate::outputs::Destination;
use crate::placement::Placement;

/// The largest file, in bytes.
const LARGEST: u64 = 1 << 20;

/// A pipeline that can run.
pub(crate) struct Pipeline {
    pub(crate) graph: Graph,
    /// The text of the file or of the expression.
    pub(crate) source: String,
    file: PathBuf,
    pub(crate) filters: Vec<Line>,
    streams: Vec<String>,
    pub(crate) guarantee: Option<Guarantee>,
}

/// One filter of the file.
pub(crate) struct Line {
    pub(crate) name: String,
    location: Range<usize>,
    run: String,
    /// Number of copies on each process that it runs on.
    pub(crate) copies: usize,
    copies_at: Range<usize>,
    placement: Placement,
    /// Whether it can have several copies.
    pub(crate) is_split: bool,
    knows_order: bool,
    /// How long a byte takes, if an option of the filter states it.
    pub(crate) nanoseconds_per_byte: Option<u64>,
    /// The only output port besides the one for rejected blocks, if it has one of these.
    main: Option<String>,
    program: Option<ProgramName>,
    destination: Option<Destination>,
}

pub(crate) fn read(origin: Origin<'_>) -> Result<Pipeline> {
    let (file, source) = match origin {
        Origin::File(file) => (file, read_file(file)?),
        Origin::Expression(expression) => (Path::new("-e"), expression.to_owned()),
    };
    let parsed = match origin {
        Origin::File(_) => parse(&source),
        Origin::Expression(_) => parse_expression(&source),
    };
    match parsed {
        Ok(pipeline) => Ok(Pipeline { source, file: file.to_owned(), ..pipeline }),
        Err((span, message)) => Err(LocatedError::new(file, &source, span, message).into()),
    }
}

fn read_file(file: &Path) -> Result<String> {
    let cannot = || format!("cannot read the pipeline {}", file.display());
    let mut source = Vec::new();
    let opened = fs::File::open(file).with_context(cannot)?;
    opened.take(LARGEST + 1).read_to_end(&mut source).with_context(cannot)?;
    ensure!(
        source.len() as u64 <= LARGEST,
        "{} is larger than {} MiB: it is not a pipeline",
        file.display(),
        LARGEST >> 20
    );
    String::from_utf8(source).with_context(|| format!("{} is not UTF-8 text", file.display()))
}

fn parse(source: &str) -> Result<Pipeline, Fault> {
    let whole = DeTable::parse(source).map_err(|error| {
        (error.span().unwrap_or(source.len()..source.len()), error.message().to_owned())
    })?;
    let mut whole = whole.into_inner();
    let filters = whole.remove("filter");
    let streams = whole.remove("stream");
    let guarantee = whole.remove("guarantee");
    if let Some((key, _)) = whole.iter().next() {
        let unknown =
            format!("there is no {}; a pipeline has filter, stream and guarantee", key.get_ref());
        return Err((key.span(), unknown));
    }
    let none = || (0..0, "a pipeline needs filters: tables such as [filter.read]".to_owned());
    let filters = tables(filters.ok_or_else(none)?)?;
    build(filters, array(streams)?, guarantee)
}

fn parse_expression(source: &str) -> Result<Pipeline, Fault> {
    let expression::Tables { filters, streams } = expression::tables(source)?;
    build(filters, streams, None)
}

fn build(
    filters: Vec<Named<'_>>,
    streams: Vec<Spanned<DeTable<'_>>>,
    guarantee: Option<Spanned<DeValue<'_>>>,
) -> Result<Pipeline, Fault> {
    let mut pipeline = Pipeline {
        graph: Graph::new(),
        source: String::new(),
        file: PathBuf::new(),
        filters: Vec::new(),
        streams: Vec::new(),
        guarantee: None,
    };
    for (name, table) in filters {
        pipeline.add_filter(name, table)?;
    }
    for stream in streams {
        pipeline.add_stream(stream)?;
    }
    if let Some(guarantee) = guarantee {
        pipeline.add_guarantee(guarantee)?;
    }
    if let Err(error) = pipeline.graph.check() {
        let filter = match &error {
            GraphError::Unconnected { filter, .. } | GraphError::NoOrder { filter, .. } => {
                Some(filter)
            }
            GraphError::Circle(filters) => filters.first(),
            _ => None,
        };
        let line = pipeline.filters.iter().find(|line| Some(&line.name) == filter);
        return Err((line.map_or(0..0, |line| line.location.clone()), error.to_string()));
    }
    for line in &pipeline.filters {
        pipeline.check_copies(line, line.copies)?;
    }
    Ok(pipeline)
}

/// How a stream is cut into blocks.
fn cut(options: &mut OptionTable<'_>) -> Result<Cut, Fault> {
    let bounds_at =
        ["block-least", "block-most", "block-record"].map(|name| options.location(name));
    let block = options.size_or("block", "auto")?;
    let bounds =
        [options.size("block-least")?, options.size("block-most")?, options.size("block-record")?];
    let cut = match (block, options.size("lines")?) {
        (None, None) => Cut::Whole,
        (Some(Some(size)), None) => Cut::Bytes(size),
        (None, Some(size)) => Cut::Lines(size),
        (Some(None), None) => {
            let usual = SizeBounds::default();
            let [least, most, record] = bounds;
            let record = record.unwrap_or(usual.record);
            let least = least.unwrap_or_else(|| usual.least.min(most.unwrap_or(usual.least)));
            let most = most.unwrap_or(usual.most.max(least).max(record));
            return Ok(Cut::Auto(SizeBounds { least, most, record }));
        }
        (Some(_), Some(_)) => {
            let message = "a stream is cut by block or by lines, not by both".to_owned();
            return Err((options.span(), message));
        }
    };
    for (bound, at) in bounds.iter().zip(bounds_at) {
        if bound.is_some() {
            let message =
                "block-least, block-most and block-record are for block = \"auto\"".to_owned();
            return Err((at, message));
        }
    }
    Ok(cut)
}

/// The tables below `[filter]`, in the order of the file.
fn tables(filters: Spanned<DeValue<'_>>) -> Result<Vec<Named<'_>>, Fault> {
    let span = filters.span();
    let DeValue::Table(filters) = filters.into_inner() else {
        return Err((span, "filter must be tables such as [filter.read]".to_owned()));
    };
    let mut all = Vec::new();
    for (name, value) in filters {
        let at = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            return Err((at, format!("filter.{} must be a table", name.get_ref())));
        };
        let span = name.span();
        let name = Spanned::new(span, name.into_inner().into_owned());
        all.push((name, Spanned::new(at, table)));
    }
    all.sort_by_key(|(name, _)| name.span().start);
    Ok(all)
}

fn array(streams: Option<Spanned<DeValue<'_>>>) -> Result<Vec<Spanned<DeTable<'_>>>, Fault> {
    let Some(streams) = streams else { return Ok(Vec::new()) };
    let span = streams.span();
    let wrong = || (span.clone(), "stream must be an array of tables: [[stream]]".to_owned());
    let DeValue::Array(streams) = streams.into_inner() else { return Err(wrong()) };
    let mut all = Vec::new();
    for stream in streams {
        let at = stream.span();
        let DeValue::Table(table) = stream.into_inner() else { return Err(wrong()) };
        all.push(Spanned::new(at, table));
    }
    Ok(all)
}

impl Pipeline {
    fn add_filter(
        &mut self,
        name: Spanned<String>,
        table: Spanned<DeTable<'_>>,
    ) -> Result<(), Fault> {
        let at = name.span();
        let name = name.into_inner();
        if !is_name(&name) {
            let message = "the name of a filter consists of letters, digits, - and _".to_owned();
            return Err((at, message));
        }
        let mut options =
            OptionTable::new(format!("filter {name}"), at.clone(), table.into_inner());
        let (run, run_at) = options.required_at("run")?;
        let copies_at = options.location("copies");
        let copies = options.number("copies")?.unwrap_or(1);
        let copies = usize::try_from(copies).ok().filter(|copies| (1..=1024).contains(copies));
        let copies = copies.ok_or_else(|| {
            (copies_at.clone(), format!("filter {name} can have 1 to 1024 copies"))
        })?;
        let placement = Placement::take(&mut options)?;
        let idempotent_at = options.location("idempotent");
        let is_idempotent = options.boolean("idempotent")?;
        let on_error_at = options.location("on_error");
        let rejects = options.on_error()?;
        let BuiltFilter {
            mut ports,
            factory,
            is_split,
            knows_order,
            blockwise,
            program,
            destination,
            nanoseconds_per_byte,
        } = builtin::build(&run, run_at, options)?;
        if rejects.is_some() && (blockwise == Blockwise::Never || ports.inputs.is_empty()) {
            let why = format!(
                "{run} does not treat each block by itself, so it cannot go on after an error: leave \
                 on_error out, or let framed run a program that can"
            );
            return Err((on_error_at, why));
        }
        let mut main = None;
        let on_error = match rejects {
            None => OnError::Fail,
            Some(Rejects::Skip) => OnError::Skip,
            Some(Rejects::To(port)) => {
                if ports.outputs.contains(&port) {
                    let why = format!("{run} has an output port {port} already: name another one");
                    return Err((on_error_at, why));
                }
                if let [port] = &ports.outputs[..] {
                    main = Some(port.clone());
                }
                ports.outputs.push(port);
                OnError::To(ports.outputs.len() - 1)
            }
        };
        let line = Line {
            name,
            location: at.clone(),
            run,
            copies,
            copies_at,
            placement,
            is_split,
            knows_order,
            nanoseconds_per_byte,
            main,
            program,
            destination,
        };
        if !is_split && copies > 1 {
            return Err(line.alone());
        }
        self.graph
            .filter_by(&line.name, copies, ports, factory)
            .map_err(|error| (at, error.to_string()))?;
        let is_declared = on_error != OnError::Fail || is_idempotent;
        if blockwise == Blockwise::Always || blockwise == Blockwise::Declared && is_declared {
            let declared = self.graph.blockwise(&line.name);
            declared.map_err(|error| (line.location.clone(), error.to_string()))?;
        }
        if on_error != OnError::Fail {
            let set = self.graph.on_error(&line.name, on_error);
            set.map_err(|error| (on_error_at, error.to_string()))?;
        }
        if is_idempotent && line.run == "exec" {
            let why = format!(
                "filter {} cannot be idempotent: the program of exec may keep what it has read, and \
                 ends with the unit; a program of framed can be",
                line.name
            );
            return Err((idempotent_at, why));
        }
        if is_idempotent {
            let declared = self.graph.idempotent(&line.name);
            declared.map_err(|error| (idempotent_at, error.to_string()))?;
        }
        self.filters.push(line);
        Ok(())
    }

    /// Checks that the filter can have this many copies.
    fn check_copies(&self, line: &Line, copies: usize) -> Result<(), Fault> {
        if copies > 1 && !line.is_split {
            return Err(line.alone());
        }
        if copies > 1 && !line.knows_order && self.graph.is_order_kept_by(&line.name) {
            let why = format!(
                "an ordered stream depends on the order of what {} sends, and with several \
                 copies of this filter there is none: set copies = 1, or leave ordered out",
                line.name
            );
            return Err((line.location.clone(), why));
        }
        Ok(())
    }

    /// Places the filters on the processes of a job, in which this one has rank `rank`.
    pub(crate) fn place(
        &mut self,
        members: &[Member],
        rank: u32,
        launcher: Launcher,
    ) -> Result<()> {
        let placed = self.place_all(members, rank, launcher);
        Ok(placed.map_err(|(span, why)| LocatedError::new(&self.file, &self.source, span, why))?)
    }

    fn place_all(&mut self, members: &[Member], own: u32, launcher: Launcher) -> Result<(), Fault> {
        let at = |rank: u32| members.get(rank as usize);
        for line in &self.filters {
            let ranks = line.placement.ranks(members, launcher)?;
            let copies = ranks.iter().flat_map(|rank| std::iter::repeat_n(*rank, line.copies));
            let ranks: Vec<u32> = copies.collect();
            self.check_copies(line, ranks.len())?;
            let placed = self.graph.place(&line.name, &ranks);
            placed.map_err(|error| (line.location.clone(), error.to_string()))?;
            for (destination, rank) in line.destination.iter().zip(ranks) {
                if let (Some(here), Some(writer)) = (at(own), at(rank)) {
                    here.files.note(destination, &writer.files, rank == own);
                }
            }
        }
        Ok(())
    }

    /// Whether a filter without output writes anything but standard output.
    pub(crate) fn writes_elsewhere(&self) -> bool {
        let mut all = self.graph.filters().zip(&self.filters);
        all.any(|((_, _, ports), line)| {
            ports.outputs.is_empty() && line.destination != Some(Destination::StandardOutput)
        })
    }

    fn add_stream(&mut self, table: Spanned<DeTable<'_>>) -> Result<(), Fault> {
        let at = table.span();
        let mut options = OptionTable::new("the stream".to_owned(), at.clone(), table.into_inner());
        let mut from = options.required("from")?;
        let main = self.filters.iter().find(|line| line.name == from);
        if let Some(port) = main.and_then(|line| line.main.as_ref()) {
            from = format!("{from}.{port}");
        }
        let to = options.required("to")?;
        let policies = DealingPolicy::ALL.map(|policy| (policy.name(), policy));
        let policy = options.word("policy", &policies)?.unwrap_or_default();
        let limit = options.size("limit")?.unwrap_or(DEFAULT_LIMIT);
        let is_ordered = options.boolean("ordered")?;
        let cut = cut(&mut options)?;
        options.finish()?;
        self.graph
            .connect(&from, &to, StreamOptions { policy, limit, is_ordered, cut })
            .map_err(|error| (at, error.to_string()))?;
        let mut line = format!("{from} -> {to}: ");
        let policy = policy.name();
        let cut = match cut {
            Cut::Whole => "as they are sent".to_owned(),
            Cut::Bytes(size) => format!("of {size} B"),
            Cut::Auto(SizeBounds { least, most, .. }) => {
                format!("of a size between {least} B and {most} B that the stream chooses")
            }
            Cut::Lines(size) => format!("of lines, from {size} B on"),
        };
        let order = if is_ordered { ", ordered" } else { "" };
        let _ = write!(line, "blocks {cut}, {policy}{order}, at most {limit} B");
        self.streams.push(line);
        Ok(())
    }

    fn add_guarantee(&mut self, value: Spanned<DeValue<'_>>) -> Result<(), Fault> {
        let at = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            return Err((at, "guarantee must be a table: [guarantee]".to_owned()));
        };
        let mut options = OptionTable::new("the guarantee".to_owned(), at.clone(), table);
        let latency = options.duration("latency")?.map(Guarantee::Latency);
        let rate = options.positive("units-per-second")?.map(Guarantee::Rate);
        options.finish()?;
        let guarantee = match (latency, rate) {
            (Some(guarantee), None) | (None, Some(guarantee)) => guarantee,
            _ => {
                let message = "a guarantee is either latency or units-per-second".to_owned();
                return Err((at, message));
            }
        };
        let promised = self.graph.guarantee(guarantee);
        promised.map_err(|error| (at, error.to_string()))?;
        self.guarantee = Some(guarantee);
        Ok(())
    }

    /// Checks that this host has the programs of all filters; placed ones may be meant for other
    /// hosts.
    pub(crate) fn check_programs(&self) -> Result<()> {
        let here =
            self.filters.iter().filter(|line| matches!(line.placement, Placement::Coordinator));
        let checked =
            here.filter_map(|line| line.program.as_ref()).try_for_each(ProgramName::check);
        Ok(checked.map_err(|(span, why)| LocatedError::new(&self.file, &self.source, span, why))?)
    }

    /// Describes the filters and streams for people.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::from("Filters:\n");
        for Line { name, run, copies, placement, .. } in &self.filters {
            let copies = if *copies == 1 { String::new() } else { format!(", {copies} copies") };
            let placement = placement.describe();
            let _ = writeln!(text, "  {name}: {run}{copies}{placement}");
        }
        text.push_str("Streams:\n");
        for stream in &self.streams {
            let _ = writeln!(text, "  {stream}");
        }
        if let Some(guarantee) = self.guarantee {
            let _ = writeln!(text, "Guarantee: {}.", decision_text::promise(guarantee));
        }
        text.push_str("The pipeline can run.");
        text
    }
}

impl Line {
    fn alone(&self) -> Fault {
        let Self { run, .. } = self;
        let why = format!("{run} cannot have several copies: each would do all of the work");
        (self.copies_at.clone(), why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
[filter.read]
run = \"read\"
[filter.count]
run = \"burn\"
copies = 2
[filter.write]
run = \"write\"
[[stream]]
from = \"read\"
to = \"count\"
lines = \"4KiB\"
[[stream]]
from = \"count\"
to = \"write\"
";

    fn fault(text: &str) -> (usize, String) {
        let (span, message) = parse(text).err().expect("it is refused");
        (text[..span.start].matches('\n').count() + 1, message)
    }

    #[test]
    fn what_is_right_is_summed_up() {
        let summary = parse(GOOD).ok().unwrap().summary();
        assert!(summary.contains("  count: burn, 2 copies\n"), "{summary}");
        assert!(summary.contains("  read -> count: blocks of lines, from 4096 B on"), "{summary}");
        let promises = parse(&format!("{GOOD}[guarantee]\nlatency = \"1500ms\"\n"));
        let summary = promises.ok().unwrap().summary();
        assert!(summary.contains("Guarantee: each unit is done within 1.50 s.\n"), "{summary}");
        let auto = GOOD.replace("lines = \"4KiB\"", "block = \"auto\"\nblock-most = \"8KiB\"");
        let summary = parse(&auto).ok().unwrap().summary();
        assert!(summary.contains("of a size between 1024 B and 8192 B that"), "{summary}");
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let with = |from: &str, to: &str| fault(&GOOD.replacen(from, to, 1));
        let cases = [
            (with("run = \"burn\"", "run = \"brun\""), 4, "there is no filter brun"),
            (with("copies = 2", "copys = 2"), 5, "filter count has no option `copys`"),
            (with("copies = 2", "copies = 0"), 5, "can have 1 to 1024 copies"),
            (
                with("copies = 2", "copies = \"two\""),
                5,
                "`copies` of filter count must be a whole number",
            ),
            (
                with("run = \"read\"", "run = \"read\"\ncopies = 3"),
                3,
                "read cannot have several copies",
            ),
            (with("from = \"read\"", "from = \"raed\""), 8, "there is no filter called raed"),
            (
                with("lines = \"4KiB\"", "lines = \"4KB\""),
                11,
                "`lines` of the stream must be a size",
            ),
            (with("to = \"write\"", ""), 12, "the stream needs a value for `to`"),
            (
                with("lines = \"4KiB\"", "lines = \"4KiB\"\nblock-least = 7"),
                12,
                "are for block = \"auto\"",
            ),
            (
                with("lines = \"4KiB\"", "block = \"auto\"\nblock-least = 7\nblock-most = 6"),
                8,
                "can have no blocks of 7 to 6 bytes",
            ),
            (with("lines = \"4KiB\"", "block = \"any\""), 11, "\"1GiB\", or \"auto\""),
            (fault(&format!("{GOOD}[guarantee]\n")), 15, "either latency or units-per-second"),
            (
                fault(&format!("{GOOD}[guarantee]\nlatency = \"fast\"")),
                16,
                "`latency` of the guarantee must be a time such as",
            ),
            (
                fault(&format!("{GOOD}[guarantee]\nunits-per-second = 0")),
                16,
                "must be a number above 0",
            ),
            (with("[[stream]]", "[[streams]]"), 8, "there is no streams"),
            (with("run = \"read\"", "run = read"), 2, ""),
            (with("[filter.read]", "[filter.\"a b\"]"), 1, "consists of letters"),
        ];
        for ((line, message), expected, text) in cases {
            assert_eq!(line, expected, "{message}");
            assert!(message.contains(text), "{message}");
        }
        assert_eq!(fault("").1, "a pipeline needs filters: tables such as [filter.read]");
        let ordered = GOOD.replace("from = \"count\"", "from = \"count\"\nordered = true");
        assert!(parse(&ordered).is_ok());
        let exec = "run = \"exec\"\ncommand = [\"cat\"]";
        let (line, message) = fault(&ordered.replace("run = \"burn\"", exec));
        assert_eq!(line, 3, "{message}");
        assert!(message.contains("depends on the order of what count sends"), "{message}");
    }
}
