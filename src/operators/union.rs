//! Union: many streams as one (UNION ALL).
//!
//! Changes pass through; a column's watermark is the least of all inputs'.

use super::expr::nullable;
use crate::dataflow::operator::{Operator, OperatorError, Output, Progress};
use crate::stream::builder::batch_of;
use crate::stream::watermark::WatermarkMerge;
use crate::stream::{ChangeBatch, Watermark};
use arrow::datatypes::SchemaRef;

/// All rows of all inputs.
#[derive(Debug)]
pub struct Union {
    schema: SchemaRef,
    watermarks: Vec<WatermarkMerge>,
}

impl Union {
    /// Of `inputs` inputs, whose columns have the types of `schema` and get its names.
    pub fn new(inputs: usize, schema: SchemaRef) -> Self {
        let watermarks = vec![WatermarkMerge::new(inputs); schema.fields().len()];
        Self { schema: nullable(&schema), watermarks }
    }
}

impl Operator for Union {
    fn name(&self) -> &'static str {
        "union"
    }

    fn on_change(
        &mut self,
        _port: usize,
        batch: ChangeBatch,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        let rows = batch_of(&self.schema, batch.rows().columns().to_vec(), batch.num_rows())?;
        out.push(batch.with_rows(rows));
        Ok(Progress::Done)
    }

    fn on_watermark(
        &mut self,
        port: usize,
        watermark: Watermark,
        out: &mut Output,
    ) -> Result<Progress, OperatorError> {
        if let Some(time_us) = self.watermarks[watermark.column].advance(port, watermark.time_us) {
            out.push_watermark(Watermark { time_us, ..watermark });
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::script::{check, schema};
    use arrow::datatypes::DataType;

    #[test]
    fn all_rows_pass_and_the_least_watermark() {
        let left = schema(&[("a", DataType::Int64)]);
        let right = schema(&[("b", DataType::Int64)]);
        check(
            &|| Box::new(Union::new(2, left.clone())),
            &[left.clone(), right],
            "+1 1
             p1 +1 1
             p1 -1 2
             watermark 0 10
             p1 watermark 0 7
             barrier
             p1 +1 NULL
             barrier",
            "+2 1
             -1 2
             watermark 0 7
             barrier
             +1 NULL
             barrier",
        );
    }
}
