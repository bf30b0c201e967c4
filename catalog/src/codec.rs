//! The versioned encoding of changes and images: a version byte, then JSON.
//!
//! JSON, because the catalog is small, read once at start, and worth being able to read by eye.
//! A new field takes `#[serde(default)]`; a changed meaning takes a new version.

use crate::change::CatalogChange;
use crate::snapshot::{CatalogImage, CatalogSnapshot};
use std::io;

const VERSION: u8 = 1;

/// Encodes changes that belong together.
pub fn encode_changes(changes: &[CatalogChange]) -> io::Result<Vec<u8>> {
    encode(&changes)
}

/// Decodes what [`encode_changes`] made.
pub fn decode_changes(bytes: &[u8]) -> io::Result<Vec<CatalogChange>> {
    decode(bytes)
}

/// Encodes a whole snapshot.
pub fn encode_image(snapshot: &CatalogSnapshot) -> io::Result<Vec<u8>> {
    encode(&snapshot.to_image())
}

/// Decodes what [`encode_image`] made.
pub fn decode_image(bytes: &[u8]) -> io::Result<CatalogSnapshot> {
    decode::<CatalogImage>(bytes).map(CatalogSnapshot::from_image)
}

fn encode<T: serde::Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, value)?;
    Ok(bytes)
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(serde_json::from_slice(rest)?),
        Some((version, _)) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("unknown catalog encoding version {version}"),
        )),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "empty catalog record")),
    }
}

#[cfg(test)]
#[path = "tests/codec.rs"]
mod tests;
