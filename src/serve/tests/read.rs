//! Reading stored relations: whole, by key, by range, with an overlay, with limits.

use super::*;
use crate::config::Config;
use crate::serve::execute::QueryEngine;
use crate::state::key::KeyCodec;
use crate::state::store::{StateRead, full_key};
use crate::state::table::{StateTable, TableLayout};
use crate::state::value::ValueCodec;
use crate::stream::vnode::hash_columns;
use crate::stream::{ChangeBatch, Epoch, Vnode};
use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::functions_aggregate::count::count_all;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, col, lit};
use futures::TryStreamExt;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use weir_catalog::relation::{Index, MaterializedView, OnConflict, Table};
use weir_catalog::source::{FormatSpec, Source};
use weir_catalog::{CatalogChange, Column, ObjectId, ObjectName};

struct NoSystem;

impl SystemRows for NoSystem {
    fn rows(&self, schema: &str, name: &str, _: &CatalogSnapshot) -> Result<RecordBatch, ServeError> {
        Err(ServeError::new(SqlState::UNDEFINED_TABLE, format!("{schema}.{name}")))
    }
}

#[derive(Default)]
struct MemoryState {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    scanned: AtomicUsize,
}

impl StateRead for MemoryState {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, crate::state::StateError> {
        Ok(self.entries.get(key).cloned())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, crate::state::StateError> {
        Ok(keys.iter().map(|k| self.entries.get(k).cloned()).collect())
    }

