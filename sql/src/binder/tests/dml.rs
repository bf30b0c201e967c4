//! INSERT, UPDATE, DELETE: the rows that they write, and how they are refused.

use super::fixture::*;
use super::*;
use datafusion_expr::LogicalPlan;
use weir_catalog::relation::OnConflict;

fn db() -> Db {
    let mut db = Db::new();
    db.run(
        "create table t (id int primary key, n bigint default 7, s text); create table log (a int) append only; \
         create source src (a int) with (connector = 'file', path = 'x') format plain encode csv; \
         create view w as select * from t; select 1",
    );
    db
}

fn types(plan: &LogicalPlan) -> String {
    view::columns_of(plan).iter().map(|c| c.sql_type.clone()).collect::<Vec<_>>().join(", ")
}

#[test]
fn insert_gives_all_columns_cast() {
    let mut db = db();
    for sql in [
        "insert into t values (1, 2, 'x')",
        "insert into t values ('1', 2.5, 3), (2, default, null)",
        "insert into t (s, id) values ('x', 1)",
        "insert into t (id) select a from log",
        "insert into t select a, a, a from log",
        "insert into t (id) values ($1)",
        "insert into t (id, n) select $1, '5'",
        "insert into t (id) values ((select max(a) from log)), (1)",
        "insert into public.t as x (id) values (1) on conflict do nothing returning x.id",
        "insert into t default values",
        "insert into t with q as (select 1 as a) select a from q",
    ] {
        let dml = db.dml(sql);
        assert_eq!(types(&dml.input), "integer, bigint, text", "{sql}");
    }
    let LogicalPlan::Values(values) = db.dml("insert into t (id) values (1), (2)").input else { panic!() };
    assert_eq!(values.values.len(), 2);
    assert_eq!(values.values[0][1].to_string(), "CAST(Int32(7) AS Int64)");
    let plan = db.dml("insert into t (id, s) values ($1, $2)").input;
    let parameters = plan.get_parameter_types().unwrap();
    assert_eq!((&parameters["$1"], &parameters["$2"]), (&Some(DataType::Int32), &Some(DataType::Utf8)));
}

#[test]
fn conflict_clauses_are_the_tables_key() {
    let mut db = db();
    for (sql, kind) in [
        ("insert into t values (1)", OnConflict::Error),
        ("insert into t values (1) on conflict (id) do nothing", OnConflict::DoNothing),
        (
            "insert into t values (1) on conflict (id) do update set n = excluded.n, s = EXCLUDED.s",
            OnConflict::DoUpdateFull,
        ),
        ("insert into log values (1) on conflict do nothing", OnConflict::Error),
    ] {
        assert_eq!(db.dml(sql).kind, DmlKind::Insert(kind), "{sql}");
    }
    let e = db.error("insert into t values (1) on conflict (id) do update set n = excluded.n + 1");
    assert_eq!(e.hint.as_deref(), Some("Write DO UPDATE SET n = EXCLUDED.n, s = EXCLUDED.s."));
    assert_eq!(db.error("insert into t values (1) on conflict (n) do nothing").state.0, "42P10");
}

#[test]
fn update_and_delete_give_old_and_new_rows() {
    let mut db = db();
    let dml = db.dml("update t x set n = x.n + 1, s = 5 where id = 3");
    assert_eq!(dml.kind, DmlKind::Update);
    assert_eq!(types(&dml.input), "integer, bigint, text, integer, bigint, text");
    let dml =
        db.dml("update t set n = default, s = 'a', id = $1 where id in (select a from log) returning *");
    assert_eq!(types(&dml.input), "integer, bigint, text, integer, bigint, text");
    assert_eq!(dml.returning.unwrap().len(), 3);
    let dml = db.dml("delete from t where s like 'a%' returning id + n as sum, upper(s)");
    assert_eq!((dml.kind, types(&dml.input).as_str()), (DmlKind::Delete, "integer, bigint, text"));
    let returned: Vec<String> =
        dml.returning.unwrap().iter().map(|(e, f)| format!("{} {} = {e}", f.name(), f.data_type())).collect();
    assert!(returned[0].starts_with("sum Int64 = ") && returned[0].contains("n@1"), "{}", returned[0]);
    assert!(returned[1].starts_with("upper Utf8 = "));
    assert_eq!(types(&db.dml("truncate t").input), "integer, bigint, text");
}

#[test]
fn writes_are_refused_with_reasons() {
    let mut db = db();
    for (sql, state, message) in [
        ("insert into nope values (1)", "42P01", "relation \"nope\" does not exist"),
        ("insert into w values (1)", "42809", "cannot insert into view \"w\""),
        ("update src set a = 1", "42809", "cannot update source \"src\""),
        ("update log set a = 1", "42809", "cannot update append-only table \"log\""),
        ("delete from log", "42809", "cannot delete from append-only table \"log\""),
        ("insert into t values (1, 2, 3, 4)", "42601", "INSERT has more expressions than target columns"),
        ("insert into t (id, n) values (1)", "42601", "INSERT has more target columns than expressions"),
        ("insert into t values (1, 2), (3)", "42601", "VALUES lists must all be the same length"),
        ("insert into t (id, x) values (1, 2)", "42703", "column \"x\" of relation \"t\" does not exist"),
        ("insert into t (id, id) values (1, 2)", "42701", "column \"id\" specified more than once"),
        (
            "insert into t (id) select s from t",
            "42804",
            "column \"id\" is of type integer but expression is of type text",
        ),
        (
            "insert into t values (true)",
            "42804",
            "column \"id\" is of type integer but expression is of type boolean",
        ),
        ("update t set n = 1, n = 2", "42601", "multiple assignments to same column \"n\""),
        ("update t set x = 1", "42703", "column \"x\" of relation \"t\" does not exist"),
        ("delete from t returning count(*)", "42803", "aggregate functions are not allowed in RETURNING"),
    ] {
        let e = db.error(sql);
        assert_eq!((e.state.0, e.message.as_str()), (state, message), "{sql}");
    }
    assert_eq!(db.error("select 1; insert into t (id, x) values (1, 2)").position, Some(30));
}
