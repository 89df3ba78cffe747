//! Key Concepts, Job Lifecycle, Job Data, Job Creation: what jobs and their chains are.

use std::collections::BTreeSet;

use catena_tests::chain::Chain;
use catena_tests::site::{Site, id_of};
use serde_json::{Value as Json, json};

/// "Each state transition appends a new immutable record to the chain, linked to its predecessor by
/// a content-addressed hash." "A simple echo operation produces a three-link chain."
#[tokio::test]
async fn an_echo_makes_the_chain_of_the_example() {
    let site = Site::start().await;
    let id = site.invoked("test:echo", json!({"text": "hello"}), "COMPLETE").await;
    let chain = site.history(&id).await;
    assert_eq!(chain.statuses(), "PENDING STARTED COMPLETE");
    assert_eq!(chain.record(0)["prev"], Json::Null);
    assert_eq!(chain.record(0)["op"], "test:echo");
    assert_eq!(chain.record(0)["input"], json!({"text": "hello"}));
    assert_eq!(chain.record(1)["prev"], chain.id(0));
    assert_eq!(chain.record(2)["prev"], chain.id(1));
    assert_eq!(chain.record(2)["output"], json!({"text": "hello"}));
    chain.verify();
}

/// State Record Structure: `status` and `prev` REQUIRED; `op`, `input` in the initial record;
/// `output` with COMPLETE; `error` with FAILED, REJECTED, CANCELLED; `updated` RECOMMENDED.
#[tokio::test]
async fn records_have_the_fields_of_the_table() {
    let site = Site::start().await;
    let never = site.invoked("test:never", json!({}), "STARTED").await;
    site.control(&never, "cancel").await.expect(200);
    let ends = [
        (site.invoked("test:echo", json!(1), "COMPLETE").await, "output"),
        (site.invoked("test:error", json!({"message": "no"}), "FAILED").await, "error"),
        (site.invoked("test:error", json!({"message": 1}), "REJECTED").await, "error"),
        (never, "error"),
    ];
    for (id, field) in ends {
        let chain = site.history(&id).await;
        for at in 0..chain.len() {
            let record = chain.record(at);
            assert!(record["status"].is_string() && record["updated"].is_i64(), "{record}");
            assert_eq!(record["prev"].is_null(), at == 0, "{record}");
            assert_eq!(record.get("op").is_some(), at == 0, "{record}");
        }
        assert!(chain.record(0).get("input").is_some());
        assert!(chain.last().get(field).is_some(), "no {field} in {}", chain.last());
    }
}

/// "Any modification to a record changes its identifier, making tampering detectable." "A verifier
/// can walk the chain from HEAD to the initial state, confirming that no records have been
/// inserted, removed, or modified." Asset ID Scheme: "the SHA3-256 hash of their canonical CAD003
/// binary encoding".
#[tokio::test]
async fn every_id_is_recomputed_from_the_json_alone() {
    let site = Site::start().await;
    let input =
        json!({"int": 1, "float": 1.0, "big": "x".repeat(5_000), "list": [null, true, [2]]});
    let id = site.invoked("test:chat", input, "INPUT_REQUIRED").await;
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    let head = site.ended(&id).await["head"].as_str().unwrap().to_owned();
    let chain = site.history(&id).await;
    for at in 0..chain.len() {
        assert_eq!(chain.computed_id(at), chain.id(at), "record {at}");
        let prev = chain.record(at)["prev"].as_str();
        assert_eq!(prev, at.checked_sub(1).map(|before| chain.id(before)), "record {at}");
    }
    assert_eq!(chain.id(chain.len() - 1), head);
    let text = site.get(&format!("/api/v1/jobs/{id}/history")).await.text().to_owned();
    let forged = Chain::of_pages([text.replace("\"done\"", "\"gone\"").as_bytes()]);
    assert!((0..forged.len()).any(|at| forged.computed_id(at) != forged.id(at)));
}

