//! Window functions to Over nodes: all functions over the same partitions and order are one node.
//! What they are computed from becomes columns of the input first; constants stay with the call.
//!
//! A lone `row_number()` is a top-n with ranks instead ([`super::top_n`]), which says what changed
//! without computing a partition anew.

use super::exprs::{check_keys, plan_error, select, trim, with_columns};
use super::lower::Lowering;
use super::node::{OverCall, PlanNode, PlanOp};
use super::top_n::sort_keys;
use crate::error::SqlError;
use arrow::datatypes::{Field, Schema};
use datafusion_common::Column;
use datafusion_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion_expr::{Expr, Window};
use std::sync::Arc;

impl Lowering<'_> {
    pub(super) fn lower_over(&self, window: &Window) -> Result<PlanNode, SqlError> {
        let functions: Vec<&WindowFunction> =
            window.window_expr.iter().map(function_of).collect::<Result<_, _>>()?;
        let Some(first) = functions.first().map(|f| &f.params) else {
            return Err(SqlError::not_supported("a window without functions"));
        };
        let alike = |f: &&WindowFunction| {
            f.params.partition_by == first.partition_by && f.params.order_by == first.order_by
        };
        if !functions.iter().all(alike) {
            return Err(SqlError::not_supported("windows of several orders in one step"));
        }
        let arity = window.input.schema().fields().len();
        let node = trim(self.node(&window.input)?, arity);
        let mut exprs: Vec<&Expr> = first.partition_by.iter().collect();
        exprs.extend(first.order_by.iter().map(|s| &s.expr));
        for function in &functions {
            exprs.extend(function.params.args.iter().filter(|arg| !is_constant(arg)));
            exprs.extend(function.params.filter.as_deref());
        }
        let (node, places) = with_columns(node, &exprs, window.input.schema())?;
        let (groups, ordered) = (first.partition_by.len(), first.order_by.len());
        let group = places[..groups].to_vec();
        check_keys(&node, &group, "the PARTITION BY")?;
        check_keys(&node, &(0..node.arity()).collect::<Vec<_>>(), "the windowed")?;
        let order = sort_keys(&first.order_by, &places[groups..groups + ordered]);
        let place = |wanted: &Expr| exprs.iter().position(|e| *e == wanted).map(|i| places[i]);
        let mut fields: Vec<Field> = node.schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        let mut calls = Vec::with_capacity(functions.len());
        for (i, function) in functions.into_iter().enumerate() {
            let output = window.schema.field(arity + i).as_ref().clone().with_nullable(true);
            fields.push(output.clone());
            calls.push(OverCall { function: numbered(function, &place)?, output });
        }
        let keep: Vec<usize> = (0..arity).chain(node.arity()..fields.len()).collect();
        let op = PlanOp::Over { group, order, calls };
        Ok(select(PlanNode::over(op, vec![node], Arc::new(Schema::new(fields))), &keep))
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(..) => true,
        Expr::Alias(alias) => is_constant(&alias.expr),
        Expr::Cast(cast) => is_constant(&cast.expr),
        _ => false,
    }
}

fn function_of(expr: &Expr) -> Result<&WindowFunction, SqlError> {
    match expr {
        Expr::Alias(alias) => function_of(&alias.expr),
        Expr::WindowFunction(function) => Ok(function),
        other => Err(SqlError::not_supported(format!("the window expression {other}"))),
    }
}

/// The function over columns that are named by their ordinals.
fn numbered(function: &WindowFunction, place: &dyn Fn(&Expr) -> Option<usize>) -> Result<Expr, SqlError> {
    let column = |expr: &Expr| -> Result<Expr, SqlError> {
        if is_constant(expr) {
            return Ok(expr.clone());
        }
        let place = place(expr).ok_or_else(|| {
            plan_error(datafusion_common::DataFusionError::Internal("a window's column is placed".into()))
        })?;
        Ok(Expr::Column(Column::from_name(place.to_string())))
    };
    let params = &function.params;
    let order_by = params.order_by.iter().map(|sort| Ok(sort.with_expr(column(&sort.expr)?)));
    Ok(Expr::WindowFunction(Box::new(WindowFunction {
        fun: function.fun.clone(),
        params: WindowFunctionParams {
            args: params.args.iter().map(column).collect::<Result<_, SqlError>>()?,
            partition_by: params.partition_by.iter().map(column).collect::<Result<_, SqlError>>()?,
            order_by: order_by.collect::<Result<_, SqlError>>()?,
            window_frame: params.window_frame.clone(),
            filter: params.filter.as_deref().map(column).transpose()?.map(Box::new),
            null_treatment: params.null_treatment,
            distinct: params.distinct,
        },
    })))
}
