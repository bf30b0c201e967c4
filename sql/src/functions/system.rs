//! What PostgreSQL tells about values and itself: `pg_typeof`.

use super::scalar::{Function, Kernel};
use super::type_name;
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};
use std::sync::Arc;
use weir_catalog::column::{TYPE_KEY, base_type};

/// The functions of this file.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let signature = Signature::any(1, Volatility::Immutable);
    vec![Arc::new(ScalarUDF::from(PgTypeof { signature })), marked()]
}

/// `weir_marked(x, text)` is x under another name, until the plan is analyzed.
pub const MARKED: &str = "weir_marked";

fn marked() -> Arc<ScalarUDF> {
    let any = |types: &[DataType]| (types.len() == 2).then(|| types.to_vec());
    let first = |args: &[ArrayRef], _: &DataType| Ok(Arc::clone(&args[0]));
    Function::new(MARKED, any, |types, _| types[0].clone(), Kernel::Columns(first)).udf()
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
        let name = match field.metadata().get(TYPE_KEY) {
            // A length is no part of the type.
            Some(marker) => base_type(marker),
            None => type_name(field.data_type()),
        };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(name))))
    }
}
