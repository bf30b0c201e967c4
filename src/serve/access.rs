//! From a query's filters to the part of a relation's keys that has to be read. Pure.
//!
//! A filter that is used here is evaluated again above the scan, so what is found may be too much
//! and never too little.

use super::layout::RowLayout;
use crate::state::key::{KeyCodec, KeyOrder};
use crate::state::rows::KeyRange;
use crate::state::store::prefix_end;
use crate::stream::vnode::hash_columns;
use crate::stream::{Vnode, VnodeSet};
use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use std::sync::Arc;
use weir_catalog::TableId;

/// More point lookups than this are a scan.
const POINTS_MAX: usize = 1024;

/// What to read of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    All,
    /// These full keys, sorted, no two alike.
    Points(Vec<Vec<u8>>),
    /// In each vnode, keys within these bounds (without table id and vnode).
    Range {
        /// The least key.
        lower: Vec<u8>,
        /// The key above the greatest; `None`: to the end of the vnode.
        upper: Option<Vec<u8>>,
    },
    /// Through this index: entries of it within these ranges of full keys, in order.
    Index {
        /// How the index lies.
        index: Arc<IndexLayout>,
        /// What to read of it.
        ranges: Vec<KeyRange>,
    },
    /// Nothing can match.
    Nothing,
}

/// An index of a relation, as a reader needs to know it.
#[derive(Debug)]
pub struct IndexLayout {
    /// Its name, for EXPLAIN.
    pub name: String,
    /// Where its entries are.
    pub table: TableId,
    /// The indexed columns: ordinals in the relation, no two alike, and whether descending.
    pub columns: Vec<(usize, bool)>,
    /// The columns of its keys, ordinals in the relation: the indexed ones, then the relation's key.
    pub key_columns: Vec<usize>,
    /// How its keys are encoded.
    pub codec: KeyCodec,
}

impl PartialEq for IndexLayout {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table
    }
}

impl Eq for IndexLayout {}

impl IndexLayout {
    /// A codec for the first `columns` columns of the key, all indexed ones.
    fn prefix_codec(&self, columns: usize, layout: &RowLayout) -> KeyCodec {
        let first = &self.columns[..columns];
        let types = first.iter().map(|(c, _)| layout.schema.field(*c).data_type().clone()).collect();
        let order = |desc: bool| KeyOrder { descending: desc, nulls_first: desc };
        KeyCodec::with_orders(types, first.iter().map(|(_, desc)| order(*desc)).collect())
    }
}

/// What the filters say of one key column.
#[derive(Clone, Debug, Default)]
struct Constraint {
    /// It is one of these.
    values: Option<Vec<ScalarValue>>,
    lower: Option<(ScalarValue, bool)>,
    upper: Option<(ScalarValue, bool)>,
}

/// Whether `filter` can narrow what is read of a relation of this layout with these indexes.
pub fn is_useful(filter: &Expr, layout: &RowLayout, indexes: &[Arc<IndexLayout>]) -> bool {
    let Some((column, _)) = constraint_of(filter) else { return false };
    let Ok(ordinal) = layout.schema.index_of(&column) else { return false };
    let indexed = |index: &Arc<IndexLayout>| index.columns.iter().any(|(c, _)| *c == ordinal);
    layout.key.contains(&ordinal) || indexes.iter().any(indexed)
}

/// What has to be read for rows that pass all `filters`.
pub fn choose(
    filters: &[Expr],
    layout: &RowLayout,
    indexes: &[Arc<IndexLayout>],
) -> Result<Access, DataFusionError> {
    let constraints = constraints_on(&layout.key, filters, layout);
    let fixed = fixed_columns(&constraints);
    if constraints[..fixed].iter().any(|c| c.values.as_ref().is_some_and(Vec::is_empty)) {
        return Ok(Access::Nothing);
    }
    if fixed == constraints.len() && fixed > 0 {
        let values: Vec<&[ScalarValue]> = constraints.iter().filter_map(|c| c.values.as_deref()).collect();
        if combinations(&values) <= POINTS_MAX {
            return points(&values, layout);
        }
    }
    let by_key = range(&constraints, layout)?;
    if by_key == Access::Nothing || fixed > 0 {
        return Ok(by_key);
    }
    Ok(by_index(filters, layout, indexes)?.unwrap_or(by_key))
}

