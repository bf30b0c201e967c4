//! Statements bound over a small catalog: what comes out, and what is refused how.

use super::fixture::*;
use crate::binder::Bound;
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

#[test]
fn select_gets_postgres_names_and_types() {
    let mut db = Db::new();
    db.run("create table t (a int, b bigint, s text, p numeric(10,2))");
    for (sql, columns) in [
        ("select 1", "?column? integer"),
        (
            "select 3000000000, 1.5, 'x', null",
            "?column? bigint, ?column? numeric(2,1), ?column? text, ?column? text",
        ),
        ("select a + 1, a, b from t", "?column? integer, a integer, b bigint"),
        ("select count(*), sum(a), sum(b) from t", "count bigint, sum bigint, sum numeric(38,0)"),
        (
            "select a::bigint, upper(s), case when a > 1 then 2 end from t",
            "a bigint, upper text, case integer",
        ),
        ("select * from t where b = '5'", "a integer, b bigint, s text, p numeric(10,2)"),
        ("select *, a from t", "a integer, b bigint, s text, p numeric(10,2), a integer"),
        ("select x.count from (select count(*) from t) x", "count bigint"),
        (
            "select coalesce(a, 0) as c, sum(case when a > 0 then 1 else 0 end) from t group by a",
            "c integer, sum bigint",
        ),
        ("values (1, 'a'), (2, 'b')", "column1 integer, column2 text"),
        ("select a as x, b as x from t", "x integer, x bigint"),
        ("select t.a, u.a from t, t u", "a integer, a integer"),
        ("select exists (select 1 from t), date '2024-01-01'", "exists boolean, date date"),
        ("select a from t union all select b from t", "a bigint"),
        ("select pg_catalog.upper(s collate pg_catalog.default) from t", "upper text"),
        ("select a from t order by a fetch first 2 rows only", "a integer"),
    ] {
        assert_eq!(db.columns(sql), columns, "{sql}");
    }
}

/// Statement, SQLSTATE, message, position, hint.
type Case = (&'static str, &'static str, &'static str, Option<usize>, Option<&'static str>);

#[test]
fn unknown_names_are_said_with_position_and_hint() {
    let mut db = Db::new();
    db.run("create table auction (id int, seller int)");
    let cases: &[Case] = &[
        (
            "select selle from auction",
            "42703",
            "column \"selle\" does not exist",
            Some(8),
            Some("Perhaps you meant to reference the column \"auction.seller\"."),
        ),
        (
            "select 1; select x.id from auction a",
            "42P01",
            "missing FROM-clause entry for table \"x\"",
            Some(18),
            None,
        ),
        (
            "select a.idd from auction a",
            "42703",
            "column a.idd does not exist",
            Some(8),
            Some("Perhaps you meant to reference the column \"a.id\"."),
        ),
        (
            "select * from auctions",
            "42P01",
            "relation \"auctions\" does not exist",
            Some(15),
            Some("Perhaps you meant the relation \"auction\"."),
        ),
        (
            "select id from auction a, auction b",
            "42702",
            "column reference \"id\" is ambiguous",
            Some(8),
            None,
        ),
        (
            "select frobnicate(id, 'x') from auction",
            "42883",
            "function frobnicate(integer, unknown) does not exist",
            None,
            Some(
                "No function matches the given name and argument types. You might need to add explicit type casts.",
            ),
        ),
        (
            "select id + true from auction",
            "42883",
            "operator does not exist: integer + boolean",
            None,
            Some(
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            ),
        ),
        (
            "select coalesce(id, 'x'::text) from auction",
            "42804",
            "COALESCE types integer and text cannot be matched",
            None,
            None,
        ),
        (
            "select 'a'::text = id from auction",
            "42883",
            "operator does not exist: text = integer",
            None,
            Some(
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            ),
        ),
        (
            "select id, count(*) from auction",
            "42803",
            "column \"auction.id\" must appear in the GROUP BY clause or be used in an aggregate function",
            None,
            None,
        ),
        (
            "select id from auction where count(*) > 1",
            "42803",
            "aggregate functions are not allowed in WHERE",
            None,
            None,
        ),
        (
            "select * from auction, auction",
            "42712",
            "table name \"auction\" specified more than once",
            None,
            Some("Give each a name of its own with AS."),
        ),
    ];
    for (sql, state, message, position, hint) in cases {
        let e = db.error(sql);
        assert_eq!((e.state.0, e.message.as_str(), e.hint.as_deref()), (*state, *message, *hint), "{sql}");
        if position.is_some() {
            assert_eq!(e.position, *position, "{sql}");
        }
    }
}

