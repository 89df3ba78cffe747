//! Operations on roots: a job and what it changes are one commit.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::time::Duration;

use catena_engine::error::{InvokeError, ResolveError};
use catena_engine::requests::{Invoke, ListJobs, Recording};
use catena_engine::{Caller, Engine, Failure, Role, RootId, Roots};
use catena_job::Status;
use catena_store::ListOrder;
use catena_value::path::Path;
use catena_value::{Map, Value, Vector, json};
use futures_util::future::join_all;
use support::cluster::Kills;
use support::harness::verify_tree;
use support::*;

/// Returns the value at a path of a caller's workspace as JSON.
async fn workspace(engine: &Engine, caller: &Caller, path: &str) -> String {
    let roots = engine.roots(caller, vec![RootId::workspace()]).await.unwrap();
    let root = roots.get(&RootId::workspace()).unwrap().cloned();
    let root = root.unwrap_or_else(|| Map::new().into());
    let found = Path::parse(path).unwrap().get(&root, roots.cells()).unwrap().unwrap_or_default();
    json::to_string(&found.fully_loaded(roots.cells()).unwrap()).unwrap()
}

/// Returns the numbers in the list of Alice's workspace.
async fn list(engine: &Engine) -> Vec<i64> {
    let list = value(&workspace(engine, &alice(), "list").await);
    let numbers = list.as_vector().cloned().unwrap_or_else(Vector::new);
    numbers.iter(&catena_value::NoCells).map(|item| item.unwrap().as_i64().unwrap()).collect()
}

fn append(number: usize) -> Invoke {
    request("r:append", &format!(r#"{{"value":{number}}}"#))
}

/// Stores a definition in Alice's operations.
async fn put(engine: &Engine, path: &str, definition: &str) {
    let input = format!(r#"{{"path":"{path}","definition":{definition}}}"#);
    let view = invoke(engine, "r:put", &input).await;
    assert_eq!(view.status(), Status::Complete);
}

#[test]
fn a_change_of_roots_is_one_commit_with_the_three_records_of_its_job() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let view = engine.invoke(append(7)).await.unwrap().view;
        assert_eq!(view.status(), Status::Complete, "it is answered when it is durable");
        assert_eq!(member(&view, "output"), "0");
        let id = view.job.id();
        assert_eq!(record_kinds(&engine, id).await, ["PENDING", "STARTED", "COMPLETE"]);
        verify_chain(&engine, id).await;
        assert_eq!(list(&engine).await, [7]);
        assert_eq!(workspace(&engine, &bob(), "list").await, "null", "roots belong to one user");
        let count = engine.run(request("r:count", "{}")).await.unwrap();
        assert_eq!((count.output, count.job), (1.into(), None), "a read creates no job");
    });
}

#[test]
fn two_hundred_writers_of_one_list_all_succeed_in_few_commits() {
    let venue = TestVenue::with_kills(Kills::Any);
    venue.run_process(async |engine| {
        let before = venue.disk.operations();
        engine.invoke(append(0)).await.unwrap();
        let one = venue.disk.operations() - before;
        let before = venue.disk.operations();
        let jobs = join_all((0..200).map(|number| engine.invoke(append(number)))).await;
        let taken = venue.disk.operations() - before;
        let indexes: Vec<String> =
            jobs.iter().map(|job| member(&job.as_ref().unwrap().view, "output")).collect();
        let mut sorted: Vec<i64> = indexes.iter().map(|index| index.parse().unwrap()).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, (1..201).collect::<Vec<i64>>(), "each append saw another length");
        let mut numbers = list(&engine).await;
        numbers.sort_unstable();
        assert_eq!(numbers[1..], (0..200).collect::<Vec<i64>>());
        assert!(taken <= 60 * one, "200 writes cost {taken} disk operations, one costs {one}");
    });
}

#[test]
fn writers_in_two_processes_do_not_lose_changes() {
    TestVenue::with_kills(Kills::Any).run_two_processes(async |first, second| {
        let writes = (0..100).map(|number| {
            let engine = if number % 2 == 0 { &first } else { &second };
            engine.invoke(append(number))
        });
        for job in join_all(writes).await {
            assert_eq!(job.unwrap().view.status(), Status::Complete);
        }
        assert_eq!(list(&first).await.len(), 100);
    });
}

