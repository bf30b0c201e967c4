//! The file source: every encoding and compression, bad records, offsets, following.

use super::*;
use crate::formats::compression::Compressed;
use crate::formats::csv::tests::columns;
use crate::formats::encode::{Encoding, ParquetCompression, encoder};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Int64Type};
use std::io::Write;
use std::sync::Arc;
use weir_catalog::source::FormatSpec;

pub(super) fn declared(
    path: &Path,
    encode: &str,
    options: &[(&str, &str)],
    format: &[(&str, &str)],
) -> source::Source {
    let owned =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let mut options: source::Options = owned(options);
    options.insert("path".into(), path.display().to_string());
    source::Source {
        columns: columns(&[("id", DataType::Int64), ("t", DataType::Utf8)]),
        primary_key: None,
        connector: NAME.into(),
        options,
        format: FormatSpec { format: "PLAIN".into(), encode: encode.into(), options: owned(format) },
        watermark: None,
    }
}

pub(super) fn reader(
    source: &FilesSource,
    split: &Split,
    from: Option<&Offset>,
    until: Option<&Offset>,
) -> Box<dyn SplitReader> {
    source.reader(split, from, until, &[0, 1], Arc::new(|| {})).unwrap()
}

/// Ids and dead letters until the reader has no more for now.
pub(super) fn drain(reader: &mut dyn SplitReader, rows_max: usize) -> (Vec<i64>, Vec<DeadLetter>) {
    let (mut batches, mut letters) = (Vec::new(), Vec::new());
    while let SplitPoll::Rows(rows, bad) = reader.poll(rows_max, 0).unwrap() {
        batches.push(rows);
        letters.extend(bad);
    }
    let Some(first) = batches.first() else { return (Vec::new(), letters) };
    let rows = concat_batches(&first.schema(), &batches).unwrap();
    (rows.column(0).as_primitive::<Int64Type>().values().to_vec(), letters)
}

pub(super) fn write(path: &Path, text: &str, compression: Compression) {
    let mut output = Compressed::new(File::create(path).unwrap(), compression).unwrap();
    output.write_all(text.as_bytes()).unwrap();
    output.flush().unwrap();
}

fn lines(encode: &str, ids: std::ops::Range<i64>) -> String {
    ids.map(|id| match encode {
        "JSON" => format!("{{\"t\":\"text of {id}\",\"id\":{id}}}\n"),
        _ => format!("{id},\"text, of {id}\"\n"),
    })
    .collect()
}

#[test]
fn text_is_read_whole_and_from_any_offset_until_any() {
    for encode in ["JSON", "CSV"] {
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(format!("a.txt{}", compression.extension()));
            let text = lines(encode, 0..60_000).replacen("12345,", "x,", 1).replacen(
                "\"id\":12345}",
                "\"id\":\"x\"}",
                1,
            );
            write(&path, text.trim_end(), compression);
            let source = FilesSource::open(&declared(&path, encode, &[], &[])).unwrap();
            let (mut ids, mut letters) = (Vec::new(), Vec::new());
            let mut again = Vec::new();
            for split in source.splits().unwrap() {
                let (own, bad) = drain(&mut *reader(&source, &split, None, None), 4096);
                letters.extend(bad);
                let mut first = reader(&source, &split, None, None);
                if let SplitPoll::Rows(rows, _) = first.poll(1000, 0).unwrap() {
                    let middle = first.offset();
                    let (rest, _) = drain(&mut *reader(&source, &split, Some(&middle), None), 5000);
                    assert!(rest == own[rows.num_rows()..]);
                    let (start, _) = drain(&mut *reader(&source, &split, None, Some(&middle)), 77);
                    assert!(start == own[..rows.num_rows()]);
                    let end = reader(&source, &split, Some(&middle), Some(&middle)).poll(10, 0).unwrap();
                    assert!(matches!(end, SplitPoll::Finished));
                    again.extend(start.into_iter().chain(rest));
                }
                ids.extend(own);
            }
            assert_eq!(ids.len(), again.len());
            ids.sort_unstable();
            let expected: Vec<i64> = (0..60_000).filter(|id| *id != 12_345).collect();
            assert!(
                ids == expected,
                "{encode} {compression:?} {} {:?}",
                ids.len(),
                ids.iter().zip(&expected).position(|(a, b)| a != b)
            );
            assert_eq!((letters.len(), letters[0].reason.as_str()), (1, "column \"id\": \"x\" is no bigint"));
            let at: usize = letters[0].offset.parse().unwrap();
            assert!(text[at..].starts_with(std::str::from_utf8(&letters[0].payload).unwrap()));
        }
    }
}

