//! Random aggregates over random changes, against a naive recomputation at every barrier: every
//! function, DISTINCT, FILTER, types, NULLs, restores, eviction, and other numbers of actors.

use super::tests::{call, make};
use super::*;
use crate::operators::script::{Driver, MemoryState, change_batch, row_text, schema};
use crate::stream::vnode::hash_columns;
use crate::stream::{BarrierKind, Vnode, VnodeSet};
use arrow::array::BooleanArray;
use arrow::datatypes::{DataType, TimeUnit};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use weir_sql::plan::AggregateFunction::{Avg, BoolAnd, BoolOr, Count, Max, Min, Sum};

type Row = Vec<Option<String>>;

/// Groups: 0..3; arguments: 3..11; filters: 11..13.
fn input() -> SchemaRef {
    schema(&[
        ("a", DataType::Int32),
        ("b", DataType::Utf8),
        ("c", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("i16", DataType::Int16),
        ("i32", DataType::Int32),
        ("i64", DataType::Int64),
        ("dec", DataType::Decimal128(12, 2)),
        ("f32", DataType::Float32),
        ("f64", DataType::Float64),
        ("text", DataType::Utf8),
        ("bool", DataType::Boolean),
        ("p", DataType::Boolean),
        ("q", DataType::Boolean),
    ])
}

fn random_value(column: usize, rng: &mut StdRng) -> Option<String> {
    if rng.random_bool(0.15) {
        return None;
    }
    let small: i64 = rng.random_range(-4..5);
    Some(match column {
        0 | 3 | 4 => small.to_string(),
        1 | 9 => ["", "x", "y y", "zebra"].choose(rng).unwrap().to_string(),
        2 => (small * 1_000_000).to_string(),
        5 => (small * i64::from(i32::MAX) * 7).to_string(),
        6 => format!("{}.{:02}", small, rng.random_range(0..3) * 25),
        7 | 8 => format!("{:?}", small as f64 * 0.25),
        _ => rng.random_bool(0.6).to_string(),
    })
}

fn random_call(input: &SchemaRef, rng: &mut StdRng) -> AggregateCall {
    let function = *[Count, Sum, Avg, Min, Max, BoolAnd, BoolOr].choose(rng).unwrap();
    let argument = match function {
        Count if rng.random_bool(0.3) => None,
        Count => Some(rng.random_range(3..11)),
        Sum | Avg => Some(rng.random_range(3..9)),
        Min | Max => Some(rng.random_range(3..10)),
        BoolAnd | BoolOr => Some(10),
    };
    let mut call = call(function, argument, input);
    if function == Sum && argument == Some(7) {
        call.output = call.output.with_data_type(DataType::Float32);
    }
    call.distinct = argument.is_some() && rng.random_bool(0.4);
    call.filter = rng.random_bool(0.4).then(|| rng.random_range(11..13));
    call
}

/// The number that a text of this type stands for, in units of `10^-scale`.
fn number(text: &str, scale: u32) -> i128 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{part:0<width$}", width = scale as usize);
    let value =
        whole.parse::<i128>().unwrap().abs() * 10i128.pow(scale) + digits.parse::<i128>().unwrap_or(0);
    if text.starts_with('-') { -value } else { value }
}

