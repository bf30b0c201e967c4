//! The function registry: every function that SQL can call, with PostgreSQL's meaning.
//!
//! Where DataFusion's function means what PostgreSQL's does, it is taken; where it differs, ours
//! goes first under the same name. A new function is a line in the list of its family's file.

mod age;
pub mod aggregate;
pub mod array;
mod bounded;
mod bucket;
pub mod calendar;
mod case;
pub mod cast;
pub mod clock;
pub mod comparison;
pub mod comparison_plan;
pub mod datetime;
pub mod error;
mod extreme;
pub mod format;
pub mod interval;
mod interval_text;
pub mod json;
pub mod json_build;
mod json_change;
mod json_key;
mod json_operator;
pub mod json_part;
pub mod json_rows;
mod json_text;
pub mod json_value;
pub mod make_time;
pub mod math;
mod number_pattern;
mod number_read;
mod number_text;
pub mod numeric;
pub mod operator;
mod operator_time;
pub mod overlap;
pub mod parse;
pub mod parse_array;
pub mod percentile;
pub mod quantified;
pub mod ranking;
pub mod real;
pub mod regexp;
pub mod retyped;
pub mod rules;
pub mod scalar;
pub mod single;
pub mod string;
pub mod system;
pub mod table;
pub mod text;
mod time_pattern;
mod time_precision;
pub mod to_char;
mod trigonometry;
pub mod window;
pub mod zone;

use arrow::datatypes::DataType;
use datafusion_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion_optimizer::AnalyzerRule;
use datafusion_optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion_optimizer::analyzer::type_coercion::TypeCoercion;
use std::collections::HashSet;
use std::sync::Arc;

/// How PostgreSQL names a type in its messages.
pub(crate) fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".into(),
        DataType::Int16 => "smallint".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int64 => "bigint".into(),
        DataType::Decimal128(_, _) => "numeric".into(),
        DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Utf8 => "text".into(),
        DataType::Binary => "bytea".into(),
        DataType::Date32 => "date".into(),
        DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) => "interval".into(),
        DataType::List(item) => format!("{}[]", type_name(item.data_type())),
        DataType::Struct(_) => "record".into(),
        DataType::Null => "unknown".into(),
        other => other.to_string(),
    }
}

/// All scalar functions.
pub fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    let families = [
        datetime::functions(),
        age::functions(),
        make_time::functions(),
        to_char::functions(),
        zone::functions(),
        array::functions(),
        math::functions(),
        bucket::functions(),
        overlap::functions(),
        number_read::functions(),
        trigonometry::functions(),
        case::functions(),
        string::functions(),
        regexp::functions(),
        percentile::functions(),
        format::functions(),
        json::functions(),
        json_build::functions(),
        json_operator::functions(),
        json_part::functions(),
        json_rows::functions(),
    ];
    let own: Vec<Arc<ScalarUDF>> = families
        .into_iter()
        .flatten()
        .map(scalar::Function::udf)
        .chain(clock::functions())
        .chain(retyped::functions())
        .chain(quantified::functions())
        .chain(bounded::functions())
        .chain(system::functions())
        .chain(json_build::builders())
        .collect();
    let names: HashSet<String> =
        own.iter().flat_map(|f| f.aliases().iter().cloned().chain([f.name().to_owned()])).collect();
    let others = datafusion_functions::all_default_functions()
        .into_iter()
        .chain(datafusion_functions_nested::all_default_nested_functions());
    let uuid = datafusion_functions::string::uuid().as_ref().clone().with_aliases(["gen_random_uuid"]);
    own.iter().cloned().chain(others.filter(|f| !names.contains(f.name()))).chain([Arc::new(uuid)]).collect()
}

/// All aggregate functions.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    let every =
        datafusion_functions_aggregate::bool_and_or::bool_and_udaf().as_ref().clone().with_aliases(["every"]);
    let variance =
        datafusion_functions_aggregate::variance::var_samp_udaf().as_ref().clone().with_aliases(["variance"]);
    let own: Vec<_> = aggregate::functions()
        .into_iter()
        .chain(extreme::functions())
        .chain([Arc::new(every), Arc::new(variance)])
        .collect();
    let others = datafusion_functions_aggregate::all_default_aggregate_functions();
    let names: HashSet<String> = own.iter().map(|f| f.name().to_owned()).collect();
    let others: Vec<_> = others.into_iter().filter(|f| !names.contains(f.name())).collect();
    own.into_iter().chain(others).collect()
}

/// All window functions.
pub fn window_functions() -> Vec<Arc<WindowUDF>> {
    let own = ranking::functions();
    let names: HashSet<String> = own.iter().map(|f| f.name().to_owned()).collect();
    let others = datafusion_functions_window::all_default_window_functions();
    own.into_iter().chain(others.into_iter().filter(|f| !names.contains(f.name()))).collect()
}

/// How operators and special syntax become function calls, first match first.
pub fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    vec![
        Arc::new(json_operator::JsonOperatorPlanner),
        Arc::new(array::ArrayPlanner),
        Arc::new(operator::ArithmeticPlanner),
        Arc::new(json::JsonPlanner),
        Arc::new(string::RegexpPlanner),
        Arc::new(datetime::ExtractPlanner),
        Arc::new(datafusion_functions::core::planner::CoreFunctionPlanner::default()),
        Arc::new(datafusion_functions::unicode::planner::UnicodeFunctionPlanner),
        Arc::new(datafusion_functions_nested::planner::NestedFunctionPlanner),
        Arc::new(datafusion_functions_nested::planner::FieldAccessPlanner),
        Arc::new(datafusion_functions_aggregate::planner::AggregateFunctionPlanner),
        Arc::new(datafusion_functions_window::planner::WindowFunctionPlanner),
    ]
}

/// How table functions in FROM become plans.
pub fn relation_planners() -> Vec<Arc<dyn RelationPlanner>> {
    vec![Arc::new(table::WindowPlanner)]
}

/// Rewrites of the bound plan, in order: all of them, DataFusion's own type coercion included.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![
        Arc::new(rules::Operators),
        Arc::new(comparison_plan::ComparedRows(comparison::Keys::Forms)),
        Arc::new(ResolveGroupingFunction::new()),
        Arc::new(TypeCoercion::new()),
        Arc::new(rules::Casts),
    ]
}

/// The rewrites of a batch.
pub fn batch_analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let floats = comparison_plan::ComparedRows(comparison::Keys::Floats);
    let own: [Arc<dyn AnalyzerRule + Send + Sync>; 2] = [Arc::new(rules::Floats), Arc::new(floats)];
    own.into_iter().chain(analyzer_rules()).collect()
}

#[cfg(test)]
#[path = "tests/expressions.rs"]
mod expression_tests;
