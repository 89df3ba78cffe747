//! Chains: appends by head, and reading them back.

use std::sync::Arc;

use catena_job::state::Event;
use catena_job::{Job, Status};
use catena_value::{NoCells, Value, Vector};

use super::Subject;
use crate::effects::{CommitError, Effect, Effects};
use crate::store::{RootKey, RootSpace};
use crate::testing::jobs::{Draft, echo, hello, job_id, opening};

pub(super) async fn a_job_is_read_back_as_it_was_committed(store: Subject) {
    let draft = echo(job_id(1), "did:a");
    let (job, records) = (draft.job.clone(), draft.records.clone());
    let receipt = store.commit(Effects::one(draft.effect())).await.unwrap();
    assert_eq!(receipt.orders.len(), 1);
    let stored = store.job(job.id()).await.unwrap().unwrap();
    assert_eq!(stored.job.to_value(), job.to_value());
    assert_eq!(stored.job.head(), job.head());
    assert_eq!(stored.order, receipt.orders[0]);
    let page = store.records(job.id(), 0, 10).await.unwrap().unwrap();
    assert_eq!(page.total, 3);
    let ids = |records: &[catena_job::Record]| records.iter().map(|r| r.id()).collect::<Vec<_>>();
    assert_eq!(ids(&page.records), ids(&records));
    assert_eq!(page.records[2].to_value(), records[2].to_value());
    assert!(store.job(job_id(2)).await.unwrap().is_none());
    assert!(store.records(job_id(2), 0, 10).await.unwrap().is_none());
}

pub(super) async fn a_chain_grows_only_from_its_head(store: Subject) {
    let draft = Draft::open(opening(job_id(1), "did:a", hello()), 5);
    let job = draft.job.clone();
    store.commit(Effects::one(draft.clone().effect())).await.unwrap();
    let again = store.commit(Effects::one(draft.effect())).await.unwrap_err();
    let found = Some(job.head());
    assert_eq!(again, CommitError::HeadMoved { job: job.id(), expected: None, found });

    let (mut first, mut second) = (Draft::from_job(job.clone()), Draft::from_job(job.clone()));
    assert!(first.change(Event::Started));
    assert!(second.change(Event::Cancelled { error: "no".into() }));
    let head = first.job.head();
    store.commit(Effects::one(first.effect())).await.unwrap();
    let late = store.commit(Effects::one(second.effect())).await.unwrap_err();
    let (expected, found) = (Some(job.head()), Some(head));
    assert_eq!(late, CommitError::HeadMoved { job: job.id(), expected, found });
    let stored = store.job(job.id()).await.unwrap().unwrap();
    assert_eq!((stored.job.status(), stored.job.count()), (Status::Started, 2));
}

pub(super) async fn effects_are_durable_together_or_not_at_all(store: Subject) {
    let good = echo(job_id(1), "did:a").effect();
    let bad = Effect::SetProgress { job: job_id(99), progress: Value::Nil };
    let refused = store.commit(vec![good, bad].into()).await.unwrap_err();
    assert_eq!(refused, CommitError::NoSuchJob { job: job_id(99) });
    assert!(store.job(job_id(1)).await.unwrap().is_none());
    let both = vec![echo(job_id(1), "did:a").effect(), echo(job_id(2), "did:a").effect()];
    assert_eq!(store.commit(both.into()).await.unwrap().orders.len(), 2);
    assert!(store.job(job_id(2)).await.unwrap().is_some());
}

