//! RowArena: rows kept as columns, each under a number that stays.
//!
//! ```text
//!   RowId (u32) = page (18 bits) │ row in page (14 bits)
//!
//!   pages   [ full, one array a column ][ full ][ emptied, to be used again ][ tail ]
//!   tail    the page being filled: a few chunks, small ones merged as they come,
//!           all of them copied into one array a column when the page is full
//! ```
//! Appending copies no more than a merge or two a row; reading gathers any rows into columns, one
//! kernel a column. A row that is freed keeps its place until its page is emptied by the owner,
//! who moves the page's other rows to the tail (they get new numbers): a page for each change that
//! comes, for it costs some milliseconds, and so many between two checkpoints.
//! **Invariant:** numbers of a page are dense from its start; a page may end early.

use crate::state::placed::Placed;
use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::compute::{concat, interleave};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// The number of a row in its arena.
pub type RowId = u32;

/// No row.
pub const NO_ROW: RowId = u32::MAX;

const PAGE_BITS: u32 = 14;
/// Rows of a page.
pub const PAGE_ROWS: usize = 1 << PAGE_BITS;
/// Chunks of the tail below this many rows are merged.
const CHUNK_ROWS_MIN: usize = 2048;
/// Pages that may be emptied for being sparse between two checkpoints.
const SPARSE_PAGES_MAX: usize = 16;
/// A page with more bytes than this ends early, so that offsets of its columns can't overflow.
const PAGE_BYTES_MAX: usize = 256 << 20;

#[derive(Debug, Default)]
struct Page {
    columns: Vec<ArrayRef>,
    rows: u32,
    freed: u32,
    bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    start: u32,
    rows: u32,
    columns: Vec<ArrayRef>,
}

/// Rows kept as columns. See the module's doc.
#[derive(Debug)]
pub struct RowArena {
    types: Vec<DataType>,

    pages: Vec<Page>,
    /// Emptied pages, to be filled again.
    empty: Vec<u32>,
    /// The page being filled; its columns are in `chunks`.
    tail: u32,
    chunks: Vec<Chunk>,
    bytes: usize,
    live: usize,
    /// Sparse pages that may still be emptied before the next checkpoint.
    emptying: usize,
}

/// Where a batch of ids lies: chunks that are touched, and (chunk, row) of each id.
struct Located<'a> {
    chunks: Vec<&'a [ArrayRef]>,
    rows: Vec<(usize, usize)>,
}

impl RowArena {
    /// An empty arena for rows of these column types.
    pub fn new(types: Vec<DataType>) -> Self {
        let pages = vec![Page::default()];
        Self {
            types,
            pages,
            empty: Vec::new(),
            tail: 0,
            chunks: Vec::new(),
            bytes: 0,
            live: 0,
            emptying: SPARSE_PAGES_MAX,
        }
    }

    /// The columns' types.
    pub fn types(&self) -> &[DataType] {
        &self.types
    }

    /// One more than the greatest number given so far: how long a vector by row number must be.
    pub fn ids(&self) -> usize {
        self.pages.len() << PAGE_BITS
    }

    /// The rows `range` as columns, without copying: a piece for each page and chunk.
    pub fn slices(&self, range: std::ops::Range<RowId>) -> Vec<(Vec<ArrayRef>, usize)> {
        let mut slices = Vec::new();
        for page in range.start >> PAGE_BITS..=(range.end.max(1) - 1) >> PAGE_BITS {
            let chunks: Vec<(RowId, &[ArrayRef], usize)> = if page == self.tail {
                let base = page << PAGE_BITS;
                self.chunks.iter().map(|c| (base + c.start, c.columns.as_slice(), c.rows as usize)).collect()
            } else {
                let full = &self.pages[page as usize];
                vec![(page << PAGE_BITS, &full.columns, full.rows as usize)]
            };
            for (first, columns, rows) in chunks {
                let from = range.start.max(first);
                let to = range.end.min(first + rows as RowId);
                if from < to {
                    let (skip, rows) = ((from - first) as usize, (to - from) as usize);
                    slices.push((columns.iter().map(|c| c.slice(skip, rows)).collect(), rows));
                }
            }
        }
        slices
    }

    /// Rows that are not freed.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Bytes of the columns, roughly.
    pub fn memory(&self) -> usize {
        self.bytes + self.pages.capacity() * size_of::<Page>()
    }

    /// Keeps `rows` rows of `columns`; their numbers are added to `ids`.
    pub fn append(
        &mut self,
        columns: &[ArrayRef],
        rows: usize,
        ids: &mut Vec<RowId>,
    ) -> Result<(), ArrowError> {
        ids.reserve(rows);
        let mut done = 0;
        while done < rows {
            let filled = self.pages[self.tail as usize].rows as usize;
            let room = PAGE_ROWS - filled;
            let n = room.min(rows - done);
            let first = (self.tail << PAGE_BITS) + filled as u32;
            ids.extend(first..first + n as u32);
            let part =
                if n == rows { columns.to_vec() } else { columns.iter().map(|c| c.slice(done, n)).collect() };
            self.push_chunk(Chunk { start: filled as u32, rows: n as u32, columns: part })?;
            done += n;
        }
        self.live += rows;
        Ok(())
    }