    fn scan(
        &self,
        lower: &[u8],
        upper: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), crate::state::StateError> {
        for (key, value) in self.entries.range(lower.to_vec()..upper.to_vec()) {
            self.scanned.fetch_add(1, Ordering::Relaxed);
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// A table `t (id int, at bigint, name text)` with key (id, at) of `rows` rows, and a view `v` of
/// the names without a key.
struct Fixture {
    catalog: Arc<CatalogSnapshot>,
    state: Arc<MemoryState>,
    engine: QueryEngine,
}

fn column(name: &str, data_type: DataType, sql_type: &str) -> Column {
    Column { name: name.into(), data_type, sql_type: sql_type.into(), nullable: true, default: None }
}

fn rows(ids: std::ops::Range<i32>) -> Vec<ArrayRef> {
    vec![
        Arc::new(Int32Array::from_iter_values(ids.clone().map(|i| i / 10))),
        Arc::new(Int64Array::from_iter_values(ids.clone().map(|i| i64::from(i % 10)))),
        Arc::new(StringArray::from_iter(ids.map(|i| (i % 3 != 0).then(|| format!("name{}", i % 4))))),
    ]
}

fn fixture(count: i32) -> Fixture {
    let columns = vec![
        column("id", DataType::Int32, "integer"),
        column("at", DataType::Int64, "bigint"),
        column("name", DataType::Utf8, "text"),
    ];
    let t = ObjectBody::Table(Table {
        columns: columns.clone(),
        key: RowKey::Columns(vec![0, 1]),
        append_only: false,
        on_conflict: OnConflict::Error,
        watermark: None,
    });
    let v = ObjectBody::MaterializedView(MaterializedView {
        columns: columns[2..].to_vec(),
        key: RowKey::WholeRow,
        append_only: false,
        query: "SELECT name FROM t".into(),
        inputs: vec![ObjectId::FIRST_USER],
        watermarks: Vec::new(),
        emit_on_close: false,
    });
    let s = ObjectBody::Source(Source {
        columns: columns.clone(),
        primary_key: None,
        connector: "datagen".into(),
        options: BTreeMap::new(),
        format: FormatSpec::default(),
        watermark: None,
    });
    let index = ObjectBody::Index(Index {
        relation: ObjectId::FIRST_USER,
        columns: vec![(2, false), (1, true)],
        include: vec![],
    });
    let mut catalog = CatalogSnapshot::default();
    for (name, body, state) in [
        ("t", t, ObjectState::Created),
        ("v", v.clone(), ObjectState::Created),
        ("s", s, ObjectState::Created),
        ("filling", v, ObjectState::Creating),
        ("t_name_at", index, ObjectState::Created),
    ] {
        let object = Object {
            id: catalog.next_id,
            name: ObjectName::public(name),
            body,
            state,
            definition: String::new(),
            comment: None,
            parallelism: None,
        };
        catalog = catalog.apply(&CatalogChange::Create(object)).expect("valid");
    }
    let all = rows(0..count);
    let mut entries = BTreeMap::new();
    let value = ValueCodec::new(vec![DataType::Utf8]);
    let mut put = |object: u32, types: Vec<DataType>, key: &[ArrayRef], value: &dyn Fn(usize) -> Vec<u8>| {
        let mut hashes = Vec::new();
        hash_columns(key, count as usize, &mut hashes);
        let vnodes: Vec<Vnode> = hashes.iter().map(|h| Vnode::of_hash(*h)).collect();
        let keys = KeyCodec::new(types).encode_all(key, count as usize, Some(&vnodes));
        for row in 0..count as usize {
            entries.insert(full_key(ObjectId(object).table(), keys.get(row)), value(row));
        }
    };
    let first = ObjectId::FIRST_USER.0;
    put(first, vec![DataType::Int32, DataType::Int64], &all[..2], &|row| {
        let mut bytes = Vec::new();
        value.encode(&all[2..], row, &mut bytes);
        bytes
    });
    let names = Arc::clone(&all[2]);
    let name = |i: i32| (i % 3 != 0).then_some(i % 4);
    let mut occurs: BTreeMap<Option<i32>, i64> = BTreeMap::new();
    (0..count).for_each(|i| *occurs.entry(name(i)).or_default() += 1);
    let occurs = |row: usize| occurs[&name(row as i32)];
    put(first + 1, vec![DataType::Utf8], &[names], &|row| occurs(row).to_le_bytes().to_vec());
    let index = catalog.get(&ObjectName::public("t_name_at")).expect("exists");
    let layout = TableLayout::of_object(index, |id| catalog.by_id(id)).expect("an index");
    let mut table = StateTable::new(Arc::new(layout));
    let schema =
        weir_catalog::column::arrow_schema(catalog.get(&ObjectName::public("t")).expect("t").columns());
    let batch = RecordBatch::try_new(schema, all.clone()).expect("valid");
    if count > 0 {
        table.write(&ChangeBatch::insertions(batch));
    }
    for (_, key, value) in table.seal().iter() {
        entries.insert(key.to_vec(), value.to_vec());
    }
    let config = Config::new([("query.threads", "2")]).expect("valid");
    let state = Arc::new(MemoryState { entries, scanned: AtomicUsize::new(0) });
    Fixture { catalog: Arc::new(catalog), state, engine: QueryEngine::new(&config).expect("started") }
}

impl Fixture {
    fn scan(&self, name: &str) -> LogicalPlanBuilder {
        let object = Arc::clone(self.catalog.get(&ObjectName::public(name)).expect("exists"));
        let schema = weir_catalog::column::arrow_schema(object.columns());
        LogicalPlanBuilder::scan(name, Arc::new(RelationSource { object, schema }), None).expect("a scan")
    }

    async fn run_with(
        &self,
        plan: LogicalPlan,
        overlay: Option<Arc<dyn Overlay>>,
        memory: usize,
    ) -> Result<Vec<RecordBatch>, ServeError> {
        let visible = Visible {
            epoch: Epoch(7),
            dml_position: 0,
            state: Arc::clone(&self.state) as Arc<dyn StateRead>,
        };
        let at = ReadPoint { catalog: Arc::clone(&self.catalog), visible };
        let snapshot = QuerySnapshot::new(at, Arc::clone(&self.catalog), overlay);
        let plan = snapshot.resolve(plan, &NoSystem)?;
        let stream = self.engine.execute(plan, memory, CancellationToken::new(), None).await?;
        Ok(stream.try_collect().await?)
    }

    async fn run(&self, plan: LogicalPlanBuilder) -> Result<Vec<RecordBatch>, ServeError> {
        self.run_with(plan.build().expect("a plan"), None, 1 << 30).await
    }
}

fn total(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

#[tokio::test]
async fn everything_is_read_once_and_keyless_rows_are_repeated() {
    let fixture = fixture(20_000);
    assert_eq!(total(&fixture.run(fixture.scan("t")).await.expect("rows")), 20_000);
    assert_eq!(total(&fixture.run(fixture.scan("v")).await.expect("rows")), 20_000);
    let nameless = fixture.scan("v").filter(col("name").is_null()).expect("a filter");
    assert_eq!(total(&fixture.run(nameless).await.expect("rows")), 6_667);
    let counted = fixture.scan("v").aggregate(Vec::<Expr>::new(), vec![count_all()]).expect("a count");
    let batches = fixture.run(counted).await.expect("rows");
    assert_eq!(batches[0].column(0).as_ref(), &Int64Array::from(vec![20_000]));
    let empty = self::fixture(0);
    assert_eq!(total(&empty.run(empty.scan("v")).await.expect("rows")), 0);
}

#[tokio::test]
async fn keys_are_looked_up_without_a_scan() {
    let fixture = fixture(10_000);
    let scanned = || fixture.state.scanned.swap(0, Ordering::Relaxed);
    let point = col("id").eq(lit(12)).and(col("at").eq(lit(3i64)));
    let plan = fixture.scan("t").filter(point).expect("a filter");
    assert_eq!(total(&fixture.run(plan).await.expect("rows")), 1);
    assert_eq!(scanned(), 0);

    let points = col("id").in_list(vec![lit(1), lit(2), lit(99_999)], false);
    let points = points.and(col("at").eq(lit(1i64)).or(col("at").eq(lit(2i64))));
    let plan = fixture.scan("t").filter(points).expect("a filter");
    assert_eq!(total(&fixture.run(plan).await.expect("rows")), 4);
    assert_eq!(scanned(), 0);

    let prefix = fixture.scan("t").filter(col("id").eq(lit(12))).expect("a filter");
    assert_eq!(total(&fixture.run(prefix).await.expect("rows")), 10);
    assert_eq!(scanned(), 10);

    let range = col("id").gt_eq(lit(990)).and(col("id").lt(lit(992)));
    let range = fixture.scan("t").filter(range).expect("a filter");
    assert_eq!(total(&fixture.run(range).await.expect("rows")), 20);
    assert_eq!(scanned(), 20);

    let prefix = col("id").eq(lit(12)).and(col("at").gt(lit(7i64)));
    let prefix = fixture.scan("t").filter(prefix).expect("a filter");
    assert_eq!(total(&fixture.run(prefix).await.expect("rows")), 2);
    assert_eq!(scanned(), 2);

    let nothing = col("id").gt(lit(5)).and(col("id").lt(lit(5)));
    let nothing = fixture.scan("t").filter(nothing).expect("a filter");
    assert_eq!(total(&fixture.run(nothing).await.expect("rows")), 0);
    assert_eq!(scanned(), 0);
}

#[tokio::test]
async fn an_index_is_read_instead_of_the_relation() {
    let fixture = fixture(6_000);
    let scanned = || fixture.state.scanned.swap(0, Ordering::Relaxed);
    let both = col("name").eq(lit("name1")).and(col("at").eq(lit(3i64)));
    let expected = (0..6_000).filter(|i| i % 3 != 0 && i % 4 == 1 && i % 10 == 3).count();
    let plan = fixture.scan("t").filter(both).expect("a filter");
    assert_eq!(total(&fixture.run(plan).await.expect("rows")), expected);
    assert_eq!(scanned(), expected);

    let prefix = col("name").in_list(vec![lit("name1"), lit("name2"), lit("nobody")], false);
    let expected = (0..6_000).filter(|i| i % 3 != 0 && (i % 4 == 1 || i % 4 == 2)).count();
    let plan = fixture.scan("t").filter(prefix).expect("a filter");
    assert_eq!(total(&fixture.run(plan).await.expect("rows")), expected);
    assert_eq!(scanned(), expected);

    let later = fixture.scan("t").filter(col("at").eq(lit(3i64))).expect("a filter");
    assert_eq!(total(&fixture.run(later).await.expect("rows")), 600);
    assert_eq!(scanned(), 6_000, "the second column alone is no use");
}

#[tokio::test]
async fn a_limit_stops_the_reading() {
    let fixture = fixture(50_000);
    let plan = fixture.scan("t").limit(0, Some(5)).expect("a limit");
    assert_eq!(total(&fixture.run(plan).await.expect("rows")), 5);
    assert!(fixture.state.scanned.load(Ordering::Relaxed) <= 10);
}

struct Changes(SchemaRef, Vec<(i32, i64)>);

impl Overlay for Changes {
    fn changes(&self, relation: ObjectId) -> Vec<ChangeBatch> {
        if relation != ObjectId::FIRST_USER {
            return Vec::new();
        }
        let columns: Vec<ArrayRef> = (0..3)
            .map(|c| {
                let parts: Vec<ArrayRef> =
                    self.1.iter().map(|(i, _)| Arc::clone(&rows(*i..*i + 1)[c])).collect();
                let parts: Vec<_> = parts.iter().map(|p| p.as_ref()).collect();
                arrow::compute::concat(&parts).expect("alike")
            })
            .collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.0), columns).expect("valid");
        vec![ChangeBatch::new(batch, self.1.iter().map(|(_, d)| *d).collect::<Vec<_>>())]
    }
}

#[tokio::test]
async fn an_overlay_is_seen_on_top() {
    let fixture = fixture(100);
    let schema = weir_catalog::column::arrow_schema(
        fixture.catalog.get(&ObjectName::public("t")).expect("exists").columns(),
    );
    let overlay: Arc<dyn Overlay> =
        Arc::new(Changes(schema, vec![(5, -1), (100, 1), (101, 1), (101, -1), (6, -1), (6, 1)]));
    let plan = fixture.scan("t").build().expect("a plan");
    let batches = fixture.run_with(plan, Some(Arc::clone(&overlay)), 1 << 30).await.expect("rows");
    assert_eq!(total(&batches), 100);
    for (id, at, expected) in [(0, 5i64, 0), (0, 6, 1), (10, 0, 1), (10, 1, 0)] {
        let plan =
            fixture.scan("t").filter(col("id").eq(lit(id)).and(col("at").eq(lit(at)))).expect("a filter");
        let plan = plan.build().expect("a plan");
        let batches = fixture.run_with(plan, Some(Arc::clone(&overlay)), 1 << 30).await.expect("rows");
        assert_eq!(total(&batches), expected, "({id}, {at})");
    }
}

#[tokio::test]
async fn what_cannot_be_read_says_so() {
    let fixture = fixture(10);
    let error = fixture.run(fixture.scan("s")).await.expect_err("a source");
    assert_eq!((error.state.0, error.hint.is_some()), ("0A000", true));
    let error = fixture.run(fixture.scan("filling")).await.expect_err("a filling view");
    assert_eq!(error.state.0, "55000");
}

#[tokio::test]
async fn limits_hold() {
    let fixture = fixture(20_000);
    let sort = fixture.scan("t").sort(vec![col("name").sort(true, false), col("at").sort(true, false)]);
    let error = fixture.run_with(sort.expect("a sort").build().expect("a plan"), None, 100_000).await;
    assert_eq!(error.expect_err("too big").state.0, "53200");

    // A cross join without an end in sight.
    let endless = fixture.scan("t").cross_join(fixture.scan("v").build().expect("a plan")).expect("a join");
    let endless = endless.aggregate(Vec::<Expr>::new(), vec![count_all()]).expect("a count");
    let visible =
        Visible { epoch: Epoch(7), dml_position: 0, state: Arc::clone(&fixture.state) as Arc<dyn StateRead> };
    let at = ReadPoint { catalog: Arc::clone(&fixture.catalog), visible };
    let snapshot = QuerySnapshot::new(at, Arc::clone(&fixture.catalog), None);
    let plan = snapshot.resolve(endless.build().expect("a plan"), &NoSystem).expect("resolved");
    assert!(plan.exists(|n| Ok(matches!(n, LogicalPlan::TableScan(_)))).expect("walked"));
    let cancel = CancellationToken::new();
    let timeout = Some(Duration::from_millis(200));
    let stream =
        fixture.engine.execute(plan.clone(), 1 << 30, cancel.clone(), timeout).await.expect("started");
    let error = ServeError::from(stream.try_collect::<Vec<_>>().await.expect_err("timed out"));
    assert_eq!(error, ServeError::timed_out());
    let stream = fixture.engine.execute(plan, 1 << 30, cancel.clone(), None).await.expect("started");
    cancel.cancel();
    let error = ServeError::from(stream.try_collect::<Vec<_>>().await.expect_err("cancelled"));
    assert_eq!(error, ServeError::canceled());
}

/// Another session drops what the statement reads, and its rows, before the epoch is taken.
#[tokio::test]
async fn what_is_dropped_meanwhile_is_not_read() {
    let fixture = fixture(2_000);
    let id_of = |name: &str| fixture.catalog.get(&ObjectName::public(name)).expect("there").id;
    let without = |dropped: &[ObjectId]| -> Arc<CatalogSnapshot> {
        let drop = |catalog: CatalogSnapshot, id: &ObjectId| catalog.apply(&CatalogChange::Drop(*id));
        let all = CatalogSnapshot::clone(&fixture.catalog);
        Arc::new(dropped.iter().try_fold(all, drop).expect("dropped"))
    };
    let filter = || fixture.scan("t").filter(col("name").eq(lit("name1"))).expect("a filter");
    let expected = total(&fixture.run(filter()).await.expect("rows"));
    assert!(expected > 0);

    // The index's entries are gone, the catalog of before still names it.
    let (index, prefix) = (id_of("t_name_at"), id_of("t_name_at").table().0.to_be_bytes());
    let mut entries = fixture.state.entries.clone();
    let all = entries.len();
    entries.retain(|key, _| !key.starts_with(&prefix));
    assert!(entries.len() < all, "there were some");
    let state: Arc<dyn StateRead> = Arc::new(MemoryState { entries, scanned: AtomicUsize::new(0) });
    let read = |now: Arc<CatalogSnapshot>| {
        let visible = Visible { epoch: Epoch(7), dml_position: 0, state: Arc::clone(&state) };
        let at = ReadPoint { catalog: Arc::clone(&fixture.catalog), visible };
        let plan = filter().build().expect("a plan");
        let resolved = QuerySnapshot::new(at, now, None).resolve(plan, &NoSystem);
        async {
            let stream = fixture.engine.execute(resolved?, 1 << 30, CancellationToken::new(), None).await?;
            Ok::<_, ServeError>(total(&stream.try_collect::<Vec<_>>().await?))
        }
    };
    assert_eq!(read(Arc::clone(&fixture.catalog)).await.expect("rows"), 0, "through the index: none");
    assert_eq!(read(without(&[index])).await.expect("rows"), expected, "through the table");

    let error = read(without(&[index, id_of("v"), id_of("filling"), id_of("t")])).await;
    assert_eq!(error.expect_err("it is gone").state.0, "42P01");
}
