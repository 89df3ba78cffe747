//! Every code has its page, and responses have the members that clients rely on.

use std::collections::BTreeSet;
use std::path::Path;

use catena_engine::error::{
    ControlError, InvokeError, NoOutput, RateLimited, ResolveError, RunError, SendError, StoreError,
};
use catena_job::{JobId, Status};
use catena_value::NoCells;

use super::*;
use crate::identity::authenticate::AuthError;

fn pages() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_str().unwrap().trim_end_matches(".md").to_owned()).collect()
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let codes: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(codes.len(), Code::ALL.len(), "two codes have the same value");
    assert_eq!(pages(), codes);
}

#[test]
fn every_page_says_what_happened_why_and_what_to_do() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors");
    for code in Code::ALL {
        let name = format!("{}.md", code.as_str());
        let page = std::fs::read_to_string(folder.join(&name)).unwrap();
        assert!(page.starts_with(&format!("# {}\n", code.as_str())), "{name}");
        for part in ["\n## What happened\n", "\n## Why\n", "\n## What to do\n"] {
            assert!(page.contains(part), "{name} has no {part}");
        }
        assert!(page.contains(&format!("`{}`", code.retry().as_str())), "{name}: retry");
        assert!(page.contains(&code.number_text()), "{name}: status");
        assert!(page.contains(code.about()), "{name}: description");
    }
}

impl Code {
    fn number_text(self) -> String {
        self.status().as_u16().to_string()
    }
}

#[test]
fn codes_are_identifiers_and_hints_are_sentences() {
    for code in Code::ALL {
        let word = code.as_str();
        assert!(word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{word}");
        for text in [code.hint(), code.about()] {
            assert!(text.ends_with('.'), "{word}: {text}");
        }
        assert!(code.status().as_u16() >= 400, "{word}");
        assert_ne!(code.number_text(), "0", "{word}");
    }
}

fn member(error: &ApiError, name: &str) -> Value {
    error.to_value().as_map().unwrap().field(name).cloned().unwrap_or(Value::Nil)
}

fn job() -> JobId {
    JobId::from_bytes([7; 16])
}

#[test]
fn a_body_has_the_members_that_clients_rely_on() {
    let error = ApiError::bad_request("`wait` is wrong").detail("A sentence.");
    for (name, expected) in [
        ("error", "`wait` is wrong"),
        ("code", "bad_request"),
        ("retry", "never"),
        ("detail", "A sentence."),
    ] {
        assert_eq!(member(&error, name), expected.into(), "{name}");
    }
    assert!(member(&error, "hint").as_str().is_some());
}

#[test]
fn a_message_to_an_ended_job_names_the_job_and_its_status() {
    let error = ApiError::from(SendError::Ended { job: job(), status: Status::Complete });
    assert_eq!(error.status(), StatusCode::CONFLICT);
    assert_eq!(member(&error, "id"), job().into());
    assert_eq!(member(&error, "status"), "COMPLETE".into());
    assert_eq!(member(&error, "code"), "job_ended".into());
}

#[test]
fn a_run_without_output_names_its_job_and_has_the_pinned_status() {
    for (status, expected) in [
        (Status::Rejected, 400),
        (Status::Failed, 422),
        (Status::Cancelled, 422),
        (Status::Timeout, 504),
        (Status::Started, 504),
        (Status::InputRequired, 504),
    ] {
        let ended = NoOutput {
            job: Some(job()),
            status,
            error: "text".to_owned(),
            code: None,
            is_replay: false,
        };
        let error = ApiError::from(RunError::Ended(Box::new(ended)));
        assert_eq!(error.status().as_u16(), expected, "{status}");
        assert_eq!(member(&error, "job"), job().into());
        assert_eq!(member(&error, "error"), "text".into());
    }
}

#[test]
fn an_unknown_operation_lists_the_nearest() {
    let unknown = ResolveError::Unknown {
        reference: "test:ecko".to_owned(),
        nearest: vec!["test:echo".to_owned()],
    };
    let error = ApiError::from(InvokeError::Resolve(unknown.clone()));
    assert_eq!(error.status(), StatusCode::BAD_REQUEST);
    let nearest = member(&error, "nearest");
    let first = nearest.as_vector().unwrap().get(0, &NoCells).unwrap();
    assert_eq!(first, Some("test:echo".into()));
    assert_eq!(operation_in_path(unknown).status(), StatusCode::NOT_FOUND);
}

#[test]
fn a_rate_limit_says_when_to_retry() {
    let limited = RateLimited { after: Duration::from_millis(1_200), burst: 20 };
    let response = ApiError::from(limited).into_response();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    assert_eq!(response.headers()["ratelimit"], "\"caller\";r=0;t=2");
    assert_eq!(response.headers()["ratelimit-policy"], "\"caller\";q=20");
}

#[test]
fn the_hint_for_a_job_that_waits_for_a_message_says_so() {
    let conflict =
        ControlError::Conflict { job: job(), status: Status::InputRequired, action: "resume" };
    let error = ApiError::from(conflict);
    assert!(member(&error, "hint").as_str().unwrap().contains("message"));
}

#[test]
fn internal_causes_are_not_revealed() {
    let error = ApiError::from(StoreError::Damaged("row 17 of table jobs".to_owned()));
    let text = json::to_string(&error.to_value()).unwrap();
    assert!(!text.contains("row 17"), "{text}");
}

#[test]
fn a_missing_token_is_answered_with_a_challenge() {
    let error = ApiError::from(AuthError::TokenMissing);
    assert_eq!(error.code(), Code::TokenMissing);
    assert_eq!(error.into_response().headers()[header::WWW_AUTHENTICATE], "Bearer");
    let error = ApiError::from(AuthError::TokenInvalid("expired".to_owned()));
    assert_eq!((error.code(), member(&error, "detail")), (Code::TokenInvalid, "expired".into()));
}
