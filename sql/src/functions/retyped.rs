//! DataFusion's functions that mean what PostgreSQL's do but give another type: the result is cast.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::Result;
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion_functions_nested::position;
use std::sync::Arc;

/// The functions of this file.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    [position::array_position_udf()]
        .into_iter()
        .map(|inner| Arc::new(ScalarUDF::from(Retyped { inner, output: DataType::Int32 })))
        .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Retyped {
    inner: Arc<ScalarUDF>,
    output: DataType,
}

impl ScalarUDFImpl for Retyped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types).map(|_| self.output.clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let inner = self.inner.return_field_from_args(args)?;
        Ok(Arc::new(Field::new(inner.name(), self.output.clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let inner_type = self.inner.return_type(&types)?;
        let return_field = Arc::new(Field::new(self.name(), inner_type, true));
        self.inner.invoke_with_args(ScalarFunctionArgs { return_field, ..args })?.cast_to(&self.output, None)
    }
}
