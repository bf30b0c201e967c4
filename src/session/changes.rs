//! From the rows of a DML statement to the exact changes of its table: NOT NULL, keys, conflicts.
//! Pure; PostgreSQL's errors.
//!
//! ```text
//!   INSERT   rows               + current rows of their keys  →  +new, or -old +new
//!   UPDATE   old rows, new rows + current rows of new keys    →  -old +new
//!   DELETE   old rows                                         →  -old
//! ```
//! A key may move between rows of one UPDATE (`SET id = id + 1`): only the result must be unique.

use super::SessionError;
use super::current::CurrentRows;
use super::rows::internal;
use super::text::to_text;
use crate::serve::ServeError;
use crate::state::key::EncodedKeys;
use crate::state::table::TableLayout;
use crate::stream::ChangeBatch;
use crate::stream::builder::consolidate;
use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_catalog::column::TYPE_KEY;
use weir_catalog::relation::OnConflict;
use weir_catalog::{Column, Object, ObjectBody, ObjectId, ObjectName, SqlState};
use weir_sql::functions::cast::cast_column;

/// The table that a statement writes.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its identity.
    pub id: ObjectId,
    /// Its name.
    pub name: ObjectName,
    /// How its rows are stored.
    pub layout: TableLayout,
    columns: Vec<Column>,
}

/// What a statement does to its table.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The rows that go and come, consolidated.
    pub batch: ChangeBatch,
    /// What RETURNING is about: the new rows, of DELETE the old ones.
    pub returned: RecordBatch,
}

impl Target {
    /// The table `object`; `None` if it isn't one.
    pub fn of(object: &Object) -> Option<Self> {
        let ObjectBody::Table(table) = &object.body else { return None };
        let schema = weir_catalog::column::arrow_schema(&table.columns);
        Some(Self {
            id: object.id,
            name: object.name.clone(),
            layout: TableLayout::relation(object.id.table(), schema, &table.key),
            columns: table.columns.clone(),
        })
    }

    /// The columns as Arrow has them.
    pub fn schema(&self) -> &SchemaRef {
        &self.layout.schema
    }

    /// Whether its rows have a key, rather than being counted.
    pub fn is_keyed(&self) -> bool {
        !self.layout.counted
    }

    /// The keys of `rows`: vnode, then the key columns.
    pub fn keys(&self, rows: &RecordBatch) -> EncodedKeys {
        self.layout.keys(rows)
    }

    /// The rows as their columns' declared types store them: jsonb and uuid in their normal form, json that is JSON, times rounded,
    /// `character(n)` without the spaces that fill it up; text that is too long is refused.
    pub fn stored(&self, rows: RecordBatch) -> Result<RecordBatch, SessionError> {
        let mut arrays = rows.columns().to_vec();
        for (column, array) in self.columns.iter().zip(&mut arrays) {
            if column.data_type.is_temporal() && column.field().metadata().contains_key(TYPE_KEY) {
                *array = cast_column(array, &column.field()).map_err(ServeError::from)?;
            }
            if column.data_type != DataType::Utf8 {
                continue;
            }
            if matches!(column.sql_type.as_str(), "json" | "jsonb" | "uuid") {
                *array = cast_column(array, &column.field()).map_err(ServeError::from)?;
            } else if column.sql_type.starts_with("character") {
                let Some(most) = length_of(&column.sql_type) else { continue };
                let too_long = |text: &str| text.trim_end_matches(' ').chars().count() > most;
                if array.as_string::<i32>().iter().flatten().any(too_long) {
                    let message = format!("value too long for type {}", column.sql_type);
                    return Err(
                        SessionError::new(SqlState("22001"), message).of_column(&self.name, &column.name)
                    );
                }
                *array = cast_column(array, &column.field()).map_err(ServeError::from)?;
            }
        }
        RecordBatch::try_new_with_options(
            rows.schema(),
            arrays,
            &RecordBatchOptions::new().with_row_count(Some(rows.num_rows())),
        )
        .map_err(internal)
    }

