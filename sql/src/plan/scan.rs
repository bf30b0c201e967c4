//! Leaves: sources, stored relations and constant rows.

use super::exprs::{self, physical, plan_error, select};
use super::node::{PlanNode, PlanOp};
use super::property::{Distribution, Properties};
use crate::binder::context::RelationSource;
use crate::error::SqlError;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{DFSchema, Result as DfResult};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{EmptyRelation, TableScan, Values};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_catalog::relation::RowKey;
use weir_catalog::{CatalogSnapshot, Object, ObjectBody, SqlState};

/// A scan of a source, table or materialized view.
pub(super) fn lower_scan(scan: &TableScan, catalog: &CatalogSnapshot) -> Result<PlanNode, SqlError> {
    let Some(source) = scan.source.downcast_ref::<RelationSource>() else {
        let error = SqlError::not_supported(format!(
            "reading \"{}\" in a materialized view or sink",
            scan.table_name
        ));
        return Err(error.hint("System tables and table functions can be read by SELECT only."));
    };
    let object = catalog.by_id(source.object.id).unwrap_or(&source.object);
    let all: Vec<usize> = (0..source.schema.fields().len()).collect();
    let wanted = scan.projection.as_ref().unwrap_or(&all);
    let mut needed: BTreeSet<usize> = wanted.iter().copied().collect();
    for column in scan.filters.iter().flat_map(|f| f.column_refs()) {
        needed.insert(source.schema.index_of(&column.name).map_err(|e| plan_error(e.into()))?);
    }
    // A leaf reads at least one column, for its row count: one that is cheap to read.
    if needed.is_empty() {
        needed.insert(cheapest_column(&source.schema));
    }
    let columns: Vec<usize> = needed.into_iter().collect();
    let schema = Arc::new(source.schema.project(&columns).map_err(|e| plan_error(e.into()))?);
    let mut node = leaf(object, columns.clone(), Arc::clone(&schema))?;
    if let Some(predicate) = conjunction(scan.filters.clone()) {
        let schema =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &schema).map_err(plan_error)?;
        let predicate = physical(&predicate, &schema)?;
        let schema = node.schema.clone();
        node = PlanNode::over(PlanOp::Filter { predicate }, vec![node], schema);
    }
    if *wanted == columns {
        return Ok(node);
    }
    let keep: Vec<usize> = wanted.iter().filter_map(|w| columns.iter().position(|c| c == w)).collect();
    Ok(select(node, &keep))
}

fn cheapest_column(schema: &SchemaRef) -> usize {
    let width = |f: &Arc<Field>| f.data_type().primitive_width().unwrap_or(usize::MAX);
    (0..schema.fields().len()).min_by_key(|i| width(&schema.fields()[*i])).unwrap_or(0)
}

fn leaf(object: &Object, columns: Vec<usize>, schema: SchemaRef) -> Result<PlanNode, SqlError> {
    let read = |column: &usize| columns.iter().position(|c| c == column);
    let mapped = |key: &Vec<usize>| key.iter().map(read).collect::<Option<Vec<usize>>>();
    let of_row_key = |key: &RowKey| match key {
        RowKey::Columns(key) => mapped(key),
        RowKey::WholeRow => None,
    };
    let (append_only, key, watermarks) = match &object.body {
        ObjectBody::Source(source) => (
            !matches!(source.format.format.as_str(), "UPSERT" | "DEBEZIUM"),
            source.primary_key.as_ref().and_then(mapped),
            source.watermark.as_ref().and_then(|w| read(&w.column)).into_iter().collect(),
        ),
        ObjectBody::Table(table) => (
            table.append_only,
            of_row_key(&table.key),
            table.watermark.as_ref().and_then(|w| read(&w.column)).into_iter().collect(),
        ),
        ObjectBody::MaterializedView(view) => {
            (view.append_only, of_row_key(&view.key), view.watermarks.iter().filter_map(read).collect())
        }
        ObjectBody::View(_) | ObjectBody::Index(_) | ObjectBody::Sink(_) => {
            let message = format!("{} \"{}\" can't be read by a view", object.kind(), object.name.name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
    };
    let op = match &object.body {
        ObjectBody::Source(_) => PlanOp::Source { source: object.id, columns },
        _ => PlanOp::Scan { relation: object.id, columns },
    };
    let properties = Properties { append_only, key, watermarks, distribution: Distribution::Any };
    Ok(PlanNode::leaf(op, schema, properties))
}

/// `VALUES`: the rows are computed here and now.
pub(super) fn lower_values(values: &Values) -> Result<PlanNode, SqlError> {
    let none = DFSchema::empty();
    let one_row = one_row()?;
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (index, field) in values.schema.fields().iter().enumerate() {
        let data_type = match field.data_type() {
            DataType::Null => DataType::Utf8,
            other => other.clone(),
        };
        let mut parts: Vec<ArrayRef> = Vec::with_capacity(values.values.len());
        for row in &values.values {
            let value = physical(&row[index], &none)?.evaluate(&one_row).and_then(|v| v.into_array(1));
            parts.push(cast(&value.map_err(plan_error)?, &data_type).map_err(|e| plan_error(e.into()))?);
        }
        let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
        columns.push(concat(&parts).map_err(|e| plan_error(e.into()))?);
        fields.push(Field::new(field.name(), data_type, true).with_metadata(field.metadata().clone()));
    }
    let rows =
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| plan_error(e.into()))?;
    Ok(constant(rows))
}

/// No row, or one without columns (`SELECT 1`).
pub(super) fn lower_empty(empty: &EmptyRelation) -> Result<PlanNode, SqlError> {
    if empty.produce_one_row {
        return Ok(constant(one_row()?));
    }
    let mut fields: Vec<Field> = Vec::new();
    for field in empty.schema.fields() {
        let data_type = match field.data_type() {
            DataType::Null => DataType::Utf8,
            other => other.clone(),
        };
        fields.push(Field::new(field.name(), data_type, true).with_metadata(field.metadata().clone()));
    }
    if fields.is_empty() {
        fields.push(Field::new("row", DataType::Boolean, true));
    }
    Ok(constant(RecordBatch::new_empty(Arc::new(Schema::new(fields)))))
}

fn one_row() -> Result<RecordBatch, SqlError> {
    let make = || -> DfResult<RecordBatch> {
        let schema = Arc::new(Schema::new(vec![Field::new("row", DataType::Boolean, true)]));
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let column: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        Ok(RecordBatch::try_new_with_options(schema, vec![column], &options)?)
    };
    make().map_err(exprs::plan_error)
}

fn constant(rows: RecordBatch) -> PlanNode {
    let schema = rows.schema();
    PlanNode::over(PlanOp::Values { rows }, Vec::new(), schema)
}
