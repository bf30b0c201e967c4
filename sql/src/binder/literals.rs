//! Literals and operands typed as PostgreSQL types them.
//!
//! DataFusion reads every integer as a bigint and lets text and numbers meet in text. In
//! PostgreSQL an integer literal is an `integer` if it fits, a quoted literal next to something of
//! a known type takes that type, and an operator on text and a number does not exist.

use super::common_type::{self, CommonType};
use super::types::TYPE_KEY;
use super::{arrays, report, set_operations};
use crate::error::SqlError;
use crate::functions::quantified::is_quantified;
use crate::functions::real;
use crate::functions::system::MARKED;
use crate::functions::{error::external, type_name};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{Case, Cast, InList, Placeholder, ScalarFunction};
use datafusion_expr::expr_rewriter::NamePreserver;
use datafusion_expr::type_coercion::binary::BinaryTypeCoercer;
use datafusion_expr::utils::merge_schema;
use datafusion_expr::{
    Between, BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Union,
};
use datafusion_optimizer::AnalyzerRule;
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::SqlState;

/// Runs before DataFusion's coercion.
#[derive(Debug)]
pub(super) struct LiteralTypes;

impl AnalyzerRule for LiteralTypes {
    fn name(&self) -> &str {
        "literal_types"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        typed(plan)
    }
}

/// A plan with its literals and operands typed.
pub(super) fn typed(plan: LogicalPlan) -> Result<LogicalPlan> {
    Ok(plan.transform_up_with_subqueries(retype_node)?.data)
}

fn retype_node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    match plan {
        // A limit is a bigint in PostgreSQL too, and DataFusion wants it to be a literal.
        LogicalPlan::Limit(mut limit) => {
            for number in limit.skip.iter_mut().chain(&mut limit.fetch) {
                **number = adopt(std::mem::take(number.as_mut()), Some(&DataType::Int64));
            }
            Ok(Transformed::yes(LogicalPlan::Limit(limit)))
        }
        LogicalPlan::Values(values) => {
            let rows = values.values.into_iter().map(|row| {
                row.into_iter().map(|expr| retype(expr, &DFSchema::empty())).collect::<Result<Vec<_>>>()
            });
            let rows = unknown_to_known(rows.collect::<Result<Vec<_>>>()?)?;
            Ok(Transformed::yes(LogicalPlanBuilder::values(rows)?.build()?))
        }
        // Its types follow from those of the inputs, which may have changed.
        LogicalPlan::Union(union) => {
            let inputs: Vec<&LogicalPlan> = union.inputs.iter().map(AsRef::as_ref).collect();
            let types = common_type::common_types("UNION", &inputs)?;
            let inputs = union.inputs.into_iter().map(Arc::unwrap_or_clone).collect();
            let inputs = common_type::adopted_inputs(inputs, &types)?.into_iter().map(Arc::new).collect();
            Ok(Transformed::yes(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?)))
        }
        LogicalPlan::Join(join) if set_operations::is_set_operation(&join) => {
            Ok(Transformed::yes(set_operations::rewritten(join)?))
        }
        plan => {
            let schema = input_schema(&plan)?;
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                Ok(Transformed::yes(name.restore(retype(expr, &schema)?)))
            })?
            .map_data(|plan| plan.recompute_schema())
        }
    }
}

/// In a column of VALUES, quoted literals and parameters take the type of the others.
fn unknown_to_known(mut rows: Vec<Vec<Expr>>) -> Result<Vec<Vec<Expr>>> {
    let arity = rows.first().map_or(0, Vec::len);
    for column in 0..arity {
        let mut known = None;
        for row in &rows {
            match row.get(column).map(|e| (is_unknown(e), e.get_type(&DFSchema::empty()))) {
                Some((false, Ok(data_type))) if data_type != DataType::Null => known = Some(data_type),
                _ => {}
            }
        }
        for expr in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *expr = adopt(std::mem::take(expr), known.as_ref());
        }
    }
    Ok(rows)
}

fn input_schema(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    Ok(schema)
}

/// An expression and all in it.
pub(super) fn retype(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(expr.transform_up(|expr| retype_one(expr, schema).map(Transformed::yes))?.data)
}

