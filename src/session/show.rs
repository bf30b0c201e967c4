//! SHOW and DESCRIBE: what the catalog, the settings and the running jobs say, as rows of text.

use super::rows::{text_rows, text_schema};
use super::{Outcome, Session, SessionError};
use crate::config::find;
use arrow::datatypes::SchemaRef;
use std::sync::Arc;
use weir_catalog::relation::RowKey;
use weir_catalog::system::delivery::Party;
use weir_catalog::system::facts::{CheckpointFact, JobFact};
use weir_catalog::{CatalogSnapshot, Object, ObjectBody, ObjectKind, ObjectName, SqlState};
use weir_sql::parser::statement::ShowTarget;

/// A row of text.
type Row = Vec<Option<String>>;

/// The column of EXPLAIN.
pub fn explain_schema() -> SchemaRef {
    text_schema(&["QUERY PLAN"])
}

/// The columns of a SHOW.
pub fn show_schema(target: &ShowTarget) -> SchemaRef {
    text_schema(match target {
        ShowTarget::Objects(ObjectKind::Source) => &["Name", "Connector"],
        ShowTarget::Objects(ObjectKind::Sink) => &["Name", "Connector", "Status", "Error"],
        ShowTarget::Objects(ObjectKind::Index) => &["Name", "On", "Key", "Include"],
        ShowTarget::Objects(_) | ShowTarget::Schemas | ShowTarget::Databases => &["Name"],
        ShowTarget::Jobs => &["Id", "Name", "Kind", "Status", "Progress", "Actors", "Parallelism"],
        ShowTarget::Checkpoints => {
            &["Epoch", "Triggered At", "Status", "Duration", "Total Bytes", "New Bytes", "Reason"]
        }
        ShowTarget::ExactlyOnce => &["Role", "Name", "Connector", "Contract", "Exactly Once", "Reason"],
        ShowTarget::Columns(_) => &["Name", "Type", "Nullable", "Key", "Default"],
        ShowTarget::Create(..) => &["Name", "Create Sql"],
        ShowTarget::All => &["name", "setting", "description"],
        ShowTarget::Setting(name) => return text_schema(&[setting_name(name)]),
    })
}

/// The column of SHOW setting: the name as the setting spells it.
fn setting_name(name: &str) -> &str {
    find(name).map_or(name, |spec| spec.name)
}

impl Session {
    /// SHOW.
    pub(super) fn show(&mut self, target: &ShowTarget) -> Result<Outcome, SessionError> {
        let catalog = self.db().catalog();
        let some = |text: String| vec![Some(text)];
        let rows: Vec<Row> = match target {
            ShowTarget::Objects(ObjectKind::Sink) => {
                let facts = self.manager.serve().facts();
                let sinks = weir_catalog::system::sinks::statuses(&catalog, &facts);
                sinks.into_iter().map(Vec::from).collect()
            }
            ShowTarget::Objects(kind) => {
                catalog.objects().filter(|o| o.kind() == *kind).map(|o| object_row(&catalog, o)).collect()
            }
            ShowTarget::Schemas => catalog.schemas.iter().cloned().map(some).collect(),
            ShowTarget::Databases => vec![some(self.manager.database_name().to_owned())],
            ShowTarget::Jobs => self.db().job_facts().iter().map(|job| job_row(&catalog, job)).collect(),
            ShowTarget::Checkpoints => {
                self.db().history().checkpoints().iter().rev().map(checkpoint_row).collect()
            }
            ShowTarget::ExactlyOnce => {
                let parties =
                    weir_catalog::system::delivery::parties(&catalog, &self.manager.serve().facts());
                parties.into_iter().map(party_row).collect()
            }
            ShowTarget::Columns(name) => column_rows(self.find_object(&catalog, name)?.as_ref()),
            ShowTarget::Create(kind, name) => {
                let object = self.find_object(&catalog, name)?;
                if object.kind() != *kind {
                    let message = format!("\"{}\" is not a {kind}", name.name);
                    return Err(SessionError::new(SqlState::WRONG_OBJECT_TYPE, message)
                        .hint(format!("It is a {}.", object.kind())));
                }
                vec![vec![Some(object.name.to_string()), Some(object.definition.clone())]]
            }
            ShowTarget::All => {
                let all = self.settings.all(&catalog.settings);
                all.into_iter().map(|row| row.into_iter().map(Some).collect()).collect()
            }
            ShowTarget::Setting(name) => vec![some(self.settings.get(find(name)?, &catalog.settings))],
        };
        text_rows(show_schema(target), rows, "SHOW")
    }

    /// DESCRIBE.
    pub(super) fn describe(&mut self, name: &ObjectName) -> Result<Outcome, SessionError> {
        let object = self.find_object(&self.db().catalog(), name)?;
        let schema = show_schema(&ShowTarget::Columns(name.clone()));
        text_rows(schema, column_rows(&object), "DESCRIBE")
    }

