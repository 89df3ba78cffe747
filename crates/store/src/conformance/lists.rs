//! Lists and indexes.

use catena_job::record::Parent;
use catena_job::state::Event;
use catena_job::{JobId, Status};
use catena_value::{Value, Vector};

use super::Subject;
use crate::effects::{Effect, Effects};
use crate::store::{ChangeKind, ChangeQuery, Filter, ListOrder, ListQuery, Timer, TimerKind};
use crate::testing::jobs::{Draft, echo, hello, job_id, opening};

fn query(owner: &str, filter: Filter) -> ListQuery {
    ListQuery {
        owner: Some(owner.into()),
        filter,
        order: ListOrder::Oldest,
        after: None,
        limit: 100,
    }
}

async fn ids(store: &Subject, query: &ListQuery) -> Vec<JobId> {
    store.list(query).await.unwrap().jobs.iter().map(|job| job.id).collect()
}

pub(super) async fn lists_are_in_the_order_of_commits(store: Subject) {
    // Not in the order of their IDs.
    let numbers = [5, 1, 9, 3, 7];
    for number in numbers {
        store.commit(Effects::one(echo(job_id(number), "did:a").effect())).await.unwrap();
        store.commit(Effects::one(echo(job_id(number + 100), "did:b").effect())).await.unwrap();
    }
    let expected: Vec<_> = numbers.map(job_id).to_vec();
    assert_eq!(ids(&store, &query("did:a", Filter::All)).await, expected);
    let newest = ListQuery { order: ListOrder::Newest, ..query("did:a", Filter::All) };
    let reversed: Vec<_> = expected.iter().rev().copied().collect();
    assert_eq!(ids(&store, &newest).await, reversed);
    assert!(ids(&store, &query("did:c", Filter::All)).await.is_empty());
    // By pages, in both directions.
    for (order, expected) in [(ListOrder::Oldest, expected), (ListOrder::Newest, reversed)] {
        let mut found = Vec::new();
        let mut page = ListQuery { order, limit: 2, ..query("did:a", Filter::All) };
        loop {
            let answer = store.list(&page).await.unwrap();
            assert!(answer.jobs.len() <= 2);
            found.extend(answer.jobs.iter().map(|job| job.id));
            match answer.next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, expected);
    }
}

pub(super) async fn lists_show_only_what_is_asked_for(store: Subject) {
    let mut tagged = opening(job_id(1), "did:a", hello());
    tagged.extra = vec![("tags", Vector::from_items(vec!["red".into(), "blue".into()]).into())];
    let mut draft = Draft::open(tagged, 5);
    store.commit(Effects::one(draft.clone().effect())).await.unwrap();
    let mut other = opening(job_id(2), "did:a", hello());
    other.op = "test:never".into();
    store.commit(Effects::one(Draft::open(other, 5).effect())).await.unwrap();
    store.commit(Effects::one(echo(job_id(3), "did:a").effect())).await.unwrap();
    let status = |status| query("did:a", Filter::Status(status));
    assert_eq!(ids(&store, &status(Status::Pending)).await, [job_id(1), job_id(2)]);
    assert_eq!(ids(&store, &status(Status::Complete)).await, [job_id(3)]);
    let op = |op: &str| query("did:a", Filter::Op(op.into()));
    assert_eq!(ids(&store, &op("test:never")).await, [job_id(2)]);
    assert_eq!(ids(&store, &op("test:echo")).await, [job_id(1), job_id(3)]);
    for tag in ["red", "blue"] {
        assert_eq!(ids(&store, &query("did:a", Filter::Tag(tag.into()))).await, [job_id(1)]);
    }
    assert!(ids(&store, &query("did:b", Filter::Tag("red".into()))).await.is_empty());
    draft = Draft::from_job(draft.job);
    draft.change(Event::Started);
    store.commit(Effects::one(draft.effect())).await.unwrap();
    assert_eq!(ids(&store, &status(Status::Pending)).await, [job_id(2)]);
    assert_eq!(ids(&store, &status(Status::Started)).await, [job_id(1)]);
    let listed = store.list(&status(Status::Started)).await.unwrap().jobs.remove(0);
    assert_eq!((listed.op.as_str(), listed.status), ("test:echo", Status::Started));
}

