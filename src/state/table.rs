//! StateTable: rows on a state store. What a relation's rows look like as keys and values, how
//! changes become writes, and how scans become batches again.
//!
//! ```text
//!   keyed     table id │ vnode │ key columns      →  the other columns
//!   counted   table id │ vnode │ the whole row    →  how often it occurs
//!   packed    table id │ vnode │ key columns, a number →  rows of the key (see `packed`)
//!   index     table id │ vnode │ indexed columns, then the relation's key  →  included columns
//!                                (a relation without key: the whole row →  how often it occurs)
//! ```
//! The vnode of a row is that of the hash of its `distribution` columns: for a relation its key
//! columns in key order, for an index the indexed columns. Without any it is [`Vnode::SINGLE`].

use super::StateError;
use super::key::{EncodedKeys, KeyCodec, KeyOrder};
use super::packed;
use super::rows::{Chunk, Entries, Found, KeyRange, Rows};
use super::store::{StateRead, WriteOp, WriteRun};
use super::value::ValueCodec;
use crate::stream::vnode::hash_columns;
use crate::stream::{ChangeBatch, Vnode};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};
use std::ops::ControlFlow;
use std::sync::Arc;
use weir_catalog::column::arrow_schema;
use weir_catalog::relation::{Index, RowKey};
use weir_catalog::{Object, ObjectBody, ObjectId, TableId};

/// How the rows of one table are stored.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// The table.
    pub id: TableId,
    /// The stored columns, in the order in which rows are read. For an index these are some of
    /// its relation's columns, ascending.
    pub schema: SchemaRef,
    /// The stored columns as ordinals of the rows that are written.
    pub columns: Vec<usize>,
    /// How keys are encoded.
    pub key: KeyCodec,
    /// The key's columns, in key order, as ordinals of the rows that are written.
    pub key_columns: Vec<usize>,
    /// How values are encoded; unused in counted tables.
    pub value: ValueCodec,
    /// The value's columns, as ordinals of the rows that are written.
    pub value_columns: Vec<usize>,
    /// Whether the key is the whole row and the value how often it occurs.
    pub counted: bool,
    /// Whether an entry holds several rows of its key, whose last column numbers the entries.
    pub packed: bool,
    /// The columns whose hash gives the vnode.
    pub distribution: Vec<usize>,
}

impl TableLayout {
    /// The rows of a relation.
    pub fn relation(id: TableId, schema: SchemaRef, key: &RowKey) -> Self {
        let arity = schema.fields().len();
        let key_columns = key.columns(arity);
        let counted = *key == RowKey::WholeRow;
        let orders = vec![KeyOrder::ASCENDING; key_columns.len()];
        let distribution = key_columns.clone();
        Self::new(id, &schema, (0..arity).collect(), (key_columns, orders), distribution, counted)
    }

    /// The rows of an index on a relation of `schema` and `key`. Columns sort NULLS LAST, or
    /// NULLS FIRST where descending, as PostgreSQL has it by default.
    pub fn index(id: TableId, schema: &SchemaRef, key: &RowKey, index: &Index) -> Self {
        let arity = schema.fields().len();
        let mut key_columns: Vec<usize> = Vec::new();
        let mut orders = Vec::new();
        for (column, descending) in &index.columns {
            if !key_columns.contains(column) {
                key_columns.push(*column);
                orders.push(KeyOrder { descending: *descending, nulls_first: *descending });
            }
        }
        let distribution = key_columns.clone();
        for column in key.columns(arity) {
            if !key_columns.contains(&column) {
                key_columns.push(column);
                orders.push(KeyOrder::ASCENDING);
            }
        }
        let mut columns: Vec<usize> = key_columns.iter().chain(&index.include).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        Self::new(id, schema, columns, (key_columns, orders), distribution, *key == RowKey::WholeRow)
    }

