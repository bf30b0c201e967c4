//! The model: the tables as their clients know them, transaction by transaction, and what to ask of
//! the server next.

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::SchemaRef;
use rand::seq::IndexedRandom;
use rand::{Rng, rngs::StdRng};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Null,
    Int(i64),
    Text(&'static str),
}

pub type Row = Vec<Cell>;

/// The rows of each table and how often each is there; as a change, by how much that changes.
pub type Tables = [BTreeMap<Row, i64>; 3];

/// What creates the tables, and which columns they have: integer, bigint, text, timestamp.
pub const TABLES: [(&str, &str, &[u8]); 3] = [
    ("t0", "CREATE TABLE t0 (id int PRIMARY KEY, a int, b bigint, d varchar)", b"iiit"),
    ("t1", "CREATE TABLE t1 (k int, x int, y varchar)", b"iit"),
    ("t2", "CREATE TABLE t2 (ts timestamp, g int, n int) APPEND ONLY", b"sii"),
];

/// Rows and diffs as the table `number` has them.
pub fn batch(schema: SchemaRef, rows: &[&Row]) -> RecordBatch {
    let columns = schema.fields().iter().enumerate().map(|(i, field)| -> ArrayRef {
        let ints = || {
            rows.iter().map(|row| match &row[i] {
                Cell::Int(n) => Some(*n),
                _ => None,
            })
        };
        use arrow::datatypes::{DataType, TimeUnit};
        match field.data_type() {
            DataType::Int32 => Arc::new(ints().map(|n| n.map(|n| n as i32)).collect::<Int32Array>()),
            DataType::Int64 => Arc::new(ints().collect::<Int64Array>()),
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                Arc::new(ints().collect::<TimestampMicrosecondArray>())
            }
            _ => Arc::new(
                rows.iter()
                    .map(|row| match &row[i] {
                        Cell::Text(text) => Some(*text),
                        _ => None,
                    })
                    .collect::<StringArray>(),
            ),
        }
    });
    RecordBatch::try_new(schema.clone(), columns.collect()).expect("the rows fit their table")
}

/// Adds `change` to `tables`.
pub fn apply(tables: &mut Tables, change: &Tables) {
    for (table, change) in tables.iter_mut().zip(change) {
        for (row, diff) in change {
            let count = table.entry(row.clone()).or_insert(0);
            *count += diff;
            assert!(*count >= 0, "{row:?} goes more often than it came");
            if *count == 0 {
                table.remove(row);
            }
        }
    }
}

fn cell(random: &mut StdRng, kind: u8) -> Cell {
    if random.random_ratio(1, 9) {
        return Cell::Null;
    }
    match kind {
        b's' => Cell::Int(1_767_225_600_000_000 + random.random_range(0..40) * 500_000),
        b't' => Cell::Text(["", "a", "b", "ab", "Zz", "ünï"].choose(random).expect("some")),
        _ => Cell::Int(random.random_range(-2..6)),
    }
}

fn row(random: &mut StdRng, table: usize) -> Row {
    TABLES[table].2.iter().map(|kind| cell(random, *kind)).collect()
}

fn with_id(random: &mut StdRng, id: i64) -> Row {
    let mut row = row(random, 0);
    row[0] = Cell::Int(id);
    row
}

fn add(change: &mut Tables, table: usize, row: Row, diff: i64) {
    let count = change[table].entry(row.clone()).or_insert(0);
    *count += diff;
    if *count == 0 {
        change[table].remove(&row);
    }
}

/// A transaction on `tables`: some rows of some tables come, go or are replaced.
pub fn transaction(random: &mut StdRng, tables: &Tables) -> Tables {
    let mut change = Tables::default();
    let mut now = tables.clone();
    for _ in 0..random.random_range(1..5) {
        let mut step = Tables::default();
        match random.random_range(0..10) {
            0..=3 => {
                let id = random.random_range(0..12);
                let old = now[0].keys().find(|row| row[0] == Cell::Int(id)).cloned();
                let deletes = old.is_some() && random.random_ratio(1, 3);
                if let Some(old) = old {
                    add(&mut step, 0, old, -1);
                }
                if !deletes {
                    let new = with_id(random, id);
                    add(&mut step, 0, new, 1);
                }
            }
            4..=6 => {
                let (new, count) = (row(random, 1), random.random_range(1..3));
                add(&mut step, 1, new, count);
            }
            7 => {
                let rows: Vec<Row> = now[1].keys().cloned().collect();
                if let Some(old) = rows.choose(random) {
                    let count = random.random_range(1..=now[1][old]);
                    add(&mut step, 1, old.clone(), -count);
                }
            }
            _ => {
                let new = row(random, 2);
                add(&mut step, 2, new, 1);
            }
        }
        apply(&mut now, &step);
        for (table, rows) in step.into_iter().enumerate() {
            rows.into_iter().for_each(|(row, diff)| add(&mut change, table, row, diff));
        }
    }
    change
}

