//! The settings of one session: what SET changed, over the database's, over the server's.

use super::SessionError;
use crate::config::{Config, SETTINGS, SettingSpec, check_session, find, parse_duration};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Settings that clients are told of when they change (ParameterStatus).
pub const REPORTED: &[&str] = &[
    "server_version",
    "server_encoding",
    "client_encoding",
    "application_name",
    "default_transaction_read_only",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "is_superuser",
    "integer_datetimes",
    "standard_conforming_strings",
];

/// What a session set.
#[derive(Clone, Debug)]
pub struct Settings {
    config: Arc<Config>,

    /// What RESET goes back to: the startup message's.
    initial: BTreeMap<String, String>,
    values: Arc<BTreeMap<String, String>>,
}

impl Settings {
    /// Nothing set yet.
    pub fn new(config: Arc<Config>) -> Self {
        Self { config, initial: BTreeMap::new(), values: Arc::default() }
    }

    /// What differs from the defaults, by the setting's own spelling.
    pub fn values(&self) -> &Arc<BTreeMap<String, String>> {
        &self.values
    }

    /// Sets a setting as the startup message says. What the server has no such setting of is
    /// left out: drivers send many.
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<(), SessionError> {
        match self.set(name, Some(value)) {
            Ok(spec) => {
                self.initial.insert(spec.name.to_owned(), self.values[spec.name].clone());
                Ok(())
            }
            Err(_) if find(name).is_err() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// SET; without a value RESET.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<&'static SettingSpec, SessionError> {
        let values = Arc::make_mut(&mut self.values);
        match value {
            Some(value) => {
                let (spec, value) = check_session(name, value)?;
                values.insert(spec.name.to_owned(), value);
                Ok(spec)
            }
            None => {
                let spec = find(name)?;
                match self.initial.get(spec.name) {
                    Some(initial) => values.insert(spec.name.to_owned(), initial.clone()),
                    None => values.remove(spec.name),
                };
                Ok(spec)
            }
        }
    }

    /// What this session, or its transaction, set.
    pub fn own(&self, name: &str) -> Option<&str> {
        find(name).ok().and_then(|spec| self.values.get(spec.name)).map(String::as_str)
    }

    /// Takes back what a transaction set: to what was the session's own, if anything.
    pub fn put_back(&mut self, name: &str, before: Option<&str>) -> Result<(), SessionError> {
        let spec = find(name)?;
        let values = Arc::make_mut(&mut self.values);
        match before {
            Some(before) => values.insert(spec.name.to_owned(), before.to_owned()),
            None => values.remove(spec.name),
        };
        Ok(())
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        self.values = Arc::new(self.initial.clone());
    }

    /// A setting's value, as SHOW prints it. `database` holds the database's own.
    pub fn get(&self, spec: &SettingSpec, database: &BTreeMap<String, String>) -> String {
        let own = self.values.get(spec.name);
        let of_database =
            || database.iter().find(|(name, _)| name.eq_ignore_ascii_case(spec.name)).map(|(_, value)| value);
        own.or_else(of_database).map_or_else(|| self.config.value(spec).to_owned(), Clone::clone)
    }

    /// The value of a setting by its own spelling.
    pub fn value(&self, name: &'static str, database: &BTreeMap<String, String>) -> String {
        find(name).map(|spec| self.get(spec, database)).unwrap_or_default()
    }

    /// The schemas of `search_path`, `$user` as the user.
    pub fn search_path(&self, user: &str, database: &BTreeMap<String, String>) -> Vec<String> {
        let path = self.value("search_path", database);
        let schema = |word: &str| match word.trim().strip_prefix('"').and_then(|w| w.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => word.trim().trim_matches('\'').to_lowercase(),
        };
        path.split(',')
            .map(schema)
            .map(|name| if name == "$user" { user.to_owned() } else { name })
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// `statement_timeout`, if there is one.
    pub fn statement_timeout(&self, database: &BTreeMap<String, String>) -> Option<Duration> {
        parse_duration(&self.value("statement_timeout", database)).filter(|timeout| !timeout.is_zero())
    }

    /// `query.memory_limit` in bytes.
    pub fn query_memory(&self, database: &BTreeMap<String, String>) -> usize {
        self.config.query_memory(&self.value("query.memory_limit", database))
    }

    /// Every setting, for SHOW ALL: name, value, what it is for.
    pub fn all(&self, database: &BTreeMap<String, String>) -> Vec<[String; 3]> {
        let row = |spec: &SettingSpec| [spec.name.to_owned(), self.get(spec, database), spec.help.to_owned()];
        SETTINGS.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(Arc::new(Config::new([]).expect("defaults")))
    }

    #[test]
    fn a_session_overrides_the_database_and_reset_takes_it_back() {
        let mut settings = settings();
        let database = BTreeMap::from([("statement_timeout".to_owned(), "5s".to_owned())]);
        assert_eq!(settings.statement_timeout(&database), Some(Duration::from_secs(5)));
        settings.set("STATEMENT_TIMEOUT", Some("100")).expect("set");
        assert_eq!(settings.statement_timeout(&database), Some(Duration::from_millis(100)));
        settings.set("statement_timeout", None).expect("reset");
        assert_eq!(settings.statement_timeout(&database), Some(Duration::from_secs(5)));
        assert_eq!(settings.statement_timeout(&BTreeMap::new()), None);
    }

    #[test]
    fn reset_goes_back_to_what_the_client_started_with() {
        let mut settings = settings();
        settings.set_initial("application_name", "psql").expect("set");
        settings.set_initial("no_such_setting", "1").expect("left out");
        settings.set("application_name", Some("x")).expect("set");
        settings.reset_all();
        assert_eq!(settings.value("application_name", &BTreeMap::new()), "psql");
        assert!(settings.set("no_such_setting", Some("1")).is_err());
    }

    #[test]
    fn the_search_path_is_a_list_of_identifiers() {
        let mut settings = settings();
        assert_eq!(settings.search_path("root", &BTreeMap::new()), ["root", "public"]);
        settings.set("search_path", Some("Sales, \"My Schema\", public")).expect("set");
        assert_eq!(settings.search_path("root", &BTreeMap::new()), ["sales", "My Schema", "public"]);
    }
}
