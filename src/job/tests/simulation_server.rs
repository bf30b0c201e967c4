//! The server of a simulation, its disk, and what goes wrong with both.

use super::oracle::{binding, session_info};
use crate::checkpoint::manifest;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::participant::CommitHandle;
use crate::checkpoint::simulated_store;
use crate::config::Config;
use crate::connectors::simulated_target::{self, Fault, Rules};
use crate::connectors::transaction::TransactionName;
use crate::failpoint;
use crate::job::manager::{Database, JobError};
use crate::state::disk;
use crate::stream::Epoch;
use crate::work;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// What unwinds where the process dies.
pub struct Crash;

/// What goes wrong.
pub struct Faults {
    random: StdRng,
    /// Nothing goes wrong for a while.
    pub calm: bool,
    /// Targets are away where it is not calm: what is promised stays undelivered for long.
    pub away: bool,
    /// Where the process has died.
    pub crashed: Option<String>,
    /// One in so many steps of the disk or an actor fails.
    errors: u32,
    /// One in so many is the last.
    crashes: u32,
    /// What is to happen where this is passed next, whatever else: an error or a crash.
    pub next: Option<(String, bool)>,
    /// Where the engine has passed.
    pub passed: BTreeSet<String>,
}

impl Faults {
    pub fn new(random: &mut StdRng) -> Self {
        let errors = *[u32::MAX, 500, 100, 30].choose(random).expect("some");
        let crashes = *[u32::MAX, 300, 80].choose(random).expect("some");
        let random = StdRng::seed_from_u64(random.random());
        Self {
            random,
            calm: true,
            away: false,
            crashed: None,
            errors,
            crashes,
            next: None,
            passed: BTreeSet::new(),
        }
    }

    fn at(&mut self, name: &str) -> io::Result<()> {
        if self.crashed.is_some() {
            return Ok(());
        }
        if !self.passed.contains(name) {
            self.passed.insert(name.to_owned());
        }
        if let Some((_, crash)) = self.next.take_if(|(next, _)| next == name) {
            return if crash { self.crash(name) } else { Err(failure(name, io::ErrorKind::Other)) };
        }
        if self.calm {
            return Ok(());
        }
        // Each turn of an actor is one.
        let of_actor = name.starts_with("actor.");
        let rarer = if of_actor { 20 } else { 1 };
        if self.random.random_ratio(1, self.crashes.saturating_mul(rarer)) {
            self.crash(name);
        }
        // These stand for kills only.
        let fails = !KILLS_ONLY.contains(&name);
        if fails && self.random.random_ratio(1, self.errors.saturating_mul(rarer)) {
            let kind = if self.random.random() { io::ErrorKind::StorageFull } else { io::ErrorKind::Other };
            return Err(failure(name, kind));
        }
        Ok(())
    }

    fn crash(&mut self, name: &str) -> ! {
        self.crashed = Some(name.to_owned());
        work::testing::die();
        std::panic::resume_unwind(Box::new(Crash));
    }

    fn of_store(&mut self) -> simulated_store::Fault {
        use simulated_store::Fault;
        match self.random.random_range(0..30) {
            0 if !self.calm => Fault::Before,
            1 if !self.calm => Fault::After,
            _ => Fault::None,
        }
    }

    fn of_target(&mut self) -> Fault {
        match self.random.random_range(0..8) {
            _ if self.away && !self.calm => Fault::Before,
            0..=2 => Fault::Slow(Duration::from_millis(self.random.random_range(0..30))),
            3 if !self.calm => Fault::Before,
            4 if !self.calm => Fault::After,
            _ => Fault::None,
        }
    }
}

/// Fail points that stand for kills: nothing is done there that could fail.
pub const KILLS_ONLY: [&str; 1] = ["create.logged"];

fn failure(name: &str, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("simulated at {name}"))
}

/// Asks `faults` at every fail point.
pub fn hook(faults: &Rc<RefCell<Faults>>) {
    let faults = Rc::clone(faults);
    failpoint::testing::set_hook(Some(Box::new(move |name| faults.borrow_mut().at(name))));
}

