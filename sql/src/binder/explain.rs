//! EXPLAIN: the plan of a statement as text.

use super::{BindContext, Bound, bind_statement, optimize, report};
use crate::error::SqlError;
use crate::parser::statement::Statement;
use datafusion_expr::LogicalPlan;

/// The optimized plan of a query or DML, the stream plan of a view, sink or index.
pub(super) fn explain(
    statement: &Statement,
    analyze: bool,
    text: &str,
    context: &BindContext,
) -> Result<Bound, SqlError> {
    if analyze {
        return Err(SqlError::not_supported("EXPLAIN ANALYZE").hint("Use EXPLAIN."));
    }
    let explained = match bind_statement(statement, text, context)? {
        Bound::Query(plan) => batch(plan)?,
        Bound::Dml(dml) => batch(dml.input)?,
        Bound::Create(create) => match &create.plan {
            Some(plan) => crate::plan::explain::explain(plan, &context.catalog),
            None => return Err(SqlError::not_supported("EXPLAIN of this statement")),
        },
        Bound::Skip { notice, .. } => notice,
        Bound::Change { .. } | Bound::Explain(_) | Bound::Session(_) => {
            return Err(SqlError::not_supported("EXPLAIN of this statement"));
        }
    };
    Ok(Bound::Explain(explained.trim_end().to_owned()))
}

fn batch(plan: LogicalPlan) -> Result<String, SqlError> {
    let plan = optimize::optimize(plan, false).map_err(|error| report::sql_error(error, None))?;
    Ok(plan.display_indent().to_string())
}
