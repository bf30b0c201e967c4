//! The statements we accept, as one enum. What PostgreSQL and sqlparser have in common stays
//! sqlparser's AST; what is Weir's own has its own node.
//!
//! An unqualified name has an empty schema here; [`crate::binder::bind`] fills it in from the search
//! path, also in the statements that it hands back to the session.

use sqlparser::ast;
use std::collections::BTreeMap;
use weir_catalog::{ObjectKind, ObjectName};

/// One statement and the text that it was parsed from.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What it says.
    pub statement: Statement,
    /// Its own text, without the semicolon.
    pub text: String,
    /// Where `text` starts in the whole string, in characters from 0: added to error positions.
    pub offset: usize,
}

/// What can be said.
#[allow(missing_docs, reason = "each field is named as in the syntax above its variant")]
#[derive(Clone, Debug)]
pub enum Statement {
    /// SELECT, VALUES, TABLE, WITH … SELECT.
    Query(Box<ast::Query>),
    /// INSERT, UPDATE, DELETE, as sqlparser has them.
    Insert(Box<ast::Insert>),
    /// UPDATE.
    Update(Box<ast::Statement>),
    /// DELETE.
    Delete(Box<ast::Delete>),
    /// CREATE TABLE without a connector.
    CreateTable(Box<CreateRelation>),
    /// CREATE SOURCE.
    CreateSource(Box<CreateRelation>),
    /// CREATE MATERIALIZED VIEW.
    CreateMaterializedView(Box<CreateView>),
    /// CREATE VIEW.
    CreateView(Box<CreateView>),
    /// CREATE INDEX.
    CreateIndex(Box<CreateIndex>),
    /// CREATE SINK.
    CreateSink(Box<CreateSink>),
    /// CREATE SCHEMA name.
    CreateSchema { name: String, if_not_exists: bool },
    /// DROP kind name, …
    Drop { kind: ObjectKind, names: Vec<ObjectName>, if_exists: bool, cascade: bool },
    /// DROP SCHEMA name.
    DropSchema { name: String, if_exists: bool },
    /// ALTER kind name RENAME TO new.
    Rename { kind: ObjectKind, name: ObjectName, to: String },
    /// ALTER kind name RENAME [COLUMN] column TO new.
    RenameColumn { kind: ObjectKind, name: ObjectName, column: String, to: String },
    /// ALTER kind name SET PARALLELISM = number (None: ADAPTIVE).
    SetParallelism { kind: ObjectKind, name: ObjectName, parallelism: Option<u16> },
    /// ALTER SINK name RESUME [AT LEAST ONCE]: what it failed of is mended, or to be lived with.
    ResumeSink { name: ObjectName, at_least_once: bool },
    /// ALTER SINK name REBUILD: its target is emptied, and gets everything anew.
    RebuildSink(ObjectName),
    /// ALTER DATABASE name SET setting = value (None: RESET).
    AlterDatabase { database: String, setting: String, value: Option<String> },
    /// COMMENT ON kind name IS text.
    Comment { kind: ObjectKind, name: ObjectName, text: Option<String> },
    /// TRUNCATE name: DELETE of all rows.
    Truncate(ObjectName),
    /// COPY.
    Copy(Box<Copy>),
    /// EXPLAIN of a query or of a CREATE MATERIALIZED VIEW / SINK.
    Explain { statement: Box<Statement>, analyze: bool },
    /// SHOW TABLES, SHOW name, …
    Show(ShowTarget),
    /// DESCRIBE name.
    Describe(ObjectName),
    /// SET [LOCAL] name = value; None: RESET.
    Set { name: String, value: Option<String>, local: bool },
    /// SET TRANSACTION modes, SET SESSION CHARACTERISTICS AS TRANSACTION modes: the settings that
    /// they change.
    SetTransaction(Vec<(String, String)>),
    /// RESET ALL.
    ResetAll,
    /// DISCARD {ALL | PLANS | SEQUENCES | TEMP}.
    Discard(&'static str),
    /// BEGIN, START TRANSACTION, with the settings that their modes change.
    Begin(Vec<(String, String)>),
    /// SAVEPOINT name.
    Savepoint(String),
    /// RELEASE [SAVEPOINT] name.
    Release(String),
    /// ROLLBACK TO [SAVEPOINT] name.
    RollbackTo(String),
    /// DECLARE name CURSOR FOR query.
    Declare(Box<Declare>),
    /// FETCH place FROM cursor; without rows MOVE.
    Fetch { name: String, place: Fetch, rows: bool },
    /// CLOSE cursor; None: ALL.
    Close(Option<String>),
    /// UNLISTEN.
    Unlisten,
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// COMMIT PREPARED transaction, ROLLBACK PREPARED transaction: of a sink, in its target.
    FinishPrepared { transaction: String, commit: bool },
    /// PREPARE name [(types)] AS statement.
    /// The inner statement's offset counts from the outer one's text.
    Prepare { name: String, types: Vec<ast::DataType>, statement: Box<Parsed> },
    /// EXECUTE name(args).
    Execute { name: String, arguments: Vec<ast::Expr> },
    /// DEALLOCATE name; None: ALL.
    Deallocate(Option<String>),
    /// FLUSH.
    Flush,
    /// CHECKPOINT.
    Checkpoint,
    /// WAIT: until background DDL is done.
    Wait,
    /// RECOVER: restart the dataflow from its last checkpoint.
    Recover,
    /// SAVEPOINT TO 'url' [AND STOP]: everything of one epoch is put there; with STOP nothing comes after.
    SavepointTo { url: String, stop: bool },
    /// RESTORE DATABASE name FROM 'url' [WITH (…)]: what a savepoint holds takes the database's place.
    Restore { database: String, url: String, options: RestoreOptions },
}

/// WITH (…) of RESTORE DATABASE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// `replace`: whether what the database has may go.
    pub replace: bool,
    /// `on_mismatch`
    pub on_mismatch: OnMismatch,
    /// `definitions = 'current'`: whether objects stay as they are now, and only get their state.
    pub current_definitions: bool,
    /// `sinks`
    pub sinks: RestoredSinks,
}

