//! Ends that their workers sign, and the logs of jobs.

use catena_api::Credentials;
use catena_api::client::worker::{Claim, End, JobEnd, Retry};
use catena_auth::KeyPair;
use catena_job::signature::SignedEnd;
use catena_job::verify::{Expected, verify};
use catena_tests::site::{Site, id_of};
use serde_json::json;

use super::{claim_one, define, path};

#[tokio::test]
async fn a_signed_end_is_kept_with_the_chain_and_verified() {
    let site = Site::start().await;
    let key = KeyPair::from_seed(&[1; 32]);
    let ann = site.caller(1).await;
    let operation = define(&ann, json!({})).await;
    for (end, result) in [
        (json!({"output": {"sent": 1}}), Ok(r#"{"sent":1}"#)),
        (json!({"error": "no such list", "retry": "never"}), Err("no such list".to_owned())),
    ] {
        let id = id_of(&ann.invoke(&operation, json!(1)).await);
        let job = claim_one(&ann, "w1").await;
        let result = result.map(|text| catena_value::json::read(text.as_bytes()).unwrap());
        let fence = job["fence"].as_u64().unwrap();
        let signed = SignedEnd { job: id.parse().unwrap(), fence, result };
        let mut end = end;
        end["fence"] = json!(fence);
        end["signature"] = json!(signed.sign(&KeyPair::from_seed(&[2; 32])));
        let refused = ann.post(&path(&job, "end"), &end).await.expect(400).json();
        assert!(refused["error"].as_str().unwrap().contains("signature"), "{refused}");
        end["signature"] = json!(signed.sign(&key));
        ann.post(&path(&job, "end"), &end).await.expect(200);
        let chain = ann.history(&id).await;
        assert_eq!(chain.verify().signatures_verified, 1);
        let last = chain.entries.last().unwrap();
        assert_eq!(last["record"]["by"], json!(key.did()));
        assert_eq!(last["signature"], json!({"fence": fence, "value": end["signature"]}));
        let history = ann.get(&format!("/api/v1/jobs/{id}/history")).await.expect(200);
        let forged =
            history.text().replace(&signed.sign(&key), &signed.sign(&KeyPair::from_seed(&[2; 32])));
        let forged = catena_value::json::read(forged.as_bytes()).unwrap();
        let fault = verify(&forged, &Expected::default()).unwrap_err();
        assert_eq!((fault.code.as_str(), fault.record), ("signature", Some(2)));
        ann.control(&id, "delete").await.expect(200);
    }
}

#[tokio::test]
async fn a_worker_that_uses_the_client_with_a_key_signs_its_ends() {
    let site = Site::start().await;
    let ann = site.caller(1).await;
    let operation = define(&ann, json!({})).await;
    let url = format!("http://{}", site.address).parse().unwrap();
    let key = KeyPair::from_seed(&[1; 32]);
    let client = catena_api::HttpClient::connect(url, Credentials::Key(Box::new(key.clone())));
    let claim = Claim {
        worker: "w1".to_owned(),
        queues: vec!["mail".to_owned()],
        max: 1,
        wait: catena_tests::TIMEOUT,
        ..Claim::default()
    };
    let output: catena_value::Map = [("sent", catena_value::Value::from(1))].into_iter().collect();
    let error = End::Error { error: "no".into(), code: None, retry: Retry::Never };
    let mut jobs = Vec::new();
    for end in [End::Output(output.into()), error] {
        jobs.push(id_of(&ann.invoke(&operation, json!(1)).await));
        let job = client.claim(&claim).await.unwrap().jobs.remove(0);
        let end = JobEnd { id: job.id, fence: job.fence, end };
        // One end has a request of its own, the other one travels with a claim.
        if jobs.len() == 1 {
            client.end_job(&end).await.unwrap();
        } else {
            let claim = Claim { wait: std::time::Duration::ZERO, done: vec![end], ..claim.clone() };
            let done = client.claim(&claim).await.unwrap().done;
            assert_eq!(done, [(jobs[1].clone(), None)]);
        }
    }
    for id in jobs {
        let chain = ann.history(&id).await;
        assert_eq!(chain.verify().signatures_verified, 1, "{id}");
        assert_eq!(chain.entries.last().unwrap()["record"]["by"], json!(key.did()));
    }
}

#[tokio::test]
async fn an_end_is_signed_by_the_key_of_the_worker_or_not_at_all() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    site.invoke(&operation, json!(1)).await;
    let job = claim_one(&site, "w1").await;
    for end in [
        json!({"output": 1, "signature": "AAAA"}),
        json!({"output": 1, "signature": 7}),
        json!({"awaiting": [], "signature": "AAAA"}),
    ] {
        let mut end = end;
        end["fence"] = job["fence"].clone();
        site.post(&path(&job, "end"), &end).await.expect(400);
    }
    let end = json!({"fence": job["fence"], "output": 1});
    site.post(&path(&job, "end"), &end).await.expect(200);
    let chain = site.history(job["id"].as_str().unwrap()).await;
    assert!(chain.entries.last().unwrap()["signature"].is_null());
}

#[tokio::test]
async fn the_end_of_a_log_is_shown_while_the_job_runs_and_kept_in_its_last_record() {
    let site = Site::start().await;
    let operation = define(&site, json!({})).await;
    let id = id_of(&site.invoke(&operation, json!(1)).await);
    let job = claim_one(&site, "w1").await;
    let log_path = format!("/api/v1/jobs/{id}/log");
    assert_eq!(site.get(&log_path).await.expect(200).json()["log"], "");
    let long = "é".repeat(4_096);
    for (text, shown) in [("one\n", "one\n"), ("two\n", "one\ntwo\n"), (&long, &long[4_096..])] {
        let report = json!([{"id": id, "fence": job["fence"], "log": text}]);
        let beat = json!({"worker": "w1", "jobs": report});
        site.post("/worker/v1/beat", &beat).await.expect(200);
        assert_eq!(site.get(&log_path).await.expect(200).json()["log"], shown);
    }
    let end = json!({"fence": job["fence"], "output": 1});
    site.post(&path(&job, "end"), &end).await.expect(200);
    assert_eq!(site.job(&id).await["log"], &long[4_096..]);
    assert_eq!(site.get(&log_path).await.expect(200).json()["log"], &long[4_096..]);
    site.history(&id).await.verify();
    let stranger = site.caller(1).await;
    stranger.get(&log_path).await.expect(404);
}
