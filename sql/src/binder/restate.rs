//! What reads a relation keeps reading it when the relation, or a column of it, gets another name:
//! the reader's stored text is written anew where it names the relation, and proves to mean what it
//! meant.
//!
//! ```text
//!   FROM t               FROM u AS t                                   t is u now
//!   FROM t x             FROM u x
//!   FROM t               FROM (SELECT a AS b, c FROM t) AS t           b is a now
//!   TUMBLE(t, …)         TUMBLE(u, …) AS t
//! ```
//! The rest of the text stays as it was typed: what it calls the relation and its columns is what
//! they were called.

use super::names::plain;
use super::view::{columns_of, streamed};
use super::{BindContext, query};
use crate::error::SqlError;
use crate::parser::{Text, fold, name_of, parse_query, written};
use crate::plan::fingerprint::fingerprints;
use sqlparser::ast::{
    Cte, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName as AstName, Query, Spanned,
    TableFactor, Visit, Visitor,
};
use sqlparser::tokenizer::Span;
use std::ops::ControlFlow;
use std::sync::Arc;
use weir_catalog::name::{DEFAULT_SCHEMA, quote_identifier};
use weir_catalog::{CatalogChange, CatalogSnapshot, Object, ObjectBody, ObjectKind, ObjectName, SqlState};

/// How a relation is called from now on.
pub(super) struct Renamed<'a> {
    /// The relation, as it is called now.
    pub(super) object: &'a Object,
    /// Its name after.
    pub(super) name: ObjectName,
    /// Of each column that is called otherwise after: its ordinal.
    pub(super) column: Option<usize>,
    /// The change that says so.
    pub(super) change: CatalogChange,
}

/// The change and those of all readers, in one.
pub(super) fn with_readers(
    renamed: Renamed<'_>,
    context: &BindContext,
) -> Result<Vec<CatalogChange>, SqlError> {
    let mut after = applied(&context.catalog, &renamed.change)?;
    let mut changes = vec![renamed.change.clone()];
    let readers = context.catalog.dependants(renamed.object.id);
    let mut restated = Vec::new();
    for reader in readers.iter().filter(|reader| reader.kind() != ObjectKind::Index) {
        let Some(text) = query_of(reader) else { continue };
        let again = rewritten(text, &renamed)?;
        if again != text {
            let definition = super::definition::with_query(reader, text, &again);
            let change = CatalogChange::Restate(reader.id, again, definition);
            after = applied(&after, &change)?;
            changes.push(change);
        }
        restated.push(reader);
    }
    let stored = |catalog: CatalogSnapshot| BindContext {
        catalog: Arc::new(catalog),
        search_path: vec![DEFAULT_SCHEMA.to_owned()],
        ..context.clone()
    };
    let (before, after) = (stored((*context.catalog).clone()), stored(after));
    for reader in restated {
        check(reader, &before, &after, renamed.object)?;
    }
    Ok(changes)
}

fn applied(catalog: &CatalogSnapshot, change: &CatalogChange) -> Result<CatalogSnapshot, SqlError> {
    catalog.apply(change).map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))
}

/// The text of a view's or sink's query.
fn query_of(object: &Object) -> Option<&str> {
    match &object.body {
        ObjectBody::MaterializedView(view) => Some(&view.query),
        ObjectBody::View(view) => Some(&view.query),
        ObjectBody::Sink(sink) => Some(&sink.query),
        ObjectBody::Table(_) | ObjectBody::Source(_) | ObjectBody::Index(_) => None,
    }
}

/// Whether the reader's new text reads the same relations, gives the same columns, and keeps the
/// state of its job.
fn check(
    reader: &Object,
    before: &BindContext,
    after: &BindContext,
    renamed: &Object,
) -> Result<(), SqlError> {
    let refused = |why: String| {
        let (kind, name) = (reader.kind(), plain(&reader.name));
        let what = format!("renaming what {kind} {name} reads by a name of \"{}\"", renamed.name.name);
        Err(SqlError::not_supported(what)
            .detail(why)
            .hint(format!("Drop {kind} {name}, rename, and create it again.")))
    };
    let Some(now) = after.catalog.by_id(reader.id) else { return Ok(()) };
    let read = |context: &BindContext, object: &Object| {
        let text = query_of(object).unwrap_or_default();
        let planned = query::plan_query(&*parse_query(text)?, context, text)?;
        let fields: Vec<_> = columns_of(&planned.plan).into_iter().map(|c| (c.name, c.sql_type)).collect();
        let state = match object.has_job() {
            true => {
                let state = fingerprints(&streamed(planned.plan, context)?);
                state.into_iter().map(|(_, hash)| hash).collect()
            }
            false => Vec::new(),
        };
        Ok::<_, SqlError>((planned.reads, fields, state))
    };
    match (read(before, reader), read(after, now)) {
        (Ok(old), Ok(new)) if old == new => Ok(()),
        (Ok(_), Ok(_)) => refused("Its query would mean something else.".to_owned()),
        (Ok(_), Err(error)) => refused(format!("Its query would fail: {}.", error.message)),
        // It could not be planned before either.
        (Err(_), _) => Ok(()),
    }
}

