//! What a drill saw: a line a kill, a line a place, a line a sink, the weak spots. As a table, or as JSON.

use super::files::Held;
use super::lines::Lines;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A recovery that takes longer is a weak spot.
const RUNNING_SLOW_MS: u64 = 3_000;
/// So is one that replays more than this of the stream.
const REPLAYED_LONG_MS: u64 = 10_000;
/// From so many kills on they are summed up by place as well.
const MANY_KILLS: usize = 30;

/// One kill.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KillReport {
    /// Where or when.
    pub place: String,
    /// What else befell the server.
    pub meanwhile: Option<String>,
    /// Whether it died where it was to.
    pub reached: bool,
    /// Whether the next kill came before it was RUNNING: there are no times then.
    pub killed_again: bool,
    /// From its death until a client noticed, milliseconds.
    pub detect_ms: u64,
    /// From its start until the dataflow was restored, as it says itself.
    pub restore_ms: u64,
    /// From its death until it answered again.
    pub running_ms: u64,
    /// How much of the stream's time was computed again: from the restored checkpoint to its death.
    pub replayed_ms: u64,
    /// Rows that append-only sinks have more often than their source, and had not before.
    pub duplicates: i64,
    /// Rows that append-only sinks had before, and have no more.
    pub losses: i64,
    /// What should not have been.
    pub notes: Vec<String>,
}

impl KillReport {
    /// In a line.
    pub fn line(&self) -> String {
        let mut line = match self.killed_again {
            true => format!("{:<34} killed again before it was RUNNING", self.place),
            false => format!("{:<34} running again after {} ms", self.place, self.running_ms),
        };
        let wrong = [("rows there twice", self.duplicates), ("rows lost", self.losses)];
        let wrong = wrong.iter().filter(|(_, n)| *n != 0).map(|(what, n)| format!("{n} {what}"));
        for note in self.meanwhile.iter().cloned().chain(wrong).chain(self.notes.iter().cloned()) {
            line = format!("{line}; {note}");
        }
        line
    }

    /// The place without the hit, or the moment.
    fn kind(&self) -> &str {
        match self.place.starts_with("after ") {
            true => "a random moment",
            false => self.place.split(',').next().unwrap_or_default(),
        }
    }

    fn weak_spots(&self) -> Vec<String> {
        let mut spots = Vec::new();
        if self.running_ms > RUNNING_SLOW_MS {
            spots.push(format!("{} ms until it was RUNNING", self.running_ms));
        }
        if self.replayed_ms > REPLAYED_LONG_MS {
            spots.push(format!("{} ms of the stream were replayed", self.replayed_ms));
        }
        spots.extend(self.notes.iter().filter(|note| !note.starts_with("not reached")).cloned());
        spots.into_iter().map(|spot| format!("{}: {spot}", self.place)).collect()
    }
}

/// One sink at the end.
#[derive(Clone, Debug, Serialize)]
pub struct SinkReport {
    /// Its name.
    pub sink: String,
    /// Rows that it should have.
    pub expected: i64,
    /// Rows that it has.
    pub found: i64,
    /// Different rows that it should have.
    pub expected_distinct: usize,
    /// Different rows that it has.
    pub found_distinct: usize,
    /// The sum of the hashes of the rows that it should have.
    pub expected_checksum: u64,
    /// Of those that it has.
    pub found_checksum: u64,
    /// Rows too many; where each change is kept, changes that came again too.
    pub duplicates: i64,
    /// Rows too few; where each change is kept, changes that the next one misses too.
    pub losses: i64,
}

impl SinkReport {
    /// Compares.
    pub fn new(sink: &str, expected: &Lines, found: &Held) -> Self {
        let Held { lines: found, repeated, unfounded } = found;
        Self {
            sink: sink.to_owned(),
            expected: expected.count(),
            found: found.count(),
            expected_distinct: expected.distinct(),
            found_distinct: found.distinct(),
            expected_checksum: expected.checksum(),
            found_checksum: found.checksum(),
            duplicates: found.beyond(expected) + repeated,
            losses: expected.beyond(found) + unfounded,
        }
    }

    fn reconciles(&self) -> bool {
        self.duplicates == 0 && self.losses == 0 && self.expected_checksum == self.found_checksum
    }
}

/// A whole drill, or as much as there was of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// From which the kills were drawn.
    pub seed: u64,
    /// How many kills there were to be.
    pub planned: usize,
    /// The kills.
    pub kills: Vec<KillReport>,
    /// The sinks; none if it did not come to its end.
    pub sinks: Vec<SinkReport>,
    /// The kill after which all that was to come had come, if it was not the last.
    pub ended_at: Option<usize>,
    /// Why it did not come to its end.
    pub cut_short: Option<String>,
    /// Whether somebody wanted that.
    pub interrupted: bool,
}

/// What became of a drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every row is there once, and always was.
    Reconciled,
    /// Somebody interrupted it; until then nothing was wrong.
    Interrupted,
    /// A row is lost or there twice, or a server did not come back.
    Failed,
}

impl Report {
    /// What became of it.
    pub fn outcome(&self) -> Outcome {
        let kept = self.kills.iter().all(|kill| kill.duplicates == 0 && kill.losses == 0);
        match (&self.cut_short, kept && self.sinks.iter().all(SinkReport::reconciles)) {
            (None, true) if !self.sinks.is_empty() => Outcome::Reconciled,
            (Some(_), true) if self.interrupted => Outcome::Interrupted,
            _ => Outcome::Failed,
        }
    }

    /// What a person should look at.
    pub fn weak_spots(&self) -> Vec<String> {
        let mut spots: BTreeSet<String> = self.kills.iter().flat_map(KillReport::weak_spots).collect();
        if let Some(at) = self.ended_at.filter(|at| *at < self.kills.len()) {
            spots.insert(format!("the drill itself: the pipeline was at its end after kill {at}"));
        }
        spots.into_iter().collect()
    }

