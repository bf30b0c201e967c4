//! What is remembered of checkpoints and recoveries: the last few hundred in memory, and a file of them
//! beside the data, so that the time before a crash can be read after it.
//!
//! ```text
//!   file    one JSON object a line: {"checkpoint": …} | {"recovery": …}; a later line of a checkpoint's
//!           epoch replaces the one before
//! ```
//! It is a record for people: a line that can't be written, or read, is left out.

use super::message::StoredCheckpoint;
use crate::stream::{ActorId, Epoch};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_catalog::system::facts::{
    ActorFact, CheckpointFact, CheckpointParts, CheckpointTotals, RecoveryFact,
};

/// Checkpoints remembered.
const CHECKPOINTS_MAX: usize = 300;
/// Of so many of them, what each actor did.
const WITH_ACTORS_MAX: usize = 16;
/// Recoveries remembered.
const RECOVERIES_MAX: usize = 100;
/// The file is written anew when it has so many lines.
const LINES_MAX: usize = 2000;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Checkpoint(CheckpointFact),
    Recovery(RecoveryFact),
}

/// The memory. The default has no file.
#[derive(Default)]
pub struct History {
    checkpoints: VecDeque<CheckpointFact>,
    recoveries: VecDeque<RecoveryFact>,
    totals: CheckpointTotals,
    file: Option<(PathBuf, File)>,
    lines: usize,
}

impl History {
    /// With what the file `path` has, which is made if there is none.
    pub fn open(path: &Path) -> Self {
        let mut history = History::default();
        // Bytes that are no text spoil their line only.
        let text = std::fs::read(path).unwrap_or_default();
        for line in String::from_utf8_lossy(&text).lines() {
            match serde_json::from_str(line) {
                Ok(Line::Checkpoint(fact)) => history.put(fact),
                Ok(Line::Recovery(fact)) => push(&mut history.recoveries, fact, RECOVERIES_MAX),
                Err(_) => {}
            }
        }
        if let Err(error) = history.rewrite(path) {
            tracing::warn!(path = %path.display(), %error, "the history of checkpoints is not kept");
        }
        history
    }

    /// A checkpoint is triggered: it waits for `actors`.
    pub fn begin(&mut self, epoch: Epoch, now_us: i64, actors: &BTreeSet<ActorId>) {
        let waits = |actor: &ActorId| ActorFact {
            actor: actor.0,
            job: None,
            acknowledged_us: None,
            align_us: 0,
            flush_us: 0,
            seal_us: 0,
        };
        self.put(CheckpointFact {
            epoch: epoch.0,
            kind: "aligned".to_owned(),
            triggered_at_us: now_us,
            status: "pending".to_owned(),
            actors: actors.iter().map(waits).collect(),
            ..CheckpointFact::default()
        });
        if let Some(old) = self.checkpoints.iter_mut().rev().nth(WITH_ACTORS_MAX) {
            old.actors = Vec::new();
        }
    }

    /// An actor acknowledged.
    pub fn acknowledged(&mut self, epoch: Epoch, actor: ActorFact) {
        let Some(fact) = self.find(epoch) else { return };
        let parts = &mut fact.parts;
        if actor.align_us > parts.align_us {
            (parts.align_us, parts.align_job) = (actor.align_us, actor.job);
        }
        parts.flush_us = parts.flush_us.max(actor.flush_us);
        if actor.seal_us > parts.seal_us {
            (parts.seal_us, parts.seal_job) = (actor.seal_us, actor.job);
        }
        if let Some(known) = fact.actors.iter_mut().find(|known| known.actor == actor.actor) {
            *known = actor;
        }
    }

    /// Actors did not wait for its barrier.
    pub fn unaligned(&mut self, epoch: Epoch) {
        if let Some(fact) = self.find(epoch) {
            fact.kind = "unaligned".to_owned();
        }
    }

    /// A savepoint is made of it.
    pub fn savepoint(&mut self, epoch: Epoch) {
        let Some(fact) = self.find(epoch) else { return };
        fact.kind = "savepoint".to_owned();
        let fact = fact.clone();
        self.append(&Line::Checkpoint(fact));
    }

    /// All actors have acknowledged.
    pub fn sealed(&mut self, epoch: Epoch, now_us: i64) {
        if let Some(fact) = self.find(epoch) {
            fact.parts.barrier_us = (now_us - fact.triggered_at_us).max(0) as u64;
        }
    }