    fn push_chunk(&mut self, chunk: Chunk) -> Result<(), ArrowError> {
        let bytes: usize = chunk.columns.iter().map(|c| slice_bytes(c, chunk.rows as usize)).sum();
        let page = &mut self.pages[self.tail as usize];
        page.rows += chunk.rows;
        page.bytes += bytes;
        self.bytes += bytes;
        self.chunks.push(chunk);
        while let [.., a, b] = self.chunks.as_slice()
            && a.rows <= b.rows
            && (a.rows as usize) < CHUNK_ROWS_MIN
        {
            let merged = Chunk { start: a.start, rows: a.rows + b.rows, columns: merge(&[a, b])? };
            self.chunks.truncate(self.chunks.len() - 2);
            self.chunks.push(merged);
        }
        if page.rows as usize == PAGE_ROWS || page.bytes > PAGE_BYTES_MAX {
            self.close_tail()?;
        }
        Ok(())
    }

    /// Copies the tail's chunks into one array a column and opens another page.
    fn close_tail(&mut self) -> Result<(), ArrowError> {
        let chunks = std::mem::take(&mut self.chunks);
        let page = &mut self.pages[self.tail as usize];
        page.columns = merge(&chunks.iter().collect::<Vec<_>>())?;
        self.bytes -= page.bytes;
        page.bytes = page.columns.iter().map(|c| c.get_array_memory_size()).sum();
        self.bytes += page.bytes;
        self.tail = match self.empty.pop() {
            Some(page) => page,
            None => {
                let next = self.pages.len() as u32;
                // The last page is never opened, so that NO_ROW is no row's number.
                if next >= (1 << (32 - PAGE_BITS)) - 1 {
                    return Err(ArrowError::ComputeError(
                        "an operator's memory has no more row numbers".into(),
                    ));
                }
                self.pages.push(Page::default());
                next
            }
        };
        Ok(())
    }

    /// The columns that hold row `id`, and its row within them.
    pub fn cell(&self, id: RowId) -> (&[ArrayRef], usize) {
        let (page, row) = (id >> PAGE_BITS, id & (PAGE_ROWS as u32 - 1));
        if page != self.tail {
            return (&self.pages[page as usize].columns, row as usize);
        }
        let chunk = &self.chunks[self.chunk_of(row)];
        (&chunk.columns, (row - chunk.start) as usize)
    }

    fn chunk_of(&self, row: u32) -> usize {
        self.chunks.partition_point(|c| c.start <= row) - 1
    }

