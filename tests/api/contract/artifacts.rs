//! Sections 8.2 and 11: datasets, artifacts and signed URLs.
//!
//! Section 8.2: "`uri` is an internal storage reference. Clients obtain access via Platform-issued signed URLs.
//! `digest` is mandatory for immutability and caching".
//!
//! Section 11: "Dataset access must be via immutable digests and controlled retrieval. Artifacts must be
//! content-addressed (digest) and stored outside the worker FS".

use catena_tests::http::Connection;
use catena_tests::site::Client;
use serde_json::json;

use crate::{Bench, changed, payload, text};

/// SHA-256 of `hello`.
const HELLO: &str = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

/// SHA-256 of 3 MiB of the letter x.
const XS: &str = "sha256:3bea8a9a07c1e8dcaa4c1b816815c35a29b4fb585ba6ecc70ea44840a794cfb3";

/// The status of a HEAD request, whose response has no body.
async fn head(client: &Client, path: &str) -> u16 {
    let mut connection = Connection::open(client.address).await.unwrap();
    connection.send(&client.request("HEAD", path)).await.unwrap();
    connection.head().await.unwrap().status
}

#[tokio::test]
async fn a_dataset_belongs_to_who_uploaded_it() {
    let bench = Bench::ready().await;
    let path = format!("/contract/v1/datasets/{HELLO}");
    let wrong = bench.owner.ask(bench.owner.request("PUT", &path).body("other")).await;
    assert_eq!((wrong.status(), &wrong.json()["error"]["code"]), (400, &json!("digest_mismatch")));
    assert_eq!(head(&bench.owner, &path).await, 404);
    bench.owner.ask(bench.owner.request("PUT", &path).body("hello")).await.expect(200);
    assert_eq!(head(&bench.owner, &path).await, 200);
    let stranger = bench.site.caller(2).await;
    assert_eq!(head(&stranger, &path).await, 404);
    // The executor reads what the payload of a job that it holds names, and nothing else.
    let dependency = json!([{"kind": "dataset", "digest": HELLO}]);
    let body = changed("x", &[("/inputs/object/dependencies", dependency)]);
    let (id, job) = bench.claimed(&body).await;
    let read = |id: String, fence: i64, digest: &'static str| {
        let executor = bench.executor.clone();
        async move {
            let path = format!("/contract/v1/executor/jobs/{id}/datasets/{digest}?fence={fence}");
            executor.get(&path).await
        }
    };
    let fence = job["fence"].as_i64().unwrap();
    assert_eq!(read(id.clone(), fence, HELLO).await.expect(200).text(), "hello");
    assert_eq!(read(id.clone(), fence + 1, HELLO).await.status(), 409);
    let unnamed = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    assert_eq!(read(id.clone(), fence, unnamed).await.status(), 404);
    bench.succeed(&job).await;
    assert_eq!(read(id, fence, HELLO).await.status(), 409, "the lease is over");
    // The same digest in a job of another owner is absent.
    stranger.post("/contract/v1/jobs", &body).await.expect(202);
    let job = bench.claim("e1").await;
    let fence = job["fence"].as_i64().unwrap();
    assert_eq!(read(text(&job, "id"), fence, HELLO).await.status(), 404);
}

/// "HEAD and PUT do not reveal who has what."
#[tokio::test]
async fn an_upload_is_answered_alike_whether_or_not_another_owner_has_the_data() {
    let bench = Bench::ready().await;
    let path = format!("/contract/v1/datasets/{HELLO}");
    let mut replies = Vec::new();
    // The second of them uploads what the first one has; the first one repeats its upload at the end.
    for owner in [1, 2, 1] {
        let client = bench.site.caller(owner).await;
        let reply = client.ask(client.request("PUT", &path).body("hello")).await;
        replies.push((reply.status(), reply.text().to_owned()));
    }
    assert_eq!(replies[0].0, 200);
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    // Nor does a wrong content, nor what HEAD says of it.
    let stranger = bench.site.caller(3).await;
    for digest in [HELLO, XS] {
        let path = format!("/contract/v1/datasets/{digest}");
        let wrong = stranger.ask(stranger.request("PUT", &path).body("other")).await;
        assert_eq!(
            (wrong.status(), &wrong.json()["error"]["code"]),
            (400, &json!("digest_mismatch"))
        );
        assert_eq!(head(&stranger, &path).await, 404);
    }
}

