//! Cursors: DECLARE, FETCH, MOVE, CLOSE.
//!
//! ```text
//!   DECLARE ── streams ────────> FETCH 100, FETCH 100, …        forward only, nothing is kept
//!           └─ SCROLL, HOLD ──> all rows are kept here           any direction; HOLD outlives COMMIT
//! ```
//! What is kept is bounded by `query.memory_limit`. A cursor ends with its transaction, or with a
//! rollback to a savepoint before it.

use super::rows::{internal, one_batch};
use super::transaction::Transaction;
use super::{CommandTag, Outcome, ResultRows, Session, SessionError};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use parking_lot::Mutex;
use std::sync::Arc;
use weir_catalog::SqlState;
use weir_sql::parser::statement::{Declare, Fetch};

/// A cursor of a session.
pub struct Cursor {
    schema: SchemaRef,
    /// Numbers the session's cursors as they were declared.
    pub(super) number: u64,
    /// WITH HOLD, of a transaction that has committed.
    pub(super) held: bool,
    hold: bool,

    rows: Rows,
}

enum Rows {
    /// What the query still gives, and what of it was not fetched yet. Behind a lock only so that
    /// a session may be shared by reference; one statement runs at a time.
    Stream(Mutex<Stream>),
    /// All rows, and the row that the cursor is at: 0 before the first.
    Kept(RecordBatch, usize),
}

struct Stream {
    rows: ResultRows,
    rest: Option<RecordBatch>,
}

impl Session {
    pub(super) async fn declare(
        &mut self,
        declare: &Declare,
        plan: LogicalPlan,
        parameters: &[ScalarValue],
    ) -> Result<Outcome, SessionError> {
        let name = &declare.name;
        if self.cursors.contains_key(name) {
            return Err(SessionError::new(SqlState("42P03"), format!("cursor \"{name}\" already exists")));
        }
        if !self.transaction.is_explicit() && !declare.hold {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SessionError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)
                .hint("BEGIN first, or declare it WITH HOLD."));
        }
        let schema = Arc::clone(plan.schema().inner());
        let Outcome::Rows(rows) = self.select(plan, Arc::clone(&schema), parameters).await? else {
            return Err(internal("a SELECT gave no rows"));
        };
        let mut stream = Stream { rows, rest: None };
        let rows = match declare.scroll || declare.hold {
            true => Rows::Kept(self.take(&mut stream, None).await?, 0),
            false => Rows::Stream(Mutex::new(stream)),
        };
        self.cursors_declared += 1;
        let held = declare.hold && matches!(self.transaction, Transaction::Idle);
        let cursor = Cursor { schema, number: self.cursors_declared, held, hold: declare.hold, rows };
        self.cursors.insert(name.clone(), cursor);
        Ok(Outcome::Done("DECLARE CURSOR".to_owned()))
    }

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        place: Fetch,
        rows: bool,
    ) -> Result<Outcome, SessionError> {
        let mut cursor = self.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
        let fetched = match &mut cursor.rows {
            Rows::Kept(all, at) => fetch_kept(all, at, place),
            Rows::Stream(stream) => match place {
                Fetch::Forward(count) => self.take(stream.get_mut(), count).await,
                _ => {
                    let error = SessionError::new(
                        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                        "cursor can only scan forward",
                    );
                    Err(error.hint("Declare it with SCROLL option to enable backward scan."))
                }
            },
        };
        let schema = Arc::clone(&cursor.schema);
        self.cursors.insert(name.to_owned(), cursor);
        let fetched = fetched?;
        if !rows {
            return Ok(Outcome::Done(format!("MOVE {}", fetched.num_rows())));
        }
        Ok(Outcome::Rows(one_batch(schema, fetched, CommandTag::counted("FETCH"))))
    }

    /// The next `count` rows of a stream, or all that are left.
    async fn take(&self, stream: &mut Stream, count: Option<u64>) -> Result<RecordBatch, SessionError> {
        let mut left = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let bytes_max = self.settings.query_memory(&self.database_settings());
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while left > 0 {
            let batch = match stream.rest.take() {
                Some(batch) => batch,
                None => {
                    let next = self.limits.run(async { stream.rows.stream.next().await.transpose() }).await?;
                    let Some(batch) = next else { break };
                    batch
                }
            };
            if batch.num_rows() > left {
                stream.rest = Some(batch.slice(left, batch.num_rows() - left));
            }
            let batch = batch.slice(0, batch.num_rows().min(left));
            left -= batch.num_rows();
            bytes += batch.get_array_memory_size();
            if bytes > bytes_max {
                let detail = format!("The cursor's rows take more than {bytes_max} bytes.");
                return Err(SessionError::new(SqlState::OUT_OF_MEMORY, "out of memory")
                    .detail(detail)
                    .hint("Fetch fewer rows at a time, or raise query.memory_limit."));
            }
            batches.push(batch);
        }
        concat_batches(&stream.rows.schema, &batches).map_err(internal)
    }

    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<Outcome, SessionError> {
        match name {
            Some(name) => {
                self.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
                Ok(Outcome::Done("CLOSE CURSOR".to_owned()))
            }
            None => {
                self.cursors.clear();
                Ok(Outcome::Done("CLOSE CURSOR ALL".to_owned()))
            }
        }
    }

    /// A transaction has ended: so have its cursors, but for those that a commit holds.
    pub(super) fn end_cursors(&mut self, committed: bool) {
        self.cursors.retain(|_, cursor| cursor.held || (committed && cursor.hold));
        self.cursors.values_mut().for_each(|cursor| cursor.held = true);
    }

    /// The columns of a cursor.
    pub fn cursor_columns(&self, name: &str) -> Result<SchemaRef, SessionError> {
        self.cursors.get(name).map(|cursor| Arc::clone(&cursor.schema)).ok_or_else(|| no_cursor(name))
    }
}

