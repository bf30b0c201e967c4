//! CREATE [MATERIALIZED] VIEW and CREATE SINK: a query, its columns, and the stream plan that keeps
//! them.

use super::context::SystemSource;
use super::create::{check_key_types, created, existing, new_name};
use super::options::{check_format, check_options, invalid, take_bool, take_connector};
use super::query::{self, Planned};
use super::types::arrow_to_sql;
use super::{BindContext, Bound, optimize, replace, report};
use crate::error::SqlError;
use crate::parser::parse_query;
use crate::parser::statement::{CreateSink, CreateView};
use crate::plan::{Distribution, PlanNode, PlanOp, StreamPlan};
use crate::rewrite::exchange::{numbered, with_output_distribution};
use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion_expr::{Expr, LogicalPlan};
use weir_catalog::connector::ConnectorRole;
use weir_catalog::name::DEFAULT_SCHEMA;
use weir_catalog::relation::{MaterializedView, RowKey, View};
use weir_catalog::sink::{Sink, SinkType};
use weir_catalog::source::Options;
use weir_catalog::system::delivery::declared_degradations;
use weir_catalog::{Column, Key, Object, ObjectBody, ObjectId, ObjectState, SqlState};

pub(super) fn create_materialized_view(
    view: &CreateView,
    context: &BindContext,
    text: &str,
) -> Result<Bound, SqlError> {
    const TAG: &str = "CREATE MATERIALIZED VIEW";
    let name = new_name(&view.name, context)?;
    if let Some(skip) = existing(&name, view.if_not_exists, TAG, context)? {
        return Ok(skip);
    }
    let (planned, inputs) = stored_query(&view.query, &view.query_text, context, text)?;
    let logical = query::rename(planned, &view.columns)?;
    let columns = columns_of(&logical);
    let plan = streamed(logical, context)?;
    let key = row_key(&plan);
    check_key_types(&key, &columns)?;
    let plan = keyed(plan, &key);
    let plan = if view.emit_on_window_close { emitted_on_close(plan)? } else { plan };
    let body = ObjectBody::MaterializedView(MaterializedView {
        columns,
        key,
        append_only: plan.root.properties.append_only,
        query: view.query_text.clone(),
        inputs,
        watermarks: plan.root.properties.watermarks.clone(),
        emit_on_close: view.emit_on_window_close,
    });
    Ok(with_plan(created(name, body, ObjectState::Creating, TAG, text, context), plan, Vec::new()))
}

pub(super) fn create_view(view: &CreateView, context: &BindContext, text: &str) -> Result<Bound, SqlError> {
    let name = new_name(&view.name, context)?;
    if let Some(object) = context.catalog.get(&name).filter(|_| view.or_replace) {
        return replace::replace_view(object, view, context, text);
    }
    if let Some(skip) = existing(&name, view.if_not_exists, "CREATE VIEW", context)? {
        return Ok(skip);
    }
    let (planned, inputs) = stored_query(&view.query, &view.query_text, context, text)?;
    let columns = columns_of(&query::rename(planned, &view.columns)?);
    let body = ObjectBody::View(View { columns, query: view.query_text.clone(), inputs });
    Ok(created(name, body, ObjectState::Created, "CREATE VIEW", text, context))
}

pub(super) fn create_sink(sink: &CreateSink, context: &BindContext, text: &str) -> Result<Bound, SqlError> {
    const TAG: &str = "CREATE SINK";
    let name = new_name(&sink.name, context)?;
    if let Some(skip) = existing(&name, sink.if_not_exists, TAG, context)? {
        return Ok(skip);
    }
    let mut options = sink.options.clone();
    let spec = take_connector(&mut options, ConnectorRole::Sink, context)?;
    let declared = SinkOptions::take(&mut options)?;
    check_options(spec, &options)?;
    let format = check_format(spec, sink.format.clone())?;
    let (planned, inputs) = stored_query(&sink.query, &sink.query_text, context, text)?;
    let logical = query::rename(planned, &[])?;
    let columns = columns_of(&logical);
    let plan = streamed(logical, context)?;
    let (sink_type, primary_key) = declared.meaning(&plan, &columns)?;
    let mut notices = Vec::new();
    let append_only = plan.root.properties.append_only;
    if sink_type == SinkType::AppendOnly && !append_only {
        if !declared.force_append_only {
            return Err(SqlError::not_supported("an append-only sink of rows that may change").hint(
                "Use type = 'upsert' with a primary_key, or force_append_only = true to drop retractions.",
            ));
        }
        notices.push(
            "retractions are dropped: force_append_only is set and the sink's rows may change".to_owned(),
        );
    }
    let plan = sink_distribution(plan, primary_key.as_ref());
    let sink = Sink {
        columns,
        query: sink.query_text.clone(),
        inputs,
        connector: spec.name.to_owned(),
        options,
        format,
        sink_type,
        primary_key,
        force_append_only: declared.force_append_only,
        snapshot: declared.snapshot,
        replaces: None,
    };
    for reason in declared_degradations(&sink, &context.catalog, &context.connectors) {
        notices.push(format!("sink \"{}\" delivers at least once: {reason}", name.name));
    }
    let body = ObjectBody::Sink(sink);
    Ok(with_plan(created(name, body, ObjectState::Creating, TAG, text, context), plan, notices))
}

