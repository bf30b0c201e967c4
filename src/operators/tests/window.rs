//! Tumbling and hopping windows: edges, gaps, NULL times, times before 1970, watermarks.

use super::*;
use crate::operators::script::{check, schema};

fn check_windows(kind: WindowKind, script: &str, expected: &str) {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let input = schema(&[("k", DataType::Utf8), ("ts", time.clone())]);
    let output = schema(&[
        ("k", DataType::Utf8),
        ("ts", time.clone()),
        ("window_start", time.clone()),
        ("window_end", time),
    ]);
    check(&|| Box::new(Window::new(kind, 1, output.clone())), &[input], script, expected);
}

#[test]
fn tumbling_windows_are_half_open() {
    check_windows(
        WindowKind::Tumble { size_us: 10, offset_us: 0 },
        "+1 a 0
         -1 a 9
         +2 a 10
         +1 a -1
         +1 a NULL
         +1 NULL 25
         barrier",
        "+1 NULL 25 20 30
         +1 a -1 -10 0
         +1 a 0 0 10
         +2 a 10 10 20
         -1 a 9 0 10
         barrier",
    );
}

#[test]
fn an_offset_moves_the_edges() {
    check_windows(
        WindowKind::Tumble { size_us: 10, offset_us: 3 },
        "+1 a 2
         +1 a 3
         barrier",
        "+1 a 2 -7 3
         +1 a 3 3 13
         barrier",
    );
}

#[test]
fn hopping_windows_overlap() {
    check_windows(
        WindowKind::Hop { size_us: 6, slide_us: 2, offset_us: 0 },
        "+1 a 5
         -1 b 6
         +1 c NULL
         barrier",
        "+1 a 5 0 6
         +1 a 5 2 8
         +1 a 5 4 10
         -1 b 6 2 8
         -1 b 6 4 10
         -1 b 6 6 12
         barrier",
    );
}

#[test]
fn sizes_need_not_be_multiples_and_may_leave_gaps() {
    check_windows(
        WindowKind::Hop { size_us: 5, slide_us: 2, offset_us: 0 },
        "+1 a 5
         +1 b 6
         barrier",
        "+1 a 5 2 7
         +1 a 5 4 9
         +1 b 6 2 7
         +1 b 6 4 9
         +1 b 6 6 11
         barrier",
    );
    check_windows(
        WindowKind::Hop { size_us: 2, slide_us: 5, offset_us: 0 },
        "+1 a 1
         +1 b 2
         barrier",
        "+1 a 1 0 2
         barrier",
    );
}

#[test]
fn watermarks_reach_the_windows_edges() {
    check_windows(
        WindowKind::Tumble { size_us: 10, offset_us: 0 },
        "watermark 1 25
         barrier
         watermark 1 30
         barrier",
        "watermark 1 25
         watermark 2 20
         watermark 3 30
         barrier
         watermark 1 30
         watermark 2 30
         watermark 3 40
         barrier",
    );
    check_windows(
        WindowKind::Hop { size_us: 6, slide_us: 2, offset_us: 0 },
        "watermark 1 5
         barrier",
        "watermark 1 5
         watermark 2 0
         watermark 3 6
         barrier",
    );
}

#[test]
fn streaming_and_batch_assign_the_same_windows() {
    use weir_sql::functions::window::expand;
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let input = schema(&[("ts", time.clone())]);
    let output = schema(&[("ts", time.clone()), ("window_start", time.clone()), ("window_end", time)]);
    let times =
        PrimitiveArray::<TimestampMicrosecondType>::from_iter((-40..40).map(|t| (t % 7 != 0).then_some(t)));
    let rows = arrow::array::RecordBatch::try_new(input, vec![Arc::new(times)]).unwrap();
    for (size_us, slide_us, offset_us) in [(10, 10, 0), (10, 2, 1), (7, 3, -2), (3, 5, 0), (9, 4, 100)] {
        let kind = WindowKind::Hop { size_us, slide_us, offset_us };
        let batch = expand(kind, 0, &rows, output.clone()).unwrap();
        let mut window = Window::new(kind, 0, output.clone());
        let mut out = Output::default();
        window.on_change(0, ChangeBatch::insertions(rows.clone()), &mut out).unwrap();
        let mut parts = crate::stream::ChangeBuilder::new(output.clone());
        for item in out.take() {
            if let crate::dataflow::operator::OutputItem::Changes(part) = item {
                parts.push(part);
            }
        }
        parts.push(ChangeBatch::insertions(batch).negated());
        assert!(parts.consolidate().unwrap().is_empty(), "{kind:?}");
    }
}
