//! Messages, queues, holders and leases.

use catena_job::state::Event;
use catena_value::Value;

use super::Subject;
use crate::effects::{CommitError, Effect, Effects, Hold};
use crate::limits::MESSAGES_MAX;
use crate::store::{Hint, HoldState, Holder, LiveHold, Message, ProcessLease, ReadyJobs};
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
    let body = Value::from("another body of b");
    let replaced = Message { body: body.clone(), ..waiting[1].clone() };
    let replace = Effect::ReplaceMessage { job: job_id(1), message: replaced.clone() };
    store.commit(Effects::one(replace)).await.unwrap();
    let after = store.messages(job_id(1), 10).await.unwrap();
    assert_eq!((after.len(), &after[1]), (3, &replaced), "it keeps its place");
    let take = |number| Effects::one(Effect::TakeMessage { job: job_id(1), number });
    let second = waiting[1].number;
    let refused = store.commit(take(second)).await.unwrap_err();
    assert_eq!(refused, CommitError::NotNext { job: job_id(1), number: second });
    store.commit(take(waiting[0].number)).await.unwrap();
    let gone = Effect::ReplaceMessage { job: job_id(1), message: waiting[0].clone() };
    let refused = store.commit(Effects::one(gone)).await.unwrap_err();
    assert_eq!(refused, CommitError::NotNext { job: job_id(1), number: waiting[0].number });
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
    let ready = async |now, limit| store.ready("python", now, limit).await.unwrap();
    let at_50 = ready(50, 10).await;
    assert_eq!(at_50.jobs, [job_id(3), job_id(1), job_id(4)]);
    assert_eq!(at_50.next, Some(90));
    assert_eq!(ready(50, 2).await.jobs, [job_id(3), job_id(1)]);
    assert_eq!(ready(90, 10).await.jobs, [job_id(3), job_id(2), job_id(1), job_id(4)]);
    assert_eq!(store.ready("nothing", 90, 10).await.unwrap(), ReadyJobs::default());
    assert_eq!(ready(5, 10).await, ReadyJobs { jobs: Vec::new(), next: Some(10) });
    let queued = store.queue("python", 10).await.unwrap();
    let entries: Vec<_> = queued.iter().map(|entry| (entry.priority, entry.ready_at)).collect();
    assert_eq!(entries, [(5, 20), (5, 90), (1, 10), (1, 10)]);
    let stored = store.job(job_id(2)).await.unwrap().unwrap();
    assert_eq!(stored.ready_at, Some(90));
    store.commit(Effects::one(Effect::Dequeue { job: job_id(2) })).await.unwrap();
    assert_eq!(store.job(job_id(2)).await.unwrap().unwrap().ready_at, None);
    let unknown = store.commit(offer(9, "python", 1, 0)).await.unwrap_err();
    assert_eq!(unknown, CommitError::NoSuchJob { job: job_id(9) });
}

pub(super) async fn what_is_queued_before_all_others_is_found_however_many_have_left(
    store: Subject,
) {
    let numbers = async |store: &Subject, limit| store.ready("q", 1_000, limit).await.unwrap().jobs;
    for number in 1..=40 {
        open(&store, number).await;
        store.commit(offer(number, "q", 0, 100 + number as i64)).await.unwrap();
    }
    for number in 1..=30 {
        assert_eq!(numbers(&store, 1).await, [job_id(number)]);
        let leaving = Effects::one(Effect::Dequeue { job: job_id(number) });
        store.commit(leaving).await.unwrap();
    }
    assert_eq!(numbers(&store, 2).await, [job_id(31), job_id(32)]);
    // One that is ready earlier than all that have left, and one between them.
    store.commit(offer(7, "q", 0, 3)).await.unwrap();
    store.commit(offer(8, "q", 0, 110)).await.unwrap();
    assert_eq!(numbers(&store, 3).await, [job_id(7), job_id(8), job_id(31)]);
    // One of higher priority.
    store.commit(offer(9, "q", 1, 999)).await.unwrap();
    assert_eq!(numbers(&store, 2).await, [job_id(9), job_id(7)]);
    for number in 1..=40 {
        let leaving = Effects::one(Effect::Dequeue { job: job_id(number) });
        store.commit(leaving).await.unwrap();
    }
    assert!(numbers(&store, 10).await.is_empty());
    // A queue that was found empty has its next job at once, also one that waits for its time.
    store.commit(offer(10, "q", 0, 5_000)).await.unwrap();
    let waiting = ReadyJobs { jobs: vec![], next: Some(5_000) };
    assert_eq!(store.ready("q", 1_000, 10).await.unwrap(), waiting);
    store.commit(offer(11, "q", 0, 4)).await.unwrap();
    assert_eq!(numbers(&store, 10).await, [job_id(11)]);
}

