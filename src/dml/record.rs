//! The bytes of a transaction in the DML log. See the layout in [`super::log`].
//!
//! Rows are Arrow IPC streams, which carry their schema: a record can be read without a catalog.

use super::log::Transaction;
use crate::stream::ChangeBatch;
use arrow::array::RecordBatch;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use std::io;
use weir_catalog::ObjectId;

/// An encoded transaction, not yet at a position.
pub(super) struct Encoded(Vec<u8>);

impl Encoded {
    /// Encodes `changes`.
    pub fn new(changes: &[(ObjectId, ChangeBatch)]) -> io::Result<Self> {
        let mut out = vec![0; 4];
        push_u32(&mut out, changes.len())?;
        for (table, batch) in changes {
            out.extend_from_slice(&table.0.to_le_bytes());
            let diffs = batch.diffs().unwrap_or_default();
            push_u32(&mut out, diffs.len())?;
            diffs.iter().for_each(|diff| out.extend_from_slice(&diff.to_le_bytes()));
            let start = out.len();
            push_u32(&mut out, 0)?;
            write_rows(batch.rows(), &mut out)?;
            fill_length(&mut out, start)?;
        }
        fill_length(&mut out, 0)?;
        Ok(Self(out))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn push_u32(out: &mut Vec<u8>, n: usize) -> io::Result<()> {
    let n = u32::try_from(n)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "too many rows for a record"))?;
    out.extend_from_slice(&n.to_le_bytes());
    Ok(())
}

/// Writes the length of what follows the four bytes at `at` into them.
fn fill_length(out: &mut [u8], at: usize) -> io::Result<()> {
    let length = u32::try_from(out.len() - at - 4)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a record is more than 4 GiB"))?;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

fn write_rows(rows: &RecordBatch, out: &mut Vec<u8>) -> io::Result<()> {
    let mut write = || {
        let mut writer = StreamWriter::try_new(&mut *out, &rows.schema())?;
        writer.write(rows)?;
        writer.finish()
    };
    write().map_err(io::Error::other)
}

/// Visits the transactions of a frame that are after `from`. Returns the position after the last.
pub(super) fn decode(
    mut payload: &[u8],
    first: u64,
    from: u64,
    visit: &mut dyn FnMut(Transaction),
) -> Result<u64, String> {
    let mut position = first;
    while !payload.is_empty() {
        let length = take_u32(&mut payload)? as usize;
        let transaction = take(&mut payload, length)?;
        if position > from {
            visit(Transaction { position, changes: decode_changes(transaction)? });
        }
        position += 1;
    }
    Ok(position)
}

fn decode_changes(mut bytes: &[u8]) -> Result<Vec<(ObjectId, ChangeBatch)>, String> {
    let count = take_u32(&mut bytes)?;
    let mut changes = Vec::new();
    for _ in 0..count {
        let table = ObjectId(take_u32(&mut bytes)?);
        let diffs = take_u32(&mut bytes)? as usize;
        let diffs: Vec<i64> = take(&mut bytes, diffs * 8)?
            .chunks_exact(8)
            .map(|d| d.try_into().map_or(0, i64::from_le_bytes))
            .collect();
        let length = take_u32(&mut bytes)? as usize;
        let rows = read_rows(take(&mut bytes, length)?)?;
        let batch = match diffs.is_empty() {
            true => ChangeBatch::insertions(rows),
            false if diffs.len() == rows.num_rows() && !diffs.contains(&0) => ChangeBatch::new(rows, diffs),
            false => return Err(format!("{} diffs of {} rows", diffs.len(), rows.num_rows())),
        };
        changes.push((table, batch));
    }
    if bytes.is_empty() { Ok(changes) } else { Err("a record is longer than its changes".to_owned()) }
}

fn read_rows(bytes: &[u8]) -> Result<RecordBatch, String> {
    let mut reader = StreamReader::try_new(bytes, None).map_err(|e| e.to_string())?;
    reader.next().ok_or("a change has no rows")?.map_err(|e| e.to_string())
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Result<&'a [u8], String> {
    let (taken, rest) = bytes.split_at_checked(n).ok_or("a record ends early")?;
    *bytes = rest;
    Ok(taken)
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, String> {
    Ok(take(bytes, 4)?.try_into().map_or(0, u32::from_le_bytes))
}
