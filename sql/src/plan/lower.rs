//! Logical plan to stream plan: one function an operator, by what the logical node is.
//!
//! The plan is analyzed and optimized ([`super::optimize`]); what streaming can't do is refused
//! here, by name and with a hint.

use super::exprs::{computed, physical, plan_error, project, trim};
use super::node::{PlanNode, PlanOp, StreamPlan};
use super::scan;
use super::top_n::{Ranked, row_number_of};
use crate::error::SqlError;
use crate::rewrite::exchange::place_exchanges;
use arrow::datatypes::{Field, Schema};
use datafusion_common::DFSchema;
use datafusion_expr::{Distinct, Filter, LogicalPlan, Projection, Union};
use std::sync::Arc;
use weir_catalog::CatalogSnapshot;

/// Translates an optimized logical plan, with the exchanges it needs inside. How the output must be
/// spread is for its reader to say: [`crate::rewrite::exchange::with_output_distribution`].
pub fn lower(plan: &LogicalPlan, catalog: &CatalogSnapshot) -> Result<StreamPlan, SqlError> {
    let lowering = Lowering { catalog };
    let node = lowering.node(plan)?;
    let node = named(trim(node, plan.schema().fields().len()), plan.schema());
    Ok(place_exchanges(node))
}

/// What lowering knows while it goes down a plan.
pub(super) struct Lowering<'a> {
    catalog: &'a CatalogSnapshot,
}

impl Lowering<'_> {
    /// Translates a plan and what is below it.
    pub(super) fn node(&self, plan: &LogicalPlan) -> Result<PlanNode, SqlError> {
        match plan {
            LogicalPlan::Projection(projection) => self.lower_projection(projection),
            LogicalPlan::Filter(filter) => self.lower_filter(filter),
            LogicalPlan::Window(window) if row_number_of(window).is_some() => {
                self.lower_ranked(window, Default::default(), true)
            }
            LogicalPlan::Window(window) => self.lower_over(window),
            LogicalPlan::Aggregate(aggregate) => self.lower_aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => self.lower_distinct(input),
            LogicalPlan::Sort(sort) => self.lower_sort(sort),
            LogicalPlan::Limit(limit) => self.lower_limit(limit),
            LogicalPlan::Join(join) => self.lower_join(join),
            LogicalPlan::Union(union) => self.lower_union(union),
            LogicalPlan::TableScan(table) => scan::lower_scan(table, self.catalog),
            LogicalPlan::Values(values) => scan::lower_values(values),
            LogicalPlan::EmptyRelation(empty) => scan::lower_empty(empty),
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input),
            LogicalPlan::Repartition(repartition) => self.node(&repartition.input),
            LogicalPlan::Extension(extension) => self.lower_extension(extension),
            other => Err(refused(other)),
        }
    }

    fn lower_projection(&self, projection: &Projection) -> Result<PlanNode, SqlError> {
        let input = self.projected_input(projection)?;
        let schema = projection.input.schema();
        let mut columns = Vec::with_capacity(projection.expr.len());
        for (expr, field) in projection.expr.iter().zip(projection.schema.fields()) {
            columns.push(computed(expr, &input, schema, field)?);
        }
        if columns.is_empty() {
            return Ok(input);
        }
        Ok(project(input, columns))
    }

    /// The input of a projection. A row number that only a filter below looked at isn't computed.
    fn projected_input(&self, projection: &Projection) -> Result<PlanNode, SqlError> {
        if let LogicalPlan::Filter(filter) = &*projection.input
            && let Some(below) = Ranked::below(&filter.input)
        {
            let schema = projection.input.schema();
            let used = projection.expr.iter().flat_map(|e| e.column_refs());
            let ranked =
                used.into_iter().any(|c| schema.maybe_index_of_column(c).is_some_and(|i| below.is_rank(i)));
            return self.lower_filtered_rank(filter, &below, ranked);
        }
        self.node(&projection.input)
    }

    /// A filter; over a row number it is a top-n.
    fn lower_filter(&self, filter: &Filter) -> Result<PlanNode, SqlError> {
        if let Some(below) = Ranked::below(&filter.input) {
            return self.lower_filtered_rank(filter, &below, true);
        }
        let input = self.node(&filter.input)?;
        filtered(input, &filter.predicate, filter.input.schema())
    }

    fn lower_union(&self, union: &Union) -> Result<PlanNode, SqlError> {
        let arity = union.schema.fields().len();
        let mut inputs = Vec::with_capacity(union.inputs.len());
        for input in &union.inputs {
            inputs.push(trim(self.node(input)?, arity));
        }
        let fields: Vec<Field> = (0..inputs[0].arity())
            .map(|i| {
                let nullable = inputs.iter().any(|n| n.schema.field(i).is_nullable());
                inputs[0].schema.field(i).clone().with_nullable(nullable)
            })
            .collect();
        for input in &inputs {
            let unlike =
                input.schema.fields().iter().zip(&fields).find(|(a, b)| a.data_type() != b.data_type());
            if let Some((a, b)) = unlike {
                let (a, b) =
                    (crate::functions::type_name(a.data_type()), crate::functions::type_name(b.data_type()));
                return Err(SqlError::not_supported(format!("a UNION of {a} with {b}"))
                    .hint("Cast the columns to the same type."));
            }
        }
        Ok(PlanNode::over(PlanOp::Union, inputs, Arc::new(Schema::new(fields))))
    }
}

