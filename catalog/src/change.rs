//! `CatalogChange`, the only verb, and what each change must satisfy.

use crate::error::CatalogError;
use crate::id::ObjectId;
use crate::name::ObjectName;
use crate::object::{Object, ObjectBody, ObjectState};
use crate::relation::View;
use crate::snapshot::{CatalogImage, CatalogSnapshot};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One change to the catalog. Applied to a snapshot it gives the next one.
#[allow(clippy::large_enum_variant, reason = "changes are few and short-lived")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CatalogChange {
    /// Adds an object. Its id must be [`CatalogSnapshot::next_id`], its name free.
    Create(Object),
    /// Marks an object as acknowledged.
    Created(ObjectId),
    /// An object that was acknowledged lacks its state: it fills anew, and nobody reads it meanwhile.
    Refill(ObjectId),
    /// Removes an object. Nothing may read it: dependants go first, in their own changes.
    Drop(ObjectId),
    /// Gives an object another name.
    Rename(ObjectId, ObjectName),
    /// Gives the column at an ordinal of a table or view another name.
    RenameColumn(ObjectId, usize, String),
    /// Gives a view or sink another text of the same query, and with it the definition.
    Restate(ObjectId, String, String),
    /// Gives an object another text of what made it.
    Define(ObjectId, String),
    /// Gives a plain view another query, and with it the definition.
    Redefine(ObjectId, View, String),
    /// Gives an object's job this many actors a fragment, or with `None` as many as the database says.
    Parallelism(ObjectId, Option<u16>),
    /// Sets or clears a comment.
    Comment(ObjectId, Option<String>),
    /// A sink's job ends; what it logged is still delivered.
    Pause(ObjectId),
    /// Makes a schema.
    CreateSchema(String),
    /// Removes an empty schema.
    DropSchema(String),
    /// Sets (or with `None` resets) a setting of the database.
    Set(String, Option<String>),
    /// Another catalog takes the place of this one, with the checkpoint of this epoch.
    Restore(Box<CatalogImage>, u64),
    /// The dataflow is stopped, its state in the savepoint at this URL; `None`: it goes on.
    Stop(Option<String>),
}

impl CatalogSnapshot {
    /// The snapshot after `change`. The version grows by one. Errors leave `self` as it was.
    pub fn apply(&self, change: &CatalogChange) -> Result<CatalogSnapshot, CatalogError> {
        let mut next = self.clone();
        next.version += 1;
        match change {
            CatalogChange::Create(object) => {
                if object.id != self.next_id {
                    return Err(CatalogError::IdOutOfOrder { id: object.id, expected: self.next_id });
                }
                self.require_free(&object.name)?;
                self.require_schema(&object.name.schema)?;
                next.next_id = ObjectId(object.id.0 + 1);
                next.insert(Arc::new(object.clone()));
            }
            CatalogChange::Created(id) => {
                next.update(*id, |o| o.state = ObjectState::Created)?;
            }
            CatalogChange::Refill(id) => {
                next.update(*id, |o| o.state = ObjectState::Filling)?;
            }
            CatalogChange::Pause(id) => {
                next.update(*id, |o| o.state = ObjectState::Paused)?;
            }
            CatalogChange::Drop(id) => {
                let readers = self.dependants(*id);
                if let Some(reader) = readers.first() {
                    return Err(CatalogError::StillRead { id: *id, reader: reader.id });
                }
                next.remove(*id)?;
            }
            CatalogChange::Rename(id, name) => {
                self.require_free(name)?;
                self.require_schema(&name.schema)?;
                let name = name.clone();
                next.renames += 1;
                next.update(*id, |o| o.name = name)?;
            }
            CatalogChange::RenameColumn(..)
            | CatalogChange::Restate(..)
            | CatalogChange::Define(..)
            | CatalogChange::Redefine(..)
            | CatalogChange::Parallelism(..)
            | CatalogChange::Comment(..) => next.alter(change)?,
            CatalogChange::CreateSchema(schema) => {
                if !next.schemas.insert(schema.clone()) {
                    return Err(CatalogError::SchemaExists(schema.clone()));
                }
            }
            CatalogChange::DropSchema(schema) => {
                self.require_schema(schema)?;
                if self.objects().any(|o| o.name.schema == *schema) {
                    return Err(CatalogError::SchemaNotEmpty(schema.clone()));
                }
                next.schemas.remove(schema);
            }
            CatalogChange::Set(name, value) => {
                match value {
                    Some(value) => next.settings.insert(name.clone(), value.clone()),
                    None => next.settings.remove(name),
                };
            }
            CatalogChange::Restore(image, epoch) => next = self.replaced((**image).clone(), *epoch),
            CatalogChange::Stop(savepoint) => next.stopped.clone_from(savepoint),
        }
        Ok(next)
    }

    /// Changes what is said of an object that stays what it is.
    fn alter(&mut self, change: &CatalogChange) -> Result<(), CatalogError> {
        match change {
            CatalogChange::RenameColumn(id, ordinal, name) => {
                self.renames += 1;
                self.update(*id, |o| o.rename_column(*ordinal, name))?;
            }
            CatalogChange::Restate(id, query, definition) => {
                self.update(*id, |o| {
                    o.restate(query);
                    o.definition.clone_from(definition);
                })?;
            }
            CatalogChange::Define(id, definition) => {
                self.update(*id, |o| o.definition.clone_from(definition))?;
            }
            CatalogChange::Redefine(id, view, definition) => {
                let (view, definition) = (view.clone(), definition.clone());
                self.update(*id, |o| {
                    o.body = ObjectBody::View(view);
                    o.definition = definition;
                })?;
            }
            CatalogChange::Parallelism(id, parallelism) => {
                self.update(*id, |o| o.parallelism = *parallelism)?;
            }
            CatalogChange::Comment(id, comment) => {
                let comment = comment.clone();
                self.update(*id, |o| o.comment = comment)?;
            }
            _ => {}
        }
        Ok(())
    }
}