/// "`attachment` for HTML, SVG and everything else that can execute".
#[tokio::test]
async fn only_images_without_code_are_shown_in_place() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&payload("a")).await;
    let path = format!("/contract/v1/executor/jobs/{id}/artifacts/{HELLO}?fence={}", job["fence"]);
    bench.executor.ask(bench.executor.request("PUT", &path).body("hello")).await.expect(200);
    let kinds = [
        ("png", "image/png", false),
        ("svg", "image/svg+xml", true),
        ("pdf", "application/pdf", true),
        ("xml", "application/xml", true),
        ("js", "text/javascript", true),
        ("txt", "text/plain", true),
        ("html", "text/html", true),
        ("bin", "application/octet-stream", true),
    ];
    let artifacts = kinds.map(|(format, content_type, _)| {
        json!({"artifact_id": format, "kind": "file", "format": format, "digest": HELLO,
            "size_bytes": 5, "uri": format!("blob:{HELLO}"), "content_type": content_type,
            "metadata": {"name": format!("x.{format}")}})
    });
    let end = json!({"output": {}, "execution": {"artifacts": artifacts}});
    bench.end(&job, end).await.expect(200);
    for (format, content_type, is_attached) in kinds {
        let path = format!("/contract/v1/jobs/{id}/artifacts/{format}");
        let url = text(&bench.owner.get(&path).await.expect(200).json(), "url");
        let reply = bench.site.get(&url[url.find("/contract").unwrap()..]).await.expect(200);
        let disposition = reply.header("content-disposition").unwrap_or("inline");
        assert_eq!(disposition.starts_with("attachment"), is_attached, "{format}: {disposition}");
        assert_eq!(reply.header("content-type"), Some(content_type));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{format}");
        assert_eq!(reply.header("content-security-policy"), Some("sandbox"), "{format}");
    }
}

#[tokio::test]
async fn an_executor_reads_files_of_the_owners_jobs_if_the_payload_names_them() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&payload("makes a file")).await;
    let path = format!("/contract/v1/executor/jobs/{id}/artifacts/{HELLO}?fence={}", job["fence"]);
    bench.executor.ask(bench.executor.request("PUT", &path).body("hello")).await.expect(200);
    let artifact = json!({"artifact_id": HELLO, "digest": HELLO, "format": "txt",
        "content_type": "text/plain", "metadata": {"name": "x.txt"}});
    bench
        .end(&job, json!({"output": {}, "execution": {"artifacts": [artifact]}}))
        .await
        .expect(200);
    let read = |job: serde_json::Value| {
        let executor = bench.executor.clone();
        let (id, fence) = (text(&job, "id"), &job["fence"]);
        let path = format!("/contract/v1/executor/jobs/{id}/datasets/{HELLO}?fence={fence}");
        async move { executor.get(&path).await }
    };
    let dependency = json!([{"kind": "dataset", "digest": HELLO}]);
    let body = changed("x", &[("/inputs/object/dependencies", dependency)]);
    let (_, job) = bench.claimed(&body).await;
    assert_eq!(read(job.clone()).await.expect(200).text(), "hello");
    bench.succeed(&job).await;
    // A job of the same owner that does not name it cannot read it.
    let (_, job) = bench.claimed(&payload("names nothing")).await;
    assert_eq!(read(job.clone()).await.status(), 404);
    bench.succeed(&job).await;
    // Neither can a job of another owner that does.
    let stranger = bench.site.caller(2).await;
    stranger.post("/contract/v1/jobs", &body).await.expect(202);
    let job = bench.claim("e1").await;
    assert_eq!(read(job).await.status(), 404);
}

