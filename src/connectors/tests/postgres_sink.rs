//! The PostgreSQL sink against a real server, if one is installed: values, upsert, fencing, kills.

use super::*;
use crate::connectors::postgres_server::Server;
use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use std::sync::Arc;
use weir_catalog::sink::SinkType;

fn target(sink: &Sink, generation: u64) -> PostgresTarget {
    let context = SinkContext { database: "d", id: ObjectId(16_400), name: "k", generation };
    PostgresTarget::new(Declared::read(sink, &context).unwrap(), None)
}

fn marker(generation: u64, epoch: u64) -> Marker {
    Marker { generation, epoch: Epoch(epoch), partial: None }
}

fn delivery(marker: Marker, columns: Vec<(&str, ArrayRef)>, diffs: &[i64]) -> Delivery {
    let rows =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
    Delivery { until: marker.epoch, chunk: 0, marker, batches: vec![ChangeBatch::new(rows, diffs)] }
}

fn pairs(marker: Marker, rows: &[(i64, i64, i64)]) -> Delivery {
    let column = |of: fn(&(i64, i64, i64)) -> i64| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<Int64Array>())
    };
    let diffs: Vec<i64> = rows.iter().map(|r| r.2).collect();
    delivery(marker, vec![("k", column(|r| r.0)), ("v", column(|r| r.1))], &diffs)
}

#[tokio::test]
async fn the_sink_against_a_real_server() {
    let Some(server) = Server::start().await else {
        return eprintln!("PostgreSQL is not installed: not tested");
    };
    values_arrive_as_they_are(&server).await;
    upserts_and_deletions(&server).await;
    every_epoch_is_there_once_wherever_it_stops(&server).await;
    zombies_are_fenced(&server).await;
    what_can_never_work_is_said(&server).await;
    what_a_row_breaks_is_said(&server).await;
}

async fn values_arrive_as_they_are(server: &Server) {
    server.run("CREATE TABLE plain (i bigint, t text, b bytea, ts timestamptz, unused int DEFAULT 7)").await;
    let mut target = target(
        &server.sink(
            &["i", "t text", "b bytea", "ts timestamp with time zone"],
            SinkType::AppendOnly,
            "plain",
        ),
        1,
    );
    assert_eq!(target.open().await.unwrap(), None);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("t", Arc::new(StringArray::from(vec![Some("a\tb\\N\nc\r"), None]))),
        ("b", Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None]))),
        (
            "ts",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]).with_timezone("+00:00")),
        ),
    ];
    target.deliver(delivery(marker(1, 5), columns, &[1, 1])).await.unwrap();
    let rows = server
        .rows("SELECT format('%s|%s|%s|%s|%s', i, replace(t, E'\\t', 'TAB'), b, extract(epoch from ts), unused) FROM plain")
        .await;
    assert_eq!(rows, ["1|aTABb\\N\nc\r|\\x00ff|1.500000|7", "||||7"]);
    assert_eq!(target.open().await.unwrap(), Some(marker(1, 5)));
    let partial = Marker { partial: Some(Partial { until: Epoch(9), chunks: 2 }), ..marker(1, 5) };
    target.deliver(Delivery { batches: Vec::new(), ..pairs(partial, &[]) }).await.unwrap();
    assert_eq!(target.open().await.unwrap(), Some(partial));
    server.run("DELETE FROM weir_progress").await;
}

async fn upserts_and_deletions(server: &Server) {
    server.run("CREATE TABLE kv (k bigint PRIMARY KEY, v int)").await;
    let mut target = target(&server.sink(&["k", "v"], SinkType::Upsert, "kv"), 1);
    target.open().await.unwrap();
    target.deliver(pairs(marker(1, 1), &[(1, 10, 1), (2, 20, 1), (3, 30, 1)])).await.unwrap();
    target.deliver(pairs(marker(1, 2), &[(1, 11, 1), (2, 20, -1), (4, 40, 1), (9, 9, -1)])).await.unwrap();
    assert_eq!(server.rows("SELECT k || ' ' || v FROM kv ORDER BY k").await, ["1 11", "3 30", "4 40"]);
    server.run("DELETE FROM weir_progress").await;
}

