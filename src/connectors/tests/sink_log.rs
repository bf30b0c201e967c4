//! The sink log: what is sealed is read back, what a crash left behind is not, files go when used.

use super::*;
use arrow::array::RecordBatch;
use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;

const SINK: ObjectId = ObjectId(20_000);

fn batch(range: std::ops::Range<i64>, diff: i64) -> ChangeBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range.clone()));
    let texts: ArrayRef =
        Arc::new(range.clone().map(|n| (n % 3 != 0).then(|| n.to_string())).collect::<StringArray>());
    let rows = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
    ChangeBatch::new(rows, vec![diff; (range.end - range.start) as usize])
}

fn read(log: &SinkLog, handle: &CommitHandle) -> io::Result<Vec<(i64, i64)>> {
    let mut changes = Vec::new();
    for batch in log.read(&SealedPart::of(handle)?)? {
        let (batch, _) = batch?;
        let numbers = batch.column(0).as_primitive::<Int64Type>();
        changes.extend((0..batch.num_rows()).map(|i| (numbers.value(i), batch.diff(i))));
    }
    Ok(changes)
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn epochs_are_read_back_as_they_were_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    assert_eq!(writer.seal(Epoch(1)).unwrap(), None);
    writer.append(&batch(0..10, 1)).unwrap();
    writer.append(&batch(3..5, -1)).unwrap();
    let first = writer.seal(Epoch(2)).unwrap().unwrap();
    assert_eq!(writer.seal(Epoch(3)).unwrap(), None);
    for start in (0..40_000).step_by(4000) {
        writer.append(&batch(start..start + 4000, 1)).unwrap();
    }
    let second = writer.seal(Epoch(4)).unwrap().unwrap();
    assert_eq!((first.epoch, second.epoch, second.actor), (Epoch(2), Epoch(4), 0));

    let expected: Vec<_> = (0..10).map(|n| (n, 1)).chain([(3, -1), (4, -1)]).collect();
    assert_eq!(read(&log, &first).unwrap(), expected);
    assert_eq!(read(&log, &second).unwrap(), (0..40_000).map(|n| (n, 1)).collect::<Vec<_>>());
    assert_eq!(SealedPart::of(&second).unwrap().rows, 40_000);
}

#[test]
fn a_crash_leaves_only_what_was_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(0..5, 1)).unwrap();
    let durable = writer.seal(Epoch(1)).unwrap().unwrap();
    writer.append(&batch(5..9, 1)).unwrap();
    let lost = writer.seal(Epoch(2)).unwrap().unwrap();
    let mut orphan = log.writer(SINK, 1, 1);
    orphan.append(&batch(0..1, 1)).unwrap();
    orphan.seal(Epoch(2)).unwrap();
    std::mem::forget((writer, orphan));

    let again = SinkLog::open(dir.path(), std::slice::from_ref(&durable)).unwrap();
    assert_eq!(files(dir.path()), ["0-1-0.log"]);
    assert_eq!(read(&again, &durable).unwrap(), (0..5).map(|n| (n, 1)).collect::<Vec<_>>());
    // The same actor in the same process goes on in a file of its own.
    let mut writer = again.writer(SINK, 0, 1);
    writer.append(&batch(5..6, 1)).unwrap();
    let next = writer.seal(Epoch(3)).unwrap().unwrap();
    assert_eq!(SealedPart::of(&next).unwrap().file, "0-1-1.log");
    again.committed(&[durable]).unwrap();
    assert_eq!(files(dir.path()), ["0-1-1.log"]);
    assert!(read(&again, &lost).is_err());
}

#[test]
fn a_file_is_removed_when_delivered_and_closed() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(0..5, 1)).unwrap();
    let first = writer.seal(Epoch(1)).unwrap().unwrap();
    log.committed(&[first]).unwrap();
    assert_eq!(files(dir.path()), ["0-1-0.log"], "its writer has it open");
    // More than a file's worth, so that the next checkpoint closes it.
    writer.append(&batch(0..1_200_000, 1)).unwrap();
    let second = writer.seal(Epoch(2)).unwrap().unwrap();
    assert!(log.bytes() >= ROLL_BYTES);
    writer.append(&batch(0..5, 1)).unwrap();
    // It is released: what was appended since goes to another file.
    writer.confirm();
    let third = writer.seal(Epoch(3)).unwrap().unwrap();
    assert_eq!(files(dir.path()), ["0-1-0.log", "0-1-1.log"]);
    log.committed(&[second]).unwrap();
    assert_eq!(files(dir.path()), ["0-1-1.log"]);
    drop(writer);
    log.committed(&[third]).unwrap();
    assert!(files(dir.path()).is_empty());
}

