//! The drilled server's lives: one kill after the other, and what was seen around each.
//!
//! A probe watches from outside, as a client would: it asks for the newest checkpoints, and notices
//! when nobody answers any more.

use super::kills::Kill;
use super::lines::Lines;
use super::process::{Process, rows};
use super::report::KillReport;
use super::script::Script;
use super::{DrillConfig, DrillError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long it may take from a start to RUNNING.
const RUNNING_PATIENCE: Duration = Duration::from_secs(120);
/// How long a step may take to be reached.
const STEP_PATIENCE: Duration = Duration::from_secs(15);
/// A recovery that takes longer is a weak spot.
const RUNNING_SLOW_MS: u64 = 3_000;
/// So is one that replays more than this of the stream.
const REPLAYED_LONG_MS: u64 = 10_000;

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

/// The drilled server, life after life.
pub struct Rounds<'a> {
    script: &'a Script,
    expected: &'a [Lines],
    process: Process,
    probe: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
    /// What append-only sinks had when they were looked at last.
    last: Vec<Lines>,
    duplicates: i64,
    columns: Vec<Vec<String>>,
    weak_spots: BTreeSet<String>,
}

impl<'a> Rounds<'a> {
    /// Starts the server and its pipeline. `first` is where it is going to die.
    pub async fn start(
        config: &DrillConfig,
        script: &'a Script,
        expected: &'a [Lines],
        first: Option<&Kill>,
    ) -> Result<Self, DrillError> {
        let mut process = Process::new(config, "drilled");
        process.begin(None)?;
        process.wait_running(RUNNING_PATIENCE).await?;
        for statement in &script.drilled {
            process.run(statement).await?;
        }
        let mut rounds = Rounds {
            script,
            expected,
            process,
            probe: None,
            seen: Arc::default(),
            last: vec![Lines::default(); script.sinks.len()],
            duplicates: 0,
            columns: Vec::new(),
            weak_spots: BTreeSet::new(),
        };
        for sink in &script.sinks {
            let shown = rounds.process.rows(&format!("SHOW COLUMNS FROM {}", sink.view)).await?;
            rounds.columns.push(shown.into_iter().filter_map(|row| row.into_iter().next()).collect());
        }
        if let Some(Kill::Step(..)) = first {
            // A fail point is set when a process starts.
            rounds.process.kill()?;
            rounds.begin(first)?;
            let running = rounds.process.wait_running(RUNNING_PATIENCE).await;
            rounds.unless_dead(running).await?;
        }
        rounds.watch().await?;
        Ok(rounds)
    }

    fn begin(&mut self, next: Option<&Kill>) -> Result<(), DrillError> {
        let fail_point = match next {
            Some(Kill::Step(step, hit)) => Some(format!("{step}:{hit}=kill")),
            _ => None,
        };
        self.process.begin(fail_point.as_deref())
    }

    /// Lets the server die as `kill` says, and starts it to die as `next` says.
    pub async fn kill(&mut self, kill: &Kill, next: Option<&Kill>) -> Result<KillReport, DrillError> {
        let mut report = self.die(kill).await?;
        let died = self.noticed(&mut report).await;
        let started = Instant::now();
        self.begin(next)?;
        if let Err(error) = self.process.wait_running(RUNNING_PATIENCE).await {
            if self.process.is_alive() || !matches!(next, Some(Kill::Step(..))) {
                return Err(error);
            }
            // The next kill's place is on the way to RUNNING: the sinks are looked at after that.
            report.notes.push("killed again before it was RUNNING".to_owned());
            report.running_ms = ms(died.elapsed());
            return Ok(report);
        }
        report.running_ms = ms(died.elapsed());
        report.restore_ms =
            self.process.logged("dataflow is running", "elapsed_ms").unwrap_or(ms(started.elapsed()));
        self.replayed(&mut report, died);
        self.look(&mut report).await?;
        self.watch().await?;
        Ok(report)
    }

    async fn die(&mut self, kill: &Kill) -> Result<KillReport, DrillError> {
        let mut report = KillReport { reached: true, ..KillReport::default() };
        match kill {
            Kill::Moment(after) => {
                report.place = format!("after {} ms", after.as_millis());
                tokio::time::sleep(*after).await;
            }
            Kill::Step(step, hit) => {
                report.place = format!("{step}, hit {hit}");
                let deadline = Instant::now() + STEP_PATIENCE;
                while self.process.is_alive() && Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                report.reached = !self.process.is_alive();
            }
        }
        if !report.reached {
            report.notes.push("not reached: killed all the same".to_owned());
        }
        self.process.kill()?;
        Ok(report)
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
        if report.running_ms > RUNNING_SLOW_MS {
            report.notes.push(format!("{} ms until it was RUNNING", report.running_ms));
        }
        if report.replayed_ms > REPLAYED_LONG_MS {
            report.notes.push(format!("{} ms of the stream were replayed", report.replayed_ms));
        }
    }

    /// Looks at the sinks, and at what the server complains of.
    async fn look(&mut self, report: &mut KillReport) -> Result<(), DrillError> {
        let mut duplicates = 0;
        for (i, sink) in self.script.sinks.iter().enumerate().filter(|(_, sink)| sink.append_only) {
            let found = self.script.lines_of(sink, &self.columns[i], &sink.place).await?;
            duplicates += found.beyond(&self.expected[i]);
            report.losses += self.last[i].beyond(&found);
            self.last[i] = found;
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
        for note in
            report.notes.iter().filter(|note| !note.contains("not reached") && !note.contains("killed again"))
        {
            self.weak_spots.insert(format!("{}: {note}", report.place));
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

    /// Lets the stream come to its end, and the server to a clean one. Returns what is in the sinks, and
    /// the weak spots.
    pub async fn finish(mut self, patience: Duration) -> Result<(Vec<Lines>, Vec<String>), DrillError> {
        if let Some(probe) = self.probe.take() {
            probe.abort();
        }
        if !self.process.is_alive() {
            self.process.kill()?;
            self.begin(None)?;
        }
        self.process.wait_running(RUNNING_PATIENCE).await?;
        let deadline = Instant::now() + patience;
        for (sink, expected) in self.script.sinks.iter().zip(self.expected) {
            let query = format!("SELECT count(*)::text FROM {}", sink.view);
            // What never comes is found missing in the sinks.
            while self.process.value(&query).await? != expected.count().to_string()
                && Instant::now() < deadline
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        super::settle(&self.process, &self.script.sinks).await?;
        self.process.run("CHECKPOINT").await?;
        // A clean end delivers what is durable.
        self.process.terminate().await?;
        let mut found = Vec::new();
        for (sink, columns) in self.script.sinks.iter().zip(&self.columns) {
            found.push(self.script.lines_of(sink, columns, &sink.place).await?);
        }
        Ok((found, self.weak_spots.into_iter().collect()))
    }
}

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// A poisoned lock holds plain data that is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
