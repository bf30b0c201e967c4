//! What clients do, what settles when nothing fails, and what must hold then.

use super::*;

/// Rounds in which everything goes on a little, after which nothing may wait for anything.
const ROUNDS_MAX: usize = 20_000;

impl Simulation {
    /// A transaction, on the newest rows.
    pub fn write(&mut self) {
        let Some(db) = self.db() else { return };
        self.clients.hear();
        let change = model::transaction(&mut self.random, &self.clients.now);
        let catalog = db.catalog();
        let mut changes = Vec::new();
        for ((name, ..), rows) in model::TABLES.iter().zip(&change) {
            let Some(table) = catalog.get(&ObjectName::public(*name)).filter(|_| !rows.is_empty()) else {
                continue;
            };
            let schema = weir_catalog::column::arrow_schema(table.columns());
            let (keys, diffs): (Vec<_>, Vec<_>) = rows.iter().map(|(row, diff)| (row, *diff)).unzip();
            changes.push((table.id, ChangeBatch::new(model::batch(schema, &keys), diffs)));
        }
        let (_, basis) = db.dml().newest(u64::MAX);
        let known = self.clients.logged.len() + self.clients.queued.len();
        assert_eq!(basis.position as usize, known, "what is logged or queued");
        match db.dml().begin(changes, Some(basis)) {
            Ok(None) => {}
            Ok(Some(appending)) => {
                model::apply(&mut self.clients.now, &change);
                self.trace.say(format!("transaction {}: {change:?}", known + 1));
                self.clients.queued.push((change, appending.durable().boxed()));
            }
            Err(error) => self.trace.say(format!("a transaction is refused: {error}")),
        }
    }

    /// Creates or drops a view.
    pub fn change_catalog(&mut self) {
        self.hear_ddl();
        if self.clients.ddl.is_some() || self.db().is_none() {
            return;
        }
        let views: Vec<String> =
            self.clients.objects.keys().filter(|n| n.starts_with('v')).cloned().collect();
        if views.len() > 3 || (!views.is_empty() && self.random.random_ratio(1, 3)) {
            let name = views[self.random.random_range(0..views.len())].clone();
            self.drop_view(&name);
        } else {
            let (query, name) = (self.query(), self.name("v"));
            self.create(&name, &format!("CREATE MATERIALIZED VIEW {name} AS {query}"), Some(query));
        }
    }

    pub fn query(&mut self) -> String {
        let Some(db) = self.db() else { return model::query(&mut self.random, &[]) };
        let catalog = db.catalog();
        let columns = |name: &String| {
            let object = catalog.get(&ObjectName::public(&**name))?;
            let views = object.kind() == ObjectKind::MaterializedView && object.state == ObjectState::Created;
            views.then(|| (name.clone(), object.columns().iter().map(|c| c.name.clone()).collect()))
        };
        let views: Vec<_> = self.clients.objects.keys().filter_map(columns).collect();
        model::query(&mut self.random, &views)
    }

    fn create(&mut self, name: &str, sql: &str, query: Option<String>) {
        let (Some(db), Some(server)) = (self.db(), &self.server) else { return };
        match Oracle::get().bind(sql, &db.catalog()) {
            Ok(Bound::Create(create)) => {
                let done = server.runtime.spawn(async move { db.create(create).await });
                self.clients.ddl = Some(Ddl { name: name.to_owned(), query, drops: false, done });
                self.trace.say(sql.to_owned());
            }
            Ok(other) => panic!("{sql}: {other:?}"),
            // A view that it reads is just being dropped.
            Err(error) => self.trace.say(format!("not created: {error}")),
        }
    }

    fn drop_view(&mut self, name: &str) {
        let (Some(db), Some(server)) = (self.db(), &self.server) else { return };
        let catalog = db.catalog();
        let sql = format!("DROP MATERIALIZED VIEW {name}");
        match Oracle::get().bind(&sql, &catalog) {
            Ok(Bound::Change { changes, .. }) => {
                let version = catalog.version;
                let done = server.runtime.spawn(async move { db.change(changes, version).await.map(drop) });
                let query = self.clients.objects[name].clone();
                self.clients.ddl = Some(Ddl { name: name.to_owned(), query, drops: true, done });
                self.trace.say(sql);
            }
            // Another view reads it.
            other => self.trace.say(format!("not dropped: {}", other.err().unwrap_or_default())),
        }
    }

