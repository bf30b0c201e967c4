//! Statements that change the catalog, or all there is.

use super::clients::{Ddl, Saved, What, url};
use super::*;
use weir_sql::parser::statement::RestoreOptions;

impl Simulation {
    /// Some statement.
    pub fn change_catalog(&mut self) {
        self.hear_ddl();
        if self.clients.ddl.is_some() || self.db().is_none_or(|db| db.catalog().stopped.is_some()) {
            return;
        }
        // What is promised, and in no target, is in the savepoint only.
        let away = self.faults.borrow().away;
        if away && self.random.random() {
            let newest = self.clients.saved.last().map(|saved| saved.number);
            return match newest.filter(|newest| self.clients.restoring != Some(*newest)) {
                Some(number) => self.restore_from(number),
                None => self.save(),
            };
        }
        match self.random.random_range(0..20) {
            0..=2 => self.change_sinks(),
            3..=8 => self.change_views(),
            9..=15 => self.rescale(),
            16..=17 => self.save(),
            _ => self.restore(),
        }
    }

    /// Creates or drops a view.
    pub fn change_views(&mut self) {
        if self.clients.ddl.is_some() {
            return;
        }
        let views: Vec<String> =
            self.clients.objects.keys().filter(|n| n.starts_with('v')).cloned().collect();
        if views.len() > 3 || (!views.is_empty() && self.random.random_ratio(1, 3)) {
            let name = views[self.random.random_range(0..views.len())].clone();
            self.drop_object(&name);
        } else {
            let (query, name) = (self.query(), self.name("v"));
            let sql = format!("CREATE MATERIALIZED VIEW {name} AS {}", sources::live(&query));
            self.create(&name, &sql, Some(query));
        }
    }

    /// Creates or drops a sink.
    fn change_sinks(&mut self) {
        let sinks: Vec<String> =
            self.clients.objects.keys().filter(|n| n.starts_with('s')).cloned().collect();
        if let Some(name) = self.prepared_sink().filter(|_| self.random.random()) {
            self.drop_object(&name);
        } else if sinks.len() < 2 {
            let sinks = self.sinks();
            let (query, how) = sinks[self.random.random_range(0..sinks.len())];
            let (name, sql) = self.sink(query, how);
            self.create(&name, &sql, Some(query.to_owned()));
        } else if self.random.random_ratio(1, 2) {
            let name = sinks[self.random.random_range(0..sinks.len())].clone();
            self.drop_object(&name);
        }
    }

    /// A sink of which something is prepared right now.
    fn prepared_sink(&self) -> Option<String> {
        let catalog = self.db()?.catalog();
        let name = |id| catalog.by_id(id).map(|object| object.name.name.clone());
        target::prepared().into_iter().find_map(|transaction| name(transaction.sink))
    }

    pub fn query(&mut self) -> String {
        let Some(db) = self.db() else { return model::query(&mut self.random, &[]) };
        if self.has_sources() && self.random.random_ratio(2, 5) {
            return sources::QUERIES[self.random.random_range(0..sources::QUERIES.len())].to_owned();
        }
        let catalog = db.catalog();
        let columns = |name: &String| {
            let object = catalog.get(&ObjectName::public(&**name))?;
            let views = object.kind() == ObjectKind::MaterializedView && object.state == ObjectState::Created;
            views.then(|| (name.clone(), object.columns().iter().map(|c| c.name.clone()).collect()))
        };
        let views: Vec<_> = self.clients.objects.keys().filter_map(columns).collect();
        model::query(&mut self.random, &views)
    }

    /// Begins a statement.
    fn begin<F>(&mut self, name: &str, what: What, sql: &str, work: impl FnOnce(Arc<Database>) -> F)
    where
        F: Future<Output = Result<(), JobError>> + Send + 'static,
    {
        let (Some(db), Some(server)) = (self.db(), &self.server) else { return };
        let done = server.runtime.spawn(work(db));
        self.clients.ddl = Some(Ddl { name: name.to_owned(), what, done });
        self.trace.say(sql.to_owned());
    }

