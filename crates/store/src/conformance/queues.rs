//! Messages, queues and leases.

use catena_job::state::Event;
use catena_value::Value;

use super::Subject;
use crate::effects::{CommitError, Effect, Effects};
use crate::limits::MESSAGES_MAX;
use crate::store::{Message, Timer, TimerKind};
use crate::testing::jobs::{Draft, hello, job_id, opening};

async fn open(store: &Subject, number: u64) -> Draft {
    let draft = Draft::open(opening(job_id(number), "did:a", hello()), 5);
    store.commit(Effects::one(draft.clone().effect())).await.unwrap();
    Draft::from_job(draft.job)
}

fn send(number: u64, id: &str) -> Effects {
    let message = Message { number: 0, id: id.into(), body: Value::from(format!("body of {id}")) };
    Effects::one(Effect::SendMessage { job: job_id(number), message })
}

pub(super) async fn messages_wait_in_order_and_only_once(store: Subject) {
    open(&store, 1).await;
    for (depth, id) in [(1, "a"), (2, "b"), (3, "c")] {
        let receipt = store.commit(send(1, id)).await.unwrap();
        assert_eq!(receipt.queue_depths, [depth]);
    }
    let again = store.commit(send(1, "b")).await.unwrap_err();
    let message = "b".to_owned();
    assert_eq!(again, CommitError::DuplicateMessage { job: job_id(1), message, queue_depth: 3 });
    let waiting = store.messages(job_id(1), 10).await.unwrap();
    let ids: Vec<_> = waiting.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(waiting[1].body, Value::from("body of b"));
    let take = |number| Effects::one(Effect::TakeMessage { job: job_id(1), number });
    let second = waiting[1].number;
    let refused = store.commit(take(second)).await.unwrap_err();
    assert_eq!(refused, CommitError::NotNext { job: job_id(1), number: second });
    store.commit(take(waiting[0].number)).await.unwrap();
    assert_eq!(store.messages(job_id(1), 10).await.unwrap().len(), 2);
    assert_eq!(store.job(job_id(1)).await.unwrap().unwrap().queue_depth, 2);
    // A message that was taken is still known.
    assert!(store.commit(send(1, "a")).await.is_err());
    let refused = store.commit(send(9, "a")).await.unwrap_err();
    assert_eq!(refused, CommitError::NoSuchJob { job: job_id(9) });
}

pub(super) async fn a_full_message_queue_refuses_more(store: Subject) {
    open(&store, 1).await;
    let batch = |from: u32, to: u32| {
        let effects = (from..to).flat_map(|n| send(1, &format!("m{n}")).0);
        Effects(effects.collect())
    };
    store.commit(batch(0, MESSAGES_MAX)).await.unwrap();
    let refused = store.commit(batch(MESSAGES_MAX, MESSAGES_MAX + 1)).await.unwrap_err();
    assert_eq!(refused, CommitError::MessagesFull { job: job_id(1), waiting: MESSAGES_MAX });
}

pub(super) async fn messages_end_with_their_job(store: Subject) {
    let mut draft = open(&store, 1).await;
    store.commit(send(1, "a")).await.unwrap();
    draft.change(Event::Cancelled { error: "no".into() });
    store.commit(Effects::one(draft.effect())).await.unwrap();
    assert!(store.messages(job_id(1), 10).await.unwrap().is_empty());
    assert_eq!(store.job(job_id(1)).await.unwrap().unwrap().queue_depth, 0);
    // One that was on its way when the job ended comes too late, and so does an offer.
    let ended = CommitError::Ended { job: job_id(1) };
    assert_eq!(store.commit(send(1, "b")).await.unwrap_err(), ended);
    assert_eq!(store.commit(offer(1, "q", 1, 0)).await.unwrap_err(), ended);
    assert!(store.messages(job_id(1), 10).await.unwrap().is_empty());
}

fn offer(number: u64, queue: &str, priority: u8, ready_at: i64) -> Effects {
    let (job, queue) = (job_id(number), queue.to_owned());
    Effects::one(Effect::Enqueue { job, queue, priority, ready_at })
}

