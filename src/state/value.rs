//! The row value encoding: what a key maps to.
//!
//! ```text
//!   value      = version (1) = 0x01 │ NULL bitmap (1 bit a column, 1 = NULL) │ column bodies, NULLs left out
//!   fixed      little endian: bool 1, intN N/8, float N/8, decimal128 16,
//!              interval 16: months (4), days (4), nanoseconds (8)
//!   text, bytes length (LEB128) │ bytes
//!   list       count (LEB128) │ NULL bitmap │ bodies;   struct  NULL bitmap │ bodies
//!   bitmap     least significant bit first, padded with 0 to a whole byte
//! ```
//!
//! The version is never zero, so a value never looks like a count of zero (see `store.rs`).

use super::StateError;
use super::column::{
    Builder, BuilderValues, Fixed, Values, View, bytes_at, for_fixed, for_fixed_builder, offset,
    stored_alike, supported, take,
};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

const VERSION: u8 = 1;

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
    pub fn supports(data_type: &DataType) -> bool {
        supported(data_type)
    }

    /// Appends the value of `row` to `out`. For many rows, [`ValueCodec::encoder`] is faster.
    pub fn encode(&self, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>) {
        self.encoder(columns).encode(row, out);
    }

    /// Takes `columns` apart once, to encode many rows of them.
    pub fn encoder<'a>(&self, columns: &'a [ArrayRef]) -> ValueEncoder<'a> {
        assert_eq!(columns.len(), self.types.len(), "a column for each type");
        for (column, data_type) in columns.iter().zip(&self.types) {
            assert!(
                stored_alike(data_type, column.data_type()),
                "a column of {data_type} can't take {}",
                column.data_type()
            );
        }
        ValueEncoder { columns: View::all(columns) }
    }

    /// Decodes values back to columns.
    pub fn decode<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, StateError> {
        let bitmap_len = self.types.len().div_ceil(8);
        let (mut bitmaps, mut cursors) = (Vec::new(), Vec::new());
        for mut value in values {
            match take(&mut value, 1)?[0] {
                VERSION => {}
                version => {
                    return Err(StateError::Decode(format!("unknown version {version} of a row value")));
                }
            }
            bitmaps.push(take(&mut value, bitmap_len)?);
            cursors.push(value);
        }
        let mut columns = Vec::with_capacity(self.types.len());
        for (index, data_type) in self.types.iter().enumerate() {
            let mut builder = Builder::new(data_type, cursors.len());
            read_column(&mut builder, &mut cursors, |row| is_set(bitmaps[row], index))?;
            columns.push(builder.finish()?);
        }
        match cursors.iter().find(|c| !c.is_empty()) {
            Some(rest) => Err(StateError::Decode(format!("{} bytes are left after a row value", rest.len()))),
            None => Ok(columns),
        }
    }
}

/// Columns taken apart, to be encoded row by row.
pub struct ValueEncoder<'a> {
    columns: Vec<View<'a>>,
}

impl ValueEncoder<'_> {
    /// Appends the value of `row` to `out`.
    #[inline]
    pub fn encode(&self, row: usize, out: &mut Vec<u8>) {
        out.push(VERSION);
        push_bitmap(self.columns.iter().map(|c| c.is_null(row)), out);
        for column in &self.columns {
            if !column.is_null(row) {
                push_body(column, row, out);
            }
        }
    }
}

#[inline]
pub(super) fn is_set(bitmap: &[u8], bit: usize) -> bool {
    bitmap[bit / 8] >> (bit % 8) & 1 == 1
}

pub(super) fn push_bitmap(nulls: impl ExactSizeIterator<Item = bool>, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + nulls.len().div_ceil(8), 0);
    for (bit, null) in nulls.enumerate() {
        out[start + bit / 8] |= u8::from(null) << (bit % 8);
    }
}

pub(super) fn push_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

