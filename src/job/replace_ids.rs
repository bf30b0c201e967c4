//! Which object of a savepoint is which of the catalog that its state goes to.
//!
//! With the savepoint's own catalog each is itself. With the definitions of now it is the one of the same
//! kind and id, in the database that made the savepoint, or else of the same kind and name.

use std::collections::BTreeMap;
use weir_catalog::{CatalogSnapshot, Object, ObjectBody, ObjectId, TableId};

/// Pairs of ids: in the savepoint, and now.
#[derive(Clone, Debug, Default)]
pub struct Ids {
    now: BTreeMap<ObjectId, ObjectId>,
    saved: BTreeMap<ObjectId, ObjectId>,
}

impl Ids {
    /// Each object is itself.
    pub fn same(catalog: &CatalogSnapshot) -> Self {
        Self::of(catalog.objects().map(|object| (object.id, object.id)))
    }

    /// The objects of `saved` that are those of `now`; by their ids, too, if both are of one database (`own`).
    pub fn between(saved: &CatalogSnapshot, now: &CatalogSnapshot, own: bool) -> Self {
        Self::of(now.objects().filter_map(|object| {
            let by_id = saved.by_id(object.id).filter(|_| own);
            // The target of a sink knows it by its id.
            let by_name = saved.get(&object.name).filter(|_| !matches!(object.body, ObjectBody::Sink(_)));
            let same = [by_id, by_name].into_iter().flatten().find(|o| o.kind() == object.kind())?;
            Some((same.id, object.id))
        }))
    }

    fn of(pairs: impl Iterator<Item = (ObjectId, ObjectId)>) -> Self {
        let mut ids = Self::default();
        for (saved, now) in pairs {
            ids.now.insert(saved, now);
            ids.saved.insert(now, saved);
        }
        ids
    }

    /// What an object of the savepoint is called now. What is built in is always there.
    pub fn now(&self, saved: ObjectId) -> Option<ObjectId> {
        if saved < ObjectId::FIRST_USER { Some(saved) } else { self.now.get(&saved).copied() }
    }

    /// What an object of now is called in the savepoint.
    pub fn saved(&self, now: ObjectId) -> Option<ObjectId> {
        if now < ObjectId::FIRST_USER { Some(now) } else { self.saved.get(&now).copied() }
    }

    /// What a table of the savepoint, whose object is called `now`, is called.
    pub fn table(saved: TableId, now: ObjectId) -> TableId {
        if saved.is_internal() { now.internal_table((saved.0 & 0xff) as u8) } else { now.table() }
    }

    /// Whether the rows of both lie alike: what they are called does not count.
    pub fn same_rows(&self, saved: &Object, now: &Object) -> bool {
        let same_types = saved.columns().len() == now.columns().len()
            && saved.columns().iter().zip(now.columns()).all(|(a, b)| a.data_type == b.data_type);
        same_types
            && match (&saved.body, &now.body) {
                (ObjectBody::Table(a), ObjectBody::Table(b)) => {
                    (&a.key, a.append_only, &a.watermark) == (&b.key, b.append_only, &b.watermark)
                }
                (ObjectBody::MaterializedView(a), ObjectBody::MaterializedView(b)) => {
                    (&a.key, a.append_only, a.emit_on_close) == (&b.key, b.append_only, b.emit_on_close)
                }
                (ObjectBody::Index(a), ObjectBody::Index(b)) => {
                    let relation = self.now(a.relation) == Some(b.relation);
                    relation && (&a.columns, &a.include) == (&b.columns, &b.include)
                }
                (ObjectBody::Sink(a), ObjectBody::Sink(b)) => {
                    (a.sink_type, &a.primary_key) == (b.sink_type, &b.primary_key)
                }
                _ => false,
            }
    }
}
