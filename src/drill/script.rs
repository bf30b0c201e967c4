//! What a drill runs: the statements of one of its own pipelines, or of the user's file, what is written
//! meanwhile, and where the sinks put their rows.
//!
//! For each sink a view of the same query is created, before it: what the engine holds. On the
//! reference server sinks into files get a directory of their own, and sinks into tables are left out.

use super::files::{Files, Layout, Meaning};
use super::kills::Scene;
use super::tables::{self, Table};
use super::{DrillConfig, DrillError, writes};
use crate::connectors::postgres_options;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_catalog::name::quote_identifier;
use weir_catalog::source::FormatSpec;
use weir_sql::parser::parse;
use weir_sql::parser::statement::{CreateSink, Parsed, Statement};

/// Where a sink puts its rows.
#[derive(Clone, Debug)]
pub enum Place {
    /// Files in a directory.
    Files(Files),
    /// A table of a PostgreSQL.
    Table(Table),
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
    /// What its rows mean.
    pub meaning: Meaning,
    /// Whether it commits in two phases.
    pub two_phase: bool,
}

impl DrilledSink {
    /// Whether rows are never taken back.
    pub fn is_append_only(&self) -> bool {
        self.meaning == Meaning::Rows
    }
}

/// The statements of a drill.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// For the server that is killed.
    pub drilled: Vec<String>,
    /// For the one that is not.
    pub reference: Vec<String>,
    /// What a client executes while the server is killed, one after the other, each until it is
    /// acknowledged.
    pub writes: Vec<String>,
    /// The sinks.
    pub sinks: Vec<DrilledSink>,
    /// What has a parallelism: as ALTER names it.
    pub jobs: Vec<String>,
    /// A schema of the sinks' PostgreSQL that is made for the drill and removed after it, and its tables.
    pub schema: Option<OwnSchema>,
}

/// A schema of the drill's own.
#[derive(Clone, Debug)]
pub struct OwnSchema {
    /// How it is reached.
    pub config: Box<tokio_postgres::Config>,
    /// Its name.
    pub name: String,
    /// What makes its tables.
    pub tables: String,
}

impl Script {
    /// Two texts of the same statements: for the server that is killed, and for the reference.
    pub fn read(config: &DrillConfig, drilled: &str, reference: &str) -> Result<Self, DrillError> {
        let mut script = Script::default();
        for (drilled, reference) in parsed(drilled)?.into_iter().zip(parsed(reference)?) {
            script.jobs.extend(job_of(&drilled.statement));
            let Statement::CreateSink(sink) = &drilled.statement else {
                script.drilled.push(drilled.text);
                script.reference.push(reference.text);
                continue;
            };
            let found = drilled_sink(config, sink)?;
            let view = format!("CREATE MATERIALIZED VIEW {} AS {}", found.view, sink.query_text);
            script.jobs.push(format!("MATERIALIZED VIEW {}", found.view));
            script.drilled.extend([view.clone(), drilled.text.clone()]);
            script.reference.push(view);
            if let (Place::Files(ours), Place::Files(theirs)) = (&found.place, &found.reference_place) {
                script.reference.push(redirected(&reference.text, &ours.dir, &theirs.dir)?);
            }
            script.sinks.push(found);
        }
        script.jobs.push("DATABASE dev".to_owned());
        if let Some(path) = &config.writes {
            script.writes = writes::units(parsed(&text_of(path)?)?);
        }
        match script.sinks.is_empty() {
            true => Err(DrillError::Unfit("the script has no sink to reconcile".to_owned())),
            false => Ok(script),
        }
    }

    /// The user's file.
    pub fn of_file(config: &DrillConfig, path: &Path) -> Result<Self, DrillError> {
        let text = text_of(path)?;
        Self::read(config, &text, &text)
    }

    /// What there is in it that can be in the middle of something.
    pub fn scene(&self, config: &DrillConfig) -> Scene {
        let any = |is: &dyn Fn(&DrilledSink) -> bool| self.sinks.iter().any(is);
        let mut storage = config.settings.iter().filter_map(|s| s.strip_prefix("checkpoint.storage="));
        Scene {
            files: any(&|sink| sink.place.is_files()),
            progress: any(&|sink| !sink.place.is_files() && !sink.two_phase),
            two_phase: any(&|sink| sink.two_phase),
            writes: !self.writes.is_empty(),
            storage: storage.next_back().is_some_and(|url| url.contains("://")),
            rescales: config.rescale,
        }
    }

