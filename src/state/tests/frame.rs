//! Tests of log files: every cut and every flipped bit is either a shorter log or an error.

use super::*;

const MAGIC: &[u8; 8] = b"WEIRTST1";
const PAYLOADS: [&[u8]; 4] = [b"one", b"", b"three, a longer one", &[0; 40]];

fn written(path: &Path) -> Vec<u8> {
    let mut writer = FrameWriter::create(path.to_owned(), MAGIC, "test").unwrap();
    assert!(writer.is_empty());
    for (i, payload) in PAYLOADS.iter().enumerate() {
        writer.append(i as u64 + 10, payload).unwrap();
    }
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(writer.len(), bytes.len() as u64);
    bytes
}

fn payloads(frames: &Frames) -> Vec<&[u8]> {
    frames.iter().map(|(_, p)| p).collect()
}

fn ends() -> Vec<usize> {
    PAYLOADS
        .iter()
        .scan(8, |end, p| {
            *end += 16 + p.len();
            Some(*end)
        })
        .collect()
}

#[test]
fn bytes_never_change() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(&dir.path().join("log"));
    let expected = "574549525453543103000000f96e2ca10a000000000000006f6e65";
    let hex: String = bytes[..27].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, expected);
}

#[test]
fn a_log_cut_anywhere_holds_the_whole_frames_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let bytes = written(&path);
    for cut in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let whole = ends().iter().filter(|end| **end <= cut).count();
        let frames = Frames::read(&path, MAGIC, true).unwrap();
        assert_eq!(payloads(&frames), PAYLOADS[..whole], "{cut}");
        let at_an_end = cut == 8 || ends().contains(&cut);
        assert_eq!(Frames::read(&path, MAGIC, false).is_ok(), at_an_end, "{cut}");
        let mut writer = FrameWriter::open(path.clone(), MAGIC, "test", &frames).unwrap();
        writer.append(99, b"after").unwrap();
        let frames = Frames::read(&path, MAGIC, false).unwrap();
        assert_eq!(payloads(&frames), [&PAYLOADS[..whole], &[b"after"]].concat());
    }
}

#[test]
fn a_flipped_bit_costs_the_last_frame_or_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let bytes = written(&path);
    let last_start = ends()[PAYLOADS.len() - 2];
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, damaged).unwrap();
        assert!(Frames::read(&path, MAGIC, false).is_err());
        match Frames::read(&path, MAGIC, true) {
            Ok(frames) => {
                assert!(bit / 8 >= last_start, "bit {bit}");
                assert_eq!(payloads(&frames), PAYLOADS[..PAYLOADS.len() - 1]);
            }
            Err(error) => {
                assert!(bit / 8 < last_start, "bit {bit}");
                assert!(error.to_string().contains("log is damaged"), "{error}");
            }
        }
    }
}

#[test]
fn a_failed_append_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let bytes = written(&path);
    let frames = Frames::read(&path, MAGIC, true).unwrap();
    let mut writer = FrameWriter::open(path.clone(), MAGIC, "test", &frames).unwrap();
    for point in ["before_write", "mid_write", "before_sync"] {
        failpoint::testing::set(&format!("test.{point}=error"));
        assert!(writer.append(20, b"lost").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{point}");
    }
    failpoint::testing::set("");
    writer.append(21, b"kept").unwrap();
    let frames = Frames::read(&path, MAGIC, false).unwrap();
    assert_eq!(payloads(&frames).last(), Some(&b"kept".as_slice()));
}

#[test]
fn sequences_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut writer = FrameWriter::create(path.clone(), MAGIC, "test").unwrap();
    writer.append(2, b"a").unwrap();
    writer.append(1, b"b").unwrap();
    assert!(Frames::read(&path, MAGIC, false).is_err());
}
