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
        .chain(sinks(catalog, facts))
        .chain(paused(catalog, facts))
        .chain(failing_checkpoints(facts))
        .chain(late_checkpoint(facts))
        .chain(slow_checkpoint(facts))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ObjectId;
    use crate::system::facts::{CheckpointParts, DeliveryFact};

    fn checkpoint(status: &str, triggered_at_us: i64, duration_us: u64) -> CheckpointFact {
        CheckpointFact {
            epoch: 1,
            triggered_at_us,
            status: status.to_owned(),
            duration_us,
            total_bytes: 0,
            new_bytes: 0,
            parts: CheckpointParts::default(),
            reason: (status == "aborted").then(|| "disk full".to_owned()),
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
        let mut others = facts(Vec::new());
        others.degraded = Some("job 7: actor panicked".to_owned());
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