    /// A checkpoint's manifest was written.
    pub fn completed(&mut self, epoch: Epoch, now_us: i64, stored: &StoredCheckpoint) {
        self.totals.completed += 1;
        self.totals.consecutive_failures = 0;
        let Some(fact) = self.find(epoch) else { return };
        fact.status = "completed".to_owned();
        fact.duration_us = (now_us - fact.triggered_at_us).max(0) as u64;
        (fact.total_bytes, fact.new_bytes) = (stored.total_bytes, stored.new_bytes);
        let CheckpointParts { barrier_us, align_us, align_job, flush_us, seal_us, seal_job, .. } = fact.parts;
        let of_actors =
            CheckpointParts { barrier_us, align_us, align_job, flush_us, seal_us, seal_job, ..stored.parts };
        fact.parts = of_actors;
        let ms = |us: u64| us as f64 / 1000.0;
        let parts = fact.parts;
        tracing::info!(
            %epoch, kind = fact.kind, ms = ms(fact.duration_us), barrier_ms = ms(parts.barrier_us),
            align_ms = ms(parts.align_us), flush_ms = ms(parts.flush_us), seal_ms = ms(parts.seal_us), encode_ms = ms(parts.encode_us),
            write_ms = ms(parts.write_us), link_ms = ms(parts.link_us), upload_ms = ms(parts.upload_us),
            manifest_ms = ms(parts.manifest_us), entries = parts.entries, files = parts.files,
            bytes = fact.total_bytes, new_bytes = fact.new_bytes, changed_bytes = parts.changed_bytes,
            written_bytes = parts.written_bytes, merged_bytes = parts.merged_bytes, "checkpoint completed"
        );
        let fact = fact.clone();
        self.append(&Line::Checkpoint(fact));
    }

    /// A checkpoint came to nothing.
    pub fn aborted(&mut self, epoch: Epoch, now_us: i64, reason: &str) {
        self.totals.aborted += 1;
        self.totals.consecutive_failures += 1;
        let Some(fact) = self.find(epoch) else { return };
        fact.status = "aborted".to_owned();
        fact.duration_us = (now_us - fact.triggered_at_us).max(0) as u64;
        fact.reason = Some(reason.to_owned());
        let waiting = fact.actors.iter().filter(|actor| actor.acknowledged_us.is_none()).count();
        tracing::warn!(%epoch, reason, waiting_actors = waiting, "checkpoint aborted");
        let fact = fact.clone();
        self.append(&Line::Checkpoint(fact));
    }

    /// Every sink's target has what the checkpoint promised.
    pub fn committed(&mut self, epoch: Epoch, now_us: i64) {
        let Some(fact) = self.find(epoch) else { return };
        let since_us = now_us - fact.triggered_at_us - fact.duration_us as i64;
        fact.parts.commit_us = Some(since_us.max(0) as u64);
        let fact = fact.clone();
        self.append(&Line::Checkpoint(fact));
    }

    /// The dataflow was started, or could not be.
    pub fn recovered(&mut self, fact: RecoveryFact) {
        push(&mut self.recoveries, fact.clone(), RECOVERIES_MAX);
        self.append(&Line::Recovery(fact));
    }

    /// Checkpoints, oldest first.
    pub fn checkpoints(&self) -> Vec<CheckpointFact> {
        self.checkpoints.iter().cloned().collect()
    }

    /// Starts of the dataflow, oldest first.
    pub fn recoveries(&self) -> Vec<RecoveryFact> {
        self.recoveries.iter().cloned().collect()
    }

    /// How checkpoints went in this process.
    pub fn totals(&self) -> CheckpointTotals {
        self.totals
    }

    fn find(&mut self, epoch: Epoch) -> Option<&mut CheckpointFact> {
        self.checkpoints.iter_mut().rev().find(|fact| fact.epoch == epoch.0)
    }

    fn put(&mut self, fact: CheckpointFact) {
        match self.find(Epoch(fact.epoch)) {
            Some(known) => *known = fact,
            None => push(&mut self.checkpoints, fact, CHECKPOINTS_MAX),
        }
    }

    fn append(&mut self, line: &Line) {
        let Some((path, file)) = &mut self.file else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        let path = path.clone();
        let mut written = file.write_all(&text);
        self.lines += 1;
        if written.is_ok() && self.lines > LINES_MAX {
            written = self.rewrite(&path);
        }
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "the history of checkpoints was not written");
        }
    }

    /// Writes the file anew, with what is remembered of what has ended.
    fn rewrite(&mut self, path: &Path) -> std::io::Result<()> {
        let ended = self.checkpoints.iter().filter(|fact| fact.status != "pending");
        let checkpoints = ended.cloned().map(Line::Checkpoint);
        let mut text = Vec::new();
        self.lines = 0;
        for line in checkpoints.chain(self.recoveries.iter().cloned().map(Line::Recovery)) {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
            self.lines += 1;
        }
        let next = path.with_extension("next");
        std::fs::write(&next, text)?;
        std::fs::rename(&next, path)?;
        self.file = Some((path.to_owned(), File::options().append(true).open(path)?));
        Ok(())
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
#[path = "tests/history.rs"]
mod tests;