/// What becomes of sinks that can't go on exactly once from a savepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoredSinks {
    /// Nothing is restored.
    #[default]
    ExactlyOnce,
    /// Those of another database's savepoint may deliver again what that one delivers.
    AtLeastOnce,
    /// Those that read what is rebuilt empty their targets and deliver everything anew.
    Rebuild,
}

/// What becomes of a job whose state in a savepoint does not fit its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMismatch {
    /// Nothing is restored.
    #[default]
    Error,
    /// It is filled from its inputs anew, and so is what reads it.
    Rebuild,
    /// It is dropped, and so is what reads it.
    Drop,
}

/// DECLARE … CURSOR.
#[derive(Clone, Debug)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// Whether it goes backward, too.
    pub scroll: bool,
    /// WITH HOLD: it outlives its transaction.
    pub hold: bool,
    /// What it reads. The offset counts from the outer statement's text.
    pub query: Parsed,
}

/// Which rows FETCH gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// The next so many; None: all that are left.
    Forward(Option<u64>),
    /// The previous so many, the nearest first; None: all.
    Backward(Option<u64>),
    /// The row of this number, from 1; negative: from the end.
    Absolute(i64),
    /// The row so many further on; 0: the current one.
    Relative(i64),
}

/// COPY between a client and a table or query.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Which way, and what.
    pub what: CopyWhat,
    /// How lines are written.
    pub options: CopyOptions,
}

/// Which way a COPY goes.
#[derive(Clone, Debug)]
pub enum CopyWhat {
    /// TO STDOUT: the rows of a SELECT; that of a table is spelled out.
    Out {
        /// Its text.
        query: String,
    },
    /// FROM STDIN: rows into a table.
    In {
        /// The table.
        relation: ObjectName,
        /// The columns that lines have; empty: all.
        columns: Vec<String>,
    },
}

