//! Files are published whole and once, wherever the server dies.

use super::*;
use crate::connectors::sink::Partial;
use crate::stream::Epoch;
use arrow::array::Int64Array;
use std::collections::BTreeMap;
use weir_catalog::source::FormatSpec;
use weir_catalog::{Column, ObjectId};

fn sink(path: &Path, sink_type: SinkType, encode: &str, options: &[(&str, &str)]) -> Sink {
    let mut all = BTreeMap::from([("path".to_owned(), path.display().to_string())]);
    all.extend(options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    Sink {
        columns: vec![Column {
            name: "n".into(),
            data_type: DataType::Int64,
            sql_type: "bigint".into(),
            nullable: true,
            default: None,
        }],
        query: String::new(),
        inputs: Vec::new(),
        connector: NAME.into(),
        options: all,
        format: FormatSpec { format: "PLAIN".into(), encode: encode.into(), ..FormatSpec::default() },
        sink_type,
        primary_key: None,
        force_append_only: false,
        snapshot: true,
        replaces: None,
    }
}

fn target(sink: &Sink, id: u32, database: &str, generation: u64) -> FilesTarget {
    FilesTarget::open(sink, &SinkContext { database, id: ObjectId(id), name: "k", generation }).unwrap()
}

fn delivery(marker: Marker, until: u64, chunk: u32, numbers: Vec<i64>) -> Delivery {
    let rows = RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(numbers)) as ArrayRef)]).unwrap();
    Delivery { until: Epoch(until), chunk, marker, batches: vec![ChangeBatch::insertions(rows)] }
}

fn marker(generation: u64, epoch: u64) -> Marker {
    Marker { generation, epoch: Epoch(epoch), partial: None }
}

/// The files that a user sees.
fn visible(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|n| !n.starts_with(['.', '_'])).collect();
    names.sort();
    names
}

fn numbers(dir: &Path) -> Vec<i64> {
    let mut numbers = Vec::new();
    for name in visible(dir) {
        let text = fs::read_to_string(dir.join(&name)).unwrap();
        assert!(text.ends_with('\n'), "{name} is whole");
        for line in text.lines() {
            numbers.push(serde_json::from_str::<serde_json::Value>(line).unwrap()["n"].as_i64().unwrap());
        }
    }
    numbers.sort_unstable();
    numbers
}

#[test]
fn rows_are_published_once_wherever_it_stops() {
    for point in ["before_write", "before_commit", "before_publish", "after_publish"] {
        for nth in 1..6 {
            let dir = tempfile::tempdir().unwrap();
            let sink = sink(dir.path(), SinkType::AppendOnly, "JSON", &[]);
            crate::failpoint::testing::set(&format!("files_sink.{point}:{nth}=error"));
            let mut generation = 1;
            let mut shared = target(&sink, 16_390, "d", generation).shared;
            let mut at = shared.open().unwrap();
            assert_eq!(at, None);
            // Ranges differ from one attempt to the next.
            let mut width = 1;
            while at.map_or(0, |m| m.epoch.0) < 12 {
                let from = at.map_or(0, |m| m.epoch.0);
                let until = (from + width).min(12);
                let numbers = (from as i64 + 1..=until as i64).collect();
                match shared.deliver(&delivery(marker(generation, until), until, 0, numbers)) {
                    Ok(()) => at = Some(marker(generation, until)),
                    Err(error) => {
                        assert!(matches!(error, SinkError::Retry(_)), "{error}");
                        generation += 1;
                        shared = target(&sink, 16_390, "d", generation).shared;
                        at = shared.open().unwrap();
                    }
                }
                width = width % 3 + 1;
                assert!(numbers_are_prefix(&self::numbers(dir.path())));
            }
            crate::failpoint::testing::set("");
            assert_eq!(self::numbers(dir.path()), (1..=12).collect::<Vec<_>>(), "{point} {nth}");
        }
    }
}

fn numbers_are_prefix(numbers: &[i64]) -> bool {
    numbers.iter().enumerate().all(|(i, n)| *n == i as i64 + 1)
}

