//! What a running dataflow tells of itself: its jobs, what was read, failed and kept in memory.

use super::running::{Running, RunningJob};
use crate::dataflow::room::Room;
use crate::dataflow::worker::Worker;
use crate::operators::source::SourceCounts;
use std::sync::atomic::Ordering;
use weir_catalog::system::facts::JobFact;
use weir_catalog::{JobId, ObjectId};

impl Running {
    /// Jobs as they run now.
    pub fn job_facts(&self) -> Vec<JobFact> {
        let filling = self.ground.shown.filling.borrow().clone();
        let entries = self.shared.state_entries.lock().clone();
        let jobs = self.jobs.lock();
        jobs.iter()
            .map(|(id, job)| {
                let fills = filling.get(id);
                JobFact {
                    id: *id,
                    status: if fills.is_some() { "creating" } else { "running" }.to_owned(),
                    backfilled_rows: fills.map_or(0, |f| f.rows),
                    backfill_total_rows: None,
                    parallelism: job.parallelism,
                    actors: job.actors.len(),
                    state_entries: job.actors.iter().filter_map(|actor| entries.get(actor)).sum(),
                }
            })
            .collect()
    }

    /// What was read of each source since its shared reader started; and of tables, late rows.
    pub fn source_counts(&self) -> Vec<(ObjectId, SourceCounts)> {
        let jobs = self.jobs.lock();
        let counts = |job: &RunningJob| match (&job.source, job.late_rows.load(Ordering::Relaxed)) {
            (Some((_, shared)), _) => Some(shared.counts()),
            (None, 0) => None,
            (None, late) => Some(SourceCounts { late, ..SourceCounts::default() }),
        };
        jobs.iter().filter_map(|(id, job)| Some((*id, counts(job)?))).collect()
    }

    /// Rows of which an expression failed, by job.
    pub fn expression_errors(&self) -> Vec<(JobId, u64)> {
        let jobs = self.jobs.lock();
        jobs.iter().map(|(id, job)| (*id, job.errors.load(Ordering::Relaxed))).collect()
    }

    /// Bytes that operators hold, as of the last look.
    pub fn memory(&self) -> usize {
        self.workers.iter().map(Worker::memory).sum()
    }

    /// What memory is left for operators to be complete again.
    pub fn room(&self) -> &Room {
        &self.shared.room
    }

    /// As of the last look: how many operators are incomplete, vnodes of theirs that were gone through
    /// to complete them, and all their vnodes.
    pub fn filling(&self) -> [usize; 3] {
        let of_workers = self.workers.iter().map(Worker::filling);
        of_workers.fold([0; 3], |sum, of_it| std::array::from_fn(|i| sum[i] + of_it[i]))
    }

    /// Asks every worker for its share of `bytes` of cold state.
    pub fn evict(&self, bytes: usize) {
        self.workers.iter().for_each(|worker| worker.evict(bytes / self.workers.len().max(1)));
    }
}