pub(super) async fn a_long_chain_is_read_by_pages(store: Subject) {
    let mut draft = Draft::open(opening(job_id(1), "did:a", hello()), 5);
    draft.change(Event::Started);
    let mut all = draft.records.clone();
    let mut job = Arc::new(draft.job.clone());
    store.commit(Effects::one(draft.effect())).await.unwrap();
    for turn in 0..120 {
        let mut draft = Draft::from_job(job);
        let ask = catena_job::state::Ask {
            message: Some(format!("turn {turn}")),
            output: Some(Value::from("x".repeat(200))),
        };
        assert!(draft.change(Event::AskedForInput(ask)) && draft.change(Event::Answered));
        all.extend(draft.records.clone());
        job = Arc::new(draft.job.clone());
        store.commit(Effects::one(draft.effect())).await.unwrap();
        // Each commit goes on from what the store gives back.
        let stored = store.job(job.id()).await.unwrap().unwrap();
        assert_eq!(stored.job.head(), job.head());
        job = stored.job;
    }
    for (from, limit) in [(0, 1_000), (0, 1), (1, 7), (37, 50), (200, 100), (241, 5), (242, 5)] {
        let page = store.records(job.id(), from, limit).await.unwrap().unwrap();
        assert_eq!(page.total, 242);
        let expected: Vec<_> = all.iter().skip(from as usize).take(limit).collect();
        assert_eq!(page.records.len(), expected.len(), "{from} {limit}");
        for (record, expected) in page.records.iter().zip(expected) {
            assert_eq!(record.id(), expected.id());
            let value = record.to_value().fully_loaded(&page.cells).unwrap();
            assert_eq!(value.id(), expected.id().value_id().to_owned());
        }
    }
    let stored = store.job(job.id()).await.unwrap().unwrap();
    let folded = Job::fold(&all).unwrap().unwrap();
    assert_eq!(stored.job.to_value().id(), folded.to_value().id());
    stored.job.to_value().fully_loaded(&stored.cells).unwrap();
}

pub(super) async fn large_members_come_back_whole(store: Subject) {
    let text = Value::from("some text ".repeat(30_000));
    let items: Vector = (0..5_000).map(|i| Value::from(format!("item {i}"))).collect();
    for (number, input) in [(1, text), (2, items.into()), (3, Value::from("y".repeat(1_000)))] {
        let id = job_id(number);
        let mut draft = Draft::open(opening(id, "did:a", input.clone()), 5);
        draft.change(Event::Started);
        draft.change(Event::Finished { output: input.clone() });
        store.commit(Effects::one(draft.effect())).await.unwrap();
        let stored = store.job(id).await.unwrap().unwrap();
        let member = stored.job.field("input").unwrap().fully_loaded(&stored.cells).unwrap();
        assert_eq!(member.id(), input.id());
        let whole = stored.job.to_value().fully_loaded(&stored.cells).unwrap();
        let json = catena_value::json::to_string(&whole).unwrap();
        assert!(json.len() > 1_500, "{}", json.len());
    }
}

pub(super) async fn a_record_can_refer_to_what_its_job_holds(store: Subject) {
    // Long enough for a cell of its own, short enough to stay in the job's rows.
    let input = Value::from("input ".repeat(200));
    let mut draft = Draft::open(opening(job_id(1), "did:a", input.clone()), 5);
    draft.change(Event::Started);
    store.commit(Effects::one(draft.effect())).await.unwrap();
    for _ in 0..12 {
        let mut draft = Draft::from_job(store.job(job_id(1)).await.unwrap().unwrap().job);
        assert!(draft.change(Event::Paused) && draft.change(Event::Resumed));
        store.commit(Effects::one(draft.effect())).await.unwrap();
    }
    // The output is the input as the store gives it back: only a reference.
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    let output = stored.job.field("input").unwrap().clone();
    let mut draft = Draft::from_job(stored.job);
    assert!(draft.change(Event::Finished { output }));
    store.commit(Effects::one(draft.effect())).await.unwrap();
    let total = store.records(job_id(1), 0, 1).await.unwrap().unwrap().total;
    let last = store.records(job_id(1), total - 1, 1).await.unwrap().unwrap();
    let whole = last.records[0].to_value().fully_loaded(&last.cells).unwrap();
    assert_eq!(whole.as_map().unwrap().field("output"), Some(&input));
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    let output = stored.job.field("output").unwrap().fully_loaded(&stored.cells).unwrap();
    assert_eq!(output, input);
}