    /// As a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    /// As JSON.
    pub fn json(&self) -> serde_json::Result<Vec<u8>> {
        let mut json = serde_json::to_value(self)?;
        json["weak_spots"] = self.weak_spots().into();
        json["times_ms"] = self
            .times()
            .into_iter()
            .map(|(name, [p50, p90, max])| (name, serde_json::json!({"p50": p50, "p90": p90, "max": max})))
            .collect::<serde_json::Value>();
        serde_json::to_vec_pretty(&json)
    }

    /// Of each time its median, what nine in ten do not exceed, and the longest.
    fn times(&self) -> Vec<(&'static str, [u64; 3])> {
        let back: Vec<&KillReport> = self.kills.iter().filter(|kill| !kill.killed_again).collect();
        let of = |time: fn(&KillReport) -> u64| quantiles(back.iter().map(|kill| time(kill)).collect());
        vec![
            ("detect", of(|kill| kill.detect_ms)),
            ("restore", of(|kill| kill.restore_ms)),
            ("RUNNING", of(|kill| kill.running_ms)),
            ("replayed", of(|kill| kill.replayed_ms)),
        ]
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        self.write_kills(text)?;
        if self.kills.len() >= MANY_KILLS {
            self.write_places(text)?;
        }
        writeln!(text, "\n{:<20}{:>10}{:>10}{:>10}", "time", "p50", "p90", "max")?;
        for (name, times) in self.times() {
            let [p50, p90, max] = times.map(|ms| format!("{ms} ms"));
            writeln!(text, "{name:<20}{p50:>10}{p90:>10}{max:>10}")?;
        }
        self.write_sinks(text)?;
        let spots = self.weak_spots();
        writeln!(text, "\nweak spots: {}", if spots.is_empty() { "none seen" } else { "" })?;
        spots.iter().try_for_each(|spot| writeln!(text, "  - {spot}"))?;
        if let Some(reason) = &self.cut_short {
            writeln!(text, "\n{} of {} kills: {reason}", self.kills.len(), self.planned)?;
        }
        let verdict = match self.outcome() {
            Outcome::Reconciled => "every row is there exactly once",
            Outcome::Interrupted => "no row was lost or there twice so far; the sinks were not reconciled",
            Outcome::Failed => "IT DOES NOT RECONCILE",
        };
        writeln!(text, "\n{} kills, seed {}: {verdict}", self.kills.len(), self.seed)
    }

    fn write_kills(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:>5}  {:<34}{:>9}{:>9}{:>9}{:>10}{:>6}{:>6}",
            "kill", "where", "detect", "restore", "RUNNING", "replayed", "dup", "lost"
        )?;
        for (i, kill) in self.kills.iter().enumerate() {
            let [detect, restore, running, replayed] =
                [kill.detect_ms, kill.restore_ms, kill.running_ms, kill.replayed_ms]
                    .map(|ms| if kill.killed_again { "-".to_owned() } else { format!("{ms} ms") });
            writeln!(
                text,
                "{:>5}  {:<34}{detect:>9}{restore:>9}{running:>9}{replayed:>10}{:>6}{:>6}",
                i + 1,
                kill.place,
                kill.duplicates,
                kill.losses
            )?;
        }
        Ok(())
    }

    fn write_places(&self, text: &mut String) -> std::fmt::Result {
        let mut places: BTreeMap<&str, Vec<&KillReport>> = BTreeMap::new();
        self.kills.iter().for_each(|kill| places.entry(kill.kind()).or_default().push(kill));
        writeln!(
            text,
            "\n{:<34}{:>6}{:>9}{:>9}{:>9}{:>6}{:>6}",
            "place", "kills", "reached", "p50", "max", "dup", "lost"
        )?;
        for (place, kills) in places {
            let reached = kills.iter().filter(|kill| kill.reached).count();
            let back = kills.iter().filter(|kill| !kill.killed_again);
            let [p50, _, max] = quantiles(back.map(|kill| kill.running_ms).collect());
            let [p50, max] = [p50, max].map(|ms| format!("{ms} ms"));
            let duplicates: i64 = kills.iter().map(|kill| kill.duplicates).sum();
            let losses: i64 = kills.iter().map(|kill| kill.losses).sum();
            let count = kills.len();
            writeln!(text, "{place:<34}{count:>6}{reached:>9}{p50:>9}{max:>9}{duplicates:>6}{losses:>6}")?;
        }
        Ok(())
    }

    fn write_sinks(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n{:<20}{:>12}{:>12}{:>18}{:>22}{:>6}{:>6}",
            "sink", "source", "sink", "distinct", "checksum", "dup", "lost"
        )?;
        for sink in &self.sinks {
            let checksum = match sink.expected_checksum == sink.found_checksum {
                true => format!("{:016x}", sink.found_checksum),
                false => format!("{:08x}/{:08x}", sink.expected_checksum >> 32, sink.found_checksum >> 32),
            };
            writeln!(
                text,
                "{:<20}{:>12}{:>12}{:>18}{checksum:>22}{:>6}{:>6}",
                sink.sink,
                sink.expected,
                sink.found,
                format!("{}/{}", sink.expected_distinct, sink.found_distinct),
                sink.duplicates,
                sink.losses
            )?;
        }
        Ok(())
    }
}

/// The median, what nine in ten do not exceed, and the greatest; zeros of nothing.
fn quantiles(mut values: Vec<u64>) -> [u64; 3] {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    [last / 2, last * 9 / 10, last].map(|at| values.get(at).copied().unwrap_or(0))
}

#[cfg(test)]
#[path = "tests/report.rs"]
mod tests;