fn retype_one(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), metadata) => Ok(match i32::try_from(value) {
            Ok(value) => Expr::Literal(ScalarValue::Int32(Some(value)), metadata),
            Err(_) => Expr::Literal(ScalarValue::Int64(Some(value)), metadata),
        }),
        Expr::Literal(ScalarValue::UInt64(Some(value)), metadata) => {
            Ok(Expr::Literal(ScalarValue::Decimal128(Some(i128::from(value)), 20, 0), metadata))
        }
        Expr::Cast(Cast { expr, field })
            if matches!(field.data_type(), DataType::List(_)) && is_unknown(&expr) =>
        {
            Ok(cast(*expr, field.data_type()))
        }
        Expr::Cast(cast) => {
            check_cast(&cast.expr.get_type(schema)?, cast.field.data_type())?;
            Ok(Expr::Cast(cast))
        }
        Expr::BinaryExpr(binary) => retype_binary(binary, schema),
        Expr::Between(between) => {
            let known = known_type(&between.expr, schema);
            Ok(Expr::Between(Between {
                low: Box::new(adopt(*between.low, known.as_ref())),
                high: Box::new(adopt(*between.high, known.as_ref())),
                ..between
            }))
        }
        Expr::InList(list) => {
            let known = known_type(&list.expr, schema);
            let marked = marked_field(&list.expr, schema);
            let item = |item| adopt(normalized(item, marked.as_ref()), known.as_ref());
            let items = list.list.into_iter().map(item).collect();
            Ok(Expr::InList(InList { list: items, ..list }))
        }
        Expr::Case(case) => retype_case(case, schema).map(Expr::Case),
        Expr::ScalarFunction(call) => retype_call(call, schema),
        other => Ok(other),
    }
}

/// `cannot cast type integer to date`: casts that the user wrote and PostgreSQL does not have.
fn check_cast(from: &DataType, to: &DataType) -> Result<()> {
    use DataType::{Binary, Boolean, Date32, Int32, Interval, Null, Time64, Timestamp};
    let allowed = match (from, to) {
        (from, to) if from == to || is_string(from) || is_string(to) || *from == Null => true,
        (Boolean, to) => *to == Int32,
        (from, Boolean) => *from == Int32,
        (from, to) if from.is_numeric() => to.is_numeric(),
        (Date32 | Timestamp(..), to) if to.is_numeric() => false,
        (Time64(_) | Interval(_) | Binary, to) if to.is_numeric() => false,
        (Date32, Time64(_) | Interval(_)) | (Timestamp(..), Interval(_)) => false,
        (Time64(_) | Interval(_), Date32 | Timestamp(..)) => false,
        (Binary, _) | (_, Binary) => false,
        _ => true,
    };
    if allowed {
        return Ok(());
    }
    let message = format!("cannot cast type {} to {}", type_name(from), type_name(to));
    Err(external(SqlError::new(SqlState("42846"), message)))
}

/// COALESCE and its kin get their arguments typed, and are themselves again. A mark has told an
/// expression from another by its name, and goes.
fn retype_call(mut call: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
    if call.func.name() == MARKED && call.args.len() == 2 {
        return Ok(call.args.swap_remove(0));
    }
    if is_quantified(&call.func) {
        return Ok(Expr::ScalarFunction(quantified(call, schema)));
    }
    let Some(lenient) = call.func.inner().downcast_ref::<CommonType>() else {
        return Ok(Expr::ScalarFunction(call));
    };
    let known = call.args.iter().find_map(|arg| known_type(arg, schema));
    let mut args: Vec<Expr> = call.args.iter().map(|arg| adopt(arg.clone(), known.as_ref())).collect();
    let types = args.iter().map(|arg| arg.get_type(schema)).collect::<Result<Vec<_>>>()?;
    common_type::check(lenient.inner.name(), &types)?;
    real::align(&mut args.iter_mut().collect::<Vec<_>>(), schema)?;
    Ok(Expr::ScalarFunction(ScalarFunction { func: Arc::clone(&lenient.inner), args }))
}

/// `x = ANY (array)`: a literal or parameter has the type that the other one tells.
fn quantified(mut call: ScalarFunction, schema: &DFSchema) -> ScalarFunction {
    let [value, list] = call.args.as_mut_slice() else { return call };
    match (known_type(value, schema), known_type(list, schema)) {
        (Some(of_value), None) => {
            let of_list = DataType::List(Arc::new(Field::new_list_field(of_value, true)));
            *list = adopt(std::mem::take(list), Some(&of_list));
        }
        (_, Some(DataType::List(item))) => {
            *value = adopt(std::mem::take(value), Some(item.data_type()));
        }
        _ => {}
    }
    call
}

fn retype_case(mut case: Case, schema: &DFSchema) -> Result<Case> {
    let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    let known = results.into_iter().find_map(|result| known_type(result, schema));
    let operand = case.expr.as_ref().and_then(|operand| known_type(operand, schema));
    for (when, then) in &mut case.when_then_expr {
        **then = adopt(std::mem::take(then.as_mut()), known.as_ref());
        **when = adopt(std::mem::take(when.as_mut()), operand.as_ref());
    }
    if let Some(otherwise) = &mut case.else_expr {
        **otherwise = adopt(std::mem::take(otherwise.as_mut()), known.as_ref());
    }
    // What ELSE gives counts most.
    let results = case.else_expr.iter().chain(case.when_then_expr.iter().map(|(_, then)| then));
    let types = results.map(|result| result.get_type(schema)).collect::<Result<Vec<_>>>()?;
    common_type::check("CASE", &types)?;
    Ok(case)
}

