//! How a reader decodes the rows of a stored relation: only the columns that it wants.

use crate::state::StateError;
use crate::state::key::KeyCodec;
use crate::state::store::full_key;
use crate::state::table::{TableLayout, decode_count};
use crate::stream::Vnode;
use crate::stream::vnode::hash_columns;
use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::SchemaRef;
use std::sync::Arc;
use weir_catalog::TableId;
use weir_catalog::relation::RowKey;

/// The layout of one relation's rows.
#[derive(Clone, Debug)]
pub struct RowLayout {
    /// Where the rows are.
    pub table: TableId,
    /// All columns.
    pub schema: SchemaRef,
    /// The key's columns, in key order.
    pub key: Vec<usize>,
    stored: Arc<TableLayout>,
}

impl RowLayout {
    /// The layout of a relation with these columns and key.
    pub fn new(table: TableId, schema: SchemaRef, row_key: &RowKey) -> Self {
        let stored = Arc::new(TableLayout::relation(table, Arc::clone(&schema), row_key));
        Self { table, schema, key: stored.key_columns.clone(), stored }
    }

    /// A codec for the first `columns` columns of the key.
    pub fn prefix_codec(&self, columns: usize) -> KeyCodec {
        KeyCodec::new(self.stored.key.types()[..columns].to_vec())
    }

    /// The full keys of rows whose key columns are `columns`.
    pub fn full_keys(&self, columns: &[ArrayRef], rows: usize) -> Vec<Vec<u8>> {
        let mut hashes = Vec::new();
        hash_columns(columns, rows, &mut hashes);
        let single = self.stored.distribution.is_empty();
        let vnode = |h: &u64| if single { Vnode::SINGLE } else { Vnode::of_hash(*h) };
        let vnodes: Vec<Vnode> = hashes.iter().map(vnode).collect();
        let keys = self.stored.key.encode_all(columns, rows, Some(&vnodes));
        (0..rows).map(|row| full_key(self.table, keys.get(row))).collect()
    }

    /// The full keys of the rows that these entries of an index stand for. `key_columns` says which
    /// of this relation's columns the index's keys hold.
    pub fn keys_of_index(
        &self,
        entries: &StoredRows,
        codec: &KeyCodec,
        key_columns: &[usize],
    ) -> Result<Vec<Vec<u8>>, StateError> {
        let decoded = codec.decode(entries.keys().map(|k| &k[5..])).map_err(|e| self.damaged(e))?;
        let column = |c: &usize| {
            let position = key_columns.iter().position(|k| k == c);
            position.map(|p| Arc::clone(&decoded[p])).ok_or_else(|| StateError::Corrupt {
                table: self.table,
                reason: format!("an index without key column {c}"),
            })
        };
        let columns: Vec<ArrayRef> = self.key.iter().map(column).collect::<Result<_, _>>()?;
        Ok(self.full_keys(&columns, entries.len()))
    }

    /// Whether values are counts.
    pub fn is_counted(&self) -> bool {
        self.stored.counted
    }

    /// Decodes stored rows to the columns that `wanted` names (the others stay `None`), and how
    /// often each row occurs if that is not once.
    pub fn decode(&self, rows: &StoredRows, wanted: &[bool]) -> Result<DecodedRows, StateError> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.schema.fields().len()];
        if self.key.iter().any(|c| wanted[*c]) {
            // Behind the table id and the vnode.
            let decoded = self.stored.key.decode(rows.keys().map(|k| &k[5..]));
            for (column, array) in self.key.iter().zip(decoded.map_err(|e| self.damaged(e))?) {
                columns[*column] = Some(array);
            }
        }
        if !self.stored.counted && self.stored.value_columns.iter().any(|c| wanted[*c]) {
            let decoded = self.stored.value.decode(rows.values());
            for (column, array) in self.stored.value_columns.iter().zip(decoded.map_err(|e| self.damaged(e))?)
            {
                columns[*column] = Some(array);
            }
        }
        let counts = if self.stored.counted {
            let counts: Result<Vec<i64>, StateError> = rows.values().map(decode_count).collect();
            counts.map_err(|e| self.damaged(e)).map(Some)?
        } else {
            None
        };
        let repeated = counts.filter(|c| c.iter().any(|n| *n != 1));
        Ok(DecodedRows { columns, counts: repeated.map(|c| Arc::new(c.into())) })
    }

    fn damaged(&self, error: StateError) -> StateError {
        match error {
            StateError::Decode(reason) => StateError::Corrupt { table: self.table, reason },
            error => error,
        }
    }
}

/// Entries as they lie in the store, in two buffers.
#[derive(Debug, Default)]
pub struct StoredRows {
    keys: Vec<u8>,
    key_ends: Vec<usize>,
    values: Vec<u8>,
    value_ends: Vec<usize>,
}

impl StoredRows {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len());
        self.values.extend_from_slice(value);
        self.value_ends.push(self.values.len());
    }

    /// How many entries.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// Forgets the entries, keeps the memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.key_ends.clear();
        self.values.clear();
        self.value_ends.clear();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        slices(&self.keys, &self.key_ends)
    }

    /// The values, in order.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        slices(&self.values, &self.value_ends)
    }
}

fn slices<'a>(data: &'a [u8], ends: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut start = 0;
    ends.iter().map(move |end| {
        let slice = &data[start..*end];
        start = *end;
        slice
    })
}

/// Rows as columns.
#[derive(Debug)]
pub struct DecodedRows {
    /// By ordinal in the relation; `None` where not wanted.
    pub columns: Vec<Option<ArrayRef>>,
    /// How often each row occurs; `None` says once each.
    pub counts: Option<Arc<Int64Array>>,
}
