//! For random queries and changes: the view at every barrier = the same query as a batch = a real
//! PostgreSQL on the same data; at parallelism 1, 2 and 4 and others while it runs, with kills in between.
//!
//! `WEIR_SEED` reproduces a run, `WEIR_ROUNDS` makes it longer.

use crate::harness::{Postgres, Weir, rows, run, seed, try_rows, words};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio_postgres::Client;

const TABLES: &str = "\
    CREATE TABLE t0 (id int PRIMARY KEY, a int, b bigint, c numeric(10,2), d varchar, e boolean, f date);\
    CREATE TABLE t1 (k int, x int, y varchar, z numeric(8,3), w boolean);\
    CREATE TABLE t2 (ts timestamp, g int, n int, s varchar);";

/// Windows over t2, and what they are in PostgreSQL, which has none.
const WINDOWS: &[(&str, &str)] = &[
    (
        "TUMBLE(t2, ts, INTERVAL '4 seconds')",
        "(SELECT t2.*, date_bin('4 s', ts, 'epoch') AS window_start, date_bin('4 s', ts, 'epoch') + INTERVAL '4 s' \
         AS window_end FROM t2 WHERE ts IS NOT NULL)",
    ),
    (
        "HOP(t2, ts, INTERVAL '2 seconds', INTERVAL '6 seconds')",
        "(SELECT t2.*, w AS window_start, w + INTERVAL '6 s' AS window_end FROM t2, \
         generate_series(date_bin('2 s', ts, 'epoch') - INTERVAL '4 s', date_bin('2 s', ts, 'epoch'), '2 s') w)",
    ),
];

/// The query as PostgreSQL understands it.
fn for_postgres(query: &str) -> String {
    WINDOWS.iter().fold(query.to_owned(), |query, (ours, theirs)| query.replace(ours, theirs))
}

/// The columns that queries draw from: expression, kind (integer, numeric, text, boolean, date).
const T0: &[(&str, char)] = &[
    ("t0.id", 'i'),
    ("t0.a", 'i'),
    ("t0.b", 'i'),
    ("t0.c", 'n'),
    ("t0.d", 't'),
    ("t0.e", 'b'),
    ("t0.f", 'd'),
];
const T1: &[(&str, char)] = &[("t1.k", 'i'), ("t1.x", 'i'), ("t1.y", 't'), ("t1.z", 'n'), ("t1.w", 'b')];

/// Draws queries and changes.
struct Draw(StdRng);

impl Draw {
    fn one_in(&mut self, n: u32) -> bool {
        self.0.random_ratio(1, n)
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices.choose(&mut self.0).expect("there is a choice")
    }

