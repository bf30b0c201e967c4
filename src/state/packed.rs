//! Rows that only come, several in an entry: those of a key that are written together.
//!
//! ```text
//!   key      table id │ vnode │ key columns │ the entry's number, a bigint
//!   value    version (1) = 0x02 │ rows (LEB128) │ NULL marks (1 bit a column, 1 = has some) │ columns
//!   column   marked: NULL bitmap (1 bit a row) │ bodies, NULLs left out
//!   bodies   text, bytes: every length (LEB128), then every row's bytes;
//!            others: as in a row value (see `value`), one after another
//! ```
//! An entry costs the store the same whatever it holds, so rows of the same key share one. They are
//! found by sorting hashes of keys, which need not be exact: rows that are not neighbours only become
//! two entries.

use super::StateError;
use super::column::{Builder, BuilderValues, Values, View, bytes_at, offset, take};
use super::key::KeyCodec;
use super::store::WriteOp;
use super::table::{TableLayout, pick};
use super::value::{is_set, push_bitmap, push_body, push_length, read_body, take_length};
use super::writes::{RunWriter, Writes};
use crate::stream::{Epoch, Vnode};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::DataType;
use std::ops::Range;
use std::sync::Arc;
use weir_catalog::TableId;

const VERSION: u8 = 2;

/// Rows of an entry, at most; fewer where they are long.
const ENTRY_ROWS: usize = 256;
/// What an entry's rows should take, so that to read one row's key is to read little else.
const ENTRY_BYTES: usize = 64 << 10;

/// Where a row is, and in front of it what is left of its key's hash: the order of writing.
const ROW_BITS: u32 = 14;
const PART_BITS: u32 = 4;
const HASH_MASK: u64 = !0 << (ROW_BITS + PART_BITS);

/// Rows encoded together, at most. More of them share more keys, but fall out of the processor's cache.
const PART_ROWS: usize = 1 << ROW_BITS;
const PARTS: usize = 1 << PART_BITS;

/// Of the hashes of keys, one in so many is looked at to tell whether rows share keys; few tell nothing.
const SAMPLE_MASK: u64 = 31;
const SAMPLE_MIN: usize = 64;

/// Of an entry's number, the bits that tell the entries of an epoch apart.
const NUMBER_BITS: u32 = 28;

/// Part and row within it.
type Place = (usize, usize);

/// Rows whose keys are told by number.
pub struct Grouped {
    /// How the key columns are encoded.
    pub codec: KeyCodec,
    /// The columns of the keys, each key once.
    pub keys: Vec<ArrayRef>,
    /// The vnode of each key.
    pub vnodes: Vec<Vnode>,
    /// By row: its key.
    pub key_of: Vec<u32>,
    /// The other columns of the rows.
    pub columns: Vec<ArrayRef>,
}

/// The number of the first entry that a table gets in `epoch`, of no more than `rows`.
fn first_number(epoch: Epoch, rows: usize) -> Result<i64, StateError> {
    let of_epoch = i64::try_from(epoch.0).ok().filter(|epoch| *epoch < 1 << (63 - NUMBER_BITS));
    match of_epoch {
        Some(epoch) if rows < 1 << NUMBER_BITS => Ok(epoch << NUMBER_BITS),
        _ => Err(StateError::Store(format!("{rows} rows of epoch {} can't be numbered", epoch.0))),
    }
}

impl Writes {
    /// Adds `batches`, of the rows that a packed table gets in `epoch`, without their entry's number.
    /// Fails of more rows than an epoch can number.
    pub fn packed(
        &mut self,
        layout: &Arc<TableLayout>,
        batches: Vec<RecordBatch>,
        epoch: Epoch,
    ) -> Result<(), StateError> {
        let mut number = first_number(epoch, batches.iter().map(RecordBatch::num_rows).sum())?;
        let layout = Arc::clone(layout);
        self.later(layout.id, move |runs| {
            let cut = |batch: &RecordBatch, at: usize| batch.slice(at, PART_ROWS.min(batch.num_rows() - at));
            let starts = |batch: &RecordBatch| (0..batch.num_rows()).step_by(PART_ROWS);
            let parts: Vec<RecordBatch> =
                batches.iter().flat_map(|batch| starts(batch).map(|at| cut(batch, at))).collect();
            for parts in parts.chunks(PARTS) {
                number += write_parts(&layout, parts, number, runs);
            }
            Ok(())
        });
        Ok(())
    }

