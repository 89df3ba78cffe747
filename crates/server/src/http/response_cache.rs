//! Answers that were made of ended jobs lately.
//!
//! Many ask for the same job, and one that has ended looks the same to all who may see it. An
//! answer is given again for the very same job in memory, which the store hands out for as long as
//! it knows that nothing changed; so there is nothing to invalidate here.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderValue;
use catena_engine::request::JobView;
use catena_job::Job;
use catena_store::Lately;

use crate::grid::job_json;
use crate::http::error::ApiResult;

/// Answers that are kept.
const ANSWERS: usize = 8_192;

/// Longest answer that is kept.
const ANSWER_BYTES_MAX: usize = 4_096;

/// A job as it is sent.
#[derive(Clone)]
pub(crate) struct Rendered {
    /// Its entity tag.
    pub(crate) tag: HeaderValue,
    /// Its JSON.
    pub(crate) body: Bytes,
}

impl Rendered {
    fn of(view: &JobView) -> ApiResult<Rendered> {
        // An entity tag is hex digits and a number, so there is nothing a header could not carry.
        let tag = HeaderValue::try_from(view.etag()).unwrap_or(HeaderValue::from_static("\"\""));
        Ok(Rendered { tag, body: job_json::of_view(view)?.into() })
    }
}

/// The answers that are kept.
pub(crate) struct Answers(Lately<(Arc<Job>, Rendered)>);

impl Default for Answers {
    fn default() -> Self {
        Answers(Lately::new(ANSWERS))
    }
}

impl Answers {
    /// The answer to whoever may see this job.
    pub(crate) fn of(&self, view: &JobView) -> ApiResult<Rendered> {
        // Anything beside the chain may be another time, except the count of changes, which no
        // longer moves.
        let is_lasting = view.status().is_terminal()
            && view.steps.is_none()
            && view.progress.is_none()
            && view.queue_depth == 0;
        if !is_lasting {
            return Rendered::of(view);
        }
        let id = view.job.id();
        let known = |(job, rendered): &(Arc<Job>, Rendered)| {
            Arc::ptr_eq(job, &view.job).then(|| rendered.clone())
        };
        if let Some(rendered) = self.0.get(id, known) {
            return Ok(rendered);
        }
        let rendered = Rendered::of(view)?;
        if rendered.body.len() <= ANSWER_BYTES_MAX {
            self.0.put(id, (Arc::clone(&view.job), rendered.clone()), || true);
        }
        Ok(rendered)
    }
}
