//! Tests of the writer: order, publication, checkpoints, and what a failed write leaves.

use super::super::memory::MemoryStore;
use super::super::store::{WriteOp, full_key};
use super::*;
use std::path::Path;

const TABLE: TableId = TableId(1);

fn sealed(epoch: u64, key: u8) -> SealedEpoch {
    let mut run = WriteRun::new(TABLE);
    run.write(WriteOp::Put, &[0, key], &[1, key]);
    SealedEpoch {
        epoch: Epoch(epoch),
        dml_position: epoch,
        visible: true,
        runs: vec![run].into(),
        drop_tables: vec![],
        checkpoint: None,
    }
}

fn has(published: &Published, key: u8) -> bool {
    published.state.get(&full_key(TABLE, &[0, key])).unwrap().is_some()
}

#[tokio::test]
async fn epochs_are_published_whole_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let handle = ApplyHandle::start(Box::new(MemoryStore::new()), Epoch(3), 3, RunPool::default()).unwrap();
    let first = handle.published();
    assert_eq!((first.epoch, first.dml_position), (Epoch(3), 3));
    let mut watch = handle.watch();
    watch.borrow_and_update();

    let checkpoint = dir.path().join("4");
    let reply = handle.submit(SealedEpoch { checkpoint: Some(checkpoint.clone()), ..sealed(4, 1) }).await;
    let applied = reply.await.unwrap().unwrap();
    assert_eq!(applied.entries, 1);
    watch.changed().await.unwrap();
    let fourth = watch.borrow_and_update().clone();
    assert!(has(&fourth, 1) && !has(&first, 1));

    let reply = handle.submit(SealedEpoch { drop_tables: vec![TABLE], ..sealed(9, 2) }).await;
    reply.await.unwrap().unwrap();
    let ninth = handle.published();
    assert_eq!((ninth.epoch, ninth.dml_position), (Epoch(9), 9));
    assert!(!has(&ninth, 1) && !has(&ninth, 2) && has(&fourth, 1));
    let restored = MemoryStore::restore(&checkpoint).unwrap();
    assert_eq!(restored.len(), 1);
}

#[tokio::test]
async fn what_was_submitted_is_applied_before_the_thread_ends() {
    let handle =
        ApplyHandle::start(Box::new(MemoryStore::new()), Epoch::ZERO, 0, RunPool::default()).unwrap();
    let mut replies = Vec::new();
    for epoch in 1..=3 {
        replies.push(handle.submit(sealed(epoch, epoch as u8)).await);
    }
    let watch = handle.watch();
    drop(handle);
    for reply in replies {
        reply.await.unwrap().unwrap();
    }
    assert!(has(&watch.borrow(), 3));
}

/// Fails at its second write.
struct Failing(MemoryStore, usize);

impl StateStore for Failing {
    fn apply(&mut self, run: &WriteRun) -> Result<(), StateError> {
        self.1 += 1;
        if self.1 == 2 {
            return Err(StateError::Store("no space left".to_owned()));
        }
        self.0.apply(run);
        Ok(())
    }
    fn drop_table(&mut self, _: TableId) -> Result<(), StateError> {
        Ok(())
    }
    fn snapshot(&self) -> Arc<dyn StateRead> {
        self.0.snapshot()
    }
    fn checkpoint(&self, dir: &Path) -> Result<(), StateError> {
        self.0.checkpoint(dir)
    }
}

#[tokio::test]
async fn after_a_failed_write_nothing_is_published() {
    let handle =
        ApplyHandle::start(Box::new(Failing(MemoryStore::new(), 0)), Epoch::ZERO, 0, RunPool::default())
            .unwrap();
    // A failed checkpoint is no failed write.
    let nowhere = Some(PathBuf::from("/nonexistent/checkpoint"));
    assert!(handle.submit(SealedEpoch { checkpoint: nowhere, ..sealed(1, 1) }).await.await.unwrap().is_err());
    assert!(has(&handle.published(), 1));
    assert!(handle.submit(sealed(2, 2)).await.await.unwrap().is_err());
    let error = handle.submit(sealed(3, 3)).await.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(handle.published().epoch, Epoch(1));
}

#[test]
fn a_thread_is_called_back_visible_first_then_done() {
    let (told, events) = std::sync::mpsc::channel();
    let visible = told.clone();
    let on_published = Box::new(move |p: &Published| visible.send(format!("visible {}", p.epoch)).unwrap());
    let handle = ApplyHandle::start_with(
        Box::new(MemoryStore::new()),
        Epoch::ZERO,
        0,
        RunPool::default(),
        on_published,
    )
    .unwrap();
    for epoch in 1..=2 {
        let done = told.clone();
        assert!(
            handle.submit_blocking(sealed(epoch, 1), move |r| done
                .send(format!("done {}", r.is_ok()))
                .unwrap())
        );
    }
    let events: Vec<_> = events.iter().take(4).collect();
    assert_eq!(events, ["visible 1", "done true", "visible 2", "done true"]);
}
