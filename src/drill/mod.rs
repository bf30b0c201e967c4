//! `weir drill`: a real pipeline into real sinks, killed over and over, and reconciled.
//!
//! ```text
//!   reference   the script on a server that nobody kills ──> what each sink must come to
//!   drilled     the script on a server of its own
//!                 kill (a random moment, or inside a step) ─> start ─> RUNNING ─> look at the sinks ─┐
//!                   ^────────────────────────────────────────────────────────────────────────────────┘
//!   reconciled  the drilled sinks against the reference: counts, checksums, duplicates, losses
//! ```
//! [`script`] is what runs, [`pipeline`] the drill's own scripts, [`kills`] when and where the server dies,
//! [`process`] the server, [`writes`] a client that writes meanwhile; [`files`] and [`tables`] read what is
//! in a sink, [`lines`] counts it, [`report`] is what was seen. The drill is a client: it shares nothing
//! with the servers but the binary, their SQL and the sinks. **Invariant:** the same seed gives the same
//! kills. A look costs what is new since the last one, so that a drill takes as long as its kills do.

pub mod files;
pub mod kills;
pub mod lines;
pub mod pipeline;
pub mod process;
pub mod report;
pub mod rounds;
pub mod script;
pub mod tables;
pub mod writes;

use kills::Kill;
use lines::Lines;
use pipeline::{FileFormat, Pipeline};
use process::Process;
use report::{KillReport, Report, SinkReport};
use rounds::Rounds;
use script::{DrilledSink, Place, Script};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

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
    /// A file of SQL; none: one of the drill's own pipelines.
    pub sql: Option<PathBuf>,
    /// A file of statements that a client executes meanwhile.
    pub writes: Option<PathBuf>,
    /// The drill's own pipeline.
    pub pipeline: Pipeline,
    /// How the files of its sinks are written.
    pub format: FileFormat,
    /// Its events; none: enough for the kills.
    pub events: Option<u64>,
    /// Its events a second.
    pub rate: u64,
    /// A PostgreSQL that its sinks write to; none: files.
    pub postgres: Option<String>,
    /// Whether they commit in two phases.
    pub two_phase: bool,
    /// Whether jobs get other parallelisms meanwhile.
    pub rescale: bool,
    /// Settings of the server that is killed, as `name=value`.
    pub settings: Vec<String>,
    /// Fail points that it has in every life, as `WEIR_FAILPOINT` spells them.
    pub fail_points: Vec<String>,
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

/// Runs a drill. `say` is told how it goes. One that is interrupted, or whose server does not come back,
/// reports what it had.
pub async fn run(config: &DrillConfig, say: &mut dyn FnMut(&str)) -> Result<Report, DrillError> {
    let (script, kills) = prepared(config)?;
    script.prepare_targets().await?;
    let held = hold(config, &script, kills, say).await;
    let cleaned = script.remove_targets(&config.dir).await;
    let report = held?;
    cleaned.map(|()| report)
}

/// The script, and the kills that fit it.
fn prepared(config: &DrillConfig) -> Result<(Script, Vec<Kill>), DrillError> {
    let plan = |script: &Script| kills::plan(config.seed, config.kills, script.scene(config));
    if let Some(path) = &config.sql {
        let script = Script::of_file(config, path)?;
        let kills = plan(&script);
        return Ok((script, kills));
    }
    // How long it has to be is known when the kills are, and those by what it has.
    let kills = plan(&pipeline::own(config, &[])?);
    Ok((pipeline::own(config, &kills)?, kills))
}

async fn hold(
    config: &DrillConfig,
    script: &Script,
    kills: Vec<Kill>,
    say: &mut dyn FnMut(&str),
) -> Result<Report, DrillError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut report = Report { seed: config.seed, planned: kills.len(), ..Report::default() };
    let drilled = drill(config, script, &kills, &mut report, say);
    let cut_short = tokio::select! {
        ended = drilled => ended?,
        _ = interrupt.recv() => Some("it was interrupted".to_owned()),
        _ = terminate.recv() => Some("it was told to end".to_owned()),
    };
    report.interrupted = cut_short.as_ref().is_some_and(|why| why.starts_with("it was"));
    report.cut_short = cut_short;
    Ok(report)
}