#[test]
fn a_crash_leaves_as_many_changes_as_completed_jobs() {
    for operations in 1..30 {
        let mut venue = TestVenue::with_kills(Kills::Any);
        venue.run_process(async |engine| {
            engine.invoke(append(0)).await.unwrap();
            venue.disk.crash_after(operations);
            let engine: &Engine = &engine;
            let writes = (1..40).map(|number| async move {
                for _ in 0..number {
                    tokio::task::yield_now().await;
                }
                drop(engine.invoke(append(number)).await);
            });
            let writes = join_all(writes);
            let _ = tokio::time::timeout(Duration::from_secs(1), writes).await;
        });
        let crash = catena_store::testing::Crash::PowerLoss;
        venue.disk = std::sync::Arc::new(venue.disk.crash(crash, operations));
        venue.run_process(async |engine| {
            let query = ListJobs::all(ListOrder::Oldest, 0, 1_000);
            let jobs = engine.jobs(&alice(), &query).await.unwrap().jobs;
            let complete = jobs.iter().filter(|job| job.status == Status::Complete).count();
            assert_eq!(list(&engine).await.len(), complete, "crash after {operations}");
        });
    }
}

#[test]
fn an_operation_that_fails_changes_nothing() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let view = invoke(&engine, "r:fail", r#"{"value":1}"#).await;
        assert_eq!(view.status(), Status::Failed);
        assert!(list(&engine).await.is_empty());
        let lie = invoke(&engine, "r:lie", r#"{"value":1}"#).await;
        assert_eq!(lie.status(), Status::Failed, "a read-only operation cannot change anything");
        assert!(list(&engine).await.is_empty());
        // A change that fails does not take others in its commit with it.
        let fails = request("r:fail", r#"{"value":1}"#);
        let (first, second, third) =
            tokio::join!(engine.invoke(append(1)), engine.invoke(fails), engine.invoke(append(2)));
        let statuses = [first, second, third].map(|job| job.unwrap().view.status());
        assert_eq!(statuses, [Status::Complete, Status::Failed, Status::Complete]);
        assert_eq!(list(&engine).await.len(), 2);
    });
}

#[test]
fn a_change_that_is_refused_does_not_take_others_of_its_commit_with_it() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let mut known = append(1);
        let id = engine.invoke(append(0)).await.unwrap().view.job.id();
        known.id = Some(id);
        let (refused, first, second) =
            tokio::join!(engine.invoke(known), engine.invoke(append(2)), engine.invoke(append(3)));
        assert!(refused.is_err(), "there is a job with this ID");
        assert_eq!(first.unwrap().view.status(), Status::Complete);
        assert_eq!(second.unwrap().view.status(), Status::Complete);
        assert_eq!(list(&engine).await, [0, 2, 3]);
    });
}

#[test]
fn a_private_job_cannot_change_roots_but_read_them() {
    TestVenue::with_kills(Kills::Any).run_engines(1, async |engine| {
        let mut private = append(1);
        private.recording = Recording::Private;
        let refused = engine.invoke(private).await.unwrap_err();
        assert!(matches!(refused, InvokeError::Invalid(_)), "{refused}");
        let mut read = request("r:count", "{}");
        read.recording = Recording::Private;
        read.wait = Some(Duration::from_secs(1));
        let view = engine.invoke(read).await.unwrap().view;
        assert_eq!(member(&view, "output"), "0");
    });
}

#[test]
fn steps_and_calls_change_roots_once() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let text = r#"{"name":"twice","operation":{"adapter":"orchestrator",
            "steps":[{"op":"r:append","input":{"value":["const",1]}},
                     {"op":"r:append","input":{"value":["const",2]}},
                     {"op":"r:count","input":{"a":[0],"b":[1]}}],
            "result":["object",{"count":[2]}]}}"#;
        let text = text.replace(r#"["object",{"count":[2]}]"#, r#"{"count":[2]}"#);
        let (op, _) = engine.register(&alice(), &text, None).await.unwrap();
        let id = invoke(&engine, &op.to_string(), "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Complete, "{:?}", view.job.field("error"));
        assert_eq!(member(&view, "output"), r#"{"count":2}"#);
        verify_tree(&engine, id).await;
        let input = r#"{"calls":[{"op":"r:append","input":{"value":3}},{"op":"r:count"}]}"#;
        let id = invoke(&engine, "t:caller", input).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "output"), "[2,3]");
        verify_tree(&engine, id).await;
    });
}

