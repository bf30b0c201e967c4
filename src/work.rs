//! Work: what a thread of the engine does, in steps that never wait.
//!
//! ```text
//!   thread       step ─> More ─> step ─> Idle(until) ─> wait ─> step ─> … ─> Ended
//!   simulation   one thread steps all of it, in an order drawn from a seed; nobody waits
//! ```
//! What a thread does between two waits is the same in both: that is what makes a simulation of the
//! whole engine one of the engine that runs.

use crate::threads::ThreadKind;
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, mpsc};
use tokio::task::JoinError;
use uuid::Uuid;

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There may be more to do at once.
    More,
    /// Nothing until somebody asks for something, or this time, by the clock that its `wait` looks at.
    Idle(Option<i64>),
    /// It is over.
    Ended,
}

/// What a thread does.
pub trait Work: Send + 'static {
    /// Does some of what there is to do. Never waits for another thread.
    fn step(&mut self) -> Step;

    /// After [`Step::Idle`]: waits until there may be something to do, or until this time.
    fn wait(&mut self, until_us: Option<i64>);
}

/// A thread with its work.
#[derive(Debug)]
pub struct Thread(Kind);

#[derive(Debug)]
enum Kind {
    Real(Option<std::thread::JoinHandle<()>>),
    #[cfg(test)]
    Simulated(u64),
}

/// How a thread is made.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// What it is for, where that is not what the thread is for that starts it.
    pub kind: Option<ThreadKind>,
    /// Its stack, where that is not the usual one.
    pub stack_bytes: Option<usize>,
}

impl Spec {
    /// A thread called `name`.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// Starts a thread that does `work` until that is over.
pub fn start(spec: Spec, work: impl Work) -> io::Result<Thread> {
    #[cfg(test)]
    let work = match testing::hire(&spec.name, work) {
        Ok(number) => return Ok(Thread(Kind::Simulated(number))),
        Err(work) => work,
    };
    let mut builder = std::thread::Builder::new().name(spec.name);
    if let Some(bytes) = spec.stack_bytes {
        builder = builder.stack_size(bytes);
    }
    let kind = spec.kind;
    let thread = builder.spawn(move || {
        if let Some(kind) = kind {
            kind.apply();
        }
        run(work);
    })?;
    Ok(Thread(Kind::Real(Some(thread))))
}

fn run(mut work: impl Work) {
    loop {
        match work.step() {
            Step::More => {}
            Step::Idle(until_us) => work.wait(until_us),
            Step::Ended => return,
        }
    }
}

impl Thread {
    /// Returns when its work is over; false if it panicked. On that thread itself, at once.
    pub fn join(&mut self) -> bool {
        match &mut self.0 {
            Kind::Real(thread) => {
                let own = std::thread::current().id();
                thread.take().filter(|t| t.thread().id() != own).is_none_or(|t| t.join().is_ok())
            }
            #[cfg(test)]
            Kind::Simulated(number) => {
                testing::dismiss(*number);
                true
            }
        }
    }
}

/// Does what blocks on a thread for that, and returns what it gives.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(test)]
    if testing::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Does `act` with each of `items`, on a thread each; what it gives, in their order, or its panic.
pub fn each<T: Send, R: Send>(
    items: &mut [T],
    act: impl Fn(&mut T) -> R + Sync,
) -> Vec<std::thread::Result<R>> {
    #[cfg(test)]
    if testing::is_simulated() {
        return items.iter_mut().map(|item| Ok(act(item))).collect();
    }
    let act = &act;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter_mut().map(|item| scope.spawn(move || act(item))).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    })
}

/// Does `make`, which is given what hands things on, and `take` with each of them: on so many other threads,
/// and at most as many wait. `take` is told of all that was handed on.
pub fn hand_on<T: Send, R>(
    threads: usize,
    make: impl FnOnce(&mut dyn FnMut(T)) -> R,
    take: impl Fn(T) + Sync,
) -> R {
    #[cfg(test)]
    if testing::is_simulated() {
        return make(&mut |thing| take(thing));
    }
    std::thread::scope(|scope| {
        let (sender, queue) = mpsc::sync_channel(1);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let (take, queue) = (&take, Arc::clone(&queue));
            scope.spawn(move || {
                loop {
                    let next = queue.lock().recv();
                    let Ok(thing) = next else { return };
                    take(thing);
                }
            });
        }
        drop(queue);
        // They receive to the end; if one panicked, the scope tells.
        make(&mut |thing| drop(sender.send(thing)))
    })
}

/// How many of `usual` threads do something at once: one where all is one thread.
pub fn threads(usual: usize) -> usize {
    #[cfg(test)]
    if testing::is_simulated() {
        return 1;
    }
    usual
}

/// A number that nobody else has drawn, in no other process either.
pub fn unique() -> u128 {
    #[cfg(test)]
    if let Some(number) = testing::unique() {
        return number;
    }
    Uuid::new_v4().as_u128()
}

/// How much is done in one go at most: `usual`, or less where a simulation wants small pieces.
#[inline]
#[allow(clippy::let_and_return, reason = "only a simulation binds it anew")]
pub fn bound(usual: usize) -> usize {
    #[cfg(test)]
    let usual = testing::bound().map_or(usual, |bound| bound.min(usual));
    usual
}

#[cfg(test)]
#[path = "tests/work.rs"]
pub mod testing;
