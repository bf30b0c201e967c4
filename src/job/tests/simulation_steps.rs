//! What clients write, what settles when nothing fails, and what must hold then.

use super::*;
use crate::connectors::transaction::TransactionName;
use weir_catalog::system::facts::JobFact;

/// Rounds in which everything goes on a little, after which nothing may wait for anything.
const ROUNDS_MAX: usize = 20_000;

/// Steps that somebody who has so much to do takes in a round.
const STEPS: usize = 32;

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
        let known = self.clients.position() + self.clients.queued.len() as u64;
        assert_eq!(basis.position, known, "what is logged or queued");
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

    pub fn ask_for_checkpoint(&mut self) {
        if let (Some(db), Some(server)) = (self.db(), &self.server) {
            drop(server.runtime.spawn(async move { db.checkpoint().await }));
        }
    }

    pub fn recover(&mut self) {
        if self.recovering.as_ref().is_some_and(|recovering| !recovering.is_finished()) {
            return;
        }
        if let (Some(db), Some(server)) = (self.db(), &self.server) {
            self.trace.say("RECOVER".into());
            self.clients.wants_on = true;
            self.recovering = Some(server.runtime.spawn(async move { drop(db.recover().await) }));
        }
    }

    /// What is visible only goes on.
    pub fn look(&mut self) {
        let Some(db) = self.db() else { return };
        let visible = db.visible();
        let now = (visible.epoch, visible.dml_position);
        self.look_for_restore();
        self.look_for_damage();
        let catalog = db.catalog();
        let kept = |name: &TransactionName| catalog.by_id(name.sink).is_some();
        let broken = target::broken().into_iter().find(kept);
        assert!(broken.is_none(), "{broken:?} was promised, and is rolled back");
        // Zero: a RESTORE has just taken it away.
        if now.0 != self.visible.0 && now.0 > Epoch::ZERO {
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
        if self.db().is_some_and(|db| db.visible().epoch > Epoch::ZERO) {
            self.check_rows(false);
        }
    }

    /// What is visible is one epoch of everything; if so, one in which `all` was read.
    fn check_rows(&mut self, all: bool) {
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
        self.check_sources(&visible, all);
        for object in catalog.objects() {
            let name = object.name.name.clone();
            if object.kind() != ObjectKind::MaterializedView || object.state != ObjectState::Created {
                continue;
            }
            let Some(Some(query)) = self.clients.objects.get(&name) else { continue };
            let found = oracle::stored(object, &catalog, &visible);
            let as_batch = match sources::closes(query) && all {
                true => self.closed(query),
                false => sources::batch(query),
            };
            let expected = oracle.rows(&as_batch, &catalog, &visible).unwrap_or_else(|e| panic!("{e}"));
            self.trace.count(found.len() as u64);
            if sources::closes(query) && !all {
                let early = found.iter().find(|row| !expected.contains(row));
                assert!(early.is_none(), "{early:?} of view {name} is not final, at {:?}", visible.epoch);
                continue;
            }
            assert_eq!(found, expected, "view {name} AS {query}, at {:?}", visible.epoch);
        }
    }

    /// Whether every view that shows windows once they are closed shows all that are: a mark comes behind the rows
    /// that it is of, and is told with a later epoch.
    fn shows_closed(&self) -> bool {
        let Some(db) = self.db() else { return false };
        let (catalog, visible) = (db.catalog(), db.visible());
        catalog.objects().filter(|o| o.kind() == ObjectKind::MaterializedView).all(|object| {
            let Some(Some(query)) = self.clients.objects.get(&object.name.name) else { return true };
            !sources::closes(query)
                || Oracle::get()
                    .rows(&self.closed(query), &catalog, &visible)
                    .is_ok_and(|expected| expected == oracle::stored(object, &catalog, &visible))
        })
    }

    /// Everything goes on, fairly, until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for round in 0..ROUNDS_MAX {
            let mut busy = false;
            for (number, _) in work::testing::works() {
                // A coordinator has a message of each actor for each barrier.
                for _ in 0..STEPS {
                    if self.guarded(|_| work::testing::step(number)) != Some(work::Step::More) {
                        break;
                    }
                    busy = true;
                }
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
            self.trace.say(format!("sources: {:?}", self.wrong_with_sources(&db.visible(), true)));
        }
        self.trace.say(format!("threads: {:?}", work::testing::works()));
        panic!("stuck: {what}");
    }

    /// Whether the dataflow runs. If it was stopped, it is to go on.
    fn answers(&mut self) -> bool {
        self.hear_ddl();
        let Some(db) = self.db() else { return false };
        if db.catalog().stopped.is_some() && self.clients.ddl.is_none() {
            self.recover();
        }
        db.is_ready()
    }

    pub fn until_dropped(&mut self, name: &str) {
        for _ in 0..10 {
            self.until("a server answers", Self::answers);
            self.drop_object(name);
            self.until("it is dropped", |s| {
                s.hear_ddl();
                s.clients.ddl.is_none()
            });
            if !self.clients.objects.contains_key(name) {
                return;
            }
        }
        panic!("{name} can't be dropped");
    }

    pub fn until_created(&mut self, name: &str, sql: &str, query: Option<String>) {
        for _ in 0..10 {
            self.until("a server answers", Self::answers);
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
            self.until("a server answers", Self::answers);
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
        if position != self.clients.position() {
            return false;
        }
        let mut rounds = 0;
        self.until("sources are read", |s| {
            rounds += 1;
            let visible = s.db().map(|db| db.visible());
            rounds % 8 == 1 && visible.is_none_or(|visible| s.wrong_with_sources(&visible, true).is_none())
        });
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
        self.until("sinks have delivered", |s| {
            let due = promised.iter().filter(|h| !s.clients.ahead.contains_key(&h.sink));
            due.into_iter().all(|handle| target::held(handle.sink).has(handle))
        });
        true
    }

    /// Whether every job has as many actors as it should.
    fn jobs_fit(&self) -> bool {
        let (Some(db), Some(server)) = (self.db(), &self.server) else { return false };
        let catalog = db.catalog();
        let number = |name: &str| self.clients.numbers.get(name).copied().flatten().map(usize::from);
        let of_database = number("").unwrap_or(server.parallelism);
        let fits = |fact: &JobFact| {
            let own = catalog.by_id(fact.id).and_then(|object| number(&object.name.name));
            fact.parallelism == own.unwrap_or(of_database)
        };
        db.job_facts().iter().all(fits)
    }

    /// What must hold when everything has settled.
    pub fn check(&mut self) {
        if let Some(db) = self.db() {
            self.adopt(&db.catalog());
        }
        self.until("jobs have their actors", |s| s.jobs_fit());
        assert_eq!(self.visible.1, self.clients.position(), "what is acknowledged is visible");
        let mut rounds = 0;
        self.until("closed windows are shown", |s| {
            rounds += 1;
            rounds % 8 == 1 && s.shows_closed()
        });
        self.check_rows(true);
        self.disk.check();
        let missing = simulated_store::missing(Epoch(self.clients.restored));
        assert!(missing.is_empty(), "{missing:?} are named, and not there");
        let wrong = target::wrong();
        assert!(wrong.is_empty(), "{wrong:?}");
        let Some(db) = self.db() else { return };
        let (catalog, visible) = (db.catalog(), db.visible());
        let promised = self.disk.newest().map_or_else(Vec::new, |manifest| manifest.handles);
        let of_nobody = promised.iter().find(|handle| catalog.by_id(handle.sink).is_none());
        assert!(of_nobody.is_none(), "{of_nobody:?} of a dropped sink is promised still");
        for object in catalog.objects().filter(|o| o.kind() == ObjectKind::Sink) {
            let Some(Some(query)) = self.clients.objects.get(&object.name.name) else { continue };
            if let Some(ahead) = self.clients.ahead.get(&object.id) {
                assert_eq!(
                    ahead.held,
                    target::held(object.id),
                    "the target of {}, which is ahead",
                    object.name
                );
                continue;
            }
            let expected = Oracle::get()
                .rows(&sources::batch(query), &catalog, &visible)
                .unwrap_or_else(|e| panic!("{e}"));
            let mut found: Vec<String> = target::held(object.id)
                .rows
                .into_values()
                .flat_map(|(row, count)| std::iter::repeat_n(row, count as usize))
                .collect();
            found.sort_unstable();
            assert_eq!(found, expected, "the target of {} AS {query}", object.name);
        }
        self.until("nothing is left of dropped sinks", |s| {
            let there = |id| s.db().is_none_or(|db| db.catalog().by_id(id).is_some());
            target::prepared().iter().all(|name| there(name.sink))
        });
        let works: Vec<String> = work::testing::works().into_iter().map(|(_, name)| name).collect();
        let coordinators = works.iter().filter(|name| *name == "weir-coordinator").count();
        assert_eq!(coordinators, 1, "dataflows that run: {works:?}");
        self.adopt(&catalog);
        self.trace.say(format!(
            "all is well at {:?}, {} transactions",
            visible.epoch,
            self.clients.position()
        ));
    }
}