    /// Hears what became of a statement.
    pub fn hear_ddl(&mut self) {
        let (Some(server), Some(db)) = (&self.server, self.db()) else { return };
        let Some(ddl) = self.clients.ddl.take_if(|ddl| ddl.done.is_finished()) else { return };
        let outcome = server.runtime.block_on(ddl.done);
        let outcome = outcome.unwrap_or_else(|e| Err(JobError::internal(e.to_string())));
        self.trace.say(format!("{}: {outcome:?}", ddl.name));
        let there = db.catalog().get(&ObjectName::public(&*ddl.name)).map(|o| o.state);
        match (outcome, ddl.drops) {
            (Ok(()), false) => {
                assert_eq!(there, Some(ObjectState::Created), "{} is acknowledged", ddl.name);
                self.clients.objects.insert(ddl.name, ddl.query);
            }
            (Ok(()), true) => {
                assert_eq!(there, None, "{} is dropped", ddl.name);
                self.clients.objects.remove(&ddl.name);
            }
            (Err(_), false) => {
                assert_ne!(there, Some(ObjectState::Created), "{} failed, and is there", ddl.name);
            }
            // Its record may be there while its job could not be ended.
            (Err(_), true) if there.is_none() => drop(self.clients.objects.remove(&ddl.name)),
            (Err(_), true) => {}
        }
    }

    pub fn ask_for_checkpoint(&mut self) {
        if let (Some(db), Some(server)) = (self.db(), &self.server) {
            drop(server.runtime.spawn(async move { db.checkpoint().await }));
        }
    }

    pub fn recover(&mut self) {
        if let (Some(db), Some(server)) = (self.db(), &self.server) {
            self.trace.say("RECOVER".into());
            drop(server.runtime.spawn(async move { db.recover().await }));
        }
    }

    /// What is visible only goes on.
    pub fn look(&mut self) {
        let Some(db) = self.db() else { return };
        let visible = db.visible();
        let now = (visible.epoch, visible.dml_position);
        if now.0 != self.visible.0 {
            assert!(now.0 > self.newest, "epoch {} is visible after {}", now.0, self.newest);
            // What was acknowledged by the process before as well.
            let at_least = self.visible.1;
            assert!(now.1 >= at_least, "position {} is visible after {at_least}", now.1);
            self.trace.count(now.0.0 * 31 + now.1);
            (self.visible, self.newest) = (now, now.0);
        }
    }

    /// Any visible epoch is one of everything.
    pub fn peek(&mut self) {
        if self.visible.0 > Epoch::ZERO {
            self.check_rows();
        }
    }

    fn check_rows(&mut self) {
        let Some(db) = self.db() else { return };
        self.clients.hear();
        let (oracle, catalog) = (Oracle::get(), db.catalog());
        let visible = db.visible();
        let tables = self.clients.at(visible.dml_position);
        for ((name, ..), rows) in model::TABLES.iter().zip(&tables) {
            let Some(table) = catalog.get(&ObjectName::public(*name)) else { continue };
            let schema = weir_catalog::column::arrow_schema(table.columns());
            let all: Vec<_> =
                rows.iter().flat_map(|(row, n)| std::iter::repeat_n(row, *n as usize)).collect();
            let mut expected = oracle::text_of(&model::batch(schema, &all));
            expected.sort_unstable();
            let found = oracle::stored(table, &catalog, &visible);
            assert_eq!(found, expected, "{name} at position {}, {:?}", visible.dml_position, visible.epoch);
        }
        for object in catalog.objects() {
            let name = object.name.name.clone();
            if object.kind() != ObjectKind::MaterializedView || object.state != ObjectState::Created {
                continue;
            }
            let Some(Some(query)) = self.clients.objects.get(&name) else { continue };
            let found = oracle::stored(object, &catalog, &visible);
            let expected = oracle.rows(query, &catalog, &visible).unwrap_or_else(|e| panic!("{e}"));
            self.trace.count(found.len() as u64);
            assert_eq!(found, expected, "view {name} AS {query}, at {:?}", visible.epoch);
        }
    }

