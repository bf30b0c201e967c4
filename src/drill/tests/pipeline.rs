//! The drill's own pipelines are scripts that the drill can read, in each format and target.

use super::*;
use crate::drill::script::Place;

#[test]
fn the_own_pipeline_has_its_sinks_in_files_or_in_a_schema_of_its_own() {
    let script = own(&DrillConfig::example(), &[]).unwrap();
    assert_eq!((script.drilled.len(), script.reference.len(), script.sinks.len()), (5, 5, 2));
    assert!(script.drilled[0].contains("rate = 500") && !script.reference[0].contains("rate"));
    assert_eq!(
        script.drilled[1],
        "CREATE MATERIALIZED VIEW \"drill_bids\" AS SELECT auction, bidder, price, datetime FROM bid"
    );
    assert!(script.drilled[2].contains("'/tmp/it''s here/files/bids'"), "{}", script.drilled[2]);
    let theirs = "'/tmp/it''s here/reference-files/bids'";
    assert!(script.reference[2].contains(theirs), "{}", script.reference[2]);
    let kinds: Vec<_> =
        script.sinks.iter().map(|s| (s.is_append_only(), s.place.is_files(), s.two_phase)).collect();
    assert_eq!(kinds, [(true, true, false), (false, true, false)]);

    let script = own(
        &DrillConfig { postgres: Some("postgresql://u@h:7/d".to_owned()), ..DrillConfig::example() },
        &[],
    )
    .unwrap();
    // Sinks into tables are not on the reference server.
    assert_eq!((script.drilled.len(), script.reference.len()), (5, 3));
    assert!(script.sinks.iter().all(|s| s.two_phase && !s.place.is_files()));
    let Place::Table(table) = &script.sinks[0].place else { panic!("a table") };
    assert!(table.name.starts_with("\"weir_drill_7_") && table.name.ends_with("\".\"bids\""), "{table:?}");
    let schema = script.schema.unwrap();
    assert!(schema.tables.contains("total numeric, PRIMARY KEY (auction))"), "{}", schema.tables);
    let mysql = DrillConfig { postgres: Some("mysql://x".to_owned()), ..DrillConfig::example() };
    assert!(matches!(own(&mysql, &[]), Err(DrillError::Unfit(_))));
}

#[test]
fn every_pipeline_can_be_read_in_every_format() {
    for pipeline in [Pipeline::Bids, Pipeline::Windows, Pipeline::Tables] {
        for format in [FileFormat::Json, FileFormat::Csv, FileFormat::Parquet, FileFormat::Debezium] {
            let script = own(&DrillConfig { pipeline, format, ..DrillConfig::example() }, &[]).unwrap();
            assert!(script.sinks.len() >= 2, "{pipeline:?} {format:?}");
            assert_eq!(script.writes.len(), if pipeline == Pipeline::Tables { 1000 } else { 0 });
        }
    }
    let text: String = (0..200).map(|n| write(n) + ";\n").collect();
    assert!(weir_sql::parser::parse(&text).is_ok(), "{text}");
}

#[test]
fn a_pipeline_is_as_long_as_its_kills_need() {
    let kills = kills::plan(7, 50, super::super::kills::Scene::default());
    let events = |kills: &[Kill]| {
        let script = own(&DrillConfig { events: None, ..DrillConfig::example() }, kills).unwrap();
        let text = script.drilled[0].split("events = ").nth(1).unwrap().to_owned();
        text.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let (none, fifty) = (events(&[]), events(&kills));
    assert_eq!(none, 500 * 5);
    let killing = kills::running(&kills).as_secs();
    assert!(fifty > 500 * killing / 2 && fifty < 500 * (killing + 5), "{fifty} events for {killing} s");
}
