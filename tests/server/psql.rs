//! The real psql, as a person uses it.

use crate::harness::{Weir, run};
use std::process::Command;

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
    let timed = psql(&weir, &["\\timing on", "SELECT n FROM m", "FLUSH", "CHECKPOINT"]);
    assert!(timed.contains("Time:") && timed.contains("FLUSH") && timed.contains("CHECKPOINT"), "{timed}");
}
