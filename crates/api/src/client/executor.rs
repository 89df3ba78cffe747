//! The requests of executors beyond those of every worker: announcing environments, and the data and
//! files of the jobs that they hold.

use std::fs::File;
use std::io::Write as _;

use catena_value::Value;
use http_body_util::BodyExt as _;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};

use super::http::{Content, HttpTransport, OpenResponse};
use super::transport::{ApiRequest, Transport};
use super::worker::ClaimedJob;
use super::{Client, ClientError, ClientResult, HttpClient, TransportError};
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
}

impl HttpClient {
    /// Writes the content of a dataset that a job names to a file, piece by piece. Returns its size in
    /// bytes; `None` if its owner has not uploaded it. More than `max` bytes are refused.
    pub async fn dataset(
        &self,
        job: &ClaimedJob,
        digest: &str,
        (file, max): (&File, u64),
    ) -> ClientResult<Option<u64>, HttpTransport> {
        let mut request = self.blob_request(Method::GET, job, "datasets", digest);
        if let Some(authorization) = self.authorization().await? {
            request.headers.insert(AUTHORIZATION, authorization);
        }
        let transport = &self.transport;
        let exchange = async {
            let OpenResponse { response, .. } = transport.open(&request).await?;
            if !response.status().is_success() {
                return Ok(Err(transport.read_response(response).await?));
            }
            let mut body = response.into_body();
            let mut size = 0;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| transport.unreachable(error.to_string()))?;
                let Ok(chunk) = frame.into_data() else { continue };
                size += chunk.len() as u64;
                if size > max {
                    return Err(TransportError::TooLarge { venue: transport.venue() });
                }
                let file = file.try_clone();
                let written = tokio::task::spawn_blocking(move || file?.write_all(&chunk)).await;
                let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                written.map_err(|error| {
                    transport.unreachable(format!("the dataset cannot be written: {error}"))
                })?;
            }
            Ok(Ok(size))
        };
        match transport.within(request.time, exchange).await.map_err(ClientError::Transport)? {
            Ok(size) => Ok(Some(size)),
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
            Err(refusal) => Err(self.refusal_of(&refusal)),
        }
    }

    /// Stores a file that a job produced, piece by piece. `size` is its size in bytes.
    pub async fn store_artifact(
        &self,
        job: &ClaimedJob,
        digest: &str,
        (file, size): (File, u64),
    ) -> ClientResult<(), HttpTransport> {
        let mut request = self.blob_request(Method::PUT, job, "artifacts", digest);
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if let Some(authorization) = self.authorization().await? {
            request.headers.insert(AUTHORIZATION, authorization);
        }
        let content = Content::of_file(file, size);
        let response = self.transport.send_content(&request, content).await;
        let response = response.map_err(ClientError::Transport)?;
        if response.status.is_success() { Ok(()) } else { Err(self.refusal_of(&response)) }
    }
}
