//! The row value encoding: what a key maps to.
//!
//! ```text
//!   value      = version (1) = 0x01 │ NULL bitmap (1 bit a column, 1 = NULL) │ column bodies, NULLs left out
//!   fixed      little endian: bool 1, intN N/8, float N/8, decimal128 16, interval 16
//!   text, bytes length (LEB128) │ bytes
//!   list       count (LEB128) │ NULL bitmap │ bodies;   struct  NULL bitmap │ bodies
//! ```

use super::StateError;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

/// Encodes and decodes row values of one shape.
#[derive(Clone, Debug)]
pub struct ValueCodec {
    types: Vec<DataType>,
}

impl ValueCodec {
    /// For columns of `types`.
    pub fn new(types: Vec<DataType>) -> Self {
        Self { types }
    }

    /// The columns' types.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Whether values of `data_type` can be stored.
    pub fn supports(_data_type: &DataType) -> bool {
        unimplemented!()
    }

    /// Appends the value of `row` to `out`.
    pub fn encode(&self, _columns: &[ArrayRef], _row: usize, _out: &mut Vec<u8>) {
        unimplemented!()
    }

    /// Decodes values back to columns.
    pub fn decode<'a>(&self, _values: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, StateError> {
        unimplemented!()
    }
}
