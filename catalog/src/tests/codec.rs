//! What earlier versions wrote can be read.

use super::*;
use crate::object::Object;

/// An object as it was written before objects had a parallelism.
const OLD: &str = r#"[{"Create":{"id":20000,"name":{"schema":"public","name":"v"},"body":{"View":{"columns":[],"query":"SELECT 1","inputs":[]}},"state":"Created","definition":"CREATE VIEW v AS SELECT 1","comment":null}}]"#;

fn decoded(text: &str) -> Object {
    let bytes = [&[VERSION], text.as_bytes()].concat();
    match decode_changes(&bytes).expect("it can be read").remove(0) {
        CatalogChange::Create(object) => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_without_a_parallelism_goes_by_the_database() {
    let object = decoded(OLD);
    assert_eq!(object.parallelism, None);
    let again = Object { parallelism: Some(3), ..object };
    let bytes = encode_changes(&[CatalogChange::Create(again.clone())]).expect("it can be written");
    assert_eq!(decode_changes(&bytes).expect("it can be read"), [CatalogChange::Create(again)]);
}
