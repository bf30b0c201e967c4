//! How the system runs our threads: who answers a client goes before who works through a stream.
//!
//! A thread that wakes while all processors are busy waits until the slice of one of those that run
//! is over, some milliseconds; one that asks for a shorter slice than theirs need not (Linux 6.12 and
//! later; elsewhere the wish changes nothing). Its share of the processors is no greater for it.

use std::time::Duration;

/// What a thread is for.
#[derive(Clone, Copy, Debug)]
pub enum ThreadKind {
    /// Talks to clients, and does little else.
    Client,
    /// Works through streams and their state. A thread is of the kind of the one that started it, so
    /// one of these says so.
    Stream,
    /// Runs queries, which may be long: it gets less than the dataflow where there is not enough for both.
    Query,
}

impl ThreadKind {
    /// The least niceness that it has, and the slice that it asks for.
    fn wish(self) -> (i32, Duration) {
        match self {
            ThreadKind::Client => (0, Duration::from_micros(100)),
            // The system's own choice.
            ThreadKind::Stream => (0, Duration::ZERO),
            ThreadKind::Query => (5, Duration::from_micros(500)),
        }
    }

    /// Makes the calling thread one of this kind. What the system refuses it goes without.
    pub fn apply(self) {
        // Such a thread does the work of all kinds.
        #[cfg(test)]
        if crate::work::testing::is_simulated() {
            return;
        }
        let (niceness, slice) = self.wish();
        // SAFETY: the structure is plain numbers, of the size that it says; the calls read only.
        #[allow(unsafe_code)]
        unsafe {
            let mut wish: libc::sched_attr = std::mem::zeroed();
            wish.size = size_of::<libc::sched_attr>() as u32;
            wish.sched_policy = libc::SCHED_OTHER as u32;
            // A process that was started nicer stays so.
            wish.sched_nice = libc::getpriority(libc::PRIO_PROCESS, 0).max(niceness);
            wish.sched_runtime = slice.as_nanos() as u64;
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const wish, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_thread_is_nicer_than_the_dataflow() {
        let niceness = std::thread::spawn(|| {
            let of_thread = || {
                // SAFETY: it only reads the calling thread's niceness.
                #[allow(unsafe_code)]
                unsafe {
                    libc::getpriority(libc::PRIO_PROCESS, 0)
                }
            };
            let before = of_thread();
            ThreadKind::Query.apply();
            (before, of_thread())
        });
        let (before, after) = niceness.join().expect("the calls don't fail");
        assert_eq!(after, before.max(5));
    }
}
