//! Actors and channels of a job, from its fragments.
//!
//! Channels are made first, by the receiving side; then the actors, each with its operators, its
//! inputs, and its outputs within the job. What a job reads of other jobs is attached to their
//! actors by the barrier that starts it.

use super::build::{self, BuildContext};
use super::graph::{Fragment, FragmentInput, may_be_overtaken};
use super::manager::JobError;
use crate::connectors::source::Waker;
use crate::dataflow::actor::{Actor, ActorShared};
use crate::dataflow::align::Aligner;
use crate::dataflow::chain::{Chain, ChainNode, StateSource};
use crate::dataflow::exchange::{ActorSignal, Edge, Receiver, Routing, Sender, channel};
use crate::dataflow::operator::Operator;
use crate::dataflow::worker::Worker;
use crate::stream::{ActorId, VnodeSet};
use std::collections::HashMap;
use std::sync::Arc;
use weir_catalog::{JobId, ObjectId};

/// An actor that is built and not yet running.
pub struct NewActor {
    /// The actor.
    pub actor: Actor,
    /// The worker that it will run on.
    pub worker: usize,
    /// Its vnodes.
    pub vnodes: VnodeSet,
    /// The fragment that it runs, by its index.
    pub fragment: usize,
    /// Where the coordinator sends its barriers, if it is a root.
    pub control: Option<Sender>,
}

/// What a job reads of another one: a channel for each of its own actors, by the reading input.
pub struct External {
    /// The relation or source.
    pub relation: ObjectId,
    /// By actor of the reading fragment: sending ends for each upstream actor.
    pub senders: Vec<Vec<Sender>>,
}

/// A job's actors, built.
pub struct Assembled {
    /// All of them.
    pub actors: Vec<NewActor>,
    /// Those of the root fragment, by index: they emit the job's changes.
    pub outputs: Vec<ActorId>,
    /// What it reads of other jobs.
    pub externals: Vec<External>,
}

/// Adds operators after the root of the last fragment: materialize, sink.
pub type Tail<'a> = &'a dyn Fn(usize, &VnodeSet) -> Result<Option<Box<dyn Operator>>, JobError>;

/// Makes the build context of an actor: its index, how many there are, its vnodes and waker.
pub type Contexts<'a> = &'a dyn Fn((usize, usize), VnodeSet, Waker) -> BuildContext;

/// Makes the operators of a root actor, leaf first, each feeding the next.
pub type Roots<'a> = &'a dyn Fn(usize, &VnodeSet, Waker) -> Result<Vec<Box<dyn Operator>>, JobError>;

/// Where actors are built.
pub struct Site<'a> {
    /// The threads.
    pub workers: &'a [Worker],
    /// What all actors share.
    pub shared: &'a Arc<ActorShared>,
    /// Gives identities.
    pub ids: &'a crate::dataflow::exchange::ActorIds,
    /// The newest published snapshot.
    pub state: &'a StateSource,
    /// How many actors a relation's root fragment has.
    pub upstream_actors: &'a dyn Fn(ObjectId) -> usize,
    /// Bytes that a channel takes before it is full.
    pub channel_bytes: usize,
}

/// The place of one actor before it is built.
struct Place {
    id: ActorId,
    signal: Arc<ActorSignal>,
    worker: usize,
    /// By input of the fragment: receiving ends.
    receivers: Vec<Vec<Receiver>>,
}

