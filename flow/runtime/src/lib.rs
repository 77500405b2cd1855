//! Filter streams: a pipeline of filters, connected by streams of blocks, that keeps slow and fast
//! copies busy and bounds its memory.
//!
//! The model is that of DataCutter (M. Beynon et al., Parallel Computing 27(11), 2001), which V.
//! Melnyk et al. (2024) run on fast sockets: filters with `init`, `process` and `finalize`, units
//! of work, and transparent copies of each filter among which blocks are dealt.
//!
//! ```text
//! source ──> stream ──> copy 0 ──> stream ──> sink
//!                  └──> copy 1 ──┘
//! ```
//!
//! There are five folders. Each uses only those before it, and no files use one another in a circle.
//!
//! ```text
//! policy    what to do, given what happened and when: no threads, locks, clocks
//!   dealing             which copy gets the next block
//!   window              how many blocks a copy elsewhere gets ahead
//!   cut, size_*, fit    how large blocks are
//!   guarantee           what is promised for units, and whether it is kept
//! memory    the bytes of blocks
//!   ledger              how many there are; how a thread waits for room
//!   block, receipt      their room, and who is notified when they are dropped
//!   batch               blocks that a copy has taken and not begun
//!   wakeup              how a copy's thread waits
//! stream    a stream at its owner, the process that deals its blocks
//!   unit, report        units of work, and how they, copies and streams fared
//!   inbox, merge        blocks that no consumer has looked for; their order
//!   owned               the stream: blocks come in, are dealt, and are done
//!   elsewhere           the traits by which copies in other processes are plugged in
//!   local_pipeline      what all copies in this process share
//!   observer            watches copies and streams while they run
//! remote    those copies, seen from either end of a link
//! run       pipelines
//!   graph               filters, ports and streams, and their checks
//!   local_streams       what this process has of them
//!   running             threads; units of work that are submitted
//!   copy, output        a thread that calls a filter, and what this sends
//!   expiry              ends units that are no longer wanted
//! ```
//!
//! A block meets the modules in this order:
//!
//! 1. `copy` calls a source or another filter, which sends bytes to `output`. It takes room from the
//!    `ledger` and cuts the bytes into blocks (`cut`, `sizes`).
//! 2. `stream_ends` knows whether the owner of the stream is in this process. If not, `producer`
//!    sends the block over a `link`, and `dispatch` gives it to the owner.
//! 3. The owner has it in an `inbox`, or brings it into order (`merge`, `replays`), and deals it
//!    (`owned`, by `dealing`).
//! 4. A copy in this process takes it, in a `batch`. For one elsewhere, `remote_copy` notes what it
//!    has, within its `window`, and `consumer` keeps it there until the copy takes it.
//! 5. If that copy is slow and has not begun the block, the block is recalled.
//! 6. The filter drops the block. Its room goes back to the `ledger`, and its `receipt` notifies the
//!    process that it came from.
//!
//! Inside one process blocks are handed over, not copied. Several processes can run one pipeline,
//! each its part ([`Graph::place`], [`Graph::start_in`]). The memory of a stream is bounded in bytes,
//! from before a buffer is filled until a filter is done with the block.
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

mod encoding;
mod memory;
mod panics;
mod policy;
mod remote;
mod run;
mod stream;

pub use memory::block::Block;
pub use memory::origin::Origin;
pub use policy::copy_state::{CopyState, Deal};
pub use policy::cut::Cut;
pub use policy::dealing::DealingPolicy;
pub use policy::guarantee::{Guarantee, GuaranteeReport};
pub use policy::priority::UnitId;
pub use policy::size_bounds::SizeBounds;
pub use policy::size_tuner::{SizeDecision, SizeReason};
pub use remote::connect::{
    AbortCheck, ClusterConfig, ConnectError, OnRefusal, Peer, Refusal, SILENCE_LIMIT,
};
pub use run::filter::{Factory, Filter, OnError, Step};
pub use run::filter_error::{FilterError, NoOrderYet, NotOfABlock, TooLarge, UnitEnded};
pub use run::graph::{Graph, OnReject, Ports};
pub use run::graph_error::GraphError;
pub use run::output::Outputs;
pub use run::running::{Running, StartError};
pub use run::stream_options::{DEFAULT_LIMIT, LEAST_LIMIT, StreamOptions};
pub use stream::observer::{Observer, Span};
pub use stream::report::{CopyReport, Failure, StreamReport, UnitReport};
pub use stream::sizing::SizeReport;
pub use stream::unit::{Unit, UnitHandle};
