//! JOIN … USING and NATURAL JOIN, whose common columns are merged as PostgreSQL merges them: the
//! left one, the right one of a RIGHT JOIN, whichever is there of a FULL JOIN.
//!
//! ```text
//!   a FULL JOIN b USING (k)   →   Join USING (*.k, a.k, b.k), nothing on the right: a mark for the planner
//!                                   Projection coalesce(a.k, b.k) AS *.k, a.*, b.*
//!                                     Join a FULL b ON a.k = b.k
//! ```
//! DataFusion's planner takes an unqualified `k` for the first column of that name, if a USING join
//! names all of them, and leaves all but one of them out of `*`. So the merged column comes first,
//! under a qualifier that sorts before all others, and a join that only the planner sees says which
//! columns it stands for. [`without_marks`] takes those joins away.

use super::column_name::MARK;
use super::own_exprs;
use crate::error::SqlError;
use crate::functions::error::external;
use crate::functions::type_name;
use crate::parser::fold;
use arrow::datatypes::DataType;
use datafusion_common::tree_node::Transformed;
use datafusion_common::{Column, DFSchema, JoinType, NullEquality, Result, TableReference};
use datafusion_expr::expr::Cast;
use datafusion_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_expr::{
    EmptyRelation, Expr, Join, JoinConstraint, LogicalPlan, LogicalPlanBuilder, Projection,
};
use sqlparser::ast::{self, Ident, TableFactor, TableWithJoins};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_catalog::SqlState;

/// Plans the relations that [`nest_all`] has made.
#[derive(Debug)]
pub(super) struct UsingPlanner;

impl RelationPlanner for UsingPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            TableFactor::NestedJoin { table_with_joins, alias } if is_merging(&table_with_joins) => {
                let TableWithJoins { relation, mut joins } = *table_with_joins;
                let join = joins.swap_remove(0);
                let left = context.plan(relation)?;
                let right = context.plan(join.relation)?;
                let (join_type, constraint) = match join_parts(&join.join_operator) {
                    Some(parts) => parts,
                    None => return Err(external(SqlError::not_supported("this kind of join"))),
                };
                let names = match constraint {
                    ast::JoinConstraint::Using(names) => {
                        Some(names.iter().map(|n| single_name(n, context)).collect::<Result<Vec<_>>>()?)
                    }
                    _ => None,
                };
                let (qualifier, alias) = match alias {
                    Some(alias) if alias.name.value.starts_with(MARK) => {
                        (Some(TableReference::bare(alias.name.value)), None)
                    }
                    alias => (None, alias),
                };
                let plan = merged(left, right, join_type, names, qualifier)?;
                let plan = if alias.is_some() { visible(plan)? } else { plan };
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
            }
            // What is merged inside of a subquery is none of the outer query's business.
            TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample } => {
                let inner = TableFactor::Derived { lateral: false, subquery, alias: None, sample };
                let plan = without_marks(context.plan(inner)?)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
            }
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

/// Puts each join of a SELECT that merges columns, with all to the left of it, into a relation of its
/// own, under a name by which WHERE and later join conditions mean the merged columns.
pub(super) fn nest_all(select: &mut ast::Select, merges: &mut usize) {
    select.from.iter_mut().for_each(|from| nest(from, merges));
    let mut tables = HashMap::new();
    for from in &select.from {
        named_merges(&from.relation, &mut tables);
    }
    if tables.is_empty() {
        return;
    }
    own_exprs::leaves_first(&mut select.selection, |expr| qualify(expr, &tables));
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        own_exprs::leaves_first(&mut join.join_operator, |expr| qualify(expr, &tables));
    }
}

/// The same of what is in parentheses already: a single join stays as it is.
pub(super) fn nest_inner(from: &mut TableWithJoins, merges: &mut usize) {
    if !is_merging(from) {
        nest(from, merges);
    }
}

