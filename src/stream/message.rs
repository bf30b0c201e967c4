//! Message: the closed set of what flows.

use super::{Barrier, ChangeBatch, Watermark};
use std::sync::Arc;

/// One element of a stream.
#[derive(Clone, Debug)]
pub enum Message {
    /// Rows that change.
    Changes(ChangeBatch),
    /// No more rows below an event time.
    Watermark(Watermark),
    /// The end of an epoch.
    Barrier(Arc<Barrier>),
}
