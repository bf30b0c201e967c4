//! Who depends on whom: what DROP RESTRICT names and DROP CASCADE takes along.

use crate::id::ObjectId;
use crate::object::Object;
use crate::snapshot::CatalogSnapshot;
use std::sync::Arc;

impl CatalogSnapshot {
    /// The objects that read `id` directly, in order of creation.
    pub fn dependants(&self, id: ObjectId) -> Vec<Arc<Object>> {
        self.objects().filter(|o| o.inputs().contains(&id)).cloned().collect()
    }

    /// `id` and everything that reads it, directly or not, readers before what they read:
    /// the order to drop in.
    pub fn cascade(&self, id: ObjectId) -> Vec<ObjectId> {
        let mut order = Vec::new();
        self.readers_first(id, &mut order);
        order
    }

    /// Adds `id` behind all that reads it. A view that was redefined may be older than what it reads.
    fn readers_first(&self, id: ObjectId, order: &mut Vec<ObjectId>) {
        if order.contains(&id) {
            return;
        }
        for reader in self.dependants(id).iter().rev() {
            self.readers_first(reader.id, order);
        }
        order.push(id);
    }
}