#[test]
fn a_change_that_waits_in_the_queue_is_made_once_even_after_a_crash() {
    let mut venue = TestVenue::with_kills(Kills::Any);
    venue.limits.running_max = 1;
    let (id, step) = venue.run_engines(1, async |engine| {
        invoke(&engine, "t:wait", r#"{"ms":60000}"#).await;
        let text = r#"{"name":"later","operation":{"adapter":"r:append",
            "retry":{"attempts":2,"backoffMs":1000}}}"#;
        let (op, _) = engine.register(&alice(), text, None).await.unwrap();
        let queued = invoke(&engine, &op.to_string(), r#"{"value":5}"#).await;
        assert_eq!(queued.status(), Status::Pending, "all slots are occupied");
        let text = r#"{"name":"one","operation":{"adapter":"orchestrator",
            "steps":[{"op":"r:append","input":{"value":["const",6]}}],"result":{"index":[0]}}}"#;
        let (op, _) = engine.register(&alice(), text, None).await.unwrap();
        let step = invoke(&engine, &op.to_string(), "{}").await;
        assert!(list(&engine).await.is_empty());
        (queued.job.id(), step.job.id())
    });
    venue.limits.running_max = 100;
    venue.run_process(async |engine| {
        assert_eq!(wait_for_end(&engine, id).await.status(), Status::Complete);
        assert_eq!(wait_for_end(&engine, step).await.status(), Status::Complete);
        let mut numbers = list(&engine).await;
        numbers.sort_unstable();
        assert_eq!(numbers, [5, 6]);
        verify_chain(&engine, id).await;
        verify_tree(&engine, step).await;
    });
}

#[test]
fn a_failed_change_is_retried_as_declared() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let text = r#"{"name":"again","operation":{"adapter":"r:fail",
            "retry":{"attempts":2,"backoffMs":100}}}"#;
        let (op, _) = engine.register(&alice(), text, None).await.unwrap();
        let id = invoke(&engine, &op.to_string(), r#"{"value":5}"#).await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(view.status(), Status::Failed);
        let kinds = record_kinds(&engine, id).await;
        assert_eq!(kinds, ["PENDING", "STARTED", "(attempt)", "FAILED"]);
        assert!(list(&engine).await.is_empty());
    });
}