async fn live(store: &Subject, after: Option<JobId>, limit: usize) -> Vec<JobId> {
    let found = store.live(after, limit).await.unwrap();
    found.into_iter().map(|live| live.job).collect()
}

pub(super) async fn live_jobs_are_those_that_have_not_ended(store: Subject) {
    let mut drafts = Vec::new();
    for number in 1..=4 {
        let draft = Draft::open(opening(job_id(number), "did:a", hello()), 5);
        store.commit(Effects::one(draft.clone().effect())).await.unwrap();
        drafts.push(draft);
    }
    store.commit(Effects::one(echo(job_id(5), "did:a").effect())).await.unwrap();
    let mut ended = Draft::from_job(drafts[1].job.clone());
    ended.change(Event::Cancelled { error: "no".into() });
    store.commit(Effects::one(ended.effect())).await.unwrap();
    assert_eq!(live(&store, None, 10).await, [job_id(1), job_id(3), job_id(4)]);
    assert_eq!(live(&store, Some(job_id(1)), 1).await, [job_id(3)]);
}

pub(super) async fn live_jobs_are_counted_by_owner(store: Subject) {
    let count = |owner: &str| store.live_count(crate::owner_key(owner));
    let begin = async |number: u64, owner: &str| {
        let draft = Draft::open(opening(job_id(number), owner, hello()), 5);
        store.commit(Effects::one(draft.clone().effect())).await.unwrap();
        draft
    };
    let first = begin(1, "did:a").await;
    store.count_live().await.unwrap();
    let second = begin(2, "did:a").await;
    begin(3, "did:b").await;
    let mut step = opening(job_id(4), "did:a", hello());
    step.parent = Some(Parent::of_step(job_id(1), 0));
    store.commit(Effects::one(Draft::open(step, 5).effect())).await.unwrap();
    store.commit(Effects::one(echo(job_id(5), "did:a").effect())).await.unwrap();
    assert_eq!((count("did:a"), count("did:b"), count("did:c")), (2, 1, 0));
    // A refused commit changes nothing.
    let mut ended = Draft::from_job(first.job);
    ended.change(Event::Cancelled { error: "no".into() });
    let refused = Effects(vec![ended.clone().effect(), Effect::Touch { job: job_id(9) }]);
    assert!(store.commit(refused).await.is_err());
    assert_eq!(count("did:a"), 2);
    store.commit(Effects::one(ended.effect())).await.unwrap();
    store.commit(Effects::one(Effect::Delete { job: second.job.id() })).await.unwrap();
    assert_eq!((count("did:a"), store.live_total()), (0, 1));
    // A second count finds the same.
    store.count_live().await.unwrap();
    assert_eq!((count("did:a"), count("did:b"), store.live_total()), (0, 1, 1));
}

pub(super) async fn deadlines_come_due_in_order(store: Subject) {
    for (number, deadline) in [(1, 300), (2, 100), (3, 200)] {
        let mut opening = opening(job_id(number), "did:a", hello());
        opening.extra = vec![("deadline", Value::from(deadline))];
        store.commit(Effects::one(Draft::open(opening, 5).effect())).await.unwrap();
    }
    let due = |at, number| Timer { at, kind: TimerKind::Deadline, job: job_id(number) };
    assert_eq!(store.due(200, None, 10).await.unwrap(), [due(100, 2), due(200, 3)]);
    let after_first = store.due(200, Some(due(100, 2)), 10).await.unwrap();
    assert_eq!(after_first, [due(200, 3)]);
    assert!(store.due(99, None, 10).await.unwrap().is_empty());
    // A job that ended has no deadline any more.
    let job = store.job(job_id(2)).await.unwrap().unwrap().job;
    let mut draft = Draft::from_job(job);
    draft.change(Event::Expired { error: "too late".into() });
    store.commit(Effects::one(draft.effect())).await.unwrap();
    assert_eq!(store.due(400, None, 10).await.unwrap(), [due(200, 3), due(300, 1)]);
}