fn holder(process: &str) -> Holder {
    Holder { process: process.into(), epoch: 7 }
}

fn held_by(process: &str, fence: u64) -> HoldState {
    HoldState { fence, holder: Some(holder(process)), is_parked: false }
}

fn acquire(draft: &Draft, process: &str, fence: u64) -> Effects {
    let hold = Hold::Acquire { holder: holder(process), fence };
    let (job, after) = (draft.job.id(), draft.job.head());
    Effects::one(Effect::SetHold { job, after, hold })
}

pub(super) async fn a_job_is_acquired_by_one_process(store: Subject) {
    let draft = open(&store, 1).await;
    store.commit(offer(1, "q", 1, 0)).await.unwrap();
    store.commit(acquire(&draft, "one", 1)).await.unwrap();
    let refused = store.commit(acquire(&draft, "two", 1)).await.unwrap_err();
    assert_eq!(refused, CommitError::Fenced { job: job_id(1), fence: 1, found: Some(1) });
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.hold, held_by("one", 1));
    // It left the queue with the commit that acquired it.
    assert_eq!(stored.ready_at, None);
    assert!(store.ready("q", 5, 10).await.unwrap().jobs.is_empty());
    let live = store.live(None, 10).await.unwrap();
    let live: Vec<_> = live.iter().map(|live| (live.job, live.hold)).collect();
    assert_eq!(live, [(job_id(1), LiveHold::By(holder("one").key()))]);
    let release =
        Effect::SetHold { job: job_id(1), after: draft.job.head(), hold: Hold::Release(1) };
    store.commit(Effects::one(release.clone())).await.unwrap();
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.hold, HoldState { fence: 1, ..HoldState::default() });
    assert!(store.commit(Effects::one(release)).await.is_err(), "it is held by nobody");
    store.commit(acquire(&draft, "two", 2)).await.unwrap();
}

pub(super) async fn a_job_is_handed_over_under_its_fence(store: Subject) {
    let draft = open(&store, 1).await;
    store.commit(acquire(&draft, "one", 1)).await.unwrap();
    let transfer = |fence| {
        let hold = Hold::Transfer { holder: holder("two"), fence };
        Effects::one(Effect::SetHold { job: job_id(1), after: draft.job.head(), hold })
    };
    let refused = store.commit(transfer(2)).await.unwrap_err();
    assert_eq!(refused, CommitError::Fenced { job: job_id(1), fence: 2, found: Some(1) });
    store.commit(transfer(1)).await.unwrap();
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.hold, held_by("two", 1));
    let live = store.live(None, 10).await.unwrap();
    assert_eq!(live[0].hold, LiveHold::By(holder("two").key()));
}

pub(super) async fn late_results_are_fenced_off(store: Subject) {
    let draft = open(&store, 1).await;
    store.commit(acquire(&draft, "one", 1)).await.unwrap();
    // The first process is given up; another takes over.
    store.commit(acquire(&draft, "two", 2)).await.unwrap();
    let result = |hold| {
        let mut draft = draft.clone();
        assert!(draft.change(Event::Started));
        let Effect::Append { job, after, records, .. } = draft.effect() else {
            panic!("no append")
        };
        Effects::one(Effect::Append { job, after, records, hold })
    };
    let late = store.commit(result(Hold::Under(1))).await.unwrap_err();
    assert_eq!(late, CommitError::Fenced { job: job_id(1), fence: 1, found: Some(2) });
    store.commit(result(Hold::Under(2))).await.unwrap();
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.hold.holder, Some(holder("two")));
}

