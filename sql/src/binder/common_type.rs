//! The common type of what stands side by side: arguments, results of CASE, columns of a UNION.
//!
//! COALESCE, NULLIF, GREATEST and LEAST are wrapped while names are bound: a quoted literal among
//! their arguments has no type yet, which DataFusion's functions would refuse before it can get one.

use super::literals::is_unknown;
use crate::error::SqlError;
use crate::functions::error::external;
use crate::functions::real;
use crate::functions::type_name;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Column, Result};
use datafusion_expr::expr::Cast;
use datafusion_expr::type_coercion::binary::type_union_coercion;
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{
    ColumnarValue, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use weir_catalog::SqlState;

/// A function whose arguments have one common type, lenient towards text. The analyzer gives the
/// literals their type and puts the function itself in its place.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CommonType {
    pub(super) inner: Arc<ScalarUDF>,
    signature: Signature,
}

/// `function`, wrapped if it is one of those.
pub(super) fn lenient(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    if !matches!(function.name(), "coalesce" | "nullif" | "greatest" | "least") {
        return function;
    }
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(CommonType { inner: function, signature }))
}

fn is_string(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The types with text taken for the first that is not.
fn known(types: &[DataType]) -> Vec<DataType> {
    let known = types.iter().find(|t| !is_string(t) && **t != DataType::Null);
    real::preferred(
        types.iter().map(|t| if is_string(t) { known.unwrap_or(t) } else { t }).cloned().collect(),
    )
}

/// PostgreSQL's categories of types: those of one category have a common type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Category {
    Boolean,
    Number,
    Text,
    Date,
    Time,
    Interval,
    Bytes,
    List,
    Other,
}

fn category(data_type: &DataType) -> Category {
    match data_type {
        DataType::Boolean => Category::Boolean,
        t if t.is_numeric() => Category::Number,
        t if is_string(t) => Category::Text,
        DataType::Date32 | DataType::Timestamp(..) => Category::Date,
        DataType::Time64(_) => Category::Time,
        DataType::Interval(_) => Category::Interval,
        DataType::Binary => Category::Bytes,
        DataType::List(_) => Category::List,
        _ => Category::Other,
    }
}

/// `COALESCE types date and text cannot be matched`, if they can't.
pub(super) fn check(what: &str, types: &[DataType]) -> Result<()> {
    let mut known = types.iter().filter(|t| **t != DataType::Null);
    let Some(first) = known.next() else { return Ok(()) };
    match known.find(|t| category(t) != category(first)) {
        Some(other) => {
            let (what, first, other) = (what.to_uppercase(), type_name(first), type_name(other));
            let message = format!("{what} types {first} and {other} cannot be matched");
            Err(external(SqlError::new(SqlState::DATATYPE_MISMATCH, message)))
        }
        None => Ok(()),
    }
}

/// Whether a column of a plan is a quoted literal, which has no type yet.
fn is_unknown_column(plan: &LogicalPlan, column: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_unknown(unaliased(&projection.expr[column])),
        LogicalPlan::SubqueryAlias(alias) => is_unknown_column(&alias.input, column),
        LogicalPlan::Distinct(Distinct::All(input)) => is_unknown_column(input, column),
        _ => false,
    }
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// The types that the columns of `inputs` have in common, or the error that they have none.
pub(super) fn common_types(what: &str, inputs: &[&LogicalPlan]) -> Result<Vec<DataType>> {
    let arity = inputs.first().map_or(0, |input| input.schema().fields().len());
    let mut common = Vec::with_capacity(arity);
    for column in 0..arity {
        let type_of = |input: &&&LogicalPlan| input.schema().field(column).data_type().clone();
        let known: Vec<DataType> =
            inputs.iter().filter(|input| !is_unknown_column(input, column)).map(|i| type_of(&i)).collect();
        check(what, &known)?;
        let mut known = known.into_iter().filter(|t| *t != DataType::Null);
        let text = || {
            if inputs.iter().any(|i| is_unknown_column(i, column)) { DataType::Utf8 } else { DataType::Null }
        };
        let first = known.next().unwrap_or_else(text);
        common.push(
            known
                .try_fold(first, |a, b| match a == b {
                    true => Some(a),
                    false => real::common(&a, &b).or_else(|| type_union_coercion(&a, &b)),
                })
                .unwrap_or(DataType::Utf8),
        );
    }
    Ok(common)
}

/// The inputs with their columns cast to these types where they have others.
pub(super) fn adopted_inputs(inputs: Vec<LogicalPlan>, types: &[DataType]) -> Result<Vec<LogicalPlan>> {
    let cast = |plan: LogicalPlan| -> Result<LogicalPlan> {
        let schema = plan.schema();
        if schema.fields().iter().zip(types).all(|(field, wanted)| field.data_type() == wanted) {
            return Ok(plan);
        }
        let exprs: Vec<Expr> = schema
            .iter()
            .zip(types)
            .map(|((qualifier, field), wanted)| {
                let column = Expr::Column(Column::from((qualifier, field)));
                match field.data_type() == wanted {
                    true => column,
                    false => Expr::Cast(Cast::new(Box::new(column), wanted.clone()))
                        .alias_qualified(qualifier.cloned(), field.name()),
                }
            })
            .collect();
        LogicalPlanBuilder::from(plan).project(exprs)?.build()
    };
    inputs.into_iter().map(cast).collect()
}

impl ScalarUDFImpl for CommonType {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let field = |t: DataType| -> FieldRef { Arc::new(Field::new("", t, true)) };
        let fields: Vec<FieldRef> = known(types).into_iter().map(field).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.iter().map(|f| f.data_type().clone()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
