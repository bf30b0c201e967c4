//! Weir: arguments, logging, start, wait for the signal.

use clap::{Args, Parser, Subcommand};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use weir::config::Config;
use weir::connectors::nexmark_files::NexmarkFiles;
use weir::drill::pipeline::{FileFormat, Pipeline};
use weir::drill::report::Outcome;
use weir::drill::{DrillConfig, DrillError};
use weir::error::ServerError;
use weir::server::{RunningServer, Server};
use weir::threads::ThreadKind;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A streaming database: psql in, incremental views, exactly once through crashes.
#[derive(Parser)]
#[command(name = "weir", version)]
struct Command {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Subcommand)]
enum What {
    /// Runs the server (the default).
    Serve(ServeArguments),
    /// Writes the events of the auction benchmark as files, for benches.
    NexmarkFiles(NexmarkArguments),
    /// Runs a pipeline, kills its server over and over, and reconciles its sinks with its sources.
    Drill(DrillArguments),
    /// Measures the state store: put, get, scan, seal, checkpoint, restore.
    #[command(hide = true)]
    BenchState(BenchStateArguments),
}

#[derive(Args)]
struct DrillArguments {
    /// How often the server is killed.
    #[arg(long, value_name = "N", default_value_t = 20)]
    kills: usize,
    /// Which kills they are; drawn, and printed, if none is given.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// A pipeline of your own: a file of SQL whose sources come to an end and whose sinks are files or
    /// tables of PostgreSQL, empty at the start.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pipeline", "postgres", "events", "rate", "format", "commit_mode"])]
    sql: Option<PathBuf>,
    /// Statements for the tables of a pipeline of your own, which a client executes while the server is
    /// killed: one after the other, each again until it is acknowledged, so that each is one that may be
    /// executed twice. What is between BEGIN and COMMIT is one.
    #[arg(long, value_name = "FILE", requires = "sql")]
    writes: Option<PathBuf>,
    /// One of the drill's own pipelines: bids (each of them, and per auction), windows (that watermarks
    /// close, joins, top-n) or tables (with a client that writes).
    #[arg(long, value_name = "NAME", default_value = "bids", value_parser = ["bids", "windows", "tables"])]
    pipeline: String,
    /// How the files of its sinks are written: json, csv, parquet, or debezium (JSON, each change).
    #[arg(long, value_name = "FORMAT", default_value = "json", value_parser = ["json", "csv", "parquet", "debezium"], conflicts_with = "postgres")]
    format: String,
    /// A PostgreSQL for its sinks, instead of files; the drill makes and drops a schema there.
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// How those sinks commit: progress or two_phase.
    #[arg(long, value_name = "MODE", default_value = "progress", value_parser = ["progress", "two_phase"])]
    commit_mode: String,
    /// Its events, or its writes; by default enough for the kills.
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// Its events a second.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    rate: u64,
    /// Gives jobs other parallelisms meanwhile: ALTER … SET PARALLELISM.
    #[arg(long)]
    rescale: bool,
    /// Settings of the server that is killed, as for `weir serve`. With a checkpoint.storage elsewhere it loses
    /// its local checkpoints with some of the kills.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Fail points that it has in every life, to slow it down: batch.of_job_16386=sleep:50.
    #[arg(long = "fail-point", value_name = "POINT")]
    fail_points: Vec<String>,
    /// Workers that run the dataflow.
    #[arg(long, value_name = "N", default_value_t = 2)]
    parallelism: usize,
    /// The server's binary; by default this one.
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Where to work; it must not exist. By default below the system's temporary directory. It is removed
    /// when everything reconciles.
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// A file for the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl DrillArguments {
    fn config(self) -> Result<DrillConfig, ServerError> {
        let seed = self.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
        let named = format!("weir-drill-{seed}-{}", std::process::id());
        let dir = self.dir.unwrap_or_else(|| std::env::temp_dir().join(named));
        let binary = match self.server {
            Some(server) => std::fs::canonicalize(server)?,
            None => std::env::current_exe()?,
        };
        std::fs::create_dir(&dir)?;
        Ok(DrillConfig {
            binary,
            kills: self.kills,
            seed,
            sql: self.sql,
            writes: self.writes,
            pipeline: match self.pipeline.as_str() {
                "windows" => Pipeline::Windows,
                "tables" => Pipeline::Tables,
                _ => Pipeline::Bids,
            },
            format: match self.format.as_str() {
                "csv" => FileFormat::Csv,
                "parquet" => FileFormat::Parquet,
                "debezium" => FileFormat::Debezium,
                _ => FileFormat::Json,
            },
            events: self.events,
            rate: self.rate,
            postgres: self.postgres,
            two_phase: self.commit_mode == "two_phase",
            rescale: self.rescale,
            settings: self.settings,
            fail_points: self.fail_points,
            parallelism: self.parallelism,
            dir: std::fs::canonicalize(dir)?,
        })
    }
}

#[derive(Args)]
struct BenchStateArguments {
    /// Rows of the table.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: usize,
    /// Where to work; it must not exist, and is removed at the end.
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
    /// A file for the figures as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct NexmarkArguments {
    /// Where to write bid, auction and person files.
    #[arg(long, value_name = "DIRECTORY")]
    dir: PathBuf,
    /// Events over all three kinds.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    events: u64,
    /// Other numbers, other values.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Files a kind.
    #[arg(long, value_name = "N", default_value_t = 1)]
    files: u64,
    /// csv or json.
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    format: String,
}

