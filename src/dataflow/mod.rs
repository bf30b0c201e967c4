//! How it flows: actors, the channels between them, and the operator contract.
//!
//! ```text
//!   upstream actors ══ channels ══> align ──> chain of operators ──> dispatch ══ channels ══> …
//!                                     │ barrier                         (hash by vnode, forward, broadcast)
//!                                     └──> seal ──> actor report ──> coordinator
//! ```
//! Operators are synchronous state machines ([`operator::Operator`]); only the actor loop knows
//! channels, alignment, timers and errors. A worker is a thread that gives its actors turns.

pub mod actor;
pub mod align;
pub mod chain;
pub mod dispatch;
pub mod exchange;
pub mod fill;
pub mod operator;
pub mod overtake;
pub mod room;
pub mod start;
pub mod worker;

pub use operator::{Operator, OperatorError, Output, Progress};
