//! What a drill saw: a line a kill, a line a sink, the weak spots. As a table, or as JSON.

use super::lines::Lines;
use serde::Serialize;
use std::fmt::Write;

/// One kill.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KillReport {
    /// Where or when.
    pub place: String,
    /// Whether it died where it was to.
    pub reached: bool,
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
        format!(
            "{:<34} running again after {} ms{}",
            self.place,
            self.running_ms,
            if self.notes.is_empty() { String::new() } else { format!("; {}", self.notes.join("; ")) }
        )
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
    /// Rows too many.
    pub duplicates: i64,
    /// Rows too few.
    pub losses: i64,
}

impl SinkReport {
    /// Compares.
    pub fn new(sink: &str, expected: &Lines, found: &Lines) -> Self {
        Self {
            sink: sink.to_owned(),
            expected: expected.count(),
            found: found.count(),
            expected_distinct: expected.distinct(),
            found_distinct: found.distinct(),
            expected_checksum: expected.checksum(),
            found_checksum: found.checksum(),
            duplicates: found.beyond(expected),
            losses: expected.beyond(found),
        }
    }

    fn reconciles(&self) -> bool {
        self.duplicates == 0 && self.losses == 0 && self.expected_checksum == self.found_checksum
    }
}

/// A whole drill.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// From which the kills were drawn.
    pub seed: u64,
    /// The kills.
    pub kills: Vec<KillReport>,
    /// The sinks.
    pub sinks: Vec<SinkReport>,
    /// What a person should look at.
    pub weak_spots: Vec<String>,
}

impl Report {
    /// Whether every row is there once, and always was.
    pub fn reconciles(&self) -> bool {
        let kept = self.kills.iter().all(|kill| kill.duplicates == 0 && kill.losses == 0);
        kept && self.sinks.iter().all(SinkReport::reconciles)
    }

    /// As a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:>5}  {:<34}{:>9}{:>9}{:>9}{:>10}{:>6}{:>6}",
            "kill", "where", "detect", "restore", "RUNNING", "replayed", "dup", "lost"
        )?;
        for (i, kill) in self.kills.iter().enumerate() {
            let [detect, restore, running, replayed] =
                [kill.detect_ms, kill.restore_ms, kill.running_ms, kill.replayed_ms]
                    .map(|ms| format!("{ms} ms"));
            writeln!(
                text,
                "{:>5}  {:<34}{detect:>9}{restore:>9}{running:>9}{replayed:>10}{:>6}{:>6}",
                i + 1,
                kill.place,
                kill.duplicates,
                kill.losses
            )?;
        }
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
        writeln!(text, "\nweak spots: {}", if self.weak_spots.is_empty() { "none seen" } else { "" })?;
        self.weak_spots.iter().try_for_each(|spot| writeln!(text, "  - {spot}"))?;
        let verdict = match self.reconciles() {
            true => "every row is there exactly once",
            false => "IT DOES NOT RECONCILE",
        };
        writeln!(text, "\n{} kills, seed {}: {verdict}", self.kills.len(), self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Lines {
        let mut lines = Lines::default();
        texts.iter().for_each(|text| lines.add(text.as_bytes()));
        lines
    }

    fn report(found: &[&str], kill: KillReport) -> Report {
        let sinks = vec![SinkReport::new("k", &lines(&["a", "b"]), &lines(found))];
        Report { seed: 7, kills: vec![kill], sinks, weak_spots: vec!["slow".to_owned()] }
    }

    #[test]
    fn it_reconciles_only_if_every_row_is_there_once_and_always_was() {
        assert!(report(&["b", "a"], KillReport::default()).reconciles());
        assert!(!report(&["b", "a", "a"], KillReport::default()).reconciles());
        assert!(!report(&["b"], KillReport::default()).reconciles());
        assert!(!report(&["b", "c"], KillReport::default()).reconciles());
        // It was made good again later: it was visible all the same.
        assert!(!report(&["b", "a"], KillReport { losses: 1, ..KillReport::default() }).reconciles());
    }

    #[test]
    fn the_table_says_what_was_seen() {
        let table = report(&["b", "a", "a"], KillReport { running_ms: 123, ..KillReport::default() }).table();
        for part in ["123 ms", "2           3", "- slow", "1 kills, seed 7: IT DOES NOT RECONCILE"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
    }
}
