//! Time windows: TUMBLE and HOP to window nodes.

use super::exprs::{plan_error, trim};
use super::lower::Lowering;
use super::node::{PlanNode, PlanOp};
use crate::error::SqlError;
use crate::functions::window::WindowNode;
use arrow::datatypes::{Field, Schema};
use datafusion_expr::Extension;
use std::sync::Arc;

impl Lowering<'_> {
    pub(super) fn lower_extension(&self, extension: &Extension) -> Result<PlanNode, SqlError> {
        let Some(window) = extension.node.as_any().downcast_ref::<WindowNode>() else {
            return Err(SqlError::not_supported(format!(
                "{} in a materialized view or sink",
                extension.node.name()
            )));
        };
        let arity = window.input.schema().fields().len();
        let input = trim(self.node(&window.input)?, arity);
        let time = window.time_index().map_err(plan_error)?;
        let mut fields: Vec<Field> = input.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        fields.extend(window.schema.fields()[arity..].iter().map(|f| f.as_ref().clone()));
        let op = PlanOp::Window { kind: window.kind, time };
        Ok(PlanNode::over(op, vec![input], Arc::new(Schema::new(fields))))
    }
}
