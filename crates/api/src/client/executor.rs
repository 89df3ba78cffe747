//! The requests of executors beyond those of every worker: announcing environments, and the data and
//! files of the jobs that they hold.

use bytes::Bytes;
use catena_value::Value;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};

use super::transport::{ApiRequest, Transport};
use super::worker::ClaimedJob;
use super::{Client, ClientResult};
use crate::limits::BLOB_TIME;
use crate::wire::{EXECUTOR_API, encode_path};

impl<T: Transport> Client<T> {
    fn blob_request(
        &self,
        method: Method,
        job: &ClaimedJob,
        kind: &str,
        digest: &str,
    ) -> ApiRequest {
        let (id, digest) = (encode_path(&job.id), encode_path(digest));
        let path = format!("{EXECUTOR_API}/jobs/{id}/{kind}/{digest}?fence={}", job.fence);
        ApiRequest { time: BLOB_TIME, ..ApiRequest::new(method, path) }
    }

    /// Announces which environments an executor has.
    pub async fn announce(&self, announcement: &Value) -> ClientResult<(), T> {
        let request = ApiRequest::new(Method::POST, format!("{EXECUTOR_API}/announce"));
        let request = ApiRequest { time: self.request_time, ..request };
        self.send_only(request.with_json(announcement)?).await
    }

    /// Returns the content of a dataset that a job names. `None` if its owner has not uploaded it.
    pub async fn dataset(
        &self,
        job: &ClaimedJob,
        digest: &str,
    ) -> ClientResult<Option<Vec<u8>>, T> {
        let request = self.blob_request(Method::GET, job, "datasets", digest);
        let response = self.send(request).await?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(response.body)),
            _ => Err(self.refusal_of(&response)),
        }
    }

    /// Stores a file that a job produced.
    pub async fn store_artifact(
        &self,
        job: &ClaimedJob,
        digest: &str,
        content: Bytes,
    ) -> ClientResult<(), T> {
        let mut request = self.blob_request(Method::PUT, job, "artifacts", digest);
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        request.body = content;
        self.send_only(request).await
    }
}
