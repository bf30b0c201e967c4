//! Fragments: a plan cut at its exchanges, and where each one's inputs come from.
//!
//! ```text
//!   plan                         fragments (p actors each, or one)
//!   Aggregate by k               [1] aggregate ── materialize
//!     Exchange hash(k)                 ▲ hash(k): every actor of 0 to every actor of 1
//!       Filter                   [0] source scan ── filter
//!         Source s                     ▲ forward: actor i of s to actor i
//! ```
//! At parallelism 1 an exchange disappears: the whole plan is one fragment.
//!
//! A stateful part that a plan has twice (a view of the hottest auctions counts bids, and joins them
//! to the greatest count) is run once: a fragment of its own, whose changes go to both readers.

use arrow::array::RecordBatch;
use arrow::ipc::writer::StreamWriter;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use std::collections::HashMap;
use std::fmt::Write;
use weir_catalog::ObjectId;
use weir_sql::plan::{Distribution, PlanNode, PlanOp};

/// What feeds a port of a fragment's operator from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum FragmentInput {
    /// Another fragment of the job, routed by the vnode of these columns (empty: to the one actor).
    Fragment {
        /// Its index, lower than this fragment's.
        from: usize,
        /// The columns.
        columns: Vec<usize>,
    },
    /// The changes of a stored relation, or the rows of a source.
    Relation(ObjectId),
}

/// An operator's place in its fragment.
#[derive(Clone, Debug)]
pub struct FragmentNode {
    /// The plan node, without its inputs.
    pub node: PlanNode,
    /// What is known of its inputs, by port.
    pub inputs: Vec<NodeInput>,
    /// The operator (index within the fragment) and port that it feeds; none for the root.
    pub parent: Option<(usize, usize)>,
}

/// What an operator may know of an input.
#[derive(Clone, Debug)]
pub struct NodeInput {
    /// Its columns.
    pub schema: arrow::datatypes::SchemaRef,
    /// What is known of it.
    pub properties: weir_sql::plan::Properties,
}

/// Operators between exchanges.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Children before parents; the last is the root.
    pub nodes: Vec<FragmentNode>,
    /// What comes from outside, and the operator and port that it feeds.
    pub inputs: Vec<(FragmentInput, (usize, usize))>,
    /// How many actors run it.
    pub parallelism: usize,
}

/// What a subtree became, as seen from its parent.
enum Child {
    Node(usize),
    Input(FragmentInput),
}

/// Cuts a plan into fragments; the last one holds the root.
pub fn cut(root: &PlanNode, parallelism: usize) -> Vec<Fragment> {
    let mut counts = HashMap::new();
    count_parts(root, &mut counts);
    counts.retain(|_, count| *count > 1);
    let mut cutter = Cutter { parallelism, repeated: counts, made: HashMap::new(), fragments: Vec::new() };
    cutter.fragment(root);
    cutter.fragments
}

/// What comes from outside to the fragments of a plan that is cut for several actors: the operator's
/// number and port that each input feeds. An input's place here stays the same at any parallelism, and
/// where operators without state come or go.
pub fn inputs(root: &PlanNode) -> Vec<(u32, usize)> {
    let fragments = cut(root, 2);
    let of = |fragment: &Fragment| {
        let target =
            |&(_, (node, port)): &(FragmentInput, (usize, usize))| (fragment.nodes[node].node.id, port);
        fragment.inputs.iter().map(target).collect::<Vec<_>>()
    };
    fragments.iter().flat_map(of).collect()
}

/// Whether actors of a fragment may handle a barrier before it has come on all their channels. What has
/// come by then must be rows that their inputs may hold: where the rows of one key take several ways, from
/// several actors or to several, a new one may come before the old one is taken back, and what keeps a row a
/// key, here or behind, would lose both. An aggregate keeps none of its input.
pub fn may_be_overtaken(fragments: &[Fragment], index: usize) -> bool {
    let fragment = &fragments[index];
    fragment.inputs.iter().all(|(input, (node, _))| match input {
        // A relation's rows are placed by its key; a source's only come.
        FragmentInput::Relation(_) => true,
        FragmentInput::Fragment { from, columns } => {
            aggregates_first(fragment, *node)
                || keys_go_one_way(&fragments[*from], columns, fragment.parallelism)
        }
    })
}

