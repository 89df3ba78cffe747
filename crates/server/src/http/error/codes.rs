//! The closed list of error codes: for each its HTTP status, whether the request may be retried,
//! what it means, and what the caller can do.

use axum::http::StatusCode;

/// Whether a client may send the same request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    /// No: it would be refused again.
    Never,
    /// Yes, at once and unchanged.
    SameRequest,
    /// Perhaps, after reading the current state of what it is about.
    AfterRead,
    /// Yes, later: nothing was changed.
    Later,
}

impl Retry {
    /// Its value in the body of an error.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Retry::Never => "never",
            Retry::SameRequest => "same_request",
            Retry::AfterRead => "after_read",
            Retry::Later => "later",
        }
    }
}

macro_rules! codes {
    ($($name:ident $word:literal $status:literal $retry:ident $about:literal $hint:literal;)*) => {
        /// Why a request failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Code {
            $(#[doc = $about] $name,)*
        }

        impl Code {
            /// All codes.
            pub(crate) const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// Its value in the body of an error, and the name of its page in the documentation.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $word,)* }
            }

            /// What it means, in one sentence.
            pub(crate) const fn about(self) -> &'static str {
                match self { $(Code::$name => $about,)* }
            }

            /// What the caller can do.
            pub(crate) const fn hint(self) -> &'static str {
                match self { $(Code::$name => $hint,)* }
            }

            /// Whether a client may send the same request again.
            pub(crate) const fn retry(self) -> Retry {
                match self { $(Code::$name => Retry::$retry,)* }
            }

            const fn number(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }
        }
    };
}