fn nest(from: &mut TableWithJoins, merges: &mut usize) {
    let Some(last) = from.joins.iter().rposition(|join| merges_columns(&join.join_operator)) else { return };
    let after = from.joins.split_off(last + 1);
    let Some(join) = from.joins.pop() else { return };
    let mut left = TableWithJoins { relation: from.relation.clone(), joins: std::mem::take(&mut from.joins) };
    nest(&mut left, merges);
    // What is left of joins without USING needs a relation of its own too.
    let relation = match left.joins.is_empty() {
        true => left.relation,
        false => TableFactor::NestedJoin { table_with_joins: Box::new(left), alias: None },
    };
    *merges += 1;
    let name = Ident::with_quote('"', format!("{MARK}{merges}"));
    let alias = ast::TableAlias { explicit: true, name, columns: Vec::new(), at: None };
    let inner = TableWithJoins { relation, joins: vec![join] };
    from.relation = TableFactor::NestedJoin { table_with_joins: Box::new(inner), alias: Some(alias) };
    from.joins = after;
}

/// The merged columns of a relation, by the name of their join: the outermost one's.
fn named_merges(relation: &TableFactor, tables: &mut HashMap<String, Ident>) {
    let TableFactor::NestedJoin { table_with_joins, alias } = relation else { return };
    let named = alias.as_ref().map(|alias| &alias.name);
    if named.is_some_and(|name| !name.value.starts_with(MARK)) {
        return;
    }
    for join in &table_with_joins.joins {
        if let (Some(name), Some((_, ast::JoinConstraint::Using(columns)))) =
            (named, join_parts(&join.join_operator))
        {
            for column in columns {
                if let [ast::ObjectNamePart::Identifier(ident)] = column.0.as_slice() {
                    tables.entry(fold(ident)).or_insert_with(|| name.clone());
                }
            }
        }
    }
    named_merges(&table_with_joins.relation, tables);
    table_with_joins.joins.iter().for_each(|join| named_merges(&join.relation, tables));
}

/// Names the table of merged columns where rows are grouped: by the column of a table, PostgreSQL
/// lets the merged one stand beside, which is the same column unless a RIGHT or FULL JOIN made it.
pub(super) fn qualify_grouped(select: &mut ast::Select) {
    let grouped = match &select.group_by {
        ast::GroupByExpr::Expressions(by, modifiers) => !by.is_empty() || !modifiers.is_empty(),
        ast::GroupByExpr::All(_) => false,
    };
    if !grouped {
        return;
    }
    let tables = select.from.iter().fold(HashMap::new(), |tables, from| left_tables(from, tables));
    if tables.is_empty() {
        return;
    }
    own_exprs::leaves_first(&mut select.projection, |expr| qualify(expr, &tables));
    own_exprs::leaves_first(&mut select.group_by, |expr| qualify(expr, &tables));
    own_exprs::leaves_first(&mut select.having, |expr| qualify(expr, &tables));
}

/// The table that each merged column is a column of.
fn left_tables(from: &TableWithJoins, mut tables: HashMap<String, Ident>) -> HashMap<String, Ident> {
    let TableFactor::Table { name, alias, .. } = &from.relation else { return tables };
    let first = match (alias, name.0.last()) {
        (Some(alias), _) => alias.name.clone(),
        (None, Some(ast::ObjectNamePart::Identifier(ident))) => ident.clone(),
        _ => return tables,
    };
    for (i, join) in from.joins.iter().enumerate() {
        let Some((join_type, constraint)) = join_parts(&join.join_operator) else { continue };
        let ast::JoinConstraint::Using(names) = constraint else { continue };
        for name in names {
            let [ast::ObjectNamePart::Identifier(ident)] = name.0.as_slice() else { continue };
            let name = fold(ident);
            if matches!(join_type, JoinType::Right | JoinType::Full) {
                tables.remove(&name);
            } else if i == 0 {
                tables.insert(name, first.clone());
            }
        }
    }
    tables
}

/// Qualifies the name of a merged column.
fn qualify(expr: &mut ast::Expr, tables: &HashMap<String, Ident>) {
    if let ast::Expr::Identifier(ident) = expr
        && let Some(table) = tables.get(&fold(ident))
    {
        *expr = ast::Expr::CompoundIdentifier(vec![table.clone(), ident.clone()]);
    }
}

fn is_merging(from: &TableWithJoins) -> bool {
    matches!(from.joins.as_slice(), [join] if merges_columns(&join.join_operator))
}

fn merges_columns(operator: &ast::JoinOperator) -> bool {
    let constraint = join_parts(operator).map(|(_, constraint)| constraint);
    matches!(constraint, Some(ast::JoinConstraint::Using(_) | ast::JoinConstraint::Natural))
}

