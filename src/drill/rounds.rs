//! The drilled server's lives: one kill after the other, and what was seen around each.
//!
//! A probe watches from outside, as a client would: it asks for the newest checkpoints, and notices
//! when nobody answers any more.

use super::files::{FilesWatch, Held};
use super::kills::{self, Kill};
use super::lines::{Ledger, Lines};
use super::pipeline::WRITES_A_SECOND;
use super::process::{Process, rows};
use super::report::KillReport;
use super::script::{Place, Script};
use super::tables::TableWatch;
use super::writes::Writer;
use super::{DrillConfig, DrillError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long it may take from a start to RUNNING.
const RUNNING_PATIENCE: Duration = Duration::from_secs(120);
/// How long a step may take to be reached, beyond what it should.
const STEP_PATIENCE: Duration = Duration::from_secs(8);
/// What the probe has seen.
#[derive(Default)]
struct Seen {
    /// When each checkpoint was triggered.
    checkpoints: BTreeMap<u64, Instant>,
    answered: Option<Instant>,
    /// When nobody answered any more.
    silent: Option<Instant>,
}

impl Seen {
    /// An answer: the newest checkpoints, and how long each took.
    fn note(&mut self, newest: &[Vec<String>]) {
        let now = Instant::now();
        self.answered = Some(now);
        for row in newest {
            let (Ok(epoch), Ok(duration_ms)) = (row[0].parse(), row[1].parse::<f64>()) else { continue };
            let took = Duration::from_secs_f64(duration_ms / 1000.0);
            self.checkpoints.entry(epoch).or_insert_with(|| now.checked_sub(took).unwrap_or(now));
        }
    }
}

/// An append-only sink, as it is seen to grow.
enum Watch {
    Files(FilesWatch),
    Table(TableWatch),
}

impl Watch {
    async fn look(&mut self, expected: &Lines) -> Result<i64, DrillError> {
        match self {
            Watch::Files(files) => files.look(expected),
            Watch::Table(table) => table.look(expected).await,
        }
    }

    fn ledger(&self) -> &Ledger {
        match self {
            Watch::Files(files) => files.ledger(),
            Watch::Table(table) => table.ledger(),
        }
    }
}

/// The drilled server, life after life.
pub struct Rounds<'a> {
    script: &'a Script,
    expected: &'a [Lines],
    columns: Vec<Vec<String>>,

    process: Process,
    probe: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
    writer: Option<Writer>,
    /// By sink: those that only grow.
    watches: Vec<Option<Watch>>,
    duplicates: i64,
}

impl<'a> Rounds<'a> {
    /// Starts the server and its pipeline. `first` is where it is going to die.
    pub async fn start(
        config: &DrillConfig,
        script: &'a Script,
        expected: &'a [Lines],
        first: Option<&Kill>,
    ) -> Result<Self, DrillError> {
        let mut process = Process::drilled(config);
        process.begin(None)?;
        process.wait_running(RUNNING_PATIENCE).await?;
        for statement in &script.drilled {
            process.run(statement).await?;
        }
        let columns = super::columns_of(&process, script).await?;
        let watch = |(sink, columns): (&super::DrilledSink, &Vec<String>)| {
            sink.is_append_only().then(|| match &sink.place {
                Place::Files(files) => Watch::Files(FilesWatch::new(files.clone())),
                Place::Table(table) => Watch::Table(TableWatch::new(table.clone(), columns)),
            })
        };
        let mut rounds = Rounds {
            script,
            expected,
            watches: script.sinks.iter().zip(&columns).map(watch).collect(),
            columns,
            process,
            probe: None,
            seen: Arc::default(),
            writer: None,
            duplicates: 0,
        };
        if let Some(kills::Place::Step(..)) = first.map(|kill| &kill.place) {
            // A fail point is set when a process starts.
            rounds.process.kill()?;
            rounds.begin(first)?;
            let running = rounds.process.wait_running(RUNNING_PATIENCE).await;
            rounds.unless_dead(running).await?;
        }
        if !script.writes.is_empty() {
            let address = rounds.process.address();
            rounds.writer = Some(Writer::start(script.writes.clone(), address, WRITES_A_SECOND));
        }
        rounds.watch().await?;
        Ok(rounds)
    }

    /// Whether all that was to come has come: what is killed then has nothing to lose any more.
    pub fn is_at_its_end(&self) -> bool {
        let written = self.writer.as_ref().is_none_or(|writer| writer.done() == self.script.writes.len());
        let watched = self.watches.iter().zip(self.expected).filter_map(|(w, e)| Some((w.as_ref()?, e)));
        let mut whole =
            watched.map(|(watch, expected)| watch.ledger().count() >= expected.count()).peekable();
        // Where no sink only grows, and nobody writes, it is not known.
        (whole.peek().is_some() || self.writer.is_some()) && written && whole.all(|whole| whole)
    }