#[tokio::test]
async fn a_signed_url_serves_an_artifact_until_it_expires_or_the_job_is_deleted() {
    let bench = Bench::ready().await;
    let (id, job) = bench.claimed(&payload("a")).await;
    let path = format!("/contract/v1/executor/jobs/{id}/artifacts/{HELLO}?fence={}", job["fence"]);
    bench.executor.ask(bench.executor.request("PUT", &path).body("hello")).await.expect(200);
    let artifact = json!({"artifact_id": "a1", "kind": "file", "format": "html", "digest": HELLO,
        "size_bytes": 5, "uri": format!("blob:{HELLO}"), "content_type": "text/html",
        "metadata": {"name": "x.html"}});
    let end = json!({"output": {}, "execution": {"artifacts": [artifact]}});
    bench.end(&job, end).await.expect(200);
    let signed =
        bench.owner.get(&format!("/contract/v1/jobs/{id}/artifacts/a1")).await.expect(200).json();
    assert_eq!(signed["digest"], HELLO);
    let url = text(&signed, "url");
    let url = url[url.find("/contract").unwrap()..].to_owned();
    // Without other credentials.
    let reply = bench.site.get(&url).await.expect(200);
    assert_eq!(reply.text(), "hello");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox"),
        ("content-disposition", "attachment"),
    ] {
        assert_eq!(reply.header(name), Some(value));
    }
    let part = bench.site.ask(bench.site.request("GET", &url).header("range", "bytes=1-3")).await;
    assert_eq!((part.status(), part.text()), (206, "ell"));
    assert_eq!(part.header("content-range"), Some("bytes 1-3/5"));
    let code = |reply: catena_tests::http::Reply| {
        (reply.status(), reply.json()["error"]["code"].as_str().unwrap().to_owned())
    };
    let invalid = (403, "url_invalid".to_owned());
    let mut forged = url.clone();
    let last = if forged.pop() == Some('0') { '1' } else { '0' };
    forged.push(last);
    assert_eq!(code(bench.site.get(&forged).await), invalid);
    assert_eq!(code(bench.site.get(url.split('&').next().unwrap()).await), invalid);
    let later = url.replace("expires=", "expires=9");
    assert_eq!(code(bench.site.get(&later).await), invalid);
    let short = bench.owner.get(&format!("/contract/v1/jobs/{id}/artifacts/a1?ttl_s=1")).await;
    let short = text(&short.expect(200).json(), "url");
    let short = short[short.find("/contract").unwrap()..].to_owned();
    let started = tokio::time::Instant::now();
    let expired = loop {
        let reply = bench.site.get(&short).await;
        if reply.status() != 200 {
            break code(reply);
        }
        assert!(started.elapsed() < catena_tests::TIMEOUT, "it does not expire");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(expired, (403, "url_expired".to_owned()));
    for ttl in ["0", "86401", "x"] {
        let path = format!("/contract/v1/jobs/{id}/artifacts/a1?ttl_s={ttl}");
        assert_eq!(bench.owner.get(&path).await.status(), 400, "{ttl}");
    }
    let none = bench.owner.get(&format!("/contract/v1/jobs/{id}/artifacts/a2")).await;
    assert_eq!(code(none), (404, "artifact_not_found".to_owned()));
    let stranger = bench.site.caller(2).await;
    assert_eq!(stranger.get(&format!("/contract/v1/jobs/{id}/artifacts/a1")).await.status(), 404);
    bench.owner.put(&format!("/api/v1/jobs/{id}/delete")).await;
    assert_eq!(code(bench.site.get(&url).await), invalid, "deleting the job revokes its URLs");
}

