//! PostgreSQL's functions over the catalog and the session: what `psql` and drivers ask with.
//!
//! They are made anew for each statement, because they carry its catalog and its session. A row's
//! worth of them is a handful of look-ups; nothing here is on a hot path.

use super::pg_relations::{
    OWNER_NAME, PgIndex, PgRelation, indexes, number_of, relations, schema_oid, schemas, system_relations,
};
use super::system::{SYSTEM_TABLES, to_array};
use super::{ServeError, SessionInfo, pg_bodies, sleep};
use crate::config::Config;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};
use weir_catalog::CatalogSnapshot;
use weir_catalog::system::Value;

/// What the functions know.
pub struct FunctionState {
    /// The catalog that the statement is bound with.
    pub catalog: Arc<CatalogSnapshot>,
    /// Who asks.
    pub session: SessionInfo,
    /// What the server was started with.
    pub config: Arc<Config>,
    relations: LazyLock<Vec<PgRelation>, Box<dyn FnOnce() -> Vec<PgRelation> + Send>>,
    indexes: LazyLock<Vec<PgIndex>, Box<dyn FnOnce() -> Vec<PgIndex> + Send>>,
}

impl FunctionState {
    /// For one statement.
    pub fn new(catalog: Arc<CatalogSnapshot>, session: SessionInfo, config: Arc<Config>) -> Self {
        let (for_relations, for_indexes) = (Arc::clone(&catalog), Arc::clone(&catalog));
        let all = move || {
            let mut all = relations(&for_relations);
            all.extend(system_relations(&SYSTEM_TABLES));
            all
        };
        Self {
            catalog,
            session,
            config,
            relations: LazyLock::new(Box::new(all)),
            indexes: LazyLock::new(Box::new(move || indexes(&for_indexes))),
        }
    }

    /// The relation of this number; indexes are not among them.
    pub fn relation(&self, oid: i64) -> Option<&PgRelation> {
        self.relations.iter().find(|r| r.oid == oid)
    }

    /// The index of this number.
    pub fn index(&self, oid: i64) -> Option<&PgIndex> {
        self.indexes.iter().find(|i| i.oid == oid)
    }

    /// The index whose constraint has this number.
    pub fn constraint(&self, oid: i64) -> Option<&PgIndex> {
        self.indexes.iter().find(|i| i.constraint == Some(oid))
    }

    /// Where unqualified names are looked up, in order.
    pub fn path(&self) -> impl Iterator<Item = &str> {
        let own = self.session.search_path.iter().map(String::as_str);
        std::iter::once("pg_catalog").chain(own.filter(|s| *s != "pg_catalog"))
    }

    /// The schemas of the path that exist, without `pg_catalog`.
    pub fn own_schemas(&self) -> impl Iterator<Item = &str> {
        let exists = |s: &&str| schemas(&self.catalog).iter().any(|known| known == s);
        self.session.search_path.iter().map(String::as_str).filter(exists)
    }

    /// Schema and name of a relation or index.
    pub fn name_of(&self, oid: i64) -> Option<(&str, &str)> {
        let relation = self.relation(oid).map(|r| (r.schema.as_str(), r.name.as_str()));
        relation.or_else(|| self.index(oid).map(|i| (i.schema.as_str(), i.name.as_str())))
    }

    /// The number of the relation or index of this name, in `schema` or along the path.
    pub fn oid_of(&self, schema: Option<&str>, name: &str) -> Option<i64> {
        let in_schema = |schema: &str| {
            let relation = self.relations.iter().find(|r| r.schema == schema && r.name == name);
            let index = || self.indexes.iter().find(|i| i.schema == schema && i.name == name);
            relation.map(|r| r.oid).or_else(|| index().map(|i| i.oid))
        };
        match schema {
            Some(schema) => in_schema(schema),
            None => self.path().find_map(in_schema),
        }
    }

    /// Whether an unqualified name finds this relation.
    pub fn is_visible(&self, oid: i64) -> Option<bool> {
        let (_, name) = self.name_of(oid)?;
        Some(self.oid_of(None, name) == Some(oid))
    }