/// How COPY's lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// PostgreSQL's binary format: no lines at all.
    pub binary: bool,
    /// CSV rather than PostgreSQL's text format.
    pub csv: bool,
    /// Whether the first line names the columns.
    pub header: bool,
    /// Between values.
    pub delimiter: u8,
    /// What stands for NULL, unquoted.
    pub null: String,
    /// Around values of CSV that need it.
    pub quote: u8,
    /// Before a quote within quotes; `None`: the quote itself.
    pub escape: Option<u8>,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            binary: false,
            csv: false,
            header: false,
            delimiter: b'\t',
            null: "\\N".to_owned(),
            quote: b'"',
            escape: None,
        }
    }
}

/// What SHOW shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShowTarget {
    /// All objects of a kind, optionally of a schema.
    Objects(ObjectKind),
    /// SHOW SCHEMAS.
    Schemas,
    /// SHOW DATABASES.
    Databases,
    /// SHOW JOBS.
    Jobs,
    /// SHOW CHECKPOINTS.
    Checkpoints,
    /// SHOW EXACTLY ONCE.
    ExactlyOnce,
    /// SHOW COLUMNS FROM name.
    Columns(ObjectName),
    /// SHOW CREATE kind name.
    Create(ObjectKind, ObjectName),
    /// SHOW ALL, SHOW PARAMETERS.
    All,
    /// SHOW setting.
    Setting(String),
}

/// A column as declared.
#[derive(Clone, Debug)]
pub struct ColumnDef {
    /// Its name, folded.
    pub name: String,
    /// Its type.
    pub data_type: ast::DataType,
    /// NOT NULL or part of the primary key.
    pub not_null: bool,
    /// PRIMARY KEY on the column itself.
    pub primary_key: bool,
    /// DEFAULT.
    pub default: Option<ast::Expr>,
}

/// CREATE TABLE and CREATE SOURCE.
#[derive(Clone, Debug)]
pub struct CreateRelation {
    /// Its name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// Its columns; empty where the connector knows them (nexmark).
    pub columns: Vec<ColumnDef>,
    /// PRIMARY KEY (a, b) of the table.
    pub primary_key: Vec<String>,
    /// WATERMARK FOR column AS expr.
    pub watermark: Option<(String, ast::Expr)>,
    /// APPEND ONLY.
    pub append_only: bool,
    /// ON CONFLICT …
    pub on_conflict: weir_catalog::relation::OnConflict,
    /// WITH (…).
    pub options: BTreeMap<String, String>,
    /// FORMAT … ENCODE … (…).
    pub format: Option<weir_catalog::source::FormatSpec>,
}

/// CREATE [MATERIALIZED] VIEW.
#[derive(Clone, Debug)]
pub struct CreateView {
    /// Its name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// OR REPLACE (plain views only).
    pub or_replace: bool,
    /// Names for the columns.
    pub columns: Vec<String>,
    /// The SELECT.
    pub query: Box<ast::Query>,
    /// The SELECT's own text.
    pub query_text: String,
    /// EMIT ON WINDOW CLOSE.
    pub emit_on_window_close: bool,
}

/// CREATE INDEX.
#[derive(Clone, Debug)]
pub struct CreateIndex {
    /// Its name; generated if absent.
    pub name: Option<String>,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The relation.
    pub relation: ObjectName,
    /// Column, descending.
    pub columns: Vec<(String, bool)>,
    /// INCLUDE (…).
    pub include: Vec<String>,
}

/// CREATE SINK.
#[derive(Clone, Debug)]
pub struct CreateSink {
    /// Its name.
    pub name: ObjectName,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// FROM relation becomes SELECT * FROM relation.
    pub query: Box<ast::Query>,
    /// The SELECT's own text.
    pub query_text: String,
    /// WITH (…), all of it.
    pub options: BTreeMap<String, String>,
    /// FORMAT … ENCODE … (…).
    pub format: Option<weir_catalog::source::FormatSpec>,
}
