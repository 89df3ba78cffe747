//! A venue: everything that `catena serve` starts, and stops in the opposite order.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catena_auth::KeyPair;
use catena_auth::identity::UnboundToken;
use catena_engine::error::StartError;
use catena_engine::runtime::{Aborts, Env, SystemEnv};
use catena_engine::{Adapter, Caller, Engine, Role, Setup};
use catena_store::embedded::Health;
use catena_store::embedded::admin::AdminSocket;
use catena_store::embedded::permissions::{self, PermissionsError, Sharing};
use catena_store::embedded::{DataFolder, EmbeddedStore, FolderError};
use catena_value::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::aborts::{self, AbortWatch, WorkTable};
use crate::config::{Config, McpRecord};
use crate::describe::{openapi, page};
use crate::http::listen::Connections;
use crate::http::origin::OriginPolicy;
use crate::http::request_id::RequestIds;
use crate::http::response_cache::ResponseCache;
use crate::http::route::Route;
use crate::http::service::Service;
use crate::http::state::ServerState;
use crate::http::tls::{TlsError, TlsIdentity};
use crate::identity::authenticate::{AccessPolicy, Authenticator};
use crate::identity::key::{self, KeyError};
use crate::identity::lists::{self, AccessLists, List};
use crate::identity::tokens;
use crate::limits::{FAILURE_NOTICE, HEALTH_CHECK, MCP_DISMISSALS_QUEUED_MAX, RECOVERY_AHEAD};
use crate::metrics::Metrics;
use crate::routes;
use crate::tools::Tools;