    pub fn create(&mut self, name: &str, sql: &str, query: Option<String>) {
        let Some(db) = self.db() else { return };
        match Oracle::get().bind(sql, &db.catalog()) {
            Ok(Bound::Create(create)) => {
                self.begin(name, What::Create(query), sql, |db| async move {
                    db.create(create, Default::default()).await
                });
            }
            Ok(other) => panic!("{sql}: {other:?}"),
            // A view that it reads is just being dropped.
            Err(error) => self.trace.say(format!("not created: {error}")),
        }
    }

    /// Begins a statement that changes the catalog.
    fn alter(&mut self, name: &str, what: What, sql: &str) {
        let Some(db) = self.db() else { return };
        let catalog = db.catalog();
        match Oracle::get().bind(sql, &catalog) {
            Ok(Bound::Change { changes, .. }) => {
                let version = catalog.version;
                self.begin(name, what, sql, |db| async move { db.change(changes, version).await.map(drop) });
            }
            // Another view reads it.
            other => self.trace.say(format!("{sql}: {}", other.err().unwrap_or_default())),
        }
    }

    pub fn drop_object(&mut self, name: &str) {
        let Some(db) = self.db() else { return };
        let Some(kind) = db.catalog().get(&ObjectName::public(name)).map(|o| o.kind()) else { return };
        self.alter(name, What::Drop, &format!("DROP {} {name}", kind.to_string().to_uppercase()));
    }

    /// Gives a job, or all of them, other actors.
    pub fn rescale(&mut self) {
        let Some(db) = self.db() else { return };
        let catalog = db.catalog();
        let mut names: Vec<String> = self.clients.objects.keys().cloned().collect();
        names.extend([String::new(), String::new()]);
        let name = names[self.random.random_range(0..names.len())].clone();
        let number = Some(self.random.random_range(1..6u16)).filter(|_| !self.random.random_ratio(1, 6));
        let text = number.map_or("ADAPTIVE".to_owned(), |n| n.to_string());
        let of = match catalog.get(&ObjectName::public(&*name)) {
            Some(object) => format!("{} {name}", object.kind().to_string().to_uppercase()),
            None => "DATABASE dev".to_owned(),
        };
        // As many as there are cores is for another machine to say.
        if name.is_empty() && number.is_none() {
            return;
        }
        self.alter(&name, What::Rescale(number), &format!("ALTER {of} SET PARALLELISM = {text}"));
    }

    fn save(&mut self) {
        let stop = self.random.random_ratio(1, 4);
        self.save_and(stop);
    }

    pub fn save_and(&mut self, stop: bool) {
        self.clients.saves += 1;
        self.clients.wants_on = false;
        let number = self.clients.saves;
        let sql = format!("SAVEPOINT TO '{}'{}", url(number), if stop { " AND STOP" } else { "" });
        self.begin("", What::Save(number, stop), &sql, |db| async move {
            db.savepoint(&url(number), stop).await.map(drop)
        });
    }

    /// Puts a savepoint in the place of everything.
    pub fn restore(&mut self) {
        let all = self.clients.saved.len();
        if all == 0 {
            return;
        }
        let number = self.clients.saved[self.random.random_range(0..all)].number;
        self.restore_from(number);
    }

    fn restore_from(&mut self, number: usize) {
        self.clients.restoring = Some(number);
        let sql = format!("RESTORE DATABASE dev FROM '{}'", url(number));
        self.begin("", What::Restore, &sql, |db| async move {
            let options = RestoreOptions { replace: true, ..RestoreOptions::default() };
            db.restore(&url(number), options).await.map(drop)
        });
    }