#[test]
fn headers_marks_and_delimiters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    write(&path, "\u{feff}id|t\n1|a\n2|b\n", Compression::None);
    let source =
        FilesSource::open(&declared(&path, "CSV", &[], &[("header", "true"), ("delimiter", "|")])).unwrap();
    let split = &source.splits().unwrap()[0];
    let mut first = reader(&source, split, None, None);
    let SplitPoll::Rows(rows, _) = first.poll(1, 0).unwrap() else { panic!("rows") };
    assert_eq!(rows.num_rows(), 1);
    assert_eq!(drain(&mut *reader(&source, split, Some(&first.offset()), None), 10).0, [2]);
    assert_eq!(drain(&mut *reader(&source, split, None, None), 10), (vec![1, 2], vec![]));
}

#[test]
fn a_followed_file_is_read_on() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("*.json");
    let source = FilesSource::open(&declared(&pattern, "JSON", &[("follow", "true")], &[])).unwrap();
    assert!(source.grows() && source.splits().unwrap().is_empty());
    let path = dir.path().join("a.json");
    write(&path, &lines("JSON", 0..3), Compression::None);
    write(&dir.path().join(".hidden.json"), "x", Compression::None);
    std::fs::create_dir(dir.path().join("_weir")).unwrap();
    write(&dir.path().join("_weir/1.json"), "x", Compression::None);
    let splits = source.splits().unwrap();
    assert_eq!(splits.len(), 1);
    let mut reader = reader(&source, &splits[0], None, None);
    assert_eq!(drain(&mut *reader, 10).0, [0, 1, 2]);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"id\":3}\n{\"id\":").unwrap();
    assert_eq!(drain(&mut *reader, 10).0, [3]);
    let SplitPoll::Idle { until_us: Some(until) } = reader.poll(10, 5).unwrap() else { panic!("idle") };
    assert_eq!(until, 100_005);
    file.write_all(b"4}\n").unwrap();
    assert_eq!(drain(&mut *reader, 10), (vec![4], vec![]));
    assert_eq!(reader.offset().0, std::fs::metadata(&path).unwrap().len().to_string());
    // Another file takes no other's place, and one that is gone leaves its own.
    write(&dir.path().join("0.json"), "", Compression::None);
    let names = |splits: Vec<Split>| -> Vec<char> {
        splits.iter().filter_map(|s| s.name.chars().nth_back(5)).collect()
    };
    assert_eq!(names(source.splits().unwrap()), ['a', '0']);
    std::fs::remove_file(dir.path().join("0.json")).unwrap();
    assert_eq!(names(source.splits().unwrap()), ['a', '0']);
    let deep = FilesSource::open(&declared(&dir.path().join("**/*.json"), "JSON", &[], &[])).unwrap();
    assert_eq!(deep.splits().unwrap(), splits);
}