/// Why a venue did not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum VenueError {
    /// The data folder could not be opened.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Other users could change the data folder.
    #[error(transparent)]
    Permissions(#[from] PermissionsError),
    /// The key could not be read or created.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file of the venue could not be used.
    #[error("could not use {what}")]
    Io {
        /// A description of the file.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
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
    /// The store accepts no more writes until a restart.
    #[error("the store failed: {reason}")]
    StoreFailed {
        /// What failed.
        reason: String,
    },
    /// The store could not be closed.
    #[error("the store could not be closed: {reason}")]
    Close {
        /// The cause.
        reason: String,
    },
}

/// Metadata of the assets that every venue has, with their content, if any.
pub type Assets = Vec<(Value, Option<&'static [u8]>)>;

/// A running venue.
pub struct Venue {
    address: SocketAddr,
    engine: Engine,
    store: Arc<EmbeddedStore>,
    connections: Connections,
    tasks: Vec<JoinHandle<()>>,
    grace: Duration,
    work_table: WorkTable,
    /// Accepts requests for backups until it is dropped.
    admin_socket: Option<AdminSocket>,
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
    /// Opens the data folder, starts the engine and listens. Returns when the venue accepts requests.
    pub async fn start(
        config: Config,
        adapters: Vec<Arc<dyn Adapter>>,
        assets: Assets,
    ) -> Result<Venue, VenueError> {
        Venue::start_watched(config, adapters, assets, None).await
    }

    /// Does the same and, with a watch, leaves a mark if the process aborts and acts on the mark of an
    /// earlier one. There can be one watch per process.
    pub async fn start_watched(
        config: Config,
        adapters: Vec<Arc<dyn Adapter>>,
        assets: Assets,
        watch: Option<AbortWatch>,
    ) -> Result<Venue, VenueError> {
        raise_descriptor_limit();
        let data = config.data.value.clone();
        let sharing = if config.shared_data.value { Sharing::Group } else { Sharing::Owner };
        permissions::restrict_new_files(sharing);
        let opened = in_background(move || {
            permissions::secure_folder(&data, sharing)?;
            Ok::<_, VenueError>(DataFolder::open(&data)?)
        });
        let folder = Arc::new(opened.await??);
        let store = Arc::clone(&folder.store);
        let data = config.data.as_path();
        let key = key::load_or_create(data)?;
        let secrets_file = key::secrets_file(data, config.key_file.as_deref());
        let secrets_keys = key::load_secrets_keys(&secrets_file)?;
        let admin_socket =
            AdminSocket::start(Arc::clone(&folder)).map_err(io_error("the control socket"))?;
        let lists = load_lists(data).map_err(io_error("the lists of identities"))?;
        let tls = TlsIdentity::from_config(&config)?;
        let (listener, address) = bind(config.listen.value).await?;
        let (aborts, work_table) = match watch {
            Some(watch) => aborts::begin(data, watch).map_err(io_error("the mark of an abort"))?,
            None => (Aborts::default(), WorkTable::default()),
        };
        let env: Arc<dyn Env> = Arc::new(SystemEnv::new());
        let did = config.did(&key.did());
        let engine = Engine::start(Setup {
            store: store.clone(),
            blobs: folder.blobs.clone(),
            env: Arc::clone(&env),
            did: did.clone(),
            key: key.clone(),
            secrets_key: Some(secrets_keys.current),
            previous_secrets_key: secrets_keys.previous,
            limits: config.engine_limits(),
            adapters,
            assets,
            admins: config.admins.to_vec(),
            aborts,
        })
        .await?;
        // The engine has encrypted everything with the current key.
        if secrets_keys.previous.is_some() {
            key::finish_rotation(&secrets_file)?;
            tracing::info!("finished an interrupted rotation of the key of secrets");
        }
        let recovery_begun = Instant::now();
        let authenticator = Authenticator::new(&did, &key, access_policy(&config), lists.clone());
        let state = server_state(
            &config,
            engine.clone(),
            store.clone(),
            authenticator,
            address,
            &key,
            &*env,
        );
        // A few jobs are recovered before clients can see them; many do not delay new work.
        let ahead = timeout_at(recovery_begun + RECOVERY_AHEAD, engine.recovered()).await;
        if ahead.is_err() {
            let found = engine.recovery().found;
            tracing::info!(found, "live jobs are being recovered in the background");
        }
        let connections = Connections::new(config.connections_per_address.value);
        let state = Arc::new(state);
        let service = Arc::new(Service::new(Arc::clone(&state), mounted_routes(&config)));
        let listening = connections.clone();
        let tasks = vec![
            tokio::spawn(reload_tls(tls.clone())),
            tokio::spawn(async move { listening.serve(listener, service, tls).await }),
            tokio::spawn(Arc::clone(&lists).watch(data.to_owned())),
            tokio::spawn(end_schedules_of_withdrawn(
                state,
                data.to_owned(),
                config.admins.to_vec(),
            )),
            tokio::spawn(aborts::forget_acquitted(data.to_owned(), engine.clone())),
            tokio::spawn(work_table.keep_time(env)),
        ];
        config.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let access: Vec<String> = config
            .resolved_access()
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        tracing::info!("{}", access.join(" "));
        tracing::info!(%address, %did, data = %data.display(), "the venue is ready");
        let grace = config.grace();
        let admin_socket = Some(admin_socket);
        Ok(Venue { address, engine, store, connections, tasks, grace, work_table, admin_socket })
    }

    /// Serves until `shutdown` or until the store fails, and stops.
    pub async fn serve_until(self, shutdown: impl Future<Output = ()>) -> Result<(), VenueError> {
        let failure = tokio::select! {
            () = shutdown => None,
            reason = store_failure(&self.store) => Some(reason),
        };
        if let Some(reason) = &failure {
            tracing::error!(%reason, "the store failed; the venue is stopping, and a restart recovers it");
            // Monitors see the failure in `/readyz` before the port is closed.
            tokio::time::sleep(FAILURE_NOTICE).await;
        }
        let stopped = self.stop().await;
        match failure {
            Some(reason) => Err(VenueError::StoreFailed { reason }),
            None => stopped,
        }
    }

    /// The address it listens on, with the actual port if the configured one was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The engine of this venue.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The store of this venue.
    pub fn store(&self) -> &Arc<EmbeddedStore> {
        &self.store
    }

    /// Stops within the grace period: accepts no new requests, lets running work finish, responds to
    /// waiting requests, ends event streams, and closes the store.
    pub async fn stop(mut self) -> Result<(), VenueError> {
        // The rest of the grace period is for closing the store.
        let for_engine = self.grace.mul_f64(0.6);
        let for_connections = self.grace.mul_f64(0.2);
        self.work_table.stop();
        self.connections.stop();
        self.engine.shutdown(for_engine).await;
        if !self.connections.wait_or_close(for_connections).await {
            tracing::warn!("some connections did not end in time and were closed");
        }
        self.tasks.iter().for_each(JoinHandle::abort);
        let admin_socket = self.admin_socket.take();
        let store = Arc::clone(&self.store);
        let closed = in_background(move || {
            drop(admin_socket);
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

/// The routes that this configuration enables.
fn mounted_routes(config: &Config) -> impl Iterator<Item = &'static Route> + Clone {
    let benchmarks = config.bench.value.then(routes::benchmarks).into_iter().flatten();
    routes::all().chain(benchmarks)
}

fn server_state(
    config: &Config,
    engine: Engine,
    store: Arc<EmbeddedStore>,
    authenticator: Authenticator,
    address: SocketAddr,
    key: &KeyPair,
    env: &dyn Env,
) -> ServerState {
    let name = config.name.value.clone();
    let did = key.did();
    let mut random = [0; 4];
    env.random(&mut random);
    let routes = mounted_routes(config).map(|route| (route.method.as_str(), route.path));
    ServerState {
        records_mcp_reads: config.mcp_record.value == McpRecord::All,
        tools: Tools::from_catalogue(&engine, &config.mcp_tools),
        engine,
        store,
        authenticator,
        url_key: key.url_key(),
        plan: config.plan(),
        default_environment: config.default_environment.value.clone(),
        origins: OriginPolicy {
            is_guarded: config.is_anonymous_on(),
            bound: address,
            hostnames: config.all_hostnames(),
            allowed: config.cors_origins.to_vec(),
            public_url: config.public_url.value.clone(),
            scheme: if config.has_tls() { "https" } else { "http" },
        },
        metrics: Arc::new(Metrics::new(routes)),
        request_ids: RequestIds::new(random),
        response_cache: ResponseCache::default(),
        // Half of the threads stay free for everything else.
        long_reads: Semaphore::new((threads() / 2).max(1)),
        dismissals: broadcast::Sender::new(MCP_DISMISSALS_QUEUED_MAX),
        public_key: did.strip_prefix("did:key:").unwrap_or(&did).to_owned(),
        body_bytes_max: *config.body_bytes.value,
        sse_by_job_id: config.sse_by_job_id.value,
        has_public_metrics: config.has_public_metrics(),
        openapi: openapi::document(&name, mounted_routes(config)).into(),
        docs: page::docs(mounted_routes(config)).into(),
        name,
    }
}

/// The number of threads that answer requests.
fn threads() -> usize {
    tokio::runtime::Handle::current().metrics().num_workers()
}

/// Who may use a venue with this configuration.
fn access_policy(config: &Config) -> AccessPolicy {
    let unbound =
        if config.allows_unbound_tokens() { UnboundToken::Accept } else { UnboundToken::Refuse };
    AccessPolicy {
        mode: config.access(),
        is_anyone_explicit: config.is_anyone_explicit(),
        unbound,
        admins: config.admins.to_vec(),
        members: config.members.to_vec(),
    }
}

/// The lists of a data folder. A folder from before there was an access list gets one with the
/// subjects of all tokens that were issued, because issuing a token lists its subject.
fn load_lists(data: &Path) -> io::Result<Arc<AccessLists>> {
    if !lists::exists(data, List::Members) {
        let subjects = tokens::issued_subjects(data)?;
        if !subjects.is_empty() {
            lists::write(data, List::Members, &subjects)?;
        }
    }
    Ok(Arc::new(AccessLists::load(data)?))
}

/// Reads the certificate again whenever SIGHUP arrives. Never returns.
async fn reload_tls(tls: Option<Arc<TlsIdentity>>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Some(tls) = tls else { return };
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    while hangups.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("reloaded the TLS certificate"),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "the TLS certificate in use stays");
            }
        }
    }
}

/// Removes the schedules of identities that may no longer use the venue, because they were blocked, removed from
/// the access list, or lost their last token: they could not remove them, and would go on invoking operations. Never
/// returns.
async fn end_schedules_of_withdrawn(state: Arc<ServerState>, data: PathBuf, admins: Vec<String>) {
    let engine = &state.engine;
    let admin = Caller { role: Role::Admin, ..Caller::known(engine.did()) };
    let mut changes = state.authenticator.lists().subscribe();
    loop {
        let revoked = tokens::revoked_subjects(&data).unwrap_or_default();
        let is_admitted = |did: &str| {
            let is_kept = admins.iter().any(|known| known == did) || !revoked.contains(did);
            is_kept && state.authenticator.may_have_schedules(did, &admins)
        };
        for schedule in engine.scheduled(&admin, Some("*")).await.unwrap_or_default() {
            let did = &*schedule.owner;
            if did.split(":for:").all(is_admitted) {
                continue;
            }
            if engine.unschedule(&admin, &schedule.handle).await.is_ok_and(|removed| removed) {
                let handle = &*schedule.handle;
                tracing::info!(target: "catena::audit", did, handle, "removed a schedule of an identity that may no longer use the venue");
            }
        }
        if changes.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), VenueError> {
    let failed = |source| VenueError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn io_error(what: &str) -> impl FnOnce(io::Error) -> VenueError + '_ {
    move |source| VenueError::Io { what: what.to_owned(), source }
}

/// Runs blocking work on a thread of its own.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, VenueError> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|error| io_error("a background thread")(io::Error::other(error)))
}

/// Returns the reason when the store accepts no more writes.
async fn store_failure(store: &EmbeddedStore) -> String {
    loop {
        if let Health::Poisoned { reason } = store.health() {
            return reason.to_string();
        }
        tokio::time::sleep(HEALTH_CHECK).await;
    }
}

/// Raises the limit of open file descriptors to the maximum that the process may set: the default is
/// meant for programs with few files and connections.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => {
            tracing::debug!(descriptors = ?limit.maximum, "raised the limit of open file descriptors");
        }
        Err(error) => tracing::warn!(%error, "could not raise the limit of open file descriptors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_store::testing::jobs::{echo, job_id};
    use catena_store::testing::{SimDisk, SimOp};
    use catena_store::{CommitError, Effects, Store as _};

    #[tokio::test]
    async fn a_failed_sync_is_noticed_and_its_reason_returned() {
        let disk = Arc::new(SimDisk::new(1));
        let store = EmbeddedStore::open_on(disk.clone(), EmbeddedStore::options()).unwrap();
        let commit = |number| store.commit(Effects::one(echo(job_id(number), "did:a").effect()));
        commit(1).await.unwrap();
        let is_still_good = tokio::time::timeout(HEALTH_CHECK * 2, store_failure(&store)).await;
        assert!(is_still_good.is_err());
        disk.fail(SimOp::Sync, "journal", 0, io::ErrorKind::Other);
        let refused = commit(2).await.unwrap_err();
        assert!(matches!(refused, CommitError::Stopped { .. }), "{refused}");
        // This is what makes the venue stop.
        let reason = store_failure(&store).await;
        assert!(reason.contains("could not write and sync"), "{reason}");
        assert!(matches!(commit(3).await, Err(CommitError::Stopped { .. })));
    }
}