    /// Sees to it that sinks find nothing where they are to put their rows, and their tables if they are
    /// the drill's own.
    pub async fn prepare_targets(&self) -> Result<(), DrillError> {
        if let Some(OwnSchema { config, name, tables }) = &self.schema {
            let made = format!("CREATE SCHEMA {name}; SET search_path = {name}; {tables}");
            let client = tables::connect(config).await?;
            client.batch_execute(&made).await.map_err(|e| tables::failed("make the drill's tables", &e))?;
        }
        for sink in &self.sinks {
            let there = match &sink.place {
                Place::Files(files) => files.read(&Meaning::Rows, &[])?.lines.count(),
                Place::Table(table) => table.count().await?,
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
        let Some(OwnSchema { config, name, .. }) = &self.schema else { return Ok(()) };
        let failed = |e: tokio_postgres::Error| tables::failed("remove the drill's tables", &e);
        let client = tables::connect(config).await?;
        // What a drill that failed left prepared would keep its tables.
        let database = std::fs::read_to_string(dir.join("drilled/data/database")).unwrap_or_default();
        let prefix = format!("weir:{}:", database.trim());
        let prepared =
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1)";
        for row in client.query(prepared, &[&prefix]).await.map_err(failed)? {
            let name: String = row.get(0);
            client.batch_execute(&format!("ROLLBACK PREPARED '{name}'")).await.map_err(failed)?;
        }
        client.batch_execute(&format!("DROP SCHEMA {name} CASCADE")).await.map_err(failed)
    }
}

fn text_of(path: &Path) -> Result<String, DrillError> {
    let unread = |e| DrillError::Unfit(format!("could not read {}: {e}", path.display()));
    std::fs::read_to_string(path).map_err(unread)
}

fn parsed(text: &str) -> Result<Vec<Parsed>, DrillError> {
    parse(text).map_err(|e| DrillError::Unfit(format!("the script: {e}")))
}

/// What ALTER … SET PARALLELISM calls it.
fn job_of(statement: &Statement) -> Option<String> {
    let (kind, name) = match statement {
        Statement::CreateTable(table) => ("TABLE", &table.name),
        Statement::CreateSource(source) => ("SOURCE", &source.name),
        Statement::CreateMaterializedView(view) => ("MATERIALIZED VIEW", &view.name),
        Statement::CreateSink(sink) => ("SINK", &sink.name),
        _ => return None,
    };
    // Where the script names no schema, there is none in it yet.
    Some(match name.schema.is_empty() {
        true => format!("{kind} {}", quote_identifier(&name.name)),
        false => format!("{kind} {name}"),
    })
}

fn drilled_sink(config: &DrillConfig, sink: &CreateSink) -> Result<DrilledSink, DrillError> {
    let name = sink.name.name.clone();
    let unfit = |why: &str| DrillError::Unfit(format!("sink \"{name}\" can't be reconciled: {why}"));
    let option = |name: &str| sink.options.get(name).map(String::as_str);
    let kind = option("type").ok_or_else(|| unfit("give it a type"))?;
    if option("force_append_only") == Some("true") || option("snapshot") == Some("false") {
        return Err(unfit("what is in its target depends on how its changes came"));
    }
    let key = option("primary_key").unwrap_or_default().split(',').map(|k| k.trim().to_owned()).collect();
    let meaning = match kind {
        "append-only" => Meaning::Rows,
        "debezium" => Meaning::Changes(key),
        _ => Meaning::Last(key),
    };
    let (place, reference_place) = match option("connector") {
        Some("file") => {
            let dir = option("path").ok_or_else(|| unfit("it has no path"))?;
            let layout = layout_of(sink.format.as_ref()).ok_or_else(|| {
                unfit(
                    "of what its files are made, JSON, CSV or Parquet, it does not say as the drill reads it",
                )
            })?;
            let theirs = config.dir.join("reference-files").join(&name);
            let ours = PathBuf::from(dir.strip_prefix("file://").unwrap_or(dir));
            let place = |dir| Place::Files(Files { dir, layout });
            (place(ours), place(theirs))
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
        meaning,
        two_phase: option("commit_mode") == Some("two_phase"),
        name,
    })
}

/// How the files of a sink are written, as its own options say.
fn layout_of(format: Option<&FormatSpec>) -> Option<Layout> {
    let Some(format) = format else { return Some(Layout::Parquet) };
    let option = |name: &str| format.options.get(name).map(String::as_str);
    match format.encode.as_str() {
        "JSON" => Some(Layout::Json),
        "CSV" => {
            let delimiter = match option("delimiter").unwrap_or(",").as_bytes() {
                [one] => *one,
                b"\\t" => b'\t',
                _ => return None,
            };
            let without = option("without_header").map(|without| without == "true");
            let header = without.map_or(option("header") == Some("true"), |without| !without);
            Some(Layout::Csv { delimiter, header })
        }
        "PARQUET" | "NATIVE" | "" => Some(Layout::Parquet),
        _ => None,
    }
}

fn table_of(options: &BTreeMap<String, String>) -> Result<Place, DrillError> {
    let meaning = ["connector", "type", "primary_key", "force_append_only", "snapshot"];
    let options = options.iter().filter(|(name, _)| !meaning.contains(&name.as_str()));
    let options = options.map(|(name, value)| (name.clone(), value.clone())).collect();
    let (config, name) =
        postgres_options::reached(&options).map_err(|e| DrillError::Unfit(format!("the script: {e}")))?;
    Ok(Place::Table(Table { config: Box::new(config), name }))
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

#[cfg(test)]
#[path = "tests/script.rs"]
mod tests;