#[test]
fn a_definition_at_a_path_is_an_asset_once_it_was_invoked() {
    let venue = TestVenue::with_kills(Kills::Any);
    let definition = r#"{"name":"mine","operation":{"adapter":"t:wait","pure":true}}"#;
    let id = venue.run_process(async |engine| {
        put(&engine, "tools/wait", definition).await;
        let asset = value(definition).id();
        assert!(engine.asset(&alice(), &asset.to_string()).await.is_err());
        let view = invoke(&engine, "o/tools/wait", r#"{"ms":60000}"#).await;
        assert_eq!(view.status(), Status::Started);
        let stored = engine.asset(&alice(), &asset.to_string()).await.unwrap();
        assert_eq!(value(&stored.text), value(definition));
        let foreign = Invoke::new(bob(), "o/tools/wait", Value::Nil);
        let refused = engine.invoke(foreign).await.unwrap_err();
        assert!(matches!(refused, InvokeError::Resolve(ResolveError::Unknown { .. })), "{refused}");
        // The path may change; the job keeps the definition that it started with.
        put(&engine, "tools/wait", r#"{"name":"none"}"#).await;
        view.job.id()
    });
    venue.run_process(async |engine| {
        let view = engine.wait(&alice(), id, Duration::from_secs(100)).await.unwrap();
        assert_eq!(view.status(), Status::Complete, "it was recovered after a restart");
        verify_chain(&engine, id).await;
    });
}

#[test]
fn steps_may_be_definitions_at_paths() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        put(&engine, "echo", r#"{"name":"mine","operation":{"adapter":"t:echo"}}"#).await;
        let text = r#"{"name":"one","operation":{"adapter":"orchestrator",
            "steps":[{"op":"o/echo","input":{"value":["const",6]}}],"result":{"out":[0]}}}"#;
        put(&engine, "flow", text).await;
        let id = invoke(&engine, "o/flow", "{}").await.job.id();
        let view = wait_for_end(&engine, id).await;
        assert_eq!(member(&view, "output"), r#"{"out":{"value":6}}"#);
        for definition in [text, r#"{"name":"mine","operation":{"adapter":"t:echo"}}"#] {
            let asset = value(definition).id().to_string();
            assert!(engine.asset(&alice(), &asset).await.is_ok(), "{definition}");
        }
        verify_tree(&engine, id).await;
        // A definition that leads back to itself is refused, and nothing waits for itself.
        let text = r#"{"name":"loop","operation":{"adapter":"orchestrator",
            "steps":[{"op":"o/loop","input":{}}],"result":{"out":[0]}}}"#;
        let (asset, _) = engine.register(&alice(), text, None).await.unwrap();
        put(&engine, "loop", &format!("\"{asset}\"")).await;
        let view = invoke(&engine, &asset.to_string(), "{}").await;
        assert_eq!(view.status(), Status::Rejected);
    });
}

#[test]
fn the_operations_of_a_user_are_changed_in_one_commit_with_their_assets() {
    TestVenue::with_kills(Kills::Any).run_process(async |engine| {
        let metadata = value(r#"{"name":"mine","operation":{"adapter":"t:echo"}}"#);
        let id = metadata.id();
        let change = move |roots: &mut Roots| {
            let root = RootId::operations();
            let current = roots.get(&root)?.cloned().unwrap_or_else(|| Map::new().into());
            let path = Path::parse("mine/1").unwrap();
            if path.get(&current, roots.cells()).unwrap().is_some() {
                return Err(Failure::new("taken", "there is a version 1"));
            }
            let changed =
                path.set(&current, &Value::from(metadata.id().to_string()), roots.cells()).unwrap();
            roots.set(&root, Some(changed))?;
            roots.store_asset(metadata.clone());
            Ok(metadata.id())
        };
        let roots = || vec![RootId::operations()];
        let stored = engine.change_roots(&alice(), roots(), change.clone()).await.unwrap();
        assert_eq!(stored, id);
        assert!(engine.asset(&alice(), &id.to_string()).await.is_ok());
        let view = invoke(&engine, "o/mine/1", "5").await;
        assert_eq!(member(&view, "output"), "5");
        let refused = engine.change_roots(&alice(), roots(), change).await.unwrap_err();
        assert_eq!(refused.to_string(), "there is a version 1");
    });
}

#[test]
fn the_anonymous_identity_owns_nothing_beyond_loopback() {
    let mut venue = TestVenue::with_kills(Kills::Any);
    venue.limits.anonymous_owns = false;
    venue.run_process(async |engine| {
        let anonymous = Caller { role: Role::Anonymous, ..Caller::known("did:key:venue:public") };
        let invoke = |operation: &str| {
            let input = value(r#"{"value":1}"#);
            engine.invoke(Invoke::new(anonymous.clone(), operation, input))
        };
        let refused = invoke("r:append").await.unwrap_err();
        assert!(matches!(refused, InvokeError::Forbidden(_)), "{refused}");
        assert_eq!(invoke("r:count").await.unwrap().view.status(), Status::Complete);
        let orchestration = r#"{"name":"one","operation":{"adapter":"orchestrator",
            "steps":[{"op":"r:append","input":{"value":["const",6]}}],"result":{"index":[0]}}}"#;
        let (op, _) = engine.register(&anonymous, orchestration, None).await.unwrap();
        let id = invoke(&op.to_string()).await.unwrap().view.job.id();
        let view = engine.wait(&anonymous, id, Duration::from_secs(10)).await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        assert_eq!(workspace(&engine, &anonymous, "list").await, "null");
    });
}
