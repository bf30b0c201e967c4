//! What a script is made into, and which sinks can't be drilled.

use super::*;

#[test]
fn what_can_not_be_reconciled_is_refused() {
    let refused = |sql: &str| match Script::read(&DrillConfig::example(), sql, sql) {
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
    let csv = "CREATE SINK k FROM t WITH (connector = 'file', path = '/x', type = 'append-only') FORMAT PLAIN ENCODE CSV (delimiter = '||')";
    assert!(refused(csv).contains("as the drill reads it"));
}

#[test]
fn files_are_read_as_their_sinks_write_them() {
    let read = |kind: &str, format: &str| {
        let sql = format!("CREATE SINK k FROM t WITH (connector = 'file', path = '/x', {kind}) {format}");
        let script = Script::read(&DrillConfig::example(), &sql, &sql).unwrap();
        let Place::Files(files) = &script.sinks[0].place else { panic!("files") };
        (files.layout, script.sinks[0].meaning.clone())
    };
    let key = vec!["a".to_owned(), "b".to_owned()];
    let upsert = "type = 'upsert', primary_key = 'a, b'";
    let debezium = "type = 'debezium', primary_key = 'a,b'";
    let csv = |delimiter, header| Layout::Csv { delimiter, header };
    for (kind, format, layout, meaning) in [
        ("type = 'append-only'", "FORMAT PLAIN ENCODE JSON", Layout::Json, Meaning::Rows),
        (upsert, "FORMAT PLAIN ENCODE CSV", csv(b',', false), Meaning::Last(key.clone())),
        (upsert, "FORMAT PLAIN ENCODE CSV (header = true)", csv(b',', true), Meaning::Last(key.clone())),
        (
            debezium,
            "FORMAT PLAIN ENCODE CSV (without_header = false, delimiter = '\\t')",
            csv(b'\t', true),
            Meaning::Changes(key.clone()),
        ),
        (debezium, "FORMAT PLAIN ENCODE PARQUET", Layout::Parquet, Meaning::Changes(key.clone())),
        ("type = 'append-only'", "", Layout::Parquet, Meaning::Rows),
    ] {
        assert_eq!(read(kind, format), (layout, meaning), "{kind} {format}");
    }
}

#[test]
fn kills_are_where_the_script_can_be_in_the_middle_of_something() {
    let sql = "CREATE TABLE t (a int);
               CREATE SINK k FROM t WITH (connector = 'file', path = '/x', type = 'append-only') FORMAT PLAIN ENCODE JSON";
    let script = Script::read(&DrillConfig::example(), sql, sql).unwrap();
    assert_eq!(script.jobs, ["TABLE t", "SINK k", "MATERIALIZED VIEW \"drill_k\"", "DATABASE dev"]);
    let scene = |settings: &[&str], rescale| {
        let settings = settings.iter().map(|s| (*s).to_owned()).collect();
        script.scene(&DrillConfig { settings, rescale, ..DrillConfig::example() })
    };
    let plain = scene(&[], false);
    assert!(plain.files && !plain.progress && !plain.two_phase && !plain.writes);
    assert!(!plain.storage && !plain.rescales && scene(&[], true).rescales);
    assert!(scene(&["checkpoint.storage=s3://b/p"], false).storage);
    assert!(!scene(&["checkpoint.storage=s3://b/p", "checkpoint.storage=local"], false).storage);
}
