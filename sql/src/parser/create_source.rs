//! CREATE TABLE and CREATE SOURCE: columns, keys, WATERMARK FOR, APPEND ONLY, ON CONFLICT, WITH,
//! FORMAT … ENCODE.

use super::cursor::{Cursor, Parse};
use super::options::{format_spec, with_options};
use super::statement::{ColumnDef, CreateRelation};
use crate::error::SqlError;
use sqlparser::ast;
use sqlparser::tokenizer::Token;
use weir_catalog::SqlState;
use weir_catalog::relation::OnConflict;
use weir_catalog::source::Options;

/// What follows CREATE TABLE or CREATE SOURCE.
pub(crate) fn create_relation(cursor: &mut Cursor<'_>, what: &str) -> Parse<CreateRelation> {
    let if_not_exists = cursor.if_not_exists();
    let name = cursor.object_name()?;
    let mut relation = CreateRelation {
        name,
        if_not_exists,
        columns: Vec::new(),
        primary_key: Vec::new(),
        watermark: None,
        append_only: false,
        on_conflict: OnConflict::Error,
        options: Options::new(),
        format: None,
    };
    if cursor.peek_word("AS") {
        return Err(SqlError::not_supported(format_args!("CREATE {what} AS"))
            .hint("Use CREATE MATERIALIZED VIEW … AS, or CREATE TABLE and INSERT … SELECT.")
            .into());
    }
    if cursor.consume_token(&Token::LParen) {
        elements(cursor, &mut relation)?;
    } else if what == "TABLE" {
        return Err(cursor.unexpected());
    }
    clauses(cursor, &mut relation, what)?;
    cursor.expect_end()?;
    Ok(relation)
}

