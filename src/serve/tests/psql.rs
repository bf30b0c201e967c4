//! What psql asks for its backslash commands can be planned over our system tables.

use super::binding::{Binding, Connectors};
use super::*;
use weir_catalog::CatalogChange;
use weir_sql::binder::{Bound, bind, optimize};

const SCHEMA: &str = "create table t (id int primary key, n bigint default 7, s text not null);
    create view w as select * from t;
    create materialized view v as select n, count(*) from t group by n;
    create index i on t (n desc)";

#[test]
fn every_question_is_planned() {
    let config = Config::new([]).expect("the defaults");
    let binding = Binding::new(Arc::new(config), Connectors::default());
    let session = SessionInfo {
        user: "root".into(),
        database: "dev".into(),
        search_path: vec!["public".into()],
        pid: 1,
        settings: Arc::default(),
        parameter_types: Vec::new(),
    };
    let mut catalog = Arc::new(CatalogSnapshot::default());
    for parsed in weir_sql::parser::parse(SCHEMA).expect("statements") {
        let bound = bind(&parsed, &binding.context(Arc::clone(&catalog), &session)).expect("DDL");
        let Bound::Create(create) = bound else { panic!("{}", parsed.text) };
        catalog = Arc::new(catalog.apply(&CatalogChange::Create(create.object)).expect("a new name"));
    }
    let questions = weir_sql::parser::parse(include_str!("psql.sql")).expect("psql's own text");
    assert!(questions.len() > 20);
    for question in questions {
        let context = binding.context(Arc::clone(&catalog), &session);
        let bound = bind(&question, &context).unwrap_or_else(|e| panic!("{}: {e:?}", question.text));
        let Bound::Query(plan) = bound else { panic!("{}", question.text) };
        optimize(plan, false).unwrap_or_else(|e| panic!("{}: {e}", question.text));
    }
}
