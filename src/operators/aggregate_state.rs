//! What an aggregate remembers: sealed at checkpoints, in part before them (`aggregate_early`), taken up
//! as it is wanted (`aggregate_cold`).
//!
//! ```text
//!   groups     vnode │ group columns          → rows, then the accumulators' columns
//!   multiset   vnode │ group columns │ value  → count (i64, little endian)
//!   distinct   vnode │ group columns │ value  → a count a filter
//!              of input that only grows, whose values stay:
//!              vnode │ group columns │ number → values, with the filters that they passed (`packed`)
//! ```
//! The vnode is that of the group. The tables come in this order: groups, multisets, distinct.

use super::aggregate::{Aggregate, RECENT, UNSEALED};
use super::aggregate_calls::Calls;
use super::aggregate_expiry::{Written, retained};
use super::distinct::{ChangedEntries, Distinct};
use super::group_keys::CopiedKeys;
use super::groups::{Groups, Lookup, NO_GROUP};
use crate::checkpoint::participant::Sealed;
use crate::dataflow::fill::Keyed;
use crate::dataflow::operator::OperatorError;
use crate::state::StateError;
use crate::state::key::KeyCodec;
use crate::state::packed::{self, Grouped};
use crate::state::store::WriteOp;
use crate::state::value::ValueCodec;
use crate::state::writes::{RunWriter, Writes};
use crate::stream::{Epoch, Vnode};
use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::error::ArrowError;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use weir_catalog::TableId;

/// Keys encoded at a time.
const PIECE_ROWS: usize = 4096;

/// Tables and encodings of an aggregate.
pub(super) struct AggregateTables {
    groups: (TableId, KeyCodec, ValueCodec),
    multisets: Vec<(TableId, KeyCodec)>,
    distincts: Vec<DistinctTable>,
}

/// The table of a [`super::distinct::Distinct`].
struct DistinctTable {
    table: TableId,
    /// Group columns, value.
    keys: KeyCodec,
    /// A count a filter.
    counts: ValueCodec,
    /// Where the input only grows: value, then whether it passed each filter.
    packed: Option<Vec<DataType>>,
}

impl AggregateTables {
    pub fn new(group_types: Vec<DataType>, calls: &mut Calls, input: &SchemaRef, tables: &[TableId]) -> Self {
        assert_eq!(tables.len(), 1 + calls.table_count(), "a table for each set of entries");
        let mut ids = tables.iter().copied();
        let mut next = || ids.next().expect("they were counted");
        let values_of = |argument: usize| {
            let mut types = group_types.clone();
            types.push(input.field(argument).data_type().clone());
            KeyCodec::new(types)
        };
        let mut state_types = vec![DataType::Int64];
        state_types.extend(calls.state_types());
        let groups = (next(), KeyCodec::new(group_types.clone()), ValueCodec::new(state_types));
        let multisets = calls.multisets().map(|(argument, _)| (next(), values_of(argument))).collect();
        let distincts = calls
            .distincts()
            .iter()
            .map(|d| {
                let counts = ValueCodec::new(vec![DataType::Int64; d.filters.len()]);
                let value = input.field(d.argument).data_type().clone();
                let passed = std::iter::repeat_n(DataType::Boolean, d.filters.len());
                let packed = d.append_only().then(|| std::iter::once(value).chain(passed).collect());
                DistinctTable { table: next(), keys: values_of(d.argument), counts, packed }
            })
            .collect();
        Self { groups, multisets, distincts }
    }

    /// The tables, in order.
    pub fn ids(&self) -> impl Iterator<Item = TableId> {
        let multisets = self.multisets.iter().map(|(table, _)| *table);
        let distincts = self.distincts.iter().map(|d| d.table);
        std::iter::once(self.groups.0).chain(multisets).chain(distincts)
    }

    /// How the groups lie in the tables.
    pub fn keyed(&self) -> Keyed {
        Keyed { tables: self.ids().collect(), key: self.groups.1.clone() }
    }

    /// What the keys of these groups start with in all tables. `hashes` are those of `keys`.
    pub fn prefixes(&self, keys: &[ArrayRef], hashes: &[u64]) -> Vec<Vec<u8>> {
        let vnodes: Vec<Vnode> = hashes.iter().map(|hash| Vnode::of_hash(*hash)).collect();
        let keys = self.groups.1.encode_all(keys, hashes.len(), Some(&vnodes));
        keys.iter().map(<[u8]>::to_vec).collect()
    }
}

