//! Fail points: named places where a drill or a test makes this process die, fail or wait.
//!
//! ```text
//!   WEIR_FAILPOINT = point [, point …]
//!   point          = name [:nth hit] = kill | error | sleep:milliseconds | wait:file
//!
//!   WEIR_FAILPOINT="manifest.before_rename:3=kill"     SIGKILL at the third manifest
//! ```
//! One that waits makes the file, so that others see where it is, and goes on once it is gone.
//! Without the variable a fail point costs one load. The variable is read once, at the first hit.

use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
enum Effect {
    Kill,
    Error,
    Sleep(Duration),
    Wait(PathBuf),
}

#[derive(Debug)]
struct Point {
    name: String,
    /// Fires at this hit only; at each one if none is given.
    nth: Option<u64>,
    effect: Effect,
    hits: AtomicU64,
}

static POINTS: LazyLock<Vec<Point>> = LazyLock::new(|| match std::env::var("WEIR_FAILPOINT") {
    Ok(spec) => parse(&spec).unwrap_or_else(|e| panic!("WEIR_FAILPOINT: {e}")),
    Err(_) => Vec::new(),
});

fn parse(spec: &str) -> Result<Vec<Point>, String> {
    spec.split(',').map(str::trim).filter(|s| !s.is_empty()).map(parse_point).collect()
}

fn parse_point(spec: &str) -> Result<Point, String> {
    let (place, effect) = spec.split_once('=').ok_or_else(|| format!("\"{spec}\" has no effect"))?;
    let (name, nth) = match place.split_once(':') {
        Some((name, nth)) => {
            (name, Some(nth.parse().map_err(|_| format!("\"{nth}\" is no number of hits"))?))
        }
        None => (place, None),
    };
    let effect = match effect.split_once(':') {
        None if effect == "kill" => Effect::Kill,
        None if effect == "error" => Effect::Error,
        Some(("sleep", ms)) => Effect::Sleep(Duration::from_millis(
            ms.parse().map_err(|_| format!("\"{ms}\" is no milliseconds"))?,
        )),
        Some(("wait", file)) => Effect::Wait(PathBuf::from(file)),
        _ => return Err(format!("\"{effect}\" is no effect: kill, error, sleep:milliseconds or wait:file")),
    };
    Ok(Point { name: name.to_owned(), nth, effect, hits: AtomicU64::new(0) })
}

/// The fail point `name`: does what was asked for it, usually nothing.
pub fn hit(name: &str) -> io::Result<()> {
    #[cfg(test)]
    testing::hit(name)?;
    POINTS.iter().filter(|p| p.name == name).try_for_each(fire)
}

/// Whether there is any fail point: for hot places, before they put a name together.
pub fn any() -> bool {
    #[cfg(test)]
    if testing::is_hooked() {
        return true;
    }
    !POINTS.is_empty()
}

fn fire(point: &Point) -> io::Result<()> {
    let hit = point.hits.fetch_add(1, Ordering::Relaxed) + 1;
    if point.nth.is_some_and(|nth| nth != hit) {
        return Ok(());
    }
    match &point.effect {
        Effect::Kill => kill(),
        Effect::Error => Err(io::Error::other(format!("fail point {}", point.name))),
        Effect::Sleep(time) => {
            std::thread::sleep(*time);
            Ok(())
        }
        Effect::Wait(file) => {
            std::fs::File::create(file)?;
            while file.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        }
    }
}

fn kill() -> ! {
    // SAFETY: a plain system call on our own process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Fail points of one test: they fire on its thread only.
#[cfg(test)]
pub mod testing {
    use super::{Point, fire, io, parse};
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut(&str) -> io::Result<()>>;

    thread_local! {
        static POINTS: RefCell<Vec<Point>> = const { RefCell::new(Vec::new()) };
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Asks `hook` at every fail point of this thread what is to happen there.
    pub fn set_hook(hook: Option<Hook>) {
        HOOK.set(hook);
    }

    pub(super) fn is_hooked() -> bool {
        HOOK.with_borrow(Option::is_some)
    }

    /// Replaces this thread's fail points.
    pub fn set(spec: &str) {
        POINTS.set(parse(spec).unwrap());
    }

    /// Runs the ignored test `child` (its full path) in a process of its own until the fail point
    /// `point` kills it, in `dir`. Returns the numbers that it said were done: `done 7`.
    pub fn run_killed(child: &str, point: &str, dir: &std::path::Path) -> Vec<u64> {
        use std::os::unix::process::ExitStatusExt;
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", child, "--ignored", "--nocapture"])
            .env("WEIR_FAILPOINT", format!("{point}=kill"))
            .env("WEIR_TEST_DIR", dir)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{point} was not hit: {said}");
        said.lines().filter_map(|line| line.strip_prefix("done ")?.parse().ok()).collect()
    }

    /// The directory of a test that runs as a child; none if it was started by hand.
    pub fn child_dir() -> Option<std::path::PathBuf> {
        std::env::var_os("WEIR_TEST_DIR").map(Into::into)
    }

    pub(super) fn hit(name: &str) -> io::Result<()> {
        let hook = HOOK.take();
        if let Some(mut hook) = hook {
            let outcome = hook(name);
            HOOK.set(Some(hook));
            return outcome;
        }
        POINTS.with_borrow(|points| points.iter().filter(|p| p.name == name).try_for_each(fire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_fires_at_its_hit() {
        testing::set("a:2=error, b=sleep:1");
        assert!(hit("a").is_ok());
        assert_eq!(hit("a").unwrap_err().to_string(), "fail point a");
        assert!(hit("a").is_ok() && hit("b").is_ok() && hit("c").is_ok());
    }

    #[test]
    fn what_is_misspelled_is_named() {
        for (spec, error) in [
            ("a", "\"a\" has no effect"),
            ("a:x=kill", "\"x\" is no number of hits"),
            ("a=stop", "\"stop\" is no effect: kill, error, sleep:milliseconds or wait:file"),
            ("a=sleep:x", "\"x\" is no milliseconds"),
        ] {
            assert_eq!(parse(spec).unwrap_err(), error);
        }
        assert_eq!(parse("a:3=kill").unwrap()[0].effect, Effect::Kill);
    }
}
