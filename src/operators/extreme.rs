//! min and max of input that only grows: the extremum is all that need be kept.

use super::accumulator::{Accumulator, Rows, Wish, kept};
use super::ordered::{Order, with_order};
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

/// The accumulator of the greatest (or else the least) value of `data_type`.
pub fn extremes_of(data_type: &DataType, greatest: bool) -> Box<dyn Accumulator> {
    with_order!(data_type, order => Box::new(Extremes::new(data_type, order, greatest)))
}

/// The greatest or least value a group.
struct Extremes<O: Order> {
    data_type: DataType,
    order: O,
    greatest: bool,

    best: Vec<Option<O::Key>>,
    heap: usize,
}

impl<O: Order> Extremes<O> {
    fn new(data_type: &DataType, order: O, greatest: bool) -> Self {
        Self { data_type: data_type.clone(), order, greatest, best: Vec::new(), heap: 0 }
    }

    #[inline]
    fn offer(&mut self, group: usize, key: &O::Ref) {
        let better = match &self.best[group] {
            None => true,
            Some(best) if self.greatest => key > best.borrow_ref(),
            Some(best) => key < best.borrow_ref(),
        };
        if better {
            self.set(group, Some(O::own(key)));
        }
    }

    fn set(&mut self, group: usize, key: Option<O::Key>) {
        let heap = |key: &Option<O::Key>| key.as_ref().map_or(0, O::heap);
        self.heap += heap(&key);
        self.heap -= heap(&self.best[group]);
        self.best[group] = key;
    }

    fn column(&self, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        let best = |group: &u32| self.best[*group as usize].as_ref().map(|key| key.borrow_ref());
        self.order.column(groups.iter().map(best))
    }
}

/// `Borrow` with the target fixed, for inference.
trait BorrowRef<R: ?Sized> {
    fn borrow_ref(&self) -> &R;
}

impl<R: ?Sized, K: std::borrow::Borrow<R>> BorrowRef<R> for K {
    fn borrow_ref(&self) -> &R {
        self.borrow()
    }
}

impl<O: Order> Accumulator for Extremes<O> {
    fn grow(&mut self, groups: usize) {
        self.best.resize(groups, None);
    }

    fn clear(&mut self, group: u32) {
        self.set(group as usize, None);
    }

    fn keep(&mut self, groups: &[u32]) {
        self.best = kept(&self.best, groups);
        self.heap = self.best.iter().flatten().map(O::heap).sum();
    }

    fn update(&mut self, rows: Rows<'_>, column: Option<&ArrayRef>) -> Result<(), OperatorError> {
        let Some(column) = column else {
            return Err(OperatorError::Internal("min and max have an argument".to_owned()));
        };
        let order = self.order.view(column);
        rows.for_each(column.nulls(), |row, group, _diff| self.offer(group, O::get(&order, row)));
        Ok(())
    }

    fn output(&self, _wish: &Wish, groups: &[u32]) -> Result<ArrayRef, OperatorError> {
        self.column(groups)
    }

    fn state_types(&self) -> Vec<DataType> {
        vec![self.data_type.clone()]
    }

    fn state(&self, groups: &[u32]) -> Result<Vec<ArrayRef>, OperatorError> {
        Ok(vec![self.column(groups)?])
    }

    fn load(&mut self, groups: &[u32], state: &[ArrayRef]) {
        let view = self.order.view(&state[0]);
        for (row, group) in groups.iter().enumerate() {
            let key = state[0].is_valid(row).then(|| O::own(O::get(&view, row)));
            self.set(*group as usize, key);
        }
    }

    fn memory(&self) -> usize {
        self.best.capacity() * size_of::<Option<O::Key>>() + self.heap
    }
}
