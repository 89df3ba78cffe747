//! The closed list of codes: for each its word, its status, what a client may do with the same
//! request, and what a person can do.

use axum::http::StatusCode;

/// What a client may do with the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It will be refused again.
    Never,
    /// It may be sent again as it is.
    SameRequest,
    /// It may make sense after reading what it is about.
    AfterRead,
    /// It may be sent again later; nothing happened.
    Later,
}

impl Retry {
    /// The word in an error's body.
    pub const fn as_str(self) -> &'static str {
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
        /// Why a request was not carried out.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $about] $name,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The word in an error's body, and the name of its page in the documentation.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$name => $word,)* }
            }

            /// What it means, in one sentence.
            pub const fn about(self) -> &'static str {
                match self { $(Code::$name => $about,)* }
            }

            /// What one can do.
            pub const fn hint(self) -> &'static str {
                match self { $(Code::$name => $hint,)* }
            }

            /// What a client may do with the same request.
            pub const fn retry(self) -> Retry {
                match self { $(Code::$name => Retry::$retry,)* }
            }

            const fn number(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }
        }
    };
}

codes! {
    BadRequest "bad_request" 400 Never "A part of the request is missing or malformed." "Correct what `error` names and send the request again.";
    InvalidJson "invalid_json" 400 Never "The body is not JSON that the venue can hold." "Check the body at the line and column that `error` names.";
    UnknownAction "unknown_action" 400 Never "There is no such control action." "Use one of those that `actions` names: pause, resume, cancel.";
    InvalidJobId "invalid_job_id" 400 Never "The job ID in the path is not one." "Use the `id` of a job: 32 hex digits, with or without `0x`, or a UUID.";
    InvalidReference "invalid_reference" 400 Never "The reference is not one in any form." "Use `adapter:operation`, a path such as `v/ops/…`, or an asset ID of 64 hex digits.";
    OperationNotFound "operation_not_found" 404 AfterRead "The reference leads to no operation." "See `nearest`, or list what there is with GET /api/v1/operations.";
    NotAnOperation "not_an_operation" 400 Never "The asset has no `operation` in its metadata." "Invoke an asset whose metadata has an `operation` object.";
    OperationUnusable "operation_unusable" 400 Never "The operation cannot run at this venue." "Correct what `error` names in the operation's metadata, or use another venue.";
    JobRejected "job_rejected" 400 Never "The job was refused before it began." "Correct the input as `error` says; the job in `job` keeps the record of it.";
    AssetInvalid "asset_invalid" 400 Never "The metadata is not acceptable." "Correct every place that `problems` lists.";
    ContentMismatch "content_mismatch" 400 Never "The content does not have the SHA-256 that the metadata declares." "Send the bytes that belong to the asset, or register metadata with their SHA-256.";
    TokenMissing "token_missing" 401 Never "The venue wants to know who is asking." "Send `Authorization: Bearer <token>`; `catena token create` makes one.";
    TokenInvalid "token_invalid" 401 Never "The token does not hold." "Make a new token for this venue; leave the header out only to be anonymous.";
    Forbidden "forbidden" 403 Never "The caller may not do this." "Ask with an identity that may, or with a delegation (`ucans`) of one.";
    ForeignHost "foreign_host" 403 Never "The `Host` header names somebody else, while anonymous access is on." "Use the venue's own address, or start it with `--hostname NAME` for this one.";
    ForeignOrigin "foreign_origin" 403 Never "A page of another origin asked, while anonymous access is on." "Open the page from the venue itself, or start it with `--cors-origin ORIGIN`.";
    EndpointNotFound "endpoint_not_found" 404 Never "There is no such route." "See /docs or /openapi.json for what there is.";
    JobNotFound "job_not_found" 404 Never "There is no such job that the caller may know of." "Check the ID, and that the token is that of whoever made the job.";
    AssetNotFound "asset_not_found" 404 Never "There is no such asset." "List what there is with GET /api/v1/assets.";
    ContentNotFound "content_not_found" 404 AfterRead "The asset is here, but its content is not." "Send the content first, with PUT /api/v1/assets/{ref}/content.";
    AdapterNotFound "adapter_not_found" 404 Never "There is no such adapter." "GET /api/v1/operations lists the operations of all adapters.";
    MethodNotAllowed "method_not_allowed" 405 Never "The route exists, but not with this method." "Use a method that the `Allow` header names.";
    NotAcceptable "not_acceptable" 406 Never "An event stream is all that this route has." "Send `Accept: text/event-stream`, or leave `Accept` out.";
    JobConflict "job_conflict" 409 AfterRead "The job stands where this cannot be done." "Read the job; a resume needs PAUSED, a pause a job that neither ended nor is paused.";
    JobEnded "job_ended" 409 AfterRead "The job has ended and takes no messages." "Start a new job with POST /api/v1/invoke.";
    CredentialsStay "credentials_stay" 409 Never "The step that waits is on another venue, and credentials are not sent there." "Send them to the job that `asking` names, at the venue that `venue` names.";
    SubJob "sub_job" 409 Never "The job is a step of another." "Do it to the job that `root` names; it covers its steps.";
    PrivateJob "private_job" 409 Never "A private job is in memory only, so this cannot be done with it." "Invoke without `private` to have a job that can be controlled.";
    HistoryFull "history_full" 409 Never "The job's history has no room for this." "Cancel the job and start a new one.";
    KeyInFlight "idempotency_key_in_flight" 409 SameRequest "A request with this idempotency key is being worked on." "Wait a moment and send the same request again.";
    Contended "contended" 409 SameRequest "Too many changed the same thing at once; nothing happened." "Send the same request again.";
    BodyTooLarge "body_too_large" 413 Never "The body has more bytes than the venue takes." "Send less, or put large data into an asset's content and refer to it.";
    MessageTooLarge "message_too_large" 413 Never "The message has more bytes than a message may have." "Send less, or put large data into an asset's content and refer to it.";
    ContentTooLarge "content_too_large" 413 Never "The content has more bytes than the venue takes." "Split the content, or ask the operator to raise `limits.content_bytes`.";
    TooLargeToStore "too_large_to_store" 413 Never "One commit cannot hold it." "Send less, or put large data into an asset's content and refer to it.";
    KeyReused "idempotency_key_reused" 422 Never "The idempotency key was used with another body." "Use a new key for a new request.";
    JobFailed "job_failed" 422 AfterRead "The job failed." "Read the job in `job`; its history says what happened.";
    JobCancelled "job_cancelled" 422 AfterRead "The job was cancelled." "Run it again if that was not meant.";
    AnswerTooLarge "answer_too_large" 422 Never "The job's JSON is larger than one answer may be." "Read its records page by page with GET /api/v1/jobs/{id}/history.";
    RateLimited "rate_limited" 429 Later "The caller asks too often; nothing happened." "Wait as long as `Retry-After` says.";
    TooManyJobs "too_many_jobs" 429 Later "The caller has as many live jobs as it may; nothing happened." "Wait for some of your jobs to end, or cancel them.";
    TooManyKeys "too_many_keys" 429 Later "As many idempotency keys as one caller may have are held; nothing happened." "Leave the key out, or wait until older ones are forgotten after 24 hours.";
    QueueFull "queue_full" 429 Later "As many messages as a job may have wait for it; nothing happened." "Wait until the job has taken some of them.";
    VenueBusy "venue_busy" 429 Later "The venue has too much to do; nothing happened." "Send the same request again after `Retry-After`.";
    Internal "internal" 500 Later "Something went wrong that should not." "Tell the operator the `x-request-id` of this answer; the log has more.";
    StoreDamaged "store_damaged" 500 Never "What is stored cannot be read." "The operator should run `catena store check` on the data folder.";
    Stopping "stopping" 503 Later "The venue is stopping." "Send the same request again when it is back.";
    JobRunning "job_running" 504 AfterRead "The job has not ended within the time of the request; it goes on." "Follow the job in `job`: GET it, or its /sse.";
    JobTimeout "job_timeout" 504 AfterRead "The job took longer than it may." "Give it more time with `timeoutMs`, or less to do.";
    StoreFull "store_full" 507 Later "The venue's disk is full; nothing happened." "The operator should free disk space.";
}

impl Code {
    /// The status it usually comes with.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
