//! What is proved of plans, what identifies them, and what the exchanges promise.

use super::harness::stream;
use crate::plan::fingerprint::fingerprints;
use crate::plan::{Distribution, PlanNode, PlanOp};
use crate::rewrite::exchange::with_output_distribution;

fn visit<'a>(node: &'a PlanNode, each: &mut dyn FnMut(&'a PlanNode)) {
    each(node);
    for input in &node.inputs {
        visit(input, each);
    }
}

const QUERIES: [&str; 16] = [
    "select count(*) from bid",
    "select v, count(*) from t group by v",
    "select t.id, u.id as uid, w from t full join u on t.id = u.t_id",
    "select * from t where id not in (select t_id from u)",
    "select * from nulls where x not in (select y from nulls)",
    "select t.id from t, u",
    "select * from t order by v limit 3",
    "select id from (select *, row_number() over (partition by s order by v) rn from t) x where rn < 3",
    "select 1 as id union all select id from t",
    "select v, count(*) from (select t.v, u.w from t join u on t.id = u.t_id) x group by v",
    "select id from t where id in (select t_id from u) or v > 3",
    "select distinct s from t union select b from log",
    "select id, v, count(*) from t where id not in (select t_id from u) group by rollup (id, v)",
    "select s, count(*) from (select * from t order by v limit 3) x group by cube (s)",
    "select t.id, count(*) from t full join u on true group by grouping sets ((t.id), ())",
    "select id from t where v > 3 and id not in (select t_id from u) union all select id from u",
];

#[test]
fn stateful_operators_get_their_rows_where_their_state_is() {
    for sql in QUERIES {
        let plan = stream(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        visit(&plan.root, &mut |node| {
            let by = |columns: &[usize]| match columns {
                [] => Distribution::Single,
                columns => Distribution::Hash(columns.to_vec()),
            };
            match &node.op {
                PlanOp::Aggregate { group, .. } | PlanOp::TopN { group, .. } => {
                    assert_eq!(node.inputs[0].properties.distribution, by(group), "{sql}");
                }
                PlanOp::Join { left_keys, right_keys, .. } => {
                    for (input, keys) in node.inputs.iter().zip([left_keys, right_keys]) {
                        let single = input.properties.distribution == Distribution::Single;
                        assert!(single || input.properties.distribution == by(keys), "{sql}");
                    }
                }
                PlanOp::Union => {
                    let singles =
                        node.inputs.iter().filter(|i| i.properties.distribution == Distribution::Single);
                    assert!([0, node.inputs.len()].contains(&singles.count()), "{sql}");
                }
                _ => {}
            }
        });
    }
}

/// Between two exchanges all is run by one actor, or all by many: which, is asked of the uppermost.
#[test]
fn what_stands_above_a_single_operator_is_single() {
    let single = |node: &PlanNode| node.properties.distribution == Distribution::Single;
    for sql in QUERIES {
        let plan = stream(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        visit(&plan.root, &mut |node| {
            let moved = matches!(node.op, PlanOp::Exchange { .. });
            let below = node.inputs.iter().any(&single);
            assert!(moved || !below || single(node), "{sql}: {:?} spreads what one actor has", node.op);
        });
    }
}

#[test]
fn nodes_are_numbered_in_pre_order() {
    for sql in QUERIES {
        let plan = with_output_distribution(stream(sql).expect(sql), Distribution::Hash(vec![0]));
        let mut ids = Vec::new();
        visit(&plan.root, &mut |node| ids.push(node.id));
        assert_eq!(ids, (0..ids.len() as u32).collect::<Vec<_>>(), "{sql}");
    }
}

#[test]
fn columns_of_expressions_exist() {
    for sql in QUERIES {
        let plan = stream(sql).expect(sql);
        visit(&plan.root, &mut |node| {
            let exprs = match &node.op {
                PlanOp::Project { exprs } => exprs.clone(),
                PlanOp::Filter { predicate } => vec![predicate.clone()],
                _ => Vec::new(),
            };
            for (i, expr) in exprs.iter().enumerate() {
                let found = expr.data_type(&node.inputs[0].schema).expect("its columns exist");
                if matches!(node.op, PlanOp::Project { .. }) {
                    assert_eq!(&found, node.schema.field(i).data_type(), "{sql}: {expr}");
                }
            }
        });
    }
}

#[test]
fn the_output_is_spread_as_asked() {
    let plan = stream("select v, count(*) from t group by v").expect("a plan");
    let keyed = with_output_distribution(plan.clone(), Distribution::Hash(vec![0]));
    assert!(matches!(keyed.root.op, PlanOp::Aggregate { .. }), "it is there already");
    let single = with_output_distribution(plan.clone(), Distribution::Hash(Vec::new()));
    assert_eq!(single.root.properties.distribution, Distribution::Single);
    let other = with_output_distribution(plan, Distribution::Hash(vec![1]));
    assert!(matches!(&other.root.op, PlanOp::Exchange { to: Distribution::Hash(c) } if c == &[1]));
    assert_eq!(with_output_distribution(other.clone(), Distribution::Hash(vec![0])).root.inputs.len(), 1);
}

#[test]
fn fingerprints_tell_state_apart_and_nothing_else() {
    let of = |sql: &str| fingerprints(&stream(sql).unwrap_or_else(|e| panic!("{sql}: {e}")));
    let base = of("select v, count(*) from t group by v");
    assert_eq!(base, of("select v, count(*) from t group by v"));
    assert_eq!(base, of("select v as other, count(*) as n from t as x group by v"), "names don't count");
    assert_ne!(base, of("select v, count(id) from t group by v"));
    assert_ne!(base, of("select s, count(*) from t group by s"));
    assert_ne!(base, of("select v, max(v) from t group by v"));
    let join = "select t.id from t join u on t.id = u.t_id and t.v > u.w";
    let renamed = "select a.id from t a join (select t_id as k, w as z from u) b on a.id = b.k and a.v > b.z";
    let hashes = |sql: &str| of(sql).into_iter().map(|(_, hash)| hash).collect::<Vec<_>>();
    assert_eq!(hashes(join), hashes(renamed));
    assert_ne!(of(join), of("select t.id from t join u on t.id = u.t_id and t.v >= u.w"));
}

#[test]
fn rows_are_known_to_be_where_they_are_wanted() {
    // Hashed by t's columns, of which none are left.
    let joined = "select u.t_id, u.w from t join u on t.id = u.t_id and t.v = u.w";
    let to = Distribution::Hash(vec![0, 1]);
    for sql in [joined, "select distinct v, s from t", "select id, v from t"] {
        let plan = with_output_distribution(stream(sql).unwrap_or_else(|e| panic!("{sql}: {e}")), to.clone());
        assert_eq!(plan.root.properties.distribution, to, "{sql}");
    }
}