    /// Everything goes on, fairly, until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for round in 0..ROUNDS_MAX {
            let mut busy = false;
            for (number, _) in work::testing::works() {
                let step = self.guarded(|_| work::testing::step(number));
                busy |= step == Some(work::Step::More);
            }
            self.step_tasks();
            self.look();
            if done(self) {
                self.trace.count(round as u64);
                return;
            }
            clock::testing::pass(Duration::from_micros(if busy { 300 } else { 3_000 }));
        }
        if let Some(db) = self.db() {
            self.trace.say(format!("deliveries: {:?}", db.delivery_status()));
            self.trace.say(format!("jobs: {:?}", db.job_facts()));
        }
        self.trace.say(format!("threads: {:?}", work::testing::works()));
        panic!("stuck: {what}");
    }

    pub fn until_created(&mut self, name: &str, sql: &str, query: Option<String>) {
        for _ in 0..10 {
            self.until("a server answers", |s| s.db().is_some_and(|db| db.is_ready()));
            self.create(name, sql, query.clone());
            self.until(sql, |s| {
                s.hear_ddl();
                s.clients.ddl.is_none()
            });
            if self.clients.objects.contains_key(name) {
                return;
            }
        }
        panic!("{sql} fails over and over");
    }

    /// Nothing fails any more: everything that was begun ends, everything that was acknowledged is visible
    /// and durable, and sinks have delivered it.
    pub fn settle(&mut self) {
        for attempt in 0.. {
            self.until("a server answers", |s| s.db().is_some_and(|db| db.is_ready()));
            self.until("a statement ends", |s| {
                s.hear_ddl();
                s.clients.ddl.is_none()
            });
            self.write();
            self.until("transactions are answered", |s| {
                s.clients.hear();
                s.clients.queued.is_empty() && s.clients.doomed.is_empty()
            });
            if self.try_settle() {
                return;
            }
            assert!(attempt < 20, "it does not settle");
            if attempt > 3 {
                // A log whose disk failed is closed until the server starts anew.
                self.die("because nothing is written any more");
            }
        }
    }

    fn try_settle(&mut self) -> bool {
        let Some(db) = self.db() else { return false };
        let position = db.dml().position();
        if position != self.clients.logged.len() as u64 {
            return false;
        }
        let Some(server) = &self.server else { return false };
        let of_task = Arc::clone(&db);
        let mut done = Some(server.runtime.spawn(async move {
            of_task.wait_visible(position).await?;
            of_task.checkpoint().await
        }));
        let mut durable = None;
        self.until("a checkpoint", |s| {
            let Some(server) = &s.server else { return true };
            if let Some(done) = done.take_if(|done| done.is_finished()) {
                durable = server.runtime.block_on(done).ok();
                return true;
            }
            false
        });
        let Some(Ok(epoch)) = durable else {
            self.trace.say(format!("no checkpoint: {durable:?}"));
            return false;
        };
        let promised = self.disk.newest().map_or_else(Vec::new, |manifest| manifest.handles);
        self.trace.say(format!("{epoch} is durable; {} parts are promised", promised.len()));
        drop(db);
        self.until("sinks have delivered", |_| {
            promised.iter().all(|h| target::held(h.sink).marker.is_some_and(|marker| marker.epoch >= h.epoch))
        });
        true
    }

    /// What must hold when everything has settled.
    pub fn check(&mut self) {
        assert_eq!(self.visible.1, self.clients.logged.len() as u64, "what is acknowledged is visible");
        self.check_rows();
        self.disk.check();
        let wrong = target::wrong();
        assert!(wrong.is_empty(), "{wrong:?}");
        let Some(db) = self.db() else { return };
        let (catalog, visible) = (db.catalog(), db.visible());
        for object in catalog.objects().filter(|o| o.kind() == ObjectKind::Sink) {
            let Some(Some(query)) = self.clients.objects.get(&object.name.name) else { continue };
            let expected = Oracle::get().rows(query, &catalog, &visible).unwrap_or_else(|e| panic!("{e}"));
            let mut found: Vec<String> = target::held(object.id)
                .rows
                .into_values()
                .flat_map(|(row, count)| std::iter::repeat_n(row, count as usize))
                .collect();
            found.sort_unstable();
            assert_eq!(found, expected, "the target of {} AS {query}", object.name);
        }
        let works: Vec<String> = work::testing::works().into_iter().map(|(_, name)| name).collect();
        let coordinators = works.iter().filter(|name| *name == "weir-coordinator").count();
        assert_eq!(coordinators, 1, "dataflows that run: {works:?}");
        self.adopt(&catalog);
        self.trace.say(format!(
            "all is well at {:?}, {} transactions",
            visible.epoch,
            self.clients.logged.len()
        ));
    }
}
