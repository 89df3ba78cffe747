//! The state that all requests share.

use std::sync::Arc;

use axum::body::Bytes;
use catena_auth::UrlKey;
use catena_engine::Engine;
use catena_job::RecordId;
use catena_job::contract::Plan;
use catena_store::embedded::EmbeddedStore;
use tokio::sync::{Semaphore, broadcast};

use crate::http::origin::OriginPolicy;
use crate::http::request_id::RequestIds;
use crate::http::response_cache::ResponseCache;
use crate::identity::authenticate::Authenticator;
use crate::metrics::Metrics;
use crate::tools::Tools;

/// One per venue, shared by all requests.
pub(crate) struct ServerState {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) authenticator: Authenticator,
    /// Signs the URLs of artifacts.
    pub(crate) url_key: UrlKey,
    /// The highest limits of contract jobs.
    pub(crate) plan: Plan,
    /// The kind of environment that is used if a job names none.
    pub(crate) default_environment: String,
    pub(crate) origins: OriginPolicy,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) request_ids: RequestIds,
    /// Rendered responses of jobs that have ended.
    pub(crate) response_cache: ResponseCache,
    /// Permits for reading and writing a batch of a long page.
    pub(crate) long_reads: Semaphore,
    /// The venue's display name.
    pub(crate) name: String,
    /// The venue's public key in multibase, as in its DID document.
    pub(crate) public_key: String,
    pub(crate) body_bytes_max: usize,
    /// Whether a job's ID alone authorises a client to follow the job.
    pub(crate) sse_by_job_id: bool,
    /// Whether metrics can be read without being an admin.
    pub(crate) has_public_metrics: bool,
    /// Whether MCP calls that only read are recorded as jobs, too.
    pub(crate) records_mcp_reads: bool,
    /// The records whose questions were dismissed by users of MCP clients, for the calls that wait.
    pub(crate) dismissals: broadcast::Sender<RecordId>,
    /// The operations that are exposed as MCP tools.
    pub(crate) tools: Tools,
    /// The OpenAPI document, as JSON.
    pub(crate) openapi: Bytes,
    /// The `/docs` page, as HTML.
    pub(crate) docs: Bytes,
}
