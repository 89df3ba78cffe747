//! The routes of the contract API. `docs/reference/contract.md` describes it.

use axum::http::Method;

use crate::contract::{artifacts, blobs, executor, executors, jobs};
use crate::http::error::Code;
use crate::http::route::{
    ANY, Access, IDEMPOTENCY_KEY, JSON, ROUTE, RequestBody, Route, empty_reply, query, reply,
};

const ID: &str = "The job's ID: a UUID, or 32 hex digits with or without `0x`.";
const ARTIFACT: &str = "The `artifact_id` of an artifact in the job's result.";
const DIGEST: &str = "`sha256:` and 64 hex digits.";
const BYTES: &str = "application/octet-stream";
const BINARY: &str = r#"{"type":"string","format":"binary"}"#;
const OBJECT: &str = r#"{"type":"object"}"#;

const EXECUTORS: &str = r#"{"type":"object","required":["slots","running","executors","environments"],
    "properties":{"slots":{"type":"integer"},"running":{"type":"integer"},
    "executors":{"type":"array","items":{"type":"object","required":["executor","tier","tiers","slots",
        "running","announced_at","heartbeat_at","lease_until","environments"],"properties":{
        "executor":{"type":"string"},"tier":{"type":["string","null"]},
        "tiers":{"type":"array","items":{"type":"object","properties":{"tier":{"type":"string"},
            "available":{"type":"boolean"},"reason":{"type":"string"}}}},
        "slots":{"type":"integer"},"running":{"type":"integer"},"announced_at":{"type":"string"},
        "heartbeat_at":{"type":"string"},"lease_until":{"type":["string","null"]},
        "environments":{"type":"array","items":{"type":"string"}},"unavailable":{"type":"string"}}}},
    "environments":{"type":"array","items":{"type":"object","properties":{
        "env_version":{"type":"string"},"profile":{"type":"string"},
        "job_types":{"type":"array","items":{"type":"string"}},"is_default":{"type":"boolean"},
        "executors":{"type":"integer"},"announced_at":{"type":"string"}}}}}}"#;

const FENCE: crate::http::route::Parameter = query(
    "fence",
    r#"{"type":"integer","minimum":0}"#,
    "The fence under which the executor holds the job.",
);