#[test]
fn bad_records_are_kept_skipped_or_fatal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    write(&path, "1,a\nx,b\n2,c\n", Compression::None);
    let read = |on_error: &str| {
        let source = FilesSource::open(&declared(&path, "CSV", &[("on_error", on_error)], &[])).unwrap();
        let split = source.splits().unwrap().remove(0);
        reader(&source, &split, None, None).poll(10, 0)
    };
    let counts = |polled| match polled {
        SplitPoll::Rows(rows, bad) => (rows.num_rows(), bad.len()),
        _ => panic!("rows"),
    };
    assert_eq!(counts(read("dead_letter").unwrap()), (2, 1));
    assert_eq!(counts(read("skip").unwrap()), (2, 0));
    assert_eq!(
        read("fail").unwrap_err().to_string(),
        "could not decode record at 4: column \"id\": \"x\" is no bigint"
    );
}

#[test]
fn damaged_compression_and_files_of_another_kind_are_dead_letters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json.gz");
    write(&path, &lines("JSON", 0..100_000), Compression::Gzip);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let source = FilesSource::open(&declared(&path, "JSON", &[], &[])).unwrap();
    let (ids, letters) = drain(&mut *reader(&source, &source.splits().unwrap()[0], None, None), 4096);
    assert!(ids.len() > 10_000 && ids == (0..ids.len() as i64).collect::<Vec<_>>());
    assert!(letters.iter().any(|l| l.reason.starts_with("the file is damaged")), "{letters:?}");

    let source = FilesSource::open(&declared(&path, "PARQUET", &[], &[])).unwrap();
    let mut first = reader(&source, &source.splits().unwrap()[0], None, None);
    let (ids, letters) = drain(&mut *first, 10);
    assert_eq!((ids.len(), letters.len()), (0, 1));
    let again = drain(&mut *reader(&source, &source.splits().unwrap()[0], Some(&first.offset()), None), 10);
    assert_eq!((again.0.len(), again.1.len()), (0, 0));
}

#[test]
fn of_a_damaged_file_what_is_whole_is_read_and_the_rest_is_one_dead_letter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv.gz");
    let source = FilesSource::open(&declared(&path, "CSV", &[], &[])).unwrap();
    write(&path, "1,whole\n2,cut he", Compression::Gzip);
    let bytes = std::fs::read(&path).unwrap();
    // The text is all there, the checksum behind it is not.
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    let split = source.splits().unwrap().remove(0);
    let mut first = reader(&source, &split, None, None);
    let (ids, letters) = drain(&mut *first, 4096);
    assert_eq!((ids, letters.len(), letters[0].payload.as_slice()), (vec![1], 1, &b"2,cut he"[..]));
    assert_eq!(letters[0].offset, "8");
    // Whoever reads on has seen it; whoever reads it anew reads the same.
    assert_eq!(drain(&mut *reader(&source, &split, Some(&first.offset()), None), 10), (vec![], vec![]));
    assert_eq!(drain(&mut *reader(&source, &split, None, Some(&first.offset())), 1).0, [1]);
}

#[test]
fn a_parquet_file_is_read_up_to_where_it_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
    let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let output = Box::new(File::create(&path).unwrap());
    let mut encoder = encoder(Encoding::Parquet(ParquetCompression::Zstd), &rows.schema(), output).unwrap();
    encoder.write(&rows).unwrap();
    encoder.finish().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 2000].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let source = FilesSource::open(&declared(&path, "PARQUET", &[], &[])).unwrap();
    let split = source.splits().unwrap().remove(0);
    let mut whole = reader(&source, &split, None, None);
    let (read, letters) = drain(&mut *whole, 10);
    assert!(read.len() < 100_000 && read == (0..read.len() as i64).collect::<Vec<_>>(), "{}", read.len());
    assert!(letters.len() == 1 && letters[0].reason.starts_with("the file is damaged"), "{letters:?}");
    assert_eq!(drain(&mut *reader(&source, &split, Some(&whole.offset()), None), 10), (vec![], vec![]));
    // The same from elsewhere.
    let from = Offset("1000".to_owned());
    let (rest, _) = drain(&mut *reader(&source, &split, Some(&from), None), 10);
    assert_eq!(rest, read.get(1000..).unwrap_or_default());
}