    fn begin(&mut self, next: Option<&Kill>) -> Result<(), DrillError> {
        let fail_point = match next.map(|kill| &kill.place) {
            Some(kills::Place::Step(step, hit)) => Some(format!("{}:{hit}=kill", step.name)),
            _ => None,
        };
        self.process.begin(fail_point.as_deref())
    }

    /// Lets the server die as `kill` says, and starts it to die as `next` says. What is seen goes to
    /// `report`, as far as it comes.
    pub async fn kill(
        &mut self,
        kill: &Kill,
        next: Option<&Kill>,
        report: &mut KillReport,
    ) -> Result<(), DrillError> {
        self.die(kill, report).await?;
        let died = self.noticed(report).await;
        if kill.loses_checkpoints {
            self.lose_checkpoints()?;
        }
        let started = Instant::now();
        self.begin(next)?;
        if let Err(error) = self.process.wait_running(RUNNING_PATIENCE).await {
            let of_next = matches!(next.map(|kill| &kill.place), Some(kills::Place::Step(..)));
            if self.process.is_alive() || !of_next || !self.process.was_killed() {
                report.notes.push("it did not come back".to_owned());
                return Err(error);
            }
            // The next kill's place is on the way to RUNNING: the sinks are looked at after that.
            report.killed_again = true;
            return Ok(());
        }
        report.running_ms = ms(died.elapsed());
        report.restore_ms =
            self.process.logged("dataflow is running", "elapsed_ms").unwrap_or(ms(started.elapsed()));
        self.replayed(report, died);
        self.look(report).await?;
        self.watch().await
    }

