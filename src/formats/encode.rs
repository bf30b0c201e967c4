//! Rows to bytes: JSON lines, CSV and Parquet, as sinks write them.
//!
//! Text is what PostgreSQL's `to_json` and `COPY … CSV` write. In CSV a NULL is an empty field and
//! an empty string is `""`.

use super::text::{plain_in_zone, write_text};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type, Schema, SchemaRef};
use arrow::error::ArrowError;
use bytes::BytesMut;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

/// An encoding of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// An object a line.
    Json,
    /// Delimited text.
    Csv {
        /// Between fields.
        delimiter: u8,
        /// Whether the first line has the columns' names.
        header: bool,
    },
    /// Parquet, compressed in itself.
    Parquet(ParquetCompression),
}

/// How Parquet's pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the codecs'")]
pub enum ParquetCompression {
    None,
    Snappy,
    Zstd,
}

/// Writes batches of one schema into one stream of bytes.
pub trait Encoder: Send {
    /// Appends rows.
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()>;

    /// Writes what is left (a footer, a buffer).
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// An encoder of `encoding` into `output`.
pub fn encoder(
    encoding: Encoding,
    schema: &SchemaRef,
    output: Box<dyn Write + Send>,
) -> io::Result<Box<dyn Encoder>> {
    Ok(match encoding {
        Encoding::Json => Box::new(TextEncoder::new(output, None)),
        Encoding::Csv { delimiter, header } => {
            let mut encoder = TextEncoder::new(output, Some(delimiter));
            if header {
                encoder.write_header(schema, delimiter);
            }
            Box::new(encoder)
        }
        Encoding::Parquet(compression) => Box::new(ParquetEncoder::new(schema, output, compression)?),
    })
}

/// Bytes gathered before they are handed on.
const BUFFER_BYTES: usize = 1 << 18;

/// JSON (without a delimiter) or CSV.
struct TextEncoder {
    output: Box<dyn Write + Send>,
    delimiter: Option<u8>,
    buffer: BytesMut,
    value: BytesMut,
}

impl TextEncoder {
    fn new(output: Box<dyn Write + Send>, delimiter: Option<u8>) -> Self {
        Self { output, delimiter, buffer: BytesMut::with_capacity(BUFFER_BYTES), value: BytesMut::new() }
    }

    fn write_header(&mut self, schema: &Schema, delimiter: u8) {
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                self.buffer.extend_from_slice(&[delimiter]);
            }
            push_csv(&mut self.buffer, field.name().as_bytes(), delimiter);
        }
        self.buffer.extend_from_slice(b"\n");
    }

    fn write_csv(&mut self, columns: &[ArrayRef], row: usize, delimiter: u8) {
        for (i, column) in columns.iter().enumerate() {
            if i > 0 {
                self.buffer.extend_from_slice(&[delimiter]);
            }
            if column.is_valid(row) {
                self.value.clear();
                write_text(column.as_ref(), row, &mut self.value);
                push_csv(&mut self.buffer, &self.value, delimiter);
            }
        }
        self.buffer.extend_from_slice(b"\n");
    }
}

impl Encoder for TextEncoder {
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        let columns: Vec<ArrayRef> = rows
            .columns()
            .iter()
            .map(|c| plain_in_zone(c, "+00:00"))
            .collect::<Result<_, _>>()
            .map_err(arrow_error)?;
        let schema = rows.schema();
        let names: Vec<String> = schema.fields().iter().map(|f| json_name(f.name())).collect();
        for row in 0..rows.num_rows() {
            match self.delimiter {
                Some(delimiter) => self.write_csv(&columns, row, delimiter),
                None => {
                    for (i, (column, field)) in columns.iter().zip(schema.fields()).enumerate() {
                        self.buffer.extend_from_slice(if i == 0 { b"{" } else { b"," });
                        self.buffer.extend_from_slice(names[i].as_bytes());
                        push_json(column.as_ref(), field, row, &mut self.buffer, &mut self.value);
                    }
                    self.buffer.extend_from_slice(if columns.is_empty() { b"{}\n" } else { b"}\n" });
                }
            }
            if self.buffer.len() >= BUFFER_BYTES {
                self.output.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.output.write_all(&self.buffer)?;
        self.output.flush()
    }
}

/// A row as a line of JSON, for messages.
pub fn json_line(row: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut encoder = TextEncoder::new(Box::new(io::sink()), None);
    encoder.write(row).map_err(|e| ArrowError::ExternalError(Box::new(e)))?;
    Ok(encoder.buffer.to_vec())
}

/// A CSV field: quoted where it would be read back as something else.
fn push_csv(out: &mut BytesMut, value: &[u8], delimiter: u8) {
    let special = |b: &u8| *b == delimiter || matches!(*b, b'"' | b'\n' | b'\r');
    if !value.is_empty() && !value.iter().any(special) {
        out.extend_from_slice(value);
        return;
    }
    out.extend_from_slice(b"\"");
    for part in value.split_inclusive(|b| *b == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.extend_from_slice(b"\"");
        }
    }
    out.extend_from_slice(b"\"");
}

