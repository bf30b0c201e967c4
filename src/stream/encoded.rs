//! Change batches as bytes: what sinks' logs and unaligned checkpoints hold of them.
//!
//! ```text
//!   diffs u32 (0: all +1) │ that many i64 │ rows as an Arrow IPC stream       little-endian
//! ```

use super::ChangeBatch;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

/// Some batches of one schema, as one. There must be one at least.
pub fn encode(batches: &[ChangeBatch]) -> Result<Vec<u8>, ArrowError> {
    let rows: Vec<&RecordBatch> = batches.iter().map(ChangeBatch::rows).collect();
    let rows = concat_batches(&rows[0].schema(), rows)?;
    let mut body = Vec::with_capacity(rows.get_array_memory_size() + 1024);
    if batches.iter().all(|b| b.diffs().is_none()) {
        body.extend_from_slice(&0u32.to_le_bytes());
    } else {
        body.extend_from_slice(&(rows.num_rows() as u32).to_le_bytes());
        for batch in batches {
            (0..batch.num_rows()).for_each(|row| body.extend_from_slice(&batch.diff(row).to_le_bytes()));
        }
    }
    let mut writer = StreamWriter::try_new(&mut body, &rows.schema())?;
    writer.write(&rows)?;
    writer.finish()?;
    drop(writer);
    Ok(body)
}

/// What [`encode`] wrote.
pub fn decode(body: &[u8]) -> Result<ChangeBatch, ArrowError> {
    let short = || ArrowError::IpcError("a change batch is too short".into());
    let (count, rest) = body.split_first_chunk::<4>().ok_or_else(short)?;
    let count = u32::from_le_bytes(*count) as usize;
    let (diffs, rows) = rest.split_at_checked(count * 8).ok_or_else(short)?;
    let rows = StreamReader::try_new(rows, None)?.next().ok_or_else(short)??;
    if count == 0 {
        return Ok(ChangeBatch::insertions(rows));
    }
    let diffs: Vec<i64> =
        diffs.chunks_exact(8).map(|d| i64::from_le_bytes(d.try_into().unwrap_or_default())).collect();
    if diffs.len() != rows.num_rows() {
        return Err(ArrowError::IpcError(format!("{} diffs of {} rows", diffs.len(), rows.num_rows())));
    }
    Ok(ChangeBatch::new(rows, diffs))
}
