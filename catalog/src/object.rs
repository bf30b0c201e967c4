//! What can be named, as one closed set.

use crate::column::Column;
use crate::id::ObjectId;
use crate::name::ObjectName;
use crate::relation::{Index, MaterializedView, Table, View};
use crate::sink::Sink;
use crate::source::Source;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kinds of objects, as SQL names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// CREATE TABLE
    Table,
    /// CREATE SOURCE
    Source,
    /// CREATE MATERIALIZED VIEW
    MaterializedView,
    /// CREATE VIEW
    View,
    /// CREATE INDEX
    Index,
    /// CREATE SINK
    Sink,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::Table => "table",
            ObjectKind::Source => "source",
            ObjectKind::MaterializedView => "materialized view",
            ObjectKind::View => "view",
            ObjectKind::Index => "index",
            ObjectKind::Sink => "sink",
        })
    }
}

/// What a named object is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ObjectBody {
    /// CREATE TABLE
    Table(Table),
    /// CREATE SOURCE
    Source(Source),
    /// CREATE MATERIALIZED VIEW
    MaterializedView(MaterializedView),
    /// CREATE VIEW
    View(View),
    /// CREATE INDEX
    Index(Index),
    /// CREATE SINK
    Sink(Sink),
}

/// Where an object is in its life. **Invariant:** recovery removes objects in `Creating`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectState {
    /// Logged, its job is filling; not acknowledged.
    Creating,
    /// Acknowledged.
    Created,
    /// Acknowledged while its job is filling (`background_ddl`): recovery fills it anew.
    Filling,
    /// A sink whose log was full: it gets no more changes, and what is logged is delivered.
    Paused,
}

impl ObjectState {
    /// Whether its rows are not all there yet.
    pub fn is_filling(self) -> bool {
        matches!(self, ObjectState::Creating | ObjectState::Filling)
    }
}

/// A named object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Its identity.
    pub id: ObjectId,
    /// Its name.
    pub name: ObjectName,
    /// What it is.
    pub body: ObjectBody,
    /// Where it is in its life.
    pub state: ObjectState,
    /// The statement that made it, as typed.
    pub definition: String,
    /// COMMENT ON, if any.
    pub comment: Option<String>,
    /// How many actors each fragment of its job has; none: as many as the database says.
    #[serde(default)]
    pub parallelism: Option<u16>,
}

impl Object {
    /// Its kind.
    pub fn kind(&self) -> ObjectKind {
        match &self.body {
            ObjectBody::Table(_) => ObjectKind::Table,
            ObjectBody::Source(_) => ObjectKind::Source,
            ObjectBody::MaterializedView(_) => ObjectKind::MaterializedView,
            ObjectBody::View(_) => ObjectKind::View,
            ObjectBody::Index(_) => ObjectKind::Index,
            ObjectBody::Sink(_) => ObjectKind::Sink,
        }
    }

    /// Its columns; none for an index.
    pub fn columns(&self) -> &[Column] {
        match &self.body {
            ObjectBody::Table(t) => &t.columns,
            ObjectBody::Source(s) => &s.columns,
            ObjectBody::MaterializedView(v) => &v.columns,
            ObjectBody::View(v) => &v.columns,
            ObjectBody::Index(_) => &[],
            ObjectBody::Sink(s) => &s.columns,
        }
    }

    /// Gives the column at an ordinal another name.
    pub fn rename_column(&mut self, ordinal: usize, name: &str) {
        let columns = match &mut self.body {
            ObjectBody::Table(t) => &mut t.columns,
            ObjectBody::MaterializedView(v) => &mut v.columns,
            ObjectBody::View(v) => &mut v.columns,
            ObjectBody::Source(_) | ObjectBody::Index(_) | ObjectBody::Sink(_) => return,
        };
        if let Some(column) = columns.get_mut(ordinal) {
            name.clone_into(&mut column.name);
        }
    }

    /// Gives a view or sink another text of the same query.
    pub fn restate(&mut self, text: &str) {
        let query = match &mut self.body {
            ObjectBody::MaterializedView(v) => &mut v.query,
            ObjectBody::View(v) => &mut v.query,
            ObjectBody::Sink(s) => &mut s.query,
            ObjectBody::Table(_) | ObjectBody::Source(_) | ObjectBody::Index(_) => return,
        };
        text.clone_into(query);
    }

    /// The objects that it reads.
    pub fn inputs(&self) -> Vec<ObjectId> {
        match &self.body {
            ObjectBody::Table(_) | ObjectBody::Source(_) => Vec::new(),
            ObjectBody::MaterializedView(v) => v.inputs.clone(),
            ObjectBody::View(v) => v.inputs.clone(),
            ObjectBody::Index(i) => vec![i.relation],
            ObjectBody::Sink(s) => s.inputs.clone(),
        }
    }

    /// Whether the state store holds its rows, so that SELECT can read them.
    pub fn is_stored(&self) -> bool {
        matches!(self.kind(), ObjectKind::Table | ObjectKind::MaterializedView | ObjectKind::Index)
    }

    /// Whether it has a dataflow of its own. A source has one while somebody reads it.
    pub fn has_job(&self) -> bool {
        self.is_stored() || self.kind() == ObjectKind::Sink
    }
}