fn join_parts(operator: &ast::JoinOperator) -> Option<(JoinType, &ast::JoinConstraint)> {
    use ast::JoinOperator as Op;
    Some(match operator {
        Op::Join(constraint) | Op::Inner(constraint) => (JoinType::Inner, constraint),
        Op::Left(constraint) | Op::LeftOuter(constraint) => (JoinType::Left, constraint),
        Op::Right(constraint) | Op::RightOuter(constraint) => (JoinType::Right, constraint),
        Op::FullOuter(constraint) => (JoinType::Full, constraint),
        _ => return None,
    })
}

fn single_name(name: &ast::ObjectName, context: &dyn RelationPlannerContext) -> Result<String> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(ident)] => Ok(context.normalize_ident(ident.clone())),
        _ => {
            let message = format!("\"{name}\" in a USING clause is not the name of a column");
            Err(external(SqlError::new(SqlState::SYNTAX_ERROR, message)))
        }
    }
}

/// A pair of columns that are one above the join.
struct Pair {
    name: String,
    left: Column,
    right: Column,
    /// The merged column's type.
    data_type: DataType,
    /// Whether both have it.
    alike: bool,
}

/// The join, its merged columns, and the mark for the planner above. Without names: of all columns
/// that both sides have.
fn merged(
    left: LogicalPlan,
    right: LogicalPlan,
    join_type: JoinType,
    names: Option<Vec<String>>,
    qualifier: Option<TableReference>,
) -> Result<LogicalPlan> {
    let names = names.unwrap_or_else(|| common_names(left.schema(), right.schema()));
    let pairs = pairs(left.schema(), right.schema(), names)?;
    let condition = pairs.iter().map(|p| Expr::Column(p.left.clone()).eq(Expr::Column(p.right.clone())));
    let stands_for = stands_for(left.schema(), right.schema(), &pairs);
    let condition: Vec<Expr> = condition.collect();
    let join = LogicalPlanBuilder::from(left).join_on(right, join_type, condition)?.build()?;
    if pairs.is_empty() {
        return Ok(join);
    }
    let qualifier = qualifier.unwrap_or_else(|| qualifier_of(join.schema()));
    let mut exprs: Vec<Expr> =
        pairs.iter().map(|pair| pair.merged(join_type, &qualifier)).collect::<Result<_>>()?;
    let again = |c: &Column| is_mark(c) && pairs.iter().any(|pair| pair.name == c.name);
    exprs.extend(join.schema().columns().into_iter().filter(|c| !again(c)).map(Expr::Column));
    let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(join))?);
    Ok(marked(plan, &qualifier, stands_for))
}

fn common_names(left: &DFSchema, right: &DFSchema) -> Vec<String> {
    let of_right: HashSet<&String> = right.fields().iter().map(|f| f.name()).collect();
    let mut seen = HashSet::new();
    let shared = left.fields().iter().map(|f| f.name());
    shared.filter(|name| of_right.contains(name) && seen.insert(*name)).cloned().collect()
}

fn pairs(left: &DFSchema, right: &DFSchema, names: Vec<String>) -> Result<Vec<Pair>> {
    let mut pairs = Vec::with_capacity(names.len());
    for name in names {
        let (l, r) = (one_column(left, &name, "left")?, one_column(right, &name, "right")?);
        let type_of = |schema: &DFSchema, column: &Column| {
            schema.qualified_field_from_column(column).map(|(_, field)| field.data_type().clone())
        };
        let (of_left, of_right) = (type_of(left, &l)?, type_of(right, &r)?);
        let alike = of_left == of_right;
        let text = |t: &DataType| matches!(t, DataType::Utf8);
        let common = match alike {
            true => Some(of_left.clone()),
            false if text(&of_left) != text(&of_right) => None,
            false => comparison_coercion(&of_left, &of_right),
        };
        let Some(data_type) = common else {
            let (a, b) = (type_name(&of_left), type_name(&of_right));
            let message = format!("JOIN/USING types {a} and {b} cannot be matched");
            return Err(external(SqlError::new(SqlState::DATATYPE_MISMATCH, message)));
        };
        pairs.push(Pair { name, left: l, right: r, data_type, alike });
    }
    Ok(pairs)
}

