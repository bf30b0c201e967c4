//! What clients know of the server: what it has acknowledged, and what they still wait for.

use super::model::{self, Tables};
use super::*;
use crate::checkpoint::savepoint::SavepointDir;
use crate::connectors::simulated_target::Held;
use crate::job::savepoint::parse;
use weir_catalog::ObjectId;

pub type Appended = BoxFuture<'static, std::io::Result<u64>>;

/// What a statement does.
#[derive(Clone, Debug)]
pub enum What {
    /// Creates something that this query defines; none for a table.
    Create(Option<String>),
    Drop,
    /// Gives the job other actors; the whole database's if there is no name.
    Rescale(Option<u16>),
    /// Puts everything into the savepoint of this number; nothing comes after it if it is to stop there.
    Save(usize, bool),
    /// Puts a savepoint in the place of everything.
    Restore,
}

/// A statement under way.
pub struct Ddl {
    pub name: String,
    pub what: What,
    pub done: JoinHandle<Result<(), JobError>>,
}

/// A savepoint that is whole.
#[derive(Clone)]
pub struct Saved {
    pub number: usize,
    pub epoch: Epoch,
    pub stopped: bool,
    pub tables: Tables,
    pub objects: BTreeMap<String, Option<String>>,
    pub numbers: BTreeMap<String, Option<u16>>,
    /// Sinks whose targets were ahead, and stay it.
    pub ahead: BTreeMap<ObjectId, Ahead>,
}

/// A target that holds what came after what was restored: it takes nothing.
#[derive(Clone)]
pub struct Ahead {
    pub held: Held,
    /// How many savepoints were begun when that was restored: later ones know of it.
    pub saves: usize,
}

/// What clients know of the server.
#[derive(Default)]
pub struct Clients {
    /// The rows of the tables at a position, from which on transactions count.
    pub base: (u64, Tables),
    /// Acknowledged transactions after that, by position.
    pub logged: Vec<Tables>,
    /// Those that were not answered yet.
    pub queued: Vec<(Tables, Appended)>,
    /// Those that were queued behind one that failed.
    pub doomed: Vec<Appended>,
    /// The rows with all of them.
    pub now: Tables,
    /// Acknowledged relations and sinks, and their queries; none for a table.
    pub objects: BTreeMap<String, Option<String>>,
    /// The acknowledged parallelism of jobs, and by no name of the database; not of those of which
    /// nobody knows.
    pub numbers: BTreeMap<String, Option<u16>>,
    pub ddl: Option<Ddl>,
    /// Whether somebody wanted the database to go on since a savepoint was begun.
    pub wants_on: bool,
    /// Those of which nobody knows what became of them: the process died.
    pub unknown: Vec<(String, What)>,
    pub names: usize,
    pub saved: Vec<Saved>,
    /// How many savepoints were begun.
    pub saves: usize,
    /// Which RESTORE the catalog tells of, and the savepoint that was last asked for.
    pub restored: u64,
    pub restoring: Option<usize>,
    /// Sinks whose targets are ahead of what was restored.
    pub ahead: BTreeMap<ObjectId, Ahead>,
}

/// Where the savepoint of a number is.
pub fn url(number: usize) -> String {
    format!("s3://{}/savepoint-{number}", crate::checkpoint::simulated_store::BUCKET)
}

impl Clients {
    /// The position of the last acknowledged transaction.
    pub fn position(&self) -> u64 {
        self.base.0 + self.logged.len() as u64
    }

    pub fn recount(&mut self) {
        self.now = self.base.1.clone();
        for change in self.logged.iter().chain(self.queued.iter().map(|(change, _)| change)) {
            model::apply(&mut self.now, change);
        }
    }

    /// The tables at a position.
    pub fn at(&self, position: u64) -> Tables {
        let mut tables = self.base.1.clone();
        let after = position.checked_sub(self.base.0).expect("nobody reads what a RESTORE has replaced");
        self.logged.iter().take(after as usize).for_each(|change| model::apply(&mut tables, change));
        tables
    }

    /// Hears what became of transactions.
    pub fn hear(&mut self) {
        let mut failed = false;
        while let Some((_, appended)) = self.queued.first_mut() {
            match appended.as_mut().now_or_never() {
                None => break,
                Some(Ok(position)) => {
                    let (change, _) = self.queued.remove(0);
                    self.logged.push(change);
                    assert_eq!(position, self.position(), "the position of a transaction");
                }
                Some(Err(_)) => {
                    failed = true;
                    drop(self.queued.remove(0));
                    self.doomed.extend(self.queued.drain(..).map(|(_, appended)| appended));
                }
            }
        }
        self.doomed.retain_mut(|appended| match appended.as_mut().now_or_never() {
            None => true,
            Some(Ok(position)) => panic!("transaction {position} is there, and what it is built on is not"),
            Some(Err(_)) => false,
        });
        if failed {
            self.recount();
        }
    }

