//! What the state store costs: the micro-benchmarks behind `weir bench-state`.
//!
//! Rows of a bigint key and 64 bytes of text are sealed, applied (few writes go through the memtable,
//! many as a file of their own), read by key, by prefix and in order, put into a checkpoint, and
//! restored from it. Each figure is what one row, or one call, took by the wall clock.

use super::StateError;
use super::rocks::{RocksMemory, RocksStore};
use super::store::{StateRead, StateStore, WriteRun, full_key};
use super::table::{StateTable, TableLayout};
use crate::stream::ChangeBatch;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_catalog::TableId;
use weir_catalog::relation::RowKey;

/// Rows written at a time by what goes through the memtable.
const BATCH_ROWS: usize = 4096;
/// Keys asked for at a time.
const ASKED: usize = 4096;
/// Row numbers are spread over the keys by this odd factor, so that writes come in no order.
const SPREAD: i64 = 0x5851_f42d_4c95_7f2d;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was done.
    pub what: &'static str,
    /// How often: rows, keys or calls.
    pub count: usize,
    /// What all of it took.
    pub seconds: f64,
    /// What one took, in microseconds.
    pub each_us: f64,
}

/// Something to do with some keys.
type Work<'a> = &'a mut dyn FnMut(&[Vec<u8>]) -> Result<(), StateError>;

fn figure(what: &'static str, count: usize, elapsed: Duration) -> Figure {
    let seconds = elapsed.as_secs_f64();
    Figure { what, count, seconds, each_us: seconds * 1e6 / count.max(1) as f64 }
}

/// Runs all of them over `rows` rows, in `dir`, an empty directory.
pub fn run(dir: &Path, rows: usize) -> Result<Vec<Figure>, StateError> {
    let memory = RocksMemory::new(256 << 20, 64 << 20);
    let mut store = RocksStore::create(&dir.join("live"), &memory)?;
    let mut table = StateTable::new(Arc::new(layout()));
    let mut figures = Vec::new();

    let started = Instant::now();
    let runs = sealed(&mut table, 0..rows)?;
    figures.push(figure("seal (encode a row)", rows, started.elapsed()));
    let started = Instant::now();
    store.apply_all(&runs)?;
    figures.push(figure("put, many (sorted file)", rows, started.elapsed()));
    drop(runs);

    let few = (rows / 10).max(1);
    let mut spent = Duration::ZERO;
    for from in (0..few).step_by(BATCH_ROWS) {
        let runs = sealed(&mut table, from..few.min(from + BATCH_ROWS))?;
        let started = Instant::now();
        store.apply_all(&runs)?;
        spent += started.elapsed();
    }
    figures.push(figure("put, few (memtable)", few, spent));

    let checkpoint = dir.join("checkpoint");
    let started = Instant::now();
    store.checkpoint(&checkpoint)?;
    figures.push(figure("checkpoint after these", 1, started.elapsed()));
    let started = Instant::now();
    store.checkpoint(&dir.join("idle"))?;
    figures.push(figure("checkpoint, idle", 1, started.elapsed()));

    read(&*store.snapshot(), table.layout(), rows, &mut figures)?;
    drop(store);
    let started = Instant::now();
    drop(RocksStore::restore(&checkpoint, &dir.join("restored"), &memory)?);
    figures.push(figure("restore (link, open)", 1, started.elapsed()));
    Ok(figures)
}

fn read(
    state: &dyn StateRead,
    layout: &TableLayout,
    rows: usize,
    figures: &mut Vec<Figure>,
) -> Result<(), StateError> {
    let asked = (rows / 10).max(1);
    let keys_at = |from: usize, shift: i64| -> Result<Vec<Vec<u8>>, StateError> {
        let batch = batch(from..asked.min(from + ASKED), shift)?;
        let mut keys: Vec<Vec<u8>> = layout.keys(&batch).iter().map(|key| full_key(layout.id, key)).collect();
        keys.sort_unstable();
        Ok(keys)
    };
    let timed = |what, work: Work<'_>, shift| {
        let mut spent = Duration::ZERO;
        for from in (0..asked).step_by(ASKED) {
            let keys = keys_at(from, shift)?;
            let started = Instant::now();
            work(&keys)?;
            spent += started.elapsed();
        }
        Ok::<_, StateError>(figure(what, asked, spent))
    };
    let mut by_key = |keys: &[Vec<u8>]| state.multi_get(keys).map(drop);
    figures.push(timed("get, sorted keys at once", &mut by_key, 0)?);
    figures.push(timed("get, keys that are not there", &mut by_key, 1)?);
    let mut by_prefix = |keys: &[Vec<u8>]| state.scan_prefixes(keys, &mut |_, _, _| {});
    figures.push(timed("read through, by prefix", &mut by_prefix, 0)?);
    figures.push(timed("read through, nothing there", &mut by_prefix, 1)?);
    let range = layout.whole_range();
    let started = Instant::now();
    let mut seen = 0;
    state.scan(&range.lower, &range.upper, &mut |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    })?;
    figures.push(figure("scan in order", seen, started.elapsed()));
    Ok(())
}

fn sealed(table: &mut StateTable, rows: std::ops::Range<usize>) -> Result<Vec<WriteRun>, StateError> {
    let mut runs = Vec::new();
    for from in rows.clone().step_by(BATCH_ROWS) {
        table.write(&ChangeBatch::insertions(batch(from..rows.end.min(from + BATCH_ROWS), 0)?));
        if table.memory() > 256 << 20 {
            runs.push(table.seal());
        }
    }
    runs.push(table.seal());
    Ok(runs)
}

fn layout() -> TableLayout {
    TableLayout::relation(TableId(1 << 20), schema(), &RowKey::Columns(vec![0]))
}

fn schema() -> Arc<Schema> {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    Arc::new(Schema::new(vec![field("key", DataType::Int64), field("value", DataType::Utf8)]))
}

/// Rows with keys in no order; even keys exist, with `shift` 1 they are the odd ones between.
fn batch(rows: std::ops::Range<usize>, shift: i64) -> Result<RecordBatch, StateError> {
    let key = |row: usize| (row as i64).wrapping_mul(SPREAD) & !1 | shift;
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(key)));
    let text = |row: usize| {
        format!("{:064x}", (row as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
    };
    let values: ArrayRef = Arc::new(StringArray::from_iter_values(rows.map(text)));
    RecordBatch::try_new(schema(), vec![keys, values]).map_err(|e| StateError::Decode(e.to_string()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_figure_is_taken_and_the_scan_sees_every_row() {
        let dir = tempfile::tempdir().unwrap();
        let figures = super::run(&dir.path().join("bench"), 10_000).unwrap();
        assert_eq!(figures.len(), 11);
        let scan = figures.iter().find(|figure| figure.what == "scan in order").unwrap();
        assert_eq!(scan.count, 10_000);
    }
}
