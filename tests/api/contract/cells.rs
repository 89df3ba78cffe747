//! Sections 7.1, 8, 9, 10.2 and 11 with a real executor: cells run in the sandbox, and their ends have
//! categories.
//!
//! Section 8.1, "Envelope (common)": `schema_version`, `job_id`, `job_type`, `status`, `started_at`,
//! `finished_at`, `duration_ms`, `resource_usage` (`cpu_ms`, `memory_mb_peak`), `outputs` (`result_json`,
//! `stdout`, `stderr`), `artifacts` (`artifact_id`, `kind`, `format`, `digest`, `size_bytes`, `uri`,
//! `content_type`, `metadata`), `logs` (`level`, `message`, `timestamp`).
//!
//! Section 8.3: "`stdout` and `stderr` must be truncated to `max_output_kb`; `logs` must be bounded in count
//! and size".
//!
//! Section 9.1, "Failure envelope": the same with `error` (`category`, `code`, `message`, `details` with
//! `traceback`, `line`, `column`).
//!
//! Section 10.2: "If the worker supports cooperative cancellation, it should terminate early".
//!
//! Section 11: "Network disabled unless explicitly permitted. File writes restricted to a temp job directory.
//! Artifacts must be content-addressed (digest) and stored outside the worker FS".
//!
//! Section 9.2, "Error categories (required)":
//!
//! - `USER_CODE_ERROR`: "exceptions, invalid inputs, assertion failures"
//! - `VALIDATION_ERROR`: "payload schema mismatch, unsupported object type" (see `envelope`)
//! - `RESOURCE_LIMIT`: "memory/time/output exceeded"
//! - `SANDBOX_VIOLATION`: "forbidden syscall/fs/network attempt"
//! - `DEPENDENCY_ERROR`: "missing dataset or invalid digest reference"
//! - `INTERNAL_ERROR`: "worker crash, unhandled error, infra issues" (see `lifecycle`)

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catena_api::{Credentials, HttpClient};
use catena_executor::install::{Installed, RECIPES, install};
use catena_executor::limits::PAUSE_MAX;
use catena_executor::{Executor, Options};
use catena_sandbox::{Tier, USUAL_PATHS};
use catena_tests::mcp::{McpClient, STATELESS};
use catena_tests::site::Client;
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use crate::{Bench, changed, payload, text, uuid};

/// A venue with a real executor.
struct Live {
    bench: Bench,
    stop: Option<oneshot::Sender<()>>,
    running: Option<tokio::task::JoinHandle<()>>,
}

impl Live {
    async fn start() -> Live {
        Live::with_environments(None).await
    }

