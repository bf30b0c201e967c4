//! The auction benchmark: proportions, shapes, replay and pruning.

use super::*;
use arrow::array::{Array, AsArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use weir_catalog::source::FormatSpec;

fn declared(options: &[(&str, &str)]) -> source::Source {
    let options: Options = options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    source::Source {
        columns: columns(&options).expect("the type is given"),
        primary_key: None,
        connector: NAME.into(),
        options,
        format: FormatSpec::default(),
        watermark: None,
    }
}

fn reader(nexmark: &Nexmark, split: u64, from: Option<&Offset>, columns: &[usize]) -> Box<dyn SplitReader> {
    let split = Split { name: split.to_string() };
    nexmark.reader(&split, from, None, columns, Arc::new(|| {})).unwrap()
}

fn read_all(reader: &mut dyn SplitReader, rows_max: usize) -> RecordBatch {
    let mut batches = Vec::new();
    loop {
        match reader.poll(rows_max, 0).unwrap() {
            SplitPoll::Rows(batch, bad) => {
                assert!(bad.is_empty() && batch.num_rows() <= rows_max);
                batches.push(batch);
            }
            SplitPoll::Finished => break,
            SplitPoll::Idle { .. } => panic!("nothing to wait for"),
        }
    }
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

fn all_columns(nexmark: &Nexmark) -> Vec<usize> {
    (0..nexmark.columns.len()).collect()
}

#[test]
fn kinds_have_their_proportions_and_every_event_is_in_one_split() {
    for (kind, rows) in [("Person", 40), ("Auction", 120), ("Bid", 1840)] {
        let nexmark =
            Nexmark::open(&declared(&[("type", kind), ("events", "2000"), ("splits", "3")])).unwrap();
        let time = nexmark.columns.iter().position(|c| *c == "datetime").unwrap();
        let mut times = Vec::new();
        for split in 0..3 {
            let batch = read_all(&mut *reader(&nexmark, split, None, &[time]), 77);
            times.extend_from_slice(batch.column(0).as_primitive::<TimestampMicrosecondType>().values());
        }
        times.sort_unstable();
        times.dedup();
        assert_eq!(times.len(), rows, "{kind}");
    }
}

#[test]
fn reading_goes_on_from_any_offset_with_the_same_rows() {
    let nexmark = Nexmark::open(&declared(&[("type", "bid"), ("events", "3000"), ("seed", "5")])).unwrap();
    let columns = all_columns(&nexmark);
    let whole = read_all(&mut *reader(&nexmark, 1, None, &columns), 10_000);
    for rows_max in [1, 7, 46, 100] {
        let mut first = reader(&nexmark, 1, None, &columns);
        let mut rows = 0;
        for _ in 0..3 {
            let SplitPoll::Rows(batch, _) = first.poll(rows_max, 0).unwrap() else { panic!("rows") };
            assert_eq!(batch, whole.slice(rows, batch.num_rows()));
            rows += batch.num_rows();
        }
        let rest = read_all(&mut *reader(&nexmark, 1, Some(&first.offset()), &columns), 33);
        assert_eq!(rest, whole.slice(rows, whole.num_rows() - rows));
    }
}

#[test]
fn a_column_is_the_same_whatever_else_is_read() {
    for kind in ["Person", "Auction", "Bid"] {
        let nexmark = Nexmark::open(&declared(&[("type", kind), ("events", "5000")])).unwrap();
        let whole = read_all(&mut *reader(&nexmark, 0, None, &all_columns(&nexmark)), 1000);
        for column in all_columns(&nexmark) {
            let alone = read_all(&mut *reader(&nexmark, 0, None, &[column]), 11);
            assert_eq!(alone.column(0), whole.column(column), "{kind} {column}");
        }
        let none = read_all(&mut *reader(&nexmark, 0, None, &[]), 100);
        assert_eq!((none.num_rows(), none.num_columns()), (whole.num_rows(), 0));
    }
}

#[test]
fn until_ends_before_the_offset_and_is_not_paced() {
    let nexmark = Nexmark::open(&declared(&[("type", "bid"), ("rate", "1")])).unwrap();
    let split = Split { name: "0".into() };
    let until = Offset("420".into());
    let mut reader = nexmark.reader(&split, None, Some(&until), &[5], Arc::new(|| {})).unwrap();
    let batch = read_all(&mut *reader, 1000);
    assert_eq!(batch.num_rows(), 46 * 2 + 16, "cycles 0, 4 and the start of 8");
}

#[test]
fn the_rate_paces_a_reader() {
    let nexmark =
        Nexmark::open(&declared(&[("type", "person"), ("rate", "100"), ("splits", "1"), ("events", "100")]))
            .unwrap();
    let mut reader = reader(&nexmark, 0, None, &[0]);
    let SplitPoll::Idle { until_us: Some(until) } = reader.poll(10, 1_000_000).unwrap() else {
        panic!("idle")
    };
    assert_eq!(until, 1_010_000);
    let SplitPoll::Rows(batch, _) = reader.poll(10, until).unwrap() else { panic!("rows") };
    assert_eq!(batch.num_rows(), 1);
    let SplitPoll::Idle { until_us: Some(until) } = reader.poll(10, until).unwrap() else { panic!("idle") };
    assert_eq!(until, 1_510_000, "the next person is event 50");
}

#[test]
fn values_have_the_shapes_of_the_reference() {
    let nexmark = Nexmark::open(&declared(&[("type", "bid"), ("events", "50000"), ("splits", "1")])).unwrap();
    let bids = read_all(&mut *reader(&nexmark, 0, None, &all_columns(&nexmark)), 10_000);
    let prices = bids.column(2).as_primitive::<Int64Type>();
    assert!(prices.values().iter().all(|p| (100..=100_000_000).contains(p)));
    let below_1000 = prices.values().iter().filter(|p| **p < 100_000).count();
    assert!((21_500..24_500).contains(&below_1000), "half of the orders of magnitude: {below_1000} of 46000");
    let channels = bids.column(3).as_string::<i32>();
    let urls = bids.column(4).as_string::<i32>();
    let mut hot = 0;
    for (channel, url) in channels.iter().zip(urls.iter()) {
        let (channel, url) = (channel.unwrap(), url.unwrap());
        assert!(url.starts_with("https://www.nexmark.com/") && url.contains("/item.htm?query=1"), "{url}");
        hot += usize::from(!channel.starts_with("channel-"));
        if let (Some(number), Some((_, id))) =
            (channel.strip_prefix("channel-"), url.split_once("&channel_id="))
        {
            let number: u32 = number.parse().unwrap();
            assert_eq!(id, (number.reverse_bits() as i32).unsigned_abs().to_string());
        }
    }
    assert!((22_000..24_000).contains(&hot), "{hot} hot channels of 46000");
    let extras = bids.column(6).as_string::<i32>();
    assert!(
        extras
            .iter()
            .flatten()
            .all(|e| (54..82).contains(&e.len()) && e.bytes().all(|b| b.is_ascii_lowercase()))
    );
    assert_eq!(bids.column(1).null_count(), 0);
}

#[test]
fn columns_are_found_by_name_and_cast() {
    let mut source = declared(&[("type", "auction"), ("events", "50")]);
    source.columns.retain(|c| c.name == "itemname" || c.name == "id");
    source.columns.reverse();
    source.columns[0].name = "item_name".into();
    source.columns[1].data_type = arrow::datatypes::DataType::Int32;
    let nexmark = Nexmark::open(&source).unwrap();
    let batch = read_all(&mut *reader(&nexmark, 0, None, &[0, 1]), 10);
    assert_eq!(batch.column(1).as_primitive::<arrow::datatypes::Int32Type>().values(), &[1000, 1001, 1002]);

    source.columns[0].name = "colour".into();
    let error = Nexmark::open(&source).unwrap_err().to_string();
    assert!(
        error.starts_with("column \"colour\" does not fit connector \"nexmark\": its columns are id,"),
        "{error}"
    );
}

#[test]
fn every_option_of_the_spec_is_read() {
    for option in SPEC.options {
        let mut options = Options::from([("type".to_owned(), "bid".to_owned())]);
        if option.name.ends_with("type") {
            options.clear();
        }
        let value = if option.name.ends_with("type") { "bid" } else { "1" };
        options.insert(option.name.to_owned(), value.to_owned());
        NexmarkOptions::read(&options).unwrap_or_else(|e| panic!("{}: {e}", option.name));
    }
}
