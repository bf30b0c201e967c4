//! Checksums of files, several at a time: a start waits for them.
//!
//! ```text
//!   file  ├── piece ──┼── piece ──┼─ piece ─┤     each piece by whichever thread is free
//!             crc32       crc32      crc32       combined in order: the crc32 of the file
//! ```

use crate::state::durable::{damaged, in_file};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a file that one thread reads in one go.
const PIECE_BYTES: u64 = 16 << 20;
/// Bytes read at a time: they are summed while they are in the processor's cache.
const BUFFER_BYTES: usize = 128 << 10;
/// Threads at most: a few keep a disk busy.
const THREADS_MAX: usize = 8;

/// The crc32 of a file.
pub fn checksum(path: &Path) -> io::Result<u32> {
    let bytes = std::fs::metadata(path).map_err(in_file(path))?.len();
    Ok(piece(path, 0, bytes, &mut vec![0; BUFFER_BYTES])?.finalize())
}

/// The crc32 of each of `files`, given with their sizes. The first error ends it.
pub fn checksums(files: &[(PathBuf, u64)]) -> io::Result<Vec<u32>> {
    in_pieces(files, PIECE_BYTES)
}

fn in_pieces(files: &[(PathBuf, u64)], piece_bytes: u64) -> io::Result<Vec<u32>> {
    let mut pieces: Vec<(usize, u64)> = Vec::new();
    for (file, (_, bytes)) in files.iter().enumerate() {
        pieces.extend((0..bytes.div_ceil(piece_bytes)).map(|n| (file, n * piece_bytes)));
    }
    let sums: Mutex<Vec<Option<crc32fast::Hasher>>> = Mutex::new(vec![None; pieces.len()]);
    let next = AtomicUsize::new(0);
    let work = || -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((file, from)) = pieces.get(number) else { return Ok(()) };
            let (path, bytes) = &files[*file];
            let sum = piece(path, *from, piece_bytes.min(bytes - from), &mut buffer)?;
            sums.lock()[number] = Some(sum);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(THREADS_MAX).min(pieces.len());
    let outcomes: Vec<io::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let panicked = || Err(io::Error::other("a checksum's thread panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    outcomes.into_iter().collect::<io::Result<()>>()?;
    let mut whole = vec![crc32fast::Hasher::new(); files.len()];
    for ((file, _), sum) in pieces.iter().zip(sums.into_inner()) {
        if let Some(sum) = sum {
            whole[*file].combine(&sum);
        }
    }
    Ok(whole.into_iter().map(crc32fast::Hasher::finalize).collect())
}

/// The sum of `bytes` bytes of a file, from `from` on.
fn piece(path: &Path, from: u64, bytes: u64, buffer: &mut [u8]) -> io::Result<crc32fast::Hasher> {
    let file = File::open(path).map_err(in_file(path))?;
    let mut hasher = crc32fast::Hasher::new();
    let (mut at, end) = (from, from + bytes);
    while at < end {
        let wanted = buffer.len().min((end - at) as usize);
        match file.read_at(&mut buffer[..wanted], at) {
            Ok(0) => return Err(damaged(path, format!("it ends at {at} of {end} bytes"))),
            Ok(n) => {
                hasher.update(&buffer[..n]);
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(in_file(path)(error)),
        }
    }
    Ok(hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_add_up_to_the_sum_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<(PathBuf, u64)> = [0u64, 1, 999, 1000, 1001, 5500]
            .into_iter()
            .map(|bytes| {
                let path = dir.path().join(bytes.to_string());
                let contents: Vec<u8> = (0..bytes).map(|i| (i * i % 251) as u8).collect();
                std::fs::write(&path, &contents).unwrap();
                (path, bytes)
            })
            .collect();
        let expected: Vec<u32> =
            files.iter().map(|(path, _)| crc32fast::hash(&std::fs::read(path).unwrap())).collect();
        assert_eq!(in_pieces(&files, 1000).unwrap(), expected);
        assert_eq!(checksums(&files).unwrap(), expected);
        let each: Vec<u32> = files.iter().map(|(path, _)| checksum(path).unwrap()).collect();
        assert_eq!(each, expected);
        std::fs::write(&files[5].0, [1; 5000]).unwrap();
        let error = in_pieces(&files, 1000).unwrap_err().to_string();
        assert!(error.contains("it ends at 5000 of"), "{error}");
    }
}