fn decimal(value: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", value.abs(), width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// What PostgreSQL would give, written as the harness writes it.
fn naive(call: &AggregateCall, input: &SchemaRef, rows: &[&Row]) -> Option<String> {
    let kept = rows.iter().filter(|row| call.filter.is_none_or(|f| row[f].as_deref() == Some("true")));
    let Some(argument) = call.argument else { return Some(kept.count().to_string()) };
    let mut values: Vec<String> = kept.filter_map(|row| row[argument].clone()).collect();
    let column = |values: &[String]| {
        let rows: Vec<_> = values.iter().map(|v| (1, vec![Some(v.clone())])).collect();
        let one = schema(&[("x", input.field(argument).data_type().clone())]);
        change_batch(&one, &rows).column(0).clone()
    };
    if call.distinct {
        values = values.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    }
    if call.function == Count {
        return Some(values.len().to_string());
    }
    if values.is_empty() {
        return None;
    }
    match (call.function, input.field(argument).data_type()) {
        (Sum | Avg, DataType::Float32 | DataType::Float64) => {
            let sum: f64 = values.iter().map(|v| v.parse::<f64>().unwrap()).sum();
            let divisor = if call.function == Avg { values.len() as f64 } else { 1.0 };
            Some(format!("{:?}", sum / divisor))
        }
        (Sum | Avg, data_type) => {
            let scale = if let DataType::Decimal128(_, s) = data_type { *s as u32 } else { 0 };
            let sum: i128 = values.iter().map(|v| number(v, scale)).sum();
            if call.function == Sum {
                return Some(decimal(sum, scale as usize));
            }
            let (scaled, n) = (sum * 10i128.pow(16 - scale), values.len() as i128);
            let rounded = (scaled.abs() * 2 + n) / (2 * n) * scaled.signum();
            Some(decimal(rounded, 16))
        }
        (BoolAnd, _) => Some(values.iter().all(|v| v == "true").to_string()),
        (BoolOr, _) => Some(values.iter().any(|v| v == "true").to_string()),
        (function, _) => {
            let column = column(&values);
            let order = arrow::compute::sort(&column, None).unwrap();
            let row = if function == Min { 0 } else { order.len() - 1 };
            Some(row_text(&[order], row))
        }
    }
}

fn naive_view(
    group: &[usize],
    calls: &[AggregateCall],
    input: &SchemaRef,
    rows: &[Row],
) -> BTreeMap<String, i64> {
    let mut groups: BTreeMap<Vec<Option<String>>, Vec<&Row>> = BTreeMap::new();
    if group.is_empty() {
        groups.insert(vec![], vec![]);
    }
    for row in rows {
        groups.entry(group.iter().map(|c| row[*c].clone()).collect()).or_default().push(row);
    }
    let quote = |text: String| {
        let quote = (text.is_empty() || text.contains(' ')) && !text.starts_with('\'');
        if quote { format!("'{text}'") } else { text }
    };
    groups
        .iter()
        .map(|(key, rows)| {
            let results = calls.iter().map(|call| naive(call, input, rows));
            let all = key.iter().cloned().chain(results);
            let texts: Vec<String> = all.map(|v| v.map_or("NULL".to_owned(), quote)).collect();
            (texts.join(" "), 1)
        })
        .collect()
}

/// The actors of one run.
struct Actors<'a> {
    /// Whether they evict all they can at every barrier, and how far behind the applied state is.
    evict: Option<usize>,
    /// Evicting only at every so many barriers, and filling pieces of so many entries.
    filling: (u64, Option<usize>),
    make: &'a dyn Fn() -> Box<dyn Operator>,
    group: &'a [usize],
    drivers: Vec<Driver<'a>>,
}

impl<'a> Actors<'a> {
    fn new(
        make: &'a dyn Fn() -> Box<dyn Operator>,
        group: &'a [usize],
        actors: usize,
        evict: Option<usize>,
        filling: (u64, Option<usize>),
    ) -> Self {
        let drivers = (0..actors).map(|i| Driver::with_vnodes(make, VnodeSet::share(i, actors))).collect();
        let mut this = Self { evict, filling, make, group, drivers };
        this.set_eviction();
        this
    }

    fn set_eviction(&mut self) {
        for driver in &mut self.drivers {
            driver.evict = self.evict.is_some();
            driver.lag = self.evict.unwrap_or(0);
            (driver.evict_every, driver.fill) = self.filling;
        }
    }

    fn change(&mut self, batch: &ChangeBatch) {
        let actors = self.drivers.len();
        let keys: Vec<ArrayRef> = self.group.iter().map(|c| batch.column(*c).clone()).collect();
        let mut hashes = Vec::new();
        hash_columns(&keys, batch.num_rows(), &mut hashes);
        for (index, driver) in self.drivers.iter_mut().enumerate() {
            let own: Vec<bool> = hashes
                .iter()
                .map(|h| actors == 1 || VnodeSet::owner(Vnode::of_hash(*h), actors) == index)
                .collect();
            driver.change(0, batch.filter(&BooleanArray::from(own)).unwrap());
        }
    }