#[test]
fn what_is_not_released_goes_with_the_next_promise() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(0..5, 1)).unwrap();
    let hidden = writer.seal(Epoch(1)).unwrap().unwrap();
    writer.append(&batch(5..7, -1)).unwrap();
    writer.take_back();
    // The dataflow may fail now and be restored from the checkpoint that names it.
    drop(writer);
    assert_eq!(files(dir.path()), ["0-1-0.log"]);
    drop(log);
    let log = SinkLog::open(dir.path(), std::slice::from_ref(&hidden)).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.carry(std::slice::from_ref(&hidden), &|_, changes| Ok(Some(changes))).unwrap();
    let again = writer.seal(Epoch(1)).unwrap().unwrap();
    writer.append(&batch(5..7, -1)).unwrap();
    writer.take_back();
    let whole = writer.seal(Epoch(2)).unwrap().unwrap();
    assert_eq!(read(&log, &whole).unwrap().len(), 7);
    assert_eq!(SealedPart::of(&again).unwrap().file, SealedPart::of(&whole).unwrap().file);
    log.committed(&[whole]).unwrap();
    writer.confirm();
    // The same where the file is as long as a file gets.
    writer.append(&batch(0..1_200_000, 1)).unwrap();
    writer.seal(Epoch(3)).unwrap().unwrap();
    writer.append(&batch(0..FRAME_ROWS as i64 * 2, 1)).unwrap();
    writer.take_back();
    let long = writer.seal(Epoch(4)).unwrap().unwrap();
    assert_eq!(SealedPart::of(&long).unwrap().rows, 1_200_000 + FRAME_ROWS as u64 * 2);
    assert_eq!(files(dir.path()), ["0-1-0.log", "0-1-1.log"]);
    // Nothing promised, nothing taken back.
    writer.confirm();
    assert_eq!(writer.seal(Epoch(5)).unwrap(), None);
    writer.take_back();
    assert_eq!(writer.seal(Epoch(6)).unwrap(), None);
    drop(writer);
    // After a crash the next life's writer starts with it.
    let log = SinkLog::open(dir.path(), std::slice::from_ref(&hidden)).unwrap();
    let mut writer = log.writer(SINK, 0, 2);
    writer.carry(&[hidden], &|_, changes| Ok(Some(changes))).unwrap();
    writer.append(&batch(9..10, 1)).unwrap();
    let carried = writer.seal(Epoch(7)).unwrap().unwrap();
    assert_eq!(read(&log, &carried).unwrap().len(), 6);
}

#[test]
fn what_a_delivered_promise_covers_is_counted_once_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(0..5, 1)).unwrap();
    writer.seal(Epoch(1)).unwrap().unwrap();
    writer.take_back();
    let whole = writer.seal(Epoch(2)).unwrap().unwrap();
    assert_eq!(SealedPart::of(&whole).unwrap().covers, 1);
    writer.confirm();
    writer.append(&batch(5..8, 1)).unwrap();
    let next = writer.seal(Epoch(3)).unwrap().unwrap();
    drop((writer, log));
    // Both are in one file, and none was delivered.
    let promised = [whole, next];
    let log = SinkLog::open(dir.path(), &promised).unwrap();
    let [whole, next] = promised;
    log.committed(&[whole]).unwrap();
    assert_eq!(read(&log, &next).expect("it is still to be delivered").len(), 3);
    log.committed(std::slice::from_ref(&next)).unwrap();
    assert!(files(dir.path()).is_empty());
    let error = read(&log, &next).unwrap_err().to_string();
    assert!(error.contains("0-1-0.log"), "{error}");
}

#[test]
fn damage_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(0..100, 1)).unwrap();
    let handle = writer.seal(Epoch(1)).unwrap().unwrap();
    let path = dir.path().join("0-1-0.log");
    let whole = fs::read(&path).unwrap();
    for at in [8, 12, 20, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(read(&log, &handle).is_err(), "byte {at}");
    }
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    assert!(read(&log, &handle).is_err(), "cut short");
    fs::write(&path, &whole).unwrap();
    assert_eq!(read(&log, &handle).unwrap().len(), 100);
}

#[test]
fn the_name_of_a_file_that_was_delivered_is_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let log = SinkLog::open(dir.path(), &[]).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(0..5, 1)).unwrap();
    let delivered = writer.seal(Epoch(1)).unwrap().unwrap();
    log.committed(std::slice::from_ref(&delivered)).unwrap();
    drop((writer, log));
    assert!(files(dir.path()).is_empty());
    // The dataflow restarts from a checkpoint that still promises it.
    let log = SinkLog::open(dir.path(), std::slice::from_ref(&delivered)).unwrap();
    let mut writer = log.writer(SINK, 0, 1);
    writer.append(&batch(5..9, 1)).unwrap();
    let next = writer.seal(Epoch(2)).unwrap().unwrap();
    // The committer finds that the target has the first.
    log.committed(&[delivered]).unwrap();
    drop(writer);
    assert_eq!(read(&log, &next).unwrap().len(), 4, "it waits for delivery");
}