pub(super) fn push_body(view: &View<'_>, row: usize, out: &mut Vec<u8>) {
    for_fixed!(&view.values, slice => slice[row].put_value(out), other => match other {
        Values::Bool(bits) => out.push(u8::from(bits.value(row))),
        Values::Bytes { offsets, data } => {
            let bytes = bytes_at(offsets, data, row);
            push_length(bytes.len(), out);
            out.extend_from_slice(bytes);
        }
        Values::List { offsets, child } => {
            let elements = offsets[row] as usize..offsets[row + 1] as usize;
            push_length(elements.len(), out);
            push_bitmap(elements.clone().map(|e| child.is_null(e)), out);
            for element in elements.filter(|e| !child.is_null(*e)) {
                push_body(child, element, out);
            }
        }
        Values::Struct(fields) => {
            push_bitmap(fields.iter().map(|f| f.is_null(row)), out);
            for field in fields.iter().filter(|f| !f.is_null(row)) {
                push_body(field, row, out);
            }
        }
        _ => {}
    });
}

pub(super) fn take_length(cursor: &mut &[u8]) -> Result<usize, StateError> {
    let mut length = 0;
    for shift in (0..35).step_by(7) {
        let byte = take(cursor, 1)?[0];
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(length);
        }
    }
    Err(StateError::Decode("a length in a row value is too long".to_owned()))
}

/// Reads the next column of every value: one match, then a loop.
fn read_column(
    builder: &mut Builder,
    cursors: &mut [&[u8]],
    is_null: impl Fn(usize) -> bool,
) -> Result<(), StateError> {
    fn fixed<T: Fixed>(
        values: &mut Vec<T>,
        valid: &mut Vec<bool>,
        cursors: &mut [&[u8]],
        is_null: impl Fn(usize) -> bool,
    ) -> Result<(), StateError> {
        for (row, cursor) in cursors.iter_mut().enumerate() {
            let null = is_null(row);
            valid.push(!null);
            values.push(if null { T::default() } else { T::get_value(take(cursor, T::VALUE_WIDTH)?) });
        }
        Ok(())
    }
    let Builder { valid, values, .. } = builder;
    for_fixed_builder!(values, v => return fixed(v, valid, cursors, is_null), _ => {});
    for (row, cursor) in cursors.iter_mut().enumerate() {
        if is_null(row) {
            builder.push_null();
        } else {
            read_body(builder, cursor)?;
        }
    }
    Ok(())
}

pub(super) fn read_body(builder: &mut Builder, cursor: &mut &[u8]) -> Result<(), StateError> {
    fn fixed<T: Fixed>(values: &mut Vec<T>, cursor: &mut &[u8]) -> Result<(), StateError> {
        values.push(T::get_value(take(cursor, T::VALUE_WIDTH)?));
        Ok(())
    }
    builder.valid.push(true);
    for_fixed_builder!(&mut builder.values, v => fixed(v, cursor)?, other => match other {
        BuilderValues::Bool(v) => v.push(take(cursor, 1)?[0] != 0),
        BuilderValues::Bytes { offsets, data } => {
            let length = take_length(cursor)?;
            data.extend_from_slice(take(cursor, length)?);
            offsets.push(offset(data.len())?);
        }
        BuilderValues::List { offsets, child } => {
            let count = take_length(cursor)?;
            read_bodies(std::iter::repeat_n((), count).map(|()| 0), std::slice::from_mut(child), count, cursor)?;
            offsets.push(offset(child.len())?);
        }
        BuilderValues::Struct(fields) => {
            let count = fields.len();
            read_bodies(0..count, fields, count, cursor)?;
        }
        _ => return Err(StateError::Decode("a value in a column of NULLs".to_owned())),
    });
    Ok(())
}

/// A NULL bitmap of `count` bits, then the bodies, into the builders that `targets` names.
fn read_bodies(
    targets: impl Iterator<Item = usize>,
    builders: &mut [impl std::borrow::BorrowMut<Builder>],
    count: usize,
    cursor: &mut &[u8],
) -> Result<(), StateError> {
    let bitmap = take(cursor, count.div_ceil(8))?;
    for (bit, target) in targets.enumerate() {
        let builder = builders[target].borrow_mut();
        if is_set(bitmap, bit) {
            builder.push_null();
        } else {
            read_body(builder, cursor)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/value.rs"]
mod tests;
