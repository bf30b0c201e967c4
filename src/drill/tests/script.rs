//! What a script is made into, and which sinks can't be drilled.

use super::*;

fn config(postgres: Option<&str>) -> DrillConfig {
    DrillConfig {
        binary: PathBuf::from("weir"),
        kills: 5,
        seed: 7,
        sql: None,
        events: Some(1000),
        rate: 500,
        postgres: postgres.map(str::to_owned),
        two_phase: true,
        parallelism: 2,
        dir: PathBuf::from("/tmp/it's here"),
    }
}

#[test]
fn the_own_pipeline_has_its_sinks_in_files_or_in_a_schema_of_its_own() {
    let script = Script::of(&config(None)).unwrap();
    assert_eq!((script.drilled.len(), script.reference.len(), script.sinks.len()), (5, 5, 2));
    assert!(script.drilled[0].contains("rate = 500") && !script.reference[0].contains("rate"));
    assert_eq!(
        script.drilled[1],
        "CREATE MATERIALIZED VIEW \"drill_bids\" AS SELECT auction, bidder, price, datetime FROM bid"
    );
    assert!(script.drilled[2].contains("'/tmp/it''s here/files/bids'"), "{}", script.drilled[2]);
    assert!(
        script.reference[2].contains("'/tmp/it''s here/reference-files/bids'"),
        "{}",
        script.reference[2]
    );
    let kinds: Vec<_> =
        script.sinks.iter().map(|s| (s.append_only, s.place.is_files(), s.two_phase)).collect();
    assert_eq!(kinds, [(true, true, false), (false, true, false)]);

    let script = Script::of(&config(Some("postgresql://u@h:7/d"))).unwrap();
    // Sinks into tables are not on the reference server.
    assert_eq!((script.drilled.len(), script.reference.len()), (5, 3));
    assert!(script.sinks.iter().all(|s| s.two_phase && !s.place.is_files()));
    let Place::Table { table, .. } = &script.sinks[0].place else { panic!("a table") };
    assert!(table.starts_with("\"weir_drill_7_") && table.ends_with("\".\"bids\""), "{table}");
    assert!(matches!(Script::of(&config(Some("mysql://x"))), Err(DrillError::Unfit(_))));
}

#[test]
fn what_can_not_be_reconciled_is_refused() {
    let refused = |sql: &str| match Script::read(&config(None), sql, sql) {
        Err(DrillError::Unfit(why)) => why,
        other => panic!("{sql}: {:?}", other.map(|_| ())),
    };
    let sink =
        |options: &str| refused(&format!("CREATE SINK k FROM t WITH ({options}) FORMAT PLAIN ENCODE JSON"));
    assert!(refused("CREATE TABLE t (a int)").contains("has no sink"));
    assert!(refused("CREATE TABEL t").starts_with("the script: "));
    assert!(sink("connector = 'blackhole', type = 'append-only'").contains("only the connectors"));
    assert!(sink("connector = 'file', path = '/x'").contains("give it a type"));
    let dropped = "connector = 'file', path = '/x', type = 'append-only', force_append_only = true";
    assert!(sink(dropped).contains("how its changes came"));
    assert!(sink("connector = 'postgres', type = 'upsert', table.name = 't'").contains("hostname"));
    let parquet = "CREATE SINK k FROM t WITH (connector = 'file', path = '/x', type = 'append-only') FORMAT PLAIN ENCODE PARQUET";
    assert!(refused(parquet).contains("neither JSON"));
}