    /// Hears what became of a statement.
    pub fn hear_ddl(&mut self) {
        let (Some(server), Some(db)) = (&self.server, self.db()) else { return };
        let Some(ddl) = self.clients.ddl.take_if(|ddl| ddl.done.is_finished()) else { return };
        let outcome = server.runtime.block_on(ddl.done);
        let outcome = outcome.unwrap_or_else(|e| Err(JobError::internal(e.to_string())));
        self.trace.say(format!("{}: {outcome:?}", ddl.name));
        self.look_for_restore();
        let name = ddl.name;
        let object = db.catalog().get(&ObjectName::public(&*name)).cloned();
        let there = object.as_ref().map(|object| object.state);
        match (outcome, ddl.what) {
            (Ok(()), What::Create(query)) => {
                assert_eq!(there, Some(ObjectState::Created), "{name} is acknowledged");
                self.clients.numbers.insert(name.clone(), None);
                self.clients.objects.insert(name, query);
            }
            (Ok(()), What::Drop) => {
                assert_eq!(there, None, "{name} is dropped");
                self.clients.objects.remove(&name);
                self.clients.numbers.remove(&name);
            }
            (Err(_), What::Create(_)) => {
                assert_ne!(there, Some(ObjectState::Created), "{name} failed, and is there");
            }
            // Its record may be there while its job could not be ended.
            (Err(_), What::Drop) if there.is_none() => drop(self.clients.objects.remove(&name)),
            (Err(_), What::Drop) => {}
            (Ok(()), What::Rescale(number)) => drop(self.clients.numbers.insert(name, number)),
            (Err(_), What::Rescale(_)) => drop(self.clients.numbers.remove(&name)),
            (Ok(()), What::Save(number, stop)) => self.saved(number, stop),
            // Whether it is whole all the same counts for a stop only.
            (Err(_), What::Save(number, _)) => drop(self.note_savepoint(number)),
            (Ok(()) | Err(_), What::Restore) => {}
        }
    }

    fn saved(&mut self, number: usize, stop: bool) {
        let saved = self.note_savepoint(number);
        let saved = saved.unwrap_or_else(|| panic!("savepoint {number} is acknowledged"));
        assert_eq!(saved.stopped, stop);
        // A RECOVER may have come between the stop and the answer.
        let went_on = self.clients.wants_on && self.db().is_some_and(|db| db.catalog().stopped.is_none());
        if stop && !went_on {
            self.after_stop(&saved);
        }
    }

    /// The database is stopped with a savepoint: it goes on here, or elsewhere.
    pub fn after_stop(&mut self, saved: &Saved) {
        assert_eq!(saved.tables, self.clients.now, "nothing comes after a savepoint that stops");
        if self.random.random() { self.recover() } else { self.move_with(saved) }
    }

    /// The machine is gone. The database goes on with a savepoint on another one.
    pub fn move_with(&mut self, saved: &Saved) {
        self.die("for good");
        self.trace.say(format!("savepoint {} is brought elsewhere", saved.number));
        self.clients.unknown.clear();
        self.clients.queued.clear();
        self.disk.replace();
        self.trace.place = self.disk.shown();
        self.arrives = Some((saved.clone(), target::all()));
    }

    /// What became of statements that were not answered, the catalog tells.
    pub fn adopt(&mut self, catalog: &CatalogSnapshot) {
        for (name, what) in std::mem::take(&mut self.clients.unknown) {
            let there = catalog.get(&ObjectName::public(&*name)).is_some();
            match what {
                What::Create(query) if there => drop(self.clients.objects.insert(name, query)),
                What::Drop if !there => drop(self.clients.objects.remove(&name)),
                What::Save(number, _) => drop(self.note_savepoint(number)),
                What::Create(_) | What::Drop | What::Rescale(_) | What::Restore => {}
            }
        }
        for name in self.clients.objects.keys() {
            let object = catalog.get(&ObjectName::public(&**name));
            assert!(
                object.is_some_and(|o| o.state == ObjectState::Created),
                "{name} was acknowledged: {object:?}"
            );
            let number = object.and_then(|o| o.parallelism);
            let known = *self.clients.numbers.entry(name.clone()).or_insert(number);
            assert_eq!(number, known, "the parallelism of {name}");
        }
        let number = catalog.settings.get("parallelism").and_then(|text| text.parse().ok());
        let known = *self.clients.numbers.entry(String::new()).or_insert(number);
        assert_eq!(number, known, "the parallelism of the database");
        let objects = &self.clients.objects;
        self.clients.numbers.retain(|name, _| name.is_empty() || objects.contains_key(name));
    }
}
