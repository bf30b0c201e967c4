//! The rules that a bound plan goes through: PostgreSQL's typing of literals, coercion, and
//! optimizer rules, fewer of them where the plan is to run as a stream.

use super::grouped_names::GroupedNames;
use super::lateral::LateralUnnest;
use super::literals::LiteralTypes;
use super::ordered_input::OrderedInput;
use super::recursion::WorkTables;
use super::subquery::SingleRow;
use crate::functions;
use crate::plan::decorrelate::Decorrelate;
use crate::plan::optimize as streaming;
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::LogicalPlan;
use datafusion_optimizer::analyzer::{Analyzer, AnalyzerRule};
use datafusion_optimizer::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// DataFusion's settings as binding wants them.
pub fn config() -> ConfigOptions {
    let mut config = streaming::planning_options();
    config.sql_parser.collect_spans = true;
    // The order of a subquery is what some aggregates over it go by.
    config.sql_parser.enable_subquery_sort_elimination = false;
    config.execution.time_zone = Some(super::types::UTC.to_owned());
    config.optimizer.skip_failed_rules = false;
    config
}

/// Types literals and operands. A plan must be analyzed before it is optimized or lowered.
pub fn analyze(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(LateralUnnest),
        Arc::new(GroupedNames),
        Arc::new(OrderedInput),
        Arc::new(SingleRow),
        Arc::new(WorkTables),
        Arc::new(LiteralTypes),
    ];
    rules.extend(functions::analyzer_rules());
    Analyzer::with_rules(rules).execute_and_check(plan, &config(), |_, _| {})
}

/// Optimizes an analyzed plan with the rules that keep a plan fit for streams. No clock is read: `now()`
/// stays a call. A query's plan is optimized where it is run, by [`batch_rules`].
pub fn optimize(plan: LogicalPlan) -> Result<LogicalPlan> {
    streaming::optimize(plan, &config())
}

/// The rules for a batch. Left out is one DISTINCT aggregate among others as two GROUP BYs: the sum
/// of a sum of integers has another type in PostgreSQL than the sum, so the plan would not fit.
/// DISTINCT ON is a row number, as in a stream, and not a `first_value` of each column.
pub fn batch_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    rules.retain(|rule| rule.name() != "single_distinct_aggregation_to_group_by");
    for rule in &mut rules {
        if rule.name() == "decorrelate_predicate_subquery" {
            *rule = Arc::new(Decorrelate::default());
        }
    }
    rules.insert(0, Arc::new(DistinctOnRows));
    rules
}

/// DISTINCT ON in a batch, whose rows come in the order that was asked for.
#[derive(Debug)]
struct DistinctOnRows;

impl OptimizerRule for DistinctOnRows {
    fn name(&self) -> &str {
        "weir_distinct_on"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        streaming::distinct_on_as_row_number(plan, true)
    }
}
