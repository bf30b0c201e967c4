//! Table functions in FROM: the windows of [`super::window`].
//!
//! Both spellings are understood: PostgreSQL-like calls, `TUMBLE(t, ts, size)`, and the standard's,
//! `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size))`, whose `TABLE t` the parser hands over as `t`.
//! The first argument is a relation, a CTE or a subquery in parentheses.

use super::error::{external, failure};
use super::window::WindowNode;
use crate::error::SqlError;
use crate::plan::WindowKind;
use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::{Expr, Extension, LogicalPlan};
use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, TableAlias,
    TableFactor,
};
use std::sync::Arc;
use weir_catalog::SqlState;

const USAGE_TUMBLE: &str = "Write TUMBLE(relation, time_column, INTERVAL '10 seconds' [, offset]).";
const USAGE_HOP: &str = "Write HOP(relation, time_column, INTERVAL '2 seconds' (slide), INTERVAL '10 seconds' (size) [, offset]).";

/// Plans TUMBLE and HOP.
#[derive(Debug)]
pub struct WindowPlanner;

impl RelationPlanner for WindowPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let Some(call) = Call::of(&relation) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let (arguments, alias) = (call.arguments.to_vec(), call.alias.cloned());
        let plan = plan_window(call.function, arguments, context)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WindowFunction {
    Tumble,
    Hop,
}

impl WindowFunction {
    fn of(name: &ObjectName) -> Option<Self> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
            return None;
        };
        if name.value.eq_ignore_ascii_case("tumble") {
            Some(Self::Tumble)
        } else if name.value.eq_ignore_ascii_case("hop") {
            Some(Self::Hop)
        } else {
            None
        }
    }

    fn usage(self) -> SqlError {
        let (name, hint) = match self {
            Self::Tumble => ("tumble", USAGE_TUMBLE),
            Self::Hop => ("hop", USAGE_HOP),
        };
        SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("these arguments don't fit function {name}"))
            .hint(hint)
    }
}

/// A call of a window function, whatever its spelling.
struct Call<'a> {
    function: WindowFunction,
    arguments: &'a [FunctionArg],
    alias: Option<&'a TableAlias>,
}

impl<'a> Call<'a> {
    fn of(relation: &'a TableFactor) -> Option<Self> {
        match relation {
            TableFactor::Table { name, args: Some(args), alias, .. } => Some(Self {
                function: WindowFunction::of(name)?,
                arguments: &args.args,
                alias: alias.as_ref(),
            }),
            TableFactor::Function { name, args, alias, .. } => {
                Some(Self { function: WindowFunction::of(name)?, arguments: args, alias: alias.as_ref() })
            }
            TableFactor::TableFunction { expr: ast::Expr::Function(call), alias } => {
                let FunctionArguments::List(list) = &call.args else {
                    return None;
                };
                Some(Self {
                    function: WindowFunction::of(&call.name)?,
                    arguments: &list.args,
                    alias: alias.as_ref(),
                })
            }
            _ => None,
        }
    }
}

/// Windows of HOP that a row may be in: each is a row of its own.
const WINDOWS_MAX: i64 = 10_000;

fn plan_window(
    function: WindowFunction,
    arguments: Vec<FunctionArg>,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let mut exprs = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => exprs.push(expr),
            _ => return Err(external(function.usage())),
        }
    }
    let intervals = match function {
        WindowFunction::Tumble => 1,
        WindowFunction::Hop => 2,
    };
    if exprs.len() != 2 + intervals && exprs.len() != 3 + intervals {
        return Err(external(function.usage()));
    }
    let mut exprs = exprs.into_iter();
    let (Some(relation), Some(time)) = (exprs.next(), exprs.next()) else {
        return Err(external(function.usage()));
    };
    let relation = relation_of(relation).ok_or_else(|| external(function.usage()))?;
    let input = context.plan(relation)?;
    let time = context.sql_to_expr(column_of(time), input.schema())?;
    check_time(&time, input.schema())?;
    let mut sizes = Vec::with_capacity(intervals + 1);
    for expr in exprs {
        sizes.push(interval_us(context.sql_to_expr(expr, &DFSchema::empty())?)?);
    }
    let kind = window_kind(function, &sizes)?;
    let node = WindowNode::try_new(kind, time, Arc::new(input))?;
    Ok(LogicalPlan::Extension(Extension { node: Arc::new(node) }))
}