/// What the filters say of each of these columns of the relation.
fn constraints_on(columns: &[usize], filters: &[Expr], layout: &RowLayout) -> Vec<Constraint> {
    let of_column = |column: &usize| {
        let field = layout.schema.field(*column);
        let mut merged = Constraint::default();
        for filter in filters.iter().flat_map(conjuncts) {
            if let Some((name, constraint)) = constraint_of(filter)
                && name == *field.name()
                && constraint.is_of(field.data_type())
            {
                merged.narrow(constraint);
            }
        }
        merged
    };
    columns.iter().map(of_column).collect()
}

fn fixed_columns(constraints: &[Constraint]) -> usize {
    constraints.iter().take_while(|c| c.values.is_some()).count()
}

fn combinations(values: &[&[ScalarValue]]) -> usize {
    values.iter().fold(1, |n, v| n.saturating_mul(v.len()))
}

/// The index that fixes the most columns, if one fixes its first.
fn by_index(
    filters: &[Expr],
    layout: &RowLayout,
    indexes: &[Arc<IndexLayout>],
) -> Result<Option<Access>, DataFusionError> {
    let mut best: Option<(usize, &Arc<IndexLayout>, Vec<Constraint>)> = None;
    for index in indexes {
        let columns: Vec<usize> = index.columns.iter().map(|(c, _)| *c).collect();
        let constraints = constraints_on(&columns, filters, layout);
        let fixed = fixed_columns(&constraints);
        if fixed > 0 && best.as_ref().is_none_or(|(most, ..)| fixed > *most) {
            best = Some((fixed, index, constraints));
        }
    }
    let Some((mut fixed, index, constraints)) = best else { return Ok(None) };
    let mut values: Vec<&[ScalarValue]> =
        constraints[..fixed].iter().filter_map(|c| c.values.as_deref()).collect();
    while combinations(&values) > POINTS_MAX {
        values.pop();
        fixed -= 1;
    }
    if fixed == 0 {
        return Ok(None);
    }
    let (columns, rows) = combined(&values)?;
    if rows == 0 {
        return Ok(Some(Access::Nothing));
    }
    let codec = index.prefix_codec(fixed, layout);
    let mut hashes = Vec::new();
    hash_columns(&columns, rows, &mut hashes);
    let mut ranges = Vec::new();
    for (row, hash) in hashes.iter().enumerate() {
        let mut key = Vec::new();
        codec.encode(&columns, row, &mut key);
        // Entries lie by the hash of all indexed columns.
        let vnodes: Vec<Vnode> = if fixed == index.columns.len() {
            vec![Vnode::of_hash(*hash)]
        } else {
            VnodeSet::all().iter().collect()
        };
        for vnode in vnodes {
            let start = [&index.table.0.to_be_bytes()[..], &[vnode.0], &key].concat();
            ranges.push(KeyRange::of_prefix(&start));
        }
    }
    ranges.sort_by(|a, b| a.lower.cmp(&b.lower));
    ranges.dedup();
    Ok(Some(Access::Index { index: Arc::clone(index), ranges }))
}

fn conjuncts(filter: &Expr) -> Vec<&Expr> {
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            let mut all = conjuncts(left);
            all.extend(conjuncts(right));
            all
        }
        Expr::Alias(alias) => conjuncts(&alias.expr),
        other => vec![other],
    }
}

/// Every combination of the columns' values, as columns, and how many there are.
fn combined(values: &[&[ScalarValue]]) -> Result<(Vec<ArrayRef>, usize), DataFusionError> {
    let rows = combinations(values);
    if rows == 0 {
        return Ok((Vec::new(), 0));
    }
    let mut repeat = rows;
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(values.len());
    for column in values {
        repeat /= column.len();
        let all = (0..rows).map(|row| column[row / repeat % column.len()].clone());
        columns.push(ScalarValue::iter_to_array(all)?);
    }
    Ok((columns, rows))
}

fn points(values: &[&[ScalarValue]], layout: &RowLayout) -> Result<Access, DataFusionError> {
    let (columns, rows) = combined(values)?;
    let mut keys = layout.full_keys(&columns, rows);
    keys.sort();
    keys.dedup();
    Ok(Access::Points(keys))
}

