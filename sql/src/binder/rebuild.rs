//! ALTER SINK … REBUILD: the sink as it was declared, under a number of its own, that empties its
//! target before its first rows.

use super::{BindContext, Bound, Create, object_of};
use crate::error::SqlError;
use weir_catalog::{Object, ObjectBody, ObjectKind, ObjectName, ObjectState, SqlState};

/// Plans what takes the sink's place.
pub(super) fn rebuild_sink(name: &ObjectName, context: &BindContext) -> Result<Bound, SqlError> {
    let object = object_of(ObjectKind::Sink, name, "ALTER", context)?;
    if object.state.is_filling() {
        let message = format!("sink \"{}\" is still being created", object.name.name);
        return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    }
    let ObjectBody::Sink(sink) = &object.body else {
        return Err(SqlError::new(SqlState::INTERNAL_ERROR, "a sink is not a sink"));
    };
    let spec = context.connectors.iter().find(|spec| spec.name == sink.connector && spec.empties_target);
    if spec.is_none() {
        let what = format!("REBUILD of a sink with connector \"{}\"", sink.connector);
        return Err(SqlError::not_supported(what)
            .hint("Drop it, and create it again with a target of which nothing is there yet."));
    }
    if !sink.snapshot {
        return Err(SqlError::not_supported("REBUILD of a sink without a snapshot")
            .hint("It was created with snapshot = false: its target would stay empty."));
    }
    let mut sink = sink.clone();
    sink.replaces = Some(object.id);
    let again = Object {
        id: context.catalog.next_id,
        state: ObjectState::Filling,
        body: ObjectBody::Sink(sink),
        ..(**object).clone()
    };
    let plan = super::view::replan(object, context)?;
    Ok(Bound::Create(Create {
        object: again,
        plan: Some(plan),
        tag: "ALTER SINK".to_owned(),
        notices: Vec::new(),
        renames: context.catalog.renames,
    }))
}
