//! What a drill runs: the statements of its own pipeline, or of the user's file, and where its sinks
//! put their rows.
//!
//! For each sink a view of the same query is created, before it: what the engine holds. On the
//! reference server sinks into files get a directory of their own, and sinks into tables are left out.

use super::lines::{self, Lines};
use super::{DrillConfig, DrillError};
use crate::connectors::postgres_options;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_sql::parser::parse;
use weir_sql::parser::statement::{CreateSink, Statement};

/// Where a sink puts its rows.
#[derive(Clone, Debug)]
pub enum Place {
    /// Files in a directory.
    Files(PathBuf),
    /// A table of a PostgreSQL.
    Table {
        /// How it is reached.
        config: Box<tokio_postgres::Config>,
        /// The table, quoted.
        table: String,
    },
}

impl Place {
    /// Whether it is files.
    pub fn is_files(&self) -> bool {
        matches!(self, Place::Files(_))
    }
}

/// A sink that is drilled.
#[derive(Clone, Debug)]
pub struct DrilledSink {
    /// Its name.
    pub name: String,
    /// The view of the same query.
    pub view: String,
    /// Where its rows go.
    pub place: Place,
    /// Where the reference's go.
    pub reference_place: Place,
    /// Whether rows are never taken back.
    pub append_only: bool,
    /// The target's key, where rows are replaced.
    pub key: Vec<String>,
    /// Whether it commits in two phases.
    pub two_phase: bool,
}

/// The statements of a drill.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// For the server that is killed.
    pub drilled: Vec<String>,
    /// For the one that is not.
    pub reference: Vec<String>,
    /// The sinks.
    pub sinks: Vec<DrilledSink>,
    /// A schema of the sinks' PostgreSQL that is made for the drill, and removed after it.
    schema: Option<(Box<tokio_postgres::Config>, String)>,
}

/// Seconds of its stream that a kill takes, roughly: for how many events the own pipeline has.
const KILL_SECONDS: u64 = 3;

impl Script {
    /// What `config` asks for.
    pub fn of(config: &DrillConfig) -> Result<Self, DrillError> {
        if let Some(path) = &config.sql {
            let text = std::fs::read_to_string(path)
                .map_err(|e| DrillError::Unfit(format!("could not read {}: {e}", path.display())))?;
            return Self::read(config, &text, &text);
        }
        let events = config.events.unwrap_or(config.rate * KILL_SECONDS * (config.kills as u64 + 3));
        let own = OwnPipeline { config, events };
        let schema = match &config.postgres {
            Some(url) => {
                let config = url.parse::<tokio_postgres::Config>().map_err(|e| {
                    let reason =
                        std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
                    DrillError::Unfit(format!("--postgres is no URL of a PostgreSQL: {reason}"))
                })?;
                Some((Box::new(config), own.schema()))
            }
            None => None,
        };
        let rated = own.text(&format!(", rate = {}", config.rate));
        Ok(Script { schema, ..Self::read(config, &rated, &own.text(""))? })
    }

    /// Two texts of the same statements: for the server that is killed, and for the reference.
    fn read(config: &DrillConfig, drilled: &str, reference: &str) -> Result<Self, DrillError> {
        let parsed = |text: &str| parse(text).map_err(|e| DrillError::Unfit(format!("the script: {e}")));
        let mut script = Script::default();
        for (drilled, reference) in parsed(drilled)?.into_iter().zip(parsed(reference)?) {
            let Statement::CreateSink(sink) = &drilled.statement else {
                script.drilled.push(drilled.text);
                script.reference.push(reference.text);
                continue;
            };
            let found = drilled_sink(config, sink)?;
            let view = format!("CREATE MATERIALIZED VIEW {} AS {}", found.view, sink.query_text);
            script.drilled.extend([view.clone(), drilled.text.clone()]);
            script.reference.push(view);
            if let (Place::Files(ours), Place::Files(theirs)) = (&found.place, &found.reference_place) {
                script.reference.push(redirected(&reference.text, ours, theirs)?);
            }
            script.sinks.push(found);
        }
        match script.sinks.is_empty() {
            true => Err(DrillError::Unfit("the script has no sink to reconcile".to_owned())),
            false => Ok(script),
        }
    }

    /// What is in the place of a sink; `columns` are those of a table, in order.
    pub async fn lines_of(
        &self,
        sink: &DrilledSink,
        columns: &[String],
        place: &Place,
    ) -> Result<Lines, DrillError> {
        match place {
            Place::Files(dir) => lines::of_files(dir, (!sink.append_only).then_some(&sink.key[..])),
            Place::Table { .. } => lines::of_table(place, columns).await,
        }
    }

    /// Sees to it that sinks find nothing where they are to put their rows, and their tables if they are
    /// the drill's own.
    pub async fn prepare_targets(&self) -> Result<(), DrillError> {
        if let Some((config, schema)) = &self.schema {
            let client = lines::connect(config).await?;
            let made = format!(
                "CREATE SCHEMA {schema};
                 CREATE TABLE {schema}.bids (auction bigint, bidder bigint, price bigint, datetime timestamp);
                 CREATE TABLE {schema}.per_auction (auction bigint PRIMARY KEY, bids bigint, total numeric)"
            );
            client.batch_execute(&made).await.map_err(|e| lines::failed("make the drill's tables", &e))?;
        }
        for sink in &self.sinks {
            let there = match &sink.place {
                Place::Files(_) => self.lines_of(sink, &[], &sink.place).await?.count() as u64,
                Place::Table { config, table } => {
                    let client = lines::connect(config).await?;
                    let query = format!("SELECT count(*) FROM {table}");
                    let row = client.query_one(&query, &[]).await.map_err(|e| lines::failed(&query, &e))?;
                    row.get::<_, i64>(0) as u64
                }
            };
            if there > 0 {
                let message =
                    format!("sink \"{}\" has {there} rows in its target: choose an empty one", sink.name);
                return Err(DrillError::Unfit(message));
            }
        }
        Ok(())
    }

