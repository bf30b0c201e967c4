//! NATURAL JOIN as JOIN … USING, where the columns of both sides are known: the merged columns have
//! names then, by which WHERE can mean them.

use super::BindContext;
use super::whole_rows::named_columns;
use sqlparser::ast::{Ident, JoinConstraint, JoinOperator, ObjectName, Select, TableWithJoins};

/// Rewrites the NATURAL JOINs of a SELECT.
pub(super) fn rewrite_select(select: &mut Select, context: &BindContext) {
    select.from.iter_mut().for_each(|from| rewrite_joins(from, context));
}

fn rewrite_joins(from: &mut TableWithJoins, context: &BindContext) {
    let Some((_, mut left)) = named_columns(&from.relation, context) else { return };
    for join in &mut from.joins {
        let Some((_, right)) = named_columns(&join.relation, context) else { return };
        if let Some(constraint @ JoinConstraint::Natural) = constraint_of(&mut join.join_operator) {
            let shared: Vec<ObjectName> = left
                .iter()
                .filter(|name| right.contains(name))
                .map(|name| ObjectName::from(Ident::with_quote('"', name.as_str())))
                .collect();
            if shared.is_empty() {
                return;
            }
            *constraint = JoinConstraint::Using(shared);
        }
        left.extend(right.into_iter().filter(|name| !left.contains(name)).collect::<Vec<_>>());
    }
}

fn constraint_of(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    use JoinOperator as Op;
    match operator {
        Op::Join(constraint)
        | Op::Inner(constraint)
        | Op::Left(constraint)
        | Op::LeftOuter(constraint)
        | Op::Right(constraint)
        | Op::RightOuter(constraint)
        | Op::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}
