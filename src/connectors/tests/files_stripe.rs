//! Stripes of a file: together they have each record once, from and until any position.

use super::tests::{declared, drain, reader, write};
use super::*;
use crate::formats::decode::Decoded;
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What records may look like; those with quotes may hold ends of lines.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Json,
    Plain,
    Quoted,
}

/// Records 0, 1, … of lengths that are around, below and above those of a range.
fn text(kind: Kind, random: &mut StdRng) -> String {
    let mut text = String::new();
    let quotes_from = random.random_range(0..300);
    for id in 0..random.random_range(1..400) {
        let length = match random.random_range(0..40) {
            0 => random.random_range(0..3 * files_stripe::RANGE_BYTES as usize),
            1 => random.random_range(0..20 * files_stripe::RANGE_BYTES as usize) / 4,
            _ => random.random_range(0..150),
        };
        let filler = "x".repeat(length);
        let end = if random.random_bool(0.1) { "\r\n" } else { "\n" };
        match kind {
            Kind::Json => text += &format!("{{\"id\":{id},\"t\":\"{filler}\"}}{end}"),
            Kind::Quoted if id >= quotes_from && random.random_bool(0.3) => {
                let half = &filler[..length / 2];
                text += &format!("{id},\"{half}\n{id},\"\"{half}\"{end}");
            }
            _ => text += &format!("{id},{filler}{end}"),
        }
        if random.random_bool(0.03) {
            text += "\n";
        }
    }
    if random.random_bool(0.5) {
        text.truncate(text.trim_end().len());
    }
    text
}

fn ids(decoded: &Decoded) -> Vec<i64> {
    decoded.rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn stripes_together_have_each_record_once() {
    for seed in 0..200 {
        let random = &mut StdRng::seed_from_u64(seed);
        let kind = [Kind::Json, Kind::Plain, Kind::Quoted][seed as usize % 3];
        let text = text(kind, random);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write(&path, &text, Compression::None);
        let encode = if kind == Kind::Json { "JSON" } else { "CSV" };
        let source = FilesSource::open(&declared(&path, encode, &[], &[])).unwrap();
        let whole = source.decoder(&[0, 1]).unwrap().decode(text.as_bytes(), true, usize::MAX).unwrap();
        assert!(whole.bad.is_empty());

        let mut splits = source.splits().unwrap();
        assert_eq!(splits.len() as u64, files_stripe::stripes(text.len() as u64));
        // Whoever comes first must not matter.
        if random.random_bool(0.5) {
            splits.reverse();
        }
        let mut found = Vec::new();
        for split in &splits {
            // By restarts in the middle, of this source or of another process.
            let mut source = &source;
            let other = FilesSource::open(&declared(&path, encode, &[], &[])).unwrap();
            let mut at: Option<Offset> = None;
            let mut own = Vec::new();
            loop {
                let mut running = reader(source, split, at.as_ref(), None);
                let mut polled = running.poll(random.random_range(1..40), 0).unwrap();
                while let SplitPoll::Rows(rows, _) = polled {
                    own.extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
                    if random.random_bool(0.3) {
                        break;
                    }
                    polled = running.poll(random.random_range(1..40), 0).unwrap();
                }
                // A late reader finds what was read so far.
                let offset = running.offset();
                let late = drain(&mut *reader(source, split, None, Some(&offset)), 50).0;
                assert!(late == own, "seed {seed} {kind:?} {split:?} until {offset:?}");
                let done = at.as_ref() == Some(&offset);
                at = Some(offset);
                if done {
                    break;
                }
                source = &other;
            }
            assert!(own == drain(&mut *reader(source, split, None, None), 4096).0, "seed {seed} {split:?}");
            found.extend(own);
        }
        found.sort_unstable();
        assert!(found == ids(&whole), "seed {seed} {kind:?} {} {}", found.len(), whole.rows.num_rows());
    }
}

#[test]
fn what_is_appended_later_comes_by_the_stripes_that_go_on_or_are_new() {
    let random = &mut StdRng::seed_from_u64(1);
    let mut text = text(Kind::Json, random);
    text += "\n";
    let length = text.len() / 3 + text[text.len() / 3..].find('\n').unwrap() + 1;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    write(&path, &text[..length], Compression::None);
    let open = || FilesSource::open(&declared(&path, "JSON", &[], &[])).unwrap();
    let source = open();
    let mut found = Vec::new();
    let mut offsets = HashMap::new();
    for split in source.splits().unwrap() {
        let mut reader = reader(&source, &split, None, None);
        found.extend(drain(&mut *reader, 100).0);
        offsets.insert(split.name, reader.offset());
    }
    write(&path, &text, Compression::None);
    let source = open();
    for split in source.splits().unwrap() {
        found.extend(drain(&mut *reader(&source, &split, offsets.get(&split.name), None), 100).0);
    }
    found.sort_unstable();
    assert!(found == (0..found.len() as i64).collect::<Vec<_>>());
    assert_eq!(
        found.len(),
        source.decoder(&[0]).unwrap().decode(text.as_bytes(), true, usize::MAX).unwrap().rows.num_rows()
    );
}
