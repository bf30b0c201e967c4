//! Sources: what they hold, what of it the server must have read, and what is asked of it.
//!
//! A view of all columns mirrors each source: it shows how far each split was read at an epoch, and
//! other views over the source are compared with their queries over that mirror.

use super::*;
use crate::connectors::simulated_source::{self as source, Message};
use crate::job::manager::Visible;
use std::collections::BTreeSet;

/// The sources and their mirrors. The first one has a watermark, and splits that are there from the start.
const SOURCES: [(&str, &str, &str); 2] = [
    (
        "ea",
        "ma",
        "CREATE SOURCE ea (split bigint, pos bigint, ts timestamp, g bigint, WATERMARK FOR ts AS ts - INTERVAL '5 \
         seconds') WITH (connector = 'simulated', stream = 'ea')",
    ),
    (
        "eb",
        "mb",
        "CREATE SOURCE eb (split bigint, pos bigint, ts timestamp, g bigint) \
         WITH (connector = 'simulated', stream = 'eb')",
    ),
];

/// How far behind the rows before it a row may come.
const DELAY_US: i64 = 5_000_000;
const CLOSED: &str = " EMIT ON WINDOW CLOSE";

/// Views over sources; `{ea}` and `{eb}` stand for them.
pub const QUERIES: &[&str] = &[
    "SELECT g, count(*) AS n, max(pos) AS h FROM {ea} GROUP BY g",
    "SELECT split, pos, ts FROM {ea} WHERE g > 1",
    "SELECT window_start, count(*) AS n, sum(pos) AS s FROM TUMBLE({ea}, ts, INTERVAL '4 seconds') GROUP BY window_start",
    "SELECT window_start, g, count(*) AS n FROM TUMBLE({ea}, ts, INTERVAL '4 seconds') GROUP BY window_start, g \
     EMIT ON WINDOW CLOSE",
    "SELECT window_start, count(*) AS n, sum(g) AS s FROM TUMBLE({ea}, ts, INTERVAL '4 seconds') GROUP BY window_start \
     EMIT ON WINDOW CLOSE",
    "SELECT split, pos, t0.d FROM {eb} JOIN t0 ON {eb}.g = t0.id",
    "SELECT split, count(*) AS n, min(ts) AS l FROM {eb} GROUP BY split",
    "SELECT a.split AS sa, b.split AS sb, count(*) AS n FROM {ea} a JOIN {eb} b ON a.g = b.g GROUP BY a.split, b.split",
];

/// A query as the server gets it.
pub fn live(query: &str) -> String {
    query.replace("{ea}", "ea").replace("{eb}", "eb")
}

/// The same over what was read, as a batch.
pub fn batch(query: &str) -> String {
    query.replace("{ea}", "ma").replace("{eb}", "mb").replace(CLOSED, "")
}

/// Whether it shows windows only once they are closed.
pub fn closes(query: &str) -> bool {
    query.ends_with(CLOSED)
}

/// Where the messages of a split are that become rows, and how many of them come too late; up to each.
struct Kept {
    in_time: Vec<usize>,
    late: u64,
    noise: BTreeSet<usize>,
    /// No row below this comes any more.
    watermark_us: Option<i64>,
}

fn kept(messages: &[Message], lateness: bool) -> Kept {
    let mut kept = Kept { in_time: Vec::new(), late: 0, noise: BTreeSet::new(), watermark_us: None };
    for (at, message) in messages.iter().enumerate() {
        match message {
            None => drop(kept.noise.insert(at)),
            Some((Some(time), _)) if lateness && kept.watermark_us.is_some_and(|w| *time < w) => {
                kept.late += 1;
            }
            Some((time, _)) => {
                kept.in_time.push(at);
                kept.watermark_us = kept.watermark_us.max(time.map(|time| time - DELAY_US));
            }
        }
    }
    kept
}

impl Simulation {
    pub fn has_sources(&self) -> bool {
        SOURCES.iter().all(|(_, mirror, _)| self.clients.objects.contains_key(*mirror))
    }

