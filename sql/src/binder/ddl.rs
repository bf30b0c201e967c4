//! Indexes, schemas, and the changes of what exists: DROP, COMMENT ON, ALTER … SET PARALLELISM,
//! ALTER DATABASE.

use super::create::{check_key_types, created, existing, new_name};
use super::names::{missing, nearest, plain};
use super::{BindContext, Bound, object_of, query, view};
use crate::error::SqlError;
use crate::parser::statement::CreateIndex;
use crate::plan::{Distribution, StreamPlan};
use crate::rewrite::exchange::with_output_distribution;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_catalog::relation::{Index, RowKey};
use weir_catalog::{
    CatalogChange, Column, Object, ObjectBody, ObjectId, ObjectKind, ObjectName, ObjectState, SqlState,
};

pub(super) fn create_index(
    create: &CreateIndex,
    context: &BindContext,
    text: &str,
) -> Result<Bound, SqlError> {
    const TAG: &str = "CREATE INDEX";
    let Some(relation) = context.resolve(&create.relation) else {
        return Err(super::names::not_found(context, &plain(&create.relation), &create.relation.name));
    };
    if !matches!(relation.kind(), ObjectKind::Table | ObjectKind::MaterializedView) {
        return Err(super::names::wrong_kind(
            relation,
            "create an index on",
            "Only tables and materialized views can be indexed.",
        ));
    }
    let schema = relation.name.schema.clone();
    let name = match &create.name {
        Some(name) => ObjectName::new(schema, name.as_str()),
        None => free_index_name(relation, create, context),
    };
    let name = new_name(&name, context)?;
    if let Some(skip) = existing(&name, create.if_not_exists, TAG, context)? {
        return Ok(skip);
    }
    let mut columns = Vec::new();
    for (column, descending) in &create.columns {
        let ordinal = ordinal_of(column, relation)?;
        if columns.iter().any(|(o, _)| *o == ordinal) {
            let message = format!("column \"{column}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        columns.push((ordinal, *descending));
    }
    let include = create.include.iter().map(|c| ordinal_of(c, relation)).collect::<Result<Vec<_>, _>>()?;
    let keyed = RowKey::Columns(columns.iter().map(|(c, _)| *c).collect());
    check_key_types(&keyed, relation.columns())?;
    let index = Index { relation: relation.id, columns, include };
    let plan = index_plan(&index, relation, context)?;
    let bound = created(name, ObjectBody::Index(index), ObjectState::Creating, TAG, text, context);
    Ok(view::with_plan(bound, plan, Vec::new()))
}

/// The whole rows of the relation; what of them is stored, and in which order, is the layout's.
/// They are spread by the indexed columns.
pub(super) fn index_plan(
    index: &Index,
    relation: &Arc<Object>,
    context: &BindContext,
) -> Result<StreamPlan, SqlError> {
    let plan = view::streamed(query::scan(relation, &relation.name.name)?, context)?;
    let columns = index.columns.iter().map(|(column, _)| *column).collect();
    Ok(with_output_distribution(plan, Distribution::Hash(columns)))
}

pub(super) fn ordinal_of(column: &str, relation: &Object) -> Result<usize, SqlError> {
    let columns: &[Column] = relation.columns();
    columns.iter().position(|c| c.name == column).ok_or_else(|| {
        let error = SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{column}\" does not exist"));
        match nearest(column, columns.iter().map(|c| c.name.as_str())) {
            Some(near) => error.hint(format!("Perhaps you meant the column \"{near}\".")),
            None => error,
        }
    })
}

/// `t_a_b_idx`, with a number if that is taken.
fn free_index_name(relation: &Object, create: &CreateIndex, context: &BindContext) -> ObjectName {
    let columns: Vec<&str> = create.columns.iter().map(|(c, _)| c.as_str()).collect();
    let base = format!("{}_{}_idx", relation.name.name, columns.join("_"));
    let named = |n: usize| if n == 0 { base.clone() } else { format!("{base}{n}") };
    let mut number = 0;
    while context.catalog.get(&ObjectName::new(relation.name.schema.as_str(), named(number))).is_some() {
        number += 1;
    }
    ObjectName::new(relation.name.schema.as_str(), named(number))
}

pub(super) fn create_schema(
    name: &str,
    if_not_exists: bool,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let tag = "CREATE SCHEMA".to_owned();
    if context.catalog.schemas.contains(name) {
        let message = format!("schema \"{name}\" already exists");
        return match if_not_exists {
            true => Ok(Bound::Skip { tag, notice: format!("{message}, skipping") }),
            false => Err(SqlError::new(SqlState::DUPLICATE_SCHEMA, message)),
        };
    }
    if name.starts_with("pg_") || name == "information_schema" || name == "weir_catalog" {
        return Err(SqlError::new(SqlState("42939"), format!("unacceptable schema name \"{name}\""))
            .detail("The prefix \"pg_\" and the names of system schemas are reserved."));
    }
    Ok(change(vec![CatalogChange::CreateSchema(name.to_owned())], &tag, Vec::new()))
}

