//! The order-preserving key encoding. On disk, so it is our own, versioned by the table's layout
//! and held by golden tests.
//!
//! ```text
//!   value       = marker (1) │ body; NULL has no body
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
//!
//! Elements and fields are encoded ascending; descending inverts them with the body they are in.

use super::StateError;
use super::column::{
    Builder, BuilderValues, Fixed, Values, View, bytes_at, ends_early, for_fixed, for_fixed_builder, offset,
    stored_alike, supported, take,
};
use crate::stream::Vnode;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

const NULL_FIRST: u8 = 0x00;
const VALUE: u8 = 0x01;
const NULL_LAST: u8 = 0x02;
const ESCAPED_ZERO: u8 = 0xff;
const END_OF_BYTES: u8 = 0x01;
const ELEMENT: u8 = 0x01;
const END_OF_LIST: u8 = 0x00;

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

    fn null_marker(self) -> u8 {
        if self.nulls_first { NULL_FIRST } else { NULL_LAST }
    }

    /// What each byte of a body is xor-ed with.
    fn mask(self) -> u8 {
        if self.descending { 0xff } else { 0 }
    }
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

    /// How the columns sort.
    pub fn orders(&self) -> &[KeyOrder] {
        &self.orders
    }

    /// Whether values of `data_type` can be keys.
    pub fn supports(data_type: &DataType) -> bool {
        supported(data_type)
    }

    /// Appends the key of `row` (without vnode) to `out`. `columns` are the first key columns:
    /// all of them, or fewer for a prefix. For many rows, [`KeyCodec::encode_all`] is faster.
    pub fn encode(&self, columns: &[ArrayRef], row: usize, out: &mut Vec<u8>) {
        self.check(columns);
        for (column, order) in columns.iter().zip(&self.orders) {
            push_value(&View::new(column), row, *order, out);
        }
    }

    /// Encodes the keys of all rows: data and end offsets. `vnodes`, if given, go first.
    /// `columns` may be fewer than all, for prefixes.
    pub fn encode_all(&self, columns: &[ArrayRef], rows: usize, vnodes: Option<&[Vnode]>) -> EncodedKeys {
        self.check(columns);
        let mut lengths = vec![u32::from(vnodes.is_some()); rows];
        let columns: Vec<Column> =
            columns.iter().zip(&self.orders).map(|(c, o)| Column::new(c, *o, rows)).collect();
        for column in &columns {
            column.add_lengths(&mut lengths);
        }
        let mut starts = Vec::with_capacity(rows);
        let mut end = 0usize;
        for length in &mut lengths {
            starts.push(end as u32);
            end += *length as usize;
            assert!(end <= u32::MAX as usize, "the keys of a batch stay below 4 GiB");
            *length = end as u32;
        }
        let mut data = vec![0; end];
        if let Some(vnodes) = vnodes {
            for (start, vnode) in starts.iter_mut().zip(vnodes) {
                data[*start as usize] = vnode.0;
                *start += 1;
            }
        }
        for column in &columns {
            column.write(&mut data, &mut starts);
        }
        EncodedKeys { data, ends: lengths }
    }

    /// Decodes keys (without vnode) back to columns.
    pub fn decode<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, StateError> {
        let mut cursors: Vec<&[u8]> = keys.collect();
        let mut columns = Vec::with_capacity(self.types.len());
        for (data_type, order) in self.types.iter().zip(&self.orders) {
            let mut builder = Builder::new(data_type, cursors.len());
            read_column(&mut builder, &mut cursors, *order)?;
            columns.push(builder.finish()?);
        }
        match cursors.iter().find(|c| !c.is_empty()) {
            Some(rest) => Err(StateError::Decode(format!("{} bytes are left after a key", rest.len()))),
            None => Ok(columns),
        }
    }

    /// The length in bytes of the first `columns` columns at the start of `key` (without vnode).
    pub fn prefix_len(&self, key: &[u8], columns: usize) -> Result<usize, StateError> {
        let mut rest = key;
        for (data_type, order) in self.types.iter().zip(&self.orders).take(columns) {
            // A scratch builder walks over nested values too; prefixes are few and short.
            let mut builder = Builder::new(data_type, 1);
            read_value(&mut builder, &mut rest, *order)?;
        }
        Ok(key.len() - rest.len())
    }

    fn check(&self, columns: &[ArrayRef]) {
        assert!(columns.len() <= self.types.len(), "no more columns than the key has");
        for (column, data_type) in columns.iter().zip(&self.types) {
            assert!(
                stored_alike(data_type, column.data_type()),
                "a key column of {data_type} can't take {}",
                column.data_type()
            );
        }
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
    #[inline]
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

    /// The keys, in order of rows.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|row| self.get(row))
    }
}

