//! What the parser accepts, refuses, and where it says the error is.

use super::statement::*;
use super::*;
use weir_catalog::ObjectKind;
use weir_catalog::relation::OnConflict;

fn one(sql: &str) -> Statement {
    let mut statements = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    assert_eq!(statements.len(), 1, "{sql}");
    statements.remove(0).statement
}

fn error(sql: &str) -> (String, String, Option<usize>) {
    let e = parse(sql).expect_err(sql);
    (e.state.0.to_owned(), e.message, e.position)
}

fn set(sql: &str) -> (String, Option<String>) {
    match one(sql) {
        Statement::Set { name, value, .. } => (name, value),
        other => panic!("{other:?}"),
    }
}

fn setting(name: &str, value: &str) -> (String, Option<String>) {
    (name.to_owned(), Some(value.to_owned()))
}

#[test]
fn statements_are_split_with_their_own_text() {
    let parsed = parse("  select 1 ; ; select ';' -- a;b\n ; -- nothing\n").unwrap();
    assert_eq!(parsed.len(), 2);
    assert_eq!((parsed[0].text.as_str(), parsed[0].offset), ("select 1", 2));
    assert_eq!((parsed[1].text.as_str(), parsed[1].offset), ("select ';'", 15));
    assert!(parse("").unwrap().is_empty());
    assert!(parse(" /* x */ ; ").unwrap().is_empty());
}

#[test]
fn syntax_errors_are_postgres_like() {
    assert_eq!(
        error("select 1;\nselct 1"),
        ("42601".into(), "syntax error at or near \"selct\"".into(), Some(11))
    );
    assert_eq!(error("select * from"), ("42601".into(), "syntax error at end of input".into(), Some(14)));
    assert_eq!(
        error("select a from t where b c"),
        ("42601".into(), "syntax error at or near \"c\"".into(), Some(25))
    );
    assert_eq!(
        error("create table t (a int,)"),
        ("42601".into(), "syntax error at or near \")\"".into(), Some(23))
    );
    assert_eq!(error("select 1 1"), ("42601".into(), "syntax error at or near \"1\"".into(), Some(10)));
    let (state, message, position) = error("select 'abc");
    assert_eq!((state.as_str(), position), ("42601", Some(8)));
    assert_eq!(message, "unterminated quoted string at or near \"'abc\"");
    assert_eq!(error("create"), ("42601".into(), "syntax error at end of input".into(), Some(7)));
}

#[test]
fn what_is_not_supported_is_named() {
    for (sql, message) in [
        ("vacuum t", "VACUUM is not supported"),
        (
            "create function f() returns int language sql as $$ select 1 $$",
            "CREATE FUNCTION is not supported",
        ),
        ("create unique index i on t (a)", "CREATE UNIQUE INDEX is not supported"),
        ("alter table t add column b int", "ALTER TABLE … ADD is not supported"),
        ("drop role r", "DROP ROLE is not supported"),
        ("create table t (a int check (a > 0))", "a CHECK constraint is not supported"),
        ("create table t as select 1", "CREATE TABLE AS is not supported"),
        ("with x as (select 1) delete from t", "WITH in front of INSERT, UPDATE or DELETE is not supported"),
    ] {
        let e = parse(sql).expect_err(sql);
        assert_eq!((e.state.0, e.message.as_str()), ("0A000", message), "{sql}");
    }
}

#[test]
fn create_table_takes_every_clause() {
    let Statement::CreateTable(t) = one(
        "CREATE TABLE IF NOT EXISTS s.\"T\" (Id bigint PRIMARY KEY, name varchar(10) NOT NULL DEFAULT 'x' || 'y', \
         ts timestamp DEFAULT now() NOT NULL, price numeric(10,2), WATERMARK FOR ts AS ts - INTERVAL '5 seconds') \
         APPEND ONLY ON CONFLICT DO UPDATE FULL",
    ) else {
        panic!()
    };
    assert_eq!((t.name.schema.as_str(), t.name.name.as_str()), ("s", "T"));
    assert!(t.if_not_exists && t.append_only);
    assert_eq!(t.columns.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["id", "name", "ts", "price"]);
    assert_eq!(t.columns.iter().map(|c| c.not_null).collect::<Vec<_>>(), [true, true, true, false]);
    assert_eq!(t.columns[1].default.as_ref().unwrap().to_string(), "'x' || 'y'");
    assert_eq!(t.primary_key, ["id"]);
    assert_eq!(t.on_conflict, OnConflict::DoUpdateFull);
    assert_eq!(t.watermark.unwrap().0, "ts");
    let Statement::CreateTable(t) = one("create table t (a int, b int, constraint k primary key (a, b))")
    else {
        panic!()
    };
    assert_eq!((t.primary_key, t.name.schema.as_str()), (vec!["a".to_owned(), "b".to_owned()], ""));
    let (state, message, _) = error("create table t (a int primary key, b int primary key)");
    assert_eq!(
        (state.as_str(), message.as_str()),
        ("42P16", "multiple primary keys for table \"t\" are not allowed")
    );
}

