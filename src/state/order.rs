//! The order of an epoch's writes of one table: by key, those of one key as they were made.
//!
//! ```text
//!   runs     a c │ b d           order   (piece of a, run 0, write 0) (piece of b, run 1, write 0) …
//! ```

use super::expire::Removed;
use super::store::{WriteOp, WriteRun};
use std::cmp::Ordering;

/// Entries that are looked at together before they are written to an SST.
const FETCHED_AT_ONCE: usize = 32;
/// What is compared of keys at once. Three words take in the vnode and two bigints or timestamps: the
/// first of them is often one of few (a window's start), and the upper bytes of the second are the same
/// in all.
type Piece = [u64; 3];
const PIECE_BYTES: usize = size_of::<Piece>();
/// So few keys that begin alike are compared whole, and so are keys that have so many pieces in common.
const FEW: usize = 8;
const PIECES_MAX: usize = 16;
/// The table's number, with which every key begins.
const TABLE_BYTES: usize = 4;

/// One write: op, full key, value.
pub type Entry<'a> = (WriteOp, &'a [u8], &'a [u8]);

/// Where a write of a table is: a piece of its key, the number of its run, its own there.
pub type Place = (Piece, u32, u32);

/// Orders the writes of `runs`, all of one table, by key; those of one key stay in order. Sorts by a piece
/// of the keys, kept beside the place of the write, then what has the same piece by the next one: a look
/// at a key itself misses the cache, and so it is looked at once a piece, not once a comparison.
pub fn sort(runs: &[&WriteRun], order: &mut Vec<Place>) {
    order.clear();
    let removed = Removed::of(runs);
    for (number, run) in runs.iter().enumerate() {
        let stays = |op: WriteOp, key: &[u8]| op != WriteOp::DeleteRange && !removed.has(key);
        let entries = run.iter().enumerate().filter(|(_, (op, key, _))| stays(*op, key));
        order.extend(entries.map(|(index, (_, key, _))| (piece(key, 0), number as u32, index as u32)));
    }
    sort_pieces(runs, order, 0);
}

/// Orders places that have their keys' piece number `number`, and all pieces before in common.
fn sort_pieces(runs: &[&WriteRun], places: &mut [Place], number: usize) {
    places.sort_unstable_by(compare_pieces);
    let key = |place: &Place| entry(runs, place).1;
    for same in places.chunk_by_mut(|a, b| a.0 == b.0).filter(|same| same.len() > 1) {
        if same.len() <= FEW || number == PIECES_MAX {
            same.sort_unstable_by(|a, b| key(a).cmp(key(b)).then((a.1, a.2).cmp(&(b.1, b.2))));
        } else if same.iter().any(|place| key(place).len() > TABLE_BYTES + (number + 1) * PIECE_BYTES) {
            for place in same.iter_mut() {
                place.0 = piece(key(place), number + 1);
            }
            sort_pieces(runs, same, number + 1);
        } else {
            // The end of a key and a zero look the same in a piece.
            same.sort_unstable_by_key(|place| (key(place).len(), place.1, place.2));
        }
    }
}

/// By piece, then in the order of writing. Spelled out, for a comparison of arrays is a call.
#[inline]
fn compare_pieces(a: &Place, b: &Place) -> Ordering {
    let [x, y, z] = a.0;
    let [u, v, w] = b.0;
    x.cmp(&u).then(y.cmp(&v)).then(z.cmp(&w)).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2))
}

fn entry<'a>(runs: &[&'a WriteRun], (_, run, index): &Place) -> Entry<'a> {
    runs[*run as usize].get(*index as usize)
}

/// The entries of some places, in their order.
pub fn in_order<'a>(runs: &[&'a WriteRun], order: &[Place]) -> impl Iterator<Item = Entry<'a>> {
    order.chunks(FETCHED_AT_ONCE).flat_map(|places| entries(runs, places))
}

/// The entries of some places, in their order. They lie anywhere, and nothing here waits for one of
/// them, so that the processor fetches several at once.
fn entries<'a>(runs: &[&'a WriteRun], places: &[Place]) -> Vec<Entry<'a>> {
    let entries: Vec<Entry<'a>> = places.iter().map(|place| entry(runs, place)).collect();
    let touched = entries.iter().fold(0u8, |sum, (_, key, _)| sum ^ key.last().copied().unwrap_or_default());
    std::hint::black_box(touched);
    entries
}

/// Piece number `number` of what is behind the table's number in `key`, as numbers that sort like it;
/// padded with zeros.
fn piece(key: &[u8], number: usize) -> Piece {
    let rest = key.get(TABLE_BYTES + number * PIECE_BYTES..).unwrap_or_default();
    let mut bytes = [0; PIECE_BYTES];
    let length = rest.len().min(PIECE_BYTES);
    bytes[..length].copy_from_slice(&rest[..length]);
    let mut words = Piece::default();
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_be_bytes(*bytes);
    }
    words
}

#[cfg(test)]
#[path = "tests/order.rs"]
mod tests;