    /// Removes what the drill in `dir` made in PostgreSQL.
    pub async fn remove_targets(&self, dir: &Path) -> Result<(), DrillError> {
        let Some((config, schema)) = &self.schema else { return Ok(()) };
        let failed = |e: tokio_postgres::Error| lines::failed("remove the drill's tables", &e);
        let client = lines::connect(config).await?;
        // What a drill that failed left prepared would keep its tables.
        let database = std::fs::read_to_string(dir.join("drilled/data/database")).unwrap_or_default();
        let prefix = format!("weir:{}:", database.trim());
        let prepared =
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1)";
        for row in client.query(prepared, &[&prefix]).await.map_err(failed)? {
            let name: String = row.get(0);
            client.batch_execute(&format!("ROLLBACK PREPARED '{name}'")).await.map_err(failed)?;
        }
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.map_err(failed)
    }
}

fn drilled_sink(config: &DrillConfig, sink: &CreateSink) -> Result<DrilledSink, DrillError> {
    let name = sink.name.name.clone();
    let unfit = |why: &str| DrillError::Unfit(format!("sink \"{name}\" can't be reconciled: {why}"));
    let option = |name: &str| sink.options.get(name).map(String::as_str);
    let kind = option("type").ok_or_else(|| unfit("give it a type"))?;
    if kind == "debezium"
        || option("force_append_only") == Some("true")
        || option("snapshot") == Some("false")
    {
        return Err(unfit("what is in its target depends on how its changes came"));
    }
    let key = option("primary_key").unwrap_or_default().split(',').map(|k| k.trim().to_owned()).collect();
    let (place, reference_place) = match option("connector") {
        Some("file") => {
            let dir = option("path").ok_or_else(|| unfit("it has no path"))?;
            let encode = sink.format.as_ref().map_or("", |f| f.encode.as_str());
            if !(encode == "JSON" || encode == "CSV" && kind == "append-only") {
                return Err(unfit("its files are neither JSON, nor append-only CSV"));
            }
            let theirs = config.dir.join("reference-files").join(&name);
            let ours = dir.strip_prefix("file://").unwrap_or(dir);
            (Place::Files(PathBuf::from(ours)), Place::Files(theirs))
        }
        Some("postgres") => {
            let place = table_of(&sink.options)?;
            (place.clone(), place)
        }
        _ => return Err(unfit("only the connectors file and postgres keep what they are given")),
    };
    Ok(DrilledSink {
        view: format!("\"drill_{}\"", name.replace('"', "\"\"")),
        place,
        reference_place,
        append_only: kind == "append-only",
        key,
        two_phase: option("commit_mode") == Some("two_phase"),
        name,
    })
}

fn table_of(options: &BTreeMap<String, String>) -> Result<Place, DrillError> {
    let meaning = ["connector", "type", "primary_key", "force_append_only", "snapshot"];
    let options = options.iter().filter(|(name, _)| !meaning.contains(&name.as_str()));
    let options = options.map(|(name, value)| (name.clone(), value.clone())).collect();
    let (config, table) =
        postgres_options::reached(&options).map_err(|e| DrillError::Unfit(format!("the script: {e}")))?;
    Ok(Place::Table { config: Box::new(config), table })
}

/// The text of a sink with another directory.
fn redirected(text: &str, ours: &Path, theirs: &Path) -> Result<String, DrillError> {
    let [from, to] = [ours, theirs].map(|path| path.display().to_string().replace('\'', "''"));
    for spelled in [format!("'{from}'"), format!("'file://{from}'")] {
        if text.contains(&spelled) {
            return Ok(text.replacen(&spelled, &format!("'{to}'"), 1));
        }
    }
    Err(DrillError::Unfit(format!("the path {from} is not in the text of its sink")))
}

/// The drill's own pipeline: bids of an auction site, each of them in a sink, and per auction.
struct OwnPipeline<'a> {
    config: &'a DrillConfig,
    events: u64,
}

impl OwnPipeline<'_> {
    /// A schema that is only this drill's.
    fn schema(&self) -> String {
        format!("weir_drill_{}_{}", self.config.seed, std::process::id())
    }

    fn text(&self, rate: &str) -> String {
        let events = self.events;
        format!(
            "CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', events = {events}{rate});
             CREATE SINK bids AS SELECT auction, bidder, price, datetime FROM bid
               WITH ({}, type = 'append-only') {format};
             CREATE SINK per_auction AS
               SELECT auction, count(*) AS bids, sum(price) AS total FROM bid GROUP BY auction
               WITH ({}, type = 'upsert', primary_key = 'auction') {format};",
            self.target("bids"),
            self.target("per_auction"),
            format = if self.config.postgres.is_some() { "" } else { "FORMAT PLAIN ENCODE JSON" },
        )
    }

    fn target(&self, table: &str) -> String {
        let quoted = |text: &str| text.replace('\'', "''");
        match &self.config.postgres {
            Some(url) => format!(
                "connector = 'postgres', jdbc.url = 'jdbc:{}', schema.name = '{}', table.name = '{table}', \
                 commit_mode = '{}'",
                quoted(url),
                self.schema(),
                if self.config.two_phase { "two_phase" } else { "progress" }
            ),
            None => {
                let dir = self.config.dir.join("files").join(table);
                format!(
                    "connector = 'file', path = '{}', commit_every = 1",
                    quoted(&dir.display().to_string())
                )
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/script.rs"]
mod tests;
