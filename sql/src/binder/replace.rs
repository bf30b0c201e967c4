//! CREATE OR REPLACE VIEW of a view that exists: the same columns, perhaps more, from another query.

use super::names::{not_a, plain};
use super::view::{columns_of, stored_query};
use super::{BindContext, Bound, query};
use crate::error::SqlError;
use crate::parser::statement::CreateView;
use std::sync::Arc;
use weir_catalog::relation::View;
use weir_catalog::{CatalogChange, Column, Object, ObjectBody, ObjectKind, SqlState};

/// Plans the view's new query.
pub(super) fn replace_view(
    object: &Arc<Object>,
    view: &CreateView,
    context: &BindContext,
    text: &str,
) -> Result<Bound, SqlError> {
    let ObjectBody::View(old) = &object.body else {
        return Err(not_a(object, ObjectKind::View, "DROP"));
    };
    let (planned, inputs) = stored_query(&view.query, &view.query_text, context, text)?;
    if inputs.contains(&object.id) {
        let message = format!("infinite recursion detected in rules for relation \"{}\"", object.name.name);
        return Err(SqlError::new(SqlState("42P17"), message));
    }
    let columns = columns_of(&query::rename(planned, &view.columns)?);
    check_columns(&old.columns, &columns)?;
    refuse_readers(object, columns.len() > old.columns.len(), context)?;
    let body = View { columns, query: view.query_text.clone(), inputs };
    Ok(Bound::Change {
        changes: vec![CatalogChange::Redefine(object.id, body, text.to_owned())],
        tag: "CREATE VIEW".to_owned(),
        notices: Vec::new(),
    })
}

/// The old columns must all be there first, as they were.
fn check_columns(old: &[Column], new: &[Column]) -> Result<(), SqlError> {
    let invalid = |message: String| Err(SqlError::new(SqlState("42P16"), message));
    if new.len() < old.len() {
        return invalid("cannot drop columns from view".to_owned());
    }
    for (old, new) in old.iter().zip(new) {
        if old.name != new.name {
            return invalid(format!(
                "cannot change name of view column \"{}\" to \"{}\"",
                old.name, new.name
            ));
        }
        if old.sql_type != new.sql_type {
            return invalid(format!(
                "cannot change data type of view column \"{}\" from {} to {}",
                old.name, old.sql_type, new.sql_type
            ));
        }
    }
    Ok(())
}

/// What reads the view was planned with its old query: jobs go on with it, and `*` of other views
/// has its old columns.
fn refuse_readers(object: &Object, wider: bool, context: &BindContext) -> Result<(), SqlError> {
    let readers = context.catalog.cascade(object.id).into_iter().filter(|id| *id != object.id);
    for reader in readers.filter_map(|id| context.catalog.by_id(id)) {
        if reader.has_job() || wider {
            let name = plain(&object.name);
            let what = format!(
                "CREATE OR REPLACE VIEW {name} while {} {} reads it",
                reader.kind(),
                reader.name.name
            );
            return Err(
                SqlError::not_supported(what).hint("Drop the reader first, and create it again after.")
            );
        }
    }
    Ok(())
}
