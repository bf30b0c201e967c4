//! What settings accept, and how they print.

use super::*;
use std::time::Duration;

#[test]
fn every_default_is_valid_and_prints_as_itself() {
    for spec in SETTINGS {
        assert_eq!(spec.normalize(spec.default).as_deref(), Ok(spec.default), "{}", spec.name);
        assert!(spec.help.ends_with('.'), "{}: a sentence", spec.name);
    }
    let mut names: Vec<_> = SETTINGS.iter().map(|s| s.name.to_ascii_lowercase()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), SETTINGS.len(), "names are unique");
}

#[test]
fn values_are_checked_and_normalized() {
    let normal = |name: &str, value: &str| find(name).and_then(|s| s.normalize(value));
    assert_eq!(normal("checkpoint.interval", "60000"), Ok("1min".into()));
    assert_eq!(normal("checkpoint.interval", "1.5s"), Ok("1500ms".into()));
    assert_eq!(normal("STATEMENT_TIMEOUT", " 90s "), Ok("90s".into()));
    assert_eq!(normal("background_ddl", "TRUE"), Ok("on".into()));
    assert_eq!(normal("client_encoding", "utf-8"), Ok("UTF8".into()));
    assert_eq!(normal("datestyle", "iso, dmy"), Ok("ISO, DMY".into()));
    assert_eq!(normal("timezone", "Europe/Berlin"), Ok("Europe/Berlin".into()));
    assert_eq!(normal("sink.log_limit", "2048 MB"), Ok("2GB".into()));
    assert_eq!(normal("memory.limit", "50 %"), Ok("50%".into()));
    assert!(normal("timezone", "Mars/Phobos").is_err());
    assert!(normal("datestyle", "german").is_err());
    assert!(normal("checkpoint.interval", "1 fortnight").is_err());
    assert!(normal("checkpoint.max_retained", "0").is_err());
    assert!(normal("memory.limit", "101%").is_err());
}

#[test]
fn what_may_be_off_says_so_in_any_spelling() {
    for (name, shown) in [
        ("checkpoint.aligned_timeout", "off"),
        ("checkpoint.interval", "0"),
        ("checkpoint.min_pause", "0"),
        ("checkpoint.upload_limit", "0B"),
        ("statement_timeout", "0"),
    ] {
        for text in ["off", "OFF", "false", "0", "0s", shown] {
            if text == "0s" && name == "checkpoint.upload_limit" {
                continue;
            }
            assert_eq!(find(name).and_then(|s| s.normalize(text)).as_deref(), Ok(shown), "{name} {text}");
        }
    }
    let config = Config::new([("checkpoint.aligned_timeout", "off"), ("checkpoint.interval", "off")]);
    let config = config.expect("valid").database;
    assert_eq!(config.checkpoint_aligned_timeout, Duration::ZERO);
    assert_eq!(config.checkpoint_interval, Duration::ZERO);
    let own = BTreeMap::from([("checkpoint.aligned_timeout".to_owned(), "off".to_owned())]);
    let config = Config::new([("checkpoint.aligned_timeout", "1s")]).expect("valid");
    assert_eq!(config.of_database(&own).checkpoint_aligned_timeout, Duration::ZERO);
    for name in
        ["checkpoint.timeout", "barrier.interval", "checkpoint.phase", "restart.delay", "sink.log_limit"]
    {
        assert!(find(name).and_then(|s| s.normalize("off")).is_err(), "{name}");
    }
}