    /// Refuses NULL where the table has none.
    fn check_not_null(&self, rows: &RecordBatch) -> Result<(), SessionError> {
        for (ordinal, column) in self.columns.iter().enumerate().filter(|(_, column)| !column.nullable) {
            let array = rows.column(ordinal);
            if array.logical_null_count() == 0 {
                continue;
            }
            let nulls = array.logical_nulls();
            let row = (0..rows.num_rows()).find(|row| nulls.as_ref().is_some_and(|n| n.is_null(*row)));
            let message = format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                column.name, self.name.name
            );
            return Err(SessionError::new(SqlState::NOT_NULL_VIOLATION, message)
                .detail(format!("Failing row contains {}.", tuple(rows.columns(), row.unwrap_or(0))))
                .of_column(&self.name, &column.name));
        }
        Ok(())
    }

    /// The key of `row` is there already.
    pub fn duplicate_key(&self, rows: &RecordBatch, row: usize) -> SessionError {
        let constraint = format!("{}_pkey", self.name.name);
        let names: Vec<&str> =
            self.layout.key_columns.iter().map(|c| self.columns[*c].name.as_str()).collect();
        let columns: Vec<ArrayRef> =
            self.layout.key_columns.iter().map(|c| Arc::clone(rows.column(*c))).collect();
        let message = format!("duplicate key value violates unique constraint \"{constraint}\"");
        SessionError::new(SqlState::UNIQUE_VIOLATION, message)
            .detail(format!("Key ({})={} already exists.", names.join(", "), tuple(&columns, row)))
            .of_constraint(&self.name, &constraint)
    }

    /// The changes of an INSERT of `rows`. `current` has the rows of their keys.
    pub fn insert(
        &self,
        rows: RecordBatch,
        current: &CurrentRows,
        on_conflict: OnConflict,
    ) -> Result<Changes, SessionError> {
        let rows = self.stored(rows)?;
        self.check_not_null(&rows)?;
        if !self.is_keyed() {
            return Ok(Changes { batch: ChangeBatch::insertions(rows.clone()), returned: rows });
        }
        let keys = self.keys(&rows);
        // By key, the row that stays; in order of the rows.
        let mut kept: HashMap<&[u8], usize> = HashMap::new();
        for (row, key) in each(&keys) {
            let taken = kept.contains_key(key) || current.row_of(key).is_some();
            match on_conflict {
                OnConflict::Error if taken => return Err(self.duplicate_key(&rows, row)),
                OnConflict::DoNothing if taken => {}
                OnConflict::Error | OnConflict::DoNothing | OnConflict::DoUpdateFull => {
                    kept.insert(key, row);
                }
            }
        }
        let replaced: Vec<u32> = kept.keys().filter_map(|key| current.row_of(key)).collect();
        let mut added: Vec<u32> = kept.values().map(|row| *row as u32).collect();
        added.sort_unstable();
        let added = take(&rows, added)?;
        let removed = take(current.rows(), replaced)?;
        Ok(Changes { batch: self.batch(&removed, &added)?, returned: added })
    }

    /// The changes of an UPDATE of the rows `old` to `new`. `current` has the rows of the new keys.
    pub fn update(
        &self,
        old: RecordBatch,
        new: RecordBatch,
        current: &CurrentRows,
    ) -> Result<Changes, SessionError> {
        let new = self.stored(new)?;
        let (old, new) = if self.is_keyed() {
            // A row that a join found several partners for is updated once, as in PostgreSQL.
            let once = self.first_of_each_key(&old);
            (take(&old, once.clone())?, take(&new, once)?)
        } else {
            (old, new)
        };
        self.check_not_null(&new)?;
        if self.is_keyed() {
            let (old_keys, keys) = (self.keys(&old), self.keys(&new));
            let removed: HashSet<&[u8]> = each(&old_keys).map(|(_, key)| key).collect();
            let mut taken: HashSet<&[u8]> = HashSet::new();
            for (row, key) in each(&keys) {
                let held = current.row_of(key).is_some() && !removed.contains(key);
                if held || !taken.insert(key) {
                    return Err(self.duplicate_key(&new, row));
                }
            }
        }
        Ok(Changes { batch: self.batch(&old, &new)?, returned: new })
    }

    /// The changes of a DELETE of the rows `old`.
    pub fn delete(&self, old: RecordBatch) -> Result<Changes, SessionError> {
        let old = if self.is_keyed() { take(&old, self.first_of_each_key(&old))? } else { old };
        let nothing = RecordBatch::new_empty(Arc::clone(self.schema()));
        Ok(Changes { batch: self.batch(&old, &nothing)?, returned: old })
    }

    fn first_of_each_key(&self, rows: &RecordBatch) -> Vec<u32> {
        let keys = self.keys(rows);
        let mut seen = HashSet::new();
        each(&keys).filter(|(_, key)| seen.insert(*key)).map(|(row, _)| row as u32).collect()
    }

    /// Rows that go and rows that come; what is in both is in neither.
    fn batch(&self, removed: &RecordBatch, added: &RecordBatch) -> Result<ChangeBatch, SessionError> {
        if removed.num_rows() == 0 {
            return Ok(ChangeBatch::insertions(added.clone()));
        }
        let rows = concat_batches(self.schema(), [removed, added]).map_err(internal)?;
        let mut diffs = vec![-1; removed.num_rows()];
        diffs.resize(rows.num_rows(), 1);
        consolidate(ChangeBatch::new(rows, diffs)).map_err(internal)
    }

    /// Checks what a block wrote against the rows of now: no row that it took away may have
    /// changed, no key that it gave may have been taken. `written` is consolidated.
    pub fn check_again(&self, written: &ChangeBatch, current: &CurrentRows) -> Result<(), SessionError> {
        let rows = written.rows();
        let keys = self.keys(rows);
        let conflict = || {
            let message = "could not serialize access due to concurrent update";
            SessionError::new(SqlState("40001"), message)
                .detail(format!(
                    "Another session changed rows of \"{}\" that this transaction changed.",
                    self.name.name
                ))
                .hint("Run the transaction again.")
        };
        if !self.is_keyed() {
            let gone = |row: usize| current.count_of(keys.get(row)) + written.diff(row) < 0;
            return if (0..rows.num_rows()).any(gone) { Err(conflict()) } else { Ok(()) };
        }
        let same = current.comparison(rows).map_err(internal)?;
        let mut removed: HashSet<&[u8]> = HashSet::new();
        for (row, key) in each(&keys).filter(|(row, _)| written.diff(*row) < 0) {
            if !current.row_of(key).is_some_and(|now| same.is_same(row, now)) {
                return Err(conflict());
            }
            removed.insert(key);
        }
        for (row, key) in each(&keys).filter(|(row, _)| written.diff(*row) > 0) {
            if current.row_of(key).is_some() && !removed.contains(key) {
                return Err(self.duplicate_key(rows, row));
            }
        }
        Ok(())
    }
}

/// The `n` of `character varying(n)`.
fn length_of(sql_type: &str) -> Option<usize> {
    let (_, length) = sql_type.strip_prefix("character")?.split_once('(')?;
    length.strip_suffix(')')?.parse().ok()
}

/// The keys with their rows.
pub fn each(keys: &EncodedKeys) -> impl Iterator<Item = (usize, &[u8])> {
    (0..keys.len()).map(|row| (row, keys.get(row)))
}

fn take(rows: &RecordBatch, indices: Vec<u32>) -> Result<RecordBatch, SessionError> {
    take_record_batch(rows, &UInt32Array::from(indices)).map_err(internal)
}

/// `(1, null, x)`, as PostgreSQL's details quote rows.
fn tuple(columns: &[ArrayRef], row: usize) -> String {
    let values: Vec<String> =
        columns.iter().map(|column| to_text(column, row).unwrap_or_else(|| "null".to_owned())).collect();
    format!("({})", values.join(", "))
}

#[cfg(test)]
#[path = "tests/changes.rs"]
mod tests;