    /// The same, of so many rows, which `grouped` gives, and whose keys are told by number.
    pub fn packed_groups(
        &mut self,
        table: TableId,
        rows: usize,
        epoch: Epoch,
        grouped: impl FnOnce() -> Result<Grouped, StateError> + Send + 'static,
    ) -> Result<(), StateError> {
        let number = first_number(epoch, rows)?;
        self.later(table, move |runs| {
            let Grouped { codec, keys, vnodes, key_of, columns } = grouped()?;
            let keys = codec.encode_all(&keys, vnodes.len(), Some(&vnodes));
            let mut order: Vec<u64> =
                key_of.iter().enumerate().map(|(row, key)| u64::from(*key) << 32 | row as u64).collect();
            order.sort_unstable();
            let key = |place: &u64| keys.get((place >> 32) as usize);
            let groups = neighbours(&order, rows_an_entry(columns.iter(), order.len()), key);
            let views = [View::all(&columns)];
            write_groups(&order, &groups, (key, |place| (0, place as u32 as usize)), &views, number, runs);
            Ok(())
        });
        Ok(())
    }
}

/// Writes `parts` as entries numbered from `number` on; returns how many.
fn write_parts(layout: &TableLayout, parts: &[RecordBatch], number: i64, runs: &mut RunWriter<'_>) -> i64 {
    let key_columns = &layout.key_columns[..layout.key_columns.len() - 1];
    let rows = parts.iter().map(RecordBatch::num_rows).sum();
    let (mut order, mut keys) = (Vec::with_capacity(rows), Vec::with_capacity(parts.len()));
    for (part, rows) in parts.iter().enumerate() {
        let (hashes, vnodes) = layout.hashes(rows);
        keys.push(layout.key.encode_all(&pick(rows, key_columns), rows.num_rows(), Some(&vnodes)));
        // A row's place in its part is below 2^14.
        let place = |(row, hash): (usize, &u64)| hash & HASH_MASK | (part as u64) << ROW_BITS | row as u64;
        order.extend(hashes.iter().enumerate().map(place));
    }
    let key = |place: &u64| {
        let (part, row) = place_of(*place);
        keys[part].get(row)
    };
    let groups = if are_alone(&order) {
        (0..rows).map(|row| row..row + 1).collect()
    } else {
        order.sort_unstable();
        neighbours(&order, rows_an_entry(parts.iter().flat_map(RecordBatch::columns), rows), key)
    };
    let columns: Vec<Vec<ArrayRef>> = parts.iter().map(|part| pick(part, &layout.value_columns)).collect();
    let views: Vec<Vec<View<'_>>> = columns.iter().map(|columns| View::all(columns)).collect();
    write_groups(&order, &groups, (key, place_of), &views, number, runs);
    groups.len() as i64
}

/// Whether hardly two of the rows at these places have a key in common, as far as a sample of the keys
/// tells: then to look for them costs more than it saves.
fn are_alone(places: &[u64]) -> bool {
    let mut sample: Vec<u64> = places
        .iter()
        .map(|place| place & HASH_MASK)
        .filter(|hash| hash >> (64 - 16) & SAMPLE_MASK == 0)
        .collect();
    let rows = sample.len();
    sample.sort_unstable();
    sample.dedup();
    rows >= SAMPLE_MIN && sample.len() * 3 > rows * 2
}

/// Writes each of `groups`, of the places in `order`, as an entry, numbered from `number` on.
fn write_groups<'a>(
    order: &[u64],
    groups: &[Range<usize>],
    (key, place): (impl Fn(&u64) -> &'a [u8], impl Fn(u64) -> Place),
    parts: &[Vec<View<'_>>],
    number: i64,
    runs: &mut RunWriter<'_>,
) {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(number..number + groups.len() as i64));
    let numbers = KeyCodec::new(vec![DataType::Int64]).encode_all(&[numbers], groups.len(), None);
    // In the order in which they lie: what is near in time is near in memory.
    let mut groups: Vec<&Range<usize>> = groups.iter().collect();
    if groups.len() < order.len() {
        groups.sort_unstable_by_key(|rows| (place(order[rows.start]), rows.start));
    }
    let mut places = Vec::new();
    for (group, rows) in groups.into_iter().enumerate() {
        places.clear();
        places.extend(order[rows.clone()].iter().map(|at| place(*at)));
        let whole_key = |out: &mut Vec<u8>| {
            out.extend_from_slice(key(&order[rows.start]));
            out.extend_from_slice(numbers.get(group));
        };
        runs.write_with(WriteOp::Put, whole_key, |out| push_rows(parts, &places, out));
    }
}

fn place_of(place: u64) -> Place {
    ((place >> ROW_BITS) as usize & (PARTS - 1), place as usize & (PART_ROWS - 1))
}

/// How many rows an entry gets at most, of `rows` that all of `columns` hold.
fn rows_an_entry<'a>(columns: impl Iterator<Item = &'a ArrayRef>, rows: usize) -> usize {
    let row_bytes = columns.map(column_bytes).sum::<usize>() / rows.max(1);
    (ENTRY_BYTES / row_bytes.max(1)).clamp(1, ENTRY_ROWS)
}

fn column_bytes(column: &ArrayRef) -> usize {
    column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
}