#[test]
fn a_file_is_open_only_while_it_is_read_and_may_be_gone() {
    let open = |dir: &Path| {
        let links =
            std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|e| e.ok()?.path().read_link().ok());
        links.filter(|to| to.starts_with(dir)).count()
    };
    for (encode, name) in [("CSV", "csv"), ("CSV", "csv.gz"), ("PARQUET", "parquet")] {
        let dir = tempfile::tempdir().unwrap();
        let pattern = dir.path().join(format!("*.{name}"));
        for n in 0..3 {
            std::fs::write(dir.path().join(format!("{n}.{name}")), "1,a\n").unwrap();
        }
        let source = FilesSource::open(&declared(&pattern, encode, &[], &[])).unwrap();
        let splits = source.splits().unwrap();
        let mut readers: Vec<_> = splits.iter().map(|split| reader(&source, split, None, None)).collect();
        assert_eq!((readers.len(), open(dir.path())), (3, 0), "{name}");
        std::fs::remove_file(&splits[2].name).unwrap();
        for reader in &mut readers {
            drain(&mut **reader, 10);
        }
        assert_eq!(open(dir.path()), 0, "{name}");
        assert_eq!(drain(&mut *readers[2], 10), (vec![], vec![]), "{name}");
    }
}

#[test]
fn parquet_goes_on_from_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
    let texts: ArrayRef = Arc::new((0..10_000).map(|i| Some(i.to_string())).collect::<StringArray>());
    let rows = RecordBatch::try_from_iter([("t", texts), ("id", ids)]).unwrap();
    let output = Box::new(File::create(&path).unwrap());
    let mut encoder = encoder(Encoding::Parquet(ParquetCompression::Snappy), &rows.schema(), output).unwrap();
    encoder.write(&rows).unwrap();
    encoder.finish().unwrap();
    let source = FilesSource::open(&declared(&path, "PARQUET", &[], &[])).unwrap();
    let split = source.splits().unwrap().remove(0);
    assert_eq!(drain(&mut *reader(&source, &split, None, None), 10).0, (0..10_000).collect::<Vec<_>>());
    let mut first = reader(&source, &split, None, None);
    let SplitPoll::Rows(rows, _) = first.poll(10, 0).unwrap() else { panic!("rows") };
    let middle = first.offset();
    let (rest, _) = drain(&mut *reader(&source, &split, Some(&middle), None), 10);
    assert_eq!(rest, (rows.num_rows() as i64..10_000).collect::<Vec<_>>());
    let (start, _) = drain(&mut *reader(&source, &split, None, Some(&middle)), 10);
    assert_eq!(start.len() + rest.len(), 10_000);
    assert_eq!(rows.column(1).null_count(), 0);
}

#[test]
fn what_can_not_be_read_is_refused_at_once() {
    let open = |encode, options: &[(&str, &str)], format: &[(&str, &str)]| {
        FilesSource::open(&declared(Path::new("/tmp/x"), encode, options, format)).unwrap_err().to_string()
    };
    assert_eq!(open("AVRO", &[], &[]), "connector \"file\" does not support ENCODE AVRO");
    assert_eq!(
        open("CSV", &[], &[("delimiter", "ab")]),
        "option \"delimiter\" of connector \"file\" is not valid: it is one character, and neither a quote nor an end of line"
    );
    assert_eq!(open("JSON", &[], &[("header", "true")]), "connector \"file\" has no option \"header\"");
    assert_eq!(open("JSON", &[("folow", "true")], &[]), "connector \"file\" has no option \"folow\"");
    let mut source = declared(Path::new("/tmp/x"), "CSV", &[], &[]);
    source.columns[0].data_type = DataType::Null;
    assert!(matches!(FilesSource::open(&source), Err(ConnectorError::Unsupported { .. })));
}