    /// The transactions of a process that died: so many are there.
    pub fn found(&mut self, position: u64) {
        let acknowledged = self.position();
        let all = acknowledged + self.queued.len() as u64;
        let queued = std::mem::take(&mut self.queued);
        // While it starts nobody writes.
        assert!(
            position >= acknowledged,
            "{acknowledged} transactions were acknowledged, {position} are there"
        );
        assert!(position <= all, "there are {position} transactions, of {all}");
        let there = (position - acknowledged) as usize;
        self.logged.extend(queued.into_iter().map(|(change, _)| change).take(there));
        self.recount();
    }

    /// A savepoint has taken the place of everything, and transactions go on after `position`.
    pub fn replaced(&mut self, saved: &Saved, position: u64) {
        self.base = (position, saved.tables.clone());
        self.logged.clear();
        self.objects = saved.objects.clone();
        self.numbers = saved.numbers.clone();
        self.ahead = saved.ahead.clone();
        self.recount();
    }
}

impl Simulation {
    /// What a savepoint holds, if there is one of this number.
    pub fn look_at_savepoint(&mut self, number: usize) -> Option<Saved> {
        let calm = std::mem::replace(&mut self.faults.borrow_mut().calm, true);
        let parsed = parse(&url(number)).expect("it is a URL");
        let read = SavepointDir::open(&parsed, true).and_then(|dir| dir.read());
        self.faults.borrow_mut().calm = calm;
        let found = match read {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(error) => panic!("savepoint {number}: {error}"),
        };
        self.clients.hear();
        let (clients, position) = (&self.clients, found.dml_position);
        assert!(
            position <= clients.position(),
            "savepoint {number} holds {position} transactions, of {}",
            clients.position()
        );
        let catalog = CatalogSnapshot::from_image(found.catalog);
        for name in clients.objects.keys() {
            assert!(catalog.get(&ObjectName::public(&**name)).is_some(), "{name} is in savepoint {number}");
        }
        Some(Saved {
            number,
            epoch: found.epoch,
            stopped: found.stopped,
            tables: clients.at(position),
            objects: clients.objects.clone(),
            numbers: clients.numbers.clone(),
            ahead: clients.ahead.clone().into_iter().filter(|(_, ahead)| ahead.saves < number).collect(),
        })
    }

    /// Keeps a savepoint in mind.
    pub fn note_savepoint(&mut self, number: usize) -> Option<Saved> {
        if let Some(known) = self.clients.saved.iter().find(|saved| saved.number == number) {
            return Some(known.clone());
        }
        let saved = self.look_at_savepoint(number)?;
        self.trace.say(format!("savepoint {number} is of {}", saved.epoch));
        self.clients.saved.push(saved.clone());
        Some(saved)
    }

    /// Notices that a savepoint has taken the place of everything.
    pub fn look_for_restore(&mut self) {
        let Some(db) = self.db() else { return };
        let catalog = db.catalog();
        if catalog.restored == self.clients.restored {
            return;
        }
        self.clients.hear();
        assert!(self.clients.queued.is_empty(), "a transaction is on its way while everything is replaced");
        let number = self.clients.restoring.expect("only RESTORE puts another catalog in place");
        let saved = self.clients.saved.iter().find(|s| s.number == number).cloned().expect("it is whole");
        let position = self.clients.position();
        self.replaced(&saved, position, &catalog);
        self.note_ahead(saved.epoch, &target::all(), &catalog);
    }

    /// A savepoint has taken the place of everything.
    pub fn replaced(&mut self, saved: &Saved, position: u64, catalog: &CatalogSnapshot) {
        self.trace.say(format!("savepoint {} has taken the place of everything", saved.number));
        self.clients.replaced(saved, position);
        self.clients.restored = catalog.restored;
        self.visible = (Epoch::ZERO, position);
    }

    /// Sinks whose targets had all this go on from a checkpoint of `epoch`: those of which more is
    /// delivered do not.
    pub fn note_ahead(&mut self, epoch: Epoch, had: &BTreeMap<ObjectId, Held>, catalog: &CatalogSnapshot) {
        for sink in catalog.objects().filter(|o| o.kind() == ObjectKind::Sink) {
            let held = had.get(&sink.id).cloned().unwrap_or_default();
            if held.epoch() > epoch {
                self.trace.say(format!("the target of {} is ahead: {}", sink.name, held.epoch()));
                let saves = self.clients.saves;
                self.clients.ahead.insert(sink.id, Ahead { held, saves });
            }
        }
    }
}
