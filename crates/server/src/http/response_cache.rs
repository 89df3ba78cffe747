//! A cache of rendered responses of jobs that have ended.
//!
//! Many clients read the same job, and an ended job looks the same to everyone who may see it. An
//! entry is valid only for the very same job in memory (compared by pointer), which the store hands
//! out as long as nothing has changed, so there is nothing to invalidate here.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderValue;
use catena_engine::requests::JobView;
use catena_job::Job;
use catena_store::RecentCache;

use crate::http::error::ApiResult;
use crate::limits::{CACHED_RESPONSE_BYTES_MAX, CACHED_RESPONSES_MAX};

/// A job as it is sent to clients.
#[derive(Clone)]
pub(crate) struct RenderedJob {
    pub(crate) etag: HeaderValue,
    /// Its JSON.
    pub(crate) body: Bytes,
}

/// Rendered jobs by ID.
pub(crate) struct ResponseCache(RecentCache<(Arc<Job>, RenderedJob)>);

impl Default for ResponseCache {
    fn default() -> Self {
        ResponseCache(RecentCache::new(CACHED_RESPONSES_MAX))
    }
}

impl ResponseCache {
    /// The rendered job, from the cache if possible. `to_json` renders its body otherwise.
    pub(crate) fn get_or_render(
        &self,
        view: &JobView,
        to_json: impl Fn(&JobView) -> ApiResult<String>,
    ) -> ApiResult<RenderedJob> {
        // State outside the chain can differ from one read to the next, except for the count of
        // changes, which is final once the job has ended.
        let is_final = view.status().is_terminal()
            && view.steps.is_none()
            && view.progress.is_none()
            && view.queue_depth == 0;
        if !is_final {
            return render(view, to_json);
        }
        let id = view.job.id();
        let if_same = |(job, rendered): &(Arc<Job>, RenderedJob)| {
            Arc::ptr_eq(job, &view.job).then(|| rendered.clone())
        };
        if let Some(rendered) = self.0.get(id, if_same) {
            return Ok(rendered);
        }
        let rendered = render(view, to_json)?;
        if rendered.body.len() <= CACHED_RESPONSE_BYTES_MAX {
            self.0.insert_if(id, (Arc::clone(&view.job), rendered.clone()), || true);
        }
        Ok(rendered)
    }
}

/// The rendered job, without the cache.
pub(crate) fn render(
    view: &JobView,
    to_json: impl Fn(&JobView) -> ApiResult<String>,
) -> ApiResult<RenderedJob> {
    // An entity tag consists of hex digits and a number, so every tag is a valid header value.
    let etag = HeaderValue::try_from(view.etag()).unwrap_or(HeaderValue::from_static("\"\""));
    Ok(RenderedJob { etag, body: to_json(view)?.into() })
}
