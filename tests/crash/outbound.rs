//! No request is sent while a job is PAUSED or after it is CANCELLED: a server counts the requests.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_tests::QUIET_PERIOD;
use catena_tests::site::Site;
use catena_tests::target::Target;
use serde_json::json;

async fn site_and_target(running: Option<&str>) -> (Site, Target) {
    let target = Target::start().await;
    let host = target.address.to_string();
    let site = Site::with(|flags| {
        flags.allow_hosts = Some(host);
        flags.running = running.map(str::to_owned);
    });
    (site.await, target)
}

/// Completes a request of another job and waits a little, so that pending requests would have been
/// sent.
async fn meanwhile(site: &Site, target: &Target) {
    let url = target.url("/meanwhile");
    let before = target.count("/meanwhile");
    site.invoked("http:get", json!({"url": url}), "COMPLETE").await;
    assert_eq!(target.count("/meanwhile"), before + 1);
    tokio::time::sleep(QUIET_PERIOD).await;
}

/// A redirect that arrives while the job is paused is followed when it is resumed, not before.
#[tokio::test]
async fn a_paused_job_follows_no_redirect() {
    let (site, target) = site_and_target(None).await;
    let id = site.invoked("http:get", json!({"url": target.url("/hops/3")}), "STARTED").await;
    target.arrived("/hops/3").await;
    site.control(&id, "pause").await.expect(200);
    target.open();
    meanwhile(&site, &target).await;
    assert_eq!(target.count("/hops/2"), 0, "it was paused");
    assert_eq!(site.job(&id).await["status"], "PAUSED");
    site.control(&id, "resume").await.expect(200);
    let job = site.ended(&id).await;
    assert_eq!(job["output"]["status"], 200, "{job}");
    for hop in 0..=3 {
        assert_eq!(target.count(&format!("/hops/{hop}")), 1, "each once");
    }
    site.history(&id).await.verify();
}

#[tokio::test]
async fn a_cancelled_job_follows_no_redirect() {
    let (site, target) = site_and_target(None).await;
    let id = site.invoked("http:get", json!({"url": target.url("/hops/3")}), "STARTED").await;
    target.arrived("/hops/3").await;
    site.control(&id, "cancel").await.expect(200);
    target.open();
    meanwhile(&site, &target).await;
    assert_eq!(target.count("/hops/2"), 0);
    site.control(&id, "resume").await.expect_error(409, "job_conflict");
    assert_eq!(site.history(&id).await.statuses(), "PENDING STARTED CANCELLED");
}

/// A job that is paused or cancelled while it waits in the queue sends no request.
#[tokio::test]
async fn a_job_that_has_not_begun_sends_nothing() {
    let (site, target) = site_and_target(Some("1")).await;
    let first = site.invoked("test:never", json!({}), "STARTED").await;
    let paused = site.invoked("http:post", json!({"url": target.url("/p")}), "PENDING").await;
    let cancelled = site.invoked("http:post", json!({"url": target.url("/c")}), "PENDING").await;
    site.control(&paused, "pause").await.expect(200);
    site.control(&cancelled, "cancel").await.expect(200);
    site.control(&first, "cancel").await.expect(200);
    meanwhile(&site, &target).await;
    assert_eq!((target.count("/p"), target.count("/c")), (0, 0));
    site.control(&paused, "resume").await.expect(200);
    assert_eq!(site.ended(&paused).await["output"]["status"], 200);
    assert_eq!((target.count("/p"), target.count("/c")), (1, 0));
}

/// The delay before a request is suspended while the job is paused, and ends when it is cancelled.
#[tokio::test]
async fn what_was_to_follow_a_delay_does_not() {
    let (site, target) = site_and_target(None).await;
    let input = |path: &str| json!({"delay": 400, "operation": "http:get", "input": {"url": target.url(path)}});
    let paused = site.invoked("test:delay", input("/p"), "STARTED").await;
    site.control(&paused, "pause").await.expect(200);
    let cancelled = site.invoked("test:delay", input("/c"), "STARTED").await;
    site.control(&cancelled, "cancel").await.expect(200);
    meanwhile(&site, &target).await;
    tokio::time::sleep(QUIET_PERIOD).await;
    assert_eq!((target.count("/p"), target.count("/c")), (0, 0));
    site.control(&paused, "resume").await.expect(200);
    site.until(&paused, "COMPLETE").await;
    assert_eq!((target.count("/p"), target.count("/c")), (1, 0));
}

/// Pausing and resuming at random moments repeats nothing.
#[tokio::test]
async fn pausing_again_and_again_repeats_nothing() {
    let (site, target) = site_and_target(None).await;
    target.open();
    for round in 0..15 {
        let hops = 1 + round % 5;
        let before: usize = (0..=hops).map(|hop| target.count(&format!("/hops/{hop}"))).sum();
        let job =
            site.invoke("http:get", json!({"url": target.url(&format!("/hops/{hops}"))})).await;
        let id = job["id"].as_str().unwrap();
        for _ in 0..3 {
            if site.control(id, "pause").await.status() == 200 {
                site.control(id, "resume").await.expect(200);
            }
        }
        let job = site.ended(id).await;
        let after: usize = (0..=hops).map(|hop| target.count(&format!("/hops/{hop}"))).sum();
        assert_eq!(job["output"]["status"], 200, "{job}");
        assert_eq!(after - before, hops + 1, "{job}");
        site.history(id).await.verify();
    }
}
