//! `weir drill`: a real pipeline into real sinks, killed over and over, and reconciled.
//!
//! ```text
//!   reference   the script on a server that nobody kills ──> what each sink must come to
//!   drilled     the script on a server of its own
//!                 kill (a random moment, or inside a step) ─> start ─> RUNNING ─> look at the sinks ─┐
//!                   ^────────────────────────────────────────────────────────────────────────────────┘
//!   reconciled  the drilled sinks against the reference: counts, checksums, duplicates, losses
//! ```
//! [`script`] is what runs, [`kills`] when and where it dies, [`process`] the server, [`lines`] what is
//! in a sink, [`report`] what was seen. The drill is a client: it shares nothing with the servers but
//! the binary, their SQL and the sinks. **Invariant:** the same seed gives the same kills.

pub mod kills;
pub mod lines;
pub mod process;
pub mod report;
pub mod rounds;
pub mod script;

use kills::Kill;
use lines::Lines;
use process::Process;
use report::{Report, SinkReport};
use rounds::Rounds;
use script::{DrilledSink, Script};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a pipeline may take to come to its end, once nobody kills it.
const END_PATIENCE: Duration = Duration::from_secs(600);
/// A pipeline is at its end when nothing has changed for so long.
const SETTLED: Duration = Duration::from_secs(2);

/// What a drill is to do.
#[derive(Clone, Debug)]
pub struct DrillConfig {
    /// The server's binary.
    pub binary: PathBuf,
    /// How often it is killed.
    pub kills: usize,
    /// Which kills they are.
    pub seed: u64,
    /// A file of SQL; none: the drill's own pipeline.
    pub sql: Option<PathBuf>,
    /// Events of the drill's own pipeline; none: enough for the kills.
    pub events: Option<u64>,
    /// Its events a second.
    pub rate: u64,
    /// A PostgreSQL that its sinks write to; none: files.
    pub postgres: Option<String>,
    /// Whether they commit in two phases.
    pub two_phase: bool,
    /// Workers of the servers.
    pub parallelism: usize,
    /// Where it works.
    pub dir: PathBuf,
}

/// Why a drill could not be held.
#[derive(Debug, thiserror::Error)]
pub enum DrillError {
    /// The user's: what was asked for can't be drilled.
    #[error("{0}")]
    Unfit(String),
    /// A server did not do what it was asked.
    #[error("{what}: {reason}")]
    Server {
        /// What was asked.
        what: String,
        /// What it said.
        reason: String,
    },
    /// External.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Runs a drill. `say` is told how it goes.
pub async fn run(config: &DrillConfig, say: &mut dyn FnMut(&str)) -> Result<Report, DrillError> {
    let script = Script::of(config)?;
    let kills = kills::plan(config.seed, config.kills, &script);
    script.prepare_targets().await?;
    let held = hold(config, &script, kills, say).await;
    let cleaned = script.remove_targets(&config.dir).await;
    let report = held?;
    cleaned.map(|()| report)
}

async fn hold(
    config: &DrillConfig,
    script: &Script,
    kills: Vec<Kill>,
    say: &mut dyn FnMut(&str),
) -> Result<Report, DrillError> {
    say("the reference: the pipeline on a server that nobody kills");
    let expected = reference(config, script).await?;
    for (sink, lines) in script.sinks.iter().zip(&expected) {
        say(&format!("  sink {} comes to {} rows", sink.name, lines.count()));
    }
    say(&format!("the drill: {} kills, seed {}", kills.len(), config.seed));
    let mut rounds = Rounds::start(config, script, &expected, kills.first()).await?;
    let mut kill_reports = Vec::with_capacity(kills.len());
    for (i, kill) in kills.iter().enumerate() {
        let report = rounds.kill(kill, kills.get(i + 1)).await?;
        say(&format!("  {:>4} of {}  {}", i + 1, kills.len(), report.line()));
        kill_reports.push(report);
    }
    say("letting it finish");
    let (found, weak_spots) = rounds.finish(END_PATIENCE).await?;
    let compared = script.sinks.iter().zip(expected.iter().zip(&found));
    let sinks =
        compared.map(|(sink, (expected, found))| SinkReport::new(&sink.name, expected, found)).collect();
    Ok(Report { seed: config.seed, kills: kill_reports, sinks, weak_spots })
}

/// What each sink comes to without a kill.
async fn reference(config: &DrillConfig, script: &Script) -> Result<Vec<Lines>, DrillError> {
    let mut process = Process::new(config, "reference");
    process.begin(None)?;
    process.wait_running(END_PATIENCE).await?;
    for statement in &script.reference {
        process.run(statement).await?;
    }
    settle(&process, &script.sinks).await?;
    let mut expected = Vec::new();
    for sink in script.sinks.iter().filter(|sink| !sink.place.is_files()) {
        expected.push((&sink.name, lines::of_view(&process, sink).await?));
    }
    // A clean end delivers what is durable.
    process.run("CHECKPOINT").await?;
    process.terminate().await?;
    let mut all = Vec::new();
    for sink in &script.sinks {
        match expected.iter().position(|(name, _)| *name == &sink.name) {
            Some(at) => all.push(expected.swap_remove(at).1),
            None => all.push(script.lines_of(sink, &[], &sink.reference_place).await?),
        }
    }
    Ok(all)
}

/// Waits until nothing changes any more.
async fn settle(process: &Process, sinks: &[DrilledSink]) -> Result<(), DrillError> {
    let started = Instant::now();
    let (mut last, mut since) = (String::new(), Instant::now());
    while since.elapsed() < SETTLED || last.is_empty() {
        let mut now =
            process.value("SELECT coalesce(sum(rows_read), 0)::text FROM weir_catalog.sources").await?;
        for sink in sinks {
            now.push_str(&process.value(&format!("SELECT count(*)::text FROM {}", sink.view)).await?);
            now.push(' ');
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if started.elapsed() > END_PATIENCE {
            return Err(DrillError::Unfit(
                "the pipeline does not come to an end: give its sources a bound (events = …)".to_owned(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