    /// The layout of a table, materialized view or index; none for what is not stored.
    /// `relation` looks up an index's relation.
    pub fn of_object<'a>(
        object: &Object,
        relation: impl FnOnce(ObjectId) -> Option<&'a Arc<Object>>,
    ) -> Option<Self> {
        let id = object.id.table();
        match &object.body {
            ObjectBody::Table(t) => Some(Self::relation(id, arrow_schema(&t.columns), &t.key)),
            ObjectBody::MaterializedView(v) => Some(Self::relation(id, arrow_schema(&v.columns), &v.key)),
            ObjectBody::Index(index) => {
                let relation = relation(index.relation)?;
                let key = match &relation.body {
                    ObjectBody::Table(t) => &t.key,
                    ObjectBody::MaterializedView(v) => &v.key,
                    _ => return None,
                };
                Some(Self::index(id, &arrow_schema(relation.columns()), key, index))
            }
            ObjectBody::Source(_) | ObjectBody::View(_) | ObjectBody::Sink(_) => None,
        }
    }

    /// Any table: `columns` of rows of `schema` are stored, sorted by `key`.
    pub fn new(
        id: TableId,
        schema: &SchemaRef,
        columns: Vec<usize>,
        key: (Vec<usize>, Vec<KeyOrder>),
        distribution: Vec<usize>,
        counted: bool,
    ) -> Self {
        let (key_columns, orders) = key;
        let data_type = |c: &usize| schema.field(*c).data_type().clone();
        let value_columns: Vec<usize> =
            columns.iter().copied().filter(|c| !key_columns.contains(c)).collect();
        assert!(key_columns.iter().all(|c| columns.contains(c)), "what is a key is stored");
        assert!(!counted || value_columns.is_empty(), "a counted row is all key");
        let fields: Vec<_> = columns.iter().map(|c| schema.fields()[*c].clone()).collect();
        Self {
            id,
            schema: Arc::new(Schema::new(fields)),
            key: KeyCodec::with_orders(key_columns.iter().map(data_type).collect(), orders),
            value: ValueCodec::new(value_columns.iter().map(data_type).collect()),
            columns,
            key_columns,
            value_columns,
            counted,
            packed: false,
            distribution,
        }
    }

    /// As this one, but rows that only come share entries. The last column of the key, a bigint, numbers
    /// the entries; what the rows have there is not kept.
    pub fn packed(self) -> Self {
        assert!(!self.counted, "how often a row occurs is not kept");
        Self { packed: true, ..self }
    }

    /// The vnode of each row.
    pub fn vnodes(&self, rows: &RecordBatch) -> Vec<Vnode> {
        self.hashes(rows).1
    }

    /// The hash by which each row is distributed, and its vnode.
    pub(super) fn hashes(&self, rows: &RecordBatch) -> (Vec<u64>, Vec<Vnode>) {
        self.hashes_of(&pick(rows, &self.distribution), rows.num_rows())
    }

    /// The same, of the distribution columns.
    pub(super) fn hashes_of(&self, distribution: &[ArrayRef], rows: usize) -> (Vec<u64>, Vec<Vnode>) {
        if distribution.is_empty() {
            return (vec![0; rows], vec![Vnode::SINGLE; rows]);
        }
        let mut hashes = Vec::new();
        hash_columns(distribution, rows, &mut hashes);
        let vnodes = hashes.iter().map(|hash| Vnode::of_hash(*hash)).collect();
        (hashes, vnodes)
    }

    /// The key of each row: vnode, then its key columns.
    pub fn keys(&self, rows: &RecordBatch) -> EncodedKeys {
        self.keys_in(rows, &self.vnodes(rows))
    }

    fn keys_in(&self, rows: &RecordBatch, vnodes: &[Vnode]) -> EncodedKeys {
        self.key.encode_all(&pick(rows, &self.key_columns), rows.num_rows(), Some(vnodes))
    }

    /// The vnode of the keys that start with these values of the first key columns, if those
    /// columns decide it: they cover the distribution. The values are single rows.
    pub fn vnode_of_prefix(&self, values: &[ArrayRef]) -> Option<Vnode> {
        if self.distribution.is_empty() {
            return Some(Vnode::SINGLE);
        }
        let first = &self.key_columns[..values.len()];
        let position = |c: &usize| first.iter().position(|k| k == c);
        let columns: Option<Vec<ArrayRef>> =
            self.distribution.iter().map(|c| position(c).map(|p| values[p].clone())).collect();
        let mut hashes = Vec::new();
        hash_columns(&columns?, 1, &mut hashes);
        hashes.first().map(|h| Vnode::of_hash(*h))
    }

    /// The range of full keys in `vnode` that start with these values of the first key columns
    /// (row 0 of each; none: the whole vnode).
    pub fn range(&self, vnode: Vnode, values: &[ArrayRef]) -> KeyRange {
        let mut prefix = self.id.0.to_be_bytes().to_vec();
        prefix.push(vnode.0);
        self.key.encode(values, 0, &mut prefix);
        KeyRange::of_prefix(&prefix)
    }

    /// The range of the whole table.
    pub fn whole_range(&self) -> KeyRange {
        KeyRange::of_prefix(&self.id.0.to_be_bytes())
    }

    /// Reads up to `limit` rows of `range`, in key order.
    pub fn scan(&self, state: &dyn StateRead, range: &KeyRange, limit: usize) -> Result<Chunk, StateError> {
        let mut entries = Entries::default();
        let mut next = None;
        state.scan(&range.lower, &range.upper, &mut |key, value| {
            if entries.len() == limit {
                next = Some(KeyRange { lower: key.to_vec(), upper: range.upper.clone() });
                return ControlFlow::Break(());
            }
            entries.push(key, value);
            ControlFlow::Continue(())
        })?;
        let last_key = entries.last_key().map(<[u8]>::to_vec);
        Ok(Chunk { rows: self.decode_rows(entries.iter())?, last_key, next })
    }

    /// All rows of one vnode, in key order.
    pub fn scan_vnode(&self, state: &dyn StateRead, vnode: Vnode) -> Result<Rows, StateError> {
        Ok(self.scan(state, &self.range(vnode, &[]), usize::MAX)?.rows)
    }

    /// All rows in `vnode` whose first key columns have these values (row 0 of each), in key order.
    pub fn scan_prefix(
        &self,
        state: &dyn StateRead,
        vnode: Vnode,
        values: &[ArrayRef],
    ) -> Result<Rows, StateError> {
        Ok(self.scan(state, &self.range(vnode, values), usize::MAX)?.rows)
    }

    /// The rows of these keys (as [`TableLayout::keys`] gives them) that exist, in the order of
    /// the keys. A counted row that does not occur does not exist.
    pub fn get_rows<'a>(
        &self,
        state: &dyn StateRead,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Found, StateError> {
        let keys: Vec<Vec<u8>> = keys.map(|key| super::store::full_key(self.id, key)).collect();
        let values = state.multi_get(&keys)?;
        let found = keys.iter().zip(&values).filter_map(|(k, v)| Some((k.as_slice(), v.as_deref()?)));
        let rows = self.decode_rows(found)?;
        let indices = values.iter().enumerate().filter(|(_, v)| v.is_some()).map(|(i, _)| i).collect();
        Ok(Found { rows, indices })
    }

    /// Full keys and values back to rows.
    pub fn decode_rows<'a>(
        &self,
        entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Rows, StateError> {
        let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = entries.unzip();
        self.decode(&keys, &values).map_err(|e| match e {
            StateError::Decode(reason) => StateError::Corrupt { table: self.id, reason },
            e => e,
        })
    }

    fn decode(&self, keys: &[&[u8]], values: &[&[u8]]) -> Result<Rows, StateError> {
        const TABLE_AND_VNODE: usize = 5;
        if keys.iter().any(|k| k.len() < TABLE_AND_VNODE) {
            return Err(StateError::Decode("a key is shorter than table id and vnode".to_owned()));
        }
        let mut key_arrays = self.key.decode(keys.iter().map(|k| &k[TABLE_AND_VNODE..]))?;
        let mut rows = keys.len();
        let (value_arrays, counts) = if self.packed {
            let (arrays, of_entry) = packed::decode(self.value.types(), values)?;
            key_arrays = packed::repeat(&key_arrays, &of_entry)?;
            rows = of_entry.iter().sum();
            (arrays, None)
        } else if self.counted {
            let counts = values.iter().map(|v| decode_count(v)).collect::<Result<Vec<_>, _>>()?;
            (Vec::new(), Some(counts))
        } else {
            (self.value.decode(values.iter().copied())?, None)
        };
        let column = |c: &usize| match self.key_columns.iter().position(|k| k == c) {
            Some(p) => key_arrays[p].clone(),
            None => value_arrays[self.value_columns.partition_point(|v| v < c)].clone(),
        };
        let arrays = self.columns.iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|e| StateError::Decode(e.to_string()))?;
        Ok(Rows { rows, counts })
    }
}

