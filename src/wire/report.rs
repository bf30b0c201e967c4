//! Any error as ErrorResponse, any notice as NoticeResponse.

use crate::session::{Notice, SessionError};
use pgwire::error::ErrorInfo;
use pgwire::messages::PgWireBackendMessage;
use weir_catalog::Severity;

/// A message longer than this is cut: it has to fit a protocol message.
const TEXT_MAX: usize = 8_000;

/// The error as its client reads it.
pub fn error_response(error: &SessionError) -> PgWireBackendMessage {
    crate::telemetry::METRICS.statement_errors.inc();
    let fault = error.fault();
    let severity = match fault.severity {
        Severity::Error => "ERROR",
        Severity::Fatal => "FATAL",
    };
    let mut info = info(severity, fault.state.0, &fault.message);
    info.detail = fault.detail.as_deref().map(cut);
    info.hint = fault.hint.as_deref().map(cut);
    info.position = fault.position.map(|position| position.to_string());
    if let Some(relation) = &fault.relation {
        info.schema = Some(relation.schema.clone());
        info.table = Some(relation.name.clone());
    }
    info.column = fault.column.clone();
    info.constraint = fault.constraint.clone();
    PgWireBackendMessage::ErrorResponse(info.into())
}

/// The notice as its client reads it.
pub fn notice_response(notice: &Notice) -> PgWireBackendMessage {
    let severity = if notice.warning { "WARNING" } else { "NOTICE" };
    PgWireBackendMessage::NoticeResponse(info(severity, notice.state.0, &notice.message).into())
}

fn info(severity: &str, state: &str, message: &str) -> ErrorInfo {
    let mut info = ErrorInfo::new(severity.to_owned(), state.to_owned(), cut(message));
    info.severity_nonlocalized = Some(severity.to_owned());
    info
}

/// Strings of the protocol end at a zero byte.
fn cut(text: &str) -> String {
    let end = text.char_indices().map(|(i, c)| i + c.len_utf8()).take_while(|end| *end <= TEXT_MAX).last();
    text[..end.unwrap_or(0)].replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_catalog::{ObjectName, SqlState};

    fn fields(message: PgWireBackendMessage) -> Vec<(char, String)> {
        let fields = match message {
            PgWireBackendMessage::ErrorResponse(response) => response.fields,
            PgWireBackendMessage::NoticeResponse(response) => response.fields,
            other => panic!("{other:?}"),
        };
        fields.into_iter().map(|(code, text)| (code as char, text)).collect()
    }

    #[test]
    fn an_error_tells_all_that_is_known() {
        let error = SessionError::new(SqlState::UNIQUE_VIOLATION, "duplicate key")
            .detail("Key (id)=(1) already exists.")
            .of_constraint(&ObjectName::public("t"), "t_pkey");
        let told = fields(error_response(&error));
        for expected in [
            ('S', "ERROR"),
            ('V', "ERROR"),
            ('C', "23505"),
            ('M', "duplicate key"),
            ('t', "t"),
            ('n', "t_pkey"),
        ] {
            assert!(told.contains(&(expected.0, expected.1.to_owned())), "{expected:?} in {told:?}");
        }
        assert!(!told.iter().any(|(code, _)| *code == 'H' || *code == 'P'));
    }

    #[test]
    fn long_and_odd_texts_fit_a_message() {
        let told = fields(notice_response(&Notice::info("ä\0".repeat(10_000))));
        let text = &told.iter().find(|(code, _)| *code == 'M').expect("a message").1;
        assert!(text.len() <= TEXT_MAX && text.chars().all(|c| c == 'ä'));
        assert!(told.contains(&('S', "NOTICE".to_owned())) && told.contains(&('C', "00000".to_owned())));
    }
}
