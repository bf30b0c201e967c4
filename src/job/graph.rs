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
    let mut fragments = Vec::new();
    cut_fragment(root, parallelism, &mut fragments);
    fragments
}

/// Makes the fragment whose root is `root`, after those that feed it. Returns its index.
fn cut_fragment(root: &PlanNode, parallelism: usize, fragments: &mut Vec<Fragment>) -> usize {
    let single = root.properties.distribution == Distribution::Single;
    let mut fragment =
        Fragment { nodes: Vec::new(), inputs: Vec::new(), parallelism: if single { 1 } else { parallelism } };
    match visit(root, parallelism, &mut fragment, fragments) {
        Child::Node(index) => debug_assert_eq!(index + 1, fragment.nodes.len(), "the root comes last"),
        // An exchange at the very top: its fragment only receives and passes on.
        Child::Input(input) => {
            let mut node = without_inputs(root);
            node.op = PlanOp::Union;
            fragment.nodes.push(FragmentNode { node, inputs: inputs_of(root), parent: None });
            fragment.inputs.push((input, (0, 0)));
        }
    }
    fragments.push(fragment);
    fragments.len() - 1
}

fn visit(node: &PlanNode, parallelism: usize, fragment: &mut Fragment, all: &mut Vec<Fragment>) -> Child {
    if let PlanOp::Exchange { to } = &node.op {
        let child = &node.inputs[0];
        if parallelism == 1 {
            return visit(child, parallelism, fragment, all);
        }
        let from = cut_fragment(child, parallelism, all);
        let columns = match to {
            Distribution::Hash(columns) => columns.clone(),
            Distribution::Single | Distribution::Any => Vec::new(),
        };
        return Child::Input(FragmentInput::Fragment { from, columns });
    }
    let children: Vec<Child> = node.inputs.iter().map(|i| visit(i, parallelism, fragment, all)).collect();
    let index = fragment.nodes.len();
    fragment.nodes.push(FragmentNode { node: without_inputs(node), inputs: inputs_of(node), parent: None });
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

fn without_inputs(node: &PlanNode) -> PlanNode {
    PlanNode { inputs: Vec::new(), ..node.clone() }
}

fn inputs_of(node: &PlanNode) -> Vec<NodeInput> {
    node.inputs
        .iter()
        .map(|i| NodeInput { schema: i.schema.clone(), properties: i.properties.clone() })
        .collect()
}
