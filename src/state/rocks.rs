//! RocksDB: the store that counts. The only file that names it.
//!
//! One instance a database, one column family, WAL off: a checkpoint is the log. The live
//! directory is scratch; what is opened is always a fresh one, empty or linked from a checkpoint.
//!
//! ```text
//!   live/ ── checkpoint() ──> flush, then hard links of every SST ──> checkpoints/<epoch>/
//!   checkpoints/<epoch>/ ── restore() ──> hard links of every SST, copies of the rest ──> live/
//! ```
//! Few writes go through the memtable in sorted batches; many are sorted whole, written as an SST
//! and taken in by name, which costs a third.
//!
//! Counts are added by a merge operator; a count that came to zero is hidden from readers and
//! dropped by a compaction filter. Bloom filters know whole keys and the first
//! [`BLOOM_PREFIX`] bytes: table, vnode and what fits a bigint key column.

use super::StateError;
use super::entries::VisitEntry;
use super::order::{Entry, Place, in_order, sort};
use super::store::{
    StateRead, StateStore, Visit, VisitPrefix, WriteOp, WriteRun, WrittenBytes, is_absent, prefix_end,
};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedOptions, BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBCompressionType, DBWithThreadMode,
    IngestExternalFileOptions, LogLevel, MergeOperands, MultiThreaded, Options, ReadOptions, SliceTransform,
    SnapshotWithThreadMode, SstFileWriter, WriteBatch, WriteBufferManager, WriteOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_catalog::TableId;

type Db = DBWithThreadMode<MultiThreaded>;

const COLUMN_FAMILY: &str = "default";
/// Table id, vnode, marker and eight bytes.
const BLOOM_PREFIX: usize = 14;
/// Measured: sorted batches of thousands are written twice as fast as single rows.
const BATCH_ENTRIES: usize = 4096;
/// From this many writes on, or a run this long, an SST of their own is cheaper than the memtable.
const INGEST_ENTRIES: usize = 32_768;
const INGEST_BYTES: usize = 4 << 20;
const BLOCK_BYTES: usize = 16 << 10;
const MEMTABLE_BYTES: usize = 32 << 20;
/// The first level is merged into the next when it has so many files, or so many bytes.
const LEVEL_ZERO_FILES: i32 = 12;
const LEVEL_BASE_BYTES: u64 = 1 << 30;
/// Who reads all of a checkpoint reads so far ahead, and keeps indexes and filters of so many bytes.
const READAHEAD_BYTES: usize = 2 << 20;
const READER_CACHE_BYTES: usize = 32 << 20;
/// The length of a file that a merge writes: a checkpoint shares whole files with the one before.
const FILE_BYTES: u64 = 128 << 20;

impl From<rocksdb::Error> for StateError {
    fn from(error: rocksdb::Error) -> Self {
        StateError::Store(error.into_string())
    }
}

/// What all databases of a process share: the block cache and the limit on memtables.
#[derive(Clone)]
pub struct RocksMemory {
    cache: Cache,
    buffers: WriteBufferManager,
}

impl RocksMemory {
    /// A block cache of `cache_bytes` and memtables of `memtable_bytes`, over all databases.
    pub fn new(cache_bytes: usize, memtable_bytes: usize) -> Self {
        let cache = Cache::new_lru_cache(cache_bytes);
        // It flushes early and never stalls: the writer is one thread that we bound ourselves.
        let buffers = WriteBufferManager::new_write_buffer_manager(memtable_bytes, false);
        Self { cache, buffers }
    }

    /// Bytes in use.
    pub fn usage(&self) -> usize {
        self.cache.get_usage() + self.buffers.get_usage()
    }
}

/// A live store.
pub struct RocksStore {
    /// Where an SST is written before it is taken in: beside the files, under a name of ours.
    incoming: PathBuf,
    ingest_entries: usize,
    incoming_options: Options,
    /// Keeps the store's statistics.
    options: Options,
    /// Bytes of the files that were taken in.
    ingested: u64,
    /// The order of a table's writes, whose memory is used again.
    order: Vec<Place>,
    db: Arc<Db>,
}

impl RocksStore {
    /// A new, empty store in `dir`. What is there goes.
    pub fn create(dir: &Path, memory: &RocksMemory) -> Result<Self, StateError> {
        clear(dir)?;
        Self::open(dir, memory)
    }

    /// A store in `dir` that starts with what `checkpoint` holds. What is in `dir` goes;
    /// `checkpoint` stays as it is.
    pub fn restore(checkpoint: &Path, dir: &Path, memory: &RocksMemory) -> Result<Self, StateError> {
        bring(checkpoint, dir)?;
        Self::open(dir, memory)
    }