const CONTENT: RequestBody =
    RequestBody { about: "The content.", media: BYTES, schema: BINARY, is_required: true };

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::POST,
        path: "/contract/v1/jobs",
        tag: "Contract",
        summary: "Create a contract job",
        about: "The job is durable and queued before the response is sent. If an earlier job of the \
                caller in the same workspace has the same `execution_key`, it is returned instead: one \
                that succeeded or has not ended, and with `reuse_failed` also one that failed.",
        parameters: &[IDEMPOTENCY_KEY],
        body: Some(RequestBody {
            about: "The payload envelope without `job_id`, `created_at` and `execution_key`. \
                    `supersede` cancels earlier jobs of the same objects that have not ended.",
            media: JSON,
            schema: OBJECT,
            is_required: true,
        }),
        replies: &[
            reply(200, "An earlier job with the same key.", OBJECT),
            reply(202, "The job.", OBJECT),
        ],
        errors: &[
            Code::InvalidPayload,
            Code::InvalidJson,
            Code::Forbidden,
            Code::KeyInFlight,
            Code::BodyTooLarge,
            Code::KeyReused,
            Code::TooManyJobs,
            Code::StorageFull,
            Code::NoEnvironment,
        ],
        handler: |request| Box::pin(jobs::create(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/jobs",
        tag: "Contract",
        summary: "List jobs",
        about: "Newest first.",
        parameters: &[
            query("workspace_id", r#"{"type":"string"}"#, "Only jobs of this workspace."),
            query("document_id", r#"{"type":"string"}"#, "Only jobs of this document."),
            query("status", r#"{"type":"string"}"#, "Only jobs with this contract status."),
            query(
                "limit",
                r#"{"type":"integer","minimum":1,"maximum":200}"#,
                "The page size. Defaults to 50.",
            ),
            query("cursor", r#"{"type":"string"}"#, "`next` of the previous page."),
        ],
        replies: &[reply(200, "A page of jobs.", OBJECT)],
        errors: &[Code::BadRequest],
        handler: |request| Box::pin(jobs::list_jobs(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/jobs/{job_id}",
        path_parameter: ID,
        tag: "Contract",
        summary: "Read the result envelope of a job",
        about: "Before the end it has the members that are known so far. Any other job has its operation \
                as `job_type` and a null identity.",
        parameters: &[query(
            "wait",
            r#"{"type":"integer","minimum":0}"#,
            "Waits up to this many milliseconds for the job's end.",
        )],
        replies: &[reply(200, "The result envelope.", OBJECT)],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobDeleted],
        handler: |request| Box::pin(jobs::read(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/jobs/{job_id}/payload",
        path_parameter: ID,
        tag: "Contract",
        summary: "Read the payload of a job",
        about: "What the executor gets.",
        replies: &[reply(200, "The payload envelope.", OBJECT)],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobDeleted],
        handler: |request| Box::pin(jobs::payload(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/contract/v1/jobs/{job_id}/cancel",
        path_parameter: ID,
        tag: "Contract",
        summary: "Cancel a job",
        about: "A job that has ended is returned unchanged.",
        replies: &[reply(200, "The result envelope.", OBJECT)],
        errors: &[Code::InvalidJobId, Code::JobNotFound, Code::JobDeleted],
        handler: |request| Box::pin(jobs::cancel(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/jobs/{job_id}/artifacts/{artifact_id}",
        path_parameter: ID,
        second_parameter: ARTIFACT,
        tag: "Contract",
        summary: "Get a signed URL of an artifact",
        about: "The URL serves the bytes without other credentials until it expires.",
        parameters: &[query(
            "ttl_s",
            r#"{"type":"integer","minimum":1,"maximum":86400}"#,
            "How many seconds the URL is valid. Defaults to 300.",
        )],
        replies: &[reply(200, "The artifact with `url` and `expires_at`.", OBJECT)],
        errors: &[Code::BadRequest, Code::InvalidJobId, Code::JobNotFound, Code::ArtifactNotFound],
        handler: |request| Box::pin(artifacts::sign(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/jobs/{job_id}/artifacts/{artifact_id}/content",
        path_parameter: ID,
        second_parameter: ARTIFACT,
        tag: "Contract",
        summary: "Download an artifact by its signed URL",
        about: "Ranges are supported. Deleting the job revokes its URLs.",
        access: Access::Public,
        parameters: &[
            query("expires", r#"{"type":"integer"}"#, "When the URL expires, in Unix seconds."),
            query("signature", r#"{"type":"string"}"#, "The signature of the URL."),
        ],
        replies: &[
            crate::http::route::Reply {
                status: 200,
                about: "The content.",
                body: Some((BYTES, BINARY)),
            },
            crate::http::route::Reply {
                status: 206,
                about: "A range of the content.",
                body: Some((BYTES, BINARY)),
            },
        ],
        errors: &[Code::UrlInvalid, Code::UrlExpired],
        handler: |request| Box::pin(artifacts::download(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/contract/v1/datasets/{digest}",
        path_parameter: DIGEST,
        tag: "Contract",
        summary: "Upload a dataset",
        about: "The content must have the digest. Only the caller's own jobs can read it.",
        body: Some(CONTENT),
        replies: &[reply(200, "Digest and size of the dataset.", OBJECT)],
        errors: &[Code::BadRequest, Code::DigestMismatch, Code::ContentTooLarge],
        handler: |request| Box::pin(blobs::put(request)),
        ..ROUTE
    },
    Route {
        method: Method::HEAD,
        path: "/contract/v1/datasets/{digest}",
        path_parameter: DIGEST,
        tag: "Contract",
        summary: "Check whether the caller has uploaded a dataset",
        replies: &[empty_reply(200, "The caller has uploaded it.")],
        errors: &[Code::BadRequest, Code::BlobNotFound],
        handler: |request| Box::pin(blobs::head(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/executors",
        tag: "Contract",
        summary: "List the executors that are connected and the environments that are known",
        about: "Executors whose lease has ended are not listed. An environment stays known while no \
                executor has it. `running` counts all jobs for admins, and the caller's own for others.",
        replies: &[reply(200, "Executors by name and environments by version.", EXECUTORS)],
        handler: |request| Box::pin(executors::list_executors(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/worker/v1/blobs/{digest}",
        path_parameter: DIGEST,
        tag: "Workers",
        summary: "Upload a blob",
        about: "The content must have the digest. It belongs to the owner of the worker's queues.",
        body: Some(CONTENT),
        replies: &[reply(200, "Digest and size of the blob.", OBJECT)],
        errors: &[Code::BadRequest, Code::DigestMismatch, Code::ContentTooLarge],
        handler: |request| Box::pin(blobs::put(request)),
        ..ROUTE
    },
    Route {
        path: "/worker/v1/blobs/{digest}",
        path_parameter: DIGEST,
        tag: "Workers",
        summary: "Download a blob",
        about: "Only what the owner of the worker's queues has uploaded.",
        replies: &[crate::http::route::Reply {
            status: 200,
            about: "The content.",
            body: Some((BYTES, BINARY)),
        }],
        errors: &[Code::BadRequest, Code::BlobNotFound],
        handler: |request| Box::pin(blobs::get(request)),
        ..ROUTE
    },
    Route {
        method: Method::POST,
        path: "/contract/v1/executor/announce",
        tag: "Contract",
        summary: "Announce the environments of an executor",
        about: "Only with a token for executors.",
        body: Some(RequestBody {
            about: "The environments, or why there is none.",
            media: JSON,
            schema: r#"{"type":"object","required":["worker","environments"],"properties":{
                "worker":{"type":"string"},"slots":{"type":"integer"},"tier":{"type":"string"},
                "tiers":{"type":"array","items":{"type":"object"}},"unavailable":{"type":"string"},
                "environments":{"type":"array","items":{"type":"object"}}}}"#,
            is_required: true,
        }),
        replies: &[reply(200, "The announcement is durable.", ANY)],
        errors: &[Code::BadRequest, Code::InvalidJson, Code::Forbidden],
        handler: |request| Box::pin(executor::announce(request)),
        ..ROUTE
    },
    Route {
        path: "/contract/v1/executor/jobs/{job_id}/datasets/{digest}",
        path_parameter: ID,
        second_parameter: DIGEST,
        tag: "Contract",
        summary: "Download a dataset that a job names",
        about: "Only for the executor that holds the job, and only what its owner has uploaded.",
        parameters: &[FENCE],
        replies: &[crate::http::route::Reply {
            status: 200,
            about: "The content.",
            body: Some((BYTES, BINARY)),
        }],
        errors: &[Code::BadRequest, Code::Forbidden, Code::BlobNotFound, Code::Fenced],
        handler: |request| Box::pin(executor::dataset(request)),
        ..ROUTE
    },
    Route {
        method: Method::PUT,
        path: "/contract/v1/executor/jobs/{job_id}/artifacts/{digest}",
        path_parameter: ID,
        second_parameter: DIGEST,
        tag: "Contract",
        summary: "Upload a file that a job produced",
        about: "Only for the executor that holds the job.",
        parameters: &[FENCE],
        body: Some(CONTENT),
        replies: &[reply(200, "Digest and size of the file.", OBJECT)],
        errors: &[
            Code::BadRequest,
            Code::Forbidden,
            Code::DigestMismatch,
            Code::ContentTooLarge,
            Code::Fenced,
        ],
        handler: |request| Box::pin(executor::artifact(request)),
        ..ROUTE
    },
];
