//! Results of an aggregate that do not fit their type: NULL, counted, and the group kept as a dead
//! letter where the result appears.
//!
//! Accumulators count what did not fit and go on; only where that happened are the groups looked at
//! one by one.

use super::aggregate::Aggregate;
use crate::dataflow::operator::OperatorError;
use crate::stream::builder::batch_of;
use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_catalog::SqlState;
use weir_sql::SqlError;
use weir_sql::functions::error::external;

impl Aggregate {
    /// The calls' results for `groups`. `appear`: they are what the groups have now, rather than
    /// what they had.
    pub(super) fn results(&self, groups: &[u32], appear: bool) -> Result<Vec<ArrayRef>, OperatorError> {
        let columns = self.calls.output(groups, &self.rows)?;
        if self.errors.swap(0, Ordering::Relaxed) > 0 && appear {
            self.keep_failures(groups)?;
        }
        Ok(columns)
    }

    /// Takes note of the groups whose results fail.
    fn keep_failures(&self, groups: &[u32]) -> Result<(), OperatorError> {
        for group in groups {
            self.calls.output(&[*group], &self.rows)?;
            if self.errors.swap(0, Ordering::Relaxed) == 0 {
                continue;
            }
            let keys = self.groups.keys(&[*group])?;
            let fields: Vec<_> = self.schema.fields().iter().take(keys.len()).cloned().collect();
            let row = batch_of(&Arc::new(Schema::new(fields)), keys, 1)?;
            let message = "the result of an aggregate is out of range";
            let error = external(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
            self.failures.take(&row, true, &error);
        }
        Ok(())
    }
}
