//! Whole-file compression of text: gzip and zstd, both ways.

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use std::io::{self, BufReader, Read, Write};

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the codecs'")]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By its name in an option.
    pub fn named(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "none" | "" => Some(Compression::None),
            "gzip" | "gz" => Some(Compression::Gzip),
            "zstd" | "zst" => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// By the end of a file's name.
    pub fn of_path(path: &str) -> Self {
        match path.rsplit_once('.') {
            Some((_, "gz")) => Compression::Gzip,
            Some((_, "zst")) => Compression::Zstd,
            _ => Compression::None,
        }
    }

    /// The end of a file's name that says it.
    pub fn extension(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// What `input` holds, decompressed.
    pub fn reader(self, input: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Compression::None => Box::new(input),
            Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 17, input))),
            Compression::Zstd => Box::new(zstd::Decoder::new(input)?),
        })
    }
}

/// Compresses what is written; the frame ends with `flush`, which must be the last call.
pub enum Compressed<W: Write> {
    /// Not at all.
    Plain(W),
    /// gzip, until it is finished.
    Gzip(GzEncoder<W>),
    /// zstd, until it is finished.
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Compressed<W> {
    /// Compresses into `output`.
    pub fn new(output: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Compressed::Plain(output),
            Compression::Gzip => Compressed::Gzip(GzEncoder::new(output, flate2::Compression::fast())),
            Compression::Zstd => Compressed::Zstd(zstd::Encoder::new(output, 1)?),
        })
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Compressed::Plain(output) => output.write(bytes),
            Compressed::Gzip(encoder) => encoder.write(bytes),
            Compressed::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Compressed::Plain(output) => output.flush(),
            Compressed::Gzip(encoder) => encoder.try_finish(),
            Compressed::Zstd(encoder) => encoder.do_finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_is_read_back() {
        let text = b"a line\n".repeat(100_000);
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let mut bytes = Vec::new();
            let mut output = Compressed::new(&mut bytes, compression).unwrap();
            output.write_all(&text).unwrap();
            output.flush().unwrap();
            drop(output);
            assert!(compression == Compression::None || bytes.len() < text.len() / 10);
            let mut back = Vec::new();
            compression.reader(io::Cursor::new(bytes)).unwrap().read_to_end(&mut back).unwrap();
            assert!(back == text, "{compression:?}");
            assert_eq!(Compression::of_path(&format!("x.json{}", compression.extension())), compression);
        }
    }
}