/// `"name":`
fn json_name(name: &str) -> String {
    let mut out = BytesMut::new();
    push_json_string(name, &mut out);
    format!("{}:", String::from_utf8_lossy(&out))
}

/// Appends a value as `to_json` would write it.
fn push_json(array: &dyn Array, field: &Field, row: usize, out: &mut BytesMut, text: &mut BytesMut) {
    if array.is_null(row) || matches!(array.data_type(), DataType::Null) {
        out.extend_from_slice(b"null");
        return;
    }
    let finite = match array.data_type() {
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).is_finite(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).is_finite(),
        _ => true,
    };
    match array.data_type() {
        DataType::Boolean => {
            out.extend_from_slice(if array.as_boolean().value(row) { b"true" } else { b"false" });
        }
        DataType::Utf8 if is_json(field) => {
            out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes())
        }
        DataType::Utf8 => push_json_string(array.as_string::<i32>().value(row), out),
        DataType::List(item) => {
            let items = array.as_list::<i32>().value(row);
            push_json_sequence(b"[", b"]", items.len(), out, |i, out| {
                push_json(items.as_ref(), item, i, out, text)
            });
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            push_json_sequence(b"{", b"}", columns.len(), out, |i, out| {
                out.extend_from_slice(json_name(fields[i].name()).as_bytes());
                push_json(columns[i].as_ref(), &fields[i], row, out, text);
            });
        }
        other => {
            text.clear();
            write_text(array, row, text);
            let bare = other.is_numeric() && finite;
            if let DataType::Timestamp(_, zone) = other {
                // As ISO 8601 and to_json have it: 2015-07-15T00:00:00.04+00:00
                if let Some(space) = text.iter().position(|b| *b == b' ') {
                    text[space] = b'T';
                }
                if zone.is_some() && text.ends_with(b"+00") {
                    text.extend_from_slice(b":00");
                }
            }
            if bare {
                out.extend_from_slice(text);
            } else {
                push_json_string(&String::from_utf8_lossy(text), out);
            }
        }
    }
}

fn is_json(field: &Field) -> bool {
    field.metadata().get("weir.type").is_some_and(|t| t == "json" || t == "jsonb")
}

fn push_json_sequence(
    open: &[u8],
    close: &[u8],
    len: usize,
    out: &mut BytesMut,
    mut push: impl FnMut(usize, &mut BytesMut),
) {
    out.extend_from_slice(open);
    for i in 0..len {
        if i > 0 {
            out.extend_from_slice(b",");
        }
        push(i, out);
    }
    out.extend_from_slice(close);
}

fn push_json_string(value: &str, out: &mut BytesMut) {
    out.extend_from_slice(b"\"");
    let bytes = value.as_bytes();
    let mut start = 0;
    for (i, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..0x20 => b"",
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..i]);
        if escape.is_empty() {
            // Writing to a BytesMut does not fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.extend_from_slice(escape);
        }
        start = i + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.extend_from_slice(b"\"");
}

struct ParquetEncoder {
    /// What Parquet can't hold (intervals) is written as text.
    schema: SchemaRef,
    writer: ArrowWriter<Box<dyn Write + Send>>,
}

impl ParquetEncoder {
    fn new(
        schema: &SchemaRef,
        output: Box<dyn Write + Send>,
        compression: ParquetCompression,
    ) -> io::Result<Self> {
        let compression = match compression {
            ParquetCompression::None => Compression::UNCOMPRESSED,
            ParquetCompression::Snappy => Compression::SNAPPY,
            ParquetCompression::Zstd => Compression::ZSTD(ZstdLevel::default()),
        };
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Interval(_) => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
            _ => Arc::clone(field),
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<FieldRef>>()));
        let properties = WriterProperties::builder().set_compression(compression).build();
        let writer =
            ArrowWriter::try_new(output, Arc::clone(&schema), Some(properties)).map_err(parquet_error)?;
        Ok(Self { schema, writer })
    }
}

impl Encoder for ParquetEncoder {
    fn write(&mut self, rows: &RecordBatch) -> io::Result<()> {
        let columns = rows.columns().iter().zip(self.schema.fields()).map(|(column, field)| {
            match (column.data_type(), field.data_type()) {
                (DataType::Interval(_), DataType::Utf8) => interval_texts(column),
                _ => Ok(Arc::clone(column)),
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(arrow_error)?;
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(arrow_error)?;
        self.writer.write(&rows).map_err(parquet_error)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.writer.into_inner().map_err(parquet_error)?.flush()
    }
}

fn interval_texts(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let texts: arrow::array::StringArray =
        (0..column.len()).map(|row| super::text::to_text(column, row)).collect();
    Ok(Arc::new(texts))
}

fn arrow_error(error: ArrowError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn parquet_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(inner) => io::Error::other(inner),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
#[path = "tests/encode.rs"]
mod tests;
