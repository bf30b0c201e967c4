//! PostgreSQL's keywords, which drivers quote: `pg_get_keywords()` is a table here.

use super::system::{SystemInput, TableSpec};
use weir_catalog::system::ColumnType::{Bool, Char, Text};
use weir_catalog::system::{Columns, Row, Value};

/// The name of the function, and of the table that is behind it.
pub const KEYWORDS: &str = "pg_get_keywords";

/// The table.
pub fn tables() -> Vec<TableSpec> {
    vec![TableSpec::computed("pg_catalog", KEYWORDS, COLUMNS, rows)]
}

const COLUMNS: Columns =
    &[("word", Text), ("catcode", Char), ("barelabel", Bool), ("catdesc", Text), ("baredesc", Text)];

/// Words that are alike: their category, whether they may be a label without AS, and the words.
struct Category {
    code: &'static str,
    bare: bool,
    words: &'static str,
}

fn rows(_: &SystemInput<'_>) -> Vec<Row> {
    let mut all: Vec<(&str, &Category)> = CATEGORIES
        .iter()
        .flat_map(|category| category.words.split_whitespace().map(move |word| (word, category)))
        .collect();
    all.sort_by_key(|(word, _)| *word);
    let row = |(word, category): (&str, &Category)| -> Row {
        let description = match category.code {
            "U" => "unreserved",
            "C" => "unreserved (cannot be function or type name)",
            "T" => "reserved (can be function or type name)",
            _ => "reserved",
        };
        let label = if category.bare { "can be bare label" } else { "requires AS" };
        vec![word.into(), category.code.into(), Value::Bool(category.bare), description.into(), label.into()]
    };
    all.into_iter().map(row).collect()
}

const CATEGORIES: &[Category] = &[
    Category {
        code: "U",
        bare: true,
        words: "abort absolute access action add admin after aggregate also alter always asensitive assertion \
                assignment at atomic attach attribute backward before begin breadth by cache call called \
                cascade cascaded catalog chain characteristics checkpoint class close cluster columns comment \
                comments commit committed compression configuration conflict connection constraints content \
                continue conversion copy cost csv cube current cursor cycle data database deallocate declare \
                defaults deferred definer delete delimiter delimiters depends depth detach dictionary disable \
                discard document domain double drop each enable encoding encrypted enum escape event exclude \
                excluding exclusive execute explain expression extension external family finalize first \
                following force forward function functions generated global granted groups handler header hold \
                identity if immediate immutable implicit import include including increment index indexes \
                inherit inherits inline input insensitive insert instead invoker isolation key label language \
                large last leakproof level listen load local location lock locked logged mapping match matched \
                materialized maxvalue merge method minvalue mode move name names new next nfc nfd nfkc nfkd no \
                normalized nothing notify nowait nulls object of off oids old operator option options \
                ordinality others overriding owned owner parallel parameter parser partial partition passing \
                password plans policy preceding prepare prepared preserve prior privileges procedural procedure \
                procedures program publication quote range read reassign recheck recursive ref referencing \
                refresh reindex relative release rename repeatable replace replica reset restart restrict \
                return returns revoke role rollback rollup routine routines rows rule savepoint schema schemas \
                scroll search security sequence sequences serializable server session set sets share show \
                simple skip snapshot sql stable standalone start statement statistics stdin stdout storage \
                stored strict strip subscription support sysid system tables tablespace temp template temporary \
                text ties transaction transform trigger truncate trusted type types uescape unbounded \
                uncommitted unencrypted unknown unlisten unlogged until update vacuum valid validate validator \
                value version view views volatile whitespace work wrapper write xml yes zone",
    },
    Category {
        code: "U",
        bare: false,
        words: "day filter hour minute month over second varying within without year",
    },
    Category {
        code: "T",
        bare: true,
        words: "authorization binary collation concurrently cross current_schema freeze full ilike inner is \
                join left like natural outer right similar tablesample verbose",
    },
    Category { code: "T", bare: false, words: "isnull notnull overlaps" },
    Category {
        code: "R",
        bare: true,
        words: "all analyse analyze and any asc asymmetric both case cast check collate column constraint \
                current_catalog current_date current_role current_time current_timestamp current_user default \
                deferrable desc distinct do else end false foreign in initially lateral leading localtime \
                localtimestamp not null only or placing primary references select session_user some symmetric \
                table then trailing true unique user using variadic when",
    },
    Category {
        code: "R",
        bare: false,
        words: "array as create except fetch for from grant group having intersect into limit offset on order \
                returning to union where window with",
    },
    Category {
        code: "C",
        bare: true,
        words: "between bigint bit boolean coalesce dec decimal exists extract float greatest grouping inout \
                int integer interval least national nchar none normalize nullif numeric out overlay position \
                real row setof smallint substring time timestamp treat trim values varchar xmlattributes \
                xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize \
                xmltable",
    },
    Category { code: "C", bare: false, words: "char character precision" },
];
