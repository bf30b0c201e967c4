//! JSON lines: coercion, keys in any order, bad lines, nesting.

use super::*;
use crate::formats::csv::tests::columns;
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use std::sync::Arc;

fn decode(declared: &[Column], wanted: &[usize], text: &[u8]) -> (Vec<String>, Vec<(usize, String)>) {
    let mut decoder = JsonDecoder::new(declared, wanted).unwrap();
    let decoded = decoder.decode(text, true, usize::MAX).unwrap();
    assert_eq!(decoded.consumed, text.len());
    let value = |column: usize, row: usize| {
        crate::formats::text::to_text(decoded.rows.column(column), row).unwrap_or("NULL".into())
    };
    let row = |row| (0..wanted.len()).map(|column| value(column, row)).collect::<Vec<_>>().join("|");
    let rows = (0..decoded.rows.num_rows()).map(row).collect();
    (rows, decoded.bad.into_iter().map(|b| (b.at, b.reason)).collect())
}

fn bid() -> Vec<Column> {
    columns(&[
        ("auction", DataType::Int64),
        ("datetime", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("extra", DataType::Utf8),
    ])
}

#[test]
fn keys_are_found_in_any_order_and_case() {
    let text = br#"{"auction":1,"dateTime":"2015-07-15 00:00:00.04","extra":"a"}
{"extra":"b","auction":2,"other":[1,{"x":"]"}],"datetime":1436918400000}

 { "EXTRA" : null , "auction" : "3" }
{}
{"auction":4,"auction":5,"\u0065xtra":"c\n\u00e9\ud83d\ude00\""}"#;
    let (rows, bad) = decode(&bid(), &[0, 1, 2], text);
    assert_eq!(bad, []);
    assert_eq!(
        rows,
        [
            "1|2015-07-15 00:00:00.04|a",
            "2|2015-07-15 00:00:00|b",
            "3|NULL|NULL",
            "NULL|NULL|NULL",
            "5|NULL|c\né😀\""
        ]
    );
    assert_eq!(decode(&bid(), &[2], text).0, ["a", "b", "NULL", "NULL", "c\né😀\""]);
    assert_eq!(decode(&bid(), &[], text).0, [""; 5]);
}

#[test]
fn bad_lines_are_kept_and_the_rest_goes_on() {
    let lines: [(&[u8], &str); 14] = [
        (br#"not json"#, "\"not json\" where an object should be"),
        (br#"{"auction":1.5}"#, "column \"auction\": \"1.5\" is no bigint"),
        (br#"{"auction":"x"}"#, "column \"auction\": \"x\" is no bigint"),
        (br#"{"auction":99999999999999999999}"#, "column \"auction\": \"99999999999999999999\" is no bigint"),
        (br#"{"auction":1"#, "\"\" where a comma or the end of the object should be"),
        (br#"{"auction":1,}"#, "\"}\" where a key should be"),
        (br#"{"auction":1} x"#, "\"x\" where the end of the line should be"),
        (br#"{"auction":}"#, "column \"auction\": \"}\" where a value should be"),
        (br#"{"other":tru}"#, "\"tru}\" where a value should be"),
        (br#"{"other":[1,2}"#, "\"}\" where a comma or the end should be"),
        (br#"{"extra":"open}"#, "column \"extra\": a string is not closed"),
        (br#"{"extra":"\q"}"#, "column \"extra\": \"\\q\" where a string should be"),
        (br#"[1]"#, "\"[1]\" where an object should be"),
        (b"{\"extra\":\"\xff\"}", "it is not UTF-8"),
    ];
    let mut text = Vec::new();
    for (line, _) in lines {
        text.extend_from_slice(line);
        text.extend_from_slice(b"\n{\"auction\":7}\n");
    }
    let (rows, bad) = decode(&bid(), &[0, 1, 2], &text);
    assert_eq!(rows, vec!["7|NULL|NULL"; lines.len()]);
    let reasons: Vec<_> = bad.iter().map(|b| b.1.as_str()).collect();
    assert_eq!(reasons, lines.map(|l| l.1));
    assert_eq!(bad[1].0, lines[0].0.len() + 1 + "{\"auction\":7}\n".len());
}

#[test]
fn nested_values_and_raw_json() {
    let fields =
        Fields::from(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)]);
    let mut declared = columns(&[
        ("list", DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))),
        ("row", DataType::Struct(fields)),
        ("doc", DataType::Utf8),
        ("text", DataType::Utf8),
    ]);
    declared[2].sql_type = "jsonb".into();
    let text = br#"{"list":[1,null,3],"row":{"B":"x","a":2},"doc":{"k":[1]},"text":{"k":1}}
{"list":[],"row":{},"doc":"s","text":12.50}
{"list":[1,"x"],"row":null}
{"list":null,"row":{"a":1,"a":2},"doc":null,"text":true}"#;
    let (rows, bad) = decode(&declared, &[0, 1, 2, 3], text);
    assert_eq!(
        rows,
        ["{1,NULL,3}|(2,x)|{\"k\": [1]}|{\"k\":1}", "{}|(,)|\"s\"|12.50", "NULL|(2,)|NULL|true"]
    );
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].1, "column \"list\": \"x\" is no bigint");

    // Neither a jsonb nor a text holds a zero.
    let (rows, bad) = decode(
        &declared,
        &[2, 3],
        br#"{"doc":{"k\u0000":1}}
{"text":"\u0000"}
{"doc":"\\u0000","text":"\\u0000"}"#,
    );
    assert_eq!((rows.len(), bad.len()), (1, 2), "{rows:?} {bad:?}");
}

#[test]
fn depth_is_bounded_and_blocks_end_anywhere() {
    let deep = format!("{{\"other\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(decode(&bid(), &[0], deep.as_bytes()).1[0].1, "it is nested too deep");

    let text = b"{\"auction\":1}\n{\"auction\":2}\n";
    let mut decoder = JsonDecoder::new(&bid(), &[0]).unwrap();
    for end in 0..text.len() {
        let decoded = decoder.decode(&text[..end], false, 10).unwrap();
        let whole = if end >= 14 { 1 } else { 0 };
        assert_eq!((decoded.rows.num_rows(), decoded.consumed), (whole, whole * 14), "{end}");
    }
}
