//! What is known of a node's output: key, append-only, watermarks, distribution.

/// How the rows of a stream are spread over the actors of its fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Any row may be anywhere (a source's splits).
    Any,
    /// By the vnode of these columns' hash, in this order.
    Hash(Vec<usize>),
    /// All rows at one actor.
    Single,
}

/// What is known of a node's output.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// Only insertions come.
    pub append_only: bool,
    /// A set of columns that is unique in the accumulated output, if one is proved. Empty: at most
    /// one row.
    pub key: Option<Vec<usize>>,
    /// Columns that carry a watermark.
    pub watermarks: Vec<usize>,
    /// Where rows are.
    pub distribution: Distribution,
}