#[test]
fn every_time_and_size_has_a_range_and_its_hint_fits() {
    for spec in SETTINGS {
        let (range, longer, unit) = match spec.kind {
            Kind::Duration(range) | Kind::DurationOrAuto(range) => (range, "9999999d", "ms"),
            Kind::Bytes(range) | Kind::Memory(range) => (range, "99999999999TB", "MB"),
            Kind::Integer(..) => {
                for (value, words) in [("99999999999999999999", "is outside"), ("1s", "invalid value")] {
                    let error = spec.normalize(value).expect_err(spec.name);
                    assert!(error.to_string().contains(words), "{error}");
                    let hint = error.hint().expect("a hint");
                    assert!(hint.starts_with("Write a whole number from "), "{hint}");
                }
                continue;
            }
            _ => continue,
        };
        assert!(spec.normalize(range.least).is_ok() && spec.normalize(range.most).is_ok(), "{}", spec.name);
        for value in ["-1", "-5000000000", longer, &"9".repeat(400)] {
            let error = spec.normalize(value).expect_err(spec.name);
            assert_eq!(error.sql_state(), SqlState::INVALID_PARAMETER_VALUE);
            assert!(
                error
                    .to_string()
                    .contains(&format!("is outside the valid range for parameter \"{}\"", spec.name))
            );
            let hint = error.hint().expect("a hint");
            assert!(hint.contains(&format!("from {} to {}", range.least, range.most)), "{hint}");
        }
        let hint = spec.normalize("1 fortnight").expect_err(spec.name).hint().expect("a hint");
        assert!(hint.starts_with("Valid units") && hint.contains(unit), "{hint}");
        let hint = spec.normalize("soon").expect_err(spec.name).hint().expect("a hint");
        assert!(hint.contains(&format!("from {} to {}", range.least, range.most)), "{hint}");
    }
    let refused = |name: &str, value: &str| find(name).and_then(|s| s.normalize(value)).is_err();
    for name in ["checkpoint.timeout", "barrier.interval", "restart.delay", "restart.reset_after"] {
        assert!(refused(name, "0"), "{name}");
    }
    assert!(refused("checkpoint.timeout", "1ms") && refused("checkpoint.interval", "1ms"));
}

#[test]
fn an_unknown_name_is_told_the_nearest() {
    let error = find("statement_timeot").expect_err("misspelt");
    assert_eq!(error.to_string(), "unrecognized configuration parameter \"statement_timeot\"");
    assert_eq!(error.hint().as_deref(), Some("Perhaps you meant \"statement_timeout\"."));
    assert_eq!(find("zzz").expect_err("unknown").hint(), None);
}

#[test]
fn scopes_hold() {
    assert!(check_session("statement_timeout", "5s").is_ok());
    assert!(check_session("server_version", "16").is_err());
    assert!(check_session("memory.limit", "1GB").is_err());
    assert!(check_session("checkpoint.interval", "1s").is_err());
    assert!(check_database("checkpoint.interval", "1s").is_ok());
    assert!(Config::new([("server_version", "16")]).is_err());
}

#[test]
fn a_database_overrides_the_servers_defaults() {
    let config = Config::new([("checkpoint.interval", "10s"), ("memory.limit", "1GB"), ("parallelism", "3")])
        .expect("valid");
    assert_eq!(config.parallelism, 3);
    assert_eq!(config.query_memory_limit, (1 << 30) / 100 * 25);
    assert_eq!(config.database.checkpoint_interval, Duration::from_secs(10));
    let own = BTreeMap::from([("checkpoint.interval".to_owned(), "2s".to_owned())]);
    assert_eq!(config.of_database(&own).checkpoint_interval, Duration::from_secs(2));
    assert_eq!(config.of_database(&own).barrier_interval, Duration::from_millis(100));
}

#[test]
fn a_file_is_read_by_dotted_name() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("weir.toml");
    std::fs::write(&path, "parallelism = 2\n[checkpoint]\ninterval = '5s'\n").expect("written");
    let found = Config::read_file(&path).expect("read");
    assert_eq!(found["parallelism"], "2");
    assert_eq!(found["checkpoint.interval"], "5s");
    std::fs::write(&path, "parallelism = = 2").expect("written");
    assert!(Config::read_file(&path).is_err());
}

#[test]
fn passwords_are_not_shown() {
    let config = Config::new([("auth.users", "root:s3cret, ada:SCRAM-SHA-256$4096:a$b:c")]).expect("valid");
    assert_eq!(config.users.secret("root"), Some("s3cret"));
    assert_eq!(config.users.secret("ada"), Some("SCRAM-SHA-256$4096:a$b:c"));
    assert_eq!(config.users.secret("nobody"), None);
    assert_eq!(config.value(find("auth.users").expect("it exists")), "********");
    assert!(!format!("{config:?}").contains("s3cret"));
    let error = Config::new([("auth.users", "root")]).expect_err("no password");
    assert_eq!(error.to_string(), "invalid value for parameter \"auth.users\": \"********\"");
    assert!(Config::new([]).expect("defaults").users.is_empty());
}