#[test]
fn literals_take_the_type_beside_them() {
    let mut db = Db::new();
    db.run("create table t (a int, d date, ts timestamp, l int[], s text)");
    for (sql, columns) in [
        ("select a from t where d > '2024-01-01' and ts between '2024-01-01' and '2024-02-01'", "a integer"),
        ("select a from t where a in ('1', '2') and l = '{1,2}' and '5' = a", "a integer"),
        (
            "select case when a > 1 then '7' else a end, coalesce(d, '2024-01-01') from t",
            "a integer, coalesce date",
        ),
        ("select '{1,NULL}'::int[], '{a,\"b c\"}'::text[]", "int4 integer[], text text[]"),
        ("select array(select a from t where s = 'x' order by a desc)", "array integer[]"),
        ("select x from unnest(array[1, 2]) x", "x integer"),
        ("select g from generate_series(1, 3) as g", "g bigint"),
        ("select s::varchar(3), 'abc'::char(2) from t", "s character varying(3), bpchar character(2)"),
        ("select (select s from t u where u.a = t.a) from t", "s text"),
    ] {
        assert_eq!(db.columns(sql), columns, "{sql}");
    }
}

#[test]
fn names_without_a_span_are_found_in_the_statement() {
    let mut db = Db::new();
    db.run("create table t (a int, b int)");
    for (sql, state, position) in [
        ("select a, nope(b) from t", "42883", 11),
        ("select a from t group by b", "42803", 8),
        ("select a from t where b = 1 and zz = 2", "42703", 33),
        ("select a from t order by zz", "42703", 26),
        ("insert into t values (1, nope(2))", "42883", 26),
        ("update t set a = zz", "42703", 18),
    ] {
        let e = db.error(sql);
        assert_eq!((e.state.0, e.position), (state, Some(position)), "{sql}: {}", e.message);
    }
    for sql in [
        "select a into u from t",
        "select a from t tablesample system (10)",
        "with recursive x as (select 1) select * from x",
    ] {
        let e = db.try_bind(sql).map(|_| ());
        if !sql.starts_with("with") {
            assert_eq!(e.expect_err(sql).state.0, "0A000", "{sql}");
        }
    }
}

#[test]
fn parameters_have_the_types_of_their_places() {
    let mut db = Db::new();
    db.run("create table items (id int primary key, n bigint, s text)");
    for (sql, expected) in [
        ("select id from items limit $1", vec![DataType::Int64]),
        ("select id from items order by id offset $1 fetch first $2 rows only", vec![DataType::Int64; 2]),
        ("select coalesce(n, $1), coalesce($2, s) from items", vec![DataType::Int64, DataType::Utf8]),
        ("select greatest($1, id), nullif(n, $2) from items", vec![DataType::Int32, DataType::Int64]),
        ("select case when id = 1 then $1 else n end from items", vec![DataType::Int64]),
        (
            "select case id when $1 then 1 end from items where n = any ($2)",
            vec![DataType::Int32, DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))],
        ),
        ("select $1", vec![DataType::Null]),
    ] {
        let Bound::Query(plan) = db.bind(sql) else { panic!("{sql}") };
        let types = plan.get_parameter_types().unwrap();
        for (number, expected) in (1..).zip(expected) {
            let found = types[&format!("${number}")].clone().unwrap_or(DataType::Null);
            assert_eq!(found, expected, "${number} of {sql}");
        }
    }
}