#[test]
fn create_source_takes_options_and_format() {
    let Statement::CreateSource(s) = one(
        "CREATE SOURCE bid (WATERMARK FOR \"dateTime\" AS \"dateTime\" - INTERVAL '4 seconds') WITH (connector = \
         'nexmark', nexmark.table.type = 'Bid', events = 1000, rate=-1.5, Follow = true, \
         \"properties.bootstrap.server\" = 'a:1') FORMAT PLAIN ENCODE json (timestamptz.handling.mode = 'micro')",
    ) else {
        panic!()
    };
    let options: Vec<_> = s.options.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(
        options,
        [
            "connector=nexmark",
            "events=1000",
            "follow=true",
            "nexmark.table.type=Bid",
            "properties.bootstrap.server=a:1",
            "rate=-1.5"
        ]
    );
    let format = s.format.unwrap();
    assert_eq!((format.format.as_str(), format.encode.as_str()), ("PLAIN", "JSON"));
    assert_eq!(format.options["timestamptz.handling.mode"], "micro");
    assert!(s.columns.is_empty());
    assert_eq!(s.watermark.unwrap().0, "dateTime");
    assert!(matches!(one("create source s with (connector = 'x')"), Statement::CreateSource(_)));
    assert_eq!(error("create source s with (a = 1, a = 2)").1, "option \"a\" is given twice");
}

#[test]
fn views_keep_their_query_text() {
    let Statement::CreateMaterializedView(v) = one(
        "create materialized view v (a, \"B\") as\n select x,  y from t group by 1, 2 emit on window close",
    ) else {
        panic!()
    };
    assert_eq!(v.query_text, "select x,  y from t group by 1, 2");
    assert_eq!(v.columns, ["a", "B"]);
    assert!(v.emit_on_window_close);
    let Statement::CreateView(v) = one("create or replace view s.v as select 1") else { panic!() };
    assert!(v.or_replace && !v.emit_on_window_close);
    assert_eq!(
        error("create materialized view v as select 1 from t wher x"),
        ("42601".into(), "syntax error at or near \"x\"".into(), Some(52))
    );
    assert_eq!(error("create materialized view v as").2, Some(30));
}

#[test]
fn sinks_separate_query_and_options() {
    let Statement::CreateSink(s) =
        one("CREATE SINK k AS WITH w AS (SELECT * FROM t) SELECT a, b FROM w WITH (connector = 'file', \
         type = 'append-only') FORMAT PLAIN ENCODE JSON")
    else {
        panic!()
    };
    assert_eq!(s.query_text, "WITH w AS (SELECT * FROM t) SELECT a, b FROM w");
    assert_eq!(s.options["type"], "append-only");
    assert_eq!(s.format.unwrap().encode, "JSON");
    let Statement::CreateSink(s) = one("create sink k from s.\"V\" with (connector = 'blackhole')") else {
        panic!()
    };
    assert_eq!(s.query_text, "SELECT * FROM s.\"V\"");
}

#[test]
fn indexes_drops_and_alters() {
    let Statement::CreateIndex(i) = one("create index on t (a, \"B\" desc) include (c) distributed by (a)")
    else {
        panic!()
    };
    assert_eq!((i.name, i.include), (None, vec!["c".to_owned()]));
    assert_eq!(i.columns, [("a".to_owned(), false), ("B".to_owned(), true)]);
    let Statement::Drop { kind, names, if_exists, cascade } =
        one("drop materialized view if exists a, s.b cascade")
    else {
        panic!()
    };
    assert_eq!((kind, names.len(), if_exists, cascade), (ObjectKind::MaterializedView, 2, true, true));
    assert!(matches!(one("alter source a rename to b"), Statement::Rename { kind: ObjectKind::Source, .. }));
    let Statement::AlterDatabase { database, setting, value } =
        one("alter database dev set checkpoint.interval = '1s'")
    else {
        panic!()
    };
    assert_eq!((setting.as_str(), value.as_deref()), ("checkpoint.interval", Some("1s")));
    assert_eq!(database, "dev");
    assert!(matches!(one("alter database dev reset x"), Statement::AlterDatabase { value: None, .. }));
    let parallelism = |text: &str| match one(text) {
        Statement::SetParallelism { kind: ObjectKind::MaterializedView, parallelism, .. } => parallelism,
        other => panic!("{other:?}"),
    };
    assert_eq!(parallelism("alter materialized view v set parallelism = 3"), Some(3));
    assert_eq!(parallelism("alter materialized view v set parallelism to 256"), Some(256));
    assert_eq!(parallelism("alter materialized view v set parallelism = adaptive"), None);
    assert_eq!(parallelism("alter materialized view v set parallelism to default"), None);
    for wrong in ["0", "257", "-1", "1.5", "many", "'x'"] {
        let (state, message, _) = error(&format!("alter table t set parallelism = {wrong}"));
        assert_eq!(state, "22023", "{wrong}: {message}");
    }
    assert!(matches!(one("comment on view v is null"), Statement::Comment { text: None, .. }));
    assert!(matches!(one("truncate table t"), Statement::Truncate(_)));
    assert!(matches!(one("drop schema if exists s"), Statement::DropSchema { if_exists: true, .. }));
}