    fn locate(&self, ids: &[RowId]) -> Located<'_> {
        const UNSEEN: u32 = u32::MAX;
        let mut place = vec![UNSEEN; self.pages.len()];
        let mut chunks: Vec<&[ArrayRef]> = self.chunks.iter().map(|c| c.columns.as_slice()).collect();
        let rows = ids
            .iter()
            .map(|id| {
                let (page, row) = (id >> PAGE_BITS, id & (PAGE_ROWS as u32 - 1));
                if page == self.tail {
                    let chunk = self.chunk_of(row);
                    return (chunk, (row - self.chunks[chunk].start) as usize);
                }
                let slot = &mut place[page as usize];
                if *slot == UNSEEN {
                    *slot = chunks.len() as u32;
                    chunks.push(&self.pages[page as usize].columns);
                }
                (*slot as usize, row as usize)
            })
            .collect();
        Located { chunks, rows }
    }

    /// The columns `columns` of rows `ids`, in that order.
    pub fn gather(&self, ids: &[RowId], columns: &[usize]) -> Result<Vec<ArrayRef>, ArrowError> {
        if ids.is_empty() {
            return Ok(columns.iter().map(|c| new_empty_array(&self.types[*c])).collect());
        }
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let located = self.locate(ids);
        columns
            .iter()
            .map(|c| {
                let arrays: Vec<&dyn Array> = located.chunks.iter().map(|chunk| chunk[*c].as_ref()).collect();
                interleave(&arrays, &located.rows)
            })
            .collect()
    }

    /// Rows `ids` as they are now, whatever becomes of the arena: its columns never change. `diffs`: how
    /// often each is to be added; none: once, in any order.
    pub fn pick(&self, ids: Vec<RowId>, diffs: Option<Vec<i64>>) -> Picked {
        let mut touched = vec![false; self.pages.len()];
        ids.iter().for_each(|id| touched[(id >> PAGE_BITS) as usize] = true);
        touched[self.tail as usize] = false;
        let pages = self.pages.iter().zip(touched);
        let pages = pages.map(|(page, touched)| touched.then(|| page.columns.clone())).collect();
        let tail = self.chunks.iter().map(|chunk| (chunk.start, chunk.columns.clone())).collect();
        Picked { ids, diffs, pages, tail_page: self.tail, tail }
    }

    /// Calls `visit` with every page's rows that may be live: their first number, columns, count.
    pub fn pages(&self) -> impl Iterator<Item = (RowId, &[ArrayRef], usize)> {
        let full = self.pages.iter().enumerate().filter(|(i, p)| *i != self.tail as usize && p.rows > 0);
        let full = full.map(|(i, p)| ((i as u32) << PAGE_BITS, p.columns.as_slice(), p.rows as usize));
        let base = self.tail << PAGE_BITS;
        full.chain(self.chunks.iter().map(move |c| (base + c.start, c.columns.as_slice(), c.rows as usize)))
    }

    /// Row `id` is not needed any more.
    pub fn free(&mut self, id: RowId) {
        let page = &mut self.pages[(id >> PAGE_BITS) as usize];
        page.freed += 1;
        self.live -= 1;
        debug_assert!(page.freed <= page.rows, "a row is freed once");
    }

    /// A full page of which at least half is freed, to be emptied now; none, if there is none or
    /// enough were since the last checkpoint.
    pub fn sparse_page(&mut self) -> Option<u32> {
        if self.emptying == 0 {
            return None;
        }
        let sparse = |page: &Page| page.rows > 0 && page.freed * 2 >= page.rows;
        let mut full = self.pages.iter().enumerate().filter(|(i, _)| *i != self.tail as usize);
        let page = full.find(|(_, page)| sparse(page)).map(|(i, _)| i as u32)?;
        self.emptying -= 1;
        Some(page)
    }

    /// A checkpoint is made.
    pub fn sealed(&mut self) {
        self.emptying = SPARSE_PAGES_MAX;
    }

    /// The numbers of the rows of `page`.
    pub fn page_ids(&self, page: u32) -> std::ops::Range<RowId> {
        let first = page << PAGE_BITS;
        first..first + self.pages[page as usize].rows
    }

    /// The full pages.
    pub fn full_pages(&self) -> Vec<u32> {
        (0..self.pages.len() as u32).filter(|page| self.is_full_page(*page)).collect()
    }

    /// Whether `page` has rows and gets no more.
    pub fn is_full_page(&self, page: u32) -> bool {
        page != self.tail && self.pages[page as usize].rows > 0
    }

    /// Makes the tail a full page, so that it can be emptied.
    pub fn end_page(&mut self) -> Result<(), ArrowError> {
        if self.pages[self.tail as usize].rows > 0 { self.close_tail() } else { Ok(()) }
    }

    /// Empties a full page whose rows were all freed or copied.
    pub fn empty_page(&mut self, page: u32) {
        assert_ne!(page, self.tail, "only full pages are emptied");
        let old = std::mem::take(&mut self.pages[page as usize]);
        self.live -= (old.rows - old.freed) as usize;
        self.bytes -= old.bytes;
        self.empty.push(page);
    }
}

/// Rows picked out of an arena.
pub struct Picked {
    ids: Vec<RowId>,
    diffs: Option<Vec<i64>>,
    /// By page, of those that rows are picked of: its columns.
    pages: Vec<Option<Vec<ArrayRef>>>,
    tail_page: u32,
    /// Of the page being filled: each chunk's first row and columns.
    tail: Vec<(u32, Vec<ArrayRef>)>,
}

impl Picked {
    /// Where the rows lie. Those that may come in any order come in that of memory.
    pub fn placed(mut self) -> Placed {
        if self.diffs.is_none() {
            self.ids.sort_unstable();
        }
        let mut parts: Vec<Vec<ArrayRef>> = Vec::new();
        let starts: Vec<u32> = self.tail.iter().map(|(start, _)| *start).collect();
        parts.extend(self.tail.into_iter().map(|(_, columns)| columns));
        let part_of_page: Vec<usize> = self
            .pages
            .into_iter()
            .map(|columns| {
                let part = parts.len();
                parts.extend(columns);
                part
            })
            .collect();
        let place = |id: &RowId| {
            let (page, row) = (id >> PAGE_BITS, id & (PAGE_ROWS as u32 - 1));
            if page != self.tail_page {
                return (part_of_page[page as usize], row as usize);
            }
            let chunk = starts.partition_point(|start| *start <= row) - 1;
            (chunk, (row - starts[chunk]) as usize)
        };
        Placed { rows: self.ids.iter().map(place).collect(), parts, diffs: self.diffs }
    }
}

fn merge(chunks: &[&Chunk]) -> Result<Vec<ArrayRef>, ArrowError> {
    let columns = chunks.first().map_or(0, |c| c.columns.len());
    (0..columns)
        .map(|c| {
            let parts: Vec<&dyn Array> = chunks.iter().map(|chunk| chunk.columns[c].as_ref()).collect();
            concat(&parts)
        })
        .collect()
}

/// Bytes that `rows` rows of a column hold by themselves, whatever buffer they are a slice of.
fn slice_bytes(column: &ArrayRef, rows: usize) -> usize {
    column.to_data().get_slice_memory_size().unwrap_or(rows * 16)
}

#[cfg(test)]
#[path = "tests/row_arena.rs"]
mod tests;