pub(super) async fn a_queue_gives_the_most_urgent_first(store: Subject) {
    for number in 1..=5 {
        open(&store, number).await;
    }
    for (number, priority, ready_at) in [(1, 1, 10), (2, 5, 90), (3, 5, 20), (4, 1, 10)] {
        store.commit(offer(number, "python", priority, ready_at)).await.unwrap();
    }
    store.commit(offer(5, "latex", 9, 0)).await.unwrap();
    let mut claimed = Vec::new();
    while let Some(claim) = store.claim("python", "w", 50, 1_000).await.unwrap() {
        claimed.push(claim.job);
    }
    assert_eq!(claimed, [job_id(3), job_id(1), job_id(4)]);
    let later = store.claim("python", "w", 90, 1_000).await.unwrap().unwrap();
    assert_eq!(later.job, job_id(2));
    assert!(store.claim("nothing", "w", 90, 1_000).await.unwrap().is_none());
}

pub(super) async fn a_job_is_claimed_by_one_worker(store: Subject) {
    open(&store, 1).await;
    store.commit(offer(1, "q", 1, 0)).await.unwrap();
    let claim = store.claim("q", "one", 5, 100).await.unwrap().unwrap();
    assert_eq!((claim.fence, claim.worker.as_str(), claim.until), (1, "one", 100));
    assert!(store.claim("q", "two", 5, 100).await.unwrap().is_none());
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.lease, Some(claim));
    // After it was dequeued, no worker can claim it.
    store.commit(Effects::one(Effect::Dequeue { job: job_id(1) })).await.unwrap();
    assert_eq!(store.job(job_id(1)).await.unwrap().unwrap().lease, None);
    assert!(store.claim("q", "two", 5, 100).await.unwrap().is_none());
    let unknown = store.commit(offer(9, "q", 1, 0)).await.unwrap_err();
    assert_eq!(unknown, CommitError::NoSuchJob { job: job_id(9) });
}

pub(super) async fn late_results_are_fenced_off(store: Subject) {
    let draft = open(&store, 1).await;
    store.commit(offer(1, "q", 1, 0)).await.unwrap();
    let first = store.claim("q", "one", 5, 100).await.unwrap().unwrap();
    // The first worker is given up; another takes over.
    store.commit(offer(1, "q", 1, 0)).await.unwrap();
    let second = store.claim("q", "two", 200, 300).await.unwrap().unwrap();
    assert!(second.fence > first.fence);
    let result = |fence| {
        let mut draft = draft.clone();
        assert!(draft.change(Event::Started));
        let Effect::Append { job, after, records, .. } = draft.effect() else {
            panic!("no append")
        };
        Effects::one(Effect::Append { job, after, records, fence: Some(fence) })
    };
    let late = store.commit(result(first.fence)).await.unwrap_err();
    let found = Some(second.fence);
    assert_eq!(late, CommitError::Fenced { job: job_id(1), fence: first.fence, found });
    store.commit(result(second.fence)).await.unwrap();
}

pub(super) async fn a_lease_ends_unless_it_is_renewed(store: Subject) {
    let mut draft = open(&store, 1).await;
    store.commit(offer(1, "q", 1, 0)).await.unwrap();
    let claim = store.claim("q", "one", 5, 100).await.unwrap().unwrap();
    let end = |at| Timer { at, kind: TimerKind::LeaseEnd, job: job_id(1) };
    assert_eq!(store.due(1_000, 10).await.unwrap(), [end(100)]);
    let renew = |fence| Effects::one(Effect::RenewLease { job: job_id(1), fence, until: 400 });
    store.commit(renew(claim.fence)).await.unwrap();
    assert_eq!(store.due(1_000, 10).await.unwrap(), [end(400)]);
    assert!(store.commit(renew(claim.fence + 1)).await.is_err());
    draft.change(Event::Cancelled { error: "no".into() });
    store.commit(Effects::one(draft.effect())).await.unwrap();
    assert!(store.due(1_000, 10).await.unwrap().is_empty());
    assert!(store.commit(renew(claim.fence)).await.is_err());
}

pub(super) async fn a_commit_may_depend_on_how_many_messages_wait(store: Subject) {
    open(&store, 1).await;
    let expect = |count| Effects::one(Effect::CheckMessageCount { job: job_id(1), count });
    store.commit(expect(0)).await.unwrap();
    store.commit(send(1, "a")).await.unwrap();
    let refused = store.commit(expect(0)).await.unwrap_err();
    assert_eq!(refused, CommitError::QueueMoved { job: job_id(1), waiting: 1 });
    store.commit(expect(1)).await.unwrap();
}