fn window_kind(function: WindowFunction, sizes: &[i64]) -> Result<WindowKind> {
    let (kind, size_us, slide_us) = match (function, sizes) {
        (WindowFunction::Tumble, [size_us, offset @ ..]) => {
            let offset_us = offset.first().copied().unwrap_or(0);
            (WindowKind::Tumble { size_us: *size_us, offset_us }, *size_us, *size_us)
        }
        (WindowFunction::Hop, [slide_us, size_us, offset @ ..]) => {
            let offset_us = offset.first().copied().unwrap_or(0);
            let kind = WindowKind::Hop { size_us: *size_us, slide_us: *slide_us, offset_us };
            (kind, *size_us, *slide_us)
        }
        _ => return Err(external(function.usage())),
    };
    if size_us <= 0 || slide_us <= 0 {
        let message = "the size and the slide of a window must be greater than zero";
        return Err(failure(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if size_us / slide_us > WINDOWS_MAX {
        let message =
            format!("a row would be in more than {WINDOWS_MAX} windows of HOP: make its slide longer");
        return Err(failure(SqlState::PROGRAM_LIMIT_EXCEEDED, &message));
    }
    Ok(kind)
}

/// The relation that an argument names.
fn relation_of(expr: ast::Expr) -> Option<TableFactor> {
    let name = match expr {
        ast::Expr::Identifier(ident) => ObjectName::from(vec![ident]),
        ast::Expr::CompoundIdentifier(parts) => ObjectName::from(parts),
        ast::Expr::Subquery(subquery) => {
            return Some(TableFactor::Derived { lateral: false, subquery, alias: None, sample: None });
        }
        ast::Expr::Nested(inner) => return relation_of(*inner),
        _ => return None,
    };
    Some(TableFactor::Table {
        name,
        alias: None,
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    })
}

/// `DESCRIPTOR(ts)` is `ts`.
fn column_of(expr: ast::Expr) -> ast::Expr {
    if let ast::Expr::Function(call) = &expr
        && call.name.to_string().eq_ignore_ascii_case("descriptor")
        && let FunctionArguments::List(list) = &call.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(column))] = list.args.as_slice()
    {
        return column.clone();
    }
    expr
}

fn check_time(time: &Expr, schema: &DFSchema) -> Result<()> {
    let Expr::Column(column) = time else {
        let error = SqlError::not_supported("a window over an expression")
            .hint("Compute the time in a subquery and name its column here.");
        return Err(external(error));
    };
    match schema.qualified_field_from_column(column)?.1.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(()),
        _ => {
            let message = format!("column \"{}\" of a window must be a timestamp", column.name);
            let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .hint("Cast it in a subquery: TUMBLE((SELECT *, ts::timestamp AS t FROM ...), t, ...).");
            Err(external(error))
        }
    }
}

/// The microseconds of an interval constant.
fn interval_us(expr: Expr) -> Result<i64> {
    let not_constant = || {
        let error =
            SqlError::new(SqlState::DATATYPE_MISMATCH, "the size of a window must be a constant interval")
                .hint("Write INTERVAL '10 seconds'.");
        external(error)
    };
    let value = match expr {
        Expr::Literal(value, _) => value,
        Expr::Alias(alias) => return interval_us(*alias.expr),
        Expr::Cast(cast) if matches!(cast.field.data_type(), DataType::Interval(_)) => match *cast.expr {
            Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
                let interval = super::parse::interval(&text).map_err(|_| not_constant())?;
                ScalarValue::IntervalMonthDayNano(Some(interval))
            }
            _ => return Err(not_constant()),
        },
        Expr::Negative(inner) => return Ok(-interval_us(*inner)?),
        _ => return Err(not_constant()),
    };
    let ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months, days, nanoseconds })) = value
    else {
        return Err(not_constant());
    };
    if months != 0 {
        let error = SqlError::not_supported("a window of months or years")
            .hint("Months differ in length: use days, or group by date_trunc('month', ts).");
        return Err(external(error));
    }
    if nanoseconds % 1_000 != 0 {
        let message = "the size of a window must be whole microseconds";
        return Err(failure(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(i64::from(days) * 86_400_000_000 + nanoseconds / 1_000)
}
