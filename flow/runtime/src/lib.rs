//! Filter streams: a pipeline of filters, connected by streams of blocks, that keeps slow and fast
//! copies busy and bounds its memory.
//!
//! The model is that of DataCutter (M. Beynon et al., Parallel Computing 27(11), 2001), which V.
//! Melnyk et al. (2024) run on fast sockets: filters with `init`, `process` and `finalize`, units of
//! work, and transparent copies of each filter among which blocks are dealt.
//!
//! ```text
//! source ──> stream ──> copy 0 ──> stream ──> sink
//!                  └──> copy 1 ──┘
//!
//! graph     filters, ports and streams, and their checks                 graph
//! running   threads; units of work that are submitted                    running, build, unit
//! copy      one thread: takes blocks, calls the filter                   copy, filter, meter, shared
//! output    cuts the output of a filter into blocks; waits for room      output, cut, tight
//! stream    the blocks between two filters; units and their ends         stream, lanes, block, hand
//!             dealing: which copy gets the next block                    dealing
//!             inbox: blocks that no consumer has looked for yet          inbox
//!             recall: blocks that wait at a slow copy go to others       recall
//!             merge: the order of the output of several copies           merge
//!             ledger: how many bytes there are                           ledger
//!             sizing: how large blocks are, if that is not given         sizing, tune, race
//! wakeup    how a copy's thread waits                                    wakeup
//! report    how units, copies and streams fared                          report
//! expiry    ends units that are no longer wanted                         expiry
//! guarantee what is promised for units, and whether it is kept           guarantee
//! observer  watches copies and streams while they run                    observer
//! ```
//!
//! Inside one process blocks are handed over, not copied. Several processes can run one pipeline,
//! each its part ([`Graph::place`], [`Graph::start_in`]); a stream has a home, which deals its
//! blocks, and links to copies elsewhere (home, remote). The memory of a stream is bounded in
//! bytes, from before a buffer is filled until a filter is done with the block.
//!
//! ```
//! use seekwire_flow::{Block, Filter, FilterError, Graph, Outputs, Ports, Step, StreamOptions, Unit};
//!
//! struct Words;
//! impl Filter for Words {
//!     fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
//!         for word in ["one", "two", "three"] {
//!             out.send(0, word)?;
//!         }
//!         Ok(Step::Done)
//!     }
//! }
//!
//! struct Print;
//! impl Filter for Print {
//!     fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
//!         println!("{}", std::str::from_utf8(&block)?);
//!         Ok(())
//!     }
//! }
//!
//! let mut graph = Graph::new();
//! graph.filter("words", 1, Ports::source(), || Words)?;
//! graph.filter("print", 3, Ports::sink(), || Print)?;
//! graph.connect("words", "print", StreamOptions::default())?;
//! let running = graph.start()?;
//! running.submit(Unit::new("all")).wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod block;
mod build;
mod copy;
mod cut;
mod deal;
mod dealing;
mod dealt;
mod expiry;
mod filter;
mod fit;
mod graph;
mod graph_error;
mod guarantee;
mod hand;
mod hedging;
mod home;
mod inbox;
mod lanes;
mod late;
mod ledger;
mod merge;
mod meter;
mod observer;
mod origin;
mod output;
mod panics;
mod race;
mod recall;
mod remote;
mod report;
mod running;
mod shared;
mod sized;
mod sizing;
mod spans;
mod spent;
mod stream;
mod tight;
mod tune;
mod unit;
mod wakeup;

pub use block::Block;
pub use cut::Cut;
pub use deal::{CopyState, Deal};
pub use dealing::Policy;
pub use filter::{Factory, Filter, FilterError, OnError, Step};
pub use graph::{DEFAULT_LIMIT, Graph, LEAST_LIMIT, OnReject, Ports, StreamOptions};
pub use graph_error::GraphError;
pub use guarantee::{Guarantee, GuaranteeReport};
pub use hedging::Hedge;
pub use observer::{Observer, Span};
pub use origin::Origin;
pub use output::{Ended, NoOrderYet, NotOfABlock, Outputs, TooLarge};
pub use remote::meet::{CalledOff, Job, MeetError, PATIENCE, Peer, Refusal, Refusals};
pub use report::{CopyReport, Failure, StreamReport, UnitReport};
pub use running::{Running, StartError};
pub use sizing::SizeReport;
pub use tune::{Bounds, Reason, SizeDecision};
pub use unit::{Unit, UnitHandle, UnitId};