/// The columns that have one value each, then the bounds of the next.
fn range(constraints: &[Constraint], layout: &RowLayout) -> Result<Access, DataFusionError> {
    let one = |c: &Constraint| c.values.as_ref().is_some_and(|v| v.len() == 1);
    let fixed = constraints.iter().take_while(|c| one(c)).count();
    let codec = layout.prefix_codec(fixed);
    let mut prefix = Vec::new();
    let values = constraints[..fixed].iter().filter_map(|c| c.values.as_ref()?.first());
    let columns: Vec<ArrayRef> = values.map(|v| v.to_array()).collect::<Result<_, _>>()?;
    codec.encode(&columns, 0, &mut prefix);
    let mut lower = prefix.clone();
    let mut upper = (!prefix.is_empty()).then(|| prefix_end(&prefix));
    if let Some(next) = constraints.get(fixed) {
        let next_codec = KeyCodec::new(vec![layout.schema.field(layout.key[fixed]).data_type().clone()]);
        let encoded = |value: &ScalarValue| -> Result<Vec<u8>, DataFusionError> {
            let mut key = prefix.clone();
            next_codec.encode(&[value.to_array()?], 0, &mut key);
            Ok(key)
        };
        if let Some((value, inclusive)) = &next.lower {
            let key = encoded(value)?;
            lower = if *inclusive { key } else { prefix_end(&key) };
        }
        if let Some((value, inclusive)) = &next.upper {
            let key = encoded(value)?;
            upper = Some(if *inclusive { prefix_end(&key) } else { key });
        }
        if let Some(many) = next.values.as_ref().filter(|v| v.len() > 1) {
            let keys = many.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
            lower = keys.iter().min().cloned().unwrap_or(lower);
            upper = keys.iter().max().map(|k| prefix_end(k)).or(upper);
        }
    }
    Ok(match upper {
        Some(upper) if lower >= upper => Access::Nothing,
        None if lower.is_empty() => Access::All,
        upper => Access::Range { lower, upper },
    })
}

impl Constraint {
    fn is_of(&self, data_type: &arrow::datatypes::DataType) -> bool {
        let bounds = self.lower.iter().chain(&self.upper).map(|(v, _)| v);
        self.values.iter().flatten().chain(bounds).all(|v| v.data_type() == *data_type && !v.is_null())
    }

    fn narrow(&mut self, other: Constraint) {
        if let Some(values) = other.values {
            match &mut self.values {
                Some(own) => own.retain(|v| values.contains(v)),
                None => self.values = Some(values),
            }
        }
        // The bounds that come later need not be the tighter ones: the filters run again anyway.
        self.lower = self.lower.take().or(other.lower);
        self.upper = self.upper.take().or(other.upper);
    }
}

/// The column that `filter` constrains, and how: comparisons with a literal, IN, OR of those.
fn constraint_of(filter: &Expr) -> Option<(String, Constraint)> {
    match filter {
        Expr::Alias(alias) => constraint_of(&alias.expr),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (column, one) = constraint_of(left)?;
            let (same, other) = constraint_of(right)?;
            let mut values = one.values?;
            values.extend(other.values?);
            (column == same).then_some((column, Constraint { values: Some(values), ..Constraint::default() }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(value, _)) => {
                Some((column.name.clone(), compared(*op, value.clone())?))
            }
            (Expr::Literal(value, _), Expr::Column(column)) => {
                Some((column.name.clone(), compared(op.swap()?, value.clone())?))
            }
            _ => None,
        },
        Expr::InList(list) if !list.negated => {
            let Expr::Column(column) = &*list.expr else { return None };
            let values = list.list.iter().map(|e| match e {
                Expr::Literal(value, _) => Some(value.clone()),
                _ => None,
            });
            let values = Some(values.collect::<Option<Vec<_>>>()?);
            Some((column.name.clone(), Constraint { values, ..Constraint::default() }))
        }
        Expr::Column(column) => {
            let values = Some(vec![ScalarValue::Boolean(Some(true))]);
            Some((column.name.clone(), Constraint { values, ..Constraint::default() }))
        }
        Expr::Not(inner) => {
            let Expr::Column(column) = &**inner else { return None };
            let values = Some(vec![ScalarValue::Boolean(Some(false))]);
            Some((column.name.clone(), Constraint { values, ..Constraint::default() }))
        }
        _ => None,
    }
}

fn compared(op: Operator, value: ScalarValue) -> Option<Constraint> {
    let mut constraint = Constraint::default();
    match op {
        Operator::Eq => constraint.values = Some(vec![value]),
        Operator::Gt => constraint.lower = Some((value, false)),
        Operator::GtEq => constraint.lower = Some((value, true)),
        Operator::Lt => constraint.upper = Some((value, false)),
        Operator::LtEq => constraint.upper = Some((value, true)),
        _ => return None,
    }
    Some(constraint)
}
