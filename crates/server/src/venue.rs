//! A venue: everything that `catena serve` starts, in order, and stops in the opposite one.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use catena_auth::KeyPair;
use catena_engine::engine::StartError;
use catena_engine::env::{Env, SystemEnv};
use catena_engine::{Adapter, Engine, Setup};
use catena_store::embedded::admin::AdminSocket;
use catena_store::embedded::ledger::Health;
use catena_store::embedded::{DataFolder, EmbeddedStore, FolderError};
use catena_value::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::describe::{openapi, page};
use crate::http::listen::Connections;
use crate::http::origin::Origins;
use crate::http::response_cache::Answers;
use crate::http::service::{Door, RequestIds};
use crate::identity::authenticate::Identities;
use crate::identity::key::{self, KeyError};
use crate::identity::tokens::Revoked;
use crate::limits::{FAILURE_NOTICE, HEALTH_CHECK, RECOVERY_AHEAD};
use crate::mcp::Tools;
use crate::metrics::Metrics;
use crate::routes::{self, Route};

/// Why a venue did not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum VenueError {
    /// The data folder could not be opened.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The key could not be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file of the venue could not be used.
    #[error("could not use {what}")]
    Io {
        /// What.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address could not be bound.
    #[error("could not listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The engine did not start.
    #[error("the engine could not start")]
    Engine(#[from] StartError),
    /// The store takes no more writes; only a restart helps.
    #[error("the store failed: {reason}")]
    StoreFailed {
        /// What failed.
        reason: String,
    },
    /// The store could not be closed.
    #[error("the store could not be closed: {reason}")]
    Close {
        /// Why.
        reason: String,
    },
}

/// Metadata of assets that every venue has, with their content if they have any.
pub type Assets = Vec<(Value, Option<&'static [u8]>)>;

/// A running venue.
pub struct Venue {
    address: SocketAddr,
    engine: Engine,
    store: Arc<EmbeddedStore>,
    connections: Connections,
    tasks: Vec<JoinHandle<()>>,
    grace: Duration,
    /// Answers requests for backups until it is dropped.
    control: Option<AdminSocket>,
}

/// Starts a venue, serves until `shutdown` or until the store fails, and stops it.
pub async fn serve(
    config: Config,
    adapters: Vec<Arc<dyn Adapter>>,
    assets: Assets,
    shutdown: impl Future<Output = ()>,
) -> Result<(), VenueError> {
    Venue::start(config, adapters, assets).await?.serve_until(shutdown).await
}

impl Venue {
    /// Opens the data folder, starts the engine and listens. Returns when requests are answered.
    pub async fn start(
        config: Config,
        adapters: Vec<Arc<dyn Adapter>>,
        assets: Assets,
    ) -> Result<Venue, VenueError> {
        raise_descriptor_limit();
        let data = config.data.value.clone();
        let folder = Arc::new(in_background(move || DataFolder::open(&data)).await??);
        let store = Arc::clone(&folder.store);
        let data = config.data.as_path();
        let key = key::load_or_create(data)?;
        let control =
            AdminSocket::start(Arc::clone(&folder)).map_err(io_of("the control socket"))?;
        let revoked = Revoked::load(data).map_err(io_of("the list of revoked tokens"))?;
        let revoked = Arc::new(revoked);
        let (listener, address) = bind(config.listen.value).await?;
        let env: Arc<dyn Env> = Arc::new(SystemEnv::new());
        let did = config.did(&key.did());
        let engine = Engine::start(Setup {
            store: store.clone(),
            blobs: folder.blobs.clone(),
            env: Arc::clone(&env),
            did: did.clone(),
            key: key.clone(),
            limits: config.engine_limits(),
            adapters,
            assets,
        })
        .await?;
        // A few jobs are recovered before anybody can look; many do not hold up new work.
        let ahead = tokio::time::timeout(RECOVERY_AHEAD, engine.recovered()).await;
        if ahead.is_err() {
            let found = engine.recovery().found;
            tracing::info!(found, "live jobs are being recovered while requests are answered");
        }
        let is_public = config.has_public_access();
        let identities = Identities::new(&did, &key, is_public, &config.admins, revoked.clone());
        let door = door(&config, engine.clone(), store.clone(), identities, address, &key, &*env);
        let connections = Connections::new();
        let router = routes::router(&door, routes_of(&config));
        let listening = connections.clone();
        let tasks = vec![
            tokio::spawn(async move { listening.serve(listener, router).await }),
            tokio::spawn(revoked.watch(data.to_owned())),
        ];
        tracing::info!(%address, %did, data = %data.display(), "the venue is ready");
        let grace = config.grace();
        Ok(Venue { address, engine, store, connections, tasks, grace, control: Some(control) })
    }

    /// Serves until `shutdown` or until the store fails, and stops.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()>) -> Result<(), VenueError> {
        let failure = tokio::select! {
            () = shutdown => None,
            reason = store_failure(&self.store) => Some(reason),
        };
        if let Some(reason) = &failure {
            tracing::error!(%reason, "the store failed: the venue stops, a restart recovers");
            // Monitors see `/readyz` say so before the port is gone.
            tokio::time::sleep(FAILURE_NOTICE).await;
        }
        let stopped = self.stop().await;
        match failure {
            Some(reason) => Err(VenueError::StoreFailed { reason }),
            None => stopped,
        }
    }

    /// Where it listens; the port that was chosen when none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its store.
    pub fn store(&self) -> &Arc<EmbeddedStore> {
        &self.store
    }

    /// Stops within the grace: no new requests, running work comes to an end, those who wait are
    /// answered, streams close, the store is closed.
    pub async fn stop(mut self) -> Result<(), VenueError> {
        // What is left of the grace after the engine and the connections is for closing the store.
        let (for_engine, for_connections) = (self.grace.mul_f64(0.6), self.grace.mul_f64(0.2));
        self.connections.stop();
        self.engine.shutdown(for_engine).await;
        if !self.connections.ended(for_connections).await {
            tracing::warn!("some connections did not end in time");
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        let (control, store) = (self.control.take(), Arc::clone(&self.store));
        let closed = in_background(move || {
            drop(control);
            store.close().map_err(|error| error.to_string())
        });
        closed.await?.map_err(|reason| VenueError::Close { reason })
    }
}

impl Drop for Venue {
    fn drop(&mut self) {
        self.connections.stop();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn routes_of(config: &Config) -> impl Iterator<Item = &'static Route> + Clone {
    let benchmarks = config.bench.value.then(routes::for_benchmarks).into_iter().flatten();
    routes::all().chain(benchmarks)
}

fn door(
    config: &Config,
    engine: Engine,
    store: Arc<EmbeddedStore>,
    identities: Identities,
    address: SocketAddr,
    key: &KeyPair,
    env: &dyn Env,
) -> Arc<Door> {
    let name = config.name.value.clone();
    let did = key.did();
    let mut random = [0; 4];
    env.random(&mut random);
    Arc::new(Door {
        mcp_tools: Tools::of(&engine, &config.mcp_tools),
        engine,
        store,
        identities,
        origins: Origins {
            is_guarded: config.has_public_access(),
            bound: address,
            hostnames: config.all_hostnames(),
            allowed: config.cors_origins.to_vec(),
        },
        metrics: Arc::new(Metrics::new(routes_of(config))),
        request_ids: RequestIds::new(random),
        answers: Answers::default(),
        public_url: config.public_url.value.clone(),
        public_key: did.strip_prefix("did:key:").unwrap_or(&did).to_owned(),
        body_bytes_max: *config.body_bytes.value,
        sse_by_job_id: config.sse_by_job_id.value,
        has_public_metrics: config.has_public_metrics(),
        openapi: openapi::document(&name, routes_of(config)).into(),
        docs: page::docs(routes_of(config)).into(),
        name,
    })
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), VenueError> {
    let failed = |source| VenueError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn io_of(what: &str) -> impl FnOnce(io::Error) -> VenueError + '_ {
    move |source| VenueError::Io { what: what.to_owned(), source }
}

/// Does what blocks where it blocks nobody.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, VenueError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| io_of("a background thread")(io::Error::other(error)))
}

/// Returns when the store takes no more writes.
async fn store_failure(store: &EmbeddedStore) -> String {
    loop {
        if let Health::Poisoned { reason } = store.health() {
            return reason.to_string();
        }
        tokio::time::sleep(HEALTH_CHECK).await;
    }
}

/// Raises the number of files and connections that the process may have open to what it may raise
/// it to: the default is made for programs with few of either.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(descriptors = ?limit.maximum, "raised the descriptor limit"),
        Err(error) => tracing::warn!(%error, "could not raise the descriptor limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_store::testing::jobs::{echo, job_id};
    use catena_store::testing::{SimDisk, SimOp};
    use catena_store::{CommitError, Effects, Store as _};

    #[tokio::test]
    async fn a_sync_that_failed_is_noticed_and_the_reason_told() {
        let disk = Arc::new(SimDisk::new(1));
        let store = EmbeddedStore::open_on(disk.clone(), EmbeddedStore::options()).unwrap();
        let commit = |number| store.commit(Effects::one(echo(job_id(number), "did:a").effect()));
        commit(1).await.unwrap();
        let is_still_good = tokio::time::timeout(HEALTH_CHECK * 2, store_failure(&store)).await;
        assert!(is_still_good.is_err());
        disk.fail(SimOp::Sync, "journal", 0, io::ErrorKind::Other);
        let refused = commit(2).await.unwrap_err();
        assert!(matches!(refused, CommitError::Stopped { .. }), "{refused}");
        // This is what the venue stops serving for.
        let reason = store_failure(&store).await;
        assert!(reason.contains("could not write and sync"), "{reason}");
        assert!(matches!(commit(3).await, Err(CommitError::Stopped { .. })));
    }
}