/// Keys of groups, each followed by its value (if any), and not encoded yet.
struct Keys {
    copied: CopiedKeys,
    vnodes: Vec<Vnode>,
}

impl Keys {
    fn new(groups: &Groups, numbers: &[u32]) -> Self {
        let vnodes = numbers.iter().map(|group| groups.vnode(*group)).collect();
        Self { copied: groups.copied(numbers), vnodes }
    }

    /// Calls `write` with each row and its key, which `values` of a range of rows may end.
    fn for_each(
        &self,
        codec: &KeyCodec,
        values: impl Fn(Range<usize>) -> Result<Option<ArrayRef>, ArrowError>,
        mut write: impl FnMut(usize, &[u8]),
    ) -> Result<(), StateError> {
        for (piece, vnodes) in self.vnodes.chunks(PIECE_ROWS).enumerate() {
            let start = piece * PIECE_ROWS;
            let range = start..start + vnodes.len();
            let mut columns = self.copied.columns(range.clone()).map_err(damaged)?;
            columns.extend(values(range).map_err(damaged)?);
            let keys = codec.encode_all(&columns, vnodes.len(), Some(vnodes));
            keys.iter().enumerate().for_each(|(row, key)| write(start + row, key));
        }
        Ok(())
    }
}

fn damaged(error: ArrowError) -> StateError {
    StateError::Decode(error.to_string())
}

impl DistinctTable {
    fn write(
        &self,
        groups: &Groups,
        changed: ChangedEntries,
        epoch: Epoch,
        writes: &mut Writes,
    ) -> Result<(), OperatorError> {
        let filters = self.counts.types().len();
        if self.packed.is_some() {
            let (numbers, key_of) = numbered(&changed.groups, groups.slots());
            let keys = Keys::new(groups, &numbers);
            let codec = KeyCodec::new(self.keys.types()[..self.keys.types().len() - 1].to_vec());
            let rows = key_of.len();
            let grouped = move || {
                let passed = |filter| -> ArrayRef {
                    let passed: BooleanBuffer = changed.counts(filter).map(|count| count > 0).collect();
                    Arc::new(BooleanArray::new(passed, None))
                };
                let values = changed.values(0..rows).map_err(damaged)?;
                Ok(Grouped {
                    codec,
                    keys: keys.copied.columns(0..keys.vnodes.len()).map_err(damaged)?,
                    vnodes: keys.vnodes,
                    key_of,
                    columns: std::iter::once(values).chain((0..filters).map(passed)).collect(),
                })
            };
            return Ok(writes.packed_groups(self.table, rows, epoch, grouped)?);
        }
        let keys = Keys::new(groups, &changed.groups);
        let (codec, counts) = (self.keys.clone(), self.counts.clone());
        writes.later(self.table, move |runs| {
            let column = |filter| -> ArrayRef { Arc::new(changed.counts(filter).collect::<Int64Array>()) };
            let columns: Vec<ArrayRef> = (0..filters).map(column).collect();
            let values = |range| changed.values(range).map(Some);
            write_values(runs, (&keys, &codec), values, (&columns, &counts), |row| changed.is_gone(row))
        });
        Ok(())
    }

    /// The key columns, value last, and the counts of all values that entries hold.
    fn decode<'e>(
        &self,
        keys: impl Iterator<Item = &'e [u8]>,
        values: impl Iterator<Item = &'e [u8]>,
    ) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), StateError> {
        let Some(types) = &self.packed else {
            return Ok((self.keys.decode(keys)?, self.counts.decode(values)?));
        };
        let mut of_entry = self.keys.types().to_vec();
        of_entry.pop();
        of_entry.push(DataType::Int64);
        let mut keys = KeyCodec::new(of_entry).decode(keys)?;
        let (mut columns, rows) = packed::decode(types, &values.collect::<Vec<_>>())?;
        keys.pop();
        let mut keys = packed::repeat(&keys, &rows)?;
        keys.push(columns.remove(0));
        let count = |passed: &ArrayRef| -> ArrayRef {
            let passed = passed.as_boolean().values();
            Arc::new(Int64Array::from_iter_values(passed.iter().map(i64::from)))
        };
        Ok((keys, columns.iter().map(count).collect()))
    }
}

