//! Generated rows: replay, ends, types and options.

use super::*;
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use weir_catalog::Column;
use weir_catalog::source::FormatSpec;

fn column(name: &str, data_type: DataType) -> Column {
    Column { name: name.into(), sql_type: data_type.to_string(), data_type, nullable: true, default: None }
}

fn open(columns: Vec<Column>, options: &[(&str, &str)]) -> Result<Datagen, ConnectorError> {
    Datagen::open(&source::Source {
        columns,
        primary_key: None,
        connector: NAME.into(),
        options: options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        format: FormatSpec::default(),
        watermark: None,
    })
}

fn read(
    datagen: &Datagen,
    split: &str,
    from: Option<&Offset>,
    columns: &[usize],
    rows_max: usize,
) -> Vec<RecordBatch> {
    let split = Split { name: split.into() };
    let mut reader = datagen.reader(&split, from, None, columns, Arc::new(|| {})).unwrap();
    let mut batches = Vec::new();
    while let SplitPoll::Rows(batch, _) = reader.poll(rows_max, 0).unwrap() {
        batches.push(batch);
    }
    batches
}

fn whole(batches: &[RecordBatch]) -> RecordBatch {
    arrow::compute::concat_batches(&batches[0].schema(), batches).unwrap()
}

#[test]
fn a_sequence_ends_the_stream_and_splits_share_it() {
    let columns = || vec![column("id", DataType::Int64), column("v", DataType::Int32)];
    let options =
        [("fields.id.kind", "sequence"), ("fields.id.start", "5"), ("fields.id.end", "504"), ("rate", "0")];
    let one = open(columns(), &options).unwrap();
    let rows = whole(&read(&one, "0", None, &[0, 1], 99));
    let ids: Vec<i64> = (5..505).collect();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &ids);

    let three = open(columns(), &[&options[..], &[("splits", "3")]].concat()).unwrap();
    let mut found: Vec<i64> = ["0", "1", "2"]
        .iter()
        .flat_map(|split| {
            whole(&read(&three, split, None, &[0], 50))
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, ids);
}

#[test]
fn reading_goes_on_from_an_offset() {
    let datagen =
        open(vec![column("v", DataType::Utf8)], &[("rows", "300"), ("rate", "0"), ("splits", "2")]).unwrap();
    let rows = whole(&read(&datagen, "1", None, &[0], 1000));
    let mut reader = datagen.reader(&Split { name: "1".into() }, None, None, &[0], Arc::new(|| {})).unwrap();
    let SplitPoll::Rows(first, _) = reader.poll(70, 0).unwrap() else { panic!("rows") };
    let rest = whole(&read(&datagen, "1", Some(&reader.offset()), &[0], 13));
    assert_eq!((first.num_rows(), rest), (70, rows.slice(70, rows.num_rows() - 70)));
}

#[test]
fn every_type_is_generated_within_its_bounds() {
    let types = [
        DataType::Boolean,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(10, 2),
        DataType::Utf8,
        DataType::Date32,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
    ];
    let columns = types.iter().enumerate().map(|(i, t)| column(&format!("c{i}"), t.clone())).collect();
    let options = [("rows", "1000"), ("rate", "0"), ("fields.c3.min", "-3"), ("fields.c3.max", "3")];
    let datagen = open(columns, &[&options[..], &[("fields.c7.null_rate", "0.5")]].concat()).unwrap();
    let rows = whole(&read(&datagen, "0", None, &(0..types.len()).collect::<Vec<_>>(), 1000));
    let mut whole_numbers = rows.column(3).as_primitive::<Int64Type>().values().to_vec();
    whole_numbers.sort_unstable();
    whole_numbers.dedup();
    assert_eq!(whole_numbers, [-3, -2, -1, 0, 1, 2, 3]);
    assert!((400..600).contains(&rows.column(7).null_count()));
    assert_eq!(rows.column(6).null_count(), 0);
}

#[test]
fn options_of_no_column_and_of_no_use_are_refused() {
    let message =
        |options: &[(&str, &str)]| open(vec![column("v", DataType::Int32)], options).unwrap_err().to_string();
    assert_eq!(
        message(&[("fields.w.kind", "random")]),
        "connector \"datagen\" has no option \"fields.w.kind\""
    );
    assert_eq!(
        message(&[("fields.v.colour", "red")]),
        "connector \"datagen\" has no option \"fields.v.colour\""
    );
    assert_eq!(
        message(&[("fields.v.min", "5"), ("fields.v.max", "4")]),
        "option \"fields.v.max\" of connector \"datagen\" is not valid: it is below min"
    );
}
