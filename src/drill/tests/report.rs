//! What counts as reconciled, and what the table says.

use super::*;

fn lines(texts: &[&str]) -> Lines {
    let mut lines = Lines::default();
    texts.iter().for_each(|text| lines.add(text.as_bytes()));
    lines
}

fn held(texts: &[&str]) -> Held {
    Held { lines: lines(texts), ..Held::default() }
}

fn report(found: &Held, kill: KillReport) -> Report {
    let sinks = vec![SinkReport::new("k", &lines(&["a", "b"]), found)];
    Report { seed: 7, planned: 1, kills: vec![kill], sinks, ..Report::default() }
}

#[test]
fn it_reconciles_only_if_every_row_is_there_once_and_always_was() {
    let outcome = |found: &[&str]| report(&held(found), KillReport::default()).outcome();
    assert_eq!(outcome(&["b", "a"]), Outcome::Reconciled);
    assert_eq!(outcome(&["b", "a", "a"]), Outcome::Failed);
    assert_eq!(outcome(&["b"]), Outcome::Failed);
    assert_eq!(outcome(&["b", "c"]), Outcome::Failed);
    let whole = held(&["b", "a"]);
    // It was made good again later: it was visible all the same.
    let lost = KillReport { losses: 1, ..KillReport::default() };
    assert_eq!(report(&whole, lost).outcome(), Outcome::Failed);
    for (repeated, unfounded) in [(1, 0), (0, 1)] {
        let changes = Held { repeated, unfounded, ..held(&["a", "b"]) };
        assert_eq!(report(&changes, KillReport::default()).outcome(), Outcome::Failed);
    }
}

#[test]
fn what_does_not_come_to_its_end_has_not_reconciled() {
    let cut = |interrupted: bool, losses: i64| {
        let kill = KillReport { losses, ..KillReport::default() };
        let report = Report { sinks: Vec::new(), interrupted, ..report(&held(&[]), kill) };
        Report { cut_short: Some("it was interrupted".to_owned()), planned: 9, ..report }
    };
    assert_eq!(cut(true, 0).outcome(), Outcome::Interrupted);
    assert_eq!(cut(true, 1).outcome(), Outcome::Failed);
    assert_eq!(cut(false, 0).outcome(), Outcome::Failed);
    assert!(cut(true, 0).table().contains("1 of 9 kills: it was interrupted"));
    assert_eq!(Report::default().outcome(), Outcome::Failed, "of nothing nothing is known");
}

#[test]
fn the_table_says_what_was_seen() {
    let slow = KillReport { place: "gc.x, hit 2".to_owned(), running_ms: 4123, ..KillReport::default() };
    let mut report = report(&held(&["b", "a", "a"]), slow);
    let table = report.table();
    for part in ["4123 ms", "2           3", "- gc.x, hit 2: 4123 ms until", "1 kills, seed 7: IT DOES NOT"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    assert!(!table.contains("place"), "{table}");
    report.kills = vec![report.kills[0].clone(); MANY_KILLS];
    report.kills[0].killed_again = true;
    report.ended_at = Some(3);
    let table = report.table();
    let place = format!("{:<34}{:>6}{:>9}{:>9}{:>9}", "gc.x", 30, 0, "4123 ms", "4123 ms");
    for part in [place.as_str(), "at its end after kill 3"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let json: serde_json::Value = serde_json::from_slice(&report.json().unwrap()).unwrap();
    assert_eq!(
        (&json["times_ms"]["RUNNING"]["p90"], &json["weak_spots"][0]),
        (&4123.into(), &"gc.x, hit 2: 4123 ms until it was RUNNING".into())
    );
}

#[test]
fn quantiles_are_of_what_there_is() {
    assert_eq!(quantiles((0..=100).rev().collect()), [50, 90, 100]);
    assert_eq!(quantiles(vec![7]), [7, 7, 7]);
    assert_eq!(quantiles(Vec::new()), [0, 0, 0]);
}
