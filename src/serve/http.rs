//! Health, readiness and metrics over HTTP.
//!
//! ```text
//!   /healthz   200 while the process runs
//!   /readyz    200 while the dataflow runs, else 503
//!   /metrics   Prometheus's text format
//! ```

use super::ServeContext;
use crate::job::manager::Database;
use crate::telemetry::METRICS;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::fmt::Write;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Answers until `shutdown`.
pub async fn serve_http(
    listener: TcpListener,
    serve: Arc<ServeContext>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(serve);
    axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await
}

async fn ready(State(serve): State<Arc<ServeContext>>) -> impl IntoResponse {
    if serve.database().is_ready() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let why = match serve.database().degraded() {
        Some(reason) => format!("the dataflow is degraded: {reason}\n"),
        None => "the dataflow is restarting\n".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, why)
}

async fn metrics(State(serve): State<Arc<ServeContext>>) -> impl IntoResponse {
    let text = METRICS.render() + &database_metrics(&serve);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// What the database knows of itself, gathered when asked.
fn database_metrics(serve: &ServeContext) -> String {
    let mut out = Metrics::default();
    let db = serve.database();
    let one = |value: f64| [(String::new(), value)];
    out.gauge(
        "weir_wire_connections",
        "Connections that are open.",
        one(serve.sessions().facts().len() as f64),
    );
    out.gauge("weir_dataflow_ready", "Whether the dataflow runs.", one(f64::from(u8::from(db.is_ready()))));
    out.gauge("weir_dataflow_visible_epoch", "The newest visible epoch.", one(db.visible().epoch.0 as f64));
    checkpoint_metrics(&mut out, db);
    job_metrics(&mut out, db);
    let filling = db.filling().map(|n| one(n as f64));
    let [incomplete, done, all] = filling;
    out.gauge(
        "weir_dataflow_incomplete_operators",
        "Operators that read through to the state store.",
        incomplete,
    );
    out.gauge("weir_dataflow_fill_done_vnodes", "Vnodes gone through to complete these.", done);
    out.gauge("weir_dataflow_fill_vnodes", "All vnodes of these.", all);
    if let Some(bytes) = resident_bytes() {
        out.gauge("process_resident_memory_bytes", "Resident memory.", one(bytes as f64));
    }
    out.text
}

fn checkpoint_metrics(out: &mut Metrics, db: &Database) {
    let (checkpoints, totals) = {
        let history = db.history();
        (history.checkpoints(), history.totals())
    };
    let one = |value: f64| [(String::new(), value)];
    let ended = [("completed", totals.completed), ("aborted", totals.aborted)];
    let ended = ended.map(|(status, n)| (format!("status=\"{status}\""), n as f64));
    out.counter("weir_checkpoint_total", "Checkpoints that ended since the server started.", ended);
    let failures = one(totals.consecutive_failures as f64);
    out.gauge("weir_checkpoint_consecutive_failures", "Aborted since the last completed one.", failures);
    let pending = checkpoints.iter().filter(|c| c.status == "pending").count();
    out.gauge("weir_checkpoint_pending", "Checkpoints under way.", one(pending as f64));
    let Some(last) = checkpoints.iter().rfind(|c| c.status == "completed") else { return };
    out.gauge("weir_checkpoint_last_epoch", "The last completed checkpoint.", one(last.epoch as f64));
    let seconds = |us: u64| us as f64 / 1e6;
    let duration = one(seconds(last.duration_us));
    out.gauge("weir_checkpoint_last_duration_seconds", "From trigger to manifest.", duration);
    let parts = &last.parts;
    let phases = [
        ("barrier", parts.barrier_us),
        ("align", parts.align_us),
        ("flush", parts.flush_us),
        ("seal", parts.seal_us),
        ("encode", parts.encode_us),
        ("write", parts.write_us),
        ("link", parts.link_us),
        ("upload", parts.upload_us),
        ("manifest", parts.manifest_us),
    ];
    let phases = phases.into_iter().chain(parts.commit_us.map(|us| ("commit", us)));
    let phases = phases.map(|(phase, us)| (format!("phase=\"{phase}\""), seconds(us)));
    out.gauge("weir_checkpoint_last_phase_seconds", "What the last one took, in parts.", phases);
    out.gauge("weir_checkpoint_last_bytes", "Bytes that it names.", one(last.total_bytes as f64));
    out.gauge("weir_checkpoint_last_new_bytes", "Bytes stored for it.", one(last.new_bytes as f64));
    out.gauge(
        "weir_checkpoint_last_changed_bytes",
        "Entries since the one before.",
        one(parts.changed_bytes as f64),
    );
    let written = one(parts.written_bytes as f64);
    out.gauge("weir_checkpoint_last_written_bytes", "Written to files for them.", written);
    let merged = one(parts.merged_bytes as f64);
    out.gauge("weir_checkpoint_last_merged_bytes", "Written since then to merge files.", merged);
    out.gauge("weir_checkpoint_last_files", "Files that it names.", one(parts.files as f64));
    let triggered = last.triggered_at_us as f64 / 1e6;
    out.gauge("weir_checkpoint_last_time_seconds", "When it was triggered.", one(triggered));
    let age = (db.now_us() - last.triggered_at_us).max(0) as f64 / 1e6;
    out.gauge("weir_checkpoint_last_age_seconds", "Since it was triggered.", one(age));
}

fn job_metrics(out: &mut Metrics, db: &Database) {
    let catalog = db.catalog();
    let name = |id| catalog.by_id(id).map_or_else(|| format!("{id}"), |o| o.name.to_string());
    let label = |key: &str, id| format!("{key}=\"{}\"", name(id).replace('\\', "\\\\").replace('"', "\\\""));
    let errors = db.expression_errors().into_iter().map(|(id, n)| (label("job", id), n as f64));
    out.counter("weir_operators_expression_errors_total", "Rows of which an expression failed.", errors);
    let entries = db.job_facts().into_iter().map(|job| (label("job", job.id), job.state_entries as f64));
    let help = "Groups and rows that operators remembered in memory at the last checkpoint.";
    out.gauge("weir_operators_state_entries", help, entries);
    let counts = db.source_counts();
    let read = counts.iter().map(|(id, c)| (label("source", *id), c.rows as f64));
    out.counter("weir_connectors_source_rows_total", "Rows read since the dataflow started.", read);
    let late = counts.iter().map(|(id, c)| (label("source", *id), c.late as f64));
    out.counter("weir_connectors_source_late_rows_total", "Rows below the watermark.", late);
    let dead = counts.iter().map(|(id, c)| (label("source", *id), c.dead as f64));
    out.counter("weir_connectors_source_dead_letters_total", "Messages that could not be decoded.", dead);
    let delivery = db.delivery_status();
    let committed = delivery.iter().filter_map(|(id, s)| Some((label("sink", *id), s.committed?.0 as f64)));
    out.gauge("weir_connectors_sink_committed_epoch", "The last epoch that the target holds.", committed);
    let failing = delivery.iter().map(|(id, s)| (label("sink", *id), f64::from(u8::from(s.error.is_some()))));
    out.gauge("weir_connectors_sink_failing", "Whether the last delivery failed.", failing);
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Prometheus's text, written by hand: these values have no life between two questions.
#[derive(Default)]
struct Metrics {
    text: String,
}

impl Metrics {
    fn gauge(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
        self.write(name, "gauge", help, values);
    }

    fn counter(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
        self.write(name, "counter", help, values);
    }

    fn write(&mut self, name: &str, kind: &str, help: &str, values: impl IntoIterator<Item = (String, f64)>) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.text, "{name}{labels} {value}");
        }
    }
}
