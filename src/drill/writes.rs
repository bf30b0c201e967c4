//! A client that writes while the server is killed: one statement after the other, each again until it is
//! acknowledged. So each is one that may be executed twice.

use super::DrillError;
use super::process::Address;
use super::tables::failed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use weir_sql::parser::statement::Parsed;

/// The statements of a text as they are executed: what is between BEGIN and COMMIT at once.
pub fn units(statements: Vec<Parsed>) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut open = false;
    for Parsed { text, .. } in statements {
        let word = text.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
        match units.last_mut().filter(|_| open) {
            Some(unit) => *unit = format!("{unit}; {text}"),
            None => units.push(text),
        }
        open = word == "BEGIN" || word == "START" || open && !matches!(word.as_str(), "COMMIT" | "END");
    }
    units
}

/// The client at work.
pub struct Writer {
    task: JoinHandle<Result<(), DrillError>>,
    done: Arc<AtomicUsize>,
    hurries: Arc<AtomicBool>,
}

impl Writer {
    /// Starts to execute `writes` at `address`, so many a second.
    pub fn start(writes: Vec<String>, address: Address, a_second: u64) -> Self {
        let (done, hurries) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let of_task = (Arc::clone(&done), Arc::clone(&hurries));
        let pause = Duration::from_micros(1_000_000 / a_second.max(1));
        let task = tokio::spawn(async move {
            let (done, hurries) = of_task;
            let mut client = None;
            for write in writes {
                acknowledged(&write, &address, &mut client).await?;
                done.fetch_add(1, Ordering::Relaxed);
                if !hurries.load(Ordering::Relaxed) {
                    tokio::time::sleep(pause).await;
                }
            }
            Ok(())
        });
        Self { task, done, hurries }
    }

    /// How many are acknowledged.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Executes the rest as fast as can be.
    pub async fn finish(self) -> Result<(), DrillError> {
        self.hurries.store(true, Ordering::Relaxed);
        match self.task.await {
            Ok(done) => done,
            Err(error) => Err(DrillError::Io(std::io::Error::other(error))),
        }
    }

    /// Stops.
    pub fn stop(self) {
        self.task.abort();
    }
}

/// Executes until the server says that it is done.
async fn acknowledged(write: &str, address: &Address, client: &mut Option<Client>) -> Result<(), DrillError> {
    loop {
        if client.is_none() {
            *client = address.connect().await.ok();
        }
        let Some(session) = client.as_ref() else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        match session.batch_execute(write).await {
            Ok(()) => return Ok(()),
            // What is the matter with the statement does not pass.
            Err(error)
                if error.code().is_some_and(|c| matches!(&c.code()[..2], "22" | "23" | "42" | "0A")) =>
            {
                return Err(failed(write, &error));
            }
            Err(_) => {
                *client = None;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sql::parser::parse;

    #[test]
    fn a_transaction_is_executed_at_once() {
        let text = "INSERT INTO t VALUES (1); BEGIN; DELETE FROM t; INSERT INTO t VALUES (2); COMMIT; DELETE FROM u;";
        let expected = [
            "INSERT INTO t VALUES (1)",
            "BEGIN; DELETE FROM t; INSERT INTO t VALUES (2); COMMIT",
            "DELETE FROM u",
        ];
        assert_eq!(units(parse(text).unwrap()), expected);
    }
}