/// What stands between the parentheses, and the closing one.
fn elements(cursor: &mut Cursor<'_>, relation: &mut CreateRelation) -> Parse<()> {
    if cursor.consume_token(&Token::RParen) {
        return Ok(());
    }
    loop {
        if cursor.peek_token_ref().token == Token::Mul {
            return Err(SqlError::not_supported("* in a list of columns").into());
        }
        if cursor.peek_word("WATERMARK") && cursor.peek_nth_word(1, "FOR") {
            cursor.words(&["WATERMARK", "FOR"]);
            let column = cursor.identifier()?;
            cursor.expect_word("AS")?;
            let expr = cursor.parse_expr()?;
            if relation.watermark.replace((column, expr)).is_some() {
                return Err(invalid_definition("multiple watermarks for one relation are not allowed").into());
            }
        } else if let Some(key) = table_constraint(cursor)? {
            set_primary_key(relation, key)?;
        } else {
            let column = column_def(cursor)?;
            relation.columns.push(column);
        }
        if !cursor.consume_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    let own: Vec<String> =
        relation.columns.iter().filter(|c| c.primary_key).map(|c| c.name.clone()).collect();
    if own.len() > 1 || (!own.is_empty() && !relation.primary_key.is_empty()) {
        return Err(multiple_keys(relation).into());
    }
    if !own.is_empty() {
        relation.primary_key = own;
    }
    Ok(())
}

/// PRIMARY KEY (a, b), possibly named. Other constraints are refused.
fn table_constraint(cursor: &mut Cursor<'_>) -> Parse<Option<Vec<String>>> {
    if cursor.peek_word("CONSTRAINT") {
        cursor.advance_token();
        cursor.identifier()?;
    }
    let followed_by_list = cursor.peek_nth_token_ref(1).token == Token::LParen;
    match cursor.upper().as_deref() {
        Some("PRIMARY") if cursor.peek_nth_word(1, "KEY") => {
            cursor.words(&["PRIMARY", "KEY"]);
            Ok(Some(cursor.column_list()?))
        }
        Some(word @ ("UNIQUE" | "CHECK" | "EXCLUDE")) if followed_by_list => {
            Err(SqlError::not_supported(format_args!("{word} constraints")).into())
        }
        Some("FOREIGN") if cursor.peek_nth_word(1, "KEY") => {
            Err(SqlError::not_supported("FOREIGN KEY constraints").into())
        }
        Some("LIKE") => Err(SqlError::not_supported("LIKE in CREATE TABLE").into()),
        _ => Ok(None),
    }
}

fn set_primary_key(relation: &mut CreateRelation, key: Vec<String>) -> Parse<()> {
    if !relation.primary_key.is_empty() {
        return Err(multiple_keys(relation).into());
    }
    relation.primary_key = key;
    Ok(())
}

fn column_def(cursor: &mut Cursor<'_>) -> Parse<ColumnDef> {
    let name = cursor.identifier()?;
    let data_type = data_type(cursor)?;
    let mut column = ColumnDef { name, data_type, not_null: false, primary_key: false, default: None };
    loop {
        if cursor.word("CONSTRAINT") {
            cursor.identifier()?;
        } else if cursor.words(&["NOT", "NULL"]) {
            column.not_null = true;
        } else if cursor.word("NULL") {
            column.not_null = false;
        } else if cursor.words(&["PRIMARY", "KEY"]) {
            column.primary_key = true;
            column.not_null = true;
        } else if cursor.word("DEFAULT") {
            column.default = Some(default_expr(cursor)?);
        } else if cursor.word("COLLATE") {
            cursor.object_name()?;
        } else {
            refuse_column_option(cursor)?;
            return Ok(column);
        }
    }
}

/// DEFAULT's expression. Binds tighter than NOT NULL, so that `DEFAULT 1 NOT NULL` is two clauses.
fn default_expr(cursor: &mut Cursor<'_>) -> Parse<ast::Expr> {
    use sqlparser::dialect::{Dialect, Precedence};
    let above_not = super::cursor::DIALECT.prec_value(Precedence::Is);
    Ok(cursor.parse_subexpr(above_not)?)
}

fn refuse_column_option(cursor: &Cursor<'_>) -> Parse<()> {
    let what = match cursor.upper().as_deref() {
        Some("AS" | "GENERATED") => "a generated column",
        Some("UNIQUE") => "a UNIQUE constraint",
        Some("REFERENCES") => "a FOREIGN KEY constraint",
        Some("CHECK") => "a CHECK constraint",
        _ => return Ok(()),
    };
    Err(SqlError::not_supported(what).into())
}

/// A type. `struct<…>` is read by sqlparser only in other dialects.
pub(crate) fn data_type(cursor: &mut Cursor<'_>) -> Parse<ast::DataType> {
    if !matches!(cursor.peek_token_ref().token, Token::Word(_)) {
        return Err(cursor.unexpected());
    }
    Ok(cursor.parse_data_type()?)
}

/// The clauses after the columns, in any order.
fn clauses(cursor: &mut Cursor<'_>, relation: &mut CreateRelation, what: &str) -> Parse<()> {
    loop {
        if cursor.words(&["APPEND", "ONLY"]) {
            relation.append_only = true;
        } else if cursor.words(&["ON", "CONFLICT"]) {
            relation.on_conflict = on_conflict(cursor)?;
        } else if cursor.peek_word("INCLUDE") {
            return Err(SqlError::not_supported("INCLUDE in CREATE SOURCE").into());
        } else if cursor.peek_word("WITH") {
            let options = with_options(cursor)?;
            if options.is_empty() && cursor.peek_word("WITH") {
                return Err(cursor.unexpected());
            }
            relation.options.extend(options);
        } else if let Some(format) = format_spec(cursor)? {
            relation.format = Some(format);
        } else if let Some(word @ ("INHERITS" | "PARTITION" | "USING" | "TABLESPACE")) =
            cursor.upper().as_deref()
        {
            return Err(SqlError::not_supported(format_args!("{word} in CREATE {what}")).into());
        } else {
            return Ok(());
        }
    }
}

/// What follows ON CONFLICT in a table's declaration.
fn on_conflict(cursor: &mut Cursor<'_>) -> Parse<OnConflict> {
    if cursor.words(&["DO", "UPDATE", "FULL"]) || cursor.word("OVERWRITE") {
        Ok(OnConflict::DoUpdateFull)
    } else if cursor.words(&["DO", "NOTHING"]) || cursor.word("IGNORE") {
        Ok(OnConflict::DoNothing)
    } else if cursor.words(&["DO", "UPDATE", "IF", "NOT", "NULL"]) {
        Err(SqlError::not_supported("ON CONFLICT DO UPDATE IF NOT NULL")
            .hint("Use ON CONFLICT DO UPDATE FULL or ON CONFLICT DO NOTHING.")
            .into())
    } else {
        Err(cursor.unexpected())
    }
}

fn invalid_definition(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

fn multiple_keys(relation: &CreateRelation) -> SqlError {
    invalid_definition(format!("multiple primary keys for table \"{}\" are not allowed", relation.name.name))
}
