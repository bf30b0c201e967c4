//! EXPLAIN: the plan of a statement as text.

use super::{BindContext, Bound, bind_statement, report};
use crate::error::SqlError;
use crate::parser::statement::Statement;
use datafusion_expr::{LogicalPlan, LogicalPlanBuilder};

/// The stream plan of a view, sink or index; of a query or DML a query that tells how it is run, or,
/// with `analyze`, how it ran.
pub(super) fn explain(
    statement: &Statement,
    analyze: bool,
    text: &str,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    let explained = match bind_statement(statement, text, context)? {
        Bound::Query(plan) => return batch(plan, analyze),
        _ if analyze => {
            return Err(SqlError::not_supported("EXPLAIN ANALYZE of this statement")
                .hint("EXPLAIN ANALYZE runs a SELECT; of other statements use EXPLAIN."));
        }
        Bound::Dml(dml) => return batch(dml.input, false),
        Bound::Create(create) => match &create.plan {
            Some(plan) => {
                let text = crate::plan::explain::explain(plan, &context.catalog);
                return Ok(Bound::ExplainJob(text.trim_end().to_owned()));
            }
            None => return Err(SqlError::not_supported("EXPLAIN of this statement")),
        },
        Bound::Skip { notice, .. } => notice,
        _ => return Err(SqlError::not_supported("EXPLAIN of this statement")),
    };
    Ok(Bound::Explain(explained.trim_end().to_owned()))
}

fn batch(plan: LogicalPlan, analyze: bool) -> Result<Bound, SqlError> {
    let explain = LogicalPlanBuilder::from(plan).explain(false, analyze).and_then(LogicalPlanBuilder::build);
    explain.map(Bound::ExplainQuery).map_err(|error| report::sql_error(error, None))
}
