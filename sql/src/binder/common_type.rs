//! COALESCE, NULLIF, GREATEST and LEAST while names are bound: a quoted literal among their arguments
//! has no type yet, which DataFusion's functions would refuse before it can get one.

use crate::error::SqlError;
use crate::functions::error::external;
use crate::functions::type_name;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::Result;
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
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
    types.iter().map(|t| if is_string(t) { known.unwrap_or(t) } else { t }).cloned().collect()
}

/// `COALESCE types date and text cannot be matched`, if they can't.
pub(super) fn check(function: &str, types: &[DataType]) -> Result<()> {
    let text = types.iter().find(|t| is_string(t));
    let other = types.iter().find(|t| !is_string(t) && **t != DataType::Null);
    match (text, other) {
        (Some(text), Some(other)) => {
            let (first, second) = if is_string(&types[0]) { (text, other) } else { (other, text) };
            let function = function.to_uppercase();
            let message =
                format!("{function} types {} and {} cannot be matched", type_name(first), type_name(second));
            Err(external(SqlError::new(SqlState::DATATYPE_MISMATCH, message)))
        }
        _ => Ok(()),
    }
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
