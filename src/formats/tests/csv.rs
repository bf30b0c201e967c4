//! CSV: quoting, NULLs, bad records, and blocks cut anywhere.

use super::*;
use crate::formats::decode::BadRecord;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type};

pub(crate) fn columns(types: &[(&str, DataType)]) -> Vec<Column> {
    let column = |(name, data_type): &(&str, DataType)| Column {
        name: (*name).into(),
        data_type: data_type.clone(),
        sql_type: data_type.to_string(),
        nullable: !name.starts_with("nn"),
        default: None,
    };
    types.iter().map(column).collect()
}

fn decode(declared: &[Column], wanted: &[usize], text: &[u8]) -> (Vec<String>, Vec<BadRecord>) {
    let mut decoder = CsvDecoder::new(declared, wanted, b',').unwrap();
    let decoded = decoder.decode(text, true, usize::MAX).unwrap();
    assert_eq!(decoded.consumed, text.len());
    (show(&decoded), decoded.bad)
}

fn show(decoded: &Decoded) -> Vec<String> {
    let value = |column: usize, row: usize| {
        crate::formats::text::to_text(decoded.rows.column(column), row).unwrap_or("NULL".into())
    };
    let columns = decoded.rows.num_columns();
    let row = |row| (0..columns).map(|column| value(column, row)).collect::<Vec<_>>().join("|");
    (0..decoded.rows.num_rows()).map(row).collect()
}

fn bid() -> Vec<Column> {
    columns(&[("a", DataType::Int64), ("t", DataType::Utf8), ("b", DataType::Boolean)])
}

#[test]
fn fields_are_read_as_copy_reads_them() {
    let text = b"1,plain,t\r\n2,\"a \"\"b\"\",\n c\",f\n\n3,,\n4,\"\",true\n\"5\",\" x \",0";
    let (rows, bad) = decode(&bid(), &[0, 1, 2], text);
    assert_eq!(rows, ["1|plain|t", "2|a \"b\",\n c|f", "3|NULL|NULL", "4||t", "5| x |f"]);
    assert_eq!(bad, []);
    assert_eq!(decode(&bid(), &[1], text).0, ["plain", "a \"b\",\n c", "NULL", "", " x "]);
    assert_eq!(decode(&bid(), &[], text).0, [""; 5]);
    assert_eq!(decode(&bid(), &[0], b"").0, [""; 0]);
}

#[test]
fn bad_records_are_kept_and_the_rest_goes_on() {
    let text = b"1,a,t\nx,b,t\n2,c\n3,d,t,more\n4,e,maybe\n5,\"f\"g,t\n6,h,t\n\xff,i,t\n7,\"open\n8,j,t\n";
    let (rows, bad) = decode(&bid(), &[0, 1, 2], text);
    assert_eq!(rows, ["1|a|t", "6|h|t"]);
    let reasons: Vec<_> = bad.iter().map(|b| (b.at, b.reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            (6, "column \"a\": \"x\" is no bigint"),
            (12, "it has 2 fields, not 3"),
            (16, "it has 4 fields, not 3"),
            (27, "column \"b\": \"maybe\" is no boolean"),
            (37, "a quoted field is followed by text"),
            (52, "column \"a\": \"\u{fffd}\" is no bigint"),
            (58, "a quote is not closed"),
        ]
    );
    assert_eq!(
        (bad[1].payload.as_slice(), bad[6].payload.as_slice()),
        (&b"2,c"[..], &b"7,\"open\n8,j,t"[..])
    );
}

#[test]
fn text_that_is_not_utf8_is_bad_by_record() {
    let (rows, bad) = decode(&bid(), &[1], b"1,a,t\n2,\xff,t\n3,\xc3\xa9,t\n");
    assert_eq!(
        (rows, bad.len(), bad[0].reason.as_str()),
        (vec!["a".into(), "é".into()], 1, "it is not UTF-8")
    );
    // PostgreSQL's text has no zero byte either.
    let (rows, bad) = decode(&bid(), &[1], b"1,a,t\n2,x\0y,t\n3,b,t\n");
    assert_eq!(
        (rows, bad.len(), bad[0].reason.as_str()),
        (vec!["a".into(), "b".into()], 1, "it has a zero byte")
    );
}

