//! Steps on venues that send malformed, oversized, redirected, wrong or no responses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::requests::{Invoke, JobView};
use catena_job::Status;
use catena_server::Venue;
use catena_value::Value;
use serde_json::json;
use support::fake::{FakeVenue, JOB, ReceivedRequest, Reply, job};
use support::*;
use tempfile::TempDir;

/// A venue that runs a step on a fake venue.
struct Scene {
    venue: Venue,
    fake: FakeVenue,
    _folder: TempDir,
}

impl Scene {
    async fn new(
        answer: impl Fn(&ReceivedRequest, &[ReceivedRequest]) -> Option<Reply> + Send + Sync + 'static,
    ) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let fake = FakeVenue::start(answer).await;
        let venue = venue(&folder, std::slice::from_ref(&fake.url)).await;
        Scene { venue, fake, _folder: folder }
    }

    fn step(&self) -> String {
        format!(r#"[{{"op":"x:y","venue":"{}","input":["const",{{}}]}}]"#, self.fake.url)
    }

    /// Runs an orchestration of one remote step and returns its job after its end.
    async fn run(&self) -> JobView {
        let view = invoke(self.venue.engine(), &self.step(), "[0]").await;
        assert!(view.status().is_terminal(), "it is still {}", view.status());
        view
    }

    /// The same, with a delegation.
    async fn run_with_delegation(&self) -> JobView {
        let engine = self.venue.engine();
        let operation = define(engine, &self.step(), "[0]").await;
        let mut invocation = request(&operation, "{}");
        invocation.caller.delegations = vec![delegation(engine.did())];
        engine.invoke(invocation).await.unwrap().view
    }

    /// Runs it and checks that the job fails with an error that contains this text.
    async fn assert_fails(self, with: &str) {
        let view = self.run().await;
        assert_eq!(view.status(), Status::Failed);
        let error = text(&view, "error");
        assert!(error.contains(with), "{error:?} does not contain {with:?}");
        self.stop().await;
    }

    async fn stop(self) {
        self.venue.stop().await.unwrap();
    }
}

/// Replies to one kind of request; the others get the default reply.
fn only(
    matches: fn(&ReceivedRequest) -> bool,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> impl Fn(&ReceivedRequest, &[ReceivedRequest]) -> Option<Reply> + Send + Sync + 'static {
    move |request, _| matches(request).then(&reply)
}

fn is_status(request: &ReceivedRequest) -> bool {
    request.target == "GET /api/v1/status"
}

fn id_of(record: &serde_json::Value) -> String {
    let value: Value = catena_value::json::read(record.to_string().as_bytes()).unwrap();
    catena_job::RecordId::new(value.id()).to_string()
}

