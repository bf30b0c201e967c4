//! The house rules that a machine can check; needs no server.
//!
//! Who may import whom, what every file opens with, how long files and functions are, and words
//! and calls that are banned, with what to write instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The areas of `src`, in order: each may import only those that its row names.
const IMPORTS: &[(&str, &[&str])] = &[
    ("config", &["units"]),
    ("stream", &[]),
    ("state", &["stream"]),
    ("dml", &["state", "stream"]),
    ("checkpoint", &["dml", "state", "stream"]),
    ("formats", &["stream"]),
    ("connectors", &["formats", "checkpoint", "stream", "state"]),
    ("dataflow", &["checkpoint", "state", "stream"]),
    ("operators", &["dataflow", "dml", "connectors", "checkpoint", "state", "stream"]),
    ("job", &["operators", "dataflow", "connectors", "dml", "checkpoint", "state", "stream"]),
    ("serve", &["job", "connectors", "checkpoint", "dml", "state", "stream"]),
    ("session", &["serve", "job", "connectors", "formats", "dml", "checkpoint", "state", "stream"]),
    ("wire", &["session", "serve", "job", "stream"]),
    ("drill", &["connectors", "formats"]),
];

/// Leaves that any area may import.
const LEAVES: &[&str] =
    &["allocator", "config", "error", "telemetry", "failpoint", "threads", "clock", "work", "ports"];

/// What is banned outside tests: the text, and what to write instead. The last field names files
/// in which it is at home.
const BANNED: &[(&str, &str, &[&str])] = &[
    (".unwrap()", "`?`, or `expect` with the reason why it holds", &[]),
    ("todo!(", "the code", &[]),
    ("unimplemented!(", "the code", &[]),
    ("dbg!(", "a log line with fields", &[]),
    ("println!(", "a log line with fields", &["src/main.rs", "src/server.rs"]),
    ("rocksdb::", "the StateStore trait: only src/state/rocks.rs names RocksDB", &["src/state/rocks.rs"]),
    ("key group", "vnode", &[]),
];

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const INLINE_TEST_LINES_MAX: usize = 110;

struct Source {
    path: String,
    text: String,
}

fn sources(roots: &[&str]) -> Vec<Source> {
    let mut files = Vec::new();
    for root in roots {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(root), &mut files);
    }
    let base = format!("{}/", env!("CARGO_MANIFEST_DIR"));
    files.sort();
    files
        .into_iter()
        .map(|path| Source {
            text: fs::read_to_string(&path).expect("a source file is UTF-8"),
            path: path.display().to_string().replace(&base, ""),
        })
        .collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the tree is readable") {
        let path = entry.expect("the tree is readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/")
}

/// The part of a file before its inline tests.
fn code(text: &str) -> &str {
    let starts = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub mod testing {"];
    starts.iter().filter_map(|start| text.find(start)).min().map_or(text, |at| &text[..at])
}

fn fail(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn every_file_opens_with_what_it_is() {
    let bare = sources(&["src", "sql/src", "catalog/src", "tests"])
        .into_iter()
        .filter(|s| !s.text.starts_with("//! "));
    fail("files must open with a `//!` paragraph", bare.map(|s| s.path).collect());
}

#[test]
fn files_tell_one_story() {
    let mut long = Vec::new();
    for source in sources(&["src", "sql/src", "catalog/src"]).iter().filter(|s| !is_test(&s.path)) {
        let lines = code(&source.text).lines().count();
        let inline = source.text.lines().count() - lines;
        if lines > FILE_LINES_MAX {
            long.push(format!("{}: {lines} lines; give its second noun a file", source.path));
        }
        if inline > INLINE_TEST_LINES_MAX {
            long.push(format!("{}: {inline} lines of tests; move them to tests/", source.path));
        }
    }
    fail("files are too long", long);
}

#[test]
fn functions_fit_a_screen() {
    let mut long = Vec::new();
    for source in sources(&["src", "sql/src", "catalog/src"]).iter().filter(|s| !is_test(&s.path)) {
        let mut open: Option<(usize, String)> = None;
        for (number, line) in code(&source.text).lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let trimmed = line.trim_start();
            let starts = [
                "fn ",
                "pub fn ",
                "async fn ",
                "pub async fn ",
                "pub(crate) fn ",
                "pub(super) fn ",
                "const fn ",
            ];
            if open.is_none() && starts.iter().any(|s| trimmed.starts_with(s)) && !trimmed.ends_with(';') {
                open = Some((number, " ".repeat(indent) + "}"));
            } else if let Some((start, end)) = &open
                && line == end
            {
                let lines = number - start + 1;
                if lines > FUNCTION_LINES_MAX {
                    long.push(format!("{}:{}: {lines} lines", source.path, start + 1));
                }
                open = None;
            }
        }
    }
    fail("functions are too long", long);
}

#[test]
fn areas_import_only_what_is_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = IMPORTS.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources(&["src"]).iter().filter(|s| !is_test(&s.path)) {
        let Some((area, _)) = source.path.trim_start_matches("src/").split_once('/') else { continue };
        let allowed = allowed.get(area).unwrap_or_else(|| panic!("area {area} is in the import table"));
        for (number, line) in code(&source.text).lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            for found in line.match_indices("crate::").map(|(at, _)| &line[at + 7..]) {
                let name: String = found.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if name != area && !allowed.contains(&name.as_str()) && !LEAVES.contains(&name.as_str()) {
                    wrong.push(format!("{}:{}: {area} must not import {name}", source.path, number + 1));
                }
            }
        }
    }
    fail("imports go downward only", wrong);
}

#[test]
fn banned_words_and_calls_stay_out() {
    let mut found = Vec::new();
    for source in sources(&["src", "sql/src", "catalog/src"]).iter().filter(|s| !is_test(&s.path)) {
        for (number, line) in code(&source.text).lines().enumerate() {
            for (text, instead, home) in BANNED {
                if line.contains(text) && !home.contains(&source.path.as_str()) {
                    found.push(format!("{}:{}: {text} (write {instead})", source.path, number + 1));
                }
            }
        }
    }
    fail("banned", found);
}

#[test]
fn the_workspace_has_three_manifests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifests = ["Cargo.toml", "sql/Cargo.toml", "catalog/Cargo.toml"];
    assert!(manifests.iter().all(|m| root.join(m).exists()));
    let lock = fs::read_to_string(root.join("Cargo.lock")).expect("Cargo.lock is committed");
    for single in ["arrow", "sqlparser", "object_store", "datafusion"] {
        let copies = lock.matches(&format!("name = \"{single}\"\n")).count();
        assert_eq!(copies, 1, "one {single} in Cargo.lock");
    }
}
