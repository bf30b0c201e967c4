//! Runs a batch plan, with limits.

use super::{QueryOptions, ServeContext, ServeError};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;

impl ServeContext {
    /// Runs `plan` at the newest visible epoch. Errors of rows come in the stream.
    pub async fn execute(
        &self,
        _plan: LogicalPlan,
        _options: QueryOptions,
    ) -> Result<SendableRecordBatchStream, ServeError> {
        Err(ServeError::new(weir_catalog::SqlState::FEATURE_NOT_SUPPORTED, "not yet"))
    }
}
