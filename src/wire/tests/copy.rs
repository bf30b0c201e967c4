//! Lines out and in again, in pieces that end anywhere.

use super::*;

fn csv() -> CopyOptions {
    CopyOptions { csv: true, delimiter: b',', null: String::new(), ..CopyOptions::default() }
}

fn read(options: &CopyOptions, width: usize, text: &[u8], piece: usize) -> Result<Vec<Line>, SessionError> {
    let mut lines = Lines::new(options.clone(), width);
    for piece in text.chunks(piece) {
        lines.push(piece)?;
    }
    lines.finish()?;
    Ok(std::iter::from_fn(|| lines.take(1)).flatten().collect())
}

fn line(values: &[Option<&str>]) -> Line {
    values.iter().map(|value| value.map(str::to_owned)).collect()
}

#[test]
fn what_goes_out_comes_in_again() {
    let rows = [
        line(&[Some("a"), None, Some("")]),
        line(&[Some("tab\tand\nline\r"), Some("back\\slash"), Some("\\N")]),
        line(&[Some("say \"hi\", you"), Some("ä"), Some("\\.")]),
    ];
    for options in
        [CopyOptions::default(), csv(), CopyOptions { delimiter: b'|', null: "null".to_owned(), ..csv() }]
    {
        let mut out = BytesMut::new();
        for row in &rows {
            for (i, value) in row.iter().enumerate() {
                write_value(value.as_ref().map(String::as_bytes), i, &options, &mut out);
            }
            out.put_u8(b'\n');
        }
        for piece in [1, 3, 1000] {
            assert_eq!(read(&options, 3, &out, piece).unwrap(), rows, "{options:?}");
        }
    }
}

#[test]
fn postgres_texts_are_read() {
    let text = CopyOptions::default();
    assert_eq!(
        read(&text, 2, b"1\t\\N\n\\x41\\101\tx\r\n\\.\nrest", 7).unwrap(),
        [line(&[Some("1"), None]), line(&[Some("AA"), Some("x")]),]
    );
    let header = CopyOptions { header: true, ..csv() };
    assert_eq!(
        read(&header, 2, b"a,b\n1,\n\"\",\"x\"\"y\"", 4).unwrap(),
        [line(&[Some("1"), None]), line(&[Some(""), Some("x\"y")]),]
    );
    let escaped = CopyOptions { escape: Some(b'\\'), ..csv() };
    assert_eq!(read(&escaped, 1, b"\"a\\\"\nb\"\n", 2).unwrap(), [line(&[Some("a\"\nb")])]);
}

#[test]
fn lines_of_the_wrong_width_are_refused() {
    let message = |text: &[u8], width| read(&csv(), width, text, 10).unwrap_err().to_string();
    assert_eq!(message(b"1\n", 2), "missing data for column 2");
    assert_eq!(message(b"1,2,3\n", 2), "extra data after last expected column");
    assert_eq!(message(b"\"1\n", 1), "unterminated CSV quoted field");
    assert!(read(&CopyOptions::default(), 1, &[0xff, b'\n'], 10).is_err());
}
