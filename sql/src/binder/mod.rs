//! Names to objects, over a catalog snapshot.
//!
//! ```text
//!   Parsed ── rewrite (AST) ── DataFusion's SQL planner over context::Provider ── analyze ──> Bound
//! ```
//! Binding reads the snapshot and nothing else, and changes nothing: what is to change is in the
//! [`Bound`] that it gives.

mod aggregate_names;
mod array_query;
mod arrays;
mod assign;
pub mod bound;
mod collect;
mod column_name;
mod common_type;
pub mod context;
mod create;
mod ddl;
mod definition;
mod dml;
mod explain;
mod grouped_names;
mod lateral;
mod literals;
mod locate;
mod moments;
mod named_arguments;
pub mod names;
mod natural;
pub mod optimize;
mod options;
mod ordered_input;
mod own_exprs;
mod places;
mod predicates;
mod query;
mod rebuild;
mod recursion;
mod rename;
mod replace;
mod report;
mod restate;
mod returning;
mod rewrite;
mod rows;
mod set_operations;
mod sets;
mod spellings;
mod subquery;
pub mod types;
mod unknown;
mod using;
mod view;
mod whole_rows;

pub use bound::{Bound, Create, Dml, DmlKind};
pub use optimize::optimize;

use crate::error::SqlError;
use crate::parser::Text;
use crate::parser::statement::{Parsed, ShowTarget, Statement};
use arrow::datatypes::DataType;
use std::sync::Arc;
use weir_catalog::{CatalogSnapshot, ObjectKind, ObjectName};

/// What binding may know of the session and the server.
#[derive(Clone)]
pub struct BindContext {
    /// The catalog.
    pub catalog: Arc<CatalogSnapshot>,
    /// Schemas that unqualified names are looked up in, in order; `pg_catalog` is always first.
    pub search_path: Vec<String>,
    /// Tables of `pg_catalog`, `information_schema` and `weir_catalog`: schema, name, columns.
    pub system: Arc<dyn SystemSchemas>,
    /// The connectors that exist.
    pub connectors: Arc<Vec<weir_catalog::connector::ConnectorSpec>>,
    /// Functions beyond the built-in ones: those that read the catalog or the session
    /// (`current_database()`, `pg_get_userbyid()`, …), as `serve` provides them.
    pub functions: Arc<Vec<Arc<datafusion_expr::ScalarUDF>>>,
    /// Types of `$1`, `$2`, … that the client declared.
    pub parameter_types: Vec<Option<DataType>>,
    /// `CREATE SOURCE` without columns: what the connector knows (nexmark's tables), by options.
    pub connector_columns: ConnectorColumns,
}

/// The columns that a connector knows, by its name and options.
pub type ConnectorColumns =
    Arc<dyn Fn(&str, &weir_catalog::source::Options) -> Option<Vec<weir_catalog::Column>> + Send + Sync>;

/// The system tables that exist, without their rows.
pub trait SystemSchemas: Send + Sync {
    /// The columns of a system table.
    fn schema_of(&self, schema: &str, name: &str) -> Option<arrow::datatypes::SchemaRef>;
}

/// Binds a statement. Positions of errors count from the start of the string that was parsed.
pub fn bind(parsed: &Parsed, context: &BindContext) -> Result<Bound, SqlError> {
    bind_statement(&parsed.statement, &parsed.text, context).map_err(|mut error| {
        error.position = error.position.map(|position| position + parsed.offset);
        error
    })
}