    /// Calls `visit` with everything that `checkpoint` holds, in order of the keys; an error ends it. `scratch` is a
    /// directory for it alone, and is left behind. Live stores feel little of it: it merges nothing, and its blocks
    /// do not push theirs out of the cache.
    pub fn read(checkpoint: &Path, scratch: &Path, visit: VisitEntry<'_>) -> Result<(), StateError> {
        bring(checkpoint, scratch)?;
        let options = options(&RocksMemory::new(READER_CACHE_BYTES, MEMTABLE_BYTES));
        let descriptor = ColumnFamilyDescriptor::new(COLUMN_FAMILY, options.clone());
        let db = Db::open_cf_descriptors_read_only(&options, scratch, [descriptor], false)?;
        let mut reading = ReadOptions::default();
        reading.set_total_order_seek(true);
        reading.set_readahead_size(READAHEAD_BYTES);
        reading.fill_cache(false);
        let mut cursor = db.raw_iterator_cf_opt(&family(&db), reading);
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            if !is_absent(value) {
                visit(key, value)?;
            }
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn open(dir: &Path, memory: &RocksMemory) -> Result<Self, StateError> {
        let mut options = options(memory);
        options.enable_statistics();
        options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
        // What is taken in is soon merged, and compressed then.
        let mut incoming_options = options.clone();
        incoming_options.set_compression_type(DBCompressionType::None);
        // Without the descriptor this column family would get default options.
        let family = ColumnFamilyDescriptor::new(COLUMN_FAMILY, options.clone());
        let db = Db::open_cf_descriptors(&options, dir, [family])?;
        Ok(Self {
            incoming: dir.join("incoming"),
            ingest_entries: INGEST_ENTRIES,
            incoming_options,
            options,
            ingested: 0,
            order: Vec::new(),
            db: Arc::new(db),
        })
    }

    /// A number that RocksDB tells of itself, such as `rocksdb.estimate-num-keys`.
    pub fn property(&self, name: &str) -> Option<u64> {
        self.db.property_int_value(name).ok().flatten()
    }

    /// Merges everything into the last level.
    pub fn compact(&self) {
        self.db.compact_range_cf(&family(&self.db), None::<&[u8]>, None::<&[u8]>);
    }

    /// Writes of one epoch as an SST: sorted, one write a key.
    fn ingest(&mut self, runs: &[WriteRun]) -> Result<(), StateError> {
        let mut writer = SstFileWriter::create(&self.incoming_options);
        writer.open(&self.incoming)?;
        let mut runs: Vec<&WriteRun> = runs.iter().collect();
        runs.sort_by_key(|run| run.table());
        let mut written = 0;
        for of_table in runs.chunk_by(|a, b| a.table() == b.table()) {
            sort(of_table, &mut self.order);
            written += self.order.len();
            write_sorted(of_table, &self.order, &mut writer)?;
        }
        if written == 0 {
            return Ok(());
        }
        writer.finish()?;
        self.ingested += std::fs::metadata(&self.incoming)?.len();
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        Ok(self.db.ingest_external_file_cf_opts(&family(&self.db), &options, vec![&self.incoming])?)
    }

    /// Removes the ranges that an epoch's runs say are gone, after everything else.
    fn apply_ranges(&self, runs: &[WriteRun]) -> Result<(), StateError> {
        let cf = family(&self.db);
        let mut batch = WriteBatch::default();
        let ranges = runs.iter().flat_map(WriteRun::iter).filter(|(op, ..)| *op == WriteOp::DeleteRange);
        ranges.for_each(|(_, lower, upper)| batch.delete_range_cf(&cf, lower, upper));
        if batch.is_empty() { Ok(()) } else { self.write(batch) }
    }

    fn write_run(&self, run: &WriteRun) -> Result<(), StateError> {
        let entries: Vec<Entry<'_>> = run.iter().filter(|(op, ..)| *op != WriteOp::DeleteRange).collect();
        let cf = family(&self.db);
        for chunk in entries.chunks(BATCH_ENTRIES) {
            let mut chunk = chunk.to_vec();
            // Stable: writes of one key stay in order.
            chunk.sort_by(|a, b| a.1.cmp(b.1));
            let mut batch = WriteBatch::default();
            for (i, (op, key, value)) in chunk.iter().enumerate() {
                let overwritten =
                    chunk.get(i + 1).is_some_and(|next| next.1 == *key && next.0 != WriteOp::AddCount);
                match op {
                    _ if overwritten => {}
                    WriteOp::Put => batch.put_cf(&cf, key, value),
                    WriteOp::Delete => batch.delete_cf(&cf, key),
                    WriteOp::AddCount => batch.merge_cf(&cf, key, value),
                    WriteOp::DeleteRange => unreachable!("they were left out"),
                }
            }
            self.write(batch)?;
        }
        Ok(())
    }

    fn write(&self, batch: WriteBatch) -> Result<(), StateError> {
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        Ok(self.db.write_opt(batch, &options)?)
    }
}

impl StateStore for RocksStore {
    fn apply(&mut self, run: &WriteRun) -> Result<(), StateError> {
        self.apply_all(std::slice::from_ref(run))
    }