/// Sets what fails, and what targets are told.
pub fn set_rules(disk: &Disk, faults: &Rc<RefCell<Faults>>) {
    hook(faults);
    let (of_target, of_store) = (Rc::clone(faults), Rc::clone(faults));
    let (place, of_promised) = (Rc::clone(&disk.root), Rc::clone(&disk.root));
    simulated_target::begin(Rules {
        fault: Box::new(move || of_target.borrow_mut().of_target()),
        durable: Box::new(move || newest_manifest(&place.borrow().path().join(CHECKPOINTS))),
        promised: Box::new(move |name| promises(&of_promised.borrow().path().join(CHECKPOINTS), name)),
    });
    simulated_store::begin(Box::new(move || of_store.borrow_mut().of_store()));
}

fn newest_manifest(root: &Path) -> Epoch {
    let epochs = crate::checkpoint::gc::epochs(root).unwrap_or_default();
    let has_manifest =
        |epoch: &&Epoch| crate::checkpoint::gc::directory(root, **epoch).join(manifest::FILE_NAME).exists();
    epochs.iter().rev().find(has_manifest).copied().unwrap_or(Epoch::ZERO)
}

/// Whether the newest checkpoint promises what a transaction has. What was logged before an overtaken
/// barrier is promised again.
fn promises(root: &Path, name: &TransactionName) -> bool {
    let newest = Manifest::read(&crate::checkpoint::gc::directory(root, newest_manifest(root)));
    newest.ok().flatten().is_some_and(|manifest| {
        let hidden = manifest.unaligned.then_some(manifest.epoch);
        let is_it = |h: &CommitHandle| (h.sink, h.epoch, h.actor) == (name.sink, name.epoch, name.actor);
        hidden != Some(name.epoch) && manifest.handles.iter().any(is_it)
    })
}

/// Where checkpoints are, below the data directory.
const CHECKPOINTS: &str = "checkpoints";

/// The server's disk.
pub struct Disk {
    root: Rc<RefCell<tempfile::TempDir>>,
}

fn empty() -> tempfile::TempDir {
    // Where there is a file system in memory, for its speed, and because it uses no inode twice.
    let shm = Path::new("/dev/shm");
    let root = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    root.expect("a directory")
}

impl Disk {
    pub fn new(random: &mut StdRng) -> Self {
        let root = empty();
        let uuid = uuid::Builder::from_random_bytes(random.random()).into_uuid();
        std::fs::write(root.path().join("database"), format!("{uuid}\n")).expect("a file");
        disk::begin(root.path()).expect("a disk");
        Self { root: Rc::new(RefCell::new(root)) }
    }

    /// Another one takes its place, and is empty.
    pub fn replace(&self) {
        disk::end();
        let root = empty();
        disk::begin(root.path()).expect("a disk");
        self.root.replace(root);
    }

    /// Whether what was to be brought to it is there, whole.
    pub fn has_arrived(&self) -> bool {
        let place = self.place();
        place.join("database").exists() && !place.join("RESTORING").exists()
    }

    /// Its place, as messages begin with it.
    pub fn shown(&self) -> String {
        format!("{}/", self.place().display())
    }

    fn place(&self) -> PathBuf {
        self.root.borrow().path().to_owned()
    }

    fn checkpoints(&self) -> PathBuf {
        self.place().join(CHECKPOINTS)
    }

    /// Damages the newest checkpoint's files, or removes all. Returns what it did, in words.
    pub fn damage(&self, random: &mut StdRng) -> Option<String> {
        let root = self.checkpoints();
        let dir = crate::checkpoint::gc::directory(&root, newest_manifest(&root));
        let manifest = Manifest::read(&dir).ok()??;
        if random.random() {
            std::fs::remove_dir_all(&root).ok()?;
            std::fs::create_dir(&root).ok()?;
            self.settle();
            return Some("all checkpoints on the disk are gone".to_owned());
        }
        let file = manifest.files.iter().filter(|file| file.size > 0).collect::<Vec<_>>();
        let file = file.choose(random)?;
        let path = dir.join(&file.name);
        let mut content = std::fs::read(&path).ok()?;
        let at = random.random_range(0..content.len());
        match random.random() {
            true => content.truncate(at),
            false => content[at] ^= 4,
        }
        std::fs::remove_file(&path).and_then(|()| std::fs::write(&path, content)).ok()?;
        self.settle();
        Some(format!("{} of {} is damaged", file.name, manifest.epoch))
    }

    /// All that is there is durable.
    fn settle(&self) {
        disk::end();
        disk::begin(&self.place()).expect("a disk");
    }

