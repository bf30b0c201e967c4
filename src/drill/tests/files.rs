//! What the files of a sink come to, in each layout, and what of them is new.

use super::*;
use crate::formats::encode::{Encoding, ParquetCompression, encoder};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use std::sync::Arc;

fn write(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(name), text).unwrap();
}

fn files(dir: &Path, layout: Layout) -> Files {
    Files { dir: dir.to_owned(), layout }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn lines(texts: &[&str]) -> Lines {
    let mut lines = Lines::default();
    texts.iter().for_each(|text| lines.add(text.as_bytes()));
    lines
}

#[test]
fn of_a_key_the_last_row_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let json = files(dir.path(), Layout::Json);
    write(
        dir.path(),
        "part-1-000000000009-0000.json",
        "{\"k\":1,\"v\":2,\"weir_op\":\"upsert\"}\n{\"k\":2,\"v\":1,\"weir_op\":\"delete\"}\n",
    );
    write(
        dir.path(),
        "part-1-000000000007-0000.json",
        "{\"k\":1,\"v\":1,\"weir_op\":\"upsert\"}\n{\"k\":2,\"v\":1,\"weir_op\":\"upsert\"}\n",
    );
    write(dir.path(), ".part-1-000000000011-0000.json.tmp", "{\"k\":1,\"v\":3,\"weir_op\":\"upsert\"}\n");
    let last = Meaning::Last(names(&["k"]));
    let columns = names(&["k", "v"]);
    assert_eq!(json.read(&last, &columns).unwrap().lines, lines(&["k=1\nv=2"]));
    assert_eq!(json.read(&Meaning::Rows, &columns).unwrap().lines.count(), 4);
    let none = files(&dir.path().join("none"), Layout::Json);
    assert_eq!(none.read(&last, &columns).unwrap(), Held::default());
}

#[test]
fn csv_and_parquet_are_read_as_json_is() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "part-1-1.csv",
        "k,v,weir_op\n1,\"a,\"\"b\"\"\nc\",insert\n2,x,insert\n2,x,delete\n2,y,insert\n",
    );
    let csv = files(dir.path(), Layout::Csv { delimiter: b',', header: true });
    let changes = Meaning::Changes(names(&["k"]));
    let columns = names(&["k", "v"]);
    let held = csv.read(&changes, &columns).unwrap();
    assert_eq!(held.lines, lines(&["k=1\nv=\"a,\"\"b\"\"\nc\"", "k=2\nv=y"]));
    assert_eq!((held.repeated, held.unfounded), (0, 0));
    assert_eq!(csv.read(&Meaning::Rows, &columns).unwrap().lines.count(), 4, "without the header");

    let dir = tempfile::tempdir().unwrap();
    let rows = RecordBatch::try_from_iter([
        ("k", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        ("weir_op", Arc::new(StringArray::from(vec!["upsert", "upsert"]))),
    ])
    .unwrap();
    let file = File::create(dir.path().join("part-1-1.parquet")).unwrap();
    let parquet = Encoding::Parquet(ParquetCompression::Zstd);
    let mut encoder = encoder(parquet, &rows.schema(), Box::new(file)).unwrap();
    encoder.write(&rows).unwrap();
    encoder.finish().unwrap();
    let parquet = files(dir.path(), Layout::Parquet);
    let last = Meaning::Last(names(&["k"]));
    assert_eq!(parquet.read(&last, &names(&["k"])).unwrap().lines, lines(&["k=1", "k=2"]));
}

#[test]
fn changes_that_come_again_or_miss_one_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let change = |v: i64, op: &str| format!("{{\"k\":\"a:,}}\\\"\",\"v\":{v},\"weir_op\":\"{op}\"}}\n");
    let json = files(dir.path(), Layout::Json);
    let held = |changes: &[(i64, &str)]| {
        let text: String = changes.iter().map(|(v, op)| change(*v, op)).collect();
        write(dir.path(), "part-1-1.json", &text);
        let held = json.read(&Meaning::Changes(names(&["k"])), &names(&["k", "v"])).unwrap();
        (held.lines.count(), held.repeated, held.unfounded)
    };
    assert_eq!(held(&[(1, "insert"), (1, "delete"), (2, "insert")]), (1, 0, 0));
    assert_eq!(held(&[(1, "insert"), (2, "insert")]), (1, 1, 0));
    assert_eq!(held(&[(1, "insert"), (2, "delete"), (3, "insert")]), (1, 0, 1));
    assert_eq!(held(&[(1, "delete")]), (0, 0, 1));
}

#[test]
fn members_keep_their_digits_and_what_is_no_object_is_told() {
    let line = br#"{"a":12345678901234567890.10,"b":{"c":[1,",}"]},"d":"\"x:\\"}"#;
    let fields = json_fields(line).unwrap();
    let expected: [(String, &[u8]); 3] = [
        ("a".to_owned(), b"12345678901234567890.10"),
        ("b".to_owned(), br#"{"c":[1,",}"]}"#),
        ("d".to_owned(), br#""\"x:\\""#),
    ];
    assert_eq!(fields, expected);
    for bad in ["", "[1]", "{\"a\":1", "{\"a\"}", "{\"a\":\"}"] {
        assert_eq!(json_fields(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn a_look_reads_what_is_new_and_sees_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let expected = lines(&["a", "b", "c", "d"]);
    let mut watch = FilesWatch::new(files(dir.path(), Layout::Json));
    assert_eq!(watch.look(&expected).unwrap(), 0);
    write(dir.path(), "part-1", "a\nb\n");
    assert_eq!(watch.look(&expected).unwrap(), 0);
    write(dir.path(), "part-2", "c\nb\n");
    assert_eq!((watch.look(&expected).unwrap(), watch.ledger().beyond()), (0, 1));
    assert_eq!(watch.ledger().count(), 4);
    write(dir.path(), "part-3", "d\n");
    std::fs::remove_file(dir.path().join("part-1")).unwrap();
    assert_eq!((watch.look(&expected).unwrap(), watch.ledger().beyond()), (2, 0));
    assert_eq!(watch.ledger().count(), 3);
    write(dir.path(), "part-2", "c\nb\nc\n");
    assert_eq!((watch.look(&expected).unwrap(), watch.ledger().beyond()), (0, 1));
}
