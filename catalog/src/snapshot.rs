//! An immutable catalog at a version: what planning reads.

use crate::error::CatalogError;
use crate::id::ObjectId;
use crate::name::{DEFAULT_SCHEMA, ObjectName};
use crate::object::{Object, ObjectState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The catalog of one database at one version.
///
/// **Invariant:** `by_name` and `by_id` hold the same objects; names are unique over all kinds,
/// as PostgreSQL has it for relations.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogSnapshot {
    /// How many changes made it.
    pub version: u64,
    /// The id that the next CREATE takes.
    pub next_id: ObjectId,
    /// The schemas that exist.
    pub schemas: BTreeSet<String>,
    /// The database's own settings, as set by ALTER DATABASE … SET.
    pub settings: BTreeMap<String, String>,
    /// How often something got another name: what was planned by names before may mean another.
    pub renames: u64,
    /// The epoch of the checkpoint with which the newest RESTORE took the place of what was before; 0 if
    /// there was none. No older checkpoint belongs to this catalog.
    pub restored: u64,
    /// Where the savepoint is with which the database was stopped, if it was.
    pub stopped: Option<String>,
    by_id: BTreeMap<ObjectId, Arc<Object>>,
    by_name: HashMap<ObjectName, ObjectId>,
}

impl Default for CatalogSnapshot {
    fn default() -> Self {
        Self {
            version: 0,
            next_id: ObjectId::FIRST_USER,
            schemas: BTreeSet::from([DEFAULT_SCHEMA.to_owned()]),
            settings: BTreeMap::new(),
            renames: 0,
            restored: 0,
            stopped: None,
            by_id: BTreeMap::new(),
            by_name: HashMap::new(),
        }
    }
}

/// The serialized form of a snapshot: what the catalog's image holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatalogImage {
    version: u64,
    next_id: ObjectId,
    schemas: BTreeSet<String>,
    settings: BTreeMap<String, String>,
    objects: Vec<Object>,
    #[serde(default)]
    restored: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
}

impl CatalogSnapshot {
    /// The object of this name.
    pub fn get(&self, name: &ObjectName) -> Option<&Arc<Object>> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// The object of this id.
    pub fn by_id(&self, id: ObjectId) -> Option<&Arc<Object>> {
        self.by_id.get(&id)
    }

    /// All objects, in order of creation.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.by_id.values()
    }

    /// The serializable form.
    pub fn to_image(&self) -> CatalogImage {
        CatalogImage {
            version: self.version,
            next_id: self.next_id,
            schemas: self.schemas.clone(),
            settings: self.settings.clone(),
            objects: self.by_id.values().map(|o| (**o).clone()).collect(),
            restored: self.restored,
            stopped: self.stopped.clone(),
        }
    }

    /// The snapshot that `image` was made of.
    pub fn from_image(image: CatalogImage) -> Self {
        let mut snapshot = Self {
            version: image.version,
            next_id: image.next_id,
            schemas: image.schemas,
            settings: image.settings,
            restored: image.restored,
            stopped: image.stopped,
            ..Self::default()
        };
        for object in image.objects {
            snapshot.insert(Arc::new(object));
        }
        snapshot
    }

    /// The snapshot in which `image` has taken the place of this one, with the checkpoint of epoch
    /// `restored`. Versions and ids go on above both.
    pub(crate) fn replaced(&self, image: CatalogImage, restored: u64) -> Self {
        let mut next = Self::from_image(image);
        next.version = self.version + 1;
        next.next_id = next.next_id.max(self.next_id);
        next.renames = self.renames + 1;
        next.restored = restored;
        next.stopped = None;
        next
    }

    pub(crate) fn insert(&mut self, object: Arc<Object>) {
        self.by_name.insert(object.name.clone(), object.id);
        self.by_id.insert(object.id, object);
    }

    pub(crate) fn remove(&mut self, id: ObjectId) -> Result<Arc<Object>, CatalogError> {
        let object = self.by_id.remove(&id).ok_or(CatalogError::NoSuchId(id))?;
        self.by_name.remove(&object.name);
        Ok(object)
    }

    /// The snapshot in which those of `ids` that are created are filled anew.
    pub fn refilling(&self, ids: &BTreeSet<ObjectId>) -> CatalogSnapshot {
        let mut next = self.clone();
        let created = self.objects().filter(|o| o.state == ObjectState::Created && ids.contains(&o.id));
        for object in created {
            next.insert(Arc::new(Object { state: ObjectState::Filling, ..(**object).clone() }));
        }
        next
    }

    pub(crate) fn update(
        &mut self,
        id: ObjectId,
        change: impl FnOnce(&mut Object),
    ) -> Result<(), CatalogError> {
        let mut object = Arc::unwrap_or_clone(self.remove(id)?);
        change(&mut object);
        self.insert(Arc::new(object));
        Ok(())
    }

    pub(crate) fn require_free(&self, name: &ObjectName) -> Result<(), CatalogError> {
        match self.get(name) {
            Some(object) => Err(CatalogError::NameTaken { kind: object.kind(), name: name.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn require_schema(&self, schema: &str) -> Result<(), CatalogError> {
        if self.schemas.contains(schema) {
            Ok(())
        } else {
            Err(CatalogError::NoSuchSchema(schema.to_owned()))
        }
    }
}