async fn every_epoch_is_there_once_wherever_it_stops(server: &Server) {
    server.run("CREATE TABLE log (k bigint, v bigint)").await;
    let sink = server.sink(&["k", "v"], SinkType::AppendOnly, "log");
    failpoint::testing::set("postgres_sink.before_commit:2=error, postgres_sink.after_commit:3=error");
    let mut generation = 1;
    let mut at = 0;
    let mut target = target(&sink, generation);
    target.open().await.unwrap();
    while at < 8 {
        match target.deliver(pairs(marker(generation, at + 1), &[(at as i64 + 1, 0, 1)])).await {
            Ok(()) => at += 1,
            Err(error) => {
                assert!(matches!(error, SinkError::Retry(_)), "{error}");
                generation += 1;
                target = self::target(&sink, generation);
                at = target.open().await.unwrap().map_or(0, |m| m.epoch.0);
            }
        }
    }
    failpoint::testing::set("");
    assert!(generation > 2);
    assert_eq!(server.rows("SELECT string_agg(k::text, ',' ORDER BY k) FROM log").await, ["1,2,3,4,5,6,7,8"]);
    server.run("DELETE FROM weir_progress").await;
}

async fn zombies_are_fenced(server: &Server) {
    let sink = server.sink(&["k", "v"], SinkType::AppendOnly, "log");
    let mut old = target(&sink, 1);
    old.open().await.unwrap();
    let mut new = target(&sink, 2);
    new.open().await.unwrap();
    let error = old.deliver(pairs(marker(1, 100), &[(100, 0, 1)])).await.unwrap_err();
    assert!(matches!(error, SinkError::Retry(_)), "{error}");
    let error = old.open().await.unwrap_err();
    assert!(matches!(&error, SinkError::Fatal(reason) if reason.contains("newer generation")), "{error}");
    new.deliver(pairs(marker(2, 100), &[(101, 0, 1)])).await.unwrap();
    // The same server twice, as after a commit whose answer was lost.
    let mut twin = target(&sink, 2);
    twin.open().await.unwrap();
    new.deliver(pairs(marker(2, 101), &[(102, 0, 1)])).await.unwrap();
    assert!(twin.deliver(pairs(marker(2, 101), &[(102, 0, 1)])).await.is_err());
    assert_eq!(
        server.rows("SELECT string_agg(k::text, ',' ORDER BY k) FROM log WHERE k >= 100").await,
        ["101,102"]
    );
}

async fn what_can_never_work_is_said(server: &Server) {
    let open = async |columns: &[&str], sink_type, table: &str| match target(
        &server.sink(columns, sink_type, table),
        9,
    )
    .open()
    .await
    {
        Err(SinkError::Refused(reason)) => reason.split(" (").next().unwrap_or_default().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        open(&["k"], SinkType::AppendOnly, "no\"such").await,
        "42P01: relation \"no\"such\" does not exist in the target of sink \"k\""
    );
    assert_eq!(
        open(&["k", "w"], SinkType::AppendOnly, "log").await,
        "42703: column \"w\" of sink \"k\" does not exist in table \"log\" of its target"
    );
    assert_eq!(
        open(&["k", "v"], SinkType::Upsert, "log").await,
        "42P10: table \"log\" of the target of sink \"k\" has no primary key or unique index on"
    );
}

/// The SQLSTATE and the row are told.
async fn what_a_row_breaks_is_said(server: &Server) {
    server.run("CREATE TABLE strict (k bigint PRIMARY KEY, v smallint CHECK (v < 9))").await;
    let refused = async |sink_type, rows: &[(i64, i64, i64)]| {
        let mut target = target(&server.sink(&["k", "v"], sink_type, "strict"), 9);
        target.open().await.unwrap();
        match target.deliver(pairs(marker(9, 1), rows)).await {
            Err(SinkError::Refused(reason)) => reason,
            other => panic!("{other:?}"),
        }
    };
    let said = refused(SinkType::Upsert, &[(1, 2, 1), (7, 9, 1)]).await;
    assert!(said.starts_with("23514: ") && said.contains("Failing row contains (7, 9)"), "{said}");
    let said = refused(SinkType::Upsert, &[(1, 2, 1), (7, 70_000, 1)]).await;
    assert!(said.starts_with("22003: ") && said.contains("line 2, column v: \"70000\""), "{said}");
    let said = refused(SinkType::AppendOnly, &[(3, 2, 1), (3, 3, 1)]).await;
    assert!(said.starts_with("23505: ") && said.contains("Key (k)=(3) already exists"), "{said}");
    assert_eq!(server.rows("SELECT k::text FROM strict").await, [""; 0]);
}