/// The column of this name on one side: the merged one, if there is one.
fn one_column(schema: &DFSchema, name: &str, side: &str) -> Result<Column> {
    let found = schema.columns_with_unqualified_name(name);
    if let Some(merged) = found.iter().find(|c| is_mark(c)) {
        return Ok(merged.clone());
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            let message =
                format!("column \"{name}\" specified in USING clause does not exist in {side} table");
            Err(external(SqlError::new(SqlState::UNDEFINED_COLUMN, message)))
        }
        _ => {
            let message = format!("common column name \"{name}\" appears more than once in {side} table");
            Err(external(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message)))
        }
    }
}

impl Pair {
    fn merged(&self, join_type: JoinType, qualifier: &TableReference) -> Result<Expr> {
        let of = |column: &Column| -> Expr {
            let column = Expr::Column(column.clone());
            match self.alike {
                true => column,
                false => Expr::Cast(Cast::new(Box::new(column), self.data_type.clone())),
            }
        };
        let expr = match join_type {
            JoinType::Right => of(&self.right),
            JoinType::Full => {
                datafusion_functions::core::coalesce().call(vec![of(&self.left), of(&self.right)])
            }
            _ => of(&self.left),
        };
        Ok(expr.alias_qualified(Some(qualifier.clone()), self.name.clone()))
    }
}

/// All columns that a merged one stands for, by its place among the pairs.
fn stands_for(left: &DFSchema, right: &DFSchema, pairs: &[Pair]) -> Vec<(usize, Column)> {
    let mut all = Vec::new();
    for (i, pair) in pairs.iter().enumerate() {
        for schema in [left, right] {
            let found = schema.columns_with_unqualified_name(&pair.name);
            all.extend(found.into_iter().filter(|c| !is_mark(c)).map(|c| (i, c)));
        }
    }
    all
}

/// A qualifier that no table has and that sorts first: the names of the tables behind a mark.
fn qualifier_of(schema: &DFSchema) -> TableReference {
    let mut names: Vec<String> = Vec::new();
    for (qualifier, _) in schema.iter() {
        let name = qualifier.map(|q| q.to_string().replace(MARK, "")).unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    TableReference::bare(format!("{MARK}{}", names.join(" ")))
}

/// Whether a column is a merged one.
fn is_mark(column: &Column) -> bool {
    column.relation.as_ref().is_some_and(|relation| relation.table().starts_with(MARK))
}

fn marked(plan: LogicalPlan, qualifier: &TableReference, stands_for: Vec<(usize, Column)>) -> LogicalPlan {
    let schema = Arc::clone(plan.schema());
    let on = stands_for.into_iter().map(|(_, column)| {
        let merged = Column::new(Some(qualifier.clone()), column.name.clone());
        (Expr::Column(merged), Expr::Column(column))
    });
    // One join for each name: what the columns of another name are is not asked there.
    let mut by_name: Vec<(String, Vec<(Expr, Expr)>)> = Vec::new();
    for (merged, column) in on {
        let Expr::Column(Column { name, .. }) = &merged else { continue };
        match by_name.iter_mut().find(|(known, _)| known == name) {
            Some((_, pairs)) => pairs.push((merged, column)),
            None => by_name.push((name.clone(), vec![(merged, column)])),
        }
    }
    by_name.into_iter().fold(plan, |plan, (_, on)| {
        let nothing = EmptyRelation { produce_one_row: true, schema: Arc::new(DFSchema::empty()) };
        LogicalPlan::Join(Join {
            left: Arc::new(plan),
            right: Arc::new(LogicalPlan::EmptyRelation(nothing)),
            on,
            filter: None,
            join_type: JoinType::Inner,
            join_constraint: JoinConstraint::Using,
            schema: Arc::clone(&schema),
            null_equality: NullEquality::NullEqualsNothing,
            null_aware: false,
        })
    })
}

/// Only what `*` shows: the columns under an alias of the whole join.
fn visible(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = datafusion_expr::utils::expand_wildcard(plan.schema(), &plan, None)?;
    LogicalPlanBuilder::from(without_marks(plan)?).project(columns)?.build()
}

/// The plan without the joins that only the planner looks at.
pub(super) fn without_marks(plan: LogicalPlan) -> Result<LogicalPlan> {
    let unmarked = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) if is_planners_own(&join) => {
            Ok(Transformed::yes(Arc::unwrap_or_clone(join.left)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(unmarked?.data)
}

fn is_planners_own(join: &Join) -> bool {
    let nothing = matches!(&*join.right, LogicalPlan::EmptyRelation(e) if e.schema.fields().is_empty());
    nothing && join.join_constraint == JoinConstraint::Using
}
