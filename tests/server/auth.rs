//! Who may connect: nobody is asked on loopback without users; with users, SCRAM-SHA-256.

use crate::harness::{Weir, words};
use std::process::Command;
use tokio_postgres::{Client, Error, NoTls};

async fn connect(port: u16, user: &str, password: &str) -> Result<Client, Error> {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(port).user(user).password(password).dbname("dev");
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_prove_who_they_are() {
    let mut weir = Weir::with(&[], &[]).await;
    weir.kill();
    weir.begin(&[("WEIR_AUTH_USERS", "root:s3cret, ada:p:w")]);
    let deadline = std::time::Instant::now() + crate::harness::PATIENCE;
    let client = loop {
        match connect(weir.port(), "root", "s3cret").await {
            Ok(client) => break client,
            Err(error) => {
                assert!(weir.is_alive() && std::time::Instant::now() < deadline, "{}", words(&error));
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    };
    let row = client.query_one("SELECT current_user::text", &[]).await.expect("a row");
    assert_eq!(row.get::<_, &str>(0), "root");
    let shown = client.simple_query("SHOW ALL").await.expect("settings");
    assert!(!format!("{shown:?}").contains("s3cret"), "a password is shown");
    connect(weir.port(), "ada", "p:w").await.expect("a password may hold a colon");
    for (user, password) in [("root", "wrong"), ("root", ""), ("nobody", "s3cret"), ("ada", "s3cret")] {
        let error = connect(weir.port(), user, password).await.expect_err("refused");
        if !password.is_empty() {
            let expected = format!("28P01: password authentication failed for user \"{user}\"");
            assert_eq!(words(&error), expected);
        }
    }
    let psql = Command::new("psql")
        .args([
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            &weir.port().to_string(),
            "-U",
            "root",
            "-d",
            "dev",
            "-Atc",
            "SELECT 7",
        ])
        .env("PGPASSWORD", "s3cret")
        .output()
        .expect("psql is installed");
    assert_eq!(String::from_utf8_lossy(&psql.stdout).trim(), "7");
}