pub(super) async fn a_reference_to_nothing_is_refused(store: Subject) {
    let large = Value::from("z".repeat(10_000));
    let Value::String(_) = &large else { panic!("not a string") };
    let whole: Value = Vector::from_items(vec![large]).into();
    // Only the root is in memory; the rest was never stored.
    let dangling = catena_value::decode(&catena_value::encode(&whole)).unwrap();
    let draft = Draft::open(opening(job_id(1), "did:a", dangling), 5);
    let refused = store.commit(Effects::one(draft.effect())).await.unwrap_err();
    assert!(matches!(refused, CommitError::MissingCell { .. }), "{refused}");
    assert!(store.job(job_id(1)).await.unwrap().is_none());
    assert!(whole.fully_loaded(&NoCells).is_ok());
}

pub(super) async fn a_deleted_job_leaves_nothing_behind(store: Subject) {
    let draft = echo(job_id(1), "did:a");
    let id = draft.job.id();
    store.commit(Effects::one(draft.effect())).await.unwrap();
    // Readers that have read it before do not see it any more either.
    for _ in 0..2 {
        assert_eq!(store.job(id).await.unwrap().unwrap().changes, 0);
    }
    let late = Effect::SetProgress { job: id, progress: Value::from(1) };
    store.commit(Effects::one(late)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(
            store.job(id).await.unwrap().unwrap().changes,
            1,
            "the off-chain state is fresh"
        );
    }
    store.commit(Effects::one(Effect::Delete { job: id })).await.unwrap();
    assert!(store.job(id).await.unwrap().is_none());
    assert!(store.records(id, 0, 10).await.unwrap().is_none());
    let again = store.commit(Effects::one(Effect::Delete { job: id })).await.unwrap_err();
    assert_eq!(again, CommitError::NoSuchJob { job: id });
}

pub(super) async fn progress_changes_nothing_but_itself(store: Subject) {
    let draft = Draft::open(opening(job_id(1), "did:a", hello()), 5);
    let job = draft.job.clone();
    store.commit(Effects::one(draft.effect())).await.unwrap();
    assert_eq!(store.job(job.id()).await.unwrap().unwrap().changes, 0);
    for n in 1..=3 {
        let progress = Value::from(n);
        let effect = Effect::SetProgress { job: job.id(), progress: progress.clone() };
        store.commit(Effects::one(effect)).await.unwrap();
        let stored = store.job(job.id()).await.unwrap().unwrap();
        assert_eq!((stored.changes, stored.progress), (n as u64, Some(progress)));
        assert_eq!(stored.job.head(), job.head());
    }
}

pub(super) async fn a_touch_is_counted_and_needs_its_job(store: Subject) {
    let draft = echo(job_id(1), "did:a");
    let id = draft.job.id();
    store.commit(Effects::one(draft.effect())).await.unwrap();
    let head = store.job(id).await.unwrap().unwrap().job.head();
    store.commit(Effects::one(Effect::Touch { job: id })).await.unwrap();
    let stored = store.job(id).await.unwrap().unwrap();
    assert_eq!((stored.changes, stored.job.head()), (1, head));
    store.commit(Effects::one(Effect::Delete { job: id })).await.unwrap();
    // Off-chain changes of a deleted job are refused.
    let key = RootKey { space: RootSpace::Venue, owner: "x".into(), name: "y".into() };
    let root = Effect::SetRoot { key: key.clone(), expected: None, value: Some(hello()) };
    let late = store.commit(vec![Effect::Touch { job: id }, root].into()).await.unwrap_err();
    assert_eq!(late, CommitError::NoSuchJob { job: id });
    assert!(store.root(&key).await.unwrap().is_none());
}

pub(super) async fn commits_of_one_job_take_effect_in_order(store: Subject) {
    // Handed in one after the other, without waiting for any.
    let mut draft = Draft::open(opening(job_id(1), "did:a", hello()), 5);
    let mut answers = Vec::new();
    for turn in 0..40 {
        let event = match turn {
            0 => Event::Started,
            n if n % 2 == 1 => Event::Paused,
            _ => Event::Resumed,
        };
        let next = draft.clone();
        answers.push(store.commit(Effects::one(next.effect())));
        draft = Draft::from_job(draft.job);
        assert!(draft.change(event));
    }
    for answer in answers {
        answer.await.unwrap();
    }
    assert_eq!(store.job(job_id(1)).await.unwrap().unwrap().job.count(), 40);
}

