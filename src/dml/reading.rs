//! Reading of the DML log: which files there are, and what they hold. See the layout in [`super::log`].

use super::log::{MAGIC, Transaction};
use super::record::decode;
use crate::state::durable::{damaged, in_file};
use crate::state::frame::Frames;
use std::io;
use std::path::{Path, PathBuf};

pub(super) fn path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:020}.log"))
}

/// The first positions of the files in `dir`, ascending.
pub(super) fn list(dir: &Path) -> io::Result<Vec<u64>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(in_file(dir))? {
        let name = entry?.file_name();
        if let Some(first) = name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse().ok()) {
            files.push(first);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Visits the transactions after `from`, which must be whole; what is before them may be damaged. Returns
/// the last position, and the last file's frames. Only if `opening` may the last file end in a torn frame for
/// good: else it is being written.
pub(super) fn read(
    dir: &Path,
    files: &[u64],
    from: u64,
    opening: bool,
    visit: &mut dyn FnMut(Transaction),
) -> io::Result<(u64, Option<Frames>)> {
    // What ends at or before `from` need not be read.
    let skipped = files.iter().skip(1).take_while(|next| **next <= from + 1).count();
    let files = &files[skipped..];
    let Some(first) = files.first() else {
        if from == 0 {
            return Ok((0, None));
        }
        return Err(damaged(dir, format!("it has no log, but a checkpoint holds position {from} of one")));
    };
    if *first > from + 1 {
        return Err(damaged(dir, format!("the log begins at {first}, but is needed from {}", from + 1)));
    }
    let mut next = *first;
    let mut last_frames = None;
    for (index, first) in files.iter().enumerate() {
        let path = path(dir, *first);
        if *first != next {
            return Err(damaged(
                &path,
                format!("it begins at {first}, but the file before ends before {next}"),
            ));
        }
        let last = index + 1 == files.len();
        let frames = Frames::read_from(&path, MAGIC, last, from + 1)?;
        for (sequence, payload) in frames.iter() {
            let left_out = sequence > next && frames.is_behind_damage(sequence);
            if sequence != next && !left_out {
                return Err(damaged(&path, format!("position {sequence} comes where {next} is due")));
            }
            next = decode(payload, sequence, from, visit).map_err(|e| damaged(&path, e))?;
        }
        last_frames = (last && opening).then_some(frames);
    }
    Ok((next - 1, last_frames))
}
