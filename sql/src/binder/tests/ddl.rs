//! DDL: what CREATE makes, what DROP takes along, and how either is refused.

use super::fixture::*;
use super::*;
use weir_catalog::relation::{OnConflict, RowKey};
use weir_catalog::sink::SinkType;
use weir_catalog::{CatalogChange, ObjectBody, ObjectState};

fn refused(db: &mut Db, cases: &[(&str, &str, &str)]) {
    for (sql, state, message) in cases {
        let e = db.error(sql);
        assert_eq!((e.state.0, e.message.as_str()), (*state, *message), "{sql}");
    }
}

#[test]
fn create_table_makes_columns_keys_and_defaults() {
    let mut db = Db::new();
    let create = db.create(
        "create table t (id int primary key, s varchar(10) not null default 'a' || 'b', n numeric(10,2) default 1, \
         ts timestamptz default now()) on conflict do nothing",
    );
    assert_eq!((create.tag.as_str(), create.object.state), ("CREATE TABLE", ObjectState::Creating));
    let ObjectBody::Table(t) = &create.object.body else { panic!() };
    assert_eq!(t.key, RowKey::Columns(vec![0]));
    assert_eq!(t.on_conflict, OnConflict::DoNothing);
    let columns: Vec<String> = t
        .columns
        .iter()
        .map(|c| format!("{} {} {} {:?}", c.name, c.sql_type, c.nullable, c.default))
        .collect();
    assert_eq!(
        columns,
        [
            "id integer false None",
            "s character varying(10) false Some(\"'a' || 'b'\")",
            "n numeric(10,2) true Some(\"1\")",
            "ts timestamp with time zone true Some(\"now()\")"
        ]
    );
    let create = db.create("create table u (a int, b int)");
    let ObjectBody::Table(u) = &create.object.body else { panic!() };
    assert_eq!(u.key, RowKey::WholeRow);
}

#[test]
fn create_table_refuses_nonsense() {
    let mut db = Db::new();
    db.run("create table t (a int)");
    refused(
        &mut db,
        &[
            ("create table t (a int)", "42P07", "relation \"t\" already exists"),
            ("create table u (a int, a int)", "42701", "column \"a\" specified more than once"),
            ("create table u (a int, primary key (b))", "42703", "column \"b\" named in key does not exist"),
            (
                "create table u (a int default 'x'::text)",
                "42804",
                "column \"a\" is of type integer but expression is of type text",
            ),
            (
                "create table u (a int, b int default a)",
                "0A000",
                "a column reference in a DEFAULT expression is not supported",
            ),
            (
                "create table u (a int default sum(1))",
                "42803",
                "aggregate functions are not allowed in DEFAULT expressions",
            ),
            ("create table u (a wat)", "42704", "type \"wat\" does not exist"),
            ("create table x.u (a int)", "3F000", "schema \"x\" does not exist"),
            ("create table pg_catalog.u (a int)", "42501", "permission denied to create \"pg_catalog.u\""),
            (
                "create table u (a int) with (connector = 'file')",
                "0A000",
                "a table with a connector is not supported",
            ),
            ("create table u ()", "42P16", "table \"u\" has no columns"),
            ("create table u (a int) on conflict do nothing", "42P16", "ON CONFLICT needs a primary key"),
        ],
    );
    let Bound::Skip { tag, notice } = db.bind("create table if not exists t (a int)") else { panic!() };
    assert_eq!((tag.as_str(), notice.as_str()), ("CREATE TABLE", "relation \"t\" already exists, skipping"));
    assert_eq!(db.error("select 1; create table u (a int default nope())").position, Some(41));
}