/// Binds a statement whose AST's locations are in `text`.
fn bind_statement(statement: &Statement, text: &str, context: &BindContext) -> Result<Bound, SqlError> {
    match statement {
        Statement::Query(query) => Ok(Bound::Query(query::plan_query(query, context, text)?.plan)),
        Statement::Insert(insert) => dml::insert(insert, context, text).map(Bound::Dml),
        Statement::Update(update) => dml::update(update, context, text).map(Bound::Dml),
        Statement::Delete(delete) => dml::delete(delete, context, text).map(Bound::Dml),
        Statement::Truncate(name) => dml::truncate(name, context).map(Bound::Dml),
        Statement::CreateTable(table) => create::create_table(table, context, text),
        Statement::CreateSource(source) => create::create_source(source, context, text),
        Statement::CreateMaterializedView(view) => view::create_materialized_view(view, context, text),
        Statement::CreateView(view) => view::create_view(view, context, text),
        Statement::CreateSink(sink) => view::create_sink(sink, context, text),
        Statement::CreateIndex(index) => ddl::create_index(index, context, text),
        Statement::CreateSchema { name, if_not_exists } => ddl::create_schema(name, *if_not_exists, context),
        Statement::Drop { kind, names, if_exists, cascade } => {
            ddl::drop(*kind, names, *if_exists, *cascade, context)
        }
        Statement::DropSchema { name, if_exists } => ddl::drop_schema(name, *if_exists, context),
        Statement::Rename { kind, name, to } => rename::rename(*kind, name, to, context),
        Statement::RenameColumn { kind, name, column, to } => {
            rename::rename_column(*kind, name, column, to, context)
        }
        Statement::SetParallelism { kind, name, parallelism } => {
            ddl::set_parallelism(*kind, name, *parallelism, context)
        }
        Statement::RebuildSink(name) => rebuild::rebuild_sink(name, context),
        Statement::AlterDatabase { setting, value, .. } => Ok(ddl::alter_database(setting, value.as_deref())),
        Statement::Comment { kind, name, text } => ddl::comment(*kind, name, text.clone(), context),
        Statement::Explain { statement, analyze } => explain::explain(statement, *analyze, text, context),
        other => named(other, context).map(Bound::Session),
    }
}

/// A statement for the session, with the names in it resolved.
fn named(statement: &Statement, context: &BindContext) -> Result<Statement, SqlError> {
    let resolved = |name: &ObjectName| match context.resolve(name) {
        Some(object) => Ok(object.name.clone()),
        None => Err(names::not_found(context, &names::plain(name), &name.name)),
    };
    Ok(match statement {
        Statement::Describe(name) => Statement::Describe(resolved(name)?),
        Statement::ResumeSink { name, at_least_once } => Statement::ResumeSink {
            name: object_of(ObjectKind::Sink, name, "ALTER", context)?.name.clone(),
            at_least_once: *at_least_once,
        },
        Statement::Show(ShowTarget::Columns(name)) => Statement::Show(ShowTarget::Columns(resolved(name)?)),
        Statement::Show(ShowTarget::Create(kind, name)) => Statement::Show(ShowTarget::Create(
            *kind,
            object_of(*kind, name, "SHOW CREATE", context)?.name.clone(),
        )),
        other => other.clone(),
    })
}

/// The object of this kind and name, or the error that `verb` gives without it.
fn object_of<'a>(
    kind: ObjectKind,
    name: &ObjectName,
    verb: &str,
    context: &'a BindContext,
) -> Result<&'a Arc<weir_catalog::Object>, SqlError> {
    match context.resolve(name) {
        Some(object) if object.kind() == kind => Ok(object),
        Some(object) => Err(names::not_a(object, kind, verb)),
        None if verb == "DROP" => Err(names::kind_not_found(context, kind, name)),
        None => Err(names::not_found(context, &names::plain(name), &name.name)),
    }
}

/// An error at a place in the statement, which is looked for in its text.
fn at(error: SqlError, text: &Text<'_>, span: sqlparser::tokenizer::Span) -> SqlError {
    if span.start.line == 0 {
        return error;
    }
    let position = text.char(span.start) + 1;
    error.at(position)
}

/// Plans the stored query of a view, sink or index anew, at a start: deterministic for the same
/// text over the same inputs.
pub fn replan(
    object: &weir_catalog::Object,
    context: &BindContext,
) -> Result<crate::plan::StreamPlan, SqlError> {
    view::replan(object, context)
}

#[cfg(test)]
#[path = "tests/bind.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/fixture.rs"]
mod fixture;

#[cfg(test)]
#[path = "tests/ddl.rs"]
mod ddl_tests;

#[cfg(test)]
#[path = "tests/dml.rs"]
mod dml_tests;

#[cfg(test)]
#[path = "tests/nexmark.rs"]
mod nexmark_tests;