#[tokio::test]
async fn files_of_a_job_count_as_stored_for_its_owner() {
    let bench = Bench::with(|flags| flags.stored_bytes = Some("2MB".to_owned())).await;
    bench.announce().await;
    let (id, job) = bench.claimed(&payload("a")).await;
    let path = format!("/contract/v1/executor/jobs/{id}/artifacts/{XS}?fence={}", job["fence"]);
    let upload = bench.executor.request("PUT", &path).body("x".repeat(3 << 20));
    bench.executor.ask(upload).await.expect(200);
    bench.succeed(&job).await;
    let echo = json!({"operation": "test:echo", "input": {}});
    bench.owner.post("/api/v1/invoke", &echo).await.expect_error(429, "storage_full");
    let stranger = bench.site.caller(2).await;
    stranger.post("/api/v1/invoke", &echo).await.expect(201);
    // They are removed with the job.
    bench.owner.put(&format!("/api/v1/jobs/{id}/delete")).await.expect(200);
    let freed = async {
        while bench.owner.post("/api/v1/invoke", &echo).await.status() != 201 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, freed).await.unwrap();
}

#[tokio::test]
async fn a_worker_exchanges_blobs_of_its_owner() {
    let bench = Bench::start().await;
    let path = format!("/worker/v1/blobs/{HELLO}");
    bench.owner.ask(bench.owner.request("PUT", &path).body("hello")).await.expect(200);
    assert_eq!(bench.owner.get(&path).await.expect(200).text(), "hello");
    let stranger = bench.site.caller(2).await;
    assert_eq!(stranger.get(&path).await.status(), 404);
}

#[tokio::test]
async fn a_file_is_removed_with_the_last_job_that_has_it_unless_it_is_a_dataset() {
    let bench = Bench::ready().await;
    // A large file and a small one are stored in different places.
    let large = "x".repeat(3 << 20);
    let digests = [HELLO.to_owned(), XS.to_owned()];
    let contents = ["hello".to_owned(), large];
    let mut jobs = Vec::new();
    for source in ["one", "two"] {
        let (id, job) = bench.claimed(&payload(source)).await;
        let mut artifacts = Vec::new();
        for (digest, content) in digests.iter().zip(&contents) {
            let fence = &job["fence"];
            let path = format!("/contract/v1/executor/jobs/{id}/artifacts/{digest}?fence={fence}");
            let request = bench.executor.request("PUT", &path).body(content.clone());
            bench.executor.ask(request).await.expect(200);
            artifacts.push(json!({"artifact_id": digest, "digest": digest, "format": "txt",
                "content_type": "text/plain", "metadata": {"name": "x.txt"}}));
        }
        let end = json!({"output": {}, "execution": {"artifacts": artifacts}});
        bench.end(&job, end).await.expect(200);
        jobs.push(id);
    }
    let files = || {
        let mut folders = vec![bench.site.data().join("blobs")];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                if entry.path().is_dir() {
                    folders.push(entry.path());
                } else {
                    count += usize::from(entry.metadata().unwrap().len() >= 3 << 20);
                }
            }
        }
        count
    };
    let url = |id: &str, digest: &str| {
        let (owner, path) =
            (bench.owner.clone(), format!("/contract/v1/jobs/{id}/artifacts/{digest}"));
        async move {
            let url = text(&owner.get(&path).await.expect(200).json(), "url");
            url[url.find("/contract").unwrap()..].to_owned()
        }
    };
    let first = url(&jobs[0], &digests[1]).await;
    let second = url(&jobs[1], &digests[1]).await;
    assert_eq!(bench.site.get(&first).await.status(), 200);
    assert_eq!(files(), 1, "equal files are stored once");
    bench.owner.put(&format!("/api/v1/jobs/{}/delete", jobs[0])).await.expect(200);
    assert_eq!(bench.site.get(&first).await.status(), 403, "its URLs are revoked");
    assert_eq!(bench.site.get(&second).await.expect(200).text().len(), 3 << 20);
    // The small one is a dataset of its owner from now on.
    let path = format!("/contract/v1/datasets/{HELLO}");
    bench.owner.ask(bench.owner.request("PUT", &path).body("hello")).await.expect(200);
    bench.owner.put(&format!("/api/v1/jobs/{}/delete", jobs[1])).await.expect(200);
    assert_eq!(files(), 0, "nothing refers to it");
    let path = format!("/worker/v1/blobs/{HELLO}");
    assert_eq!(bench.owner.get(&path).await.expect(200).text(), "hello");
}
