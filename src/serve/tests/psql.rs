//! What psql and drivers ask, run over our system tables.

use super::binding::{Binding, Connectors};
use super::execute::QueryEngine;
use super::snapshot::{QuerySnapshot, ReadPoint, SystemRows};
use super::*;
use crate::job::manager::Visible;
use crate::state::StateError;
use crate::state::store::StateRead;
use crate::stream::Epoch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt;
use std::ops::ControlFlow;
use weir_catalog::CatalogChange;
use weir_sql::binder::{Bound, bind};

const SCHEMA: &str = "create table t (id int primary key, n bigint default 7, s text not null);
    create view w as select * from t;
    create materialized view v as select n, count(*) from t group by n;
    create index i on t (n desc)";

struct Client {
    binding: Binding,
    config: Arc<Config>,
    session: SessionInfo,
    catalog: Arc<CatalogSnapshot>,
    engine: QueryEngine,
}

/// No row of any relation.
struct Nothing;

impl StateRead for Nothing {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(None)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        Ok(vec![None; keys.len()])
    }

    fn scan(
        &self,
        _: &[u8],
        _: &[u8],
        _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        Ok(())
    }
}

impl SystemRows for Client {
    fn rows(&self, schema: &str, name: &str, catalog: &CatalogSnapshot) -> Result<RecordBatch, ServeError> {
        let facts = RuntimeFacts::default();
        let input = SystemInput { catalog, facts: &facts, session: &self.session, config: &self.config };
        self.binding.system().rows(schema, name, &input)
    }
}

impl Client {
    fn new() -> Self {
        let config = Arc::new(Config::new([("query.threads", "2")]).expect("valid"));
        let session = SessionInfo {
            user: "root".into(),
            database: "dev".into(),
            search_path: vec!["public".into()],
            pid: 1,
            ..SessionInfo::default()
        };
        let mut client = Self {
            binding: Binding::new(Arc::clone(&config), Connectors::default()),
            engine: QueryEngine::new(&config).expect("started"),
            catalog: Arc::default(),
            config,
            session,
        };
        for parsed in weir_sql::parser::parse(SCHEMA).expect("statements") {
            let bound = bind(&parsed, &client.context()).expect("DDL");
            let Bound::Create(create) = bound else { panic!("{}", parsed.text) };
            let catalog = client.catalog.apply(&CatalogChange::Create(create.object)).expect("a new name");
            client.catalog = Arc::new(catalog);
        }
        client
    }

    fn context(&self) -> weir_sql::binder::BindContext {
        self.binding.context(Arc::clone(&self.catalog), &self.session)
    }

    async fn ask(&self, mut question: weir_sql::parser::statement::Parsed) -> Result<String, String> {
        pg_rewrite::adapt(&mut question);
        let bound = bind(&question, &self.context()).map_err(|e| format!("{e:?}"))?;
        let Bound::Query(plan) = bound else { panic!("{}", question.text) };
        let visible = Visible { epoch: Epoch(1), dml_position: 0, state: Arc::new(Nothing) };
        let at = ReadPoint { catalog: Arc::clone(&self.catalog), visible };
        let snapshot = QuerySnapshot::new(at, Arc::clone(&self.catalog), None);
        let plan = snapshot.resolve(plan, self).map_err(|e| e.to_string())?;
        let cancel = CancellationToken::new();
        let stream = self.engine.execute(plan, 1 << 30, cancel, None).await.map_err(|e| e.to_string())?;
        let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(|e| e.to_string())?;
        Ok(pretty_format_batches(&batches).map_err(|e| e.to_string())?.to_string())
    }
}

#[tokio::test]
async fn every_question_is_answered() {
    let client = Client::new();
    let questions = weir_sql::parser::parse(include_str!("psql.sql")).expect("psql's own text");
    let mut failed = Vec::new();
    for question in questions {
        let text = question.text.clone();
        if let Err(error) = client.ask(question).await {
            failed.push(format!("{text}\n    {error}"));
        }
    }
    assert!(failed.is_empty(), "{} failed:\n\n{}", failed.len(), failed.join("\n\n"));
}

#[tokio::test]
async fn answers_are_postgresqls() {
    let client = Client::new();
    for (question, answer) in [
        ("SELECT 't'::regclass::oid", "16384"),
        ("SELECT 16384::regclass", "t"),
        ("SELECT 'pg_class'::regclass::oid", "1259"),
        ("SELECT pg_get_indexdef('i'::regclass)", "CREATE INDEX i ON public.t USING btree (n DESC)"),
        ("SELECT relname FROM pg_class WHERE oid = 't_pkey'::regclass", "t_pkey"),
        ("SELECT format_type(1700, 655366)", "numeric(10,2)"),
        ("SELECT pg_get_viewdef('w'::regclass)", " select * from t;"),
        ("SELECT current_schemas(true)", "[pg_catalog, public]"),
        ("SELECT current_setting('search_path')", "\"$user\", public"),
        ("SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND atthasdef", "1"),
        ("SELECT max(c.tableoid) FROM pg_class c", "1259"),
        ("SELECT has_table_privilege('t', 'SELECT')", "true"),
        ("SELECT indkey FROM pg_index WHERE indexrelid = 'i'::regclass", "[2]"),
        ("SELECT pg_size_pretty(1048576 * 20)", "20 MB"),
    ] {
        let parsed = weir_sql::parser::parse(question).expect("a statement").remove(0);
        let table = client.ask(parsed).await.unwrap_or_else(|e| panic!("{question}: {e}"));
        let cell = table.lines().nth(3).unwrap_or_default().trim_matches('|').trim().to_owned();
        assert_eq!(cell, answer.trim(), "{question}");
    }
    let unknown = weir_sql::parser::parse("SELECT 'nosuch'::regclass").expect("a statement").remove(0);
    let error = client.ask(unknown).await.expect_err("no such relation");
    assert!(error.contains("relation \"nosuch\" does not exist"), "{error}");
}