/// Adds a job's plan and what to tell the client.
pub(super) fn with_plan(bound: Bound, plan: StreamPlan, notices: Vec<String>) -> Bound {
    match bound {
        Bound::Create(mut create) => {
            create.plan = Some(plan);
            create.notices = notices;
            Bound::Create(create)
        }
        other => other,
    }
}

/// Plans a query that is to be stored, and what it reads.
pub(super) fn stored_query(
    query: &sqlparser::ast::Query,
    query_text: &str,
    context: &BindContext,
    text: &str,
) -> Result<(LogicalPlan, Vec<ObjectId>), SqlError> {
    let Planned { plan, reads } = query::plan_query(query, context, text)?;
    refuse_unstorable(&plan)?;
    // The text is planned again at each start, when there is no session to ask for its path.
    if context.search_path != [DEFAULT_SCHEMA] {
        let later = BindContext { search_path: vec![DEFAULT_SCHEMA.to_owned()], ..context.clone() };
        let again = query::plan_query(&*parse_query(query_text)?, &later, query_text);
        if again.map(|a| a.reads).ok() != Some(reads.clone()) {
            return Err(SqlError::not_supported("a stored query with names that depend on search_path")
                .hint("Qualify the names of relations outside schema public."));
        }
    }
    Ok((plan, reads))
}