/// A key column on its way into many keys.
struct Column<'a> {
    view: View<'a>,
    order: KeyOrder,
    /// Nested values are encoded ahead, as their length is only known then.
    nested: Option<EncodedKeys>,
}

impl<'a> Column<'a> {
    fn new(array: &'a ArrayRef, order: KeyOrder, rows: usize) -> Self {
        let view = View::new(array);
        let nested = matches!(view.values, Values::List { .. } | Values::Struct(_)).then(|| {
            let mut keys = EncodedKeys::default();
            for row in 0..rows {
                push_value(&view, row, order, &mut keys.data);
                keys.ends.push(keys.data.len() as u32);
            }
            keys
        });
        Self { view, order, nested }
    }

    /// Adds the length of each row's value to `lengths`.
    fn add_lengths(&self, lengths: &mut [u32]) {
        if let Some(nested) = &self.nested {
            for (row, length) in lengths.iter_mut().enumerate() {
                *length += nested.get(row).len() as u32;
            }
            return;
        }
        let body = |row: usize| match &self.view.values {
            Values::Bytes { offsets, data } => {
                let bytes = bytes_at(offsets, data, row);
                (bytes.len() + memchr::memchr_iter(0, bytes).count() + 2) as u32
            }
            values => fixed_width(values),
        };
        match (&self.view.values, self.view.is_dense()) {
            (Values::Bytes { .. }, true) => {
                lengths.iter_mut().enumerate().for_each(|(row, length)| *length += 1 + body(row));
            }
            (values, true) => {
                let width = 1 + fixed_width(values);
                lengths.iter_mut().for_each(|length| *length += width);
            }
            (_, false) => {
                for (row, length) in lengths.iter_mut().enumerate() {
                    *length += if self.view.is_null(row) { 1 } else { 1 + body(row) };
                }
            }
        }
    }

    /// Writes each row's value at its start in `data`, and moves the start behind it.
    fn write(&self, data: &mut [u8], starts: &mut [u32]) {
        if let Some(nested) = &self.nested {
            for (row, start) in starts.iter_mut().enumerate() {
                let value = nested.get(row);
                data[*start as usize..][..value.len()].copy_from_slice(value);
                *start += value.len() as u32;
            }
            return;
        }
        for_fixed!(&self.view.values, slice => self.write_fixed(slice, data, starts), other => match other {
            Values::Bool(bits) => self.write_each(data, starts, 1, |row, out| out[0] = u8::from(bits.value(row))),
            Values::Bytes { offsets, data: bytes } => {
                self.write_bytes(|row| bytes_at(offsets, bytes, row), data, starts);
            }
            _ => self.write_each(data, starts, 0, |_, _| {}),
        });
    }

    fn write_fixed<T: Fixed>(&self, slice: &[T], data: &mut [u8], starts: &mut [u32]) {
        self.write_each(data, starts, T::KEY_WIDTH, |row, out| slice[row].put_key(out));
    }

