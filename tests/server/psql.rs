//! The real psql, as a person uses it.

use crate::harness::{Weir, run};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

fn psql(weir: &Weir, commands: &[&str]) -> String {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-h", "127.0.0.1", "-p", &weir.port().to_string(), "-U", "root", "-d", "dev"]);
    for command in commands {
        psql.args(["-c", command]);
    }
    let done = psql.output().expect("psql is installed; `make test` sees to it");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{commands:?}\n{out}{err}");
    format!("{out}{err}")
}

/// What psql says to what a person types.
fn typed_in(weir: &Weir, input: &str) -> String {
    let mut psql = terminal(weir);
    psql.stdin.take().expect("its input").write_all(input.as_bytes()).expect("typed");
    let done = psql.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

fn terminal(weir: &Weir) -> std::process::Child {
    let mut psql = Command::new("psql");
    psql.args(["-X", "-h", "127.0.0.1", "-p", &weir.port().to_string(), "-U", "root", "-d", "dev"]);
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    psql.spawn().expect("psql is installed; `make test` sees to it")
}

/// \watch shows a result again and again, until it is interrupted.
fn watches(weir: &Weir) {
    let mut psql = terminal(weir);
    let mut input = psql.stdin.take().expect("its input");
    input.write_all(b"SELECT 41 + 1 AS answer \\watch 0.1\n").expect("typed");
    let lines = BufReader::new(psql.stdout.take().expect("its output")).lines();
    let seen = lines.map_while(Result::ok).filter(|line| line.contains("answer")).take(2).count();
    psql.kill().expect("it is ours to end");
    psql.wait().expect("it was started here");
    assert_eq!(seen, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_backslash_commands_work() {
    let weir = Weir::start().await;
    let client = weir.connect().await;
    run(
        &client,
        "CREATE TABLE t (id int PRIMARY KEY, v numeric(10,2) NOT NULL, note varchar DEFAULT 'x');
         CREATE SOURCE s WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = 100);
         CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM s;
         CREATE VIEW w AS SELECT id FROM t",
    )
    .await;
    let lists = psql(&weir, &["\\d", "\\dt", "\\dm", "\\dv", "\\dn", "\\l", "\\du", "\\di"]);
    for name in [" t ", " m ", " w ", "public", "dev"] {
        assert!(lists.contains(name), "{name} is missing in\n{lists}");
    }
    let described = psql(&weir, &["\\d t"]);
    for part in ["integer", "numeric(10,2)", "not null", "t_pkey", "PRIMARY KEY"] {
        assert!(described.contains(part), "{part} is missing in\n{described}");
    }
    let more = psql(
        &weir,
        &["\\dt+", "\\d+ m", "\\df", "\\d w", "\\dT", "\\dp", "\\dx", "\\conninfo", "\\encoding"],
    );
    for part in ["View \"public.w\"", "Materialized view \"public.m\"", "UTF8"] {
        assert!(more.contains(part), "{part} is missing in\n{more}");
    }
    let typed = typed_in(&weir, "SELECT id, v, note FROM t \\gdesc\nSELECT 1 AS a \\gx\n");
    assert!(typed.contains("numeric(10,2)") && typed.contains("note   | character varying"), "{typed}");
    assert!(typed.contains("RECORD 1"), "{typed}");
    watches(&weir);
    let file = weir.path("rows.csv");
    std::fs::write(&file, "id,v,note\n1,2.5,a\n2,3.5,\n").expect("written");
    let path = file.display();
    let copied = psql(
        &weir,
        &[
            &format!("\\copy t FROM '{path}' CSV HEADER"),
            &format!("\\copy (SELECT id FROM t ORDER BY id) TO '{path}'"),
            "\\x",
            "SELECT * FROM t WHERE id = 1",
        ],
    );
    assert!(copied.contains("COPY 2") && copied.contains("RECORD 1"), "{copied}");
    assert_eq!(std::fs::read_to_string(&file).expect("written"), "1\n2\n");
    let timed = psql(&weir, &["\\timing on", "SELECT n FROM m", "FLUSH", "CHECKPOINT"]);
    assert!(timed.contains("Time:") && timed.contains("FLUSH") && timed.contains("CHECKPOINT"), "{timed}");
}
