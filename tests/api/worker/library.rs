//! The Rust library: a handler with steps, calls and a question, and a client that verifies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use catena_api::client::verify::VerifyError;
use catena_api::client::worker::{End, Retry};
use catena_api::worker::{Called, Handler, JobError, RunningJob, Worker};
use catena_api::{Credentials, HttpClient};
use catena_tests::site::{Site, id_of};
use catena_value::Value;
use serde_json::json;

use super::define;

/// Records a step, calls an operation, asks a person, and returns all three.
struct Order {
    charged: Arc<AtomicU32>,
}

impl Handler for Order {
    async fn run(&self, job: RunningJob) -> End {
        self.order(&job).await.unwrap_or_else(|error| End::Error {
            error: error.to_string(),
            code: None,
            retry: Retry::Never,
        })
    }
}

impl Order {
    async fn order(&self, job: &RunningJob) -> Result<End, JobError> {
        let charge = || async {
            self.charged.fetch_add(1, Ordering::Relaxed);
            Ok(Value::from(7))
        };
        let charged = job.step("charge", charge).await?;
        let called = job.call("echo", "test:delay", json_value(r#"{"delay":1,"input":8}"#)).await?;
        let echoed = match called {
            Called::Waiting => return Ok(End::Awaiting(vec!["echo".to_owned()])),
            Called::Ended(result) => result.map_err(JobError::Work)?,
        };
        if job.job.step("asked").is_none() {
            job.step("asked", || async { Ok(Value::Nil) }).await?;
            return Ok(End::Ask { message: "Really?".to_owned(), schema: None });
        }
        let answer = job.job.message.clone().unwrap_or_default();
        let output: catena_value::Vector = [charged, echoed, answer].into_iter().collect();
        Ok(End::Output(output.into()))
    }
}

fn json_value(text: &str) -> Value {
    catena_value::json::read(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_handler_of_the_rust_library_continues_where_it_stopped_and_its_chain_verifies() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    let url = format!("http://{}", site.address);
    let client = HttpClient::connect(url.parse().unwrap(), Credentials::Anonymous);
    let worker = Worker {
        client: client.clone(),
        name: "library".to_owned(),
        queues: vec!["mail".to_owned()],
        parallel: 1,
        grace: Duration::from_secs(5),
        about: None,
    };
    let charged: Arc<AtomicU32> = Arc::default();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let shutdown = async {
        let _ = stopped.await;
    };
    let running = tokio::spawn(worker.run(Order { charged: Arc::clone(&charged) }, shutdown));
    let id = id_of(&site.invoke(&operation, json!({})).await);
    site.until(&id, "INPUT_REQUIRED").await;
    site.send(&id, &json!({"content": "yes"})).await.expect(202);
    let job = site.until(&id, "COMPLETE").await;
    assert_eq!(job["output"], json!([7, 8, "yes"]));
    assert_eq!(charged.load(Ordering::Relaxed), 1, "a step is done once");
    let report = client.verify(&id).await.unwrap();
    assert_eq!((report.job.to_string(), report.subjobs_unavailable), (id, 0));
    assert_eq!(report.subjobs_verified, 3);
    let missing = client.verify(&format!("0x{:032x}", 7)).await;
    assert!(matches!(missing, Err(VerifyError::Client(_))), "{missing:?}");
    drop(stop);
    running.await.unwrap().unwrap();
}
