//! Rows held until their window closes: updates before it, NULL times, repeated rows, restores.

use super::*;
use crate::dataflow::operator::OUTPUT_ROWS_MAX;
use crate::operators::script::{check, schema};
use arrow::datatypes::{DataType, TimeUnit};
use weir_catalog::ObjectId;

fn check_script(script: &str, expected: &str) {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let input = schema(&[("k", DataType::Utf8), ("w", time), ("n", DataType::Int64)]);
    let table = ObjectId(20000).internal_table(0);
    check(
        &|| Box::new(EmitOnClose::new(&input, 1, vec![0, 1], table)),
        std::slice::from_ref(&input),
        script,
        expected,
    );
}

#[test]
fn a_window_comes_once_as_it_was_when_it_closed() {
    check_script(
        "+1 a 10 1
         +1 b 10 1
         +1 a 20 5
         barrier
         -1 a 10 1
         +1 a 10 2
         -1 b 10 1
         watermark 1 10
         tick
         -1 a 10 2
         +1 a 10 3
         watermark 1 11
         barrier
         -1 a 20 5
         +1 a 20 6
         watermark 1 30
         barrier
         barrier",
        "barrier
         watermark 1 10
         tick
         +1 a 10 3
         watermark 1 11
         barrier
         +1 a 20 6
         watermark 1 30
         barrier
         barrier",
    );
}

#[test]
fn repeated_rows_count_and_rows_without_a_time_stay() {
    check_script(
        "+2 a 10 1
         +1 NULL 10 NULL
         +1 n NULL 1
         watermark 0 5
         barrier
         watermark 1 9223372036854775807
         barrier
         -1 n NULL 1
         barrier",
        "barrier
         +2 a 10 1
         +1 NULL 10 NULL
         watermark 1 9223372036854775807
         barrier
         barrier",
    );
}

#[test]
fn more_rows_than_the_output_takes_all_come() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let input = schema(&[("w", time)]);
    let table = ObjectId(20000).internal_table(0);
    let mut operator = EmitOnClose::new(&input, 0, vec![0], table);
    let rows = 3 * OUTPUT_ROWS_MAX as i64 + 7;
    let times: ArrayRef = Arc::new(arrow::array::TimestampMicrosecondArray::from_iter_values(0..rows));
    let batch = ChangeBatch::insertions(batch_of(&nullable(&input), vec![times], rows as usize).unwrap());
    let mut out = Output::default();
    operator.on_change(0, batch, &mut out).unwrap();
    operator.on_watermark(0, Watermark { column: 0, time_us: rows - 1 }, &mut out).unwrap();
    let mut seen = 0;
    let mut progress = operator.close(&mut out).unwrap();
    loop {
        for item in out.take() {
            if let crate::dataflow::operator::OutputItem::Changes(batch) = item {
                seen += batch.num_rows() as i64;
            }
        }
        if progress == Progress::Done {
            break;
        }
        progress = operator.resume(&mut out).unwrap();
    }
    assert_eq!((seen, operator.held.len()), (rows - 1, 1));
}
