//! What binding a statement may know of the server: system tables, functions over the catalog and
//! the session, connectors.

use super::SessionInfo;
use super::pg_functions::{FunctionState, functions};
use super::system::SystemTables;
use crate::config::Config;
use std::sync::Arc;
use weir_catalog::connector::ConnectorSpec;
use weir_catalog::source::Options;
use weir_catalog::{CatalogSnapshot, Column};
use weir_sql::binder::{BindContext, SystemSchemas};

/// Tells the columns that a connector knows by itself, by its name and options.
pub type KnownColumns = Arc<dyn Fn(&str, &Options) -> Option<Vec<Column>> + Send + Sync>;

/// What the binder may know of connectors, as the registry tells it.
#[derive(Clone)]
pub struct Connectors {
    /// The connectors that exist.
    pub specs: Arc<Vec<ConnectorSpec>>,
    /// The columns of a source declared without any, by connector and options.
    pub columns: KnownColumns,
}

impl Default for Connectors {
    fn default() -> Self {
        Self { specs: Arc::default(), columns: Arc::new(|_, _| None) }
    }
}

/// Makes bind contexts over catalog snapshots; needs no database, so it is there before one.
#[derive(Clone)]
pub struct Binding {
    config: Arc<Config>,
    connectors: Connectors,
    system: Arc<SystemTables>,
}

impl Binding {
    /// For a server of this config with these connectors.
    pub fn new(config: Arc<Config>, connectors: Connectors) -> Self {
        Self { config, connectors, system: Arc::default() }
    }

    /// What binding a statement of `session` over `catalog` may know.
    pub fn context(&self, catalog: Arc<CatalogSnapshot>, session: &SessionInfo) -> BindContext {
        let state = FunctionState::new(Arc::clone(&catalog), session.clone(), Arc::clone(&self.config));
        BindContext {
            catalog,
            search_path: session.search_path.clone(),
            system: Arc::clone(&self.system) as Arc<dyn SystemSchemas>,
            connectors: Arc::clone(&self.connectors.specs),
            functions: Arc::new(functions(state)),
            parameter_types: session.parameter_types.clone(),
            connector_columns: Arc::clone(&self.connectors.columns),
        }
    }

    /// The system tables.
    pub fn system(&self) -> &SystemTables {
        &self.system
    }

    /// The connectors.
    pub fn connectors(&self) -> &Connectors {
        &self.connectors
    }
}
