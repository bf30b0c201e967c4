//! What every store must do, against an ordered map of its own: the obligations of
//! [`StateStore`], one test each, over random writes.

use super::random::rng;
use super::store::{StateRead, StateStore, WriteOp, WriteRun, full_key, prefix_end};
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use weir_catalog::TableId;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYED: TableId = TableId(7);
const COUNTED: TableId = TableId(TableId::INTERNAL | 7);

/// Opens an empty store, or one that starts with a checkpoint, in the directory (made by itself).
pub type Open = fn(live: &Path, checkpoint: Option<&Path>) -> Box<dyn StateStore>;

/// Runs the whole suite.
pub fn check(open: Open) {
    let mut rng = rng();
    let dir = tempfile::tempdir().unwrap();
    reads_what_was_applied(open, &dir.path().join("a"), &mut rng);
    snapshots_do_not_change(open, &dir.path().join("b"), &mut rng);
    a_checkpoint_holds_what_was_applied(open, &dir.path().join("c"), &mut rng);
    scans_stop_where_asked(open, &dir.path().join("d"));
    ranges_are_removed(open, &dir.path().join("e"), &mut rng);
}

/// A range goes with all that was written to it in its epoch and before; what comes later stays.
fn ranges_are_removed(open: Open, dir: &Path, rng: &mut StdRng) {
    let mut store = open(dir, None);
    let mut model = Model::new();
    for _ in 0..6 {
        let mut runs = random_runs(rng, 300, &mut model);
        let (lower, upper) = (random_key(rng), random_key(rng));
        if lower < upper {
            for (run, table) in runs.iter_mut().zip([KEYED, COUNTED]) {
                run.delete_range(&lower, &upper);
                let range = full_key(table, &lower)..full_key(table, &upper);
                model.retain(|key, _| !range.contains(key));
            }
        }
        apply(&mut *store, &runs);
        let all: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(scan(&*store.snapshot(), &[0], &[u8::MAX; 5]), all);
        for (key, value) in &all {
            assert_eq!(store.snapshot().get(key).unwrap().as_ref(), Some(value));
        }
    }
}

/// Short keys and long ones that share bloom prefixes.
fn random_key(rng: &mut StdRng) -> Vec<u8> {
    let mut key = vec![rng.random_range(0..3)];
    if rng.random() {
        key.extend_from_slice(&[1, 0x80, 0, 0, 0, 0, 0, 0, rng.random_range(0..4)]);
    }
    key.extend((0..rng.random_range(0..4)).map(|_| [0, 1, 255][rng.random_range(0..3)]));
    key
}

fn random_runs(rng: &mut StdRng, writes: usize, model: &mut Model) -> Vec<WriteRun> {
    let mut runs = vec![WriteRun::new(KEYED), WriteRun::new(COUNTED)];
    for _ in 0..writes {
        let key = random_key(rng);
        match rng.random_range(0..3) {
            0 => {
                let value = vec![1, rng.random()];
                runs[0].write(WriteOp::Put, &key, &value);
                model.insert(full_key(KEYED, &key), value);
            }
            1 => {
                runs[0].write(WriteOp::Delete, &key, b"ignored");
                model.remove(&full_key(KEYED, &key));
            }
            _ => {
                let diff: i64 = rng.random_range(-2..=2);
                runs[1].write(WriteOp::AddCount, &key, &diff.to_le_bytes());
                let full = full_key(COUNTED, &key);
                let count =
                    model.get(&full).map_or(0, |v| i64::from_le_bytes(v[..].try_into().unwrap())) + diff;
                if count == 0 {
                    model.remove(&full);
                } else {
                    model.insert(full, count.to_le_bytes().to_vec());
                }
            }
        }
    }
    runs
}

fn apply(store: &mut dyn StateStore, runs: &[WriteRun]) {
    store.apply_all(runs).unwrap();
}

fn scan(state: &dyn StateRead, lower: &[u8], upper: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        seen.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    state.scan(lower, upper, &mut visit).unwrap();
    seen
}

