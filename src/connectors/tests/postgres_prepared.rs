//! Two-phase commit against a real server, if one is installed: rows, fencing, leftovers, conflicts.

use super::*;
use crate::connectors::postgres_server::Server;
use crate::connectors::registry::SinkContext;
use arrow::array::{BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use std::sync::Arc;
use weir_catalog::sink::{Sink, SinkType};

const SINK: ObjectId = ObjectId(16_400);

fn target(sink: &Sink, generation: u64) -> PreparedPostgres {
    let context = SinkContext { database: "d", id: SINK, name: "k", generation };
    PreparedPostgres::new(Declared::read(sink, &context).unwrap(), SINK, sink.replaces)
}

fn name(generation: u64, epoch: u64, actor: u32) -> TransactionName {
    TransactionName { database: "d".into(), sink: SINK, epoch: Epoch(epoch), actor, generation }
}

fn pairs(rows: &[(i64, i64, i64)]) -> ChangeBatch {
    let column = |of: fn(&(i64, i64, i64)) -> i64| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<Int64Array>())
    };
    let columns = [("k", column(|r| r.0)), ("v", column(|r| r.1))];
    let diffs: Vec<i64> = rows.iter().map(|r| r.2).collect();
    ChangeBatch::new(RecordBatch::try_from_iter(columns).unwrap(), diffs)
}

async fn prepare(
    target: &mut PreparedPostgres,
    name: &TransactionName,
    rows: &[(i64, i64, i64)],
) -> Result<(), SinkError> {
    target.begin(name).await?;
    target.write(&[pairs(rows)]).await?;
    target.prepare(name).await
}

async fn opened(sink: &Sink, generation: u64) -> PreparedPostgres {
    let mut target = target(sink, generation);
    target.open().await.unwrap();
    target.take_over().await.unwrap();
    target
}

#[tokio::test]
async fn two_phases_against_a_real_server() {
    let Some(server) = Server::start().await else {
        return eprintln!("PostgreSQL is not installed: not tested");
    };
    rows_are_there_when_they_are_committed(&server).await;
    values_are_cast_as_they_are(&server).await;
    what_is_found_is_told_and_dropped(&server).await;
    zombies_can_not_prepare(&server).await;
    what_another_actor_holds_is_waited_for(&server).await;
}

async fn rows_are_there_when_they_are_committed(server: &Server) {
    server.run("CREATE TABLE kv (k bigint PRIMARY KEY, v bigint)").await;
    let mut target = opened(&server.sink(&["k", "v"], SinkType::Upsert, "kv"), 1).await;
    let (first, second) = (name(1, 5, 0), name(1, 5, 1));
    prepare(&mut target, &first, &[(1, 10, 1), (2, 20, 1)]).await.unwrap();
    prepare(&mut target, &second, &[(3, 30, 1)]).await.unwrap();
    let all = "SELECT coalesce(string_agg(k || ' ' || v, ',' ORDER BY k), '') FROM kv";
    assert_eq!(server.rows(all).await, [""]);
    target.finish(&first, true).await.unwrap();
    assert_eq!(server.rows(all).await, ["1 10,2 20"]);
    // The commit's answer was lost.
    let error = target.finish(&first, true).await.unwrap_err();
    assert!(matches!(&error, SinkError::Retry(reason) if reason.contains("is gone")), "{error}");
    let held = target.open().await.unwrap();
    assert_eq!(held, PreparedHeld { epochs: [(0, Epoch(5))].into(), transactions: vec![second.clone()] });
    target.take_over().await.unwrap();
    let error = prepare(&mut target, &first, &[(1, 10, 1)]).await.unwrap_err();
    assert!(error.to_string().contains("in the target already"), "{error}");
    target.open().await.unwrap();
    target.finish(&second, true).await.unwrap();
    let next = name(1, 6, 0);
    prepare(&mut target, &next, &[(1, 11, 1), (2, 20, -1), (9, 9, -1)]).await.unwrap();
    target.finish(&next, true).await.unwrap();
    assert_eq!(server.rows(all).await, ["1 11,3 30"]);
    server.run("DELETE FROM weir_progress").await;
}