/// Parameters and system tables have no place in what is kept up to date.
fn refuse_unstorable(plan: &LogicalPlan) -> Result<(), SqlError> {
    let mut refused = None;
    let visited = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(system) = scan.source.downcast_ref::<SystemSource>()
        {
            let what = format!("{}.{} in a stored query", system.schema_name, system.name);
            refused = Some(SqlError::not_supported(what));
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Placeholder(placeholder) = expr {
                    let message = format!("there is no parameter {}", placeholder.id);
                    refused = Some(SqlError::new(SqlState("42P02"), message));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    visited.map_err(|error| report::sql_error(error, None))?;
    refused.map_or(Ok(()), Err)
}

/// The columns that a plan gives.
pub(super) fn columns_of(plan: &LogicalPlan) -> Vec<Column> {
    plan.schema()
        .fields()
        .iter()
        .map(|field| Column {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            sql_type: arrow_to_sql(field),
            nullable: field.is_nullable(),
            default: None,
        })
        .collect()
}

/// The stream plan of an analyzed plan.
pub(super) fn streamed(plan: LogicalPlan, context: &BindContext) -> Result<StreamPlan, SqlError> {
    let plan = optimize::optimize(plan).map_err(|error| report::sql_error(error, None))?;
    crate::plan::lower(&plan, &context.catalog)
}

fn row_key(plan: &StreamPlan) -> RowKey {
    match &plan.root.properties.key {
        Some(key) => RowKey::Columns(key.clone()),
        None => RowKey::WholeRow,
    }
}

/// The plan with each row at the place of its key.
fn keyed(plan: StreamPlan, key: &RowKey) -> StreamPlan {
    let columns = key.columns(plan.root.schema.fields().len());
    with_output_distribution(plan, Distribution::Hash(columns))
}

/// The plan with each row held back until its window is closed.
fn emitted_on_close(plan: StreamPlan) -> Result<StreamPlan, SqlError> {
    let root = plan.root;
    let Some(time) = root.properties.watermarks.first().copied() else {
        return Err(SqlError::not_supported(
            "EMIT ON WINDOW CLOSE of a query without a watermark on its windows",
        )
        .hint(
            "Declare WATERMARK FOR on the source or append-only table, and put window_start, or another \
                 column that carries it, into GROUP BY and among the columns.",
        ));
    };
    let keyless = |field: &&arrow::datatypes::FieldRef| !crate::plan::key_type(field.data_type());
    if let Some(field) = root.schema.fields().iter().find(keyless) {
        let kind = crate::functions::type_name(field.data_type());
        let what = format!("EMIT ON WINDOW CLOSE of column \"{}\" of type {kind}", field.name());
        return Err(SqlError::not_supported(what).hint("Cast it to text."));
    }
    let schema = root.schema.clone();
    Ok(numbered(PlanNode::over(PlanOp::EmitOnClose { time }, vec![root], schema)))
}

/// The plan with all changes of a row at one place, so that they keep their order.
fn sink_distribution(plan: StreamPlan, primary_key: Option<&Key>) -> StreamPlan {
    match primary_key {
        Some(key) => with_output_distribution(plan, Distribution::Hash(key.clone())),
        None if plan.root.properties.append_only => plan,
        None => keyed(plan, &RowKey::WholeRow),
    }
}

/// The options that say what a sink's rows mean, whatever the connector.
struct SinkOptions {
    sink_type: Option<SinkType>,
    primary_key: Option<Vec<String>>,
    force_append_only: bool,
    snapshot: bool,
}

impl SinkOptions {
    fn take(options: &mut Options) -> Result<Self, SqlError> {
        let sink_type = match options.remove("type").as_deref() {
            None => None,
            Some("append-only") => Some(SinkType::AppendOnly),
            Some("upsert") => Some(SinkType::Upsert),
            Some("debezium") => Some(SinkType::Debezium),
            Some(other) => {
                return Err(invalid(format!("unknown sink type \"{other}\""))
                    .hint("Use type = 'append-only', 'upsert' or 'debezium'."));
            }
        };
        let primary_key = options.remove("primary_key").map(|list| {
            list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        });
        let force_append_only = take_bool(options, "force_append_only", false)?;
        let snapshot = take_bool(options, "snapshot", true)?;
        Ok(Self { sink_type, primary_key, force_append_only, snapshot })
    }

    /// What the rows mean and the target's key. Where no type is given, it follows from the rows.
    fn meaning(&self, plan: &StreamPlan, columns: &[Column]) -> Result<(SinkType, Option<Key>), SqlError> {
        let declared = match &self.primary_key {
            Some(names) => Some(key_of(names, columns)?),
            None => None,
        };
        let known = &plan.root.properties;
        let sink_type = match self.sink_type {
            Some(sink_type) => sink_type,
            None if known.append_only || self.force_append_only => SinkType::AppendOnly,
            None if declared.is_some() || known.key.as_ref().is_some_and(|k| !k.is_empty()) => {
                SinkType::Upsert
            }
            None => {
                return Err(invalid("missing option \"type\"").hint("Use type = 'append-only' or 'upsert'."));
            }
        };
        if sink_type == SinkType::AppendOnly {
            return Ok((sink_type, None));
        }
        if self.force_append_only {
            return Err(invalid("force_append_only is for type = 'append-only'"));
        }
        let inferred = || known.key.clone().filter(|k| self.sink_type.is_none() && !k.is_empty());
        match declared.or_else(inferred) {
            Some(key) => Ok((sink_type, Some(key))),
            None => Err(invalid("missing option \"primary_key\"")
                .hint("An upsert sink needs the target's key: primary_key = 'a, b'.")),
        }
    }
}

fn key_of(names: &[String], columns: &[Column]) -> Result<Key, SqlError> {
    let ordinal = |name: &String| {
        let unquoted = name.trim_matches('"');
        columns.iter().position(|c| c.name == *unquoted).ok_or_else(|| {
            let message = format!("column \"{unquoted}\" named in primary_key does not exist");
            let error = SqlError::new(SqlState::UNDEFINED_COLUMN, message);
            match super::names::nearest(unquoted, columns.iter().map(|c| c.name.as_str())) {
                Some(near) => error.hint(format!("Perhaps you meant the column \"{near}\".")),
                None => error,
            }
        })
    };
    let key = names.iter().map(ordinal).collect::<Result<Key, _>>()?;
    if key.is_empty() {
        return Err(invalid("option \"primary_key\" names no column"));
    }
    Ok(key)
}

/// Plans what is stored anew.
pub(super) fn replan(object: &Object, context: &BindContext) -> Result<StreamPlan, SqlError> {
    match &object.body {
        ObjectBody::MaterializedView(view) => {
            let names: Vec<String> = view.columns.iter().map(|c| c.name.clone()).collect();
            let plan = keyed(stored_plan(&view.query, &names, context)?, &view.key);
            if view.emit_on_close { emitted_on_close(plan) } else { Ok(plan) }
        }
        ObjectBody::Sink(sink) => {
            let plan = stored_plan(&sink.query, &[], context)?;
            Ok(sink_distribution(plan, sink.primary_key.as_ref()))
        }
        ObjectBody::Index(index) => match context.catalog.by_id(index.relation) {
            Some(relation) => super::ddl::index_plan(index, relation, context),
            None => Err(SqlError::new(SqlState::UNDEFINED_TABLE, "the index's relation does not exist")),
        },
        ObjectBody::Table(_) | ObjectBody::Source(_) | ObjectBody::View(_) => {
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("a {} has no plan", object.kind())))
        }
    }
}

fn stored_plan(text: &str, names: &[String], context: &BindContext) -> Result<StreamPlan, SqlError> {
    let planned = query::plan_query(&*parse_query(text)?, context, text)?;
    streamed(query::rename(planned.plan, names)?, context)
}