    /// The object of this name, as the binder resolved it.
    fn find_object(&self, catalog: &CatalogSnapshot, name: &ObjectName) -> Result<Arc<Object>, SessionError> {
        catalog.get(name).cloned().ok_or_else(|| {
            SessionError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
        })
    }
}

fn object_row(catalog: &CatalogSnapshot, object: &Object) -> Row {
    let name = Some(object.name.to_string());
    match &object.body {
        ObjectBody::Source(source) => vec![name, Some(source.connector.clone())],
        ObjectBody::Sink(sink) => vec![name, Some(sink.connector.clone())],
        ObjectBody::Index(index) => {
            let relation = catalog.by_id(index.relation);
            let column = |ordinal: &usize| {
                let column = relation.and_then(|relation| relation.columns().get(*ordinal));
                column.map_or_else(|| format!("#{ordinal}"), |column| column.name.clone())
            };
            let key = |(ordinal, descending): &(usize, bool)| {
                format!("{}{}", column(ordinal), if *descending { " DESC" } else { "" })
            };
            let list = |names: Vec<String>| Some(names.join(", "));
            vec![
                name,
                relation.map(|relation| relation.name.to_string()),
                list(index.columns.iter().map(key).collect()),
                list(index.include.iter().map(column).collect()),
            ]
        }
        ObjectBody::Table(_) | ObjectBody::MaterializedView(_) | ObjectBody::View(_) => vec![name],
    }
}

fn job_row(catalog: &CatalogSnapshot, job: &JobFact) -> Row {
    let object = catalog.by_id(job.id);
    let progress = match (job.status.as_str(), job.backfill_total_rows) {
        ("creating", Some(total)) if total > 0 => {
            Some(format!("{:.1}%", 100.0 * job.backfilled_rows as f64 / total as f64))
        }
        ("creating", _) => Some(format!("{} rows", job.backfilled_rows)),
        _ => None,
    };
    vec![
        Some(job.id.to_string()),
        object.map(|object| object.name.to_string()),
        object.map(|object| object.kind().to_string()),
        Some(job.status.clone()),
        progress,
        Some(job.actors.to_string()),
        Some(parallelism(job.parallelism, object.and_then(|object| object.parallelism))),
    ]
}

/// What a job runs with, and what was asked for where that is not the same number.
fn parallelism(actual: usize, wanted: Option<u16>) -> String {
    match wanted {
        Some(wanted) if usize::from(wanted) == actual => actual.to_string(),
        wanted => format!("{actual} ({})", weir_catalog::system::jobs::wanted_parallelism(wanted)),
    }
}

fn party_row(party: Party) -> Row {
    vec![
        Some(party.role.to_owned()),
        party.object.map(|object| object.name.to_string()),
        party.connector,
        Some(party.contract.to_owned()),
        Some(if party.exactly_once { "yes" } else { "no" }.to_owned()),
        Some(party.reason),
    ]
}

fn checkpoint_row(checkpoint: &CheckpointFact) -> Row {
    let at = arrow::array::TimestampMicrosecondArray::from(vec![checkpoint.triggered_at_us]);
    let at = Arc::new(at.with_timezone("+00:00")) as arrow::array::ArrayRef;
    vec![
        Some(checkpoint.epoch.to_string()),
        super::text::to_text(&at, 0),
        Some(checkpoint.status.clone()),
        Some(format!("{:.1} ms", checkpoint.duration_us as f64 / 1000.0)),
        Some(checkpoint.total_bytes.to_string()),
        Some(checkpoint.new_bytes.to_string()),
        checkpoint.reason.clone(),
    ]
}

fn column_rows(object: &Object) -> Vec<Row> {
    let key: &[usize] = match &object.body {
        ObjectBody::Table(table) => columns_of(&table.key),
        ObjectBody::MaterializedView(view) => columns_of(&view.key),
        ObjectBody::Source(source) => source.primary_key.as_deref().unwrap_or_default(),
        ObjectBody::Sink(sink) => sink.primary_key.as_deref().unwrap_or_default(),
        ObjectBody::View(_) | ObjectBody::Index(_) => &[],
    };
    let row = |(i, column): (usize, &weir_catalog::Column)| {
        vec![
            Some(column.name.clone()),
            Some(column.sql_type.clone()),
            Some(if column.nullable { "yes" } else { "no" }.to_owned()),
            key.iter().position(|k| *k == i).map(|place| (place + 1).to_string()),
            column.default.clone(),
        ]
    };
    object.columns().iter().enumerate().map(row).collect()
}

fn columns_of(key: &RowKey) -> &[usize] {
    match key {
        RowKey::Columns(columns) => columns,
        RowKey::WholeRow => &[],
    }
}