/// The text with the relation called by its new name.
fn rewritten(text: &str, renamed: &Renamed<'_>) -> Result<String, SqlError> {
    let query = parse_query(text)?;
    let mut finder = Finder {
        name: &renamed.object.name,
        new: &renamed.name,
        hidden: renamed.name.schema != DEFAULT_SCHEMA,
        scopes: Vec::new(),
        found: Vec::new(),
    };
    // It never breaks.
    let _ = query.visit(&mut finder);
    let place = Text::new(text);
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for use_of in &finder.found {
        let (start, end) = (place.byte(use_of.name.start), place.byte(use_of.name.end));
        let relation = spelled(renamed, finder.hidden);
        let relation = match renamed.column {
            Some(column) => selected(renamed, column, &relation),
            None => relation,
        };
        edits.push((start, end, relation));
        if let Some(at) = use_of.alias_at(text, end) {
            edits.push((at, at, format!(" AS {}", quote_identifier(&renamed.object.name.name))));
        }
    }
    edits.sort_by_key(|(start, end, _)| std::cmp::Reverse((*start, *end)));
    let mut again = text.to_owned();
    for (start, end, by) in edits {
        again.replace_range(start..end, &by);
    }
    Ok(again)
}

/// The relation's new name; `qualified` where the bare one would mean something else.
fn spelled(renamed: &Renamed<'_>, qualified: bool) -> String {
    let bare = ObjectName::new("", renamed.name.name.as_str());
    written(if qualified { &renamed.name } else { &bare })
}

/// The relation's columns as they were called.
fn selected(renamed: &Renamed<'_>, column: usize, relation: &str) -> String {
    let CatalogChange::RenameColumn(_, _, new) = &renamed.change else { return relation.to_owned() };
    let old = |(i, c): (usize, &weir_catalog::Column)| match i == column {
        true => format!("{} AS {}", quote_identifier(new), quote_identifier(&c.name)),
        false => quote_identifier(&c.name),
    };
    let columns: Vec<String> = renamed.object.columns().iter().enumerate().map(old).collect();
    format!("(SELECT {} FROM {relation})", columns.join(", "))
}

/// Where a query names the relation.
struct Use {
    name: Span,
    /// Whether it has an alias already.
    aliased: bool,
    /// How many parentheses close behind it before the alias may come: it is the argument of a call.
    closing: usize,
}

impl Use {
    /// Where the alias goes that keeps the name, if it needs one; `end` is where the name ends.
    fn alias_at(&self, text: &str, end: usize) -> Option<usize> {
        if self.aliased {
            return None;
        }
        if self.closing == 0 {
            return Some(end);
        }
        // Arguments are names and intervals.
        let mut depth = self.closing;
        let mut quote = None;
        for (i, c) in text[end..].char_indices() {
            match (quote, c) {
                (None, '\'' | '"') => quote = Some(c),
                (Some(q), c) if c == q => quote = None,
                (None, '(') => depth += 1,
                (None, ')') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(end + i + 1);
            }
        }
        None
    }
}

/// Finds the uses of a relation that no common table expression hides.
struct Finder<'a> {
    name: &'a ObjectName,
    new: &'a ObjectName,

    /// Whether the bare new name could mean something else somewhere in the query.
    hidden: bool,
    /// Of each query around: its common table expressions, and how many of them are known so far.
    scopes: Vec<(Vec<(String, *const Query)>, usize)>,
    found: Vec<Use>,
}

impl Finder<'_> {
    fn is(&self, name: &AstName) -> bool {
        let Ok(name) = name_of(name) else { return false };
        match name.schema.as_str() {
            "" => {
                let hidden = |(names, known): &(Vec<(String, *const Query)>, usize)| {
                    names[..*known].iter().any(|(cte, _)| *cte == name.name)
                };
                self.name.schema == DEFAULT_SCHEMA
                    && self.name.name == name.name
                    && !self.scopes.iter().any(hidden)
            }
            schema => self.name.schema == schema && self.name.name == name.name,
        }
    }

    fn argument(&mut self, arg: Option<&FunctionArg>, aliased: bool, closing: usize) {
        let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) = arg else { return };
        let name = match expr {
            Expr::Identifier(ident) => AstName::from(vec![ident.clone()]),
            Expr::CompoundIdentifier(parts) => AstName::from(parts.clone()),
            _ => return,
        };
        if self.is(&name) {
            self.found.push(Use { name: name.span(), aliased, closing });
        }
    }
}

impl Visitor for Finder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
        let named = |cte: &Cte| (fold(&cte.alias.name), std::ptr::from_ref(cte.query.as_ref()));
        let names: Vec<_> = ctes.map(named).collect();
        self.hidden |= names.iter().any(|(name, _)| *name == self.new.name);
        self.scopes.push((names, 0));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.scopes.pop();
        if let Some((names, known)) = self.scopes.last_mut()
            && names.get(*known).is_some_and(|(_, cte)| std::ptr::eq(*cte, query))
        {
            *known += 1;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { args: Some(args), alias, .. } => {
                self.argument(args.args.first(), alias.is_some(), 1);
            }
            TableFactor::Function { args, alias, .. } => self.argument(args.first(), alias.is_some(), 1),
            TableFactor::TableFunction { expr: Expr::Function(call), alias } => {
                if let FunctionArguments::List(list) = &call.args {
                    self.argument(list.args.first(), alias.is_some(), 2);
                }
            }
            TableFactor::Table { name, alias, args: None, .. } if self.is(name) => {
                self.found.push(Use { name: name.span(), aliased: alias.is_some(), closing: 0 });
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