/// `node` with only the rows for which `predicate` is true.
pub(super) fn filtered(
    node: PlanNode,
    predicate: &datafusion_expr::Expr,
    schema: &DFSchema,
) -> Result<PlanNode, SqlError> {
    let predicate = physical(predicate, schema)?;
    // Filters pushed down in several passes may arrive several times.
    if matches!(&node.op, PlanOp::Filter { predicate: below } if below.eq(&predicate)) {
        return Ok(node);
    }
    let schema = node.schema.clone();
    Ok(PlanNode::over(PlanOp::Filter { predicate }, vec![node], schema))
}

/// The root under the names that the query gives its columns.
fn named(node: PlanNode, schema: &DFSchema) -> PlanNode {
    let fields: Vec<Field> = node
        .schema
        .fields()
        .iter()
        .enumerate()
        .map(|(i, f)| match schema.fields().get(i) {
            Some(named) => f.as_ref().clone().with_name(named.name()),
            None => f.as_ref().clone(),
        })
        .collect();
    let columns =
        fields.into_iter().enumerate().map(|(i, f)| (super::exprs::passed(&node, i).0, f)).collect();
    project(node, columns)
}

fn refused(plan: &LogicalPlan) -> SqlError {
    let (what, hint) = match plan {
        LogicalPlan::Unnest(_) => ("unnest", "Unnest when the rows are inserted."),
        LogicalPlan::RecursiveQuery(_) => ("WITH RECURSIVE", "Bound the depth and join that often."),
        LogicalPlan::Subquery(_) => ("LATERAL", "Write the subquery as a join."),
        LogicalPlan::Distinct(_) => ("DISTINCT ON at this place", "Write row_number() OVER (...) = 1."),
        other => {
            let what = format!("{} in a materialized view or sink", other.display());
            return SqlError::not_supported(what);
        }
    };
    SqlError::not_supported(format!("{what} in a materialized view or sink")).hint(hint)
}

/// The constant rows of `OFFSET` and `LIMIT`.
pub(super) fn limit_of(limit: &datafusion_expr::Limit) -> Result<(u64, Option<u64>), SqlError> {
    use datafusion_expr::{FetchType, SkipType};
    let refused =
        || SqlError::not_supported("a LIMIT or OFFSET that is not a constant").hint("Write a number.");
    let skip = match limit.get_skip_type().map_err(plan_error)? {
        SkipType::Literal(rows) => rows as u64,
        SkipType::UnsupportedExpr => return Err(refused()),
    };
    let fetch = match limit.get_fetch_type().map_err(plan_error)? {
        FetchType::Literal(rows) => rows.map(|r| r as u64),
        FetchType::UnsupportedExpr => return Err(refused()),
    };
    Ok((skip, fetch))
}