    async fn die(&mut self, kill: &Kill, report: &mut KillReport) -> Result<(), DrillError> {
        report.reached = true;
        report.place = match &kill.place {
            kills::Place::Moment(after) => format!("after {} ms", after.as_millis()),
            kills::Place::Step(step, hit) => format!("{}, hit {hit}", step.name),
        };
        let rescale = kill.rescale.map(|(job, parallelism, after)| {
            let job = &self.script.jobs[job % self.script.jobs.len()];
            let alter = format!("ALTER {job} SET PARALLELISM = {parallelism}");
            report.meanwhile = Some(format!("{job} to {parallelism}"));
            let address = self.process.address();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                // What does not get through before the kill is no part of the drill.
                if let Ok(client) = address.connect().await {
                    let _ = client.batch_execute(&alter).await;
                }
            })
        });
        match &kill.place {
            kills::Place::Moment(after) => tokio::time::sleep(*after).await,
            kills::Place::Step(step, hit) => {
                let deadline = Instant::now() + step.reached_after(*hit) + STEP_PATIENCE;
                while self.process.is_alive() && Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                report.reached = !self.process.is_alive();
                if !report.reached {
                    report.notes.push("not reached: killed all the same".to_owned());
                } else if !self.process.was_killed() {
                    report.notes.push("it ended by itself, not by the fail point".to_owned());
                    return Err(self.process.unwilling("live until it was killed"));
                }
            }
        }
        if let (kills::Place::Moment(_), false) = (&kill.place, self.process.is_alive()) {
            report.notes.push("it ended by itself".to_owned());
            return Err(self.process.unwilling("live until it was killed"));
        }
        self.process.kill()?;
        if let Some(rescale) = rescale {
            rescale.abort();
        }
        if kill.loses_checkpoints {
            report.meanwhile = Some(match report.meanwhile.take() {
                Some(rescale) => format!("{rescale}; local checkpoints lost"),
                None => "local checkpoints lost".to_owned(),
            });
        }
        Ok(())
    }

    /// The disk loses what checkpoints are stored elsewhere for.
    fn lose_checkpoints(&self) -> Result<(), DrillError> {
        for lost in ["checkpoints", "live"] {
            match std::fs::remove_dir_all(self.process.data_dir().join(lost)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// What was `tried`, if the server has not died of it: it may be at the place of its next kill at any
    /// time.
    async fn unless_dead<T>(&mut self, tried: Result<T, DrillError>) -> Result<Option<T>, DrillError> {
        match tried {
            Ok(done) => Ok(Some(done)),
            Err(error) => {
                let deadline = Instant::now() + Duration::from_secs(1);
                while self.process.is_alive() && Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if self.process.is_alive() { Err(error) } else { Ok(None) }
            }
        }
    }

    /// When it died, as far as anybody outside can tell; and how long it took to notice.
    async fn noticed(&mut self, report: &mut KillReport) -> Instant {
        let now = Instant::now();
        if let Some(probe) = self.probe.take() {
            // It ends when nobody answers: it is there already, or about to be.
            let _ = tokio::time::timeout(Duration::from_secs(5), probe).await;
        }
        let seen = lock(&self.seen);
        let died = match report.place.starts_with("after") {
            true => now,
            // It died by itself, after its last answer.
            false => seen.answered.unwrap_or(now),
        };
        report.detect_ms = ms(seen.silent.unwrap_or(now).saturating_duration_since(died));
        died
    }

    fn replayed(&mut self, report: &mut KillReport, died: Instant) {
        let seen = lock(&self.seen);
        let restored = self.process.logged("dataflow is running", "epoch");
        let newest = seen.checkpoints.last_key_value();
        // One that nobody saw complete is newer than all that were seen.
        let triggered = restored.and_then(|epoch| seen.checkpoints.get(&epoch)).or(newest.map(|(_, at)| at));
        report.replayed_ms = triggered.map_or(0, |at| ms(died.saturating_duration_since(*at)));
        if let Some((newest, _)) = newest.filter(|(newest, _)| restored.is_some_and(|epoch| epoch < **newest))
        {
            let restored = restored.unwrap_or_default();
            report.notes.push(format!("restored epoch {restored}, though {newest} was complete"));
        }
    }

    /// Looks at the sinks, and at what the server complains of.
    async fn look(&mut self, report: &mut KillReport) -> Result<(), DrillError> {
        let mut duplicates = 0;
        for (watch, expected) in self.watches.iter_mut().zip(self.expected) {
            if let Some(watch) = watch {
                report.losses += watch.look(expected).await?;
                duplicates += watch.ledger().beyond();
            }
        }
        report.duplicates = duplicates - self.duplicates;
        self.duplicates = duplicates;
        let alerts = "SELECT rule, coalesce(object, '') FROM weir_catalog.alerts WHERE severity = 'critical'";
        let alerts = self.process.rows(alerts).await;
        for alert in self.unless_dead(alerts).await?.unwrap_or_default() {
            report.notes.push(format!("alert: {}", alert.join(" ").trim()));
        }
        let log = self.process.log_of_this_life();
        if let Some(line) = log.lines().find(|line| line.contains(" ERROR ") || line.contains("panicked")) {
            report.notes.push(format!("logged: {}", line.trim()));
        }
        Ok(())
    }

    /// Begins to watch the server that runs now.
    async fn watch(&mut self) -> Result<(), DrillError> {
        *lock(&self.seen) = Seen::default();
        let client = self.process.connect().await;
        let Some(client) = self.unless_dead(client).await? else { return Ok(()) };
        let seen = Arc::clone(&self.seen);
        self.probe = Some(tokio::spawn(async move {
            let query = "SELECT epoch, duration_ms FROM weir_catalog.checkpoints WHERE status = 'completed' \
                         ORDER BY epoch DESC LIMIT 3";
            while let Ok(newest) = rows(&client, query).await {
                lock(&seen).note(&newest);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            lock(&seen).silent = Some(Instant::now());
        }));
        Ok(())
    }

    /// Lets the stream come to its end, and the server to a clean one. Returns what is in the sinks.
    pub async fn finish(mut self, patience: Duration) -> Result<Vec<Held>, DrillError> {
        if let Some(probe) = self.probe.take() {
            probe.abort();
        }
        if !self.process.is_alive() {
            self.process.kill()?;
            self.begin(None)?;
        }
        self.process.wait_running(RUNNING_PATIENCE).await?;
        if let Some(writer) = self.writer.take() {
            writer.finish().await?;
        }
        let deadline = Instant::now() + patience;
        for (sink, expected) in self.script.sinks.iter().zip(self.expected) {
            let query = format!("SELECT count(*)::text FROM {}", sink.view);
            loop {
                let asked = Instant::now();
                let whole = self.process.value(&query).await? == expected.count().to_string();
                // What never comes is found missing in the sinks.
                if whole || asked > deadline {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50).max(asked.elapsed() * 2)).await;
            }
        }
        super::settle(&self.process, &self.script.sinks).await?;
        self.process.run("CHECKPOINT").await?;
        // A clean end delivers what is durable.
        self.process.terminate().await?;
        let mut found = Vec::new();
        for (sink, columns) in self.script.sinks.iter().zip(&self.columns) {
            found.push(match &sink.place {
                Place::Files(files) => files.read(&sink.meaning, columns)?,
                Place::Table(table) => Held { lines: table.read(columns).await?, ..Held::default() },
            });
        }
        Ok(found)
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.stop();
        }
    }
}

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// A poisoned lock holds plain data that is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
