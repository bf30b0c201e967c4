//! Functions that read the clock: `now()` and its kin. They don't: the planner of a SELECT puts the
//! statement's time in their place; where it has none (a view's plan) they stay, and are refused.

use super::calendar::DAY_US;
use super::datetime::timestamptz;
use super::error::failure;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let clock = |name, aliases: &[&str], output| {
        Arc::new(ScalarUDF::from(Clock {
            name,
            aliases: aliases.iter().map(|a| (*a).to_owned()).collect(),
            output,
            signature: Signature::nullary(Volatility::Stable),
        }))
    };
    let local = DataType::Timestamp(TimeUnit::Microsecond, None);
    vec![
        clock(
            "now",
            &["current_timestamp", "transaction_timestamp", "statement_timestamp", "clock_timestamp"],
            timestamptz(),
        ),
        clock("localtimestamp", &[], local),
        clock("current_date", &["today"], DataType::Date32),
        clock("current_time", &["localtime"], DataType::Time64(TimeUnit::Microsecond)),
    ]
}

/// A function of the statement's time. The session's time zone is UTC.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Clock {
    name: &'static str,
    aliases: Vec<String>,
    output: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for Clock {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(self.output.clone())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let message = format!("{}() is not known here: the plan was made without a time", self.name);
        Err(failure(SqlState::INTERNAL_ERROR, message))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let Some(now) = info.query_execution_start_time() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let us = now.timestamp_micros();
        let value = match &self.output {
            DataType::Date32 => ScalarValue::Date32(Some(us.div_euclid(DAY_US) as i32)),
            DataType::Time64(_) => ScalarValue::Time64Microsecond(Some(us.rem_euclid(DAY_US))),
            DataType::Timestamp(_, zone) => ScalarValue::TimestampMicrosecond(Some(us), zone.clone()),
            other => ScalarValue::try_from(other)?,
        };
        Ok(ExprSimplifyResult::Simplified(Expr::Literal(value, None)))
    }
}