impl Site<'_> {
    fn place(&self, job: JobId, index: usize, parallelism: usize) -> Place {
        // Single actors are spread by their job's number.
        let seat = if parallelism == 1 { job.0 as usize } else { index };
        let worker = seat % self.workers.len();
        let signal = self.workers[worker].actor_signal();
        Place { id: self.ids.next(), signal, worker, receivers: Vec::new() }
    }

    /// A job of one fragment without inputs: a source or a table. `operators` gives each actor's
    /// operators, leaf first, each feeding the next.
    pub fn roots(&self, job: JobId, parallelism: usize, operators: Roots<'_>) -> Result<Assembled, JobError> {
        let mut assembled = Assembled { actors: Vec::new(), outputs: Vec::new(), externals: Vec::new() };
        for index in 0..parallelism {
            let place = self.place(job, index, parallelism);
            let vnodes = VnodeSet::share(index, parallelism);
            let operators = operators(index, &vnodes, waker(&place.signal))?;
            let last = operators.len() - 1;
            let nodes = operators
                .into_iter()
                .enumerate()
                .map(|(i, operator)| ChainNode { operator, parent: (i < last).then_some((i + 1, 0)) })
                .collect();
            let chain = Chain::new(nodes, vec![(0, 0)], vec![0], vnodes.clone(), self.state.clone());
            assembled.outputs.push(place.id);
            assembled.actors.push(self.root(job, place, vnodes, chain, Vec::new()));
        }
        Ok(assembled)
    }

    fn root(&self, job: JobId, place: Place, vnodes: VnodeSet, chain: Chain, edges: Vec<Edge>) -> NewActor {
        let (control, receiver) = channel(place.signal.clone(), self.channel_bytes);
        let aligner = Aligner::new(vec![vec![receiver]]);
        let actor = Actor::new(place.id, job, place.signal, self.shared.clone(), aligner, chain, edges);
        NewActor { actor, worker: place.worker, vnodes, fragment: 0, control: Some(control) }
    }

    /// A job of planned fragments; `inputs` are those of its plan.
    pub fn fragments(
        &self,
        job: JobId,
        (fragments, inputs): (&[Fragment], &[(u32, usize)]),
        context: Contexts<'_>,
        tail: Tail<'_>,
    ) -> Result<Assembled, JobError> {
        let mut places: Vec<Vec<Place>> = fragments
            .iter()
            .map(|f| (0..f.parallelism).map(|i| self.place(job, i, f.parallelism)).collect())
            .collect();
        let mut edges: HashMap<(usize, usize), Vec<Edge>> = HashMap::new();
        let mut externals = Vec::new();
        for (index, fragment) in fragments.iter().enumerate() {
            for (input, _) in &fragment.inputs {
                match input {
                    FragmentInput::Fragment { from, columns } => {
                        let senders = self.connect(&mut places[index], fragments[*from].parallelism);
                        for upstream in 0..fragments[*from].parallelism {
                            let to = senders.iter().map(|s| s[upstream].clone()).collect();
                            let edge = Edge { job, routing: Routing::Hash(columns.clone(), to) };
                            edges.entry((*from, upstream)).or_default().push(edge);
                        }
                    }
                    FragmentInput::Relation(relation) => {
                        let upstream = (self.upstream_actors)(*relation);
                        // One channel suffices where actor i feeds actor i.
                        let channels = if upstream == fragment.parallelism { 1 } else { upstream };
                        let senders = self.connect(&mut places[index], channels);
                        externals.push(External { relation: *relation, senders });
                    }
                }
            }
        }
        let mut assembled = Assembled { actors: Vec::new(), outputs: Vec::new(), externals };
        let last = fragments.len() - 1;
        for (index, (fragment, places)) in fragments.iter().zip(places).enumerate() {
            for (i, place) in places.into_iter().enumerate() {
                if index == last {
                    assembled.outputs.push(place.id);
                }
                let edges = edges.remove(&(index, i)).unwrap_or_default();
                let tail = if index == last { Some(tail) } else { None };
                let mut new = self.fragment_actor(job, fragment, i, place, edges, context, tail)?;
                new.fragment = index;
                let number = |(node, port): (usize, usize)| {
                    let target = (fragment.nodes[node].node.id, port);
                    inputs.iter().position(|input| *input == target).map(|number| number as u32)
                };
                let numbers = fragment.inputs.iter().map(|(_, target)| number(*target));
                if may_be_overtaken(fragments, index)
                    && let Some(numbers) = numbers.collect::<Option<Vec<u32>>>()
                {
                    new.actor = new.actor.with_inputs(numbers);
                }
                assembled.actors.push(new);
            }
        }
        Ok(assembled)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one actor, all different")]
    fn fragment_actor(
        &self,
        job: JobId,
        fragment: &Fragment,
        index: usize,
        place: Place,
        edges: Vec<Edge>,
        context: Contexts<'_>,
        tail: Option<Tail<'_>>,
    ) -> Result<NewActor, JobError> {
        let vnodes = VnodeSet::share(index, fragment.parallelism);
        let context = context((index, fragment.parallelism), vnodes.clone(), waker(&place.signal));
        let mut nodes = Vec::new();
        let mut polled = Vec::new();
        for (i, node) in fragment.nodes.iter().enumerate() {
            if build::is_polled(&node.node.op) {
                polled.push(i);
            }
            nodes.push(ChainNode { operator: build::operator(node, &context)?, parent: node.parent });
        }
        if let Some(operator) = tail.map_or(Ok(None), |tail| tail(index, &vnodes))? {
            let root = nodes.len() - 1;
            nodes[root].parent = Some((root + 1, 0));
            nodes.push(ChainNode { operator, parent: None });
        }
        let inputs: Vec<_> = fragment.inputs.iter().map(|(_, target)| *target).collect();
        if inputs.is_empty() {
            let chain = Chain::new(nodes, vec![(0, 0)], polled, vnodes.clone(), self.state.clone());
            return Ok(self.root(job, place, vnodes, chain, edges));
        }
        let chain = Chain::new(nodes, inputs, polled, vnodes.clone(), self.state.clone());
        let aligner = Aligner::new(place.receivers);
        let actor = Actor::new(place.id, job, place.signal, self.shared.clone(), aligner, chain, edges);
        Ok(NewActor { actor, worker: place.worker, vnodes, fragment: 0, control: None })
    }

    /// Channels to each of `places` from each of `upstream` actors. The sending ends: by place.
    fn connect(&self, places: &mut [Place], upstream: usize) -> Vec<Vec<Sender>> {
        places
            .iter_mut()
            .map(|place| {
                let (senders, receivers) =
                    (0..upstream).map(|_| channel(place.signal.clone(), self.channel_bytes)).unzip();
                place.receivers.push(receivers);
                senders
            })
            .collect()
    }
}

fn waker(signal: &Arc<ActorSignal>) -> Waker {
    let signal = Arc::clone(signal);
    Arc::new(move || signal.notify())
}
