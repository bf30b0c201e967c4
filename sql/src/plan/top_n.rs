//! ORDER BY with LIMIT, and `row_number()` under a filter, to top-n nodes.
//!
//! ```text
//!   Filter rn <= 3 and x > 0                     Filter x > 0
//!     Window row_number() by g order by o   →      TopN group g order o limit 3
//! ```

use super::exprs::{check_keys, computed, project, trim, with_columns};
use super::lower::{Lowering, filtered, limit_of};
use super::node::{PlanNode, PlanOp, SortKey};
use crate::error::SqlError;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{Column, ScalarValue};
use datafusion_expr::utils::{conjunction, split_conjunction};
use datafusion_expr::{
    Between, BinaryExpr, Expr, Filter, Limit, LogicalPlan, Operator, Projection, Sort, SortExpr, Window,
    WindowFunctionDefinition, expr::WindowFunction,
};
use std::sync::Arc;

/// Rows `offset..offset + limit` of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RankRange {
    /// How many come before.
    pub(super) offset: u64,
    /// How many there are, if bounded.
    pub(super) limit: Option<u64>,
}

impl RankRange {
    /// Also `number >= first`.
    fn from(self, first: i128) -> Self {
        let skipped = u64::try_from(first - 1).unwrap_or(0);
        let offset = self.offset.max(skipped);
        let limit = self.limit.map(|l| (self.offset + l).saturating_sub(offset));
        Self { offset, limit }
    }

    /// Also `number <= last`.
    fn to(self, last: i128) -> Self {
        let rows = u64::try_from(last).unwrap_or(0).saturating_sub(self.offset);
        Self { limit: Some(self.limit.map_or(rows, |l| l.min(rows))), ..self }
    }

    /// Narrowed by `number op value`, if that is what it says.
    fn narrowed(self, op: Operator, value: i128) -> Option<Self> {
        Some(match op {
            Operator::Lt => self.to(value - 1),
            Operator::LtEq => self.to(value),
            Operator::Gt => self.from(value + 1),
            Operator::GtEq => self.from(value),
            Operator::Eq => self.from(value).to(value),
            _ => return None,
        })
    }
}

/// A `row_number()` below projections that only pass columns on.
pub(super) struct Ranked<'a> {
    /// From the outermost.
    projections: Vec<&'a Projection>,
    window: &'a Window,
}

impl<'a> Ranked<'a> {
    /// The `row_number()` at or below `plan`, if there is nothing else between.
    pub(super) fn below(plan: &'a LogicalPlan) -> Option<Self> {
        let mut projections = Vec::new();
        let mut plan = plan;
        loop {
            match plan {
                LogicalPlan::Window(window) if row_number_of(window).is_some() => {
                    return Some(Self { projections, window });
                }
                LogicalPlan::SubqueryAlias(alias) => plan = &alias.input,
                LogicalPlan::Projection(projection)
                    if projection.expr.iter().all(|e| column_of(e).is_some()) =>
                {
                    projections.push(projection);
                    plan = &projection.input;
                }
                _ => return None,
            }
        }
    }

    /// Whether this column of the outermost plan is the window function's result.
    pub(super) fn is_rank(&self, index: usize) -> bool {
        let mut index = index;
        for projection in &self.projections {
            let column = projection.expr.get(index).and_then(column_of);
            match column.and_then(|c| projection.input.schema().maybe_index_of_column(c)) {
                Some(below) => index = below,
                None => return false,
            }
        }
        index + 1 == self.window.schema.fields().len()
    }
}

/// The column that an expression is, under whatever name.
fn column_of(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => column_of(&alias.expr),
        _ => None,
    }
}

/// A projection that passes columns on, over a node that may lack the last one of its input.
fn project_ranked(node: PlanNode, projection: &Projection, ranked: bool) -> Result<PlanNode, SqlError> {
    let schema = projection.input.schema();
    let there = |expr: &Expr| {
        let index = column_of(expr).and_then(|c| schema.maybe_index_of_column(c));
        ranked || index.is_none_or(|i| i < node.arity() && i + 1 < schema.fields().len())
    };
    let mut columns = Vec::with_capacity(projection.expr.len());
    for (expr, field) in projection.expr.iter().zip(projection.schema.fields()).filter(|(e, _)| there(e)) {
        columns.push(computed(expr, &node, schema, field)?);
    }
    Ok(if columns.is_empty() { node } else { project(node, columns) })
}