fn is_history(request: &ReceivedRequest) -> bool {
    request.target.contains("/history")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_without_histories_is_sufficient() {
    let scene = Scene::new(|_, _| None).await;
    let view = scene.run().await;
    assert_eq!((view.status(), text(&view, "output")), (Status::Complete, r#"{"n":1}"#.into()));
    assert_eq!(steps(&view)[0]["output"], json!({"n": 1}));
    assert!(scene.fake.received().iter().all(|request| request.header("authorization").is_none()));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_response_fails_the_step() {
    let malformed = || Reply::Json(200, json!("malformed"));
    for (what, with) in [
        (is_status as fn(&ReceivedRequest) -> bool, "it does not publish a valid DID"),
        (ReceivedRequest::is_invocation, "is not a job"),
        (ReceivedRequest::is_job_read, "is not a job"),
    ] {
        Scene::new(only(what, malformed)).await.assert_fails(with).await;
    }
    let not_json = || Reply::Raw("HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\n<x/>".to_owned());
    Scene::new(only(ReceivedRequest::is_job_read, not_json))
        .await
        .assert_fails("is not a job")
        .await;
    let deep = || {
        Reply::Raw(format!("HTTP/1.1 200 X\r\nContent-Length: 99999\r\n\r\n{}", "[".repeat(99_999)))
    };
    Scene::new(only(ReceivedRequest::is_job_read, deep)).await.assert_fails("is not a job").await;
    let long = || Reply::Json(200, json!({"did": format!("did:{}", "x".repeat(2_000))}));
    Scene::new(only(is_status, long)).await.assert_fails("it does not publish a valid DID").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_response_is_cut_off() {
    for what in [
        is_status as fn(&ReceivedRequest) -> bool,
        ReceivedRequest::is_invocation,
        ReceivedRequest::is_job_read,
    ] {
        Scene::new(only(what, || Reply::Endless))
            .await
            .assert_fails("more than 10000000 bytes")
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed() {
    let other = FakeVenue::start(|_, _| None).await;
    for what in [
        is_status as fn(&ReceivedRequest) -> bool,
        ReceivedRequest::is_invocation,
        ReceivedRequest::is_job_read,
    ] {
        let redirect =
            format!("HTTP/1.1 307 X\r\nLocation: {}/\r\nContent-Length: 0\r\n\r\n", other.url);
        let scene = Scene::new(only(what, move || Reply::Raw(redirect.clone()))).await;
        scene.assert_fails("answered 307").await;
    }
    assert!(other.received().is_empty(), "it was contacted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_with_another_job_is_refused() {
    let other = || {
        let mut job = job("COMPLETE");
        job["id"] = JOB.replace('1', "2").into();
        Reply::Json(200, job)
    };
    Scene::new(only(ReceivedRequest::is_job_read, other))
        .await
        .assert_fails("it answered with job")
        .await;
    let unusable = || Reply::Json(201, json!({"id": "a-job", "status": "STARTED"}));
    Scene::new(only(ReceivedRequest::is_invocation, unusable))
        .await
        .assert_fails("no usable ID")
        .await;
}

/// The parent commits to a record only if it belongs to that job and venue and has that ID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_first_record_is_refused() {
    let record = json!({"id": JOB, "venue": "did:key:fake", "status": "PENDING", "prev": null});
    let history = move |record: serde_json::Value, id: String| {
        only(is_history, move || {
            Reply::Json(200, json!({"records": [{"id": id, "record": record}], "total": 1}))
        })
    };
    let truth = Scene::new(history(record.clone(), id_of(&record))).await;
    let view = truth.run().await;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    assert_eq!(view.job.steps()[&0].start.record.to_string(), id_of(&record));
    truth.stop().await;
    let with = "the first record of its job is not authentic";
    Scene::new(history(record.clone(), id_of(&json!(1)))).await.assert_fails(with).await;
    for (member, other) in [("id", JOB.replace('1', "2")), ("venue", "did:key:other".to_owned())] {
        let mut lie = record.clone();
        lie[member] = other.into();
        let id = id_of(&lie);
        Scene::new(history(lie, id)).await.assert_fails(with).await;
    }
}

/// The output that is used is the one in the record that the parent commits to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_last_record_is_refused() {
    let first = json!({"id": JOB, "venue": "did:key:fake", "status": "PENDING", "prev": null});
    let last = json!({"status": "COMPLETE", "output": {"n": 1}});
    let scene = |claimed: serde_json::Value, last: serde_json::Value| {
        let first = first.clone();
        Scene::new(move |request, _| {
            let entry = |record: &serde_json::Value| json!({"id": id_of(record), "record": record});
            let page = |records: serde_json::Value| {
                Reply::Json(200, json!({"records": records, "total": 2}))
            };
            if request.is_job_read() {
                let mut job = job("COMPLETE");
                job["head"] = claimed.clone();
                return Some(Reply::Json(200, job));
            }
            match is_history(request).then(|| request.target.contains("from=1&")) {
                Some(true) => Some(page(json!([entry(&last)]))),
                Some(false) => Some(page(json!([entry(&first)]))),
                None => None,
            }
        })
    };
    let truth = scene(id_of(&last).into(), last.clone()).await;
    let view = truth.run().await;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    assert_eq!(view.job.steps()[&0].end.as_ref().unwrap().record.to_string(), id_of(&last));
    truth.stop().await;
    let with = "did not end with the record that it names as head";
    scene(id_of(&json!(7)).into(), last.clone()).await.assert_fails(with).await;
    for other in [
        json!({"status": "COMPLETE", "output": {"n": 2}}),
        json!({"status": "FAILED", "output": {"n": 1}}),
    ] {
        scene(id_of(&other).into(), other).await.assert_fails(with).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_of_a_busy_venue_is_respected() {
    let busy = "HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}";
    let scene = Scene::new(move |request, before| {
        let is_first = !before.iter().any(|earlier| earlier.target == request.target);
        (is_first && (request.is_invocation() || request.is_job_read()))
            .then(|| Reply::Raw(busy.to_owned()))
    });
    let scene = scene.await;
    assert_eq!(scene.run().await.status(), Status::Complete);
    for what in [
        ReceivedRequest::is_invocation as fn(&ReceivedRequest) -> bool,
        ReceivedRequest::is_job_read,
    ] {
        let times: Vec<_> =
            scene.fake.received().into_iter().filter(what).map(|request| request.at).collect();
        assert!(times.len() == 2 && times[1] - times[0] >= Duration::from_secs(1), "{times:?}");
    }
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invocation_without_a_response_is_repeated_with_the_same_key() {
    let scene = Scene::new(|request, before| {
        let tries = before.iter().filter(|request| request.is_invocation()).count();
        match tries {
            0 => request.is_invocation().then_some(Reply::Nothing),
            // The answer of a venue that still handles the first request.
            1 => request
                .is_invocation()
                .then(|| Reply::Json(409, json!({"error": "…", "retry": "same_request"}))),
            _ => None,
        }
    });
    let scene = scene.await;
    assert_eq!(scene.run().await.status(), Status::Complete);
    let invocations = scene.fake.invocations();
    assert_eq!(invocations[0].header("catena-depth"), Some("1"), "one orchestration is around it");
    let same = |request: &ReceivedRequest| {
        (request.header("idempotency-key").unwrap().to_owned(), request.body.clone())
    };
    assert_eq!(invocations.len(), 3);
    assert!(invocations.iter().all(|request| same(request) == same(&invocations[0])));
    scene.stop().await;
}

/// "The venue's own rights are never used", not even if anonymous rights do not suffice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_about_an_anonymous_job_are_anonymous() {
    for status in [401, 403, 404] {
        let scene = Scene::new(only(
            |request| request.is_job_read() || request.target.starts_with("PUT"),
            move || Reply::Json(status, json!({"error": "who are you?"})),
        ));
        let scene = scene.await;
        let view = scene.run().await;
        let error = text(&view, "error");
        assert!(error.contains(&format!("answered {status}")), "{error}");
        let received = scene.fake.received();
        assert!(
            received.iter().all(|request| request.header("authorization").is_none()),
            "{received:?}"
        );
        scene.stop().await;
    }
}

/// A token is for one venue. A venue with the DID of another host gets none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_with_the_did_of_another_host_gets_no_token() {
    let scene = Scene::new(only(is_status, || {
        Reply::Json(200, json!({"did": "did:web:bank.example", "delegation": "scoped"}))
    }));
    let scene = scene.await;
    let view = scene.run_with_delegation().await;
    let error = text(&view, "error");
    assert!(
        error.contains("claims to be did:web:bank.example, which belongs to another host"),
        "{error}"
    );
    let received = scene.fake.received();
    assert!(
        received.iter().all(|request| request.header("authorization").is_none()),
        "{received:?}"
    );
    // An anonymous request is sent to it all the same.
    assert_eq!(scene.run().await.status(), Status::Complete);
    scene.stop().await;
    // A venue with its own DID gets a token and the delegations.
    let scene = Scene::new(|_, _| None).await;
    assert_eq!(scene.run_with_delegation().await.status(), Status::Complete);
    let invocation = scene.fake.invocations().remove(0);
    assert!(
        invocation.header("authorization").is_some() && invocation.body.contains("ucans"),
        "{invocation:?}"
    );
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_answer_to_a_cancel_does_not_block_the_job() {
    let scene = Scene::new(|request, _| {
        if request.is_job_read() {
            return Some(Reply::Json(200, job("STARTED")));
        }
        request.target.starts_with("PUT").then(|| Reply::Json(200, json!("malformed")))
    });
    let scene = scene.await;
    let engine = scene.venue.engine();
    let operation = define(engine, &scene.step(), "[0]").await;
    let invocation = Invoke { wait: None, ..request(&operation, "{}") };
    let id = engine.invoke(invocation).await.unwrap().view.job.id();
    until(engine, id, |view| !view.job.steps().is_empty()).await;
    engine.cancel(&caller(), id, None).await.unwrap();
    let is_cancelled = |view: &JobView| view.changes > 0 && view.status() == Status::Cancelled;
    let view = until(engine, id, is_cancelled).await;
    assert_eq!(steps(&view)[0]["status"], "STARTED", "its last known status");
    assert!(steps(&view)[0]["asOf"].is_i64());
    scene.stop().await;
}

/// Steps with delegations are sent to a venue that does not keep users apart only with consent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_that_does_not_scope_gets_delegations_only_with_consent() {
    let unscoped = || only(is_status, || Reply::Json(200, json!({"did": "did:key:fake"})));
    let scene = Scene::new(unscoped()).await;
    let view = scene.run_with_delegation().await;
    assert_eq!(view.status(), Status::Rejected, "before any step runs");
    let error = text(&view, "error");
    assert!(error.contains(",shared") && error.contains("steps/0/venue"), "{error}");
    assert!(scene.fake.invocations().is_empty());
    let received = scene.fake.received();
    assert!(received.iter().all(|request| request.header("authorization").is_none()));
    // Without delegations nothing is shared.
    assert_eq!(scene.run().await.status(), Status::Complete);
    scene.stop().await;

    let fake = FakeVenue::start(unscoped()).await;
    let folder = tempfile::tempdir().unwrap();
    let venue = venue(&folder, &[format!("{},shared", fake.url)]).await;
    let scene = Scene { venue, fake, _folder: folder };
    assert_eq!(scene.run_with_delegation().await.status(), Status::Complete);
    assert!(scene.fake.invocations()[0].header("authorization").is_some());
    scene.stop().await;
}

/// A venue is known by the DID that it had when it was first used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_whose_identity_changes_gets_no_token() {
    let answered = std::sync::atomic::AtomicUsize::new(0);
    let scene = Scene::new(move |request, _| {
        let is_first = || answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 2;
        is_status(request).then(|| {
            let did = if is_first() { "did:key:fake" } else { "did:key:another" };
            Reply::Json(200, json!({"did": did, "delegation": "scoped"}))
        })
    });
    let scene = scene.await;
    assert_eq!(scene.run_with_delegation().await.status(), Status::Complete);
    let view = scene.run_with_delegation().await;
    let error = text(&view, "error");
    assert!(error.contains("was did:key:fake and now claims to be did:key:another"), "{error}");
    assert_eq!(scene.fake.invocations().len(), 1);
    scene.stop().await;
}
