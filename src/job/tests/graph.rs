//! Plans cut into fragments: what is shared, and what barriers may overtake.

use super::*;
use arrow::array::Int64Array;
use arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;
use weir_sql::plan::{JoinKind, Properties};

fn node(op: PlanOp, inputs: Vec<PlanNode>, columns: usize, distribution: Distribution) -> PlanNode {
    let fields: Vec<_> = (0..columns).map(|c| Field::new(format!("c{c}"), DataType::Int64, true)).collect();
    let properties = Properties { append_only: false, key: None, watermarks: Vec::new(), distribution };
    PlanNode { id: 0, op, inputs, schema: Arc::new(Schema::new(fields)), properties }
}

/// DISTINCT by two columns of a source.
fn counts(columns: Vec<usize>) -> PlanNode {
    let source = node(PlanOp::Source { source: ObjectId(7), columns }, vec![], 2, Distribution::Any);
    let by = Distribution::Hash(vec![0, 1]);
    let exchange = node(PlanOp::Exchange { to: by.clone() }, vec![source], 2, by.clone());
    node(PlanOp::Aggregate { group: vec![0, 1], calls: vec![] }, vec![exchange], 2, by)
}

fn exchanged(input: PlanNode) -> PlanNode {
    let by = Distribution::Hash(vec![0]);
    node(PlanOp::Exchange { to: by.clone() }, vec![input], 2, by)
}

/// The rows of `left` joined to the groups of `right`.
fn joined(left: PlanNode, right: PlanNode) -> PlanNode {
    let by = Distribution::Hash(vec![0]);
    let again = PlanOp::Aggregate { group: vec![0], calls: vec![] };
    let groups = node(again, vec![exchanged(right)], 1, by.clone());
    let (left_keys, right_keys) = (vec![0], vec![0]);
    let op = PlanOp::Join { kind: JoinKind::Inner, left_keys, right_keys, null_equal: false, residual: None };
    node(op, vec![exchanged(left), groups], 3, by)
}

#[test]
fn what_a_plan_has_twice_is_run_once() {
    let stateful = |fragment: &Fragment| {
        fragment.nodes.iter().filter(|n| matches!(n.node.op, PlanOp::Aggregate { .. })).count()
    };
    for parallelism in [1, 2] {
        let fragments = cut(&joined(counts(vec![0, 1]), counts(vec![0, 1])), parallelism);
        assert_eq!(fragments.iter().map(stateful).sum::<usize>(), 2, "{fragments:#?}");
        let shared = fragments.iter().position(|f| stateful(f) == 1 && f.nodes.len() <= 2).unwrap();
        let reads =
            |input: &FragmentInput| matches!(input, FragmentInput::Fragment { from, .. } if *from == shared);
        let readers = fragments.iter().flat_map(|f| &f.inputs).filter(|(input, _)| reads(input)).count();
        assert_eq!(readers, 2);
        for (index, fragment) in fragments.iter().enumerate() {
            for (input, _) in &fragment.inputs {
                assert!(!matches!(input, FragmentInput::Fragment { from, .. } if *from >= index));
            }
        }
        let fragments = cut(&joined(counts(vec![0, 1]), counts(vec![0, 2])), parallelism);
        assert_eq!(fragments.iter().map(stateful).sum::<usize>(), 3);
    }
}

/// DISTINCT over many constant rows, one of which is `odd`.
fn distinct_values(odd: i64) -> PlanNode {
    let values = (0..100).map(|i| if i == 50 { odd } else { i });
    let schema = Arc::new(Schema::new(vec![Field::new("c0", DataType::Int64, true)]));
    let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap();
    let values = node(PlanOp::Values { rows }, vec![], 1, Distribution::Single);
    let by = Distribution::Hash(vec![0]);
    let exchange = node(PlanOp::Exchange { to: by.clone() }, vec![values], 1, by.clone());
    node(PlanOp::Aggregate { group: vec![0], calls: vec![] }, vec![exchange], 1, by)
}

#[test]
fn who_gets_a_key_by_several_ways_waits_for_all_of_them() {
    let with = |mut node: PlanNode, append_only: bool, key: Option<Vec<usize>>| {
        (node.properties.append_only, node.properties.key) = (append_only, key);
        node
    };
    let join = || joined(counts(vec![0, 1]), counts(vec![0, 2]));
    let waits = |join: PlanNode, parallelism: usize, to: Vec<usize>| {
        let by = Distribution::Hash(to);
        let fragments = cut(&node(PlanOp::Exchange { to: by.clone() }, vec![join], 3, by), parallelism);
        let may: Vec<bool> = (0..fragments.len()).map(|i| may_be_overtaken(&fragments, i)).collect();
        let last = may.len() - 1;
        assert!(may[..last].iter().all(|may| *may), "{may:?}");
        !may[last]
    };
    // It is placed by column 0.
    assert!(waits(with(join(), false, Some(vec![1, 2])), 2, vec![2]));
    assert!(!waits(with(join(), false, Some(vec![0, 2])), 2, vec![2]));
    assert!(waits(with(join(), false, Some(vec![0, 2])), 2, vec![1]));
    assert!(!waits(with(join(), true, Some(vec![1, 2])), 2, vec![1]));
    assert!(!waits(with(join(), false, None), 2, vec![1]));
    assert!(!waits(with(join(), false, Some(vec![1, 2])), 1, vec![1]));
}

#[test]
fn a_join_waits_where_a_key_moves_between_its_actors_and_an_aggregate_does_not() {
    let table = |key: usize| {
        let mut scan =
            node(PlanOp::Source { source: ObjectId(7), columns: vec![0, 1] }, vec![], 2, Distribution::Any);
        scan.properties.key = Some(vec![key]);
        scan
    };
    let may = |plan: &PlanNode| {
        let fragments = cut(plan, 2);
        (0..fragments.len()).all(|index| may_be_overtaken(&fragments, index))
    };
    let by = Distribution::Hash(vec![0]);
    let groups = |key: usize| {
        let again = PlanOp::Aggregate { group: vec![0], calls: vec![] };
        node(again, vec![exchanged(table(key))], 1, by.clone())
    };
    assert!(may(&groups(1)));
    assert!(may(&joined(table(0), table(1))));
    assert!(!may(&joined(table(1), table(1))));
}

#[test]
fn many_constants_are_the_same_only_if_all_are() {
    for (odd, shared) in [(50, true), (777, false)] {
        let mut counts = HashMap::new();
        let by = Distribution::Hash(vec![0]);
        let both = vec![distinct_values(50), distinct_values(odd)];
        count_parts(&node(PlanOp::Union, both, 1, by), &mut counts);
        assert_eq!(counts.values().any(|count| *count > 1), shared, "{odd}");
    }
}
