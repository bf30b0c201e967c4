//! The Source contract: splits, offsets, resume.
//!
//! ```text
//!   Source ── splits() ──> Split, Split, …            again from time to time: new ones may appear
//!     └── reader(split, from, until) ──> SplitReader
//!                                           poll ─> Rows ─> offset() moves ─> poll ─> … ─> Finished
//!                                             └──> Idle (nothing now; the waker or a time brings more)
//! ```
//! The connector promises: 1. a reader opened at an offset that `offset()` gave goes on with the
//! row after, and the same rows in the same order as the first time; 2. `poll` never blocks (a
//! connector with a slow outside has its own thread and hands over what has arrived); 3. what
//! can't be decoded comes as a dead letter, never as an error and never silently dropped;
//! 4. splits, once listed, keep their names.

use super::error::ConnectorError;
use crate::checkpoint::participant::Offset;
use arrow::array::RecordBatch;
use std::sync::Arc;

/// A slice of an external source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Split {
    /// Its name, unique within the source: a file's path, a partition's number.
    pub name: String,
}

/// A message that could not be decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// The split that it came from.
    pub split: String,
    /// Where in the split.
    pub offset: String,
    /// The message, as it was.
    pub payload: Vec<u8>,
    /// Why it could not be decoded.
    pub reason: String,
}

/// What a reader has.
#[derive(Debug)]
pub enum SplitPoll {
    /// Rows of the wanted columns, and what could not be decoded among them.
    Rows(RecordBatch, Vec<DeadLetter>),
    /// Nothing now. `until_us`: poll again then ([`crate::clock::steady_us`]), if known.
    Idle {
        /// When to poll again, if known.
        until_us: Option<i64>,
    },
    /// The split is at its end, for good.
    Finished,
}

/// Wakes the worker whose source has something to read.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// What a source can fail of. Retried by the restart strategy of the database.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// Reads one split.
pub trait SplitReader: Send {
    /// The next rows, about `rows_max` at most. `now_us` is the worker's clock.
    fn poll(&mut self, rows_max: usize, now_us: i64) -> Result<SplitPoll, SourceError>;

    /// Where to read on after the rows that `poll` gave so far.
    fn offset(&self) -> Offset;

    /// Whether it is a good time to go on with another split.
    fn between(&self) -> bool {
        true
    }
}

/// A source, made from its declaration.
pub trait Source: Send + Sync {
    /// Tells what of the outside can be seen not to fit source `name` now. CREATE SOURCE asks.
    fn check(&self, name: &str) -> Result<(), ConnectorError> {
        let _ = name;
        Ok(())
    }

    /// The splits that exist now, in a stable order.
    fn splits(&self) -> Result<Vec<Split>, SourceError>;

    /// Whether new splits may appear, so that `splits` is asked again from time to time.
    fn grows(&self) -> bool {
        false
    }

    /// A reader of `split` that starts at `from` (or the beginning), ends before `until` (or
    /// never) and gives only `columns` (ordinals of the declared columns, ascending; may be empty:
    /// then batches have rows but no columns).
    fn reader(
        &self,
        split: &Split,
        from: Option<&Offset>,
        until: Option<&Offset>,
        columns: &[usize],
        waker: Waker,
    ) -> Result<Box<dyn SplitReader>, SourceError>;
}
