//! `pg_sleep(seconds)`: waits without keeping a thread, and ends when the query is cancelled.

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use std::time::Duration;
use weir_catalog::column::TYPE_KEY;

/// Longer than anybody waits, and short enough to be counted.
const SECONDS_MAX: f64 = 1e9;

/// The function.
pub fn pg_sleep() -> Arc<ScalarUDF> {
    let signature = Signature::exact(vec![DataType::Float64], Volatility::Volatile);
    Arc::new(AsyncScalarUDF::new(Arc::new(Sleep { signature })).into_scalar_udf())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    /// A void: it is shown as nothing.
    fn return_field_from_args(&self, _args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = Field::new("pg_sleep", DataType::Utf8, true);
        Ok(Arc::new(field.with_metadata([(TYPE_KEY.to_owned(), "void".to_owned())].into())))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        datafusion::common::not_impl_err!("pg_sleep at this place")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let seconds = args.args[0].to_array(rows)?;
        let seconds = seconds.as_primitive::<Float64Type>();
        for wait in seconds.iter().flatten() {
            if wait > 0.0 {
                tokio::time::sleep(Duration::from_secs_f64(wait.min(SECONDS_MAX))).await;
            }
        }
        let shown = (0..rows).map(|row| seconds.is_valid(row).then_some(""));
        Ok(ColumnarValue::Array(Arc::new(shown.collect::<StringArray>())))
    }
}