pub(super) async fn what_the_fold_reads_is_there_however_long_it_is(store: Subject) {
    let text =
        |letter: char, length: usize| std::iter::repeat_n(letter, length).collect::<String>();
    let owner = format!("did:web:{}", text('o', 300));
    let mut long = opening(job_id(1), &owner, Value::from(text('i', 9_000)));
    long.op = format!("o/{}", text('p', 900)).into();
    let tags: Vec<Value> = (0..9).map(|n| Value::from(text('t', 50 + n))).collect();
    long.extra = vec![
        ("tags", catena_value::Vector::from_items(tags).into()),
        ("timeoutMs", 5.into()),
        ("redacted", text('r', 200).as_str().into()),
    ];
    let mut draft = Draft::open(long, 5);
    assert!(draft.change(Event::Started));
    let message = Some(text('m', 5_000));
    assert!(draft.change(Event::AskedForInput(catena_job::state::Ask { message, output: None })));
    store.commit(Effects::one(draft.clone().effect())).await.unwrap();
    let read = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(read.job.head(), draft.job.head());
    assert_eq!(read.job.field("message").unwrap().to_text().unwrap().len(), 5_000);
    // Long enough that the row holds the fold instead of the chain.
    let mut draft = Draft::from_job(read.job);
    for _ in 0..10 {
        assert!(draft.change(Event::Answered));
        let message = Some(text('n', 400));
        assert!(
            draft.change(Event::AskedForInput(catena_job::state::Ask { message, output: None }))
        );
    }
    assert!(draft.change(Event::Answered));
    assert!(draft.change(Event::Erred { error: text('e', 9_000) }));
    store.commit(Effects::one(draft.clone().effect())).await.unwrap();
    let read = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(read.job.head(), draft.job.head());
    assert_eq!(read.job.field("error").unwrap().to_text().unwrap().len(), 9_000);
    assert_eq!(store.count(Some(&owner), &crate::store::Filter::All).await.unwrap(), 1);
    let page = store.records(job_id(1), 0, 100).await.unwrap().unwrap();
    let folded = catena_job::Job::fold(&page.records).unwrap().unwrap();
    assert_eq!((folded.head(), page.total), (draft.job.head(), 25));
}

pub(super) async fn the_sub_jobs_of_a_root_are_counted_up_to_a_limit(store: Subject) {
    let root = job_id(1);
    store.commit(Effects::one(echo(root, "did:a").effect())).await.unwrap();
    let count = |count| Effect::CountSubJobs { root, count, max: 10 };
    store.commit(Effects::one(count(6))).await.unwrap();
    let too_many = vec![echo(job_id(2), "did:a").effect(), count(5)];
    let refused = store.commit(too_many.into()).await.unwrap_err();
    assert_eq!(refused, CommitError::TreeFull { root, count: 6, max: 10 });
    assert!(store.job(job_id(2)).await.unwrap().is_none(), "nothing happened");
    store.commit(Effects::one(count(4))).await.unwrap();
    store.commit(Effects::one(count(1))).await.unwrap_err();
    // The count is deleted with the root.
    store.commit(Effects::one(Effect::Delete { job: root })).await.unwrap();
    store.commit(Effects::one(count(10))).await.unwrap();
}

pub(super) async fn many_large_jobs_fit_one_commit(store: Subject) {
    // Each is below what a commit carries, and all of them are far above it.
    let text =
        |from: u32| -> String { (from..from + 40_000).map(|n| format!("{n:>10}")).collect() };
    let mut effects = Vec::new();
    for number in 1..=20_u64 {
        let input = Value::from(text(number as u32 * 40_000));
        let draft = Draft::open(opening(job_id(number), "did:a", input), 5);
        effects.push(draft.effect());
    }
    store.commit(effects.into()).await.unwrap();
    let stored = store.job(job_id(20)).await.unwrap().unwrap();
    let input = stored.job.field("input").unwrap().fully_loaded(&stored.cells).unwrap();
    assert_eq!(input, Value::from(text(800_000)));
}