#[test]
fn nulls_where_none_may_be_are_bad() {
    let declared = columns(&[("nn", DataType::Int64), ("t", DataType::Utf8)]);
    let (rows, bad) = decode(&declared, &[0, 1], b"1,a\n,b\n");
    assert_eq!((rows, bad.len()), (vec!["1|a".to_owned()], 1));
    assert_eq!(bad[0].reason, "null value in column \"nn\" violates not-null constraint");
}

#[test]
fn blocks_may_end_anywhere() {
    let text = b"1,plain,t\r\n22,\"a \"\"b\"\",\n c\",f\n333,\"x\",t\nbad,\"\"\"\",t\n4,\"y\"\r\n5,z,t\n";
    let (rows, bad) = decode(&bid(), &[0, 1, 2], text);
    assert_eq!((rows.len(), bad.len()), (4, 2));
    for size in 1..text.len() {
        let mut decoder = CsvDecoder::new(&bid(), &[0, 1, 2], b',').unwrap();
        let (mut found, mut found_bad) = (Vec::new(), Vec::new());
        let (mut at, mut end) = (0, size);
        while at < text.len() {
            let decoded = decoder.decode(&text[at..end], end == text.len(), 2).unwrap();
            found.extend(show(&decoded));
            found_bad.extend(decoded.bad.iter().map(|b| BadRecord { at: b.at + at, ..b.clone() }));
            at += decoded.consumed;
            end = (end + size).min(text.len());
        }
        assert_eq!((&found, &found_bad), (&rows, &bad), "blocks of {size}");
    }
}

#[test]
fn other_delimiters_and_many_rows() {
    let mut decoder = CsvDecoder::new(&bid(), &[0], b'\t').unwrap();
    let text: String = (0..1000).map(|i| format!("{i}\ta,b\tt\n")).collect();
    let decoded = decoder.decode(text.as_bytes(), true, 10).unwrap();
    assert_eq!(decoded.rows.column(0).as_primitive::<Int64Type>().values(), &(0..10).collect::<Vec<i64>>());
    assert_eq!(decoded.rows.column(0).null_count(), 0);
    let rest = decoder.decode(&text.as_bytes()[decoded.consumed..], true, usize::MAX).unwrap();
    assert_eq!(rest.rows.num_rows(), 990);
}

#[test]
fn a_header_tells_where_the_columns_are() {
    let declared = columns(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    let mut decoder = CsvDecoder::new(&declared, &[0, 1], b',').unwrap();
    decoder.header(b"\"Name\", more ,ID\r\n").unwrap();
    let decoded = decoder.decode(b"x,?,7\n,,8\n1,2\n", true, 10).unwrap();
    let text = arrow::util::pretty::pretty_format_batches(&[decoded.rows]).unwrap().to_string();
    assert!(text.contains("| 7  | x    |") && text.contains("| 8  |      |"), "{text}");
    assert_eq!(decoded.bad[0].reason, "it has 2 fields, not 3");
    // What is pruned has its place all the same.
    let mut pruned = CsvDecoder::new(&declared, &[0], b',').unwrap();
    pruned.header(b"name,id").unwrap();
    let decoded = pruned.decode(b"x,7\n", true, 10).unwrap();
    assert_eq!((decoded.rows.num_columns(), decoded.rows.num_rows()), (1, 1));
}

#[test]
fn a_header_without_a_column_makes_every_record_bad() {
    let declared = columns(&[("id", DataType::Int64), ("name", DataType::Utf8)]);
    let mut decoder = CsvDecoder::new(&declared, &[0], b';').unwrap();
    let reason = "column \"name\" is not in the header, which has id, nme";
    assert_eq!(decoder.header(b"id;nme"), Err(reason.to_owned()));
    let decoded = decoder.decode(b"1;x\n2;y\n", true, 10).unwrap();
    let reasons: Vec<&str> = decoded.bad.iter().map(|b| b.reason.as_str()).collect();
    assert_eq!((decoded.rows.num_rows(), reasons), (0, vec![reason, reason]));
    assert_eq!(
        decoder.header(b"id;id;name"),
        Err("column \"id\" is in the header more than once".to_owned())
    );
}

#[test]
fn the_first_record_may_hold_ends_of_lines() {
    assert_eq!(first_record(b"a,b\nc"), Some(4));
    assert_eq!(first_record(b"\"a\n\",b\nc"), Some(7));
    assert_eq!(first_record(b"a,b"), None);
}