#[derive(Args, Clone, Default)]
struct ServeArguments {
    /// The directory that holds everything.
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<String>,
    /// The address of the PostgreSQL protocol.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The address of /healthz, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<String>,
    /// Workers that run the dataflow.
    #[arg(long, value_name = "N")]
    parallelism: Option<String>,
    /// A file of settings; `weir.toml` is read if it exists.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Any setting; may be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Fills the data directory, which must be empty, with the savepoint at a URL, or with the newest checkpoint
    /// of the checkpoint.storage at it.
    #[arg(long, value_name = "URL")]
    restore: Option<String>,
}

fn main() -> ExitCode {
    weir::allocator::start();
    let command = Command::parse();
    let outcome = match command.what {
        Some(What::Serve(arguments)) => run(arguments).map(|()| ExitCode::SUCCESS),
        Some(What::NexmarkFiles(arguments)) => write_nexmark_files(arguments).map(|()| ExitCode::SUCCESS),
        Some(What::Drill(arguments)) => drill(arguments),
        Some(What::BenchState(arguments)) => bench_state(&arguments).map(|()| ExitCode::SUCCESS),
        None => run(command.serve).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("  hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn write_nexmark_files(arguments: NexmarkArguments) -> Result<(), ServerError> {
    let NexmarkArguments { dir, events, seed, files, format } = arguments;
    for (path, rows) in (NexmarkFiles { events, seed, files, format }).write(&dir)? {
        println!("{rows:>12}  {}", path.display());
    }
    Ok(())
}

/// The exit code of who was interrupted.
const INTERRUPTED: u8 = 130;

fn drill(arguments: DrillArguments) -> Result<ExitCode, ServerError> {
    let json = arguments.json.clone();
    let config = arguments.config()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(weir::drill::run(&config, &mut |line: &str| println!("{line}")))?;
    println!("\n{}", report.table());
    if let Some(file) = json {
        std::fs::write(file, report.json().map_err(std::io::Error::other)?)?;
    }
    let dir = config.dir.display();
    match report.outcome() {
        Outcome::Reconciled => {
            std::fs::remove_dir_all(&config.dir)?;
            Ok(ExitCode::SUCCESS)
        }
        Outcome::Interrupted => {
            std::fs::remove_dir_all(&config.dir)?;
            Ok(ExitCode::from(INTERRUPTED))
        }
        Outcome::Failed => Err(DrillError::Unfit(format!("it does not reconcile: see {dir}")).into()),
    }
}

fn bench_state(arguments: &BenchStateArguments) -> Result<(), ServerError> {
    std::fs::create_dir(&arguments.dir)?;
    let measured = weir::state::bench::run(&arguments.dir, arguments.rows);
    std::fs::remove_dir_all(&arguments.dir)?;
    let figures = measured.map_err(|error| std::io::Error::other(error.to_string()))?;
    println!("{:<32}{:>12}{:>11}{:>11}", "state", "count", "seconds", "us each");
    for figure in &figures {
        println!("{:<32}{:>12}{:>11.3}{:>11.3}", figure.what, figure.count, figure.seconds, figure.each_us);
    }
    if let Some(out) = &arguments.out {
        std::fs::write(out, serde_json::to_vec_pretty(&figures).map_err(std::io::Error::other)?)?;
    }
    Ok(())
}

fn run(arguments: ServeArguments) -> Result<(), ServerError> {
    let config = configure(arguments)?;
    start_log(&config);
    weir::descriptors::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("weir")
        .thread_stack_size(weir::config::STACK_BYTES)
        .on_thread_start(|| ThreadKind::Client.apply())
        .build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let server = Server::start(config.clone()).await?;
        greet(&config, &server);
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            error = server.lost() => {
                tracing::error!(%error, "ending without a last checkpoint");
                eprintln!("weir: {error}");
                // Nothing is put in order: the files are another's.
                std::process::exit(1);
            }
        }
        tracing::info!("shutting down with a last checkpoint");
        server.shutdown().await
    })
}

/// The command line over the file over the defaults.
fn configure(arguments: ServeArguments) -> Result<Config, ServerError> {
    let default = PathBuf::from("weir.toml");
    let mut values: BTreeMap<String, String> = match arguments.config {
        Some(path) => Config::read_file(&path)?,
        None if default.exists() => Config::read_file(&default)?,
        None => BTreeMap::new(),
    };
    // Not on the command line, where others of the machine could read it.
    if let Ok(users) = std::env::var("WEIR_AUTH_USERS") {
        values.insert("auth.users".to_owned(), users);
    }
    for setting in arguments.settings {
        let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
        values.insert(name.to_owned(), value.to_owned());
    }
    let named = [
        ("data_dir", arguments.data_dir),
        ("listen", arguments.listen),
        ("http", arguments.http),
        ("parallelism", arguments.parallelism),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            values.insert(name.to_owned(), value);
        }
    }
    let mut config = Config::new(values.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
    config.restore = arguments.restore;
    Ok(config)
}

/// RUST_LOG wins over `log.filter`.
fn start_log(config: &Config) {
    let filter = EnvFilter::try_from_default_env().or_else(|_| EnvFilter::try_new(config.log_filter()));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    // Colours are for people: a file of the log is searched.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_target(false).with_ansi(colours).init();
}

fn greet(config: &Config, server: &RunningServer) {
    let data = std::fs::canonicalize(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
    println!("Weir {} is ready.", env!("CARGO_PKG_VERSION"));
    println!("  connect   psql -h {} -p {} -U root -d dev", server.addr.ip(), server.addr.port());
    println!("  data      {}", data.display());
    println!("  metrics   http://{}/metrics", server.http_addr);
}
