//! A function that does not exist, until its arguments' types are known: then an error can say so
//! as PostgreSQL does.

use crate::error::SqlError;
use crate::functions::{error::external, scalar::literal_names, type_name};
use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::Result;
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use weir_catalog::SqlState;

/// Stands for a function that does not exist.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct UnknownFunction {
    name: String,
    nearest: Option<String>,
    signature: Signature,
}

impl UnknownFunction {
    pub(super) fn new(name: &str, nearest: Option<String>) -> Self {
        let kinds = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
        let signature = Signature::one_of(kinds, Volatility::Volatile);
        Self { name: name.to_owned(), nearest, signature }
    }
}

impl ScalarUDFImpl for UnknownFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Err(external(undefined_function(&self.name, types, self.nearest.as_deref())))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let names = literal_names(&types, args.scalar_arguments);
        Err(external(undefined(&self.name, &names, self.nearest.as_deref())))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(external(undefined_function(&self.name, &[], self.nearest.as_deref())))
    }
}

/// `function f(types) does not exist`.
pub(super) fn undefined_function(name: &str, types: &[DataType], nearest: Option<&str>) -> SqlError {
    undefined(name, &types.iter().map(type_name).collect::<Vec<_>>(), nearest)
}

fn undefined(name: &str, types: &[String], nearest: Option<&str>) -> SqlError {
    let error = SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {name}({}) does not exist", types.join(", ")),
    );
    match nearest {
        Some(nearest) => error.hint(format!("Perhaps you meant the function {nearest}.")),
        None => error.hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        ),
    }
}