/// The count that a counted row's value holds.
pub fn decode_count(value: &[u8]) -> Result<i64, StateError> {
    let bytes =
        value.try_into().map_err(|_| StateError::Decode(format!("a count of {} bytes", value.len())))?;
    Ok(i64::from_le_bytes(bytes))
}

pub(super) fn pick(rows: &RecordBatch, columns: &[usize]) -> Vec<ArrayRef> {
    columns.iter().map(|c| rows.column(*c).clone()).collect()
}

/// A table's writes since the last seal.
#[derive(Debug)]
pub struct StateTable {
    layout: Arc<TableLayout>,
    run: WriteRun,
}

impl StateTable {
    /// A table of this layout, nothing written.
    pub fn new(layout: Arc<TableLayout>) -> Self {
        let run = WriteRun::new(layout.id);
        Self::with_run(layout, run)
    }

    /// As [`StateTable::new`]; what is written goes to `run`, an empty one of this table.
    pub fn with_run(layout: Arc<TableLayout>, run: WriteRun) -> Self {
        Self { layout, run }
    }

    /// How its rows are stored.
    pub fn layout(&self) -> &Arc<TableLayout> {
        &self.layout
    }

    /// Writes changes. In a keyed table a row with a negative diff is deleted, one with a
    /// positive diff is put, and all deletions of the batch go first; so the caller consolidates
    /// the changes of a key between two seals into one batch. In a counted table diffs add up in
    /// any order.
    pub fn write(&mut self, changes: &ChangeBatch) {
        if self.layout.counted {
            return self.add_counts(changes);
        }
        let diffs = changes.diffs();
        if diffs.is_some() {
            let gone = (0..changes.num_rows()).filter(|row| changes.diff(*row) < 0);
            let keys = self.layout.keys(changes.rows());
            for row in gone {
                self.run.write(WriteOp::Delete, keys.get(row), &[]);
            }
            self.put_where(changes.rows(), &keys, |row| changes.diff(row) > 0);
        } else {
            self.put(changes.rows());
        }
    }

