//! What flows: change batches, watermarks and barriers.
//!
//! Nothing here does I/O or knows who sends or receives. A stream is a sequence of
//! [`Message`]s; between two barriers it is a Z-set of rows, so the order of its batches does not
//! matter to the meaning. **Invariant:** epochs on a stream strictly follow each other.

pub mod barrier;
pub mod builder;
pub mod change;
pub mod check;
pub mod encoded;
pub mod epoch;
pub mod message;
pub mod vnode;
pub mod watermark;

pub use barrier::{ActorId, Barrier, BarrierKind, Mutation};
pub use builder::ChangeBuilder;
pub use change::ChangeBatch;
pub use epoch::Epoch;
pub use message::Message;
pub use vnode::{Vnode, VnodeSet};
pub use watermark::Watermark;