    /// What a crash leaves of it.
    pub fn crash(&self, random: &mut StdRng) -> Vec<String> {
        let place = self.place();
        let _ = std::fs::remove_dir_all(place.join("live"));
        let _ = std::fs::remove_dir_all(place.join("scratch"));
        disk::crash(&place, random).expect("a disk")
    }

    /// The newest checkpoint's manifest.
    pub fn newest(&self) -> Option<Manifest> {
        let root = self.checkpoints();
        Manifest::read(&crate::checkpoint::gc::directory(&root, newest_manifest(&root))).expect("it is whole")
    }

    /// Every checkpoint is what its manifest says.
    pub fn check(&self) {
        let root = self.checkpoints();
        for epoch in crate::checkpoint::gc::epochs(&root).expect("checkpoints") {
            let dir = crate::checkpoint::gc::directory(&root, epoch);
            let Some(manifest) = Manifest::read(&dir).expect("a manifest is whole") else { continue };
            assert_eq!(manifest.epoch, epoch);
            for file in &manifest.files {
                let sum = crate::checkpoint::checksum::checksum(&dir.join(&file.name)).expect("it is there");
                assert_eq!(sum, file.crc32, "{} of {epoch}", file.name);
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        disk::end();
    }
}

/// A server: its runtime, and its database once that answers.
pub struct Server {
    pub settings: String,
    pub parallelism: usize,
    pub db: Option<Arc<Database>>,
    opening: Option<JoinHandle<Result<Arc<Database>, JobError>>>,
    pub runtime: Runtime,
}

impl Server {
    /// Starts one on `disk`, with the savepoint at a URL, if it is to bring that; with an object store for
    /// its checkpoints if there is a `remote` one.
    pub fn start(disk: &Disk, from: Option<&str>, remote: bool, random: &mut StdRng) -> Self {
        let actors = random.random_range(1..5);
        let parallelism = actors.to_string();
        let concurrent = random.random_range(1..3).to_string();
        let retained = random.random_range(1..4).to_string();
        let interval = format!("{}ms", [20, 50, 200].choose(random).expect("some"));
        let timeout = *["100ms", "10min"].choose(random).expect("some");
        let aligned = *["0", "1ms", "20ms"].choose(random).expect("some");
        let storage = if remote { simulated_store::CHECKPOINTS } else { "local" };
        let failures = random.random_range(0..3).to_string();
        let settings = format!(
            "parallelism {parallelism}, checkpoints every {interval}, {concurrent} at once, {retained} retained, \
             overtaken after {aligned}, given up after {timeout}, {failures} may fail"
        );
        let data_dir = disk.place().display().to_string();
        let config = Config::new([
            ("data_dir", data_dir.as_str()),
            ("parallelism", &parallelism),
            ("state.backend", "memory"),
            ("memory.limit", "16GB"),
            ("barrier.interval", "10ms"),
            ("checkpoint.interval", &interval),
            ("checkpoint.phase", "0"),
            ("checkpoint.max_concurrent", &concurrent),
            ("checkpoint.max_retained", &retained),
            ("checkpoint.aligned_timeout", aligned),
            ("checkpoint.timeout", timeout),
            ("checkpoint.storage", storage),
            ("checkpoint.compression", ["zstd", "none"][actors % 2]),
            ("checkpoint.tolerable_failures", &failures),
            ("restart.delay", "10ms"),
            ("restart.max_delay", "100ms"),
            ("restart.attempts", "0"),
        ]);
        let mut config = config.expect("settings");
        config.restore = from.map(str::to_owned);
        let config = Arc::new(config);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let binding = binding(Arc::clone(&config));
        let bind: crate::job::manager::Binding =
            Arc::new(move |catalog| binding.context(catalog, &session_info()));
        let opening = runtime.spawn(Database::open(config, bind));
        Self { settings, parallelism: actors, db: None, opening: Some(opening), runtime }
    }

    /// Every task that can goes on, for a while. True: the database answers from now on.
    pub fn step_tasks(&mut self) -> Result<bool, JobError> {
        self.runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
        let Some(opening) = self.opening.take_if(|opening| opening.is_finished()) else { return Ok(false) };
        match self.runtime.block_on(opening) {
            Ok(opened) => {
                self.db = Some(opened?);
                Ok(true)
            }
            Err(error) => Err(JobError::internal(error.to_string())),
        }
    }
}