/// The different ones among `groups`, whose numbers are below `slots`; and for each of `groups` which of
/// them it is.
fn numbered(groups: &[u32], slots: usize) -> (Vec<u32>, Vec<u32>) {
    let mut place = vec![NO_GROUP; slots];
    let mut different = Vec::new();
    let of = groups.iter().map(|group| {
        let place = &mut place[*group as usize];
        if *place == NO_GROUP {
            *place = different.len() as u32;
            different.push(*group);
        }
        *place
    });
    let of = of.collect();
    (different, of)
}

/// Puts the values of all rows but those that are `gone`, whose keys are deleted. `ends`: what keys end
/// with.
fn write_values(
    runs: &mut RunWriter<'_>,
    (keys, codec): (&Keys, &KeyCodec),
    ends: impl Fn(Range<usize>) -> Result<Option<ArrayRef>, ArrowError>,
    (columns, values): (&[ArrayRef], &ValueCodec),
    gone: impl Fn(usize) -> bool,
) -> Result<(), StateError> {
    let encoder = values.encoder(columns);
    keys.for_each(codec, ends, |row, key| {
        if gone(row) {
            runs.write(WriteOp::Delete, key, &[]);
        } else {
            let key = |out: &mut Vec<u8>| out.extend_from_slice(key);
            runs.write_with(WriteOp::Put, key, |out| encoder.encode(row, out));
        }
    })
}

impl Aggregate {
    /// Hands over everything that changed since the last checkpoint, to be encoded elsewhere.
    pub(super) fn seal_all(&mut self, epoch: Epoch, sealed: &mut Sealed) -> Result<(), OperatorError> {
        let mut writes = self.early.take();
        let tables = &self.tables;
        let written = Written::new(self.expiry.as_ref(), &self.times);
        for ((_, multiset), (table, codec)) in self.calls.multisets().zip(&tables.multisets) {
            let changed = multiset.take_changed()?;
            let mask = written.mask(&changed.groups, |entry| changed.counts[entry] == 0);
            let changed = changed.filtered(mask)?;
            if changed.groups.is_empty() {
                continue;
            }
            let keys = Keys::new(&self.groups, &changed.groups);
            let (codec, counts, values) = (codec.clone(), changed.counts, changed.values);
            writes.later(*table, move |runs| {
                let values = |range: Range<usize>| Ok(Some(values.slice(range.start, range.len())));
                keys.for_each(&codec, values, |row, key| match counts[row] {
                    0 => runs.write(WriteOp::Delete, key, &[]),
                    count => runs.write(WriteOp::Put, key, &count.to_le_bytes()),
                })
            });
        }
        self.seal_distincts(epoch, &mut writes, |_| true)?;
        let changed = std::mem::take(&mut self.unsealed);
        self.seal_groups(&changed, &mut writes)?;
        self.forget_empty(&changed);
        self.early.at_checkpoint();
        sealed.runs.extend(writes);
        Ok(())
    }

    /// Hands over what changed of the distinct values that `which` says.
    pub(super) fn seal_distincts(
        &mut self,
        epoch: Epoch,
        writes: &mut Writes,
        which: impl Fn(&Distinct) -> bool,
    ) -> Result<(), OperatorError> {
        let written = Written::new(self.expiry.as_ref(), &self.times);
        for (distinct, tables) in self.calls.distincts().iter_mut().zip(&self.tables.distincts) {
            if !which(distinct) {
                continue;
            }
            let changed = distinct.take_changed(&written);
            if !changed.groups.is_empty() {
                tables.write(&self.groups, changed, epoch, writes)?;
            }
        }
        Ok(())
    }

    /// Hands over the state of the groups `changed`, but for their values.
    pub(super) fn seal_groups(&mut self, changed: &[u32], writes: &mut Writes) -> Result<(), OperatorError> {
        changed.iter().for_each(|group| self.flags[*group as usize] &= !(UNSEALED | RECENT));
        let gone = |entry: usize| self.rows[changed[entry] as usize] == 0;
        let mask = Written::new(self.expiry.as_ref(), &self.times).mask(changed, gone);
        let written =
            mask.map_or(Cow::Borrowed(changed), |mask| Cow::Owned(retained(changed.to_vec(), &mask)));
        if written.is_empty() {
            return Ok(());
        }
        let keys = Keys::new(&self.groups, &written);
        let mut columns = vec![super::accumulator::gather(&self.rows, &written)];
        columns.extend(self.calls.state(&written)?);
        let (table, codec, values) = &self.tables.groups;
        let (codec, values) = (codec.clone(), values.clone());
        writes.later(*table, move |runs| {
            let rows = columns[0].as_primitive::<Int64Type>().values().clone();
            write_values(runs, (&keys, &codec), |_| Ok(None), (&columns, &values), |row| rows[row] == 0)
        });
        Ok(())
    }

