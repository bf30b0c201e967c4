//! A simulation's threads: there are none. Whoever began it on this thread steps their work.

use super::{Step, Work};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

type Pick = Box<dyn FnMut(u64) -> bool>;

#[derive(Default)]
struct Crew {
    next: u64,
    /// Those that are being stepped are elsewhere.
    works: BTreeMap<u64, (String, Option<Box<dyn Work>>)>,
    /// Whether the process has died: nothing is done any more.
    dead: bool,
    /// Which process it is.
    process: u64,
    /// How many numbers were drawn.
    drawn: u64,
}

thread_local! {
    static CREW: RefCell<Option<Crew>> = const { RefCell::new(None) };
    static PICK: RefCell<Option<Pick>> = const { RefCell::new(None) };
    static BOUND: Cell<Option<usize>> = const { Cell::new(None) };
    static HELD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From now on what this thread starts is stepped by it.
pub fn begin() {
    CREW.set(Some(Crew::default()));
}

/// Threads are threads again.
pub fn end() {
    drop(CREW.take());
    PICK.set(None);
    BOUND.set(None);
    HELD.set(None);
}

/// The process dies: what its threads were about to do is not done.
pub fn die() {
    with(|crew| crew.dead = true);
}

/// What it held in memory is gone.
pub fn bury() {
    drop(with(|crew| std::mem::take(&mut crew.works)));
}

/// Another process starts.
pub fn live() {
    with(|crew| {
        crew.dead = false;
        crew.process += 1;
    });
}

/// Which of a simulation's processes it is.
pub fn process() -> Option<u64> {
    with(|crew| crew.process)
}

pub(super) fn unique() -> Option<u128> {
    // Numbers that differ where few of their digits are looked at.
    with(|crew| {
        crew.drawn += 1;
        u128::from(crew.drawn) << 96 | u128::from(crew.drawn)
    })
}

/// Whether this thread is a simulation's.
pub fn is_simulated() -> bool {
    with(|_| ()).is_some()
}

/// The threads that there would be, in the order in which they started.
pub fn works() -> Vec<(u64, String)> {
    let list = |crew: &mut Crew| crew.works.iter().map(|(n, (name, _))| (*n, name.clone())).collect();
    with(list).unwrap_or_default()
}

/// Does a step of one of them.
pub fn step(number: u64) -> Step {
    let alive = |crew: &mut Crew| if crew.dead { None } else { crew.works.get_mut(&number)?.1.take() };
    let Some(mut work) = with(alive).flatten() else { return Step::Ended };
    let step = work.step();
    let over = with(|crew| match crew.works.get_mut(&number).filter(|_| step != Step::Ended && !crew.dead) {
        Some((_, place)) => place.replace(work),
        None => {
            crew.works.remove(&number);
            Some(work)
        }
    });
    drop(over);
    step
}

/// Which actors get a turn when their worker is stepped: `pick` is asked for each.
pub fn set_pick(pick: Option<Pick>) {
    PICK.set(pick);
}

/// How much is done in one go: steps of an actor's turn, rows of a piece, rows that a channel takes.
pub fn set_bound(bound: Option<usize>) {
    BOUND.set(bound);
}

/// How much memory the process holds, as it seems to it.
pub fn set_held_bytes(bytes: Option<usize>) {
    HELD.set(bytes);
}

/// What [`set_held_bytes`] says.
pub fn held_bytes() -> Option<usize> {
    HELD.get()
}

pub(super) fn bound() -> Option<usize> {
    BOUND.get()
}

/// Whether this actor gets no turn this time.
pub fn rests(actor: u64) -> bool {
    PICK.with_borrow_mut(|pick| pick.as_mut().is_some_and(|pick| !pick(actor)))
}

pub(super) fn hire<W: Work>(name: &str, work: W) -> Result<u64, W> {
    let mut work = Some(work);
    let number = with(|crew| {
        let number = crew.next;
        crew.next += 1;
        let work = work.take().expect("it is taken once");
        crew.works.insert(number, (name.to_owned(), Some(Box::new(work))));
        number
    });
    number.ok_or_else(|| work.expect("nobody took it"))
}

/// Steps it until it is over; what it waits for meanwhile, others may have to do.
pub(super) fn dismiss(number: u64) {
    for _ in 0..10_000 {
        match step(number) {
            Step::Ended => return,
            Step::More => {}
            Step::Idle(_) => works().iter().filter(|(n, _)| *n != number).for_each(|(n, _)| {
                step(*n);
            }),
        }
    }
    panic!("the work of a thread does not end");
}

fn with<T>(look: impl FnOnce(&mut Crew) -> T) -> Option<T> {
    CREW.try_with(|crew| crew.borrow_mut().as_mut().map(look)).ok().flatten()
}