pub(super) async fn executions_are_found_by_their_key(store: Subject) {
    for (number, owner) in [(1, "did:a"), (2, "did:a"), (3, "did:b")] {
        let mut opening = opening(job_id(number), owner, hello());
        opening.extra = vec![("executionKey", Value::from("sha256:ab"))];
        store.commit(Effects::one(Draft::open(opening, 5).effect())).await.unwrap();
    }
    let found = store.executions("did:a", "sha256:ab", 10).await.unwrap();
    assert_eq!(found, [job_id(2), job_id(1)]);
    assert!(store.executions("did:a", "sha256:cd", 10).await.unwrap().is_empty());
    store.commit(Effects::one(Effect::Delete { job: job_id(2) })).await.unwrap();
    assert_eq!(store.executions("did:a", "sha256:ab", 10).await.unwrap(), [job_id(1)]);
}

pub(super) async fn sub_jobs_are_not_listed(store: Subject) {
    store.commit(Effects::one(echo(job_id(1), "did:a").effect())).await.unwrap();
    let mut child = opening(job_id(2), "did:a", hello());
    child.parent = Some(Parent::of_step(job_id(1), 0));
    store.commit(Effects::one(Draft::open(child, 5).effect())).await.unwrap();
    assert_eq!(ids(&store, &query("did:a", Filter::All)).await, [job_id(1)]);
    assert_eq!(live(&store, None, 10).await, [job_id(2)]);
}

pub(super) async fn lists_are_counted_as_they_grow_and_shrink(store: Subject) {
    let count = async |owner: &str, filter| store.count(Some(owner), &filter).await.unwrap();
    assert_eq!(count("did:a", Filter::All).await, 0);
    for number in 1..=5 {
        store.commit(Effects::one(echo(job_id(number), "did:a").effect())).await.unwrap();
        assert_eq!(count("did:a", Filter::All).await, number);
    }
    assert_eq!(count("did:a", Filter::Status(Status::Complete)).await, 5);
    assert_eq!(count("did:a", Filter::Status(Status::Failed)).await, 0);
    assert_eq!(count("did:a", Filter::Op("test:echo".into())).await, 5);
    assert_eq!(count("did:b", Filter::All).await, 0);
    store.commit(Effects::one(Effect::Delete { job: job_id(3) })).await.unwrap();
    assert_eq!(count("did:a", Filter::All).await, 4);
    store.commit(Effects::one(echo(job_id(6), "did:a").effect())).await.unwrap();
    assert_eq!(count("did:a", Filter::All).await, 5);
}

pub(super) async fn all_jobs_can_be_walked(store: Subject) {
    for number in [4, 2, 3, 1] {
        let owner = if number % 2 == 0 { "did:a" } else { "did:b" };
        store.commit(Effects::one(echo(job_id(number), owner).effect())).await.unwrap();
    }
    let mut found = Vec::new();
    while let Some((id, summary)) =
        store.all(found.last().copied(), 1).await.unwrap().into_iter().next()
    {
        assert_eq!(summary.op, "test:echo");
        found.push(id);
    }
    assert_eq!(found, [1, 2, 3, 4].map(job_id));
}

pub(super) async fn jobs_of_all_owners_are_listed_in_the_order_of_commits(store: Subject) {
    let expected = [5, 1, 9].map(job_id);
    for (id, owner) in expected.into_iter().zip(["did:a", "did:b", "did:a"]) {
        store.commit(Effects::one(echo(id, owner).effect())).await.unwrap();
    }
    let everyone = |filter| ListQuery { owner: None, ..query("", filter) };
    assert_eq!(ids(&store, &everyone(Filter::All)).await, expected);
    assert_eq!(ids(&store, &everyone(Filter::Status(Status::Complete))).await, expected);
    assert!(ids(&store, &everyone(Filter::Op("test:never".into()))).await.is_empty());
    let first = ListQuery { limit: 1, order: ListOrder::Newest, ..everyone(Filter::All) };
    let page = store.list(&first).await.unwrap();
    assert_eq!((page.jobs[0].id, page.jobs[0].owner.as_str()), (expected[2], "did:a"));
    let second = store.list(&ListQuery { after: page.next, ..first }).await.unwrap();
    assert_eq!((second.jobs[0].id, second.jobs[0].owner.as_str()), (expected[1], "did:b"));
    assert_eq!(store.count(None, &Filter::All).await.unwrap(), 3);
    store.commit(Effects::one(Effect::Delete { job: expected[1] })).await.unwrap();
    assert_eq!(store.count(None, &Filter::All).await.unwrap(), 2);
    assert_eq!(store.count(None, &Filter::Status(Status::Complete)).await.unwrap(), 2);
}

