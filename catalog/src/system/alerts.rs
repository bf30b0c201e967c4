//! Alerts: what the server noticed by itself and a person should look at, as of now.
//!
//! An alert is a rule over the runtime facts: it is there while the rule holds and goes by itself.
//! The rules are checkpoints.md's: a dataflow that was given up, sinks that can't deliver,
//! checkpoints that are slow, late, or fail in a row.

use super::facts::{CheckpointFact, DeliveryState, RuntimeFacts};
use super::{ColumnType, Row, SystemTable};
use crate::object::ObjectState;
use crate::snapshot::CatalogSnapshot;

/// `weir_catalog.alerts`
pub const TABLE: SystemTable = SystemTable {
    name: "alerts",
    columns: &[
        ("severity", ColumnType::Text),
        ("rule", ColumnType::Text),
        ("object", ColumnType::Text),
        ("message", ColumnType::Text),
        ("hint", ColumnType::Text),
    ],
    rows,
};

struct Alert {
    severity: &'static str,
    rule: &'static str,
    object: Option<String>,
    message: String,
    hint: String,
}

fn rows(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Vec<Row> {
    let row = |alert: Alert| {
        vec![
            alert.severity.into(),
            alert.rule.into(),
            alert.object.into(),
            alert.message.into(),
            alert.hint.into(),
        ]
    };
    degraded(facts)
        .into_iter()
        .chain(disk_full(facts))
        .chain(sinks(catalog, facts))
        .chain(paused(catalog, facts))
        .chain(failing_checkpoints(facts))
        .chain(late_checkpoint(facts))
        .chain(slow_checkpoint(facts))
        .chain(long_alignment(catalog, facts))
        .chain(growing_state(facts))
        .map(row)
        .collect()
}

/// What to do about a dataflow that was given up.
pub const DEGRADED_HINT: &str =
    "It failed too often to restart by itself. Drop or alter the job at fault, or run RECOVER.";

fn degraded(facts: &RuntimeFacts) -> Option<Alert> {
    Some(Alert {
        severity: "critical",
        rule: "dataflow degraded",
        object: None,
        message: facts.degraded.clone()?,
        hint: DEGRADED_HINT.to_owned(),
    })
}

fn disk_full(facts: &RuntimeFacts) -> Option<Alert> {
    Some(Alert {
        severity: "critical",
        rule: "disk full",
        object: None,
        message: facts.disk_full.clone()?,
        hint: "Results stand still and nothing is lost. The dataflow goes on by itself when there is space."
            .to_owned(),
    })
}

fn sinks<'a>(catalog: &'a CatalogSnapshot, facts: &'a RuntimeFacts) -> impl Iterator<Item = Alert> + 'a {
    facts.deliveries.iter().filter_map(move |delivery| {
        let object = catalog.by_id(delivery.id);
        let (severity, rule, hint) = match delivery.state {
            DeliveryState::Running | DeliveryState::Retrying => (
                "warning",
                "sink cannot deliver",
                "Its rows wait in its log; other jobs go on. It is tried again soon.".to_owned(),
            ),
            DeliveryState::Stopped => (
                "critical",
                "sink stopped",
                "Its rows wait in its log; other jobs go on. Mend the target: within a minute it goes on by \
                 itself, at once by ALTER SINK … RESUME."
                    .to_owned(),
            ),
            DeliveryState::Failed => (
                "critical",
                "sink failed",
                format!(
                    "Its rows wait in its log; other jobs go on. ALTER SINK … RESUME tries again. {}",
                    object.map_or("", |object| super::sinks::anew(object, facts))
                ),
            ),
        };
        Some(Alert {
            severity,
            rule,
            object: object.map(|object| object.name.to_string()),
            message: delivery.error.clone()?,
            hint,
        })
    })
}

fn paused<'a>(catalog: &'a CatalogSnapshot, facts: &'a RuntimeFacts) -> impl Iterator<Item = Alert> + 'a {
    catalog.objects().filter(|object| object.state == ObjectState::Paused).map(move |object| Alert {
        severity: "critical",
        rule: "sink paused",
        object: Some(object.name.to_string()),
        message: super::sinks::FULL.to_owned(),
        hint: format!(
            "What was logged is still delivered. Other jobs go on. {}",
            super::sinks::anew(object, facts)
        ),
    })
}

fn failing_checkpoints(facts: &RuntimeFacts) -> Option<Alert> {
    let ended = || facts.checkpoints.iter().rev().filter(|c| c.status != "pending");
    let failures = ended().take_while(|c| c.status == "aborted").count();
    let reason = ended().next().and_then(|c| c.reason.clone()).unwrap_or_default();
    (failures > 0).then(|| Alert {
        severity: if failures > 1 { "critical" } else { "warning" },
        rule: "checkpoints fail",
        object: None,
        message: format!("{failures} checkpoints failed in a row: {reason}"),
        hint: "Results go on; what was not durable is computed again after a crash.".to_owned(),
    })
}

fn late_checkpoint(facts: &RuntimeFacts) -> Option<Alert> {
    let interval_us = facts.checkpoint_interval_us;
    let unfinished = facts.checkpoints.iter().rev().take_while(|c| c.status != "completed").last()?;
    let age_us = facts.now_us - unfinished.triggered_at_us;
    (interval_us > 0 && age_us > 2 * interval_us).then(|| Alert {
        severity: "warning",
        rule: "no checkpoint",
        object: None,
        message: format!("no checkpoint completed for {} s", age_us / 1_000_000),
        hint: "See weir_catalog.checkpoints.".to_owned(),
    })
}

fn slow_checkpoint(facts: &RuntimeFacts) -> Option<Alert> {
    let completed = |c: &&CheckpointFact| c.status == "completed";
    let last = facts.checkpoints.iter().rev().find(completed)?;
    let (took_us, interval_us) = (last.duration_us as i64, facts.checkpoint_interval_us);
    (interval_us > 0 && took_us > interval_us / 10).then(|| Alert {
        severity: "warning",
        rule: "slow checkpoints",
        object: None,
        message: format!(
            "the last checkpoint took {} ms, more than a tenth of checkpoint.interval",
            took_us / 1000
        ),
        hint: "Make checkpoint.interval longer, or the state smaller.".to_owned(),
    })
}

/// Shorter alignments than this are nothing to look at, whatever part of a checkpoint they are.
const ALIGNMENT_US_MIN: u64 = 100_000;

fn long_alignment(catalog: &CatalogSnapshot, facts: &RuntimeFacts) -> Option<Alert> {
    let last = facts.checkpoints.iter().rev().find(|c| c.status == "completed")?;
    let (align_us, job) = (last.parts.align_us, last.parts.align_job?);
    (align_us >= ALIGNMENT_US_MIN && 2 * align_us > last.duration_us).then(|| Alert {
        severity: "warning",
        rule: "long alignment",
        object: Some(super::checkpoints::job_name(catalog, job)),
        message: format!(
            "the last checkpoint waited {} ms of its {} ms for one of the job's inputs",
            align_us / 1000,
            last.duration_us / 1000
        ),
        hint: "One input is slower than the others; checkpoint.aligned_timeout lets barriers overtake."
            .to_owned(),
    })
}

/// A smaller state may grow as fast as it likes.
const STATE_BYTES_MIN: u64 = 256 << 20;
/// Within what time the state may not have grown to twice its size.
const GROWTH_US: i64 = 600_000_000;

fn growing_state(facts: &RuntimeFacts) -> Option<Alert> {
    let mut completed = facts.checkpoints.iter().filter(|c| c.status == "completed");
    let last = completed.clone().next_back()?;
    let before = completed.find(|c| last.triggered_at_us - c.triggered_at_us <= GROWTH_US)?;
    let grown = before.total_bytes.max(STATE_BYTES_MIN / 2).saturating_mul(2);
    (last.total_bytes >= grown).then(|| Alert {
        severity: "warning",
        rule: "state grows fast",
        object: None,
        message: format!(
            "the state grew from {} MB to {} MB within {} s",
            before.total_bytes >> 20,
            last.total_bytes >> 20,
            (last.triggered_at_us - before.triggered_at_us) / 1_000_000
        ),
        hint: "EXPLAIN shows what each operator keeps; a WATERMARK lets windows and interval joins forget."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ObjectId;
    use crate::system::facts::DeliveryFact;

    fn checkpoint(status: &str, triggered_at_us: i64, duration_us: u64) -> CheckpointFact {
        CheckpointFact {
            epoch: 1,
            triggered_at_us,
            status: status.to_owned(),
            duration_us,
            reason: (status == "aborted").then(|| "disk full".to_owned()),
            ..CheckpointFact::default()
        }
    }

    fn rules(facts: &RuntimeFacts) -> Vec<String> {
        let text = |row: Row| format!("{:?} {:?}", row[1], row[3]);
        rows(&CatalogSnapshot::default(), facts).into_iter().map(text).collect()
    }

    fn facts(checkpoints: Vec<CheckpointFact>) -> RuntimeFacts {
        RuntimeFacts {
            checkpoints,
            checkpoint_interval_us: 1_000_000,
            now_us: 10_000_000,
            ..RuntimeFacts::default()
        }
    }

    #[test]
    fn a_healthy_database_has_none() {
        let quiet = facts(vec![checkpoint("aborted", 0, 5), checkpoint("completed", 1, 99_000)]);
        assert_eq!(rules(&quiet), Vec::<String>::new());
        assert_eq!(rules(&RuntimeFacts::default()), Vec::<String>::new());
    }

    #[test]
    fn each_rule_names_what_it_saw() {
        let slow = facts(vec![checkpoint("completed", 0, 101_000)]);
        assert!(rules(&slow)[0].contains("took 101 ms"), "{:?}", rules(&slow));
        let late = facts(vec![checkpoint("completed", 0, 1), checkpoint("pending", 7_999_999, 0)]);
        assert!(rules(&late)[0].contains("for 2 s"), "{:?}", rules(&late));
        let failing = facts(vec![checkpoint("aborted", 9_000_000, 1), checkpoint("aborted", 9_500_000, 1)]);
        assert!(rules(&failing)[0].contains("2 checkpoints failed in a row: disk full"));
        let mut long = checkpoint("completed", 0, 250_000);
        (long.parts.align_us, long.parts.align_job) = (130_000, Some(ObjectId(7)));
        let found = rules(&facts(vec![long.clone()]));
        assert!(found[1].contains("waited 130 ms of its 250 ms"), "{found:?}");
        long.duration_us = 270_000;
        assert_eq!(rules(&facts(vec![long])).len(), 1);
        let sized = |at_us: i64, mb: u64| CheckpointFact {
            total_bytes: mb << 20,
            ..checkpoint("completed", at_us, 1)
        };
        let found = rules(&facts(vec![sized(0, 200), sized(9_000_000, 400)]));
        assert!(found[0].contains("from 200 MB to 400 MB within 9 s"), "{found:?}");
        // Small; or it took its time.
        assert_eq!(rules(&facts(vec![sized(0, 2), sized(9_000_000, 255)])).len(), 0);
        assert_eq!(rules(&facts(vec![sized(0, 200), sized(600_000_001, 400)])).len(), 0);
        let mut others = facts(Vec::new());
        others.degraded = Some("job 7: actor panicked".to_owned());
        let full = RuntimeFacts { disk_full: Some("No space".to_owned()), ..RuntimeFacts::default() };
        assert!(rules(&full)[0].contains("disk full"), "{:?}", rules(&full));
        let delivery = |state| DeliveryFact {
            id: ObjectId(3),
            committed_epoch: None,
            error: Some("no route".to_owned()),
            state,
            degraded: None,
        };
        let states = [DeliveryState::Retrying, DeliveryState::Stopped, DeliveryState::Failed];
        others.deliveries = states.map(delivery).into();
        let found = rules(&others);
        assert!(found[0].contains("degraded") && found[0].contains("job 7"), "{found:?}");
        assert!(found[1].contains("cannot deliver") && found[2].contains("stopped"), "{found:?}");
        assert!(found[3].contains("sink failed"), "{found:?}");
    }
}