    /// The number of a schema that exists.
    pub fn schema(&self, name: &str) -> Option<i64> {
        schemas(&self.catalog).iter().any(|s| s == name).then(|| schema_oid(name))
    }

    /// A role's name.
    pub fn role(&self, oid: i64) -> String {
        if oid == number_of(&self.session.user) { self.session.user.clone() } else { OWNER_NAME.to_owned() }
    }
}

/// The type of a function's result.
#[derive(Clone)]
pub enum Returns {
    /// Always this.
    Always(DataType),
    /// Text of a number, the number of a text.
    Other,
}

/// How a function computes one row.
pub type Body = fn(&FunctionState, &[Value]) -> Result<Value, ServeError>;

/// One function, as it is listed.
pub struct FunctionSpec {
    /// Its name.
    pub name: &'static str,
    /// How many arguments it takes.
    pub arguments: RangeInclusive<usize>,
    /// What it returns.
    pub returns: Returns,
    /// Whether NULL in its first argument makes its result NULL.
    pub strict: bool,
    /// What it does.
    pub body: Body,
}

struct CatalogFunction {
    spec: &'static FunctionSpec,
    state: Arc<FunctionState>,
    signature: Signature,
}

/// The functions of one statement.
pub fn functions(state: FunctionState) -> Vec<Arc<ScalarUDF>> {
    let state = Arc::new(state);
    let function = |spec: &'static FunctionSpec| {
        let signature = Signature::one_of(
            spec.arguments
                .clone()
                .map(|n| match n {
                    0 => datafusion::logical_expr::TypeSignature::Nullary,
                    n => datafusion::logical_expr::TypeSignature::Any(n),
                })
                .collect(),
            Volatility::Stable,
        );
        let function = CatalogFunction { spec, state: Arc::clone(&state), signature };
        Arc::new(ScalarUDF::new_from_impl(function))
    };
    pg_bodies::FUNCTIONS.iter().map(function).chain([sleep::pg_sleep()]).collect()
}

impl fmt::Debug for CatalogFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CatalogFunction({})", self.spec.name)
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.spec.name == other.spec.name && Arc::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec.name.hash(state);
    }
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.spec.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(match &self.spec.returns {
            Returns::Always(data_type) => data_type.clone(),
            Returns::Other if arguments.first().is_some_and(DataType::is_integer) => DataType::Utf8,
            Returns::Other => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns: Vec<Vec<Value>> =
            args.args.iter().map(|a| values_of(&a.to_array(rows)?)).collect::<Result<_>>()?;
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            let arguments: Vec<Value> = columns.iter().map(|c| c[row].clone()).collect();
            let value = if self.spec.strict && arguments.first() == Some(&Value::Null) {
                Value::Null
            } else {
                (self.spec.body)(&self.state, &arguments).map_err(DataFusionError::from)?
            };
            results.push(value);
        }
        let array = to_array(args.return_field.data_type(), results.iter());
        if constant {
            let value = datafusion::common::ScalarValue::try_from_array(&array, 0)?;
            return Ok(ColumnarValue::Scalar(value));
        }
        Ok(ColumnarValue::Array(array))
    }
}

/// A list type of nullable `item`s.
pub fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

/// Arrow values as system values: integers, text and boolean; anything else as its text.
fn values_of(array: &ArrayRef) -> Result<Vec<Value>> {
    let rows = 0..array.len();
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => {
            let array = array.as_boolean();
            rows.map(|i| if array.is_valid(i) { Value::Bool(array.value(i)) } else { Value::Null }).collect()
        }
        t if t.is_integer() => {
            let array = cast(array, &DataType::Int64)?;
            let array = array.as_primitive::<Int64Type>();
            rows.map(|i| if array.is_valid(i) { Value::Int(array.value(i)) } else { Value::Null }).collect()
        }
        _ => {
            let array = cast(array, &DataType::Utf8)?;
            let array = array.as_string::<i32>();
            rows.map(|i| if array.is_valid(i) { array.value(i).into() } else { Value::Null }).collect()
        }
    })
}