#[test]
fn drivers_settings_are_read() {
    assert_eq!(set("SET extra_float_digits = 3"), setting("extra_float_digits", "3"));
    assert_eq!(set("SET client_encoding TO 'UTF8'"), setting("client_encoding", "UTF8"));
    assert_eq!(set("set names 'utf8'"), setting("client_encoding", "utf8"));
    assert_eq!(set("SET SESSION DateStyle = ISO"), setting("datestyle", "iso"));
    assert_eq!(set("SET TIME ZONE 'Europe/Berlin'"), setting("timezone", "Europe/Berlin"));
    assert_eq!(set("set time zone local"), ("timezone".into(), None));
    assert_eq!(set("set search_path to a, \"B\", 'c d'"), setting("search_path", "a, \"B\", \"c d\""));
    assert_eq!(set("set local statement_timeout = -1"), setting("statement_timeout", "-1"));
    assert_eq!(set("set x to default"), ("x".into(), None));
    assert_eq!(set("reset time zone"), ("timezone".into(), None));
    assert!(matches!(one("start transaction read write"), Statement::Begin(_)));
    assert!(matches!(one("commit work"), Statement::Commit));
    assert!(matches!(one("abort"), Statement::Rollback));
    assert!(matches!(one("discard all"), Statement::Discard("ALL")));
    assert!(matches!(one("reset all"), Statement::ResetAll));
}

#[test]
fn show_knows_its_targets() {
    let show = |sql: &str| match one(sql) {
        Statement::Show(target) => target,
        other => panic!("{other:?}"),
    };
    assert_eq!(show("show transaction isolation level"), ShowTarget::Setting("transaction_isolation".into()));
    assert_eq!(show("SHOW MATERIALIZED VIEWS"), ShowTarget::Objects(ObjectKind::MaterializedView));
    assert_eq!(show("show tables"), ShowTarget::Objects(ObjectKind::Table));
    assert_eq!(show("show jobs"), ShowTarget::Jobs);
    assert_eq!(show("show checkpoint.interval"), ShowTarget::Setting("checkpoint.interval".into()));
    assert_eq!(show("show all"), ShowTarget::All);
    assert!(matches!(show("show create source s"), ShowTarget::Create(ObjectKind::Source, _)));
    assert!(matches!(show("show columns from t"), ShowTarget::Columns(_)));
    assert!(matches!(one("describe t"), Statement::Describe(_)));
}

#[test]
fn prepared_statements_and_explain() {
    let Statement::Prepare { name, types, statement } = one("prepare p (int, text) as  select $1, $2") else {
        panic!()
    };
    assert_eq!((name.as_str(), types.len(), statement.text.as_str()), ("p", 2, "select $1, $2"));
    assert_eq!(error("prepare p as selec 1").2, Some(14));
    assert!(matches!(one("execute p(1, 'a')"), Statement::Execute { arguments, .. } if arguments.len() == 2));
    assert!(matches!(one("deallocate all"), Statement::Deallocate(None)));
    assert!(matches!(one("explain analyze select 1"), Statement::Explain { analyze: true, .. }));
    let Statement::Explain { statement, analyze: false } =
        one("explain (verbose, costs off) create materialized view v as select 1 emit on window close")
    else {
        panic!()
    };
    assert!(matches!(*statement, Statement::CreateMaterializedView(v) if v.emit_on_window_close));
    for (sql, want) in
        [("flush", "Flush"), ("checkpoint", "Checkpoint"), ("wait", "Wait"), ("recover", "Recover")]
    {
        assert_eq!(format!("{:?}", one(sql)), want);
    }
}
