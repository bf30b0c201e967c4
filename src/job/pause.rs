//! A sink whose log is full ends, alone.
//!
//! Its target was down for so long that what waits for it takes `sink.log_limit`. The sink's job is
//! taken out of the dataflow at a barrier: no other job notices, and the disk does not fill up. What
//! is logged is delivered when the target is back, so that it holds an exact prefix of the sink's
//! changes. What came after is not kept: the user drops the sink and creates it anew.

use super::incarnation::Lasting;
use super::manager::JobError;
use std::sync::Arc;
use weir_catalog::{CatalogChange, ObjectId, ObjectState};

/// What watches the sinks' logs.
#[derive(Clone)]
pub struct LogLimit {
    /// `sink.log_limit`, as it is now.
    pub bytes: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Told of a sink whose log has reached it.
    pub reached: Arc<dyn Fn(ObjectId) + Send + Sync>,
}

impl LogLimit {
    /// Of a database.
    pub fn of(lasting: &Arc<Lasting>) -> Self {
        let (settings, reached) = (Arc::downgrade(lasting), Arc::downgrade(lasting));
        let runtime = tokio::runtime::Handle::current();
        Self {
            bytes: Arc::new(move || settings.upgrade().map_or(u64::MAX, |l| l.settings().sink_log_limit)),
            reached: Arc::new(move |sink| {
                let Some(lasting) = reached.upgrade() else { return };
                runtime.spawn(async move {
                    if let Err(error) = pause(&lasting, sink).await {
                        tracing::error!(%sink, %error, "could not pause a sink whose log is full");
                    }
                });
            }),
        }
    }
}

async fn pause(lasting: &Arc<Lasting>, sink: ObjectId) -> Result<(), JobError> {
    let answer = {
        let _ddl = lasting.ddl_lock.lock().await;
        let catalog = lasting.catalog();
        let Some(object) = catalog.by_id(sink).filter(|o| o.state == ObjectState::Created) else {
            return Ok(());
        };
        tracing::error!(sink = %object.name, "sink paused: its log reached sink.log_limit");
        let incarnation = lasting.incarnation()?;
        lasting.log_changes(&[CatalogChange::Pause(sink)])?;
        incarnation.running.change(Vec::new(), &[sink], None)?
    };
    answer
        .await
        .unwrap_or_else(|_| Err("the dataflow is restarting".to_owned()))
        .map(drop)
        .map_err(|e| JobError::interrupted(&e))
}