impl Lowering<'_> {
    /// ORDER BY: a view has no order, but one that is cut off matters.
    pub(super) fn lower_sort(&self, sort: &Sort) -> Result<PlanNode, SqlError> {
        match sort.fetch {
            None => self.node(&sort.input),
            Some(fetch) => self.ordered(sort, RankRange { offset: 0, limit: Some(fetch as u64) }),
        }
    }

    /// LIMIT, with the ORDER BY below it, which projections may hide.
    pub(super) fn lower_limit(&self, limit: &Limit) -> Result<PlanNode, SqlError> {
        let (offset, rows) = limit_of(limit)?;
        let range = RankRange { offset, limit: rows };
        match self.ordered_below(&limit.input, range)? {
            Some(node) => Ok(node),
            None => {
                let node = self.node(&limit.input)?;
                top_n(node, Vec::new(), Vec::new(), range, false)
            }
        }
    }

    fn ordered_below(&self, plan: &LogicalPlan, range: RankRange) -> Result<Option<PlanNode>, SqlError> {
        match plan {
            LogicalPlan::Sort(sort) => {
                let range = match sort.fetch {
                    Some(fetch) => {
                        let left = (fetch as u64).saturating_sub(range.offset);
                        RankRange { limit: Some(range.limit.map_or(left, |l| l.min(left))), ..range }
                    }
                    None => range,
                };
                self.ordered(sort, range).map(Some)
            }
            LogicalPlan::SubqueryAlias(alias) => self.ordered_below(&alias.input, range),
            LogicalPlan::Projection(projection) => {
                let Some(node) = self.ordered_below(&projection.input, range)? else {
                    return Ok(None);
                };
                project_again(node, projection).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn ordered(&self, sort: &Sort, range: RankRange) -> Result<PlanNode, SqlError> {
        let arity = sort.input.schema().fields().len();
        let node = trim(self.node(&sort.input)?, arity);
        let exprs: Vec<&Expr> = sort.expr.iter().map(|s| &s.expr).collect();
        let (node, places) = with_columns(node, &exprs, sort.input.schema())?;
        let node = top_n(node, Vec::new(), sort_keys(&sort.expr, &places), range, false)?;
        Ok(trim(node, arity))
    }

    /// A filter over a row number: the number's bounds, then what else it asks. `ranked`: whether
    /// the number is looked at above.
    pub(super) fn lower_filtered_rank(
        &self,
        filter: &Filter,
        below: &Ranked<'_>,
        ranked: bool,
    ) -> Result<PlanNode, SqlError> {
        let schema = filter.input.schema();
        let names_rank = |c: &Column| schema.maybe_index_of_column(c).is_some_and(|i| below.is_rank(i));
        let is_rank = |e: &Expr| is_column(e, &names_rank);
        let mut range = RankRange::default();
        let mut rest = Vec::new();
        for conjunct in split_conjunction(&filter.predicate) {
            match narrowed_by(range, conjunct, &is_rank) {
                Some(narrower) => range = narrower,
                None => rest.push(conjunct.clone()),
            }
        }
        let asked = rest.iter().flat_map(|e| e.column_refs()).any(names_rank);
        // Columns are left out at the end only.
        let last = schema.fields().len() - 1;
        let movable = (0..last).all(|i| !below.is_rank(i));
        let ranked = ranked || asked || !movable;
        let mut node = self.lower_ranked(below.window, range, ranked)?;
        for projection in below.projections.iter().rev() {
            node = project_ranked(node, projection, ranked)?;
        }
        match conjunction(rest) {
            Some(predicate) => filtered(node, &predicate, schema),
            None => Ok(node),
        }
    }

    /// `row_number()` of rows in `range`; without `ranked` the number itself is left out.
    pub(super) fn lower_ranked(
        &self,
        window: &Window,
        range: RankRange,
        ranked: bool,
    ) -> Result<PlanNode, SqlError> {
        let function = row_number_of(window)
            .ok_or_else(|| SqlError::not_supported("a rank by other than row_number()"))?;
        let arity = window.input.schema().fields().len();
        let node = trim(self.node(&window.input)?, arity);
        let mut exprs: Vec<&Expr> = function.params.partition_by.iter().collect();
        let groups = exprs.len();
        exprs.extend(function.params.order_by.iter().map(|s| &s.expr));
        let (node, places) = with_columns(node, &exprs, window.input.schema())?;
        let order = sort_keys(&function.params.order_by, &places[groups..]);
        let node = top_n(node, places[..groups].to_vec(), order, range, ranked)?;
        if !ranked {
            return Ok(trim(node, arity));
        }
        let rank = node.arity() - 1;
        let keep: Vec<usize> = (0..arity).chain([rank]).collect();
        Ok(super::exprs::select(node, &keep))
    }
}

fn top_n(
    node: PlanNode,
    mut group: Vec<usize>,
    order: Vec<SortKey>,
    range: RankRange,
    rank: bool,
) -> Result<PlanNode, SqlError> {
    // A column that carries a watermark goes first: groups below it expire.
    if let Some(at) = group.iter().position(|c| node.properties.watermarks.contains(c)) {
        group[..=at].rotate_right(1);
    }
    check_keys(&node, &group, "the PARTITION BY")?;
    let all: Vec<usize> = (0..node.arity()).collect();
    check_keys(&node, &all, "the ordered")?;
    let mut fields: Vec<Field> = node.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    if rank {
        fields.push(Field::new("row_number", DataType::Int64, false));
    }
    let op = PlanOp::TopN { group, order, offset: range.offset, limit: range.limit, rank };
    Ok(PlanNode::over(op, vec![node], Arc::new(Schema::new(fields))))
}

pub(super) fn sort_keys(exprs: &[SortExpr], places: &[usize]) -> Vec<SortKey> {
    let mut keys: Vec<SortKey> = Vec::with_capacity(exprs.len());
    for (expr, column) in exprs.iter().zip(places) {
        // A column decides once.
        if keys.iter().all(|k| k.column != *column) {
            keys.push(SortKey { column: *column, descending: !expr.asc, nulls_first: expr.nulls_first });
        }
    }
    keys
}

/// The projection over a node that its input became.
fn project_again(node: PlanNode, projection: &Projection) -> Result<PlanNode, SqlError> {
    let mut columns = Vec::with_capacity(projection.expr.len());
    for (expr, field) in projection.expr.iter().zip(projection.schema.fields()) {
        columns.push(computed(expr, &node, projection.input.schema(), field)?);
    }
    Ok(project(node, columns))
}

/// The window's only function, if it is `row_number()`.
pub(super) fn row_number_of(window: &Window) -> Option<&WindowFunction> {
    let [expr] = window.window_expr.as_slice() else { return None };
    let mut expr = expr;
    while let Expr::Alias(alias) = expr {
        expr = &alias.expr;
    }
    match expr {
        Expr::WindowFunction(function) => match &function.fun {
            WindowFunctionDefinition::WindowUDF(udf) if udf.name() == "row_number" => Some(function),
            _ => None,
        },
        _ => None,
    }
}

fn is_column(expr: &Expr, wanted: &dyn Fn(&Column) -> bool) -> bool {
    match expr {
        Expr::Column(column) => wanted(column),
        Expr::Cast(cast) => cast.field.data_type().is_integer() && is_column(&cast.expr, wanted),
        _ => false,
    }
}

fn narrowed_by(range: RankRange, conjunct: &Expr, is_rank: &dyn Fn(&Expr) -> bool) -> Option<RankRange> {
    match conjunct {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            if is_rank(left) {
                range.narrowed(*op, integer(right)?)
            } else if is_rank(right) {
                range.narrowed(op.swap()?, integer(left)?)
            } else {
                None
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) if is_rank(expr) => {
            Some(range.from(integer(low)?).to(integer(high)?))
        }
        _ => None,
    }
}

fn integer(expr: &Expr) -> Option<i128> {
    let Expr::Literal(value, _) = expr else {
        return None;
    };
    match value {
        ScalarValue::Int8(Some(v)) => Some(i128::from(*v)),
        ScalarValue::Int16(Some(v)) => Some(i128::from(*v)),
        ScalarValue::Int32(Some(v)) => Some(i128::from(*v)),
        ScalarValue::Int64(Some(v)) => Some(i128::from(*v)),
        ScalarValue::UInt64(Some(v)) => Some(i128::from(*v)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_narrow_in_any_order() {
        let all = RankRange::default();
        let range = |offset, limit| RankRange { offset, limit };
        assert_eq!(all.narrowed(Operator::LtEq, 10), Some(range(0, Some(10))));
        assert_eq!(all.narrowed(Operator::Lt, 10), Some(range(0, Some(9))));
        assert_eq!(all.narrowed(Operator::Eq, 3), Some(range(2, Some(1))));
        assert_eq!(all.from(3).to(5), range(2, Some(3)));
        assert_eq!(all.to(5).from(3), range(2, Some(3)));
        assert_eq!(all.to(5).to(2), range(0, Some(2)));
        assert_eq!(all.to(0), range(0, Some(0)));
        assert_eq!(all.from(-4), range(0, None));
        assert_eq!(all.to(2).from(5), range(4, Some(0)));
        assert_eq!(all.narrowed(Operator::NotEq, 3), None);
    }
}
