//! Rewrites of a bound plan that give operators and casts PostgreSQL's meaning, whoever put them
//! there: the user, or DataFusion's type coercion.

use super::comparison::Keys;
use super::{cast, comparison, math, numeric, operator, real, string};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, Result};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion_optimizer::AnalyzerRule;

/// Before type coercion: arithmetic that was bound as DataFusion's (beside parameters) becomes ours,
/// intervals and jsonb are compared by their keys, `SIMILAR TO` gets a pattern that it understands, and what
/// constants say about types is settled.
#[derive(Debug)]
pub struct Operators;

impl AnalyzerRule for Operators {
    fn name(&self) -> &str {
        "weir_operators"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite(plan, |expr, schema| match comparison::compared(expr, Keys::Forms, schema)? {
            Expr::BinaryExpr(binary) => operator::replaced(real::comparable(binary, schema)?, schema),
            Expr::Between(between) => real::between(between, schema),
            Expr::InList(list) => real::in_list(list, schema),
            Expr::Case(case) => real::case(case, schema),
            Expr::ScalarFunction(call) => Ok(math::with_constant_digits(call)),
            Expr::Literal(value, metadata) => {
                Ok(Expr::Literal(numeric::without_negative_scale(value), metadata))
            }
            Expr::Negative(inner) => operator::negated(*inner, schema),
            Expr::SimilarTo(like) => Ok(Expr::SimilarTo(string::similar_pattern(like))),
            other => Ok(other),
        })
    }
}

/// In a batch: floats are compared by their keys.
#[derive(Debug)]
pub struct Floats;

impl AnalyzerRule for Floats {
    fn name(&self) -> &str {
        "weir_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite(plan, |expr, schema| comparison::compared(expr, Keys::Floats, schema))
    }
}

/// After type coercion: casts.
#[derive(Debug)]
pub struct Casts;

impl AnalyzerRule for Casts {
    fn name(&self) -> &str {
        "weir_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        rewrite(plan, cast_expr)
    }
}

/// All casts of an expression, as PostgreSQL means them.
pub fn with_casts(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|e| Ok(Transformed::yes(cast_expr(e, schema)?)))?.data)
}

fn cast_expr(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::Cast(inner) => {
            let from = inner.expr.get_type(schema)?;
            Ok(cast::replaced(inner, &from))
        }
        other => Ok(other),
    }
}

/// Rewrites every expression of a plan bottom-up, subqueries included, and keeps the names.
fn rewrite(plan: LogicalPlan, change: impl Fn(Expr, &DFSchema) -> Result<Expr>) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        // DataFusion wants a limit to stay a literal.
        if matches!(plan, LogicalPlan::Limit(_)) {
            return Ok(Transformed::no(plan));
        }
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema
                .merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|e| Ok(Transformed::yes(change(e, &schema)?)))?.data;
            Ok(Transformed::yes(name.restore(changed)))
        })?
        .map_data(|plan| plan.recompute_schema())
    });
    Ok(rewritten?.data)
}
