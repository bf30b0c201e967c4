//! From an analyzed plan to one that is worth translating: DataFusion's logical optimizer, less the
//! rules that pay only in a batch.

use super::decorrelate::Decorrelate;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, Result};
use datafusion_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion_expr::{
    Distinct, DistinctOn, Expr, LogicalPlan, LogicalPlanBuilder, WindowFrame, WindowFunctionDefinition, lit,
};
use datafusion_optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion_optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion_optimizer::eliminate_cross_join::EliminateCrossJoin;
use datafusion_optimizer::eliminate_duplicated_expr::EliminateDuplicatedExpr;
use datafusion_optimizer::eliminate_filter::EliminateFilter;
use datafusion_optimizer::eliminate_group_by_constant::EliminateGroupByConstant;
use datafusion_optimizer::eliminate_join::EliminateJoin;
use datafusion_optimizer::eliminate_limit::EliminateLimit;
use datafusion_optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion_optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion_optimizer::filter_null_join_keys::FilterNullJoinKeys;
use datafusion_optimizer::optimize_projections::OptimizeProjections;
use datafusion_optimizer::optimize_unions::OptimizeUnions;
use datafusion_optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion_optimizer::push_down_filter::PushDownFilter;
use datafusion_optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion_optimizer::rewrite_set_comparison::RewriteSetComparison;
use datafusion_optimizer::scalar_subquery_to_join::ScalarSubqueryToJoin;
use datafusion_optimizer::simplify_expressions::SimplifyExpressions;
use datafusion_optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use std::sync::Arc;

/// The options that binding and planning go by: PostgreSQL's NULL order, text as `Utf8`, decimal
/// literals.
pub fn planning_options() -> ConfigOptions {
    let mut options = ConfigOptions::default();
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.default_null_ordering = "nulls_max".to_owned();
    options.optimizer.filter_null_join_keys = true;
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    options
}

/// Optimizes an analyzed plan for streaming. Reads no clock: `now()` stays.
pub fn optimize(plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
    let mut options = options.clone();
    options.optimizer.filter_null_join_keys = true;
    options.optimizer.enable_physical_uncorrelated_scalar_subquery = false;
    let plan = plan.transform_up_with_subqueries(|plan| distinct_on_as_row_number(plan, false))?.data;
    let context =
        OptimizerContext::new_with_config_options(Arc::new(options)).without_query_execution_start_time();
    Optimizer::with_rules(rules()).optimize(plan, &context, |_, _| {})
}

/// Left out: pushing limits into inputs, turning DISTINCT aggregates into two GROUP BYs and unions
/// into filters: each would keep more state than it saves work.
fn rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    vec![
        Arc::new(RewriteSetComparison::new()),
        Arc::new(OptimizeUnions::new()),
        Arc::new(SimplifyExpressions::new()),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(EliminateJoin::new()),
        Arc::new(Decorrelate::default()),
        Arc::new(ScalarSubqueryToJoin::new()),
        Arc::new(DecorrelateLateralJoin::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateDuplicatedExpr::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateCrossJoin::new()),
        Arc::new(EliminateLimit::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(FilterNullJoinKeys::default()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(EliminateGroupByConstant::new()),
        Arc::new(CommonSubexprEliminate::new()),
        Arc::new(OptimizeProjections::new()),
    ]
}

/// DISTINCT ON (a) … ORDER BY a, b keeps the first row of each a: `row_number() = 1`. DataFusion
/// would make `first_value` aggregates of it, one a column. `sorted`: the rows come in that order.
pub(crate) fn distinct_on_as_row_number(plan: LogicalPlan, sorted: bool) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Distinct(Distinct::On(DistinctOn { on_expr, select_expr, sort_expr, input, schema })) =
        plan
    else {
        return Ok(Transformed::no(plan));
    };
    let order = sort_expr.unwrap_or_default();
    let number = Expr::WindowFunction(Box::new(WindowFunction {
        fun: WindowFunctionDefinition::WindowUDF(crate::functions::ranking::row_number()),
        params: WindowFunctionParams {
            args: Vec::new(),
            partition_by: on_expr,
            order_by: order.clone(),
            window_frame: WindowFrame::new(Some(false)),
            filter: None,
            null_treatment: None,
            distinct: false,
        },
    }));
    let name = number.schema_name().to_string();
    let columns: Vec<Expr> = select_expr
        .into_iter()
        .zip(schema.iter())
        .map(|(expr, (qualifier, field))| expr.alias_qualified(qualifier.cloned(), field.name()))
        .collect();
    let first = LogicalPlanBuilder::from(input)
        .window(vec![number])?
        .filter(Expr::Column(Column::from_name(name)).eq(lit(1i64)))?;
    let first = if sorted && !order.is_empty() { first.sort(order)? } else { first };
    Ok(Transformed::yes(first.project(columns)?.build()?))
}
