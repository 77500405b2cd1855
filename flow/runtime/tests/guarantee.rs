//! Guarantees for units of work, and units that expire.

use std::thread;
use std::time::{Duration, Instant};

use seekwire_flow::{
    Block, Failure, Filter, FilterError, Graph, GraphError, Guarantee, Outputs, Ports, Step,
    StreamOptions, Unit,
};

use crate::jobs::jobs;

/// Sends this many blocks; for an empty argument, forever.
struct Blocks(Option<u64>);

impl Filter for Blocks {
    fn init(&mut self, argument: &str, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.0 = (!argument.is_empty()).then(|| argument.parse()).transpose()?;
        Ok(())
    }

    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        out.send(0, vec![0; 100])?;
        let Some(left) = &mut self.0 else { return Ok(Step::More) };
        *left -= 1;
        Ok(if *left > 0 { Step::More } else { Step::Done })
    }
}

struct Drops;

impl Filter for Drops {
    fn process(&mut self, _: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

fn graph(sinks: &[u32]) -> Graph {
    let mut graph = Graph::new();
    graph.filter("blocks", 1, Ports::source(), || Blocks(None)).unwrap();
    graph.filter("drops", 1, Ports::sink(), || Drops).unwrap();
    graph.place("drops", sinks).unwrap();
    graph.connect("blocks", "drops", StreamOptions::default()).unwrap();
    graph
}

#[test]
fn units_that_expire_end_at_their_deadline() {
    let running = graph(&[0]).start().unwrap();
    let soon = || Instant::now() + Duration::from_millis(30);
    let later = Instant::now() + Duration::from_secs(3600);
    let endless = running.submit(Unit::new("").deadline(soon()).expires());
    let finite = running.submit(Unit::new("50").deadline(later).expires());
    // Without a deadline it cannot expire.
    let patient = running.submit(Unit::new("50").expires());
    assert_eq!(endless.wait().unwrap_err(), Failure::Late { unit: endless.id() });
    finite.wait().unwrap();
    patient.wait().unwrap();
    let again = running.submit(Unit::new("").deadline(soon()).expires());
    assert_eq!(
        again.wait().unwrap_err().to_string(),
        format!("unit {} was not done by its deadline", again.id())
    );
    assert_eq!(running.guarantee(), None);
}

#[test]
fn a_late_unit_ends_in_all_processes() {
    let mut jobs = jobs(2).into_iter();
    let first = jobs.next().unwrap();
    thread::scope(|scope| {
        for job in jobs {
            scope.spawn(move || graph(&[0, 1]).start_in(&job, b"").unwrap().serve().unwrap());
        }
        let running = graph(&[0, 1]).start_in(&first, b"").unwrap();
        let soon = Instant::now() + Duration::from_millis(30);
        let unit = running.submit(Unit::new("").deadline(soon).expires());
        assert!(matches!(unit.wait(), Err(Failure::Late { .. })));
        running.submit(Unit::new("500")).wait().unwrap();
    });
}

#[test]
fn what_is_promised_is_counted() {
    let hour = Duration::from_secs(3600);
    for guarantee in [Guarantee::Latency(hour), Guarantee::Rate(1.0 / 3600.0)] {
        let mut graph = graph(&[0]);
        graph.guarantee(guarantee).unwrap();
        let running = graph.start().unwrap();
        assert_eq!(running.guarantee(), None);
        for _ in 0..3 {
            running.submit(Unit::new("20")).wait().unwrap();
        }
        let cancelled = running.submit(Unit::default());
        running.cancel(&cancelled);
        cancelled.wait().unwrap_err();
        let report = running.guarantee().unwrap();
        assert_eq!((report.guarantee, report.units, report.kept), (guarantee, 3, 3));
        assert!(report.holds() && report.worst <= report.allowed());
        // A late unit counts as such.
        let soon = Instant::now() + Duration::from_millis(1);
        running.submit(Unit::default().deadline(soon).expires()).wait().unwrap_err();
        assert_eq!(running.guarantee().unwrap().units, 4);
    }
}

#[test]
fn a_latency_that_is_none_is_refused() {
    let mut graph = graph(&[0]);
    let refused = graph.guarantee(Guarantee::Latency(Duration::ZERO)).unwrap_err();
    assert_eq!(refused, GraphError::NoGuarantee);
    assert!(graph.guarantee(Guarantee::Rate(f64::NAN)).is_err());
}