#[test]
fn chunks_are_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let sink = sink(dir.path(), SinkType::AppendOnly, "CSV", &[("compression", "gzip")]);
    let shared = target(&sink, 16_390, "d", 1).shared;
    shared.open().unwrap();
    let partial = Marker { partial: Some(Partial { until: Epoch(7), chunks: 1 }), ..marker(1, 0) };
    shared.deliver(&delivery(partial, 7, 0, vec![1])).unwrap();
    assert_eq!(shared.open().unwrap(), Some(partial));
    shared.deliver(&delivery(marker(1, 7), 7, 1, vec![2])).unwrap();
    assert_eq!(
        visible(dir.path()),
        ["part-16390-000000000007-0000.csv.gz", "part-16390-000000000007-0001.csv.gz"]
    );
    assert_eq!(shared.open().unwrap(), Some(marker(1, 7)));
}

#[test]
fn zombies_and_strangers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sink = sink(dir.path(), SinkType::AppendOnly, "JSON", &[]);
    let old = target(&sink, 16_390, "d", 1).shared;
    old.open().unwrap();
    let new = target(&sink, 16_390, "d", 2).shared;
    new.open().unwrap();
    new.deliver(&delivery(marker(2, 5), 5, 0, vec![1])).unwrap();
    let zombie = old.deliver(&delivery(marker(1, 6), 6, 0, vec![2])).unwrap_err();
    assert!(matches!(&zombie, SinkError::Fatal(reason) if reason.contains("generation 2")), "{zombie}");
    let stranger = target(&sink, 16_390, "e", 3).shared.open().unwrap_err();
    assert!(matches!(stranger, SinkError::Fatal(_)));
    let stranger = target(&sink, 16_400, "e", 3).shared.open().unwrap_err();
    assert!(matches!(stranger, SinkError::Fatal(_)));
    assert_eq!(
        target(&sink, 16_400, "d", 2).shared.open().unwrap(),
        None,
        "another sink of the same database"
    );
    assert_eq!(numbers(dir.path()), [1]);
}

#[test]
fn rows_of_an_upsert_sink_say_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let shared = target(&sink(dir.path(), SinkType::Upsert, "JSON", &[]), 16_390, "d", 1).shared;
    shared.open().unwrap();
    let mut delivery = delivery(marker(1, 3), 3, 0, vec![1, 2]);
    delivery.batches = vec![ChangeBatch::new(delivery.batches[0].rows().clone(), vec![1, -1])];
    shared.deliver(&delivery).unwrap();
    let text = fs::read_to_string(dir.path().join(&visible(dir.path())[0])).unwrap();
    assert_eq!(text, "{\"n\":1,\"weir_op\":\"upsert\"}\n{\"n\":2,\"weir_op\":\"delete\"}\n");
}

#[test]
fn a_range_without_rows_moves_the_marker_alone() {
    let dir = tempfile::tempdir().unwrap();
    let shared = target(&sink(dir.path(), SinkType::AppendOnly, "PARQUET", &[]), 16_390, "d", 1).shared;
    shared.open().unwrap();
    shared.deliver(&Delivery { batches: Vec::new(), ..delivery(marker(1, 9), 9, 0, vec![]) }).unwrap();
    assert_eq!((shared.open().unwrap(), visible(dir.path()).len()), (Some(marker(1, 9)), 0));
}

#[test]
fn what_can_not_be_written_is_refused_at_once() {
    let open = |sink: &Sink| {
        FilesTarget::open(sink, &SinkContext { database: "d", id: ObjectId(1), name: "k", generation: 1 })
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let dir = Path::new("/tmp/x");
    assert_eq!(
        open(&sink(dir, SinkType::AppendOnly, "AVRO", &[])),
        "connector \"file\" does not support ENCODE AVRO"
    );
    assert_eq!(
        open(&sink(Path::new("s3://b/x"), SinkType::AppendOnly, "JSON", &[])),
        "connector \"file\" does not support s3:// paths"
    );
    assert_eq!(
        open(&sink(dir, SinkType::AppendOnly, "PARQUET", &[("compression", "gzip")])),
        "option \"compression\" of connector \"file\" is not valid: it is none, snappy or zstd"
    );
    assert_eq!(
        open(&sink(dir, SinkType::AppendOnly, "JSON", &[("pth", "x")])),
        "connector \"file\" has no option \"pth\""
    );
}
