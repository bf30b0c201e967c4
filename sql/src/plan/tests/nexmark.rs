//! Every Nexmark query that needs no SESSION, OVER, PROCTIME or temporal join is planned.

use super::harness::explained;

const QUERIES: [&str; 19] = [
    "q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q10", "q14", "q15", "q16", "q17", "q18", "q19",
    "q20", "q21", "q22",
];

fn query(name: &str) -> String {
    let path = format!("{}/../nexmark/{name}.sql", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn every_query_is_planned() {
    for name in QUERIES {
        let text = explained(&query(name));
        assert!(text.contains("Source"), "{name}{text}");
    }
}