    fn column(&mut self, columns: &[(&'static str, char)], kinds: &str) -> &'static str {
        let fitting: Vec<_> = columns.iter().filter(|(_, k)| kinds.contains(*k)).collect();
        fitting.choose(&mut self.0).map_or("1", |(c, _)| c)
    }

    fn value(&mut self, kind: char) -> String {
        if self.one_in(7) {
            return "NULL".to_owned();
        }
        match kind {
            'i' => self.0.random_range(-3..8).to_string(),
            'n' => format!("{}.{:02}", self.0.random_range(-5..20), self.0.random_range(0..4) * 25),
            't' => format!("'{}'", self.of(&["", "a", "b", "ab", "Zz", "ünï"])),
            'b' => self.of(&["true", "false"]).to_owned(),
            's' => format!(
                "TIMESTAMP '2026-01-01 00:00:{:02}.{}'",
                self.0.random_range(0..20),
                self.0.random_range(0..2) * 5
            ),
            _ => format!("DATE '2026-01-{:02}'", self.0.random_range(1..6)),
        }
    }

    fn predicate(&mut self, columns: &[(&'static str, char)]) -> String {
        let (column, kind) = *columns.choose(&mut self.0).expect("columns");
        match self.0.random_range(0..6) {
            0 => format!("{column} IS NULL"),
            1 => format!("{column} IS NOT NULL"),
            2 if kind == 'i' => format!("{column} % 2 = 1"),
            3 if kind != 'b' => format!("{column} IN ({}, {})", self.value(kind), self.value(kind)),
            _ => {
                let operator = self.of(&["=", "<>", "<", ">=", "IS DISTINCT FROM"]);
                format!("{column} {operator} {}", self.value(kind))
            }
        }
    }

    fn aggregate(&mut self, columns: &[(&'static str, char)]) -> String {
        let distinct = if self.one_in(4) { "DISTINCT " } else { "" };
        let call = match self.0.random_range(0..8) {
            0 => "count(*)".to_owned(),
            1 => format!("count({distinct}{})", self.column(columns, "intbd")),
            2 => format!("sum({distinct}{})", self.column(columns, "in")),
            3 => format!("avg({distinct}{})", self.column(columns, "in")),
            4 => format!("min({})", self.column(columns, "intd")),
            5 => format!("max({})", self.column(columns, "intd")),
            6 => format!("bool_and({})", self.column(columns, "b")),
            _ => format!("bool_or({})", self.column(columns, "b")),
        };
        if self.one_in(4) { format!("{call} FILTER (WHERE {})", self.predicate(columns)) } else { call }
    }

    /// FROM and WHERE, and the columns that they offer.
    fn from(&mut self) -> (String, Vec<(&'static str, char)>) {
        let both = || T0.iter().chain(T1).copied().collect::<Vec<_>>();
        let key = self.of(&["t0.a = t1.x", "t0.id = t1.k", "t0.a = t1.x AND t0.d = t1.y", "t0.d = t1.y"]);
        let residual = if self.one_in(3) { " AND t0.b > t1.k" } else { "" };
        let (mut from, columns) = match self.0.random_range(0..14) {
            11 => {
                let (window, kind) = (self.window(), self.of(&["JOIN", "LEFT JOIN"]));
                let mut columns = in_window();
                columns.push(("t0.d", 't'));
                (format!("FROM {window} w {kind} t0 ON w.g = t0.a WHERE true"), columns)
            }
            12 => {
                let (left, right) = (self.window(), self.window());
                let mut columns = in_window();
                columns.extend([("q.n", 'i'), ("q.window_end", 's')]);
                let key = self
                    .of(&["w.window_start = q.window_start AND w.g = q.g", "w.window_end = q.window_end"]);
                (format!("FROM {left} w JOIN {right} q ON {key} WHERE true"), columns)
            }
            13 => (format!("FROM {} w WHERE true", self.window()), in_window()),
            0 => ("FROM t0 WHERE true".to_owned(), T0.to_vec()),
            1 => ("FROM t1 WHERE true".to_owned(), T1.to_vec()),
            2..=4 => {
                let kind = self.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                // PostgreSQL can't do a FULL JOIN with more than merge- or hash-joinable conditions.
                let residual = if kind == "FULL JOIN" { "" } else { residual };
                (format!("FROM t0 {kind} t1 ON {key}{residual} WHERE true"), both())
            }
            5 => (format!("FROM t0 WHERE EXISTS (SELECT 1 FROM t1 WHERE {key}{residual})"), T0.to_vec()),
            6 => (format!("FROM t0 WHERE NOT EXISTS (SELECT 1 FROM t1 WHERE {key}{residual})"), T0.to_vec()),
            7 => ("FROM t0 WHERE t0.a IN (SELECT x FROM t1)".to_owned(), T0.to_vec()),
            8 => ("FROM t0 WHERE t0.a NOT IN (SELECT x FROM t1 WHERE k > 2)".to_owned(), T0.to_vec()),
            9 => {
                let kind = self.of(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                let (left, right) = ("SELECT a AS j, id, d FROM t0", "SELECT k, y, x AS j FROM t1");
                let columns = vec![("j", 'i'), ("p.id", 'i'), ("p.d", 't'), ("q.k", 'i'), ("q.j", 'i')];
                (format!("FROM ({left}) p {kind} ({right}) q USING (j) WHERE true"), columns)
            }
            _ => (
                "FROM (SELECT a, d, e, b FROM t0 UNION ALL SELECT x, y, w, k FROM t1) t0 WHERE true"
                    .to_owned(),
                vec![("t0.a", 'i'), ("t0.d", 't'), ("t0.e", 'b'), ("t0.b", 'i')],
            ),
        };
        if self.one_in(2) {
            let condition = self.predicate(&columns);
            from += &format!(" AND {condition}");
        }
        (from, columns)
    }

    fn window(&mut self) -> &'static str {
        WINDOWS.choose(&mut self.0).expect("there are some").0
    }

    fn columns_of(&mut self, columns: &[(&'static str, char)], n: usize) -> Vec<&'static str> {
        let mut chosen: Vec<&str> = columns.choose_multiple(&mut self.0, n).map(|(c, _)| *c).collect();
        chosen.sort_unstable();
        chosen
    }

    fn query(&mut self) -> String {
        let (from, columns) = self.from();
        let offered = columns.clone();
        let n = self.0.random_range(1..4);
        match self.0.random_range(0..14) {
            11..=13 => self.nested(),
            0 => {
                let columns = self.columns_of(&columns, n);
                format!("SELECT {} {from}", named(&columns))
            }
            6 => {
                let columns = self.columns_of(&columns, 3);
                let (first, order) = (columns[0], self.order(&columns));
                format!("SELECT DISTINCT ON ({first}) {} {from} ORDER BY {order}", named(&columns))
            }
            7 => {
                let columns = self.columns_of(&columns, 2);
                let sets = self.grouping_sets(&columns);
                let calls: Vec<String> = (0..2).map(|_| self.aggregate(&offered)).collect();
                format!(
                    "SELECT {}, {} AS v0, {} AS v1 {from} GROUP BY {sets}",
                    named(&columns),
                    calls[0],
                    calls[1]
                )
            }
            8 => {
                let (left, right) = (self.predicate(T0), self.predicate(T1));
                let operation = self.of(&["INTERSECT", "EXCEPT", "UNION", "INTERSECT ALL", "EXCEPT ALL"]);
                format!(
                    "SELECT t0.a AS c0, t0.d AS c1 FROM t0 WHERE {left} {operation} SELECT t1.x, t1.y FROM t1 WHERE {right}"
                )
            }
            9 => {
                let value = self.aggregate(T1);
                let condition = self.of(&["t1.x = t0.a", "t1.y = t0.d", "true"]);
                format!("SELECT t0.id AS c0, (SELECT {value} FROM t1 WHERE {condition}) AS c1 FROM t0")
            }
            10 => {
                let columns = self.columns_of(&columns, 3);
                let (group, order) = (columns[0], self.order(&columns));
                let f = self.windowed(columns[1]);
                // Of two functions, rows that are alike may get each one's values in another order.
                let partition = self.of(&["", "PARTITION BY "]);
                let group = if partition.is_empty() { "" } else { group };
                format!(
                    "SELECT {}, {f} OVER ({partition}{group} ORDER BY {order}) AS f {from}",
                    named(&columns)
                )
            }
            1 => {
                let columns = self.columns_of(&columns, n);
                format!("SELECT DISTINCT {} {from}", named(&columns))
            }
            2 => {
                let columns = self.columns_of(&columns, 3);
                let order = self.order(&columns);
                let (limit, offset) = (self.0.random_range(1..6), self.0.random_range(0..3));
                format!("SELECT {} {from} ORDER BY {order} LIMIT {limit} OFFSET {offset}", named(&columns))
            }
            3 => {
                let columns = self.columns_of(&columns, 3);
                let order = self.order(&columns);
                let n = self.0.random_range(1..4);
                format!(
                    "SELECT * FROM (SELECT {}, row_number() OVER (PARTITION BY {} ORDER BY {order}) AS rn {from}) r WHERE rn <= {n}",
                    named(&columns),
                    columns[0],
                )
            }
            shape => {
                let groups = if shape == 4 { self.columns_of(&columns, n.min(2)) } else { Vec::new() };
                let calls: Vec<String> = (0..n + 1).map(|_| self.aggregate(&columns)).collect();
                let calls = calls
                    .iter()
                    .enumerate()
                    .map(|(i, c)| format!("{c} AS v{i}"))
                    .collect::<Vec<_>>()
                    .join(", ");
                if groups.is_empty() {
                    return format!("SELECT {calls} {from}");
                }
                let having = if self.one_in(4) { " HAVING count(*) > 1" } else { "" };
                format!("SELECT {}, {calls} {from} GROUP BY {}{having}", named(&groups), groups.join(", "))
            }
        }
    }

    /// Operators of one actor below and beside those of many, and parts that occur twice.
    fn nested(&mut self) -> String {
        let inner = self.of(&[
            "(SELECT * FROM t0 ORDER BY a, id LIMIT 6)",
            "(SELECT DISTINCT ON (a) * FROM t0 ORDER BY a, id DESC)",
            "(SELECT * FROM t0 WHERE a NOT IN (SELECT x FROM t1 WHERE x IS NOT NULL))",
            "(SELECT a, b, d, row_number() OVER (ORDER BY id) AS id FROM t0)",
        ]);
        let grouped = self.of(&["GROUP BY t0.d", "GROUP BY ROLLUP (t0.d)", "GROUP BY CUBE (t0.d, t0.a)"]);
        let aggregate = self.aggregate(&T0[..3]);
        let of_t1 = self.aggregate(T1);
        let twice = self.of(&[
            "SELECT p.a AS c0, q.a AS c1 FROM m p JOIN m q ON p.n = q.n",
            "SELECT a AS c0, n AS c1 FROM m WHERE n = (SELECT max(n) FROM m)",
            "SELECT a AS c0, n AS c1 FROM m UNION ALL SELECT n::int, a FROM m",
            "SELECT p.a AS c0, t1.y AS c1 FROM m p FULL JOIN t1 ON p.n = t1.k",
            "SELECT a AS c0, rank() OVER (ORDER BY n) AS c1 FROM m",
        ]);
        let mixed = "(SELECT a::bigint AS k FROM t0 UNION ALL SELECT count(*) FROM t1 UNION ALL SELECT 7) u";
        match self.0.random_range(0..5) {
            0 => format!("SELECT t0.d AS c0, {aggregate} AS v0 FROM {inner} t0 {grouped}"),
            1 => format!("WITH m AS (SELECT a, count(*) AS n FROM t0 GROUP BY a) {twice}"),
            2 if self.one_in(2) => format!("SELECT k AS c0 FROM {mixed}"),
            2 => format!("SELECT k AS c0, count(*) AS c1 FROM {mixed} GROUP BY k"),
            3 => format!("SELECT t0.id AS c0, (SELECT {of_t1} FROM t1) AS c1 FROM {inner} t0"),
            _ => format!("SELECT (SELECT count(*) FROM {inner} t0) AS c0, (SELECT {of_t1} FROM t1) AS c1"),
        }
    }

    fn grouping_sets(&mut self, columns: &[&str]) -> String {
        let list = columns.join(", ");
        match self.0.random_range(0..3) {
            0 => format!("ROLLUP ({list})"),
            1 => format!("CUBE ({list})"),
            _ => format!("GROUPING SETS (({}), ({list}), ())", columns[0]),
        }
    }

    /// A window function of a column; ties of the order are rows that are equal.
    fn windowed(&mut self, column: &str) -> String {
        match self.0.random_range(0..7) {
            0 => "rank()".to_owned(),
            1 => "dense_rank()".to_owned(),
            2 => format!("lag({column})"),
            3 => format!("lead({column}, 2)"),
            4 => format!("first_value({column})"),
            5 => format!("count({column})"),
            _ => format!("max({column})"),
        }
    }

    fn order(&mut self, columns: &[&str]) -> String {
        let keys: Vec<String> = columns
            .iter()
            .map(|c| format!("{c} {}", self.of(&["", "DESC", "NULLS FIRST", "DESC NULLS LAST"])))
            .collect();
        keys.join(", ")
    }

    /// ALTERs that give a view, a table or all of them another parallelism.
    fn rescales(&mut self, views: usize) -> Vec<String> {
        let rescale = |draw: &mut Self| {
            let parallelism = draw.of(&["1", "2", "3", "4", "ADAPTIVE"]);
            match draw.0.random_range(0..6) {
                0 => format!("ALTER DATABASE dev SET PARALLELISM = {parallelism}"),
                1 => format!("ALTER TABLE t{} SET PARALLELISM = {parallelism}", draw.0.random_range(0..3)),
                _ => {
                    let view = draw.0.random_range(0..views);
                    format!("ALTER MATERIALIZED VIEW v{view} SET PARALLELISM = {parallelism}")
                }
            }
        };
        (0..self.0.random_range(0..3)).map(|_| rescale(self)).collect()
    }

    fn change(&mut self) -> String {
        let id = self.0.random_range(0..40);
        match self.0.random_range(0..13) {
            9 | 10 => {
                let rows: Vec<String> = (0..self.0.random_range(1..4))
                    .map(|_| format!("({})", ['s', 'i', 'i', 't'].map(|k| self.value(k)).join(", ")))
                    .collect();
                format!("INSERT INTO t2 VALUES {}", rows.join(", "))
            }
            11 => format!(
                "UPDATE t2 SET ts = {}, n = {} WHERE g = {}",
                self.value('s'),
                self.value('i'),
                self.value('i')
            ),
            12 => format!("DELETE FROM t2 WHERE ts > {} AND n = {}", self.value('s'), self.value('i')),
            0..=2 => {
                let row = ['i', 'i', 'n', 't', 'b', 'd'].map(|k| self.value(k)).join(", ");
                format!("INSERT INTO t0 VALUES ({id}, {row}) ON CONFLICT DO NOTHING")
            }
            3..=5 => {
                let rows: Vec<String> = (0..self.0.random_range(1..4))
                    .map(|_| format!("({})", ['i', 'i', 't', 'n', 'b'].map(|k| self.value(k)).join(", ")))
                    .collect();
                format!("INSERT INTO t1 VALUES {}", rows.join(", "))
            }
            6 => format!("UPDATE t0 SET a = {}, d = {} WHERE id = {id}", self.value('i'), self.value('t')),
            7 => {
                let condition = self.predicate(T1).replace("t1.", "");
                format!("UPDATE t1 SET x = {} WHERE {condition}", self.value('i'))
            }
            _ if self.one_in(2) => format!("DELETE FROM t0 WHERE id = {id}"),
            _ => format!(
                "DELETE FROM t1 WHERE {} AND k = {}",
                self.predicate(T1).replace("t1.", ""),
                self.value('i')
            ),
        }
    }
}

/// What a window over t2 offers.
fn in_window() -> Vec<(&'static str, char)> {
    vec![
        ("w.window_start", 's'),
        ("w.window_end", 's'),
        ("w.ts", 's'),
        ("w.g", 'i'),
        ("w.n", 'i'),
        ("w.s", 't'),
    ]
}

fn named(columns: &[&str]) -> String {
    columns.iter().enumerate().map(|(i, c)| format!("{c} AS c{i}")).collect::<Vec<_>>().join(", ")
}

/// Rows as a sorted multiset; numbers to nine significant digits, since PostgreSQL chooses the
/// scale of a quotient by its magnitude.
fn multiset(rows: Vec<Vec<String>>) -> Vec<String> {
    let cell = |c: &String| match c.parse::<f64>() {
        Ok(number) if c.contains('.') => format!("{number:.9e}"),
        Ok(number) if !c.is_empty() => format!("{number:.9e}"),
        _ => c.clone(),
    };
    let mut rows: Vec<String> =
        rows.iter().map(|r| r.iter().map(cell).collect::<Vec<_>>().join("|")).collect();
    rows.sort_unstable();
    rows
}

async fn compare(weir: &Client, postgres: &Client, views: &[String], context: &str) {
    for table in ["SELECT * FROM t0", "SELECT * FROM t1", "SELECT * FROM t2"] {
        let ours = multiset(rows(weir, table).await);
        let theirs = multiset(rows(postgres, table).await);
        assert_eq!(ours, theirs, "{context}: the table differs from PostgreSQL's: {table}");
    }
    for (i, query) in views.iter().enumerate() {
        let view = multiset(rows(weir, &format!("SELECT * FROM v{i}")).await);
        let truth = multiset(rows(postgres, &for_postgres(query)).await);
        assert_eq!(view, truth, "{context}: the view differs from PostgreSQL\n  {query}");
        let batch = multiset(rows(weir, query).await);
        assert_eq!(batch, truth, "{context}: the batch differs from PostgreSQL\n  {query}");
    }
}

/// Whether `change` leaves the rows of these tables as they are.
fn only_adds(change: &str, growing: &[&str]) -> bool {
    change.starts_with("INSERT") || !growing.iter().any(|table| change.contains(&format!(" {table} ")))
}

async fn apply(weir: &Client, postgres: &Client, draw: &mut Draw, growing: &[&str], n: usize) {
    for _ in 0..n {
        let change = loop {
            let change = draw.change();
            if only_adds(&change, growing) {
                break change;
            }
        };
        println!("{change};");
        let (ours, theirs) = (weir.batch_execute(&change).await, postgres.batch_execute(&change).await);
        match (&ours, &theirs) {
            (Ok(()), Ok(())) => {}
            (Err(e), Ok(())) => panic!("only Weir refuses {change}\n  {}", words(e)),
            (Ok(()), Err(e)) => panic!("only PostgreSQL refuses {change}\n  {}", words(e)),
            (Err(a), Err(b)) => assert_eq!(a.code(), b.code(), "{change}"),
        }
    }
}

/// `growing`: the tables whose rows only come. State of what only grows is another.
async fn scenario(parallelism: &str, growing: &[&str], rounds: usize, draw: &mut Draw, postgres: &Client) {
    let mut weir = Weir::with(&["--parallelism", parallelism], &[]).await;
    let mut client = weir.connect().await;
    run(postgres, "DROP TABLE IF EXISTS t0, t1, t2").await;
    run(postgres, TABLES).await;
    for table in TABLES.split_terminator(';') {
        let grows = growing.iter().any(|name| table.contains(&format!("TABLE {name} ")));
        run(&client, &format!("{table}{}", if grows { " APPEND ONLY" } else { "" })).await;
    }
    apply(&client, postgres, draw, growing, 20).await;
    let mut views: Vec<String> = Vec::new();
    while views.len() < 14 {
        let query = draw.query();
        // What PostgreSQL refuses is no query; what only Weir refuses must be because it is not supported.
        if try_rows(postgres, &for_postgres(&query)).await.is_err() {
            continue;
        }
        let made =
            client.batch_execute(&format!("CREATE MATERIALIZED VIEW v{} AS {query}", views.len())).await;
        match made {
            Ok(()) => {
                println!("CREATE MATERIALIZED VIEW v{} AS {query};", views.len());
                views.push(query);
            }
            Err(error) => panic!("only Weir refuses {query}\n  {}", words(&error)),
        }
    }
    for round in 0..rounds {
        let context = format!("parallelism {parallelism}, {growing:?} grow, round {round}");
        let (rescales, other) = (draw.rescales(views.len()), weir.connect().await);
        println!("meanwhile: {rescales:?};");
        let rescaled = async {
            for rescale in &rescales {
                run(&other, rescale).await;
            }
        };
        tokio::join!(apply(&client, postgres, draw, growing, 12), rescaled);
        compare(&client, postgres, &views, &context).await;
        if round % 3 == 2 {
            if draw.one_in(2) {
                run(&client, "CHECKPOINT").await;
            }
            // State goes with its vnodes, whoever has them.
            let other = draw.of(&["1", "2", "4"]);
            // With a millisecond to wait, barriers overtake now and then.
            let aligned = draw.of(&["checkpoint.aligned_timeout=0", "checkpoint.aligned_timeout=1ms"]);
            weir.set_options(&[
                "--parallelism",
                other,
                "--set",
                aligned,
                "--set",
                "checkpoint.interval=50ms",
            ]);
            weir.kill_and_restart().await;
            client = weir.connect().await;
            let context = format!("{context}, after a kill, at {other}, {aligned}");
            compare(&client, postgres, &views, &context).await;
        }
    }
    let kinds = rows(&client, "SELECT kind, count(*) FROM weir_catalog.checkpoints GROUP BY kind").await;
    println!("checkpoints: {kinds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_equal_batches_and_postgres() {
    let rounds = std::env::var("WEIR_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(6);
    let mut draw = Draw(StdRng::seed_from_u64(seed()));
    let postgres = Postgres::start().await;
    let client = postgres.connect().await;
    for parallelism in ["1", "2", "4"] {
        scenario(parallelism, &[], rounds, &mut draw, &client).await;
    }
    for (parallelism, growing) in [("2", &["t0", "t1", "t2"][..]), ("1", &["t0", "t2"]), ("2", &["t1"])] {
        scenario(parallelism, growing, rounds, &mut draw, &client).await;
    }
}
