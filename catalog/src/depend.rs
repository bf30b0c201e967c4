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
        let mut found = vec![id];
        let mut next = 0;
        while next < found.len() {
            for reader in self.dependants(found[next]) {
                found.retain(|f| *f != reader.id);
                found.push(reader.id);
            }
            next += 1;
        }
        // An object is created after what it reads, so descending ids put readers first.
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }
}