    async fn with_environments(environments: Option<PathBuf>) -> Live {
        Live::with(|options| options.environments = environments).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Live {
        let bench = Bench::start().await;
        let did =
            bench.site.get("/.well-known/did.json").await.json()["id"].as_str().unwrap().to_owned();
        let token = bench.site.worker_token(&did, &["exec.*"]);
        let venue = format!("http://{}", bench.site.address).parse().unwrap();
        let client =
            HttpClient::connect(venue, Credentials::Token(token)).with_expected_did(Some(did));
        let mut options = Options {
            name: "executor-test".to_owned(),
            slots: 2,
            interpreters: USUAL_PATHS.iter().map(Into::into).collect(),
            environments: None,
            spool: std::env::temp_dir(),
            minimum: Tier::T2,
            renders: false,
            grace: Duration::from_secs(5),
            pause_max: PAUSE_MAX,
        };
        change(&mut options);
        let executor =
            tokio::task::spawn_blocking(move || Executor::start(client, options)).await.unwrap();
        executor.versions().expect("the sandbox works on this host");
        assert!(executor.problems().is_empty(), "{:?}", executor.problems());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let shutdown = async move {
                let _ = stopped.await;
            };
            executor.run(shutdown).await.unwrap();
        });
        let live = Live { bench, stop: Some(stop), running: Some(running) };
        live.announced().await;
        live
    }

    /// Waits until the venue knows the environment.
    async fn announced(&self) {
        let started = tokio::time::Instant::now();
        loop {
            let body = changed("1", &[("/environment", json!({"env_version": "none"}))]);
            let reply = self.bench.owner.post("/contract/v1/jobs", &body).await;
            if reply.status() == 400 {
                return;
            }
            assert!(started.elapsed() < catena_tests::TIMEOUT, "no environment was announced");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn run(&self, body: &Json) -> Json {
        run_as(&self.bench.owner, body).await
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        self.running.take().unwrap().await.unwrap();
    }
}

/// Submits a job of this owner and returns its result.
async fn run_as(owner: &Client, body: &Json) -> Json {
    let reply = owner.post("/contract/v1/jobs", body).await;
    assert_eq!(reply.status(), 202, "{}", reply.text());
    result_of(owner, &text(&reply.json(), "job_id")).await
}

/// Waits for the end of a job and returns its result.
async fn result_of(owner: &Client, id: &str) -> Json {
    owner.get(&format!("/contract/v1/jobs/{id}?wait=25000")).await.expect(200).json()
}

/// Submits a job of this owner, and waits until its cell has reported progress.
async fn begun(owner: &Client, body: &Json) -> String {
    let reply = owner.post("/contract/v1/jobs", body).await.expect(202);
    let id = text(&reply.json(), "job_id");
    owner.until_that(&id, |job| job["progress"].is_object()).await;
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_runs_with_its_parameters_data_and_files() {
    let live = Live::start().await;
    let result = live.run(&payload("print(1)")).await;
    assert_eq!(result["status"], "SUCCEEDED", "{result}");
    assert_eq!(result["outputs"]["stdout"], "1\n");
    assert!(text(&result["environment"], "env_version").starts_with("py-bare@"));
    assert!(result["resource_usage"]["cpu_ms"].is_i64(), "{result}");

    let source = "def main(x):\n    open('out.json', 'w').write('{}')\n    open('skip.bin', 'w').write('x')\n    return {'x': x, 'data': open('inputs/data.txt').read()}";
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let owner = &live.bench.owner;
    let body = changed(
        source,
        &[
            ("/inputs/object/runtime/parameters", json!({"x": 9_007_199_254_740_993_i64})),
            (
                "/inputs/object/dependencies",
                json!([{"kind": "dataset", "digest": digest, "name": "data.txt"}]),
            ),
        ],
    );
    let missing = live.run(&body).await;
    assert_eq!(
        (&missing["status"], &missing["error"]["category"]),
        (&json!("FAILED"), &json!("DEPENDENCY_ERROR")),
        "{missing}"
    );
    owner
        .ask(owner.request("PUT", &format!("/contract/v1/datasets/{digest}")).body("hello"))
        .await
        .expect(200);
    let result = live.run(&body).await;
    assert_eq!(
        result["outputs"]["result_json"],
        json!({"x": 9_007_199_254_740_993_i64, "data": "hello"}),
        "{result}"
    );
    let artifacts = result["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.len(), 1, "only files whose format was requested: {result}");
    assert_eq!(artifacts[0]["metadata"]["name"], "out.json");
    let path = format!(
        "/contract/v1/jobs/{}/artifacts/{}",
        text(&result, "job_id"),
        text(&artifacts[0], "artifact_id")
    );
    let url = text(&owner.get(&path).await.expect(200).json(), "url");
    assert_eq!(
        live.bench.site.get(&url[url.find("/contract").unwrap()..]).await.expect(200).text(),
        "{}"
    );
    live.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_says_what_its_host_allows() {
    let live = Live::start().await;
    let started = tokio::time::Instant::now();
    let executor = loop {
        let listed = live.bench.owner.get("/contract/v1/executors").await.expect(200).json();
        let executor = listed["executors"][0].clone();
        // The tiers are tried while the first jobs run.
        if executor["tiers"].as_array().is_some_and(|tiers| !tiers.is_empty()) {
            break executor;
        }
        assert!(started.elapsed() < catena_tests::TIMEOUT, "{listed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&executor["executor"], &executor["slots"]), (&json!("executor-test"), &json!(2)));
    let tiers = executor["tiers"].as_array().unwrap();
    let names: Vec<&str> = tiers.iter().filter_map(|tier| tier["tier"].as_str()).collect();
    assert_eq!(names, ["T1", "T2", "T3", "T4", "T5"]);
    assert!(tiers.iter().all(|tier| !text(tier, "reason").is_empty()), "{executor}");
    let used = tiers.iter().find(|tier| tier["available"] == true).unwrap();
    assert_eq!(used["tier"], executor["tier"], "the strongest that works is used");
    live.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_cell_reports_its_progress() {
    let live = Live::start().await;
    let owner = &live.bench.owner;
    let body = payload("import time\nprogress(3, total=8)\ntime.sleep(600)");
    let id = text(&owner.post("/contract/v1/jobs", &body).await.expect(202).json(), "job_id");
    let started = tokio::time::Instant::now();
    let progress = loop {
        let progress = live.bench.read(&id).await["progress"].clone();
        if progress.is_object() {
            break progress;
        }
        assert!(started.elapsed() < catena_tests::TIMEOUT, "no progress was reported");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((&progress["processedItems"], &progress["totalItems"]), (&json!(3), &json!(8)));
    owner.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    live.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_has_the_fields_of_the_envelope() {
    let live = Live::start().await;
    let source = "import base64, sys\nprint('out')\nprint('err', file=sys.stderr)\n\
        png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\n\
        open('dot.png', 'wb').write(png)\nopen('fake.png', 'w').write('no')\n\
        def main(): return {'ok': True}";
    let result = live.run(&payload(source)).await;
    assert_eq!(result["status"], "SUCCEEDED", "{result}");
    for name in ["schema_version", "job_id", "job_type", "started_at", "finished_at"] {
        assert!(result[name].is_string(), "{name}: {result}");
    }
    assert!(result["started_at"].as_str() <= result["finished_at"].as_str(), "{result}");
    assert!(result["duration_ms"].as_i64() >= Some(0), "{result}");
    let usage = &result["resource_usage"];
    assert!(usage["cpu_ms"].is_i64() && usage["memory_mb_peak"].as_i64() > Some(0), "{usage}");
    let outputs = &result["outputs"];
    assert_eq!(
        (&outputs["result_json"], &outputs["stdout"], &outputs["stderr"]),
        (&json!({"ok": true}), &json!("out\n"), &json!("err\n"))
    );
    let [artifact] = result["artifacts"].as_array().unwrap().as_slice() else {
        panic!("a file that is no PNG is no artifact: {result}");
    };
    let digest = text(artifact, "digest");
    assert_eq!(digest.len(), "sha256:".len() + 64);
    assert_eq!(artifact["uri"], format!("blob:{digest}"));
    assert_eq!(text(artifact, "artifact_id").len(), 36);
    assert_eq!(
        (&artifact["format"], &artifact["content_type"], &artifact["size_bytes"]),
        (&json!("png"), &json!("image/png"), &json!(70))
    );
    let metadata = &artifact["metadata"];
    assert_eq!((&metadata["width"], &metadata["height"]), (&json!(1), &json!(1)), "{metadata}");
    let logs = result["logs"].as_array().unwrap();
    assert!(logs.iter().any(|log| text(log, "message").contains("fake.png")), "{logs:?}");
    for log in logs {
        assert!(log["level"].is_string() && log["timestamp"].is_string(), "{log}");
    }
    // Logs are bounded: every refused file has an entry, up to a number.
    let many = "for n in range(300):\n    open(f'{n}.png', 'w').write('no')";
    let result = live.run(&payload(many)).await;
    let kept = result["logs"].as_array().unwrap();
    assert!(kept.len() <= 200 && result["logs_dropped"].as_i64() > Some(0), "{}", kept.len());
    assert!(kept.iter().all(|log| text(log, "message").len() <= 2_000));
    let failing = "def f(n):\n    return 1 / n\ndef main():\n    return f(0)";
    let result = live.run(&payload(failing)).await;
    let error = &result["error"];
    assert_eq!(result["status"], "FAILED");
    assert_eq!(
        (&error["category"], &error["code"], &error["message"]),
        (
            &json!("USER_CODE_ERROR"),
            &json!("PYTHON_EXCEPTION"),
            &json!("ZeroDivisionError: division by zero")
        )
    );
    assert_eq!(error["details"]["line"], 2, "the innermost line: {error}");
    assert!(text(&error["details"], "traceback").contains("ZeroDivisionError"), "{error}");
    assert_eq!(result["artifacts"], json!([]));
    assert!(result["started_at"].is_string() && result["finished_at"].is_string());
    let result = live.run(&payload("x = (1 +\n")).await;
    assert_eq!(result["error"]["code"], "SYNTAX_ERROR");
    assert!(result["error"]["details"]["column"].is_i64(), "{result}");
    live.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_failure_has_its_category() {
    let live = Live::start().await;
    let quick = json!({"timeout_ms": 500});
    for (source, limits, status, category, code) in [
        ("1 / 0", json!({}), "FAILED", "USER_CODE_ERROR", "PYTHON_EXCEPTION"),
        ("assert False", json!({}), "FAILED", "USER_CODE_ERROR", "PYTHON_EXCEPTION"),
        ("def", json!({}), "FAILED", "USER_CODE_ERROR", "SYNTAX_ERROR"),
        ("import nothing_like_this", json!({}), "FAILED", "USER_CODE_ERROR", "MODULE_NOT_FOUND"),
        ("import time\ntime.sleep(60)", quick, "TIMED_OUT", "RESOURCE_LIMIT", "TIME_LIMIT"),
        (
            "x = bytearray(1 << 30)\nx[::4096] = b'1' * len(x[::4096])",
            json!({"memory_mb": 64}),
            "FAILED",
            "RESOURCE_LIMIT",
            "MEMORY_LIMIT",
        ),
        (
            "print('x' * (1 << 20))",
            json!({"max_output_kb": 1}),
            "FAILED",
            "RESOURCE_LIMIT",
            "OUTPUT_LIMIT",
        ),
        ("open('/etc/passwd')", json!({}), "FAILED", "SANDBOX_VIOLATION", "FORBIDDEN_ACCESS"),
        (
            "import socket\nsocket.socket()",
            json!({}),
            "FAILED",
            "SANDBOX_VIOLATION",
            "FORBIDDEN_SYSCALL",
        ),
    ] {
        let result = live.run(&changed(source, &[("/limits", limits)])).await;
        assert_eq!(result["status"], status, "{source}: {result}");
        assert_eq!(result["error"]["category"], category, "{source}: {result}");
        assert_eq!(result["error"]["code"], code, "{source}: {result}");
        assert_eq!(result["attempt"], 1);
    }
    let result = live.run(&payload("print('a')\nx = 1\nraise ValueError('no')")).await;
    assert_eq!(result["error"]["details"]["line"], 3, "{result}");
    assert_eq!(result["outputs"]["stdout"], "a\n");
    let blocks = json!({"format": "blockdoc", "value": {"blocks": [
        {"id": "b1", "type": "code", "language": "python", "source": "x = 1"},
        {"id": "b2", "type": "code", "language": "python", "source": "y = 2\n1 / 0"}]}});
    let result = live.run(&changed("", &[("/inputs/object/content", blocks)])).await;
    let details = &result["error"]["details"];
    assert_eq!((&details["block"], &details["line"]), (&json!("b2"), &json!(2)), "{result}");
    let long = changed("print('é' * 2000)", &[("/limits", json!({"max_output_kb": 1}))]);
    let result = live.run(&long).await;
    assert_eq!(result["outputs"]["stdout_truncated"], json!(true), "{result}");
    assert!(text(&result["outputs"], "stdout").chars().all(|c| c == 'é'));
    let silent = changed("print(1)", &[("/output_spec", json!({"return_stdout": false}))]);
    assert!(live.run(&silent).await["outputs"]["stdout"].is_null());
    live.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_is_an_operation_and_a_cancelled_cell_is_stopped() {
    let live = Live::with(|options| options.slots = 1).await;
    let owner = &live.bench.owner;
    let input =
        json!({"code": "def main(n):\n    print('hi')\n    return n + 1", "parameters": {"n": 1}});
    let job = owner.invoke("exec:python", input).await;
    let job = owner.until(&catena_tests::site::id_of(&job), "COMPLETE").await;
    assert_eq!(
        (&job["output"]["result"], &job["output"]["stdout"]),
        (&json!(2), &json!("hi\n")),
        "{job}"
    );
    assert_eq!(job["execution"]["environment"]["language"], "python");
    let wrong = json!({"code": "1", "limits": {"memory_mb": 100_000}});
    let rejected = owner.invoke("exec:python", wrong).await;
    assert_eq!(rejected["status"], "REJECTED", "a limit above the plan");
    let id = begun(owner, &payload("import time\nprogress(1)\ntime.sleep(600)")).await;
    // The next cell needs the only slot.
    let next = owner.post("/contract/v1/jobs", &payload("print(2)")).await.expect(202).json();
    assert_eq!(next["status"], "QUEUED");
    let cancelled = tokio::time::Instant::now();
    owner.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    assert_eq!(result_of(owner, &text(&next, "job_id")).await["status"], "SUCCEEDED");
    assert!(cancelled.elapsed() < Duration::from_secs(10), "{:?}", cancelled.elapsed());
    live.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dataset_appears_under_its_digest_and_all_of_its_names() {
    let live = Live::start().await;
    let digits = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let digest = format!("sha256:{digits}");
    let owner = &live.bench.owner;
    let upload = owner.request("PUT", &format!("/contract/v1/datasets/{digest}")).body("hello");
    owner.ask(upload).await.expect(200);
    let dataset = |name: &str| json!({"kind": "dataset", "digest": digest, "name": name});
    let unnamed = json!({"kind": "dataset", "digest": digest});
    let source = "import os\n\
        def main():\n    return {name: open('inputs/' + name).read() for name in os.listdir('inputs')}";
    for dependencies in [
        json!([unnamed]),
        json!([dataset("a"), dataset("b")]),
        json!([dataset("a"), unnamed, dataset(digits), unnamed]),
    ] {
        let body = changed(source, &[("/inputs/object/dependencies", dependencies.clone())]);
        let result = live.run(&body).await;
        assert_eq!(result["status"], "SUCCEEDED", "{result}");
        let mut expected = json!({digits: "hello"});
        for dependency in dependencies.as_array().unwrap() {
            if let Some(name) = dependency["name"].as_str() {
                expected[name] = json!("hello");
            }
        }
        assert_eq!(result["outputs"]["result_json"], expected);
    }
    live.stop().await;
}

/// "A dependency of kind object needs its snapshot"; "`content_digest` is checked when the snapshot has
/// `content`, which appears read-only as `inputs/objects/<id>.json`".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_appear_read_only_and_need_a_snapshot_with_the_right_digest() {
    let live = Live::start().await;
    let id = uuid(7);
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let run = async |source: &str, snapshots: Json| {
        let dependency = json!([{"kind": "object", "id": id}]);
        let changes = [
            ("/inputs/object/dependencies", dependency),
            ("/inputs/dependency_snapshots", snapshots),
        ];
        live.run(&changed(source, &changes)).await
    };
    let snapshot = |content: &str| json!([{"kind": "object", "id": id, "content_digest": digest, "content": content}]);
    for (snapshots, code) in
        [(json!([]), "SNAPSHOT_MISSING"), (snapshot("other"), "DIGEST_MISMATCH")]
    {
        let result = run("print(1)", snapshots).await;
        assert_eq!(result["status"], "FAILED", "{result}");
        assert_eq!(
            (&result["error"]["category"], &result["error"]["code"]),
            (&json!("DEPENDENCY_ERROR"), &json!(code))
        );
        assert_eq!(
            (&result["error"]["details"]["object_id"], &result["attempt"]),
            (&json!(id), &json!(1))
        );
    }
    let file = format!("inputs/objects/{id}.json");
    let source = format!("def main(): return open('{file}').read()");
    let result = run(&source, snapshot("hello")).await;
    assert_eq!(result["outputs"]["result_json"], "\"hello\"", "{result}");
    for source in [format!("open('{file}', 'a')"), format!("import os; os.remove('{file}')")] {
        let result = run(&source, snapshot("hello")).await;
        assert_eq!(result["status"], "FAILED", "{source}: {result}");
    }
    live.stop().await;
}

/// `exec:python` is a tool of MCP clients, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_is_a_tool() {
    let live = Live::start().await;
    let client = McpClient::new(&live.bench.owner, STATELESS);
    let code =
        json!({"code": "def main(n):\n    print('hi')\n    return n + 1", "parameters": {"n": 1}});
    let result = client.call("exec_python", code).await;
    let output = &result["structuredContent"];
    assert_eq!((&output["result"], &output["stdout"]), (&json!(2), &json!("hi\n")), "{result}");
    let failed = client.call("exec_python", json!({"code": "1 / 0"})).await;
    assert_eq!(failed["isError"], true, "{failed}");
    live.stop().await;
}

/// "Pause freezes the process tree and its clocks for at most an hour": then the job is given back, and its
/// resume runs it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_that_is_paused_for_too_long_is_released_and_runs_again() {
    let live = Live::with(|options| options.pause_max = Duration::from_millis(100)).await;
    let owner = &live.bench.owner;
    let id = begun(owner, &payload("import time\nprogress(1)\ntime.sleep(600)")).await;
    let started = tokio::time::Instant::now();
    // A busy machine may take longer than this to give the job back.
    let mut attempt = json!(1);
    while attempt == 1 {
        assert!(started.elapsed() < catena_tests::TIMEOUT, "it is kept");
        owner.control(&id, "pause").await.expect(200);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(owner.job(&id).await["status"], "PAUSED");
        owner.control(&id, "resume").await.expect(200);
        attempt = live.bench.read(&id).await["attempt"].clone();
    }
    assert_eq!(attempt, 2);
    owner.until_that(&id, |job| job["progress"]["attempt"] == 2).await;
    assert_eq!(live.bench.read(&id).await["status"], "RUNNING");
    owner.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    live.stop().await;
}

/// A pause reaches the cell within a second and stops its clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_cell_stands_still_and_its_clock_with_it() {
    let live = Live::start().await;
    let owner = &live.bench.owner;
    let source = "import time\nfor n in range(60):\n    progress(n)\n    time.sleep(0.05)";
    let body = changed(source, &[("/limits", json!({"timeout_ms": 6_000}))]);
    let id = text(&owner.post("/contract/v1/jobs", &body).await.expect(202).json(), "job_id");
    let begun = tokio::time::Instant::now();
    while !live.bench.read(&id).await["progress"].is_object() {
        assert!(begun.elapsed() < catena_tests::TIMEOUT, "no progress");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    owner.control(&id, "pause").await.expect(200);
    // It stands still after a second, or later on a busy machine.
    let done = async || live.bench.read(&id).await["progress"]["processedItems"].clone();
    let mut before = done().await;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = done().await;
        if now == std::mem::replace(&mut before, now.clone()) {
            break;
        }
        assert!(begun.elapsed() < catena_tests::TIMEOUT, "it goes on while it is paused");
    }
    assert!(before.as_i64().unwrap() < 59, "it was not paused before its end");
    // Longer than the cell may take in all.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let after = live.bench.read(&id).await;
    assert_eq!(after["progress"]["processedItems"], before, "it goes on while it is paused");
    assert_eq!(after["status"], "RUNNING");
    owner.control(&id, "resume").await.expect(200);
    let path = format!("/contract/v1/jobs/{id}?wait=25000");
    let result = owner.get(&path).await.expect(200).json();
    assert_eq!(result["status"], "SUCCEEDED", "{result}");
    live.stop().await;
}

/// "A PAUSED job occupies no slot. It keeps its holder and fence while its work is frozen."
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_cells_leave_their_slots_to_others_and_continue_when_they_are_resumed() {
    let live = Live::start().await;
    let (anna, ben) = (live.bench.site.caller(2).await, live.bench.site.caller(3).await);
    let source = "import time\nfor n in range(60):\n    progress(n + 1)\n    time.sleep(0.05)\nprint('done')";
    let paused = [
        (&anna, begun(&anna, &payload(source)).await),
        (&ben, begun(&ben, &payload(source)).await),
    ];
    for (owner, id) in &paused {
        owner.control(id, "pause").await.expect(200);
    }
    // Both slots are free for others.
    let carl = live.bench.site.caller(4).await;
    let others = [
        begun(&carl, &payload("progress(1)\nimport time\ntime.sleep(600)")).await,
        begun(&carl, &payload("progress(2)\nimport time\ntime.sleep(600)")).await,
    ];
    for (owner, id) in &paused {
        assert_eq!(owner.job(id).await["status"], "PAUSED");
        owner.control(id, "resume").await.expect(200);
    }
    // They continue although both slots are in use, so that their time does not pass in vain.
    for (owner, id) in &paused {
        let result = result_of(owner, id).await;
        assert_eq!(
            (&result["status"], &result["attempt"]),
            (&json!("SUCCEEDED"), &json!(1)),
            "{result}"
        );
        assert_eq!(result["outputs"]["stdout"], "done\n");
    }
    // What is beyond the slots is worked off before another cell starts.
    let next = carl.post("/contract/v1/jobs", &payload("print(3)")).await.expect(202).json();
    assert_eq!(carl.job(&text(&next, "job_id")).await["status"], "PENDING");
    for id in &others {
        carl.post(&format!("/contract/v1/jobs/{id}/cancel"), &json!({})).await.expect(200);
    }
    assert_eq!(result_of(&carl, &text(&next, "job_id")).await["status"], "SUCCEEDED");
    live.stop().await;
}

/// The folder with the environment `sci`, which is installed once and kept between runs. `None` if the
/// packages cannot be installed.
fn sci_environment() -> Option<PathBuf> {
    let recipe = RECIPES.into_iter().find(|recipe| recipe.profile == "sci").unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("environments");
    if matches!(Installed::find(recipe, &folder), Ok(Some(_))) {
        return Some(folder);
    }
    let interpreters: Vec<PathBuf> = USUAL_PATHS.iter().map(Into::into).collect();
    match install(recipe, &folder, &interpreters) {
        Ok(installed) => {
            assert!(installed.packages.iter().all(|package| package.sha256.len() == 64));
            Some(folder)
        }
        Err(reason) => {
            // Past the test harness, which would hide it.
            let _ = writeln!(std::io::stderr(), "SKIPPED: the environment sci: {reason}");
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packages_work_in_their_environment_and_figures_become_artifacts() {
    let Some(folder) = tokio::task::spawn_blocking(sci_environment).await.unwrap() else { return };
    let live = Live::with_environments(Some(folder)).await;
    let unknown = changed("1", &[("/environment", json!({"env_version": "none"}))]);
    let error = live.bench.owner.post("/contract/v1/jobs", &unknown).await.expect(400).json();
    let available = error["error"]["details"]["available"].as_array().unwrap().clone();
    let of_profile = |profile: &str| {
        let mut versions = available.iter().filter_map(|version| version.as_str());
        versions.find(|version| version.starts_with(profile)).unwrap().to_owned()
    };
    let (bare, sci) = (of_profile("py-bare@"), of_profile("py-sci@"));
    assert_eq!(sci.len(), "py-sci@".len() + 12, "{sci}");
    let source = "import numpy, pandas\nimport matplotlib.pyplot as plt\n\
        plt.plot([1, 2, 3])\nplt.figure()\nplt.bar([1], [2])\n\
        def main():\n    return {'sum': int(numpy.arange(5).sum()), \
        'mean': pandas.Series([1, 3]).mean(), 'random': float(numpy.random.rand())}";
    let in_environment = |version: &str, spec: Json| {
        changed(
            source,
            &[("/environment", json!({"env_version": version})), ("/output_spec", spec)],
        )
    };
    let first = live.run(&in_environment(&sci, json!({"formats": ["png"]}))).await;
    assert_eq!(first["status"], "SUCCEEDED", "{first}");
    let result = &first["outputs"]["result_json"];
    assert_eq!((&result["sum"], &result["mean"]), (&json!(10), &json!(2.0)));
    let artifacts = first["artifacts"].as_array().unwrap();
    let names: Vec<&str> =
        artifacts.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["figure-1.png", "figure-2.png"], "{first}");
    assert!(artifacts.iter().all(|one| one["metadata"]["width"].as_i64() > Some(100)), "{first}");
    let second = live.run(&in_environment(&sci, json!({"formats": ["json"]}))).await;
    assert_eq!(second["artifacts"], json!([]), "figures are saved if the format was requested");
    assert_ne!(second["outputs"]["result_json"]["random"], result["random"]);
    let missing = live.run(&in_environment(&bare, json!({}))).await;
    assert_eq!(missing["error"]["code"], "MODULE_NOT_FOUND", "{missing}");
    live.stop().await;
}