/// Whether the first operator with state that sees what `node` takes is an aggregate.
fn aggregates_first(fragment: &Fragment, mut node: usize) -> bool {
    loop {
        let FragmentNode { node: plan, parent, .. } = &fragment.nodes[node];
        match (&plan.op, parent) {
            (PlanOp::Aggregate { .. }, _) => return true,
            (op, _) if keeps_rows(op) => return false,
            (_, Some((above, _))) => node = *above,
            (_, None) => return false,
        }
    }
}

fn keeps_rows(op: &PlanOp) -> bool {
    use PlanOp::{Aggregate, Join, Over, TopN};
    matches!(op, Aggregate { .. } | Join { .. } | TopN { .. } | Over { .. })
}

/// Whether rows of one key that a fragment gives out always come from the same actor, and go, by these
/// `columns`, to the same one of `readers`. Equal rows without a key are counted: each actor takes back no
/// more than it gave.
fn keys_go_one_way(fragment: &Fragment, columns: &[usize], readers: usize) -> bool {
    let Some(root) = fragment.nodes.last() else { return false };
    let known = &root.node.properties;
    let Some(key) = known.key.as_ref().filter(|_| !known.append_only) else { return true };
    let in_key = |columns: &[usize]| columns.iter().all(|column| key.contains(column));
    // What passes rows on has them where they were.
    let passes = || {
        !fragment.nodes.iter().any(|n| keeps_rows(&n.node.op))
            && fragment.inputs.iter().all(|(input, _)| matches!(input, FragmentInput::Relation(_)))
    };
    let from_one = fragment.parallelism == 1
        || match &known.distribution {
            Distribution::Hash(columns) => in_key(columns) || passes(),
            Distribution::Single => true,
            Distribution::Any => passes(),
        };
    from_one && (readers == 1 || in_key(columns))
}

/// Counts how often each stateful part occurs; what is within a part that occurs again counts once.
fn count_parts(node: &PlanNode, counts: &mut HashMap<String, usize>) {
    if let Some(part) = part_of(node) {
        let count = counts.entry(part).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
    }
    node.inputs.iter().for_each(|input| count_parts(input, counts));
}

/// What a stateful part of a plan does, as text that is the same for parts that do the same; none
/// if it can't be run once for two readers.
fn part_of(node: &PlanNode) -> Option<String> {
    let stateful = matches!(node.op, PlanOp::Aggregate { .. } | PlanOp::Join { .. } | PlanOp::TopN { .. });
    if !stateful || node.properties.distribution == Distribution::Any {
        return None;
    }
    let mut text = String::new();
    describe(node, &mut text).then_some(text)
}

/// Appends all but the numbers of nodes; false if the same part gives different rows each time.
fn describe(node: &PlanNode, text: &mut String) -> bool {
    let volatile = match &node.op {
        PlanOp::Filter { predicate } => is_volatile(predicate),
        PlanOp::Project { exprs } => exprs.iter().any(is_volatile),
        PlanOp::Join { residual, .. } => residual.as_ref().is_some_and(is_volatile),
        _ => false,
    };
    // Writing to a String can't fail.
    let _ = match &node.op {
        PlanOp::Values { rows } => write!(text, "({:?}", whole(rows)),
        op => write!(text, "({op:?} {:?}", node.schema),
    };
    let _ = write!(text, " {:?}", node.properties);
    let same = !volatile && node.inputs.iter().all(|input| describe(input, text));
    text.push(')');
    same
}

/// All of these rows as bytes: an array's `Debug` leaves out the middle of a long one.
fn whole(rows: &RecordBatch) -> Option<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema()).ok()?;
    writer.write(rows).ok()?;
    writer.into_inner().ok()
}

