//! Tests of objects: they come back as they were put, in parts or not, compressed or not.

use super::*;
use object_store::memory::InMemory;

fn kinds() -> Vec<(Objects, Option<tempfile::TempDir>)> {
    let dir = tempfile::tempdir().unwrap();
    let url = StorageUrl::parse(&format!("file://{}/new/dir", dir.path().display())).unwrap().unwrap();
    let files = Objects::connect(&url, "database", 0).unwrap();
    vec![(Objects::of(Arc::new(InMemory::new())), None), (files, Some(dir))]
}

/// Bytes that compress badly.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn what_is_uploaded_is_downloaded() {
    let (throttle, cancel) = (Throttle::default(), Cancel::default());
    for (objects, _dir) in kinds() {
        for bytes in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 7] {
            let content = noise(bytes);
            for name in ["shared/1/a", "shared/1/a.zst"] {
                let sent = objects.upload(name, content.as_slice(), &throttle, &cancel).unwrap();
                assert!(name.ends_with(COMPRESSED) || sent == bytes as u64, "{sent} of {bytes}");
                let mut back = Vec::new();
                objects.download(name, &mut back, &cancel).unwrap();
                assert!(back == content, "{name} of {bytes} bytes");
            }
        }
        let zeros = vec![0; 4 * PART_BYTES];
        let sent = objects.upload("shared/1/zeros.zst", zeros.as_slice(), &throttle, &cancel).unwrap();
        assert!(sent < 100_000, "{sent} bytes of {}", zeros.len());
    }
}

#[test]
fn an_object_is_made_once_listed_and_removed() {
    for (objects, _dir) in kinds() {
        objects.create("log/1", Bytes::from_static(b"one")).unwrap();
        let twice = objects.create("log/1", Bytes::from_static(b"two")).unwrap_err();
        assert_eq!(twice.kind(), io::ErrorKind::AlreadyExists, "{twice}");
        assert_eq!(objects.get("log/1").unwrap(), "one");
        objects.put("log/1", Bytes::from_static(b"two")).unwrap();
        objects.put("small/7/x", Bytes::from_static(b"three")).unwrap();
        assert_eq!(objects.get("log/1").unwrap(), "two");
        assert_eq!(objects.list("log").unwrap(), ["log/1"]);
        assert_eq!(objects.list("small").unwrap(), ["small/7/x"]);
        assert_eq!(objects.list("shared").unwrap(), Vec::<String>::new());
        let names = ["log/1", "log/2", "small/7/x"].map(str::to_owned);
        objects.delete(&names).unwrap();
        objects.delete(&names).unwrap();
        assert_eq!(objects.get("log/1").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(objects.list("small").unwrap(), Vec::<String>::new());
    }
}

#[test]
fn what_fails_half_way_leaves_no_object() {
    for (objects, _dir) in kinds() {
        let content = noise(3 * PART_BYTES);
        let (throttle, cancel) = (Throttle::default(), Cancel::default());
        failpoint::testing::set("storage.between_parts:2=error");
        objects.upload("shared/1/a", content.as_slice(), &throttle, &cancel).unwrap_err();
        failpoint::testing::set("");
        assert_eq!(objects.list("shared").unwrap(), Vec::<String>::new());
        cancel.cancel();
        objects.upload("shared/1/a", content.as_slice(), &throttle, &cancel).unwrap_err();
        assert_eq!(objects.list("shared").unwrap(), Vec::<String>::new());
    }
}

#[test]
fn what_is_no_compressed_content_is_damage() {
    let (objects, _) = kinds().remove(0);
    objects.put("a.zst", Bytes::from_static(b"not compressed at all")).unwrap();
    let error = objects.download("a.zst", &mut Vec::new(), &Cancel::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
}

#[test]
fn errors_keep_what_a_url_asks_for_to_themselves() {
    assert_eq!(
        without_queries("PUT https://a.b/c?sig=secret&se=1 failed (https://x?y=z): timeout"),
        "PUT https://a.b/c failed (https://x): timeout"
    );
    assert_eq!(without_queries("error \"https://x?y\" twice"), "error \"https://x\" twice");
}