    /// Puts rows into a keyed table.
    pub fn put(&mut self, rows: &RecordBatch) {
        let keys = self.layout.keys(rows);
        self.put_where(rows, &keys, |_| true);
    }

    /// Deletes the rows of these keys (as [`TableLayout::keys`] gives them) from a keyed table.
    pub fn delete<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        keys.for_each(|key| self.run.write(WriteOp::Delete, key, &[]));
    }

    fn put_where(&mut self, rows: &RecordBatch, keys: &EncodedKeys, wanted: impl Fn(usize) -> bool) {
        assert!(!self.layout.counted && !self.layout.packed, "rows of such tables are added");
        let columns = pick(rows, &self.layout.value_columns);
        let values = self.layout.value.encoder(&columns);
        for row in (0..rows.num_rows()).filter(|row| wanted(*row)) {
            let key = |out: &mut Vec<u8>| out.extend_from_slice(keys.get(row));
            self.run.write_with(WriteOp::Put, key, |out| values.encode(row, out));
        }
    }

    fn add_counts(&mut self, changes: &ChangeBatch) {
        let keys = self.layout.keys(changes.rows());
        for row in 0..changes.num_rows() {
            self.run.write(WriteOp::AddCount, keys.get(row), &changes.diff(row).to_le_bytes());
        }
    }

    /// Whether nothing was written since the last seal.
    pub fn is_empty(&self) -> bool {
        self.run.is_empty()
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.run.bytes()
    }

    /// Whether what was written since the last seal takes `bytes`.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.run.is_full(bytes)
    }

    /// Hands over what was written since the last seal.
    pub fn seal(&mut self) -> WriteRun {
        self.run.take()
    }

    /// As [`StateTable::seal`]; what is written from now on goes to `next`, an empty run.
    pub fn seal_into(&mut self, next: WriteRun) -> WriteRun {
        std::mem::replace(&mut self.run, next)
    }
}

#[cfg(test)]
#[path = "tests/table.rs"]
mod tests;