fn compare(state: &dyn StateRead, model: &Model, rng: &mut StdRng) {
    let all: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(scan(state, &[], &[255; 9]), all);
    for _ in 0..100 {
        let table = if rng.random() { KEYED } else { COUNTED };
        let (lower, mut upper) = (full_key(table, &random_key(rng)), full_key(table, &random_key(rng)));
        if rng.random() {
            upper = prefix_end(&lower);
        }
        let expected: Vec<_> = all.iter().filter(|(k, _)| *k >= lower && *k < upper).cloned().collect();
        assert_eq!(scan(state, &lower, &upper), expected, "{lower:?} {upper:?}");
        assert_eq!(state.get(&lower).unwrap().as_ref(), model.get(&lower));
        let keys: Vec<_> = (0..10).map(|_| full_key(table, &random_key(rng))).collect();
        let expected: Vec<_> = keys.iter().map(|k| model.get(k).cloned()).collect();
        assert_eq!(state.multi_get(&keys).unwrap(), expected);
        let mut seen = Vec::new();
        let mut visit = |number: usize, key: &[u8], value: &[u8]| {
            seen.push((number, key.to_vec(), value.to_vec()));
        };
        state.scan_prefixes(&keys, &mut visit).unwrap();
        let mut expected = Vec::new();
        for (number, prefix) in keys.iter().enumerate() {
            let below = all.iter().filter(|(k, _)| k.starts_with(prefix));
            expected.extend(below.map(|(k, v)| (number, k.clone(), v.clone())));
        }
        assert_eq!(seen, expected);
    }
}

fn reads_what_was_applied(open: Open, dir: &Path, rng: &mut StdRng) {
    let mut store = open(dir, None);
    let mut model = Model::new();
    compare(&*store.snapshot(), &model, rng);
    for _ in 0..10 {
        apply(&mut *store, &random_runs(rng, 1000, &mut model));
        compare(&*store.snapshot(), &model, rng);
    }
    store.drop_table(KEYED).unwrap();
    model.retain(|key, _| !key.starts_with(&KEYED.0.to_be_bytes()));
    compare(&*store.snapshot(), &model, rng);
    apply(&mut *store, &random_runs(rng, 100, &mut model));
    compare(&*store.snapshot(), &model, rng);
}

fn snapshots_do_not_change(open: Open, dir: &Path, rng: &mut StdRng) {
    let mut store = open(dir, None);
    let mut model = Model::new();
    let mut snapshots = Vec::new();
    for _ in 0..5 {
        apply(&mut *store, &random_runs(rng, 200, &mut model));
        snapshots.push((store.snapshot(), model.clone()));
    }
    store.drop_table(COUNTED).unwrap();
    drop(store);
    for (snapshot, model) in &snapshots {
        compare(&**snapshot, model, rng);
    }
}

fn a_checkpoint_holds_what_was_applied(open: Open, dir: &Path, rng: &mut StdRng) {
    std::fs::create_dir_all(dir).unwrap();
    let mut store = open(&dir.join("live"), None);
    let mut model = Model::new();
    let mut checkpoints = vec![];
    for round in 0..4 {
        apply(&mut *store, &random_runs(rng, 300, &mut model));
        let checkpoint = dir.join(format!("checkpoint{round}"));
        store.checkpoint(&checkpoint).unwrap();
        checkpoints.push((checkpoint, model.clone()));
    }
    apply(&mut *store, &random_runs(rng, 300, &mut model.clone()));
    drop(store);
    for (checkpoint, model) in checkpoints.iter().rev() {
        // Twice: what a restored store writes does not touch the checkpoint.
        for _ in 0..2 {
            let mut store = open(&dir.join("live"), Some(checkpoint));
            compare(&*store.snapshot(), model, rng);
            let mut after = model.clone();
            apply(&mut *store, &random_runs(rng, 300, &mut after));
            compare(&*store.snapshot(), &after, rng);
            let again = dir.join("again");
            store.checkpoint(&again).unwrap();
            drop(store);
            compare(&*open(&dir.join("live2"), Some(&again)).snapshot(), &after, rng);
            std::fs::remove_dir_all(again).unwrap();
        }
    }
}

fn scans_stop_where_asked(open: Open, dir: &Path) {
    let mut store = open(dir, None);
    let mut run = WriteRun::new(KEYED);
    for i in 0..100u8 {
        run.write(WriteOp::Put, &[0, i], &[1]);
    }
    apply(&mut *store, &[run]);
    let mut seen = 0;
    let snapshot = store.snapshot();
    let stop = |_: &[u8], _: &[u8]| {
        seen += 1;
        if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    snapshot.scan(&full_key(KEYED, &[0]), &full_key(KEYED, &[1]), &mut { stop }).unwrap();
    assert_eq!(seen, 10);
    assert_eq!(scan(&*snapshot, &full_key(KEYED, &[1]), &full_key(KEYED, &[0])), []);
}
