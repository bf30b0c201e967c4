//! The order-preserving key encoding. On disk, so it is our own, versioned by the table's layout
//! and held by golden tests.
//!
//! ```text
//!   value       = marker (1) │ body
//!   marker      ascending: 0x01 a value, 0x02 NULL   (NULLS LAST, as PostgreSQL sorts)
//!               NULLS FIRST: 0x00 NULL, 0x01 a value; descending: every byte of the body inverted
//!   bool        0x00 | 0x01
//!   int N bits  big endian, sign bit flipped (dates, times, timestamps as their integers)
//!   decimal128  16 bytes big endian, sign bit flipped, of the unscaled value
//!   float       IEEE bits big endian: sign bit flipped if positive, all bits if negative;
//!               -0.0 as 0.0; NaN above all, as PostgreSQL sorts
//!   text, bytes each byte; 0x00 as 0x00 0xff; end 0x00 0x01
//!   interval    months, days, nanoseconds normalized to one i128 of nanoseconds as PostgreSQL
//!               compares them, then the three parts, so that it can be decoded
//!   list        0x01 before each element's value encoding; end 0x00
//!   struct      each field's value encoding
//!   row key     vnode (1) │ value of each key column in order
//! ```

use super::StateError;
use crate::stream::Vnode;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

/// How one key column sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// Greatest first.
    pub descending: bool,
    /// NULL before every value.
    pub nulls_first: bool,
}

impl KeyOrder {
    /// Ascending, NULLS LAST.
    pub const ASCENDING: KeyOrder = KeyOrder { descending: false, nulls_first: false };
}

/// Encodes and decodes keys of one shape.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    types: Vec<DataType>,
    orders: Vec<KeyOrder>,
}

impl KeyCodec {
    /// For key columns of `types`, all ascending.
    pub fn new(types: Vec<DataType>) -> Self {
        let orders = vec![KeyOrder::ASCENDING; types.len()];
        Self { types, orders }
    }

    /// For key columns of `types` in `orders`.
    pub fn with_orders(types: Vec<DataType>, orders: Vec<KeyOrder>) -> Self {
        assert_eq!(types.len(), orders.len(), "an order for each column");
        Self { types, orders }
    }

    /// The columns' types.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Whether values of `data_type` can be keys.
    pub fn supports(_data_type: &DataType) -> bool {
        unimplemented!()
    }

    /// Appends the key of `row` (without vnode) to `out`. `columns` are the key columns.
    pub fn encode(&self, _columns: &[ArrayRef], _row: usize, _out: &mut Vec<u8>) {
        unimplemented!()
    }

    /// Encodes the keys of all rows: data and end offsets. `vnodes`, if given, go first.
    pub fn encode_all(&self, _columns: &[ArrayRef], _rows: usize, _vnodes: Option<&[Vnode]>) -> EncodedKeys {
        unimplemented!()
    }

    /// Decodes keys (without vnode) back to columns.
    pub fn decode<'a>(&self, _keys: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, StateError> {
        unimplemented!()
    }

    /// The length in bytes of the first `columns` columns at the start of `key` (without vnode).
    pub fn prefix_len(&self, _key: &[u8], _columns: usize) -> Result<usize, StateError> {
        unimplemented!()
    }
}

/// Many keys in one buffer.
#[derive(Clone, Debug, Default)]
pub struct EncodedKeys {
    /// All keys, one after another.
    pub data: Vec<u8>,
    /// Where each ends.
    pub ends: Vec<u32>,
}

impl EncodedKeys {
    /// The key of `row`.
    pub fn get(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        &self.data[start..self.ends[row] as usize]
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}