codes! {
    BadRequest "bad_request" 400 Never "A part of the request is missing or malformed." "Correct the part that `error` names and send the request again.";
    InvalidJson "invalid_json" 400 Never "The body is not valid JSON." "Check the body at the line and column that `error` names.";
    InvalidPayload "invalid_payload" 400 Never "The payload of a contract job is not valid." "Correct the member that `details.field` names and send the request again.";
    DigestMismatch "digest_mismatch" 400 Never "The content does not have the digest in the path." "Upload the bytes that belong to the digest, or use the digest of these bytes.";
    UnknownMember "unknown_member" 400 Never "A member is not known." "Correct or remove the member that `error` names; `nearest` is the most similar known one. Names beginning with `x-` are free to use.";
    UnknownAction "unknown_action" 400 Never "There is no such control action." "Use one of the actions in `actions`: pause, resume or cancel.";
    InvalidJobId "invalid_job_id" 400 Never "Not a valid job ID." "Use the `id` of a job: 32 hex digits, with or without `0x`, or a UUID.";
    InvalidReference "invalid_reference" 400 Never "Not a valid reference to an operation or asset." "Use `adapter:operation`, a path such as `v/ops/…`, or an asset ID of 64 hex digits.";
    OperationNotFound "operation_not_found" 404 AfterRead "There is no such operation." "Check `nearest` for similar names, or list the operations with GET /api/v1/operations.";
    NotAnOperation "not_an_operation" 400 Never "The asset is not an operation." "Invoke an asset whose metadata has an `operation` object.";
    OperationUnusable "operation_unusable" 400 Never "The operation cannot run on this venue." "Correct what `error` names in the operation's metadata, or use another venue.";
    JobRejected "job_rejected" 400 Never "The job was rejected before it started." "Correct the input as `error` says. The rejected job in `job` keeps the record.";
    AssetInvalid "asset_invalid" 400 Never "The asset's metadata is invalid." "Correct every problem in `problems`.";
    ContentMismatch "content_mismatch" 400 Never "The content does not have the SHA-256 that the metadata declares." "Upload the bytes that belong to the asset, or register metadata with their SHA-256.";
    HistoryInvalid "history_invalid" 400 Never "The history does not verify." "`fault` names the first record that is invalid, and why. Get the history from its venue again.";
    TokenMissing "token_missing" 401 Never "Authentication is required." "Send `Authorization: Bearer <token>`. `catena token create` creates a token.";
    TokenInvalid "token_invalid" 401 Never "The token is invalid or expired." "Create a new token for this venue. Omit the header only to be anonymous.";
    Forbidden "forbidden" 403 Never "The caller is not allowed to do this." "Use an identity that is allowed to, or a delegation from one in `ucans`.";
    QuotaFull "quota_full" 403 AfterRead "The caller stores as much as it may." "Remove what is no longer needed, then send the request again.";
    UrlInvalid "url_invalid" 403 Never "The signature of the URL is not valid." "Ask for a new URL with GET /contract/v1/jobs/{job_id}/artifacts/{artifact_id}.";
    UrlExpired "url_expired" 403 Never "The signed URL has expired." "Ask for a new URL with GET /contract/v1/jobs/{job_id}/artifacts/{artifact_id}.";
    IdentityBlocked "identity_blocked" 403 Never "The operator has blocked this identity." "Ask the operator of the venue.";
    NotListed "not_listed" 403 Never "The identity is not on the venue's access list." "Ask the operator to run `catena access add DID`, or present a delegation from a listed identity in `ucans`.";
    DelegationInvalid "delegation_invalid" 403 Never "A delegation in `ucans` is invalid, or is not for this request." "Issue a new delegation to this venue or to the caller. `detail` says what is wrong with this one.";
    ForeignHost "foreign_host" 403 Never "The `Host` header does not name this venue, and anonymous access is on." "Use the venue's own address, or start it with `--hostname NAME` for this one.";
    ForeignOrigin "foreign_origin" 403 Never "A web page of another origin sent the request, and anonymous access is on." "Open the page from the venue itself, or start the venue with `--cors-origin ORIGIN`.";
    EndpointNotFound "endpoint_not_found" 404 Never "There is no such route." "See /docs or /openapi.json for the available routes.";
    JobNotFound "job_not_found" 404 Never "There is no such job, or the caller may not see it." "Check the ID, and that the token belongs to the caller that created the job.";
    AgentNotFound "agent_not_found" 404 Never "There is no such agent, or it belongs to another caller." "List your agents with GET /api/v1/agents, and check that the token belongs to their owner.";
    RequestNotFound "request_not_found" 404 Never "There is no such request to a person, or it belongs to another caller." "List the requests of your agents with GET /api/v1/requests.";
    QueueNotFound "queue_not_found" 404 Never "There is no such queue, or it belongs to another owner." "Claim from queues of the identity that the token belongs to; a short name refers to one of them.";
    BlobNotFound "blob_not_found" 404 AfterRead "The caller has uploaded no such content." "Upload the content first, with PUT and its digest.";
    ArtifactNotFound "artifact_not_found" 404 Never "The job has no such artifact." "Use an `artifact_id` of the job's result.";
    AssetNotFound "asset_not_found" 404 Never "There is no such asset." "List the assets with GET /api/v1/assets.";
    ContentNotFound "content_not_found" 404 AfterRead "The asset is registered, but its content was not uploaded." "Upload the content first, with PUT /api/v1/assets/{ref}/content.";
    SecretNotFound "secret_not_found" 404 Never "The caller has no secret with this name." "List the names with GET /api/v1/secrets.";
    HistoryNotFound "history_not_found" 404 Never "The caller has imported no such history." "List the imported histories with GET /api/v1/histories.";
    RecordNotFound "record_not_found" 404 AfterRead "The job, or the caller, has no record with this ID." "List the records of the job with GET /api/v1/jobs/{id}/history. If the error has `next`, continue the search with `after`.";
    AdapterNotFound "adapter_not_found" 404 Never "There is no such adapter." "GET /api/v1/operations lists the operations of all adapters.";
    MethodNotAllowed "method_not_allowed" 405 Never "The route does not support this method." "Use one of the methods in the `Allow` header.";
    NotAcceptable "not_acceptable" 406 Never "The route returns an event stream, which `Accept` excludes." "Send `Accept: text/event-stream`, or omit `Accept`.";
    BodyTooSlow "body_too_slow" 408 SameRequest "The request body arrived too slowly; nothing was changed." "Send the same request again over a faster connection.";
    JobConflict "job_conflict" 409 AfterRead "The job's status does not allow this action." "Read the job. Only a PAUSED job can be resumed; a job that is PAUSED or has ended cannot be paused.";
    RequestAnswered "request_answered" 409 AfterRead "The request was answered already, or the agent or job that made it has ended." "Read the request with GET /api/v1/requests?all=true.";
    JobEnded "job_ended" 409 AfterRead "The job has ended and accepts no messages." "Start a new job with POST /api/v1/invoke.";
    CredentialsStay "credentials_stay" 409 Never "The step that is waiting runs on another venue, and credentials are not sent to other venues." "Send the credentials to the job in `asking`, on the venue in `venue`.";
    SubJob "sub_job" 409 Never "The job is a step of another job." "Apply the action to the job in `root`; it includes its steps.";
    PrivateJob "private_job" 409 Never "A private job is kept in memory only and does not support this." "Invoke the operation without `private` to create a job that can be controlled.";
    StepGone "step_gone" 409 Never "The output of a step that would be reused is no longer stored." "Run everything again with `\"all\": true`, or start from the step in `step`.";
    Fenced "fenced" 409 Never "The worker no longer holds the job under this fence." "Stop working on the job and discard its result: it has ended, or another worker has it.";
    JobPaused "job_paused" 409 Later "The job is paused, and a worker may do nothing for it." "Wait until a beat reports `go` for the job, then send the same request again.";
    HistoryFork "history_fork" 409 Never "The history contradicts the known records of the same job." "Compare both copies: `record` is the first index at which they differ. One of them was not written by the job's venue.";
    HistoryFull "history_full" 409 Never "The job's history is full." "Cancel the job and start a new one.";
    KeyInFlight "idempotency_key_in_flight" 409 SameRequest "Another request with this idempotency key is in progress." "Wait a moment and send the same request again.";
    Contended "contended" 409 SameRequest "Too many concurrent changes to the same job; nothing was changed." "Send the same request again.";
    JobDeleted "job_deleted" 410 Never "The job was deleted." "A copy of its history can still be verified: its last record is `head`.";
    BodyTooLarge "body_too_large" 413 Never "The request body is too large." "Send less, or upload large data as the content of an asset and refer to it.";
    MessageTooLarge "message_too_large" 413 Never "The message is too large." "Send less, or upload large data as the content of an asset and refer to it.";
    ContentTooLarge "content_too_large" 413 Never "The content is too large." "Split the content, or ask the operator to raise `limits.content_bytes`.";
    TooLargeToStore "too_large_to_store" 413 Never "The change is too large for one commit." "Send less, or upload large data as the content of an asset and refer to it.";
    KeyReused "idempotency_key_reused" 422 Never "The idempotency key was already used with a different body." "Use a new key for a new request.";
    CallFailed "call_failed" 422 Never "The call could not be made." "Correct what `error` names. The failure code is in `failure`.";
    JobFailed "job_failed" 422 AfterRead "The job failed." "Read the job in `job`; its history says what happened.";
    JobCancelled "job_cancelled" 422 AfterRead "The job was cancelled." "Run the operation again if that was not intended.";
    AnswerTooLarge "answer_too_large" 422 Never "The job's JSON is too large for one response." "Read the job's records page by page with GET /api/v1/jobs/{id}/history.";
    RateLimited "rate_limited" 429 Later "The caller exceeded its request rate; nothing was changed." "Wait as long as `Retry-After` says.";
    TooManyJobs "too_many_jobs" 429 Later "The caller has too many jobs that have not ended; nothing was changed." "Wait for some of your jobs to end, or cancel them.";
    StorageFull "storage_full" 429 Later "As many bytes are stored for the caller, or for all callers together, as may be; nothing was changed." "Delete jobs, workspace values or uploaded content. What is deleted counts until the venue has collected it. The operator can raise `limits.stored_bytes` and `limits.stored_bytes_total`.";
    VenueFull "venue_full" 429 Later "All callers together have too many jobs that have not ended; nothing was changed." "Retry later. The operator can raise `limits.live_jobs_total`.";
    TooManyKeys "too_many_keys" 429 Later "The caller has too many idempotency keys in use; nothing was changed." "Omit the key, or wait until older keys expire after 24 hours.";
    QueueFull "queue_full" 429 Later "The job's message queue is full; nothing was changed." "Wait until the job has taken some of its messages.";
    TooMuchMemory "too_much_memory" 429 Later "The requests and jobs in progress hold as much memory as they may; nothing was changed." "Wait for some of them to end, or send less at a time.";
    VenueBusy "venue_busy" 429 Later "The venue is overloaded; nothing was changed." "Send the same request again after `Retry-After`.";
    Internal "internal" 500 Later "An internal error occurred." "Report the `x-request-id` of this response to the operator; the log has the cause.";
    StoreDamaged "store_damaged" 500 Never "Stored data is damaged and cannot be read." "Ask the operator to run `catena store check` on the data folder.";
    Stopping "stopping" 503 Later "The venue is stopping." "Send the same request again when the venue is back.";
    NoEnvironment "no_environment" 503 Later "No executor can run code for this venue." "Start an executor, or see `catena doctor` on its host for what is missing.";
    JobRunning "job_running" 504 AfterRead "The job did not end within the time of the request; it continues." "Follow the job in `job`: read it, or stream its events from /sse.";
    JobTimeout "job_timeout" 504 AfterRead "The job exceeded its time limit." "Allow more time with `timeoutMs`, or reduce the work.";
    StoreFull "store_full" 507 Later "The venue's disk is full; nothing was changed." "Ask the operator to free disk space.";
}

impl Code {
    /// The HTTP status that it usually has.
    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
