//! The API client's transport through [`crate::outbound`].
//!
//! A request may have any address, because the operator listed the venue, but it never leaves
//! through another path: redirects are returned and not followed, and size and time are bounded.

use catena_api::Transport;
use catena_api::client::{ApiRequest, ApiResponse};
use url::Url;

use crate::limits::REMOTE_JOB_BYTES_MAX;
use crate::outbound::{Gate, Outbound, OutboundError, Reach, Redirects, Request};

/// Sends the requests of one call to one venue.
pub(super) struct OutboundTransport<'a, G> {
    pub(super) outbound: &'a Outbound,
    /// The venue's base URL, which the operator lists.
    pub(super) base: &'a Url,
    pub(super) gate: &'a G,
}

impl<G: Gate> Transport for OutboundTransport<'_, G> {
    type Error = OutboundError;

    fn venue(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    fn origin(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    async fn send(&self, request: &ApiRequest) -> Result<ApiResponse, OutboundError> {
        let response = self.outbound.send(outbound_request(self.base, request)?, self.gate).await?;
        Ok(ApiResponse { status: response.status, headers: response.headers, body: response.body })
    }
}

fn outbound_request(base: &Url, request: &ApiRequest) -> Result<Request, OutboundError> {
    let url = format!("{}{}", base.as_str().trim_end_matches('/'), request.path);
    let url = Url::parse(&url).map_err(|error| OutboundError::Url(error.to_string()))?;
    Ok(Request {
        headers: request.headers.clone(),
        body: request.body.clone(),
        time: request.time,
        redirects: Redirects::Return,
        reach: Reach::Listed,
        response_bytes_max: REMOTE_JOB_BYTES_MAX,
        ..Request::new(request.method.clone(), url)
    })
}
