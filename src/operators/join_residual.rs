//! Residual: what else must be true of a pair of rows whose keys match.
//!
//! Evaluated over whole columns of candidate pairs, of the columns that it reads only. A pair for
//! which it fails does not match, and is counted and kept (see [`super::failures`]).

use super::expr::{Appears, evaluate_predicate};
use super::failures::Failures;
use crate::dataflow::operator::OperatorError;
use crate::stream::builder::batch_of;
use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use std::sync::Arc;

/// A predicate over pairs of rows.
#[derive(Debug)]
pub struct Residual {
    /// Over the columns that it reads: the left ones, then the right ones.
    predicate: Arc<dyn PhysicalExpr>,
    schema: SchemaRef,
    /// By side: the columns that it reads, as ordinals of the side's input, ascending.
    reads: [Vec<usize>; 2],
    /// By side: the same, as ordinals of the columns that the side keeps.
    kept: [Vec<usize>; 2],
    failures: Failures,
}

impl Residual {
    /// `predicate` over all columns of the left input, then all of the right one.
    pub fn new(predicate: Arc<dyn PhysicalExpr>, inputs: [&SchemaRef; 2], failures: Failures) -> Self {
        let left = inputs[0].fields().len();
        let mut columns: Vec<usize> = collect_columns(&predicate).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let place = |index: usize| columns.binary_search(&index);
        let renumber = |node: Arc<dyn PhysicalExpr>| {
            Ok(match node.downcast_ref::<Column>().map(|c| (c.name().to_owned(), place(c.index()))) {
                Some((name, Ok(at))) => {
                    Transformed::yes(Arc::new(Column::new(&name, at)) as Arc<dyn PhysicalExpr>)
                }
                _ => Transformed::no(node),
            })
        };
        let renumbered = predicate.clone().transform(renumber).data();
        let predicate = renumbered.expect("renumbering columns can't fail");
        let field = |c: &usize| match c.checked_sub(left) {
            Some(right) => inputs[1].fields()[right].clone(),
            None => inputs[0].fields()[*c].clone(),
        };
        let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
        let (of_left, of_right): (Vec<usize>, Vec<usize>) = columns.into_iter().partition(|c| *c < left);
        let reads = [of_left, of_right.into_iter().map(|c| c - left).collect()];
        Self { predicate, schema: super::expr::nullable(&schema), kept: reads.clone(), reads, failures }
    }

    /// Sides keep these columns of their inputs.
    pub fn over(mut self, stored: [&[usize]; 2]) -> Self {
        for (side, stored) in stored.into_iter().enumerate() {
            let place = |c: &usize| stored.iter().position(|s| s == c).expect("a side keeps what is read");
            self.kept[side] = self.reads[side].iter().map(place).collect();
        }
        self
    }

    /// The columns of `side`'s input that it reads.
    pub fn reads(&self, side: usize) -> &[usize] {
        &self.reads[side]
    }

    /// The same columns, as ordinals of those that the side keeps.
    pub fn kept(&self, side: usize) -> &[usize] {
        &self.kept[side]
    }

    /// What failed since the last barrier.
    pub fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Which pairs match. `columns` are, by side, the columns read, a row a pair.
    pub fn evaluate(
        &self,
        columns: [Vec<ArrayRef>; 2],
        pairs: usize,
        appears: Appears<'_>,
    ) -> Result<BooleanArray, OperatorError> {
        let [left, right] = columns;
        let rows = batch_of(&self.schema, left.into_iter().chain(right).collect(), pairs)?;
        evaluate_predicate(&self.predicate, &rows, appears, &self.failures)
    }
}