async fn values_are_cast_as_they_are(server: &Server) {
    server
        .run(
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN small AS int CHECK (VALUE < 100);
             CREATE TABLE typed (k text PRIMARY KEY, c char(5), m mood, n small, b boolean, ts timestamptz)",
        )
        .await;
    let columns = ["k text", "c text", "m text", "n", "b boolean", "ts timestamp with time zone"];
    let mut target = opened(&server.sink(&columns, SinkType::Upsert, "typed"), 1).await;
    let text = |values: [Option<&str>; 2]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
    let moment = TimestampMicrosecondArray::from(vec![Some(1_500_000), None]).with_timezone("+00:00");
    let rows = RecordBatch::try_from_iter_with_nullable([
        ("k", text([Some("a\\'b\t{\"},"), Some("")]), true),
        ("c", text([Some("abc"), None]), true),
        ("m", text([Some("ok"), None]), true),
        ("n", Arc::new(Int64Array::from(vec![Some(99), None])) as ArrayRef, true),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None])), true),
        ("ts", Arc::new(moment), true),
    ])
    .unwrap();
    let first = name(1, 5, 0);
    target.begin(&first).await.unwrap();
    target.write(&[ChangeBatch::new(rows.clone(), [1, 1])]).await.unwrap();
    target.prepare(&first).await.unwrap();
    target.finish(&first, true).await.unwrap();
    let all = "SELECT concat_ws('|', k, c, m, n, b, extract(epoch from ts)) FROM typed ORDER BY k DESC";
    assert_eq!(server.rows(all).await, ["a\\'b\t{\"},|abc  |ok|99|t|1.500000", ""]);
    // What does not fit is refused, not cut.
    let long = text([Some("abcdefg"), None]);
    let mut columns = rows.columns().to_vec();
    columns[1] = long;
    let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
    target.begin(&name(1, 6, 0)).await.unwrap();
    let error = target.write(&[ChangeBatch::new(rows, [1, 1])]).await.unwrap_err();
    assert!(matches!(&error, SinkError::Refused(reason) if reason.starts_with("22001: ")), "{error}");
    server.run("DELETE FROM weir_progress").await;
}

async fn what_is_found_is_told_and_dropped(server: &Server) {
    server.run("CREATE TABLE log (k bigint, v bigint)").await;
    let sink = server.sink(&["k", "v"], SinkType::AppendOnly, "log");
    let mut old = opened(&sink, 1).await;
    let names: Vec<TransactionName> = (0..3).map(|actor| name(1, 7, actor)).collect();
    for name in &names {
        prepare(&mut old, name, &[(i64::from(name.actor), 0, 1)]).await.unwrap();
    }
    drop(old);
    let mut new = target(&sink, 2);
    let mut found = new.open().await.unwrap().transactions;
    found.sort();
    assert_eq!(found, names);
    new.finish_for_client(&names[0], true).await.unwrap();
    let error = new.finish_for_client(&names[0], true).await.unwrap_err();
    assert_eq!(weir_catalog::ClientError::sql_state(&error).0, "42704");
    let mut forgotten = new.forget().await.unwrap();
    forgotten.sort();
    assert_eq!(forgotten, names[1..]);
    assert_eq!(new.open().await.unwrap(), PreparedHeld::default());
    assert_eq!(server.rows("SELECT k::text FROM log").await, ["0"]);
    server.run("DELETE FROM weir_progress; TRUNCATE log").await;
}

async fn zombies_can_not_prepare(server: &Server) {
    let sink = server.sink(&["k", "v"], SinkType::AppendOnly, "log");
    let mut old = opened(&sink, 1).await;
    old.begin(&name(1, 5, 0)).await.unwrap();
    // It is under way: the new one waits for it in vain, and may try again.
    let mut new = target(&sink, 2);
    new.open().await.unwrap();
    let error = new.take_over().await.unwrap_err();
    assert!(matches!(&error, SinkError::Retry(reason) if reason.starts_with("55P03")), "{error}");
    old.write(&[pairs(&[(5, 0, 1)])]).await.unwrap();
    old.prepare(&name(1, 5, 0)).await.unwrap();
    let found = new.open().await.unwrap();
    assert_eq!(found.transactions, [name(1, 5, 0)]);
    new.finish(&name(1, 5, 0), false).await.unwrap();
    new.take_over().await.unwrap();
    let error = prepare(&mut old, &name(1, 6, 0), &[(6, 0, 1)]).await.unwrap_err();
    assert!(matches!(&error, SinkError::Retry(reason) if reason.contains("taken over")), "{error}");
    let error = old.open().await.unwrap_err();
    assert!(matches!(&error, SinkError::Fatal(reason) if reason.contains("newer")), "{error}");
    prepare(&mut new, &name(2, 7, 0), &[(7, 0, 1)]).await.unwrap();
    new.finish(&name(2, 7, 0), true).await.unwrap();
    assert_eq!(server.rows("SELECT k::text FROM log").await, ["7"]);
    server.run("DELETE FROM weir_progress").await;
}

/// A unique index that is not the sink's key: two actors' rows meet in it.
async fn what_another_actor_holds_is_waited_for(server: &Server) {
    server
        .run("CREATE TABLE met (k bigint PRIMARY KEY, v bigint UNIQUE); INSERT INTO met VALUES (1, 5)")
        .await;
    let mut target = opened(&server.sink(&["k", "v"], SinkType::Upsert, "met"), 1).await;
    let (first, second) = (name(1, 5, 0), name(1, 5, 1));
    prepare(&mut target, &first, &[(1, 5, -1)]).await.unwrap();
    let error = prepare(&mut target, &second, &[(2, 5, 1)]).await.unwrap_err();
    assert!(matches!(&error, SinkError::Retry(reason) if reason.starts_with("55P03")), "{error}");
    // Once it is committed, the other goes in.
    target.open().await.unwrap();
    target.finish(&first, true).await.unwrap();
    prepare(&mut target, &second, &[(2, 5, 1)]).await.unwrap();
    target.finish(&second, true).await.unwrap();
    assert_eq!(server.rows("SELECT k || ' ' || v FROM met").await, ["2 5"]);
}