    fn apply_all(&mut self, runs: &[WriteRun]) -> Result<(), StateError> {
        let long = runs.iter().any(|run| run.is_full(INGEST_BYTES));
        if long || runs.iter().map(WriteRun::len).sum::<usize>() >= self.ingest_entries {
            self.ingest(runs)?;
        } else {
            runs.iter().try_for_each(|run| self.write_run(run))?;
        }
        self.apply_ranges(runs)
    }

    fn drop_table(&mut self, table: TableId) -> Result<(), StateError> {
        let prefix = table.0.to_be_bytes();
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(&family(&self.db), prefix.as_slice(), prefix_end(&prefix).as_slice());
        self.write(batch)
    }

    fn snapshot(&self) -> Arc<dyn StateRead> {
        Arc::new(RocksSnapshot::new(self.db.clone()))
    }

    fn checkpoint(&self, dir: &Path) -> Result<(), StateError> {
        Ok(Checkpoint::new(&self.db)?.create_checkpoint(dir)?)
    }

    fn written(&self) -> WrittenBytes {
        let count = |ticker| self.options.get_ticker_count(ticker);
        WrittenBytes {
            applied: self.ingested + count(Ticker::FlushWriteBytes),
            merged: count(Ticker::CompactWriteBytes),
        }
    }
}

/// Writes the entries of a table in `order`: the last of a key, or the sum of its counts.
fn write_sorted(
    runs: &[&WriteRun],
    order: &[Place],
    writer: &mut SstFileWriter<'_>,
) -> Result<(), StateError> {
    let mut rest = in_order(runs, order).peekable();
    while let Some((mut op, key, mut value)) = rest.next() {
        let mut sum = None;
        while let Some((next_op, _, next_value)) = rest.next_if(|(_, next, _)| *next == key) {
            if next_op == WriteOp::AddCount {
                let counts = [sum.as_ref().map_or(value, |sum: &[u8; 8]| sum), next_value];
                sum = Some(sum_counts(counts.into_iter()).ok_or_else(bad_count)?);
            }
            (op, value) = (next_op, next_value);
        }
        match op {
            WriteOp::Put => writer.put(key, value)?,
            WriteOp::Delete => writer.delete(key)?,
            // What came and went is no change.
            WriteOp::AddCount if sum == Some([0; 8]) => {}
            WriteOp::AddCount => writer.merge(key, sum.as_ref().map_or(value, |sum| sum))?,
            WriteOp::DeleteRange => unreachable!("they were left out"),
        }
    }
    Ok(())
}

fn bad_count() -> StateError {
    StateError::Decode("a count is not eight bytes".to_owned())
}

/// Makes `dir` a directory of its own with what `checkpoint` holds.
fn bring(checkpoint: &Path, dir: &Path) -> Result<(), StateError> {
    clear(dir)?;
    for entry in std::fs::read_dir(checkpoint)? {
        let from = entry?.path();
        let Some(name) = from.file_name() else { continue };
        if from.extension().is_some_and(|e| e == "sst") {
            std::fs::hard_link(&from, dir.join(name))?;
        } else if is_rocksdb_file(&name.to_string_lossy()) {
            std::fs::copy(&from, dir.join(name))?;
        }
    }
    Ok(())
}

/// Makes `dir` an empty directory.
fn clear(dir: &Path) -> Result<(), StateError> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    Ok(std::fs::create_dir_all(dir)?)
}

/// Whether RocksDB itself wrote the file: a checkpoint's directory holds a manifest of ours too.
fn is_rocksdb_file(name: &str) -> bool {
    name == "CURRENT"
        || name.starts_with("MANIFEST-")
        || name.starts_with("OPTIONS-")
        || name.ends_with(".log")
}

fn family(db: &Db) -> Arc<BoundColumnFamily<'_>> {
    db.cf_handle(COLUMN_FAMILY).expect("it was opened by its descriptor")
}

