//! A catalog that statements are run against, as the session would.

use super::*;
use crate::parser::parse;
use arrow::datatypes::SchemaRef;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec, Contract, OptionSpec};
use weir_catalog::{CatalogChange, Column};

struct Nothing;

impl SystemSchemas for Nothing {
    fn schema_of(&self, schema: &str, name: &str) -> Option<SchemaRef> {
        use arrow::datatypes::{Field, Schema};
        let known = schema == "pg_catalog" && name == "pg_class";
        known.then(|| Arc::new(Schema::new(vec![Field::new("oid", DataType::Int32, false)])))
    }
}

const OPTION: OptionSpec = OptionSpec { name: "", required: false, help: "" };

const CONNECTORS: [ConnectorSpec; 4] = [
    ConnectorSpec {
        name: "nexmark",
        role: ConnectorRole::Source,
        options: &[
            OptionSpec { name: "nexmark.table.type", required: true, help: "Which of the streams." },
            OptionSpec { name: "events", ..OPTION },
        ],
        encodings: &[],
        contract: Contract::Replayable,
        why: "",
        empties_target: false,
    },
    ConnectorSpec {
        name: "file",
        role: ConnectorRole::Source,
        options: &[
            OptionSpec { name: "path", required: true, help: "A glob." },
            OptionSpec { name: "s3.*", ..OPTION },
        ],
        encodings: &["JSON", "CSV"],
        contract: Contract::NotReplayable,
        why: "pipes flow once",
        empties_target: false,
    },
    ConnectorSpec {
        name: "file",
        role: ConnectorRole::Sink,
        options: &[OptionSpec { name: "path", required: true, help: "A directory." }],
        encodings: &["JSON", "PARQUET"],
        contract: Contract::Transactional,
        why: "",
        empties_target: false,
    },
    ConnectorSpec {
        name: "blackhole",
        role: ConnectorRole::Sink,
        options: &[],
        encodings: &[],
        contract: Contract::AtLeastOnce,
        why: "nothing is kept",
        empties_target: false,
    },
];

/// A database that only has a catalog.
pub(super) struct Db {
    pub(super) context: BindContext,
}

impl Db {
    pub(super) fn new() -> Self {
        let connector_columns: ConnectorColumns = Arc::new(|connector, options| {
            (connector == "nexmark" && options["nexmark.table.type"] == "Bid").then(|| {
                let column = |name: &str, data_type: DataType, sql_type: &str| Column {
                    name: name.to_owned(),
                    data_type,
                    sql_type: sql_type.to_owned(),
                    nullable: true,
                    default: None,
                };
                let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
                vec![
                    column("auction", DataType::Int64, "bigint"),
                    column("price", DataType::Int64, "bigint"),
                    column("date_time", time, "timestamp without time zone"),
                ]
            })
        });
        Self {
            context: BindContext {
                catalog: Arc::default(),
                search_path: vec!["public".to_owned()],
                system: Arc::new(Nothing),
                connectors: Arc::new(CONNECTORS.to_vec()),
                functions: Arc::default(),
                parameter_types: Vec::new(),
                connector_columns,
            },
        }
    }

    /// The last statement of `sql`, bound; those before it are run.
    pub(super) fn try_bind(&mut self, sql: &str) -> Result<Bound, SqlError> {
        let mut parsed = parse(sql)?;
        let last = parsed.pop().expect("a statement");
        for parsed in &parsed {
            let bound = bind(parsed, &self.context)?;
            self.apply(&bound);
        }
        bind(&last, &self.context)
    }

    pub(super) fn bind(&mut self, sql: &str) -> Bound {
        self.try_bind(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"))
    }

    pub(super) fn error(&mut self, sql: &str) -> SqlError {
        match self.try_bind(sql) {
            Err(error) => error,
            Ok(bound) => panic!("{sql}: {bound:?}"),
        }
    }

    /// Binds and applies to the catalog.
    pub(super) fn run(&mut self, sql: &str) {
        let bound = self.bind(sql);
        self.apply(&bound);
    }

    fn apply(&mut self, bound: &Bound) {
        let changes = match bound {
            Bound::Create(create) => {
                let (object, id) = (create.object.clone(), create.object.id);
                vec![CatalogChange::Create(object), CatalogChange::Created(id)]
            }
            Bound::Change { changes, .. } => changes.clone(),
            _ => Vec::new(),
        };
        for change in &changes {
            self.context.catalog = Arc::new(self.context.catalog.apply(change).expect("a legal change"));
        }
    }

    pub(super) fn create(&mut self, sql: &str) -> Create {
        match self.bind(sql) {
            Bound::Create(create) => create,
            other => panic!("{sql}: {other:?}"),
        }
    }

    pub(super) fn dml(&mut self, sql: &str) -> Dml {
        match self.bind(sql) {
            Bound::Dml(dml) => dml,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// Names and types of a query's columns.
    pub(super) fn columns(&mut self, sql: &str) -> String {
        match self.bind(sql) {
            Bound::Query(plan) => {
                let columns = view::columns_of(&plan);
                columns.iter().map(|c| format!("{} {}", c.name, c.sql_type)).collect::<Vec<_>>().join(", ")
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
}