#[test]
fn create_source_checks_its_connector() {
    let mut db = Db::new();
    let create = db.create(
        "create source bid (watermark for date_time as date_time - interval '4 seconds') \
         with (connector = 'nexmark', nexmark.table.type = 'Bid', events = 10)",
    );
    let ObjectBody::Source(s) = &create.object.body else { panic!() };
    assert_eq!(
        (s.connector.as_str(), s.columns.len(), create.object.state),
        ("nexmark", 3, ObjectState::Created)
    );
    assert_eq!(s.watermark.as_ref().map(|w| (w.column, w.delay_us)), Some((2, 4_000_000)));
    assert_eq!((s.format.encode.as_str(), s.options["events"].as_str()), ("NATIVE", "10"));
    refused(
        &mut db,
        &[
            ("create source s (a int)", "22023", "missing option \"connector\""),
            (
                "create source s (a int) with (connector = 'kafak')",
                "22023",
                "there is no source connector \"kafak\"",
            ),
            (
                "create source s (a int) with (connector = 'file', pat = 'x') format plain encode json",
                "22023",
                "unknown option \"pat\" of connector \"file\"",
            ),
            (
                "create source s (a int) with (connector = 'file') format plain encode json",
                "22023",
                "missing option \"path\" of connector \"file\"",
            ),
            (
                "create source s (a int) with (connector = 'file', path = 'x')",
                "22023",
                "connector \"file\" needs FORMAT … ENCODE …",
            ),
            (
                "create source s (a int) with (connector = 'file', path = 'x') format plain encode avro",
                "0A000",
                "ENCODE AVRO with connector \"file\" is not supported",
            ),
            (
                "create source s with (connector = 'file', path = 'x') format plain encode csv",
                "42P16",
                "source \"s\" has no columns",
            ),
            (
                "create source s (a int, watermark for a as a - interval '1s') with (connector = 'file', path = 'x') format plain encode csv",
                "42804",
                "the watermark column \"a\" is of type integer",
            ),
            (
                "create source s (a timestamp, watermark for a as a + interval '1s') with (connector = 'file', path = 'x') format plain encode csv",
                "0A000",
                "WATERMARK FOR a AS a + INTERVAL '1s' is not supported",
            ),
            (
                "create source s (a timestamp, watermark for b as b) with (connector = 'file', path = 'x') format plain encode csv",
                "42703",
                "column \"b\" does not exist",
            ),
        ],
    );
    let e = db.error("create source s (a int) with (connector = 'file', pat = 'x') format plain encode json");
    assert_eq!(e.hint.as_deref(), Some("Perhaps you meant \"path\"."));
    db.create("create source s (a int) with (connector = 'file', path = 'x', s3.region = 'y') format plain encode json");
}

#[test]
fn materialized_views_have_plans_keys_and_inputs() {
    let mut db = Db::new();
    db.run("create table t (id int primary key, g text, n int); create view w as select id, g, n + 1 as m from t; select 1");
    let table = db.context.catalog.get(&ObjectName::public("t")).unwrap().id;
    let view = db.context.catalog.get(&ObjectName::public("w")).unwrap().id;
    let create = db.create("create materialized view v as select g, count(*), sum(m) from w group by g");
    let ObjectBody::MaterializedView(v) = &create.object.body else { panic!() };
    let columns: Vec<String> = v.columns.iter().map(|c| format!("{} {}", c.name, c.sql_type)).collect();
    assert_eq!(columns, ["g text", "count bigint", "sum bigint"]);
    assert_eq!((v.key.clone(), v.append_only), (RowKey::Columns(vec![0]), false));
    assert_eq!(v.inputs, [table, view]);
    assert_eq!(v.query, "select g, count(*), sum(m) from w group by g");
    let plan = create.plan.as_ref().expect("a plan");
    let again = replan(&create.object, &db.context).unwrap();
    let explained = |p: &crate::plan::StreamPlan| crate::plan::explain::explain(p, &db.context.catalog);
    assert_eq!(explained(plan), explained(&again));
    let create = db.create("create materialized view v (x, y) as select g, n from t");
    let ObjectBody::MaterializedView(v) = &create.object.body else { panic!() };
    assert_eq!((v.columns[0].name.as_str(), v.columns[1].name.as_str()), ("x", "y"));
    refused(
        &mut db,
        &[
            (
                "create materialized view v as select n, n from t",
                "42701",
                "column \"n\" specified more than once",
            ),
            (
                "create materialized view v (a, b, c) as select g, n from t",
                "42601",
                "CREATE VIEW specifies more column names than columns",
            ),
            ("create materialized view v as select $1::int", "42P02", "there is no parameter $1"),
            (
                "create materialized view v as select oid from pg_class",
                "0A000",
                "pg_catalog.pg_class in a stored query is not supported",
            ),
            (
                "create materialized view v as select g from t emit on window close",
                "0A000",
                "EMIT ON WINDOW CLOSE of a query without a watermark on its windows is not supported",
            ),
            ("create materialized view t as select 1", "42P07", "relation \"t\" already exists"),
        ],
    );
}