struct Cutter {
    parallelism: usize,
    /// Parts that occur more than once.
    repeated: HashMap<String, usize>,
    /// The fragments of those that were met.
    made: HashMap<String, usize>,
    fragments: Vec<Fragment>,
}

impl Cutter {
    /// Makes the fragment whose root is `root`, after those that feed it. Returns its index.
    fn fragment(&mut self, root: &PlanNode) -> usize {
        let part = self.repeated_part(root);
        if let Some(made) = part.as_ref().and_then(|part| self.made.get(part)) {
            return *made;
        }
        let single = root.properties.distribution == Distribution::Single;
        let parallelism = if single { 1 } else { self.parallelism };
        let mut fragment = Fragment { nodes: Vec::new(), inputs: Vec::new(), parallelism };
        match self.visit_own(root, &mut fragment) {
            Child::Node(index) => debug_assert_eq!(index + 1, fragment.nodes.len(), "the root comes last"),
            // An exchange at the very top: its fragment only receives and passes on.
            Child::Input(input) => {
                let mut node = without_inputs(root);
                node.op = PlanOp::Union;
                fragment.nodes.push(FragmentNode { node, inputs: inputs_of(root), parent: None });
                fragment.inputs.push((input, (0, 0)));
            }
        }
        self.fragments.push(fragment);
        let index = self.fragments.len() - 1;
        if let Some(part) = part {
            self.made.insert(part, index);
        }
        index
    }

    fn repeated_part(&self, node: &PlanNode) -> Option<String> {
        if self.repeated.is_empty() {
            return None;
        }
        part_of(node).filter(|part| self.repeated.contains_key(part))
    }

    fn visit(&mut self, node: &PlanNode, fragment: &mut Fragment) -> Child {
        if self.repeated_part(node).is_none() {
            return self.visit_own(node, fragment);
        }
        let from = self.fragment(node);
        // By the columns that its rows are distributed by: each actor feeds the one like itself.
        let columns = match &node.properties.distribution {
            Distribution::Hash(columns) => columns.clone(),
            Distribution::Single | Distribution::Any => Vec::new(),
        };
        Child::Input(FragmentInput::Fragment { from, columns })
    }

    fn visit_own(&mut self, node: &PlanNode, fragment: &mut Fragment) -> Child {
        if let PlanOp::Exchange { to } = &node.op {
            let child = &node.inputs[0];
            if self.parallelism == 1 {
                return self.visit(child, fragment);
            }
            let from = self.fragment(child);
            let columns = match to {
                Distribution::Hash(columns) => columns.clone(),
                Distribution::Single | Distribution::Any => Vec::new(),
            };
            return Child::Input(FragmentInput::Fragment { from, columns });
        }
        let children: Vec<Child> = node.inputs.iter().map(|i| self.visit(i, fragment)).collect();
        let index = fragment.nodes.len();
        fragment.nodes.push(FragmentNode {
            node: without_inputs(node),
            inputs: inputs_of(node),
            parent: None,
        });
        for (port, child) in children.into_iter().enumerate() {
            match child {
                Child::Node(child) => fragment.nodes[child].parent = Some((index, port)),
                Child::Input(input) => fragment.inputs.push((input, (index, port))),
            }
        }
        if let PlanOp::Source { source: relation, .. } | PlanOp::Scan { relation, .. } = &node.op {
            fragment.inputs.push((FragmentInput::Relation(*relation), (index, 0)));
        }
        Child::Node(index)
    }
}

fn without_inputs(node: &PlanNode) -> PlanNode {
    PlanNode { inputs: Vec::new(), ..node.clone() }
}

fn inputs_of(node: &PlanNode) -> Vec<NodeInput> {
    node.inputs
        .iter()
        .map(|i| NodeInput { schema: i.schema.clone(), properties: i.properties.clone() })
        .collect()
}

#[cfg(test)]
#[path = "tests/graph.rs"]
mod tests;