/// "Job IDs are represented as hex strings. The format is implementation-defined, but MUST be
/// unique within the venue." "The Job ID is assigned at creation time and remains stable."
#[tokio::test]
async fn job_ids_are_hex_unique_and_stable() {
    let site = Site::start().await;
    let mut ids = BTreeSet::new();
    for _ in 0..50 {
        let id = id_of(&site.invoke("test:echo", json!({"same": true})).await);
        let digits = id.strip_prefix("0x").unwrap();
        assert!(digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert!(ids.insert(id));
    }
    let chat = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    site.send(&chat, &json!({"content": "done"})).await.expect(202);
    assert_eq!(id_of(&site.ended(&chat).await), chat);
    let site = site.restarted().await;
    assert_eq!(id_of(&site.job(&chat).await), chat);
}

/// Job Data: "This object reflects the latest state record in the chain, with all fields resolved
/// (including inherited fields from earlier records)."
#[tokio::test]
async fn a_job_shows_every_field_resolved() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({"a": 1}), "INPUT_REQUIRED").await;
    let job = site.job(&id).await;
    assert_eq!(job["id"], id.as_str());
    assert_eq!(job["status"], "INPUT_REQUIRED");
    assert_eq!(job["op"], "test:chat");
    assert_eq!(job["operation"].as_str().unwrap().len(), 64);
    assert_eq!(job["input"], json!({"a": 1}));
    assert!(job["message"].as_str().unwrap().contains("Send a message"));
    assert!(job["created"].as_i64().unwrap() <= job["updated"].as_i64().unwrap());
    site.send(&id, &json!({"content": "done"})).await.expect(202);
    let job = site.ended(&id).await;
    assert_eq!(job["input"], json!({"a": 1}), "inherited from the first record");
    assert_eq!(job["output"]["message"], "done");
    assert!(job.get("message").is_none(), "what was asked for is answered: {job}");
}

/// "status (REQUIRED) … MUST be one of the status values defined above."
#[tokio::test]
async fn statuses_are_the_ten_words() {
    let site = Site::with(|flags| flags.running = Some("6".to_owned())).await;
    let timeout = json!({"operation": "test:never", "timeoutMs": 20});
    let timeout = id_of(&site.post("/api/v1/invoke", &timeout).await.expect(201).json());
    assert_eq!(site.ended(&timeout).await["status"], "TIMEOUT");
    let cancelled = site.invoked("test:never", json!({}), "STARTED").await;
    site.control(&cancelled, "cancel").await.expect(200);
    let mut seen: BTreeSet<String> = ["TIMEOUT".to_owned()].into();
    for (operation, input, status) in [
        ("test:echo", json!({}), "COMPLETE"),
        ("test:error", json!({"message": "x"}), "FAILED"),
        ("test:error", json!({}), "REJECTED"),
        ("test:chat", json!({}), "INPUT_REQUIRED"),
        ("test:auth", json!({}), "AUTH_REQUIRED"),
        ("test:pause", json!({}), "PAUSED"),
    ] {
        let id = site.invoked(operation, input, status).await;
        seen.insert(site.job(&id).await["status"].as_str().unwrap().to_owned());
    }
    for _ in 0..6 {
        site.invoked("test:never", json!({}), "STARTED").await;
    }
    seen.insert("STARTED".to_owned());
    site.invoked("test:never", json!({}), "PENDING").await;
    seen.insert("PENDING".to_owned());
    seen.insert(site.job(&cancelled).await["status"].as_str().unwrap().to_owned());
    let words = [
        "PENDING",
        "STARTED",
        "COMPLETE",
        "FAILED",
        "CANCELLED",
        "REJECTED",
        "TIMEOUT",
        "PAUSED",
        "INPUT_REQUIRED",
        "AUTH_REQUIRED",
    ];
    assert_eq!(seen, words.map(str::to_owned).into());
}

/// "A venue MUST create a job for every accepted invocation request."
#[tokio::test]
async fn every_accepted_invocation_makes_a_job() {
    let site = Site::start().await;
    let invocations = [
        ("test:echo", json!(null)),
        ("test:error", json!({"message": "x"})),
        ("test:error", json!({})),
        ("test:never", json!({})),
        ("json:merge", json!({"values": [{"a": 1}, {"b": 2}]})),
        ("auth:whoami", json!({})),
    ];
    let mut made = BTreeSet::new();
    for (operation, input) in invocations {
        let body = json!({"operation": operation, "input": input});
        let reply = site.post("/api/v1/invoke", &body).await.expect(201);
        let id = id_of(&reply.json());
        let location = format!("/api/v1/jobs/{}", id.trim_start_matches("0x"));
        assert_eq!(reply.header("location"), Some(location.as_str()));
        assert_eq!(site.get(&location).await.expect(200).json()["id"], id.as_str());
        made.insert(id.trim_start_matches("0x").to_owned());
    }
    let listed = site.get("/api/v1/jobs").await.json();
    let listed = listed["items"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().into());
    assert_eq!(listed.collect::<BTreeSet<String>>(), made);
}