#[test]
fn sinks_know_what_their_rows_mean() {
    let mut db = Db::new();
    db.run(
        "create table t (id int primary key, n int); create table log (a int) append only; \
         create materialized view c as select n, count(*) as k from t group by n; select 1",
    );
    let sink = |db: &mut Db, sql: &str| {
        let create = db.create(sql);
        assert!(create.plan.is_some());
        match create.object.body {
            ObjectBody::Sink(s) => (s.sink_type, s.primary_key, s.query, create.notices.len()),
            other => panic!("{other:?}"),
        }
    };
    let (kind, key, query, _) = sink(
        &mut db,
        "create sink k from log with (connector = 'file', path = '/x', type = 'append-only') format plain encode json",
    );
    assert_eq!((kind, key, query.as_str()), (SinkType::AppendOnly, None, "SELECT * FROM log"));
    let (kind, key, ..) = sink(&mut db, "create sink k from c with (connector = 'blackhole')");
    assert_eq!((kind, key), (SinkType::Upsert, Some(vec![0])));
    let (kind, key, ..) = sink(
        &mut db,
        "create sink k as select k as a, n as b from c with (connector = 'blackhole', type = 'upsert', primary_key = 'b, a')",
    );
    assert_eq!((kind, key), (SinkType::Upsert, Some(vec![1, 0])));
    let (.., notices) = sink(
        &mut db,
        "create sink k from c with (connector = 'blackhole', type = 'append-only', force_append_only = true)",
    );
    // That retractions are dropped, and that the connector delivers at least once.
    assert_eq!(notices, 2);
    db.run(
        "create source pipe (a int) with (connector = 'file', path = '/x') format plain encode json;
         create materialized view counted as select count(*) as n, max(a) as a from pipe; select 1",
    );
    let to_files =
        "with (connector = 'file', path = '/x', type = 'upsert', primary_key = 'n') format plain encode json";
    let notices = db.create(&format!("create sink k from counted {to_files}")).notices;
    let expected = "sink \"k\" delivers at least once: source \"pipe\" can't be read again: pipes flow once";
    assert_eq!(notices, [expected]);
    assert_eq!(db.create(&format!("create sink k from c {to_files}")).notices, [""; 0]);
    refused(
        &mut db,
        &[
            (
                "create sink k from c with (connector = 'blackhole', type = 'append-only')",
                "0A000",
                "an append-only sink of rows that may change is not supported",
            ),
            (
                "create sink k from c with (connector = 'blackhole', type = 'upsert')",
                "22023",
                "missing option \"primary_key\"",
            ),
            (
                "create sink k from c with (connector = 'blackhole', type = 'x')",
                "22023",
                "unknown sink type \"x\"",
            ),
            (
                "create sink k from c with (connector = 'blackhole', primary_key = 'zz')",
                "42703",
                "column \"zz\" named in primary_key does not exist",
            ),
            (
                "create sink k from nope with (connector = 'blackhole')",
                "42P01",
                "relation \"nope\" does not exist",
            ),
            (
                "create sink k from c with (connector = 'blackhole', x = 1)",
                "22023",
                "unknown option \"x\" of connector \"blackhole\"",
            ),
        ],
    );
}

#[test]
fn indexes_name_columns_of_stored_relations() {
    let mut db = Db::new();
    db.run("create table t (id int primary key, n int, s text)");
    let create = db.create("create index on t (n desc) include (s)");
    assert_eq!(create.object.name, ObjectName::public("t_n_idx"));
    let ObjectBody::Index(index) = &create.object.body else { panic!() };
    assert_eq!(
        (index.columns.as_slice(), index.include.as_slice()),
        ([(1, true)].as_slice(), [2].as_slice())
    );
    assert_eq!(create.plan.unwrap().root.schema.fields().len(), 3);
    db.run("create view w as select * from t");
    refused(
        &mut db,
        &[
            ("create index i on t (x)", "42703", "column \"x\" does not exist"),
            ("create index i on w (n)", "42809", "cannot create an index on view \"w\""),
            ("create index i on t (n, n)", "42701", "column \"n\" specified more than once"),
            ("create index i on nope (n)", "42P01", "relation \"nope\" does not exist"),
        ],
    );
}

