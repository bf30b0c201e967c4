//! Window functions that number rows, with PostgreSQL's types: `row_number`, `rank` and
//! `dense_rank` are bigint, `ntile` is integer. DataFusion computes them, as unsigned.

use arrow::array::ArrayRef;
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion_expr::window_state::WindowAggState;
use datafusion_expr::{LimitEffect, PartitionEvaluator, Signature, WindowUDF, WindowUDFImpl};
use datafusion_functions_window::{ntile, rank, row_number as numbering};
use datafusion_physical_expr::PhysicalExpr;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

/// The window functions that differ from DataFusion's.
pub fn functions() -> Vec<Arc<WindowUDF>> {
    vec![
        row_number(),
        retyped(rank::rank_udwf(), DataType::Int64),
        retyped(rank::dense_rank_udwf(), DataType::Int64),
        retyped(ntile::ntile_udwf(), DataType::Int32),
    ]
}

/// `row_number()`.
pub fn row_number() -> Arc<WindowUDF> {
    retyped(numbering::row_number_udwf(), DataType::Int64)
}

fn retyped(inner: Arc<WindowUDF>, output: DataType) -> Arc<WindowUDF> {
    Arc::new(WindowUDF::from(Retyped { inner, output }))
}

/// A window function whose results are cast.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Retyped {
    inner: Arc<WindowUDF>,
    output: DataType,
}

impl WindowUDFImpl for Retyped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.partition_evaluator_factory(args)?;
        Ok(Box::new(RetypedEvaluator { inner, output: self.output.clone() }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.field(args)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(self.output.clone())))
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct RetypedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    output: DataType,
}

impl PartitionEvaluator for RetypedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> Result<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, index: usize, rows: usize) -> Result<Range<usize>> {
        self.inner.get_range(index, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, rows)?, &self.output)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.output)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> Result<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(rows, ranks)?, &self.output)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
