//! Changes of statements on a keyed and on a keyless table, over rows stored and pending.

use super::super::transaction::{Pending, View};
use super::*;
use crate::job::manager::Visible;
use crate::serve::snapshot::ReadPoint;
use crate::state::memory::MemoryStore;
use crate::stream::Epoch;
use arrow::array::{Int64Array, StringArray};
use arrow::datatypes::DataType;
use weir_catalog::ObjectState;
use weir_catalog::relation::{RowKey, Table};

type Row = (Option<i64>, Option<&'static str>);

fn target(key: RowKey) -> Target {
    let column = |name: &str, data_type, nullable| Column {
        name: name.to_owned(),
        data_type,
        sql_type: String::new(),
        nullable,
        default: None,
    };
    let columns = vec![column("id", DataType::Int64, false), column("name", DataType::Utf8, true)];
    let on_conflict = OnConflict::Error;
    let table = Table { columns, key, append_only: false, on_conflict, watermark: None };
    let object = Object {
        id: ObjectId::FIRST_USER,
        name: ObjectName::public("t"),
        body: ObjectBody::Table(table),
        state: ObjectState::Created,
        definition: String::new(),
        comment: None,
        parallelism: None,
    };
    Target::of(&object).expect("a table")
}

fn keyed() -> Target {
    target(RowKey::Columns(vec![0]))
}

fn rows(rows: &[Row]) -> RecordBatch {
    let schema = Arc::new(arrow::datatypes::Schema::new(vec![
        arrow::datatypes::Field::new("id", DataType::Int64, true),
        arrow::datatypes::Field::new("name", DataType::Utf8, true),
    ]));
    let ids: Int64Array = rows.iter().map(|r| r.0).collect();
    let names: StringArray = rows.iter().map(|r| r.1).collect();
    RecordBatch::try_new(schema, vec![Arc::new(ids), Arc::new(names)]).expect("a batch")
}

/// The current rows of `asked` where `pending` was logged over an empty store.
fn current(target: &Target, pending: &[(&[Row], i64)], asked: &[Row]) -> CurrentRows {
    let own = pending.iter().map(|(r, diff)| {
        let batch = rows(r);
        let diffs = vec![*diff; batch.num_rows()];
        (target.id, ChangeBatch::new(batch, diffs))
    });
    let store = MemoryStore::default();
    let visible = Visible { epoch: Epoch(1), dml_position: 0, state: Arc::new(store) };
    let at = ReadPoint { catalog: Arc::default(), visible };
    let view = View { at, pending: Arc::new(Pending::of(own.collect())) };
    CurrentRows::read(target, &view, &target.keys(&rows(asked))).expect("reads")
}

fn shown(changes: &Changes) -> Vec<String> {
    let batch = &changes.batch;
    let mut lines: Vec<String> = (0..batch.num_rows())
        .map(|row| format!("{:+} {}", batch.diff(row), tuple(batch.rows().columns(), row)))
        .collect();
    lines.sort();
    lines
}

#[test]
fn an_insert_of_a_taken_key_is_refused_in_postgres_words() {
    let t = keyed();
    let now = current(&t, &[(&[(Some(1), Some("a"))], 1)], &[(Some(1), None)]);
    let error = t.insert(rows(&[(Some(1), Some("b"))]), &now, OnConflict::Error).unwrap_err();
    assert_eq!(error.to_string(), "duplicate key value violates unique constraint \"t_pkey\"");
    assert_eq!(error.fault().state, SqlState::UNIQUE_VIOLATION);
    assert_eq!(error.fault().detail.as_deref(), Some("Key (id)=(1) already exists."));
    assert_eq!(error.fault().constraint.as_deref(), Some("t_pkey"));

    let none = CurrentRows::none(&t);
    let twice = rows(&[(Some(2), None), (Some(2), Some("b"))]);
    assert!(t.insert(twice.clone(), &none, OnConflict::Error).is_err());
    let first = t.insert(twice.clone(), &none, OnConflict::DoNothing).unwrap();
    assert_eq!(shown(&first), ["+1 (2, null)"]);
    let last = t.insert(twice, &none, OnConflict::DoUpdateFull).unwrap();
    assert_eq!(shown(&last), ["+1 (2, b)"]);
}

#[test]
fn on_conflict_keeps_or_replaces_the_row() {
    let t = keyed();
    let now = current(&t, &[(&[(Some(1), Some("a"))], 1)], &[(Some(1), None), (Some(2), None)]);
    let new = rows(&[(Some(1), Some("b")), (Some(2), Some("c"))]);
    let kept = t.insert(new.clone(), &now, OnConflict::DoNothing).unwrap();
    assert_eq!(shown(&kept), ["+1 (2, c)"]);
    assert_eq!(kept.returned.num_rows(), 1);
    let replaced = t.insert(new, &now, OnConflict::DoUpdateFull).unwrap();
    assert_eq!(shown(&replaced), ["+1 (1, b)", "+1 (2, c)", "-1 (1, a)"]);
}

#[test]
fn a_row_that_was_deleted_since_leaves_its_key_free() {
    let t = keyed();
    let row: &[Row] = &[(Some(1), Some("a"))];
    let now = current(&t, &[(row, 1), (row, -1)], row);
    assert_eq!(now.row_of(t.keys(&rows(row)).get(0)), None);
    assert!(t.insert(rows(row), &now, OnConflict::Error).is_ok());
}

#[test]
fn null_is_refused_where_the_table_has_none() {
    let t = keyed();
    let none = CurrentRows::none(&t);
    let error = t.insert(rows(&[(Some(1), None), (None, Some("x"))]), &none, OnConflict::Error).unwrap_err();
    assert_eq!(
        error.to_string(),
        "null value in column \"id\" of relation \"t\" violates not-null constraint"
    );
    assert_eq!(error.fault().detail.as_deref(), Some("Failing row contains (null, x)."));
}

#[test]
fn an_update_may_move_keys_and_leaves_equal_rows_alone() {
    let t = keyed();
    let old = rows(&[(Some(1), Some("a")), (Some(2), Some("b"))]);
    let now = current(
        &t,
        &[(&[(Some(1), Some("a")), (Some(2), Some("b"))], 1)],
        &[(Some(2), None), (Some(3), None)],
    );
    let moved = t.update(old.clone(), rows(&[(Some(2), Some("a")), (Some(3), Some("b"))]), &now).unwrap();
    assert_eq!(shown(&moved), ["+1 (2, a)", "+1 (3, b)", "-1 (1, a)", "-1 (2, b)"]);
    let same = t.update(old.clone(), old, &now).unwrap();
    assert!(same.batch.is_empty());
    assert_eq!(same.returned.num_rows(), 2);

    let first = rows(&[(Some(1), Some("a"))]);
    assert!(t.update(first.clone(), rows(&[(Some(2), Some("a"))]), &now).is_err());
    // A join that finds a row twice updates it once.
    let twice = rows(&[(Some(1), Some("a")), (Some(1), Some("a"))]);
    let once = t.update(twice, rows(&[(Some(1), Some("x")), (Some(1), Some("y"))]), &now).unwrap();
    assert_eq!(shown(&once), ["+1 (1, x)", "-1 (1, a)"]);
}

#[test]
fn rows_without_a_key_are_counted() {
    let t = target(RowKey::WholeRow);
    let row: &[Row] = &[(Some(1), None)];
    let twice = t.insert(rows(&[row[0], row[0]]), &CurrentRows::none(&t), OnConflict::Error).unwrap();
    assert_eq!(twice.batch.num_rows(), 2);
    let gone = t.delete(rows(&[row[0], row[0]])).unwrap();
    assert_eq!(gone.returned.num_rows(), 2);

    let written = ChangeBatch::new(rows(row), vec![-2]);
    let two = current(&t, &[(row, 2)], row);
    assert!(t.check_again(&written, &two).is_ok());
    let one = current(&t, &[(row, 2), (row, -1)], row);
    assert_eq!(t.check_again(&written, &one).unwrap_err().fault().state, SqlState("40001"));
}

#[test]
fn a_commit_fails_where_another_session_was_first() {
    let t = keyed();
    let written = ChangeBatch::new(rows(&[(Some(1), Some("a")), (Some(1), Some("b"))]), vec![-1, 1]);
    let as_read = current(&t, &[(&[(Some(1), Some("a"))], 1)], &[(Some(1), None)]);
    assert!(t.check_again(&written, &as_read).is_ok());
    let changed = current(&t, &[(&[(Some(1), Some("z"))], 1)], &[(Some(1), None)]);
    assert_eq!(t.check_again(&written, &changed).unwrap_err().fault().state, SqlState("40001"));
    let inserted = ChangeBatch::insertions(rows(&[(Some(1), Some("b"))]));
    assert_eq!(t.check_again(&inserted, &as_read).unwrap_err().fault().state, SqlState::UNIQUE_VIOLATION);
}