fn changes(owner: Option<&str>, after: u64) -> ChangeQuery {
    ChangeQuery { owner: owner.map(str::to_owned), parent: None, after, limit: 100 }
}

pub(super) async fn changes_are_read_in_the_order_of_commits(store: Subject) {
    assert_eq!(store.position().await.unwrap(), 0);
    let mut slow = Draft::open(opening(job_id(1), "did:a", hello()), 5);
    store.commit(Effects::one(slow.clone().effect())).await.unwrap();
    let created = store.position().await.unwrap();
    store.commit(Effects::one(echo(job_id(2), "did:a").effect())).await.unwrap();
    store.commit(Effects::one(echo(job_id(3), "did:b").effect())).await.unwrap();
    slow = Draft::from_job(slow.job);
    slow.change(Event::Started);
    store.commit(Effects::one(slow.effect())).await.unwrap();
    let found = async |query: ChangeQuery| {
        let page = store.changes(&query).await.unwrap();
        assert!(page.changes.is_sorted_by_key(|change| change.position));
        let last = page.changes.last().map_or(page.until, |change| change.position);
        assert!(page.until >= last && !page.has_more && !page.is_incomplete);
        page.changes.into_iter().map(|change| (change.job, change.kind)).collect::<Vec<_>>()
    };
    let (fresh, changed) = (ChangeKind::Created, ChangeKind::Changed);
    let (one, two, three) = (job_id(1), job_id(2), job_id(3));
    // Of several changes of a job, the last.
    let of_a = [(two, fresh), (one, changed)];
    assert_eq!(found(changes(Some("did:a"), 0)).await, of_a);
    assert_eq!(found(changes(Some("did:a"), created)).await, of_a);
    let all = [(two, fresh), (three, fresh), (one, changed)];
    assert_eq!(found(changes(None, 0)).await, all);
    let newest = store.position().await.unwrap();
    assert!(found(changes(None, newest)).await.is_empty());
    // By pages, nothing is left out, although two tables are read.
    let mut query = ChangeQuery { limit: 1, ..changes(None, 0) };
    let mut seen = Vec::new();
    loop {
        let page = store.changes(&query).await.unwrap();
        seen.extend(page.changes.into_iter().map(|change| change.job));
        query.after = page.until;
        if !page.has_more {
            break;
        }
    }
    assert_eq!(seen, [one, two, three, one]);
}

pub(super) async fn a_deletion_is_a_change(store: Subject) {
    store.commit(Effects::one(echo(job_id(1), "did:a").effect())).await.unwrap();
    let before = store.position().await.unwrap();
    store.commit(Effects::one(Effect::Delete { job: job_id(1) })).await.unwrap();
    for owner in [Some("did:a"), None] {
        let page = store.changes(&changes(owner, before)).await.unwrap();
        let [change] = &page.changes[..] else { panic!("{page:?}") };
        assert_eq!((change.job, change.kind), (job_id(1), ChangeKind::Deleted));
        assert!(change.listed.is_none() && change.position > before);
    }
    assert!(store.changes(&changes(Some("did:b"), before)).await.unwrap().changes.is_empty());
    assert_eq!(store.trim_changes().await.unwrap(), 0, "there are few");
}

pub(super) async fn changes_of_sub_jobs_are_those_of_their_parent(store: Subject) {
    let mut step = opening(job_id(2), "did:a", hello());
    step.parent = Some(Parent::of_step(job_id(1), 0));
    store.commit(Effects::one(Draft::open(step, 5).effect())).await.unwrap();
    assert!(store.changes(&changes(Some("did:a"), 0)).await.unwrap().changes.is_empty());
    for owner in [Some("did:a"), None] {
        let query = ChangeQuery { parent: Some(job_id(1)), ..changes(owner, 0) };
        let page = store.changes(&query).await.unwrap();
        assert_eq!(page.changes.iter().map(|change| change.job).collect::<Vec<_>>(), [job_id(2)]);
    }
}
