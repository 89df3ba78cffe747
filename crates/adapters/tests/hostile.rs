//! Steps on venues that answer rubbish, too much, somewhere else, something else, or nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::request::{Invoke, JobView};
use catena_job::Status;
use catena_server::Venue;
use catena_value::Value;
use serde_json::json;
use support::fake::{Asked, Fake, JOB, Reply, job};
use support::*;
use tempfile::TempDir;

/// A venue that sends its only step to a fake one.
struct Scene {
    here: Venue,
    fake: Fake,
    _folder: TempDir,
}

impl Scene {
    async fn set(
        answer: impl Fn(&Asked, &[Asked]) -> Option<Reply> + Send + Sync + 'static,
    ) -> Scene {
        let (folder, fake) = (tempfile::tempdir().unwrap(), Fake::start(answer).await);
        let here = venue(&folder, std::slice::from_ref(&fake.url)).await;
        Scene { here, fake, _folder: folder }
    }

    fn step(&self) -> String {
        format!(r#"[{{"op":"x:y","venue":"{}","input":["const",{{}}]}}]"#, self.fake.url)
    }

    /// The job of one step over there, after its end.
    async fn run(&self) -> JobView {
        let view = invoke(self.here.engine(), &self.step(), "[0]").await;
        assert!(view.status().is_terminal(), "it is still {}", view.status());
        view
    }

    /// The same, with a delegation.
    async fn run_with_delegation(&self) -> JobView {
        let engine = self.here.engine();
        let operation = define(engine, &self.step(), "[0]").await;
        let mut asked = request(&operation, "{}");
        asked.caller.delegations = vec![delegation(engine.did())];
        engine.invoke(asked).await.unwrap().view
    }

    /// The job fails and says this.
    async fn fails(self, with: &str) {
        let view = self.run().await;
        assert_eq!(view.status(), Status::Failed);
        let error = text(&view, "error");
        assert!(error.contains(with), "{error:?} says nothing of {with:?}");
        self.stop().await;
    }

    async fn stop(self) {
        self.here.stop().await.unwrap();
    }
}

/// Answers one kind of request; the rest as usual.
fn only(
    what: fn(&Asked) -> bool,
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> impl Fn(&Asked, &[Asked]) -> Option<Reply> + Send + Sync + 'static {
    move |asked, _| what(asked).then(&reply)
}

fn is_status(asked: &Asked) -> bool {
    asked.what == "GET /api/v1/status"
}

fn id_of(record: &serde_json::Value) -> String {
    let value: Value = catena_value::json::read(record.to_string().as_bytes()).unwrap();
    catena_job::RecordId::new(value.id()).to_string()
}

fn is_history(asked: &Asked) -> bool {
    asked.what.contains("/history")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_venue_without_histories_will_do() {
    let scene = Scene::set(|_, _| None).await;
    let view = scene.run().await;
    assert_eq!((view.status(), text(&view, "output")), (Status::Complete, r#"{"n":1}"#.into()));
    assert_eq!(steps(&view)[0]["output"], json!({"n": 1}));
    assert!(scene.fake.asked().iter().all(|asked| asked.header("authorization").is_none()));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_fails_the_step_and_says_whose_it_is() {
    let rubbish = || Reply::Json(200, json!("rubbish"));
    for (what, with) in [
        (is_status as fn(&Asked) -> bool, "it does not say its DID"),
        (Asked::begins, "is not a job"),
        (Asked::looks, "is not a job"),
    ] {
        Scene::set(only(what, rubbish)).await.fails(with).await;
    }
    let not_json = || Reply::Raw("HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\n<x/>".to_owned());
    Scene::set(only(Asked::looks, not_json)).await.fails("is not a job").await;
    let deep = || {
        Reply::Raw(format!("HTTP/1.1 200 X\r\nContent-Length: 99999\r\n\r\n{}", "[".repeat(99_999)))
    };
    Scene::set(only(Asked::looks, deep)).await.fails("is not a job").await;
    let long = || Reply::Json(200, json!({"did": format!("did:{}", "x".repeat(2_000))}));
    Scene::set(only(is_status, long)).await.fails("it does not say its DID").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_an_end_is_cut_off() {
    for what in [is_status as fn(&Asked) -> bool, Asked::begins, Asked::looks] {
        Scene::set(only(what, || Reply::Endless)).await.fails("more than 10000000 bytes").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_leads_nowhere() {
    let other = Fake::start(|_, _| None).await;
    for what in [is_status as fn(&Asked) -> bool, Asked::begins, Asked::looks] {
        let there =
            format!("HTTP/1.1 307 X\r\nLocation: {}/\r\nContent-Length: 0\r\n\r\n", other.url);
        let scene = Scene::set(only(what, move || Reply::Raw(there.clone()))).await;
        scene.fails("answered 307").await;
    }
    assert!(other.asked().is_empty(), "nobody went there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_that_talks_of_another_job_is_not_believed() {
    let other = || {
        let mut job = job("COMPLETE");
        job["id"] = JOB.replace('1', "2").into();
        Reply::Json(200, job)
    };
    Scene::set(only(Asked::looks, other)).await.fails("it answered with job").await;
    let unusable = || Reply::Json(201, json!({"id": "a-job", "status": "STARTED"}));
    Scene::set(only(Asked::begins, unusable)).await.fails("no usable ID").await;
}

/// A record is committed to only when it is one: of that job, of that venue, with that ID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_that_lies_about_a_first_record_is_not_believed() {
    let record = json!({"id": JOB, "venue": "did:key:fake", "status": "PENDING", "prev": null});
    let history = move |record: serde_json::Value, id: String| {
        only(is_history, move || {
            Reply::Json(200, json!({"records": [{"id": id, "record": record}], "total": 1}))
        })
    };
    let truth = Scene::set(history(record.clone(), id_of(&record))).await;
    let view = truth.run().await;
    assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
    assert_eq!(view.job.steps()[&0].start.record.to_string(), id_of(&record));
    truth.stop().await;
    let with = "the first record of its job is not what it says it is";
    Scene::set(history(record.clone(), id_of(&json!(1)))).await.fails(with).await;
    for (member, other) in [("id", JOB.replace('1', "2")), ("venue", "did:key:other".to_owned())] {
        let mut lie = record.clone();
        lie[member] = other.into();
        let id = id_of(&lie);
        Scene::set(history(lie, id)).await.fails(with).await;
    }
}

/// What is used is what stands in the record that the parent commits to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_venue_that_lies_about_its_last_record_is_not_believed() {
    let first = json!({"id": JOB, "venue": "did:key:fake", "status": "PENDING", "prev": null});
    let last = json!({"status": "COMPLETE", "output": {"n": 1}});
    let scene = |claimed: serde_json::Value, last: serde_json::Value| {
        let first = first.clone();
        Scene::set(move |asked, _| {
            let entry = |record: &serde_json::Value| json!({"id": id_of(record), "record": record});
            let page = |records: serde_json::Value| {
                Reply::Json(200, json!({"records": records, "total": 2}))
            };
            if asked.looks() {
                let mut job = job("COMPLETE");
                job["head"] = claimed.clone();
                return Some(Reply::Json(200, job));
            }
            match is_history(asked).then(|| asked.what.contains("from=1&")) {
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
    let with = "did not end with the record that it names";
    scene(id_of(&json!(7)).into(), last.clone()).await.fails(with).await;
    for other in [
        json!({"status": "COMPLETE", "output": {"n": 2}}),
        json!({"status": "FAILED", "output": {"n": 1}}),
    ] {
        scene(id_of(&other).into(), other).await.fails(with).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_venue_is_left_alone_as_long_as_it_says() {
    let busy = "HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}";
    let scene = Scene::set(move |asked, before| {
        let is_first = !before.iter().any(|earlier| earlier.what == asked.what);
        (is_first && (asked.begins() || asked.looks())).then(|| Reply::Raw(busy.to_owned()))
    });
    let scene = scene.await;
    assert_eq!(scene.run().await.status(), Status::Complete);
    for what in [Asked::begins as fn(&Asked) -> bool, Asked::looks] {
        let times: Vec<_> =
            scene.fake.asked().into_iter().filter(what).map(|asked| asked.at).collect();
        assert!(times.len() == 2 && times[1] - times[0] >= Duration::from_secs(1), "{times:?}");
    }
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beginning_whose_answer_is_lost_is_repeated_under_the_same_key() {
    let scene = Scene::set(|asked, before| {
        let tries = before.iter().filter(|asked| asked.begins()).count();
        match tries {
            0 => asked.begins().then_some(Reply::Nothing),
            // As a venue says that is still at the first.
            1 => asked
                .begins()
                .then(|| Reply::Json(409, json!({"error": "…", "retry": "same_request"}))),
            _ => None,
        }
    });
    let scene = scene.await;
    assert_eq!(scene.run().await.status(), Status::Complete);
    let begun = scene.fake.begun();
    assert_eq!(begun[0].header("catena-depth"), Some("1"), "one orchestration is around it");
    let same =
        |asked: &Asked| (asked.header("idempotency-key").unwrap().to_owned(), asked.body.clone());
    assert_eq!(begun.len(), 3);
    assert!(begun.iter().all(|asked| same(asked) == same(&begun[0])));
    scene.stop().await;
}

/// "The venue's own rights are never used", not even when nobody's do not suffice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_begun_as_nobody_is_asked_about_as_nobody() {
    for status in [401, 403, 404] {
        let scene = Scene::set(only(
            |asked| asked.looks() || asked.what.starts_with("PUT"),
            move || Reply::Json(status, json!({"error": "who are you?"})),
        ));
        let scene = scene.await;
        let view = scene.run().await;
        let error = text(&view, "error");
        assert!(error.contains(&format!("answered {status}")), "{error}");
        let asked = scene.fake.asked();
        assert!(asked.iter().all(|asked| asked.header("authorization").is_none()), "{asked:?}");
        scene.stop().await;
    }
}

/// A token says for which venue it is. One that calls itself by another's name gets none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_is_shown_to_a_venue_under_the_name_of_another() {
    let scene =
        Scene::set(only(is_status, || Reply::Json(200, json!({"did": "did:web:bank.example"}))));
    let scene = scene.await;
    let view = scene.run_with_delegation().await;
    let error = text(&view, "error");
    assert!(error.contains("it calls itself did:web:bank.example"), "{error}");
    let asked = scene.fake.asked();
    assert!(asked.iter().all(|asked| asked.header("authorization").is_none()), "{asked:?}");
    // Whoever shows nothing may ask it all the same.
    assert_eq!(scene.run().await.status(), Status::Complete);
    scene.stop().await;
    // And one that has a name of its own is shown a token and the delegations.
    let scene = Scene::set(|_, _| None).await;
    assert_eq!(scene.run_with_delegation().await.status(), Status::Complete);
    let asked = scene.fake.begun().remove(0);
    assert!(asked.header("authorization").is_some() && asked.body.contains("ucans"), "{asked:?}");
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_is_answered_with_rubbish_holds_nothing_up() {
    let scene = Scene::set(|asked, _| {
        if asked.looks() {
            return Some(Reply::Json(200, job("STARTED")));
        }
        asked.what.starts_with("PUT").then(|| Reply::Json(200, json!("rubbish")))
    });
    let scene = scene.await;
    let engine = scene.here.engine();
    let operation = define(engine, &scene.step(), "[0]").await;
    let asked = Invoke { wait: None, ..request(&operation, "{}") };
    let id = engine.invoke(asked).await.unwrap().view.job.id();
    until(engine, id, |view| !view.job.steps().is_empty()).await;
    engine.cancel(&caller(), id, None).await.unwrap();
    let told = |view: &JobView| view.changes > 0 && view.status() == Status::Cancelled;
    let view = until(engine, id, told).await;
    assert_eq!(steps(&view)[0]["status"], "STARTED", "as it was last seen");
    assert!(steps(&view)[0]["asOf"].is_i64());
    scene.stop().await;
}