    /// All actors are lost; `actors` new ones start from their state.
    fn restore(&mut self, actors: usize, epoch: u64) {
        let mut state = MemoryState::default();
        for driver in &self.drivers {
            state.entries.extend(driver.own_saved());
        }
        let one = |i| Driver::from_state(self.make, VnodeSet::share(i, actors), state.clone(), epoch);
        self.drivers = (0..actors).map(one).collect();
        self.set_eviction();
    }
}

fn random_batch(input: &SchemaRef, live: &mut Vec<Row>, append_only: bool, rng: &mut StdRng) -> ChangeBatch {
    let mut changes: Vec<(i64, Row)> = Vec::new();
    for _ in 0..rng.random_range(1..12) {
        if !append_only && !live.is_empty() && rng.random_bool(0.45) {
            let gone = live.swap_remove(rng.random_range(0..live.len()));
            changes.push((-1, gone));
        } else if rng.random_bool(0.2) && !live.is_empty() {
            let again = live.choose(rng).unwrap().clone();
            changes.push((2, again.clone()));
            live.extend([again.clone(), again]);
        } else {
            let row: Row = (0..input.fields().len()).map(|c| random_value(c, rng)).collect();
            changes.push((1, row.clone()));
            live.push(row);
        }
    }
    // Within an epoch a row may go before it comes.
    if rng.random_bool(0.5) {
        changes.reverse();
    }
    change_batch(input, &changes)
}

fn check_seed(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let input = input();
    let group: &[usize] = [&[][..], &[0], &[2, 0], &[1], &[1, 0], &[8]].choose(&mut rng).unwrap();
    let calls: Vec<AggregateCall> =
        (0..rng.random_range(0..6)).map(|_| random_call(&input, &mut rng)).collect();
    let append_only = rng.random_bool(0.3);
    let parallel = |rng: &mut StdRng| if group.is_empty() { 1 } else { rng.random_range(1..4) };
    let evict = rng.random_bool(0.5).then(|| rng.random_range(0..3));
    let make_one = || make(group, &calls, &input, append_only);
    let filling = (rng.random_range(1..5), rng.random_bool(0.6).then(|| rng.random_range(1..6)));
    let mut actors = Actors::new(&make_one, group, parallel(&mut rng), evict, filling);
    let (mut live, mut view): (Vec<Row>, BTreeMap<String, i64>) = Default::default();
    for epoch in 1..30 {
        for _ in 0..rng.random_range(0..3) {
            let batch = random_batch(&input, &mut live, append_only, &mut rng);
            actors.change(&batch);
        }
        if !append_only && rng.random_bool(0.1) {
            // Everything goes.
            let all: Vec<(i64, Row)> = live.drain(..).map(|row| (-1, row)).collect();
            actors.change(&change_batch(&input, &all));
        }
        let checkpoint = rng.random_bool(0.5);
        let kind = if checkpoint { BarrierKind::Checkpoint } else { BarrierKind::Tick };
        for driver in &mut actors.drivers {
            for (row, diff) in driver.barrier(kind).consolidated() {
                *view.entry(row).or_insert(0) += diff;
            }
        }
        view.retain(|_, count| *count != 0);
        let expected = naive_view(group, &calls, &input, &live);
        let texts = |view: &BTreeMap<String, i64>| -> BTreeSet<String> {
            view.iter().map(|(row, count)| format!("{count:+} {row}")).collect()
        };
        let (got, wanted) = (texts(&view), texts(&expected));
        assert!(
            got == wanted,
            "seed {seed}, epoch {epoch}, by {group:?}, evicting {evict:?}, filling {filling:?}: {:?}, not {:?}; {calls:#?}",
            got.difference(&wanted).collect::<Vec<_>>(),
            wanted.difference(&got).collect::<Vec<_>>(),
        );
        if checkpoint && rng.random_bool(0.4) {
            let parallel = parallel(&mut rng);
            actors.restore(parallel, epoch);
        }
    }
}

#[test]
fn every_aggregate_is_what_a_recomputation_gives() {
    for seed in 0..40 {
        check_seed(seed);
    }
}
