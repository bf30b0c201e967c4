//! What PostgreSQL tells about values and itself: `pg_typeof`.

use super::type_name;
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;

/// The functions of this file.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let signature = Signature::any(1, Volatility::Immutable);
    vec![Arc::new(ScalarUDF::from(PgTypeof { signature }))]
}

/// `pg_typeof(x)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PgTypeof {
    signature: Signature,
}

impl ScalarUDFImpl for PgTypeof {
    fn name(&self) -> &str {
        "pg_typeof"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = &args.arg_fields[0];
        let name = field.metadata().get("weir.type").cloned().unwrap_or_else(|| type_name(field.data_type()));
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
    }
}