fn no_cursor(name: &str) -> SessionError {
    SessionError::new(SqlState("34000"), format!("cursor \"{name}\" does not exist"))
}

/// Rows of `all` as `place` says; the cursor is then at the last of them, or beyond an end.
fn fetch_kept(all: &RecordBatch, at: &mut usize, place: Fetch) -> Result<RecordBatch, SessionError> {
    let rows = all.num_rows();
    let clamped = |count: Option<u64>| count.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let single = |at: &mut usize, wanted: i64| {
        *at = usize::try_from(wanted).unwrap_or(0).min(rows + 1);
        if (1..=rows).contains(at) { all.slice(*at - 1, 1) } else { all.slice(0, 0) }
    };
    Ok(match place {
        Fetch::Forward(count) => {
            let first = (*at).min(rows);
            let given = clamped(count).min(rows - first);
            // Past the last one only where more was asked for.
            *at = if given < clamped(count) { rows + 1 } else { first + given };
            all.slice(first, given)
        }
        Fetch::Backward(count) => {
            let before = (*at).saturating_sub(1);
            let given = clamped(count).min(before);
            *at = if given < clamped(count) { 0 } else { before - given + 1 };
            let order: Vec<u32> = (before - given..before).rev().map(|row| row as u32).collect();
            arrow::compute::take_record_batch(all, &UInt32Array::from(order)).map_err(internal)?
        }
        Fetch::Absolute(n) if n < 0 => single(at, rows as i64 + 1 + n),
        Fetch::Absolute(n) => single(at, n),
        Fetch::Relative(n) => {
            let wanted = (*at as i64).saturating_add(n);
            single(at, wanted)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int32Array};
    use arrow::datatypes::Int32Type;

    #[test]
    fn kept_rows_are_walked_in_every_direction() {
        let column = Arc::new(Int32Array::from_iter_values(1..=5)) as _;
        let all = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let mut at = 0;
        let mut fetch = |place| {
            let rows = fetch_kept(&all, &mut at, place).unwrap();
            rows.column(0).as_primitive::<Int32Type>().values().to_vec()
        };
        assert_eq!(fetch(Fetch::Relative(0)), [0; 0]);
        assert_eq!(fetch(Fetch::Forward(Some(2))), [1, 2]);
        assert_eq!(fetch(Fetch::Relative(0)), [2]);
        assert_eq!(fetch(Fetch::Backward(Some(1))), [1]);
        assert_eq!(fetch(Fetch::Backward(Some(1))), [0; 0]);
        assert_eq!(fetch(Fetch::Forward(None)), [1, 2, 3, 4, 5]);
        assert_eq!(fetch(Fetch::Forward(Some(1))), [0; 0]);
        assert_eq!(fetch(Fetch::Backward(Some(2))), [5, 4]);
        assert_eq!(fetch(Fetch::Absolute(-1)), [5]);
        assert_eq!(fetch(Fetch::Absolute(2)), [2]);
        assert_eq!(fetch(Fetch::Relative(2)), [4]);
        assert_eq!(fetch(Fetch::Absolute(9)), [0; 0]);
        assert_eq!(fetch(Fetch::Backward(None)), [5, 4, 3, 2, 1]);
        assert_eq!(fetch(Fetch::Forward(Some(1))), [1]);
    }
}