    /// Writes values of one width.
    #[inline]
    fn write_each(&self, data: &mut [u8], starts: &mut [u32], width: usize, put: impl Fn(usize, &mut [u8])) {
        let (dense, mask, null) = (self.view.is_dense(), self.order.mask(), self.order.null_marker());
        for (row, start) in starts.iter_mut().enumerate() {
            let at = *start as usize;
            if !dense && self.view.is_null(row) {
                data[at] = null;
                *start += 1;
                continue;
            }
            let out = &mut data[at..at + 1 + width];
            out[0] = VALUE;
            put(row, &mut out[1..]);
            if mask != 0 {
                out[1..].iter_mut().for_each(|b| *b ^= mask);
            }
            *start += 1 + width as u32;
        }
    }

    fn write_bytes<'b>(&self, value: impl Fn(usize) -> &'b [u8], data: &mut [u8], starts: &mut [u32]) {
        let mask = self.order.mask();
        for (row, start) in starts.iter_mut().enumerate() {
            let at = *start as usize;
            if self.view.is_null(row) {
                data[at] = self.order.null_marker();
                *start += 1;
                continue;
            }
            data[at] = VALUE;
            let mut end = at + 1;
            put_bytes(value(row), |piece| {
                data[end..end + piece.len()].copy_from_slice(piece);
                end += piece.len();
            });
            if mask != 0 {
                data[at + 1..end].iter_mut().for_each(|b| *b ^= mask);
            }
            *start = end as u32;
        }
    }
}

/// The width of the body of a fixed-width column's values.
fn fixed_width(values: &Values<'_>) -> u32 {
    fn width<T: Fixed>(_: &[T]) -> u32 {
        T::KEY_WIDTH as u32
    }
    for_fixed!(values, slice => width(slice), other => u32::from(matches!(other, Values::Bool(_))))
}

/// The pieces of the encoding of `bytes`, in order.
fn put_bytes(bytes: &[u8], mut put: impl FnMut(&[u8])) {
    let mut from = 0;
    for zero in memchr::memchr_iter(0, bytes) {
        put(&bytes[from..=zero]);
        put(&[ESCAPED_ZERO]);
        from = zero + 1;
    }
    put(&bytes[from..]);
    put(&[0, END_OF_BYTES]);
}

/// Appends the encoding of one value: the path of nested values and single rows.
fn push_value(view: &View<'_>, row: usize, order: KeyOrder, out: &mut Vec<u8>) {
    if view.is_null(row) {
        out.push(order.null_marker());
        return;
    }
    out.push(VALUE);
    let start = out.len();
    push_body(view, row, out);
    if order.mask() != 0 {
        out[start..].iter_mut().for_each(|b| *b ^= order.mask());
    }
}

fn push_body(view: &View<'_>, row: usize, out: &mut Vec<u8>) {
    fn push_fixed<T: Fixed>(value: T, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + T::KEY_WIDTH, 0);
        value.put_key(&mut out[start..]);
    }
    for_fixed!(&view.values, slice => push_fixed(slice[row], out), other => match other {
        Values::Bool(bits) => out.push(u8::from(bits.value(row))),
        Values::Bytes { offsets, data } => {
            put_bytes(bytes_at(offsets, data, row), |piece| out.extend_from_slice(piece));
        }
        Values::List { offsets, child } => {
            for element in offsets[row] as usize..offsets[row + 1] as usize {
                out.push(ELEMENT);
                push_value(child, element, KeyOrder::ASCENDING, out);
            }
            out.push(END_OF_LIST);
        }
        Values::Struct(fields) => {
            fields.iter().for_each(|field| push_value(field, row, KeyOrder::ASCENDING, out));
        }
        _ => {}
    });
}

