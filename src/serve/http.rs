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
    let checkpoints = db.checkpoint_facts();
    let of_status = |status: &str| checkpoints.iter().filter(|c| c.status == status).count() as f64;
    let by_status = ["pending", "completed", "aborted"].map(|s| (format!("status=\"{s}\""), of_status(s)));
    out.gauge("weir_checkpoint_recent", "Checkpoints among the last few hundred, by status.", by_status);
    let Some(last) = checkpoints.iter().rfind(|c| c.status == "completed") else { return };
    let one = |value: f64| [(String::new(), value)];
    out.gauge("weir_checkpoint_last_epoch", "The last completed checkpoint.", one(last.epoch as f64));
    let seconds = last.duration_us as f64 / 1e6;
    out.gauge("weir_checkpoint_last_duration_seconds", "From trigger to manifest.", one(seconds));
    out.gauge("weir_checkpoint_last_bytes", "Bytes that it names.", one(last.total_bytes as f64));
    out.gauge("weir_checkpoint_last_new_bytes", "Bytes stored for it.", one(last.new_bytes as f64));
    let triggered = last.triggered_at_us as f64 / 1e6;
    out.gauge("weir_checkpoint_last_time_seconds", "When it was triggered.", one(triggered));
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