/// Views over the tables: each kind of operator, alone and upon others.
const QUERIES: &[&str] = &[
    "SELECT id, a + 1 AS c1, d FROM t0 WHERE b > 0 OR d IS NULL",
    "SELECT a, count(*) AS n, sum(b) AS s, min(d) AS l, max(id) AS h FROM t0 GROUP BY a",
    "SELECT count(*) AS n, sum(x) AS s, min(x) AS l, max(y) AS h FROM t1",
    "SELECT y, count(DISTINCT x) AS n, sum(DISTINCT k) AS s FROM t1 GROUP BY y",
    "SELECT DISTINCT x, y FROM t1",
    "SELECT t0.id, t1.k, t1.y FROM t0 JOIN t1 ON t0.a = t1.x",
    "SELECT t0.id, t0.d, t1.k FROM t0 LEFT JOIN t1 ON t0.a = t1.x AND t0.b > t1.k",
    "SELECT t0.id, t1.k, t1.x FROM t0 RIGHT JOIN t1 ON t0.id = t1.k",
    "SELECT t0.id, t0.a, t1.k, t1.y FROM t0 FULL JOIN t1 ON t0.a = t1.x",
    "SELECT t0.d, count(*) AS n, sum(t1.x) AS s FROM t0 JOIN t1 ON t0.a = t1.k GROUP BY t0.d",
    "SELECT id, a FROM t0 WHERE EXISTS (SELECT 1 FROM t1 WHERE t1.x = t0.a)",
    "SELECT id, a FROM t0 WHERE NOT EXISTS (SELECT 1 FROM t1 WHERE t1.x = t0.a AND t1.k > t0.b)",
    "SELECT id, d FROM t0 WHERE a IN (SELECT x FROM t1)",
    "SELECT id, b FROM t0 ORDER BY b DESC, id LIMIT 3",
    "SELECT a, id, d FROM (SELECT a, id, d, row_number() OVER (PARTITION BY a ORDER BY b, id) AS rn FROM t0) r \
     WHERE rn <= 2",
    "SELECT a, id FROM (SELECT a, id, row_number() OVER (PARTITION BY a ORDER BY id DESC) AS rn FROM t0) r WHERE rn = 1",
    "SELECT id, rank() OVER (PARTITION BY a ORDER BY b) AS r FROM t0",
    "SELECT a AS c0, d AS c1 FROM t0 UNION ALL SELECT x, y FROM t1",
    "SELECT a AS c0, d AS c1 FROM t0 EXCEPT SELECT x, y FROM t1",
    "SELECT a AS c0 FROM t0 INTERSECT ALL SELECT x FROM t1",
    "SELECT window_start, count(*) AS n, sum(n) AS s FROM TUMBLE(t2, ts, INTERVAL '4 seconds') GROUP BY window_start",
    "SELECT window_start, g, max(n) AS h FROM HOP(t2, ts, INTERVAL '2 seconds', INTERVAL '6 seconds') \
     GROUP BY window_start, g",
    "SELECT g, count(*) AS n, sum(n) AS s, max(ts) AS h FROM t2 GROUP BY g",
    "SELECT t2.g, t2.n, t0.d FROM t2 JOIN t0 ON t2.g = t0.id",
    "SELECT count(*) AS n FROM t2 JOIN t1 ON t2.g = t1.k",
    "SELECT d, count(*) AS n FROM t0 GROUP BY GROUPING SETS ((d), ())",
    "SELECT n, count(*) AS c FROM (SELECT a, count(*) AS n FROM t0 GROUP BY a) m GROUP BY n",
    "SELECT id, (SELECT count(*) FROM t1 WHERE t1.x = t0.a) AS n FROM t0",
];

/// Queries over a view of two columns at least, as others are over tables.
fn over(random: &mut StdRng, view: &str, columns: &[String]) -> String {
    let column = columns.choose(random).expect("a view has columns");
    match random.random_range(0..4) {
        0 => format!("SELECT {column}, count(*) AS cnt FROM {view} GROUP BY {column}"),
        1 => format!("SELECT DISTINCT {column} FROM {view}"),
        2 => format!(
            "SELECT p.{column} AS p0, count(*) AS cnt FROM {view} p JOIN {view} q ON p.{column} = q.{column} GROUP BY p.{column}"
        ),
        _ => format!("SELECT count(*) AS cnt, count({column}) AS some FROM {view}"),
    }
}

/// A query for a view; `views` are there to be read: names and columns.
pub fn query(random: &mut StdRng, views: &[(String, Vec<String>)]) -> String {
    match views.choose(random) {
        Some((view, columns)) if random.random_ratio(1, 3) => over(random, view, columns),
        _ => (*QUERIES.choose(random).expect("some")).to_owned(),
    }
}
