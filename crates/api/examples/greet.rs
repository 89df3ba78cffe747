//! A worker that greets: registers `o/greet` and runs its jobs until Ctrl-C.
//!
//! ```sh
//! catena serve &
//! cargo run -p catena-api --features client --example greet &
//! catena run o/greet -i '{"name": "Ada"}'
//! ```

use std::time::Duration;

use catena_api::client::worker::{End, Retry};
use catena_api::worker::{Handler, JobError, RunningJob, Worker};
use catena_api::{Credentials, HttpClient};
use catena_value::{Value, json};

const DEFINITION: &str = r#"{"name": "Greet", "description": "Greets somebody.", "operation": {
    "adapter": "worker", "queue": "greet", "retry": {"attempts": 3, "backoffMs": 500},
    "input": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}}"#;

struct Greet;

impl Handler for Greet {
    async fn run(&self, job: RunningJob) -> End {
        match greet(&job).await {
            Ok(text) => End::Output(text),
            Err(error) => End::Error { error: error.to_string(), code: None, retry: Retry::May },
        }
    }
}

async fn greet(job: &RunningJob) -> Result<Value, JobError> {
    let name = job.job.input.as_map().and_then(|input| input.field("name"));
    let name = name.and_then(Value::as_str).unwrap_or("nobody").to_owned();
    // What is recorded as a step is not done again if the worker dies.
    job.step("text", || async move { Ok(format!("Hello, {name}!").into()) }).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = HttpClient::connect("http://127.0.0.1:8787".parse()?, Credentials::Anonymous);
    client.put_operation("greet", &json::read(DEFINITION.as_bytes())?, None).await?;
    let worker = Worker {
        client,
        name: format!("greet-{}", std::process::id()),
        queues: vec!["greet".to_owned()],
        parallel: 4,
        grace: Duration::from_secs(30),
        about: None,
    };
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    worker.run(Greet, interrupted).await?;
    Ok(())
}