    /// Frees the groups of `groups` that have no rows, if the removal of their state need not be
    /// waited for.
    pub(super) fn forget_empty(&mut self, groups: &[u32]) {
        for group in groups {
            if self.rows[*group as usize] != 0 || self.is_global() {
                continue;
            }
            if self.complete {
                self.removed_in = self.intervals.current();
                self.groups.remove(*group);
                self.calls.clear(*group);
                if let Some(time) = self.times.get_mut(*group as usize) {
                    *time = i64::MAX;
                }
            }
        }
    }

    /// Takes up entries of one table: key (without vnode) and value.
    pub(super) fn load_entries<'e>(
        &mut self,
        table: TableId,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])> + Clone,
    ) -> Result<(), OperatorError> {
        let rows = entries.clone().count();
        if rows == 0 {
            return Ok(());
        }
        let keys = entries.clone().map(|(key, _)| key);
        let values = entries.map(|(_, value)| value);
        let index = self.tables.ids().position(|id| id == table).expect("one of its own tables");
        let multisets = self.tables.multisets.len();
        if index == 0 {
            let (_, codec, state) = &self.tables.groups;
            let (keys, state) = (codec.decode(keys)?, state.decode(values)?);
            self.load_groups(&keys, &state, rows)
        } else if index <= multisets {
            let keys = self.tables.multisets[index - 1].1.decode(keys)?;
            let counts: Vec<i64> = values.map(|v| count(table, v)).collect::<Result<_, StateError>>()?;
            self.load_multiset(index - 1, keys, &counts)
        } else {
            let index = index - 1 - multisets;
            let (keys, counts) = self.tables.distincts[index].decode(keys, values)?;
            self.load_distinct(index, keys, &counts)
        }
    }

    fn load_groups(
        &mut self,
        keys: &[ArrayRef],
        state: &[ArrayRef],
        rows: usize,
    ) -> Result<(), OperatorError> {
        let groups = self.groups_of(keys, rows)?;
        for (group, rows) in groups.iter().zip(state[0].as_primitive::<Int64Type>().values()) {
            self.rows[*group as usize] = *rows;
        }
        self.calls.load(&groups, &state[1..]);
        Ok(())
    }

    fn groups_of(&mut self, keys: &[ArrayRef], rows: usize) -> Result<Vec<u32>, OperatorError> {
        let mut lookup = Lookup::default();
        self.groups.find_or_insert(keys, rows, &mut lookup)?;
        self.grow();
        self.note_times(keys, &lookup.groups);
        Ok(lookup.groups)
    }

    fn load_multiset(
        &mut self,
        index: usize,
        keys: Vec<ArrayRef>,
        counts: &[i64],
    ) -> Result<(), OperatorError> {
        let (values, keys) = split_value(keys);
        let groups = self.groups_of(&keys, counts.len())?;
        if let Some((_, multiset)) = self.calls.multisets().nth(index) {
            multiset.load(&groups, &values, counts);
        }
        Ok(())
    }

    fn load_distinct(
        &mut self,
        index: usize,
        keys: Vec<ArrayRef>,
        counts: &[ArrayRef],
    ) -> Result<(), OperatorError> {
        let (values, keys) = split_value(keys);
        let groups = self.groups_of(&keys, values.len())?;
        self.calls.distincts()[index].load(&groups, &values, counts)
    }
}

/// The last column, and the others.
fn split_value(mut keys: Vec<ArrayRef>) -> (ArrayRef, Vec<ArrayRef>) {
    let value = keys.pop().expect("a value follows the group columns");
    (value, keys)
}

fn count(table: TableId, value: &[u8]) -> Result<i64, StateError> {
    let bytes: [u8; 8] = value
        .try_into()
        .map_err(|_| StateError::Corrupt { table, reason: format!("a count of {} bytes", value.len()) })?;
    Ok(i64::from_le_bytes(bytes))
}