/// Reads the next value of every key: one match a column, then a loop.
fn read_column(builder: &mut Builder, cursors: &mut [&[u8]], order: KeyOrder) -> Result<(), StateError> {
    fn fixed<T: Fixed>(
        values: &mut Vec<T>,
        valid: &mut Vec<bool>,
        cursors: &mut [&[u8]],
        order: KeyOrder,
    ) -> Result<(), StateError> {
        for cursor in cursors {
            let is_value = read_marker(cursor, order, 0)?;
            valid.push(is_value);
            values.push(if is_value { read_fixed(cursor, order.mask())? } else { T::default() });
        }
        Ok(())
    }
    let Builder { valid, values, .. } = builder;
    for_fixed_builder!(values, v => return fixed(v, valid, cursors, order), _ => {});
    cursors.iter_mut().try_for_each(|cursor| read_value(builder, cursor, order))
}

/// Whether a value follows, not NULL. `outer` is the mask of the value that this one is part of.
fn read_marker(cursor: &mut &[u8], order: KeyOrder, outer: u8) -> Result<bool, StateError> {
    match take(cursor, 1)?[0] ^ outer {
        VALUE => Ok(true),
        marker if marker == order.null_marker() => Ok(false),
        marker => Err(StateError::Decode(format!("{marker:#04x} is no marker of a key's value"))),
    }
}

fn read_fixed<T: Fixed>(cursor: &mut &[u8], mask: u8) -> Result<T, StateError> {
    let bytes = take(cursor, T::KEY_WIDTH)?;
    if mask == 0 {
        return Ok(T::get_key(bytes));
    }
    let mut plain = [0; 32];
    for (to, from) in plain.iter_mut().zip(bytes) {
        *to = from ^ mask;
    }
    Ok(T::get_key(&plain[..T::KEY_WIDTH]))
}

fn read_value(builder: &mut Builder, cursor: &mut &[u8], order: KeyOrder) -> Result<(), StateError> {
    if read_marker(cursor, order, 0)? { read_body(builder, cursor, order.mask()) } else { null(builder) }
}

/// A value within another one, whose mask covers this one's marker too.
fn read_nested(builder: &mut Builder, cursor: &mut &[u8], mask: u8) -> Result<(), StateError> {
    if read_marker(cursor, KeyOrder::ASCENDING, mask)? {
        read_body(builder, cursor, mask)
    } else {
        null(builder)
    }
}

fn null(builder: &mut Builder) -> Result<(), StateError> {
    builder.push_null();
    Ok(())
}

fn read_body(builder: &mut Builder, cursor: &mut &[u8], mask: u8) -> Result<(), StateError> {
    builder.valid.push(true);
    for_fixed_builder!(&mut builder.values, v => v.push(read_fixed(cursor, mask)?), other => match other {
        BuilderValues::Bool(v) => v.push(take(cursor, 1)?[0] ^ mask != 0),
        BuilderValues::Bytes { offsets, data } => {
            read_bytes(data, cursor, mask)?;
            offsets.push(offset(data.len())?);
        }
        BuilderValues::List { offsets, child } => {
            while take(cursor, 1)?[0] ^ mask != END_OF_LIST {
                read_nested(child, cursor, mask)?;
            }
            offsets.push(offset(child.len())?);
        }
        BuilderValues::Struct(fields) => {
            fields.iter_mut().try_for_each(|field| read_nested(field, cursor, mask))?;
        }
        _ => return Err(StateError::Decode("a value in a column of NULLs".to_owned())),
    });
    Ok(())
}

fn read_bytes(data: &mut Vec<u8>, cursor: &mut &[u8], mask: u8) -> Result<(), StateError> {
    let from = data.len();
    loop {
        let zero = memchr::memchr(mask, cursor).ok_or_else(ends_early)?;
        data.extend_from_slice(take(cursor, zero)?);
        match take(cursor, 2)?[1] ^ mask {
            ESCAPED_ZERO => data.push(mask),
            END_OF_BYTES => break,
            byte => return Err(StateError::Decode(format!("{byte:#04x} after a zero in a key's text"))),
        }
    }
    if mask != 0 {
        data[from..].iter_mut().for_each(|b| *b ^= mask);
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/key.rs"]
mod tests;
