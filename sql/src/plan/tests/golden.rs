//! Queries and the plans that they become, in `plans.txt`.
//!
//! `UPDATE_PLANS=1 cargo test -p weir-sql golden` writes the file anew; the change is reviewed.

use super::harness::{catalog, stream};
use crate::plan::explain::explain;
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/plan/tests/plans.txt");

fn planned(sql: &str) -> String {
    match stream(sql) {
        Ok(plan) => explain(&plan, &catalog()),
        Err(error) => {
            let hint = error.hint.map_or_else(String::new, |hint| format!("\nHINT: {hint}"));
            format!("ERROR {}: {}{hint}\n", error.state.0, error.message)
        }
    }
}

#[test]
fn queries_become_these_plans() {
    let golden = std::fs::read_to_string(PATH).expect("the file is there");
    let mut actual = String::new();
    for block in golden.split("=== ").filter(|b| !b.trim().is_empty()) {
        let sql = block.lines().next().unwrap_or_default();
        writeln!(actual, "=== {sql}\n{}", planned(sql)).expect("a String grows");
    }
    if std::env::var_os("UPDATE_PLANS").is_some() {
        std::fs::write(PATH, &actual).expect("the file can be written");
        return;
    }
    for (expected, found) in golden.split("=== ").zip(actual.split("=== ")) {
        assert_eq!(expected, found);
    }
    assert_eq!(golden, actual);
}
