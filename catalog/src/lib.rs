//! The catalog: what Weir names, and what the names mean.
//!
//! Pure data: no I/O, no clock, no threads. [`CatalogChange`] is the only verb; applying one to a
//! [`CatalogSnapshot`] gives the next snapshot, and planning reads nothing else. Durability is
//! somebody else's: the [`log::CatalogLog`] trait is implemented by the server's `state` area.
//!
//! Reading order: [`id`] and [`name`], [`column`], then what can be named ([`relation`],
//! [`source`], [`sink`], [`object`]), then [`change`] and [`snapshot`].

pub mod change;
pub mod codec;
pub mod column;
pub mod connector;
pub mod depend;
pub mod error;
pub mod id;
pub mod log;
pub mod name;
pub mod object;
pub mod relation;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod system;

pub use change::CatalogChange;
pub use column::{Column, Key};
pub use error::{CatalogError, ClientError, Severity, SqlState};
pub use id::{JobId, ObjectId, TableId};
pub use name::ObjectName;
pub use object::{Object, ObjectBody, ObjectKind, ObjectState};
pub use snapshot::CatalogSnapshot;
