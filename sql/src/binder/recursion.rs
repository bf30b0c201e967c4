//! WITH RECURSIVE: the recursive term reads rows of the types that the first term has.
//!
//! DataFusion gives the work table the types that literals have before they are typed as PostgreSQL
//! types them: `SELECT 1` is a bigint then, and an integer afterwards.

use super::common_type::adopted_inputs;
use super::context::WorkTableSource;
use super::literals::typed;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::Transformed;
use datafusion_expr::{LogicalPlan, LogicalPlanBuilder, RecursiveQuery};
use datafusion_optimizer::AnalyzerRule;
use std::sync::Arc;

/// Runs before literals are typed.
#[derive(Debug)]
pub(super) struct WorkTables;

impl AnalyzerRule for WorkTables {
    fn name(&self) -> &str {
        "work_tables"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let typed = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::RecursiveQuery(query) => Ok(Transformed::yes(typed_query(query)?)),
            other => Ok(Transformed::no(other)),
        });
        Ok(typed?.data)
    }
}

fn typed_query(query: RecursiveQuery) -> Result<LogicalPlan> {
    let first = typed(Arc::unwrap_or_clone(query.static_term))?;
    let fields = first.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let recursive = Arc::unwrap_or_clone(query.recursive_term).transform_up_with_subqueries(|plan| {
        let LogicalPlan::TableScan(scan) = &plan else {
            return Transformed::yes(plan).map_data(|plan| plan.recompute_schema());
        };
        match scan.source.downcast_ref::<WorkTableSource>() {
            Some(work) if work.name == query.name => {
                let source = WorkTableSource { name: work.name.clone(), schema: Arc::clone(&schema) };
                let scan = LogicalPlanBuilder::scan(scan.table_name.clone(), Arc::new(source), None)?;
                Ok(Transformed::yes(scan.build()?))
            }
            _ => Ok(Transformed::no(plan)),
        }
    })?;
    let recursive = typed(recursive.data)?;
    let types: Vec<_> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
    let recursive = adopted_inputs(vec![recursive], &types)?.pop();
    let Some(recursive) = recursive else {
        return datafusion_common::internal_err!("a recursive query has a recursive term");
    };
    LogicalPlanBuilder::from(first).to_recursive_query(query.name, recursive, query.is_distinct)?.build()
}