fn options(memory: &RocksMemory) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&memory.cache);
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_format_version(6);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(BLOOM_PREFIX));
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_manager(&memory.buffers);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(4);
    options.set_max_background_jobs(2);
    // What is in memory is hardly ever read here, so many files on the first level cost little, and to
    // merge them often costs much. At the limit below a flush waits, and with it ticks and checkpoints:
    // it is there for merges that never catch up, not for one that takes some seconds.
    options.set_level_zero_file_num_compaction_trigger(LEVEL_ZERO_FILES);
    options.set_level_zero_slowdown_writes_trigger(16 * LEVEL_ZERO_FILES);
    options.set_level_zero_stop_writes_trigger(32 * LEVEL_ZERO_FILES);
    options.set_max_bytes_for_level_base(LEVEL_BASE_BYTES);
    options.set_target_file_size_base(FILE_BYTES);
    options.set_merge_operator_associative("weir.add_count", add_counts);
    options.set_compaction_filter("weir.zero_count", |_, _, value| match is_absent(value) {
        true => rocksdb::CompactionDecision::Remove,
        false => rocksdb::CompactionDecision::Keep,
    });
    options.set_keep_log_file_num(2);
    options.set_log_level(LogLevel::Warn);
    options
}

/// The sum of a count and what is added to it. Operands of another length are damage; the sum is
/// refused, and the read or compaction that needs it fails.
fn add_counts(_key: &[u8], count: Option<&[u8]>, added: &MergeOperands) -> Option<Vec<u8>> {
    Some(sum_counts(count.into_iter().chain(added))?.to_vec())
}

fn sum_counts<'a>(counts: impl Iterator<Item = &'a [u8]>) -> Option<[u8; 8]> {
    let mut sum = 0i64;
    for count in counts {
        sum = sum.wrapping_add(i64::from_le_bytes(count.try_into().ok()?));
    }
    Some(sum.to_le_bytes())
}

/// A snapshot that keeps its database open.
struct RocksSnapshot {
    /// Declared before `db`, so that it is released before.
    snapshot: SnapshotWithThreadMode<'static, Db>,
    db: Arc<Db>,
}

impl RocksSnapshot {
    fn new(db: Arc<Db>) -> Self {
        // SAFETY: the database lives on the heap behind `db`, which outlives the snapshot: both
        // are fields of one struct, and fields are dropped in order of declaration.
        let borrowed: &'static Db = unsafe { &*Arc::as_ptr(&db) };
        Self { snapshot: borrowed.snapshot(), db }
    }

    fn read_options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options
    }
}

impl StateRead for RocksSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        let value = self.db.get_cf_opt(&family(&self.db), key, &self.read_options())?;
        Ok(value.filter(|v| !is_absent(v)))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        let options = self.read_options();
        let found = self.db.batched_multi_get_cf_opt(&family(&self.db), keys, keys.is_sorted(), &options);
        found.into_iter().map(|v| Ok(v?.filter(|v| !is_absent(v)).map(|v| v.to_vec()))).collect()
    }

    fn scan(&self, lower: &[u8], upper: &[u8], visit: Visit<'_>) -> Result<(), StateError> {
        if lower >= upper {
            return Ok(());
        }
        let mut options = self.read_options();
        options.set_iterate_range(lower..upper);
        // The prefix bloom may only be asked where the whole range has one prefix.
        let one_prefix = has_one_prefix(lower, upper);
        options.set_total_order_seek(!one_prefix);
        options.set_prefix_same_as_start(one_prefix);
        let mut cursor = self.db.raw_iterator_cf_opt(&family(&self.db), options);
        cursor.seek(lower);
        while let Some((key, value)) = cursor.item() {
            if !is_absent(value) && visit(key, value).is_break() {
                return Ok(());
            }
            cursor.next();
        }
        Ok(cursor.status()?)
    }

    fn scan_prefixes(&self, prefixes: &[Vec<u8>], visit: VisitPrefix<'_>) -> Result<(), StateError> {
        // A cursor costs more than a seek: one serves all prefixes that may ask the bloom filters,
        // another one the others.
        let mut cursors = [None, None];
        for (number, prefix) in prefixes.iter().enumerate() {
            let one_prefix = prefix.len() >= BLOOM_PREFIX;
            let cursor = cursors[usize::from(one_prefix)].get_or_insert_with(|| {
                let mut options = self.read_options();
                options.set_total_order_seek(!one_prefix);
                options.set_prefix_same_as_start(one_prefix);
                self.db.raw_iterator_cf_opt(&family(&self.db), options)
            });
            cursor.seek(prefix);
            while let Some((key, value)) = cursor.item().filter(|(key, _)| key.starts_with(prefix)) {
                if !is_absent(value) {
                    visit(number, key, value);
                }
                cursor.next();
            }
            cursor.status()?;
        }
        Ok(())
    }
}

/// Whether every key in the range starts with the first [`BLOOM_PREFIX`] bytes of `lower`.
fn has_one_prefix(lower: &[u8], upper: &[u8]) -> bool {
    lower.len() >= BLOOM_PREFIX && upper <= prefix_end(&lower[..BLOOM_PREFIX]).as_slice()
}

#[cfg(test)]
#[path = "tests/rocks.rs"]
mod tests;
