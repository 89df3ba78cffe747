//! Trees of jobs that grow without end.

use catena_tests::site::id_of;
use serde_json::{Value as Json, json};

use super::Victim;

fn orchestration(steps: &Json) -> Json {
    json!({"name": "hostile", "type": "orchestration",
        "operation": {"adapter": "orchestrator", "steps": steps, "result": ["const", 1]}})
}

impl Victim {
    /// Registers an orchestration and returns its ID.
    async fn orchestration(&self, steps: &Json) -> String {
        let reply = self.attacker.post("/api/v1/assets", &orchestration(steps)).await;
        reply.expect(201).json().as_str().unwrap().to_owned()
    }
}

fn wide(op: &str, input: &Json, count: usize) -> Json {
    json!(vec![json!({"op": op, "input": input}); count])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tree_of_jobs_harms_the_venue() {
    let mut victim = Victim::start().await;
    let venue = &victim;

    let thousand = venue.orchestration(&wide("test:echo", &json!(["const", 1]), 1_000)).await;
    let million = venue.orchestration(&wide(&thousand, &json!(["const", 1]), 1_000)).await;
    let job = venue.under("1,000 × 1,000", venue.attack(&million, &json!({}))).await.json();
    assert_eq!(job["status"], "REJECTED", "{}", job["error"]);

    // Each level calls as many as fit one definition, through every kind of call.
    for call in ["grid:run", "grid:invoke"] {
        let input = json!({"operation": ["const", "test:echo"], "input": ["const", 1]});
        let calls = venue.orchestration(&wide(call, &input, 1_000)).await;
        let input = json!({"operation": ["const", calls], "input": ["const", {}]});
        let twelve = venue.orchestration(&wide(call, &input, 12)).await;
        let body = json!({"operation": twelve, "input": {}});
        let job = venue.under(call, venue.attacker.post("/api/v1/invoke", &body)).await.json();
        let path = format!("/api/v1/jobs/{}", id_of(&job));
        let end = venue.attacker.request("GET", &path).header("prefer", "wait=1");
        venue.under("its end", venue.attacker.ask(end)).await.expect(200);
        let cancel = format!("{path}/cancel");
        let cancel = venue.attacker.put(&cancel);
        venue.under("its cancellation", cancel).await.expect(200);
        let job = venue.attacker.get(&path).await.expect(200).json();
        assert!(["CANCELLED", "COMPLETE", "FAILED"].contains(&job["status"].as_str().unwrap()));
    }

    // A definition that calls what its input says.
    let input = json!({"operation": ["input", "operation"], "input": ["input", "input"]});
    for (call, ends) in [("grid:run", "REJECTED"), ("grid:invoke", "COMPLETE")] {
        let recursive = venue.orchestration(&wide(call, &input, 1)).await;
        let mut input = json!({"operation": "test:echo", "input": 1});
        for _ in 0..30 {
            input = json!({"operation": recursive, "input": input});
        }
        let job = venue.under(call, venue.attack(&recursive, &input)).await.json();
        let text = job.to_string();
        assert!(text.contains(ends) || text.contains("deeper"), "{job}");
    }
    victim.restart().await;
    victim.echo().await;
}