/// Fills the report as it goes. Returns why it did not come to its end, if it did not once the kills had
/// begun.
async fn drill(
    config: &DrillConfig,
    script: &Script,
    kills: &[Kill],
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<Option<String>, DrillError> {
    say("the reference: the pipeline on a server that nobody kills");
    let expected = reference(config, script).await?;
    for (sink, lines) in script.sinks.iter().zip(&expected) {
        say(&format!("  sink {} comes to {} rows", sink.name, lines.count()));
    }
    say(&format!("the drill: {} kills, seed {}", kills.len(), config.seed));
    let rounds = Rounds::start(config, script, &expected, kills.first()).await?;
    match through(rounds, (script, &expected), kills, report, say).await {
        Ok(()) => Ok(None),
        Err(error) => Ok(Some(error.to_string())),
    }
}

async fn through(
    mut rounds: Rounds<'_>,
    (script, expected): (&Script, &[Lines]),
    kills: &[Kill],
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) -> Result<(), DrillError> {
    let started = Instant::now();
    for (i, kill) in kills.iter().enumerate() {
        let mut seen = KillReport::default();
        let killed = rounds.kill(kill, kills.get(i + 1), &mut seen).await;
        let of = format!("{:>5} s  {:>4} of {}", started.elapsed().as_secs(), i + 1, kills.len());
        say(&format!("{of}  {}", seen.line()));
        report.kills.push(seen);
        killed?;
        if report.ended_at.is_none() && rounds.is_at_its_end() {
            report.ended_at = Some(i + 1);
        }
    }
    say("letting it finish");
    for ((sink, expected), found) in script.sinks.iter().zip(expected).zip(rounds.finish(END_PATIENCE).await?)
    {
        report.sinks.push(SinkReport::new(&sink.name, expected, &found));
    }
    Ok(())
}

/// What each sink comes to without a kill.
async fn reference(config: &DrillConfig, script: &Script) -> Result<Vec<Lines>, DrillError> {
    let mut process = Process::reference(config);
    process.begin(None)?;
    process.wait_running(END_PATIENCE).await?;
    for statement in &script.reference {
        process.run(statement).await?;
    }
    let client = process.connect().await?;
    for write in &script.writes {
        client.batch_execute(write).await.map_err(|e| tables::failed(write, &e))?;
    }
    settle(&process, &script.sinks).await?;
    let mut all = vec![Lines::default(); script.sinks.len()];
    for (sink, lines) in script.sinks.iter().zip(&mut all).filter(|(sink, _)| !sink.place.is_files()) {
        *lines = tables::of_view(&process, &sink.view).await?;
    }
    // A clean end delivers what is durable.
    process.run("CHECKPOINT").await?;
    let columns = columns_of(&process, script).await?;
    process.terminate().await?;
    for ((sink, lines), columns) in script.sinks.iter().zip(&mut all).zip(&columns) {
        if let Place::Files(files) = &sink.reference_place {
            let held = files.read(&sink.meaning, columns)?;
            if held.repeated + held.unfounded > 0 {
                let reason = format!("{held:?}");
                let what = format!("the changes in the files of sink {} do not fit each other", sink.name);
                return Err(DrillError::Server { what, reason });
            }
            *lines = held.lines;
        }
    }
    Ok(all)
}

/// The columns of each sink.
async fn columns_of(process: &Process, script: &Script) -> Result<Vec<Vec<String>>, DrillError> {
    let mut all = Vec::new();
    for sink in &script.sinks {
        let shown = process.rows(&format!("SHOW COLUMNS FROM {}", sink.view)).await?;
        all.push(shown.into_iter().filter_map(|row| row.into_iter().next()).collect());
    }
    Ok(all)
}

/// Waits until nothing changes any more.
async fn settle(process: &Process, sinks: &[DrilledSink]) -> Result<(), DrillError> {
    let started = Instant::now();
    let (mut last, mut since) = (String::new(), Instant::now());
    while since.elapsed() < SETTLED || last.is_empty() {
        let asked = Instant::now();
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
        // It has better things to do than to count.
        tokio::time::sleep(Duration::from_millis(100).max(asked.elapsed() * 4)).await;
    }
    Ok(())
}

#[cfg(test)]
impl DrillConfig {
    /// A short drill of the first own pipeline, in a directory whose name must be quoted.
    fn example() -> Self {
        Self {
            binary: PathBuf::from("weir"),
            kills: 5,
            seed: 7,
            sql: None,
            writes: None,
            pipeline: Pipeline::Bids,
            format: FileFormat::Json,
            events: Some(1000),
            rate: 500,
            postgres: None,
            two_phase: true,
            rescale: false,
            settings: Vec::new(),
            fail_points: Vec::new(),
            parallelism: 2,
            dir: PathBuf::from("/tmp/it's here"),
        }
    }
}