    /// Declares the sources, with a mirror of each, and a sink of one.
    pub fn create_sources(&mut self) {
        for (name, mirror, create) in SOURCES {
            source::with(name, |stream| stream.resize(3, Vec::new()));
            self.until_created(name, create, None);
            let mirrors = format!("CREATE MATERIALIZED VIEW {mirror} AS SELECT * FROM {name}");
            self.until_created(mirror, &mirrors, None);
        }
    }

    /// Messages arrive.
    pub fn produce(&mut self) {
        if !self.has_sources() {
            return;
        }
        let name = SOURCES[self.random.random_range(0..2)].0;
        let grows = name == "eb" && self.random.random_ratio(1, 20);
        let count = self.random.random_range(1..8);
        source::with(name, |stream| {
            if grows && stream.len() < 6 {
                stream.push(Vec::new());
            }
            for _ in 0..count {
                let split = self.random.random_range(0..stream.len());
                let s = stream[split].len() as i64 + self.random.random_range(-4..3);
                let time = 1_767_225_600_000_000 + s * 2_000_000;
                let time = (!self.random.random_ratio(1, 15)).then_some(time);
                let message = (time, self.random.random_range(0..4));
                stream[split].push((!self.random.random_ratio(1, 20)).then_some(message));
            }
        });
        self.trace.count(count as u64);
    }

    /// What was read of each source is the beginning of each of its splits, once; all of it, if nothing
    /// is left to be read.
    pub fn check_sources(&self, visible: &Visible, all: bool) {
        if let Some(wrong) = self.wrong_with_sources(visible, all) {
            panic!("{wrong}, at {:?}", visible.epoch);
        }
    }

    pub fn wrong_with_sources(&self, visible: &Visible, all: bool) -> Option<String> {
        let db = self.db().filter(|_| self.has_sources())?;
        let catalog = db.catalog();
        for (name, mirror, _) in SOURCES {
            let mirror = catalog.get(&ObjectName::public(mirror))?;
            let source = catalog.get(&ObjectName::public(name))?;
            let mut read: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for row in oracle::stored(mirror, &catalog, visible) {
                let mut cells = row.split('|').map(|cell| cell.parse::<usize>());
                let (Some(Ok(split)), Some(Ok(at))) = (cells.next(), cells.next()) else {
                    return Some(format!("row {row} of {name}"));
                };
                read.entry(split).or_default().push(at);
            }
            let mut letters = BTreeSet::new();
            let stream = source::with(name, |stream| stream.clone());
            for (split, messages) in stream.iter().enumerate() {
                let kept = kept(messages, name == "ea");
                letters.extend(kept.noise.iter().map(|at| format!("{split}|{at}")));
                letters.extend((1..=kept.late).map(|number| format!("{split}|late {number}")));
                let mut read = read.remove(&split).unwrap_or_default();
                read.sort_unstable();
                let expected = if all { kept.in_time.len() } else { read.len().min(kept.in_time.len()) };
                if read != kept.in_time[..expected] {
                    let in_time = kept.in_time;
                    return Some(format!("of split {split} of {name} {read:?} was read, of {in_time:?}"));
                }
            }
            let found: Vec<String> = oracle::stored_letters(source.id, visible);
            let set: BTreeSet<String> = found.iter().cloned().collect();
            if !set.is_subset(&letters) || set.len() != found.len() || (all && set != letters) {
                return Some(format!("the dead letters of {name} are {found:?}, not {letters:?}"));
            }
        }
        None
    }

    /// The windows that are closed when everything was read.
    pub fn closed(&self, query: &str) -> String {
        let marks = source::with("ea", |stream| {
            stream.iter().map(|messages| kept(messages, true).watermark_us).collect::<Vec<_>>()
        });
        let least = marks.into_iter().min().flatten().unwrap_or(0);
        format!(
            "SELECT * FROM ({}) q WHERE window_start + INTERVAL '4 seconds' <= to_timestamp({}::double precision)",
            batch(query),
            least as f64 / 1e6
        )
    }
}