#[test]
fn drop_names_or_takes_what_depends_on_it() {
    let mut db = Db::new();
    db.run(
        "create table t (id int primary key); create index i on t (id); create view w as select id from t; \
         create materialized view v as select id from w; select 1",
    );
    let e = db.error("drop table t");
    assert_eq!(
        (e.state.0, e.message.as_str()),
        ("2BP01", "cannot drop table t because other objects depend on it")
    );
    assert_eq!(
        e.detail.as_deref(),
        Some(
            "view w depends on table t\nmaterialized view v depends on table t\nmaterialized view v depends on view w"
        )
    );
    assert_eq!(e.hint.as_deref(), Some("Use DROP ... CASCADE to drop the dependent objects too."));
    let Bound::Change { changes, tag, notices } = db.bind("drop table t cascade") else { panic!() };
    assert_eq!((tag.as_str(), changes.len()), ("DROP TABLE", 4));
    assert_eq!(notices, ["drop cascades to 2 other objects"]);
    let mut catalog = (*db.context.catalog).clone();
    for change in &changes {
        catalog = catalog.apply(change).unwrap();
    }
    assert_eq!(catalog.objects().count(), 0);
    let Bound::Change { changes, .. } = db.bind("drop materialized view v") else { panic!() };
    assert_eq!(changes.len(), 1);
    let Bound::Change { changes, notices, .. } = db.bind("drop table if exists nope, x.y") else { panic!() };
    assert!(changes.is_empty());
    assert_eq!(
        notices,
        ["table \"nope\" does not exist, skipping", "table \"x.y\" does not exist, skipping"]
    );
    let e = db.error("drop table v");
    assert_eq!((e.state.0, e.message.as_str()), ("42809", "\"v\" is not a table"));
    assert_eq!(e.hint.as_deref(), Some("Use DROP MATERIALIZED VIEW v."));
    let e = db.error("drop materialized view vv");
    assert_eq!((e.state.0, e.message.as_str()), ("42P01", "materialized view \"vv\" does not exist"));
    assert_eq!(e.hint.as_deref(), Some("Perhaps you meant the materialized view \"v\"."));
}

#[test]
fn schemas_renames_comments_and_settings() {
    let mut db = Db::new();
    db.run("create schema s; create table s.t (a int); create table u (a int); create view w as select * from u; select 1");
    refused(
        &mut db,
        &[
            ("create schema s", "42P06", "schema \"s\" already exists"),
            ("drop schema s", "2BP01", "cannot drop schema s because it is not empty"),
            ("drop schema nope", "3F000", "schema \"nope\" does not exist"),
            ("create schema pg_x", "42939", "unacceptable schema name \"pg_x\""),
            ("alter table u rename to w", "42P07", "relation \"w\" already exists"),
            ("alter table u rename column b to c", "42703", "column \"b\" does not exist"),
            ("alter sink u resume", "42809", "\"u\" is not a sink"),
            ("describe nope", "42P01", "relation \"nope\" does not exist"),
        ],
    );
    let Bound::Change { changes, tag, .. } = db.bind("alter table s.t rename to t2") else { panic!() };
    assert!(matches!(&changes[0], CatalogChange::Rename(_, name) if *name == ObjectName::new("s", "t2")));
    assert_eq!(tag, "ALTER TABLE");
    let Bound::Change { changes, .. } = db.bind("alter database dev set checkpoint.interval = '5s'") else {
        panic!()
    };
    assert_eq!(changes, [CatalogChange::Set("checkpoint.interval".into(), Some("5s".into()))]);
    assert!(matches!(db.bind("comment on table u is 'x'"), Bound::Change { .. }));
    let Bound::Session(Statement::Describe(name)) = db.bind("describe u") else { panic!() };
    assert_eq!(name, ObjectName::public("u"));
    db.context.search_path = vec!["s".to_owned(), "public".to_owned()];
    assert_eq!(db.create("create table x (a int)").object.name, ObjectName::new("s", "x"));
    assert_eq!(db.columns("select * from t"), "a integer");
    refused(
        &mut db,
        &[(
            "create materialized view v as select * from t",
            "0A000",
            "a stored query with names that depend on search_path is not supported",
        )],
    );
    db.create("create materialized view v as select * from s.t");
}

#[test]
fn explain_shows_plans() {
    let mut db = Db::new();
    db.run("create table t (id int primary key, n int)");
    let text = |db: &mut Db, sql: &str| match db.bind(sql) {
        Bound::ExplainJob(text) => text,
        Bound::ExplainQuery(plan) => plan.display_indent().to_string(),
        other => panic!("{other:?}"),
    };
    let stream = text(&mut db, "explain create materialized view v as select n, count(*) from t group by n");
    assert!(stream.contains("Aggregate group (n)") && stream.contains("Scan t"), "{stream}");
    let batch = text(&mut db, "explain select n from t where id = 1");
    assert!(batch.starts_with("Explain") && batch.contains("TableScan: t"), "{batch}");
    let analyzed = text(&mut db, "explain analyze select n from t where id = 1");
    assert!(analyzed.starts_with("Analyze"), "{analyzed}");
}
