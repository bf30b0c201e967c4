//! Every system table gives rows of its own width.

use super::*;
use crate::object::{Object, ObjectBody, ObjectState};
use crate::relation::{MaterializedView, RowKey};
use crate::system::facts::{
    ActorFact, CheckpointFact, CheckpointParts, JobFact, RecoveryFact, SplitFact, TransactionFact,
    TransactionState,
};
use crate::{CatalogChange, Column, ObjectName};

fn catalog() -> CatalogSnapshot {
    let empty = CatalogSnapshot::default();
    let column = Column {
        name: "a".into(),
        data_type: arrow_schema::DataType::Int32,
        sql_type: "integer".into(),
        nullable: false,
        default: None,
    };
    let object = Object {
        id: empty.next_id,
        name: ObjectName::new("public", "v"),
        body: ObjectBody::MaterializedView(MaterializedView {
            columns: vec![column],
            key: RowKey::Columns(vec![0]),
            append_only: true,
            query: "SELECT 1 AS a".into(),
            inputs: vec![],
            watermarks: vec![],
            emit_on_close: false,
        }),
        state: ObjectState::Creating,
        definition: "CREATE MATERIALIZED VIEW v AS SELECT 1 AS a".into(),
        comment: None,
        parallelism: None,
    };
    empty.apply(&CatalogChange::Create(object)).expect("valid")
}

#[test]
fn rows_are_as_wide_as_their_table() {
    let catalog = catalog();
    let id = catalog.objects().next().expect("one").id;
    let facts = RuntimeFacts {
        jobs: vec![JobFact {
            id,
            status: "creating".into(),
            backfilled_rows: 25,
            backfill_total_rows: Some(50),
            parallelism: 2,
            actors: 2,
            state_entries: 5,
        }],
        checkpoints: vec![CheckpointFact {
            epoch: 9,
            triggered_at_us: 1,
            status: "completed".into(),
            duration_us: 1500,
            total_bytes: 10,
            new_bytes: 5,
            parts: CheckpointParts { link_us: 700, files: 3, ..CheckpointParts::default() },
            actors: vec![ActorFact {
                actor: 1,
                job: Some(id),
                acknowledged_us: None,
                align_us: 2500,
                flush_us: 0,
                seal_us: 0,
            }],
            ..CheckpointFact::default()
        }],
        recoveries: vec![RecoveryFact { epoch: 9, total_us: 1000, ..RecoveryFact::default() }],
        splits: vec![SplitFact { source: id, split: "0".into(), offset: "7".into() }],
        transactions: vec![TransactionFact {
            sink: id,
            name: Some("weir:d:1:2:3:4".into()),
            state: TransactionState::Prepared,
            generation: 2,
            epoch: 3,
            actor: Some(4),
            chunk: None,
            changed_at_us: 1,
            note: None,
        }],
        ..RuntimeFacts::default()
    };
    for table in TABLES {
        for row in (table.rows)(&catalog, &facts) {
            assert_eq!(row.len(), table.columns.len(), "{}", table.name);
        }
    }
    let transactions = (sink_transactions::TABLE.rows)(&catalog, &facts);
    assert_eq!((&transactions[0][1], &transactions[0][3]), (&Value::from("v"), &Value::from("prepared")));
    let progress = (ddl_progress::TABLE.rows)(&catalog, &facts);
    assert_eq!(progress[0][5], Value::from("50.0%"));
    let relations = (relations::TABLE.rows)(&catalog, &facts);
    assert_eq!(relations[0][6], Value::Texts(vec!["a".into()]));
    assert_eq!((checkpoints::TABLE.rows)(&catalog, &facts)[0][4], Value::Float(1.5));
    let actors = (checkpoint_actors::TABLE.rows)(&catalog, &facts);
    assert_eq!(actors[0][2..5], [Value::from("v"), Value::Null, Value::Float(2.5)]);
    assert_eq!((recoveries::TABLE.rows)(&catalog, &facts)[0][8], Value::Float(1.0));
}
