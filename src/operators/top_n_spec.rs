//! What a top-n is, as planned.

use super::top_n::TopN;
use super::top_one::TopOne;
use crate::dataflow::operator::Operator;
use crate::state::key::KeyOrder;
use arrow::datatypes::SchemaRef;
use weir_catalog::TableId;
use weir_sql::plan::SortKey;

/// What a top-n is, as planned.
#[derive(Clone, Debug)]
pub struct TopNSpec {
    /// The input's columns.
    pub input: SchemaRef,
    /// The group columns; none: one group.
    pub group: Vec<usize>,
    /// The order within a group.
    pub order: Vec<SortKey>,
    /// Rows skipped.
    pub offset: u64,
    /// Rows given; none: all.
    pub limit: Option<u64>,
    /// Whether the row's number, from 1, is appended.
    pub rank: bool,
    /// Whether only insertions come.
    pub append_only: bool,
    /// The internal table that remembers the rows.
    pub table: TableId,
    /// The output's columns.
    pub schema: SchemaRef,
    /// Whether the first group column carries a watermark.
    pub expires: bool,
}

impl TopNSpec {
    /// The columns by which rows of a group sort, the order first, then all others.
    pub fn row_columns(&self) -> (Vec<usize>, Vec<KeyOrder>) {
        let mut columns = Vec::new();
        let mut orders = Vec::new();
        for SortKey { column, descending, nulls_first } in &self.order {
            if !self.group.contains(column) && !columns.contains(column) {
                columns.push(*column);
                orders.push(KeyOrder { descending: *descending, nulls_first: *nulls_first });
            }
        }
        for column in 0..self.input.fields().len() {
            if !self.group.contains(&column) && !columns.contains(&column) {
                columns.push(column);
                orders.push(KeyOrder::ASCENDING);
            }
        }
        (columns, orders)
    }
}

/// The operator for a top-n; the last or best row of each group has one of its own.
pub fn top_n(spec: TopNSpec) -> Box<dyn Operator> {
    if spec.append_only && spec.limit == Some(1) && spec.offset == 0 && !spec.rank {
        Box::new(TopOne::new(spec))
    } else {
        Box::new(TopN::new(spec))
    }
}