pub(super) async fn a_job_that_starts_with_a_holder_loses_it_when_it_ends(store: Subject) {
    let mut draft = Draft::open(opening(job_id(1), "did:a", hello()), 5);
    assert!(draft.change(Event::Started));
    let with_hold = |draft: Draft, hold| {
        let Effect::Append { job, after, records, .. } = draft.effect() else {
            panic!("no append")
        };
        Effects::one(Effect::Append { job, after, records, hold })
    };
    let hold = Hold::Acquire { holder: holder("one"), fence: 1 };
    store.commit(with_hold(draft.clone(), hold)).await.unwrap();
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.hold, held_by("one", 1));
    let mut draft = Draft::from_job(draft.job);
    assert!(draft.change(Event::Finished { output: Value::Nil }));
    store.commit(with_hold(draft, Hold::Under(1))).await.unwrap();
    let stored = store.job(job_id(1)).await.unwrap().unwrap();
    assert_eq!(stored.hold, HoldState::default());
    assert!(store.live(None, 10).await.unwrap().is_empty());
}

pub(super) async fn a_process_is_alive_while_its_lease_lasts(store: Subject) {
    let (one, two) = (holder("one"), holder("two"));
    assert!(!store.has_peers());
    store.renew_lease(&one, 0, 100).await.unwrap();
    assert!(!store.has_peers());
    let leases = store.renew_lease(&two, 10, 110).await.unwrap();
    assert_eq!(leases.len(), 2);
    assert!(store.has_peers());
    let mut hints = store.hints(&two).unwrap();
    assert!(store.hints(&two).is_none(), "hints have one receiver");
    let queued = Hint::Queued { queue: "q".to_owned() };
    store.send_hint(&one, queued.clone());
    store.send_hint(&two, Hint::Deleted { job: job_id(1) });
    assert_eq!(hints.try_recv(), Ok(queued), "a process does not receive its own hints");
    assert!(hints.try_recv().is_err());
    let alive = |leases: Vec<ProcessLease>| leases.into_iter().map(|lease| lease.holder);
    assert_eq!(
        alive(store.processes(105).await.unwrap()).collect::<Vec<_>>(),
        std::slice::from_ref(&two)
    );
    store.end_lease(&two).await.unwrap();
    assert!(store.processes(105).await.unwrap().is_empty());
}

pub(super) async fn a_worker_is_alive_while_its_lease_lasts_and_is_no_peer(store: Subject) {
    let process = holder("one");
    let worker = Holder::worker("did:key:z6Mk", "w1");
    assert!(worker.is_worker() && worker.is_worker_of("did:key:z6Mk"));
    assert!(!process.is_worker() && !worker.is_worker_of("did:key:z6"));
    store.renew_lease(&process, 0, 100).await.unwrap();
    store.renew_worker_lease(&worker, 50).await.unwrap();
    assert!(!store.has_peers());
    assert_eq!(store.processes(49).await.unwrap().len(), 2);
    store.renew_worker_lease(&worker, 80).await.unwrap();
    assert_eq!(store.processes(79).await.unwrap().len(), 2);
    assert_eq!(store.processes(80).await.unwrap().len(), 1);
}

pub(super) async fn queues_with_entries_are_listed_once(store: Subject) {
    assert!(store.queues().await.unwrap().is_empty());
    for number in 1..=3 {
        open(&store, number).await;
        let queue = if number == 3 { "second" } else { "first" };
        let offer = Effect::Enqueue {
            job: job_id(number),
            queue: queue.to_owned(),
            priority: 0,
            ready_at: 5,
        };
        store.commit(Effects::one(offer)).await.unwrap();
    }
    let mut names = store.queues().await.unwrap();
    names.sort();
    assert_eq!(names, ["first", "second"]);
    store.commit(Effects::one(Effect::Dequeue { job: job_id(3) })).await.unwrap();
    assert_eq!(store.queues().await.unwrap(), ["first"]);
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

pub(super) async fn a_root_has_one_budget_for_all_who_use_it(store: Subject) {
    let (budget, is_new) = store.root_budget(job_id(1), 2);
    assert!(is_new);
    budget.set_counted();
    assert!(budget.try_start((job_id(1), 0)));
    let (same, is_new) = store.root_budget(job_id(1), 2);
    assert!(!is_new);
    assert!(same.try_start((job_id(2), 0)));
    assert!(!budget.try_start((job_id(1), 1)), "both are taken");
    assert_eq!(same.release((job_id(2), 0)), Some(job_id(1)), "who waits is next");
    assert!(store.root_budget(job_id(2), 2).1, "another root has another one");
}