/// "A venue MUST create an initial state record with status PENDING (or REJECTED if the job is
/// immediately rejected)."
#[tokio::test]
async fn the_first_record_is_pending_or_rejected() {
    let site = Site::start().await;
    for (operation, input, expected) in [
        ("test:echo", json!({}), "PENDING"),
        ("test:never", json!({}), "PENDING"),
        ("test:error", json!({"message": "x"}), "PENDING"),
        ("test:error", json!({"message": 5}), "REJECTED"),
        ("test:delay", json!({"delay": -1}), "REJECTED"),
    ] {
        let id = id_of(&site.invoke(operation, input).await);
        let chain = site.history(&id).await;
        assert_eq!(chain.record(0)["status"], expected, "{operation}");
        assert_eq!(chain.record(0)["id"], id.as_str(), "a chain says whose it is");
        if expected == "REJECTED" {
            assert_eq!((chain.len(), chain.endings()), (1, 1));
            assert!(!chain.record(0)["error"].as_str().unwrap().is_empty());
        }
    }
}

/// "Status transitions are unidirectional": the table of permitted transitions, each one that a
/// venue causes by itself.
#[tokio::test]
async fn outcomes_follow_started() {
    let site = Site::start().await;
    for (operation, input, statuses) in [
        ("test:echo", json!({}), "PENDING STARTED COMPLETE"),
        ("test:error", json!({"message": "x"}), "PENDING STARTED FAILED"),
        ("test:delay", json!({"delay": 1}), "PENDING STARTED COMPLETE"),
        ("test:pause", json!({}), "PENDING STARTED PAUSED"),
        ("test:chat", json!({}), "PENDING STARTED INPUT_REQUIRED"),
        ("test:auth", json!({}), "PENDING STARTED AUTH_REQUIRED"),
    ] {
        let last = statuses.rsplit(' ').next().unwrap();
        let id = site.invoked(operation, input, last).await;
        let chain = site.history(&id).await;
        assert_eq!(chain.statuses(), statuses, "{operation}");
        chain.verify();
    }
}

/// "One-shot jobs … PENDING → STARTED → COMPLETE (or FAILED)." "Multi-turn jobs … PENDING → STARTED
/// → INPUT_REQUIRED → STARTED → INPUT_REQUIRED → ... → COMPLETE." "Each turn's input and output are
/// preserved as immutable records in the chain."
#[tokio::test]
async fn a_conversation_is_all_in_its_chain() {
    let site = Site::start().await;
    let id = site.invoked("test:chat", json!({}), "INPUT_REQUIRED").await;
    for turn in ["one", "two", "done"] {
        site.send(&id, &json!({"content": turn})).await.expect(202);
        site.until_that(&id, |job| job["output"]["message"] == turn).await;
    }
    let chain = site.history(&id).await;
    let turns = "STARTED INPUT_REQUIRED STARTED INPUT_REQUIRED STARTED INPUT_REQUIRED STARTED";
    assert_eq!(chain.statuses(), format!("PENDING {turns} COMPLETE"));
    let texts = |field: &str| -> Vec<Json> {
        (0..chain.len()).filter_map(|at| chain.record(at).get(field).cloned()).collect()
    };
    assert_eq!(texts("received").len(), 3);
    assert_eq!(texts("received")[0]["content"], "one");
    assert_eq!(texts("output").len(), 3);
    assert_eq!(texts("output")[1]["message"], "two");
    chain.verify();
}

/// "Synchronous callers wait for the terminal state. The entire multi-turn interaction … is opaque
/// to them." "Both patterns operate on the same job, the same state chain, and the same queue."
#[tokio::test]
async fn a_synchronous_caller_waits_while_an_asynchronous_one_talks() {
    let site = Site::start().await;
    let body = json!({"operation": "test:chat", "wait": 20_000});
    let waiting = site.post("/api/v1/invoke", &body);
    let talking = async {
        let id = loop {
            let listed = site.get("/api/v1/jobs?status=INPUT_REQUIRED").await.json();
            match listed["items"][0].as_str() {
                Some(id) => break id.to_owned(),
                None => tokio::task::yield_now().await,
            }
        };
        site.send(&id, &json!({"content": "between"})).await.expect(202);
        site.send(&id, &json!({"content": "done"})).await.expect(202);
    };
    let (reply, ()) = tokio::join!(waiting, talking);
    let job = reply.expect(200).json();
    assert_eq!((&job["status"], &job["output"]["message"]), (&json!("COMPLETE"), &json!("done")));
}
