//! Rows as `COPY … FROM STDIN` reads them: text, tab between fields, `\N` for NULL.

use crate::formats::text::{plain_in_zone, write_text};
use crate::stream::ChangeBatch;
use arrow::array::{Array, ArrayRef};
use arrow::error::ArrowError;
use bytes::{Bytes, BytesMut};

/// Bytes sent at a time.
const TEXT_BYTES: usize = 1 << 17;

/// The texts of a batch, piece by piece.
pub struct CopyRows<'a> {
    batch: &'a ChangeBatch,
    columns: Vec<ArrayRef>,
    /// Whether a last field says if the row is deleted.
    deletions: bool,
    row: usize,
    value: BytesMut,
}

impl<'a> CopyRows<'a> {
    /// For `batch`; with `deletions`, its diffs become a last field.
    pub fn new(batch: &'a ChangeBatch, deletions: bool) -> Result<Self, ArrowError> {
        let columns = batch.rows().columns().iter().map(|c| plain_in_zone(c, "+00:00"));
        Ok(Self {
            batch,
            columns: columns.collect::<Result<_, _>>()?,
            deletions,
            row: 0,
            value: BytesMut::new(),
        })
    }

    fn push_row(&mut self, out: &mut BytesMut) {
        for (i, column) in self.columns.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b"\t");
            }
            if column.is_null(self.row) {
                out.extend_from_slice(b"\\N");
            } else {
                self.value.clear();
                write_text(column.as_ref(), self.row, &mut self.value);
                push_escaped(&self.value, out);
            }
        }
        if self.deletions {
            out.extend_from_slice(if self.batch.diff(self.row) < 0 { b"\tt" } else { b"\tf" });
        }
        out.extend_from_slice(b"\n");
    }
}

impl Iterator for CopyRows<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::with_capacity(TEXT_BYTES + 4096);
        while self.row < self.batch.num_rows() && out.len() < TEXT_BYTES {
            self.push_row(&mut out);
            self.row += 1;
        }
        (!out.is_empty()).then(|| out.freeze())
    }
}

fn push_escaped(value: &[u8], out: &mut BytesMut) {
    let mut start = 0;
    for (i, byte) in value.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'\\' => b"\\\\",
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            _ => continue,
        };
        out.extend_from_slice(&value[start..i]);
        out.extend_from_slice(escape);
        start = i + 1;
    }
    out.extend_from_slice(&value[start..]);
}