pub(super) fn drop_schema(name: &str, if_exists: bool, context: &BindContext) -> Result<Bound, SqlError> {
    const TAG: &str = "DROP SCHEMA";
    if !context.catalog.schemas.contains(name) {
        let message = format!("schema \"{name}\" does not exist");
        return match if_exists {
            true => Ok(change(Vec::new(), TAG, vec![format!("{message}, skipping")])),
            false => Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, message)),
        };
    }
    let inside: Vec<String> = context
        .catalog
        .objects()
        .filter(|o| o.name.schema == name)
        .map(|o| format!("{} {} is in schema {name}", o.kind(), plain(&o.name)))
        .collect();
    if !inside.is_empty() {
        let message = format!("cannot drop schema {name} because it is not empty");
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS_STILL_EXIST, message)
            .detail(inside.join("\n"))
            .hint("Drop its objects first."));
    }
    Ok(change(vec![CatalogChange::DropSchema(name.to_owned())], TAG, Vec::new()))
}

/// DROP of several objects of a kind. Their indexes go with them; what else reads them goes with
/// CASCADE or is named in the refusal.
pub(super) fn drop(
    kind: ObjectKind,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let mut notices = Vec::new();
    let mut named = BTreeSet::new();
    for name in names {
        if if_exists && context.resolve(name).is_none() {
            notices.push(format!("{}, skipping", missing(kind, name)));
            continue;
        }
        let verb = "DROP";
        named.insert(object_of(kind, name, verb, context)?.id);
    }
    let mut dropped: BTreeSet<ObjectId> = named.clone();
    let mut others = Vec::new();
    for id in &named {
        for reader in context.catalog.cascade(*id) {
            let Some(reader) = context.catalog.by_id(reader) else { continue };
            if dropped.insert(reader.id) && reader.kind() != ObjectKind::Index {
                others.push(Arc::clone(reader));
            }
        }
    }
    others.sort_by_key(|o| o.id);
    if !others.is_empty() && !cascade {
        return Err(still_read(kind, &named, &others, context));
    }
    match others.as_slice() {
        [] => {}
        [one] => notices.push(format!("drop cascades to {} {}", one.kind(), plain(&one.name))),
        many => notices.push(format!("drop cascades to {} other objects", many.len())),
    }
    let changes = readers_first(dropped, context).into_iter().map(CatalogChange::Drop).collect();
    Ok(change(changes, &format!("DROP {}", kind.to_string().to_uppercase()), notices))
}

/// These objects, each after those that read it. Mostly that is by descending number, but a view that
/// was replaced may read what is younger than itself.
fn readers_first(mut objects: BTreeSet<ObjectId>, context: &BindContext) -> Vec<ObjectId> {
    let inputs_of = |id: ObjectId| context.catalog.by_id(id).map(|o| o.inputs()).into_iter().flatten();
    let mut order = Vec::with_capacity(objects.len());
    while let Some(newest) = objects.last().copied() {
        let read: BTreeSet<ObjectId> = objects.iter().flat_map(|id| inputs_of(*id)).collect();
        let next = objects.iter().rev().find(|id| !read.contains(id)).copied().unwrap_or(newest);
        objects.remove(&next);
        order.push(next);
    }
    order
}

/// `cannot drop table t because other objects depend on it`, and which.
fn still_read(
    kind: ObjectKind,
    named: &BTreeSet<ObjectId>,
    others: &[Arc<Object>],
    context: &BindContext,
) -> SqlError {
    let label = |object: &Object| format!("{} {}", object.kind(), plain(&object.name));
    let mut lines = Vec::new();
    for reader in others {
        for input in reader.inputs() {
            let is_gone = named.contains(&input) || others.iter().any(|o| o.id == input);
            if let Some(input) = context.catalog.by_id(input).filter(|_| is_gone) {
                lines.push(format!("{} depends on {}", label(reader), label(input)));
            }
        }
    }
    let what = match named.len() {
        1 => named
            .first()
            .and_then(|id| context.catalog.by_id(*id))
            .map_or_else(|| kind.to_string(), |o| label(o)),
        _ => "desired object(s)".to_owned(),
    };
    let whose = if named.len() == 1 { "it" } else { "them" };
    SqlError::new(
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("cannot drop {what} because other objects depend on {whose}"),
    )
    .detail(lines.join("\n"))
    .hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

pub(super) fn comment(
    kind: ObjectKind,
    name: &ObjectName,
    text: Option<String>,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let object = object_of(kind, name, "COMMENT ON", context)?;
    let text = text.filter(|text| !text.is_empty());
    Ok(change(vec![CatalogChange::Comment(object.id, text)], "COMMENT", Vec::new()))
}

/// ALTER … SET PARALLELISM. A source has actors of its own, as every job has.
pub(super) fn set_parallelism(
    kind: ObjectKind,
    name: &ObjectName,
    parallelism: Option<u16>,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let object = object_of(kind, name, "ALTER", context)?;
    if kind == ObjectKind::View {
        let message = format!("view \"{}\" has no dataflow of its own", object.name.name);
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
            .hint("Set the parallelism of the materialized views and sinks that read it."));
    }
    let changes = vec![CatalogChange::Parallelism(object.id, parallelism)];
    Ok(change(changes, &format!("ALTER {}", kind.to_string().to_uppercase()), Vec::new()))
}

/// `parallelism = ADAPTIVE` is as many as there are cores: zero.
pub(super) fn alter_database(setting: &str, value: Option<&str>) -> Bound {
    let adaptive = setting == "parallelism" && value.is_some_and(|v| v.eq_ignore_ascii_case("adaptive"));
    let value = if adaptive { Some("0") } else { value };
    let set = CatalogChange::Set(setting.to_owned(), value.map(str::to_owned));
    change(vec![set], "ALTER DATABASE", Vec::new())
}

pub(super) fn change(changes: Vec<CatalogChange>, tag: &str, notices: Vec<String>) -> Bound {
    Bound::Change { changes, tag: tag.to_owned(), notices }
}
