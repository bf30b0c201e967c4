//! ALTER … RENAME: of relations, and of their columns. Who reads them goes on reading them.

use super::ddl::{change, ordinal_of};
use super::names::plain;
use super::restate::{Renamed, with_readers};
use super::{BindContext, Bound, definition, object_of};
use crate::error::SqlError;
use std::sync::Arc;
use weir_catalog::{CatalogChange, Object, ObjectKind, ObjectName, SqlState};

/// ALTER kind name RENAME TO to.
pub(super) fn rename(
    kind: ObjectKind,
    name: &ObjectName,
    to: &str,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let object = renamed_object(kind, name, context)?;
    let new = ObjectName::new(object.name.schema.as_str(), to);
    if context.catalog.get(&new).is_some() {
        return Err(SqlError::new(
            SqlState::DUPLICATE_TABLE,
            format!("relation \"{}\" already exists", plain(&new)),
        ));
    }
    let defined = CatalogChange::Define(object.id, definition::with_name(object, &new));
    let mut changes = with_readers(
        Renamed { object, change: CatalogChange::Rename(object.id, new.clone()), name: new, column: None },
        context,
    )?;
    changes.push(defined);
    Ok(change(changes, &tag(kind), Vec::new()))
}

/// ALTER kind name RENAME COLUMN column TO to.
pub(super) fn rename_column(
    kind: ObjectKind,
    name: &ObjectName,
    column: &str,
    to: &str,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let object = renamed_object(kind, name, context)?;
    if !matches!(kind, ObjectKind::Table | ObjectKind::MaterializedView | ObjectKind::View) {
        let what = format!("RENAME COLUMN of a {kind}");
        return Err(SqlError::not_supported(what).hint("Its columns are what the outside calls them."));
    }
    let ordinal = ordinal_of(column, object)?;
    if object.columns().iter().any(|c| c.name == to) {
        let message = format!("column \"{to}\" of relation \"{}\" already exists", plain(&object.name));
        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
    }
    let renamed = CatalogChange::RenameColumn(object.id, ordinal, to.to_owned());
    let mut changes = with_readers(
        Renamed { object, change: renamed, name: object.name.clone(), column: Some(ordinal) },
        context,
    )?;
    let mut after = (**object).clone();
    after.rename_column(ordinal, to);
    if let Some(text) = definition::of(&after) {
        changes.push(CatalogChange::Define(object.id, text));
    }
    Ok(change(changes, &tag(kind), Vec::new()))
}

fn renamed_object<'a>(
    kind: ObjectKind,
    name: &ObjectName,
    context: &'a BindContext,
) -> Result<&'a Arc<Object>, SqlError> {
    // PostgreSQL's ALTER TABLE renames views, too.
    let kind = match context.resolve(name) {
        Some(object) if kind == ObjectKind::Table && object.kind() != ObjectKind::Sink => object.kind(),
        _ => kind,
    };
    let object = object_of(kind, name, "ALTER", context)?;
    let readers = context.catalog.dependants(object.id);
    match readers.iter().chain([object]).find(|o| o.state.is_filling()) {
        Some(filling) => {
            let message = format!("{} \"{}\" is still being created", filling.kind(), plain(&filling.name));
            Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
        }
        None => Ok(object),
    }
}

fn tag(kind: ObjectKind) -> String {
    format!("ALTER {}", kind.to_string().to_uppercase())
}