fn retype_binary(binary: BinaryExpr, schema: &DFSchema) -> Result<Expr> {
    let BinaryExpr { mut left, op, mut right } = binary;
    if adopts(op) {
        match (is_unknown(&left), is_unknown(&right)) {
            (true, false) => {
                *left =
                    normalized(*left, marked_field(&right, schema).filter(|_| is_comparison(op)).as_ref());
                *left = adopt_operand(*left, op, known_type(&right, schema));
            }
            (false, true) => {
                *right =
                    normalized(*right, marked_field(&left, schema).filter(|_| is_comparison(op)).as_ref());
                *right = adopt_operand(*right, op, known_type(&left, schema));
            }
            _ => {}
        }
    }
    if is_comparison(op) {
        check_not_json([&left, &right], op, schema)?;
    }
    if let (Ok(l), Ok(r)) = (left.get_type(schema), right.get_type(schema)) {
        let mixed =
            is_comparison(op) && is_string(&l) != is_string(&r) && l != DataType::Null && r != DataType::Null;
        if mixed || BinaryTypeCoercer::new(&l, &op, &r).get_input_types().is_err() {
            let error = report::no_operator(&type_name(&l), &op.to_string(), &type_name(&r));
            return Err(external(error));
        }
    }
    Ok(Expr::BinaryExpr(BinaryExpr { left, op, right }))
}

/// json has no comparisons, as it is text that may say the same in other words.
fn check_not_json(operands: [&Expr; 2], op: Operator, schema: &DFSchema) -> Result<()> {
    let names = operands.map(|operand| {
        let field = operand.to_field(schema).ok()?.1;
        Some(match field.metadata().get(TYPE_KEY) {
            Some(marker) => weir_catalog::column::base_type(marker),
            None if is_unknown(operand) => "unknown".to_owned(),
            None => type_name(field.data_type()),
        })
    });
    let [Some(left), Some(right)] = names else { return Ok(()) };
    match left == "json" || right == "json" {
        true => Err(external(report::no_operator(&left, &op.to_string(), &right))),
        false => Ok(()),
    }
}

fn is_comparison(op: Operator) -> bool {
    op.supports_propagation()
        || matches!(op, Operator::NotEq | Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
}

fn adopts(op: Operator) -> bool {
    let arithmetic = matches!(
        op,
        Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo
    );
    arithmetic || is_comparison(op)
}

/// A quoted literal as an operand takes the other's type. Next to a date or time, `+` and `-` mean
/// an interval, unless it is the minus of two of them.
fn adopt_operand(literal: Expr, op: Operator, other: Option<DataType>) -> Expr {
    let temporal = matches!(other, Some(DataType::Timestamp(..) | DataType::Time64(_)));
    match op {
        Operator::Plus if temporal => {
            cast(literal, &DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano))
        }
        _ => adopt(literal, other.as_ref()),
    }
}

/// A quoted literal takes a known type that is not text, and a parameter without a type any.
fn adopt(expr: Expr, known: Option<&DataType>) -> Expr {
    match (expr, known) {
        (Expr::Placeholder(Placeholder { id, field: None }), Some(known)) => Expr::Placeholder(Placeholder {
            id,
            field: Some(Arc::new(Field::new("parameter", known.clone(), true))),
        }),
        (expr, Some(known)) if is_unknown(&expr) && !is_string(known) => cast(expr, known),
        (expr, _) => expr,
    }
}

fn cast(expr: Expr, to: &DataType) -> Expr {
    if let (Expr::Literal(ScalarValue::Utf8(Some(text)), _), DataType::List(item)) = (&expr, to)
        && let Some(list) = arrays::array_literal(text, item.data_type())
    {
        return Expr::Literal(list, None);
    }
    Expr::Cast(Cast::new(Box::new(expr), to.clone()))
}

/// Whether PostgreSQL would say that it is of type unknown: a quoted literal.
pub(super) fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// The field of an expression whose text has a normal form: uuid, jsonb, or `character(n)`, which
/// ends without spaces.
fn marked_field(expr: &Expr, schema: &DFSchema) -> Option<FieldRef> {
    let (_, field) = expr.to_field(schema).ok()?;
    match field.metadata().get(TYPE_KEY).map(String::as_str)? {
        "uuid" | "jsonb" => Some(field),
        marker if marker.starts_with("character(") => {
            let unsized_marker = HashMap::from([(TYPE_KEY.to_owned(), "bpchar".to_owned())]);
            Some(Arc::new(field.as_ref().clone().with_metadata(unsized_marker)))
        }
        _ => None,
    }
}

/// A quoted literal next to a uuid or jsonb is one.
fn normalized(expr: Expr, marked: Option<&FieldRef>) -> Expr {
    match marked {
        Some(field) if is_unknown(&expr) => {
            Expr::Cast(Cast::new_from_field(Box::new(expr), Arc::clone(field)))
        }
        _ => expr,
    }
}

/// The type of an expression that is neither a quoted literal nor NULL.
fn known_type(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    if is_unknown(expr) {
        return None;
    }
    expr.get_type(schema).ok().filter(|t| *t != DataType::Null)
}

fn is_string(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