/// Neighbours in `order` with the same key, at most `most` together.
fn neighbours<'a>(order: &[u64], most: usize, key: impl Fn(&u64) -> &'a [u8]) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (at, place) in order.iter().enumerate() {
        if let Some(group) = groups.last_mut()
            && group.len() < most
            && (order[group.start] ^ place) & HASH_MASK == 0
            && key(&order[group.start]) == key(place)
        {
            group.end = at + 1;
        } else {
            groups.push(at..at + 1);
        }
    }
    groups
}

/// Appends the rows at `places` of the parts' columns.
fn push_rows(parts: &[Vec<View<'_>>], places: &[Place], out: &mut Vec<u8>) {
    let columns = parts.first().map_or(0, Vec::len);
    let has_nulls = |c: usize| places.iter().any(|(part, row)| parts[*part][c].is_null(*row));
    out.push(VERSION);
    push_length(places.len(), out);
    let marks = out.len();
    push_bitmap((0..columns).map(has_nulls), out);
    (0..columns).for_each(|column| {
        let cells = places.iter().map(|(part, row)| (&parts[*part][column], *row));
        if !is_set(&out[marks..], column) {
            return push_column(cells, out);
        }
        push_bitmap(cells.clone().map(|(view, row)| view.is_null(row)), out);
        push_column(cells.filter(|(view, row)| !view.is_null(*row)), out);
    });
}

/// Appends the bodies of cells of one column, none of which is NULL.
fn push_column<'a>(cells: impl Iterator<Item = (&'a View<'a>, usize)> + Clone, out: &mut Vec<u8>) {
    let bytes = |(view, row): (&'a View<'a>, usize)| match &view.values {
        Values::Bytes { offsets, data } => Some(bytes_at(offsets, data, row)),
        _ => None,
    };
    match cells.clone().next().map(|(view, _)| &view.values) {
        Some(Values::Bytes { .. }) => {
            cells.clone().filter_map(bytes).for_each(|bytes| push_length(bytes.len(), out));
            cells.filter_map(bytes).for_each(|bytes| out.extend_from_slice(bytes));
        }
        _ => cells.for_each(|(view, row)| push_body(view, row, out)),
    }
}

/// Decodes values back to columns of `types`; also how many rows each value holds.
pub fn decode(types: &[DataType], values: &[&[u8]]) -> Result<(Vec<ArrayRef>, Vec<usize>), StateError> {
    let mut builders: Vec<Builder> = types.iter().map(|t| Builder::new(t, values.len())).collect();
    let mut counts = Vec::with_capacity(values.len());
    for value in values {
        let mut cursor = *value;
        match take(&mut cursor, 1)?[0] {
            VERSION => {}
            version => return Err(StateError::Decode(format!("unknown version {version} of packed rows"))),
        }
        let rows = take_length(&mut cursor)?;
        let marks = take(&mut cursor, types.len().div_ceil(8))?;
        for (index, builder) in builders.iter_mut().enumerate() {
            let nulls = match is_set(marks, index) {
                true => Some(take(&mut cursor, rows.div_ceil(8))?),
                false => None,
            };
            let is_null = |row: usize| nulls.is_some_and(|nulls| is_set(nulls, row));
            read_column(builder, &mut cursor, rows, is_null)?;
        }
        if !cursor.is_empty() {
            return Err(StateError::Decode(format!("{} bytes are left after packed rows", cursor.len())));
        }
        counts.push(rows);
    }
    Ok((builders.into_iter().map(Builder::finish).collect::<Result<_, _>>()?, counts))
}

/// Each row of `columns` as often as `times` says: the keys of what [`decode`] gives.
pub fn repeat(columns: &[ArrayRef], times: &[usize]) -> Result<Vec<ArrayRef>, StateError> {
    let rows = times.iter().enumerate().flat_map(|(row, n)| std::iter::repeat_n(row as u32, *n));
    let rows = UInt32Array::from_iter_values(rows);
    let repeated = columns.iter().map(|column| arrow::compute::take(column, &rows, None));
    repeated.collect::<Result<_, _>>().map_err(|e| StateError::Decode(e.to_string()))
}

fn read_column(
    builder: &mut Builder,
    cursor: &mut &[u8],
    rows: usize,
    is_null: impl Fn(usize) -> bool,
) -> Result<(), StateError> {
    if !matches!(builder.values, BuilderValues::Bytes { .. }) {
        for row in 0..rows {
            if is_null(row) { builder.push_null() } else { read_body(builder, cursor)? }
        }
        return Ok(());
    }
    let mut lengths = *cursor;
    for _ in (0..rows).filter(|row| !is_null(*row)) {
        take_length(cursor)?;
    }
    for row in 0..rows {
        if is_null(row) {
            builder.push_null();
            continue;
        }
        let bytes = take(cursor, take_length(&mut lengths)?)?;
        if let BuilderValues::Bytes { offsets, data } = &mut builder.values {
            data.extend_from_slice(bytes);
            offsets.push(offset(data.len())?);
        }
        builder.valid.push(true);
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/packed.rs"]
mod tests;
