//! Completes stores of earlier versions when they are opened.

use std::io;
use std::sync::mpsc;

use catena_job::JobId;
use catena_ledger::{Direction, Failure, KeyRange, Ledger, OpenError, Tx};

use super::sequence::{EVERYONE_LISTED, RUN};
use crate::bytes::DamagedRow;
use crate::effects::CommitError;
use crate::keys::{EVERYONE, JOBS, META, listed_entry};
use crate::limits::REBUILD_BATCH;
use crate::row::JobRow;

/// Creates the index of the jobs of all owners, which the first versions did not have. It is safe to
/// repeat: a process that stops halfway starts again.
pub(super) fn list_jobs_of_all_owners(ledger: &Ledger) -> Result<(), OpenError> {
    let has = |name: &[u8]| ledger.get(META, name).map(|row| row.is_some()).map_err(failed);
    if !has(RUN)? || has(EVERYONE_LISTED)? {
        return Ok(());
    }
    let view = ledger.view();
    let mut batch = Vec::with_capacity(REBUILD_BATCH);
    for row in view.range(JOBS, &KeyRange::all(), Direction::Forward).map_err(failed)? {
        let (id, row) = row.map_err(failed)?;
        let job = JobRow::read(&row).map_err(failed)?;
        if job.summary.parent.is_none() {
            let id = id[..].try_into().map_err(|_| failed(DamagedRow("job ID")))?;
            let entry = listed_entry(job.order, JobId::from_bytes(id));
            batch.push((job.order.to_be_bytes(), entry));
        }
        if batch.len() == REBUILD_BATCH {
            let rows = std::mem::take(&mut batch);
            submit(ledger, move |tx| {
                rows.into_iter().for_each(|(order, entry)| tx.put(EVERYONE, order, entry));
            })?;
        }
    }
    submit(ledger, move |tx| {
        batch.into_iter().for_each(|(order, entry)| tx.put(EVERYONE, order, entry));
        tx.put(META, EVERYONE_LISTED, 1_u64.to_be_bytes());
    })
}

/// Submits work and waits until it is durable.
fn submit(
    ledger: &Ledger,
    work: impl FnOnce(&mut Tx<'_>) + Send + 'static,
) -> Result<(), OpenError> {
    let (sender, receiver) = mpsc::channel();
    let work = move |tx: &mut Tx<'_>| -> Result<(), CommitError> {
        work(tx);
        Ok(())
    };
    let done = move |outcome: Result<(), Failure<CommitError>>| {
        // The receiver waits until it has the outcome.
        let _ = sender.send(outcome.map_err(|failure| match failure {
            Failure::Work(error) => error.to_string(),
            Failure::Ledger(error) => error.to_string(),
        }));
    };
    ledger.try_submit(work, done).map_err(failed)?;
    receiver.recv().map_err(failed)?.map_err(failed)
}

fn failed(error: impl ToString) -> OpenError {
    OpenError::Io {
        action: "list the jobs of all owners in",
        name: "the index".to_owned(),
        folder: "the store".to_owned(),
        source: io::Error::other(error.to_string()),
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Effects;
    use crate::embedded::EmbeddedStore;
    use crate::store::{Filter, ListOrder, ListQuery, Store as _};
    use crate::testing::jobs::{echo, job_id};

    #[tokio::test]
    async fn a_store_of_an_earlier_version_gets_the_list_of_all_owners() {
        let folder = tempfile::tempdir().unwrap();
        let ids = [1, 2, 3].map(job_id);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        for (id, owner) in ids.into_iter().zip(["did:a", "did:b", "did:a"]) {
            store.commit(Effects::one(echo(id, owner).effect())).await.unwrap();
        }
        // What earlier versions did not write.
        let forget = |tx: &mut Tx<'_>| {
            for (key, _) in tx.range(EVERYONE, &KeyRange::all(), Direction::Forward, 9)? {
                tx.delete(EVERYONE, key);
            }
            tx.delete(META, EVERYONE_LISTED);
            Ok::<_, CommitError>(())
        };
        store.driver.submit(forget).await.unwrap();
        let all = ListQuery {
            owner: None,
            filter: Filter::All,
            order: ListOrder::Oldest,
            after: None,
            limit: 9,
        };
        assert!(store.list(&all).await.unwrap().jobs.is_empty());
        store.close().unwrap();
        drop(store);
        let store = EmbeddedStore::open(folder.path()).unwrap();
        let listed: Vec<_> =
            store.list(&all).await.unwrap().jobs.iter().map(|job| job.id).collect();
        assert_eq!(listed, ids);
        assert!(store.check().unwrap().is_good());
    }
}
