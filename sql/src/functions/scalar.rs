//! A scalar function as data: its name, how its arguments are typed, and the kernel.
//!
//! Most functions of this area are one [`Function`] in the list of their family's file.

use super::error::external;
use super::type_name;
use crate::error::SqlError;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DataFusionError, Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_catalog::column::TYPE_KEY;

/// Computes a column of `output` type.
#[derive(Clone, Copy)]
pub enum Kernel {
    /// Over whole columns: constants are repeated.
    Columns(fn(&[ArrayRef], &DataType) -> Result<ArrayRef>),
    /// Over columns and constants as they are.
    Values(fn(&[ColumnarValue], &DataType, usize) -> Result<ColumnarValue>),
}

/// A scalar function.
#[derive(Clone)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// Its other names.
    pub aliases: Vec<String>,
    /// The types that arguments of these types are cast to; none: there is no such function.
    pub coerce: fn(&[DataType]) -> Option<Vec<DataType>>,
    /// The result's type, for arguments of coerced types and the values of constant ones.
    pub output: fn(&[DataType], &[Option<&ScalarValue>]) -> DataType,
    /// How it is computed.
    pub kernel: Kernel,
    /// What a result of text stands for: `jsonb`, `json`.
    marker: Option<&'static str>,
    signature: Signature,
}

impl Function {
    /// An immutable function.
    pub fn new(
        name: &'static str,
        coerce: fn(&[DataType]) -> Option<Vec<DataType>>,
        output: fn(&[DataType], &[Option<&ScalarValue>]) -> DataType,
        kernel: Kernel,
    ) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { name, aliases: Vec::new(), coerce, output, kernel, marker: None, signature }
    }

    /// Also under these names.
    #[must_use]
    pub fn aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|a| (*a).to_owned()).collect();
        self
    }

    /// Whose text is jsonb, in its normal form.
    #[must_use]
    pub fn jsonb(mut self) -> Self {
        self.marker = Some("jsonb");
        self
    }

    /// Whose text is json.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.marker = Some("json");
        self
    }

    /// As DataFusion has it.
    pub fn udf(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::from(self))
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Function").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let args: Vec<String> = args.iter().map(|a| a.schema_name().to_string()).collect();
        Ok(match (args.as_slice(), is_operator(self.name)) {
            ([left, right], true) => format!("({left} {} {right})", self.name),
            _ => format!("{}({})", self.name, args.join(",")),
        })
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        // An error here would be replaced by DataFusion's own words: it comes with the type.
        Ok((self.coerce)(types).unwrap_or_else(|| types.to_vec()))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match (self.coerce)(types) {
            Some(types) => Ok((self.output)(&types, &vec![None; types.len()])),
            None => Err(no_such(self.name, types)),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        let literal =
            |types: &[DataType]| no_such_call(self.name, &literal_names(types, args.scalar_arguments));
        let types = (self.coerce)(&types).ok_or_else(|| literal(&types))?;
        let field = Field::new(self.name, (self.output)(&types, args.scalar_arguments), true);
        Ok(Arc::new(match self.marker {
            Some(marker) => field.with_metadata(marked(marker)),
            None => field,
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let output = args.return_field.data_type();
        match self.kernel {
            Kernel::Values(kernel) => kernel(&args.args, output, args.number_rows),
            Kernel::Columns(kernel) => {
                let constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
                let rows = if constant { 1 } else { args.number_rows };
                let columns =
                    args.args.into_iter().map(|a| a.into_array(rows)).collect::<Result<Vec<_>>>()?;
                let result = kernel(&columns, output)?;
                if constant {
                    return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?));
                }
                Ok(ColumnarValue::Array(result))
            }
        }
    }
}

/// The metadata of a field of text that stands for this SQL type.
pub(super) fn marked(marker: &str) -> HashMap<String, String> {
    HashMap::from([(TYPE_KEY.to_owned(), marker.to_owned())])
}

fn is_operator(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_alphabetic())
}

/// What PostgreSQL calls the types of arguments that may be literals: an integer that fits is an
/// integer, a quoted one is unknown.
pub fn literal_names(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Vec<String> {
    let name = |(i, data_type): (usize, &DataType)| match literals.get(i).copied().flatten() {
        Some(ScalarValue::Int64(Some(value))) if i32::try_from(*value).is_ok() => "integer".to_owned(),
        Some(ScalarValue::Utf8(Some(_))) => "unknown".to_owned(),
        _ => type_name(data_type),
    };
    types.iter().enumerate().map(name).collect()
}

/// 42883, as PostgreSQL says it of functions and of operators.
pub fn no_such(name: &str, types: &[DataType]) -> DataFusionError {
    no_such_call(name, &types.iter().map(type_name).collect::<Vec<_>>())
}

fn no_such_call(name: &str, names: &[String]) -> DataFusionError {
    let (what, hint) = match names {
        [left, right] if is_operator(name) => (
            format!("operator does not exist: {left} {name} {right}"),
            "No operator matches the given name and argument types. You might need to add explicit type casts.",
        ),
        _ => (
            format!("function {name}({}) does not exist", names.join(", ")),
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        ),
    };
    external(SqlError::new(SqlState::UNDEFINED_FUNCTION, what).hint(hint))
}

/// For [`Function::coerce`]: exactly these types, where NULL and a text constant fit any. Literals
/// of text have been given the type of their place before.
pub fn exactly(types: &[DataType], wanted: &[DataType]) -> Option<Vec<DataType>> {
    let fits = types.len() == wanted.len()
        && types.iter().zip(wanted).all(|(t, w)| t == w || *t == DataType::Null || implicit(t, w));
    fits.then(|| wanted.to_vec())
}

/// PostgreSQL's implicit casts between the types that we have.
fn implicit(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Decimal128, Float32, Float64, Int8, Int16, Int32, Int64, Timestamp, Utf8};
    match to {
        Int16 => matches!(from, Int8),
        Int32 => matches!(from, Int8 | Int16),
        Int64 => matches!(from, Int8 | Int16 | Int32),
        Decimal128(_, _) => matches!(from, Int8 | Int16 | Int32 | Int64 | Decimal128(_, _)),
        Float32 => matches!(from, Int8 | Int16 | Int32 | Int64 | Decimal128(_, _)),
        Float64 => matches!(from, Int8 | Int16 | Int32 | Int64 | Decimal128(_, _) | Float32),
        Timestamp(_, _) => matches!(from, Date32 | Timestamp(_, _)),
        Utf8 => matches!(from, DataType::LargeUtf8 | DataType::Utf8View),
        _ => false,
    }
}
