//! Access control: tokens, owners, hosts, origins.

use catena_auth::KeyPair;
use catena_tests::site::{Site, delegation, token};
use serde_json::json;

#[tokio::test]
async fn a_bad_token_is_refused_and_never_anonymous() {
    let site = Site::start().await;
    let did = site.get("/api/v1/status").await.json()["did"].as_str().unwrap().to_owned();
    let key = KeyPair::from_seed(&[1; 32]);
    let other = KeyPair::from_seed(&[2; 32]);
    let good = token(&key, &[("aud", did.as_str().into())]);
    let signature_of = |token: &str| token.rsplit_once('.').unwrap().1.to_owned();
    let signed = good.rsplit_once('.').unwrap().0;
    let forged = format!("{signed}.{}", signature_of(&token(&other, &[])));
    let expired = token(&key, &[("exp", 1_700_000_000.into()), ("iat", 1_699_999_000.into())]);
    let long_lived = token(&key, &[("exp", 4_000_000_000_i64.into())]);
    let no_time = token(&key, &[("nbf", "now".into())]);
    let for_another_origin = token(&key, &[("origin", "https://evil.example".into())]);
    let for_another_venue = token(&key, &[("aud", "did:web:other.example".into())]);
    let for_another_subject = token(&key, &[("sub", other.did().as_str().into())]);
    let delegation = token(&key, &[("att", "x".into())]);
    for (what, value) in [
        ("no token", "Bearer".to_owned()),
        ("another scheme", "Basic dXNlcjpwYXNz".to_owned()),
        ("not a token", "Bearer a.b.c".to_owned()),
        ("signed by another", format!("Bearer {forged}")),
        ("expired", format!("Bearer {expired}")),
        ("for another venue", format!("Bearer {for_another_venue}")),
        ("for another subject", format!("Bearer {for_another_subject}")),
        ("a delegation", format!("Bearer {delegation}")),
        ("valid for years", format!("Bearer {long_lived}")),
        ("malformed time", format!("Bearer {no_time}")),
        ("made for another origin", format!("Bearer {for_another_origin}")),
    ] {
        for path in ["/api/v1/status", "/api/v1/jobs"] {
            let reply = site.ask(site.request("GET", path).header("authorization", &value)).await;
            assert_eq!(reply.status(), 401, "{what}: {}", reply.text());
            assert!(reply.header("www-authenticate").is_some());
            reply.expect_error(401, "token_invalid");
        }
    }
    for good in [good.clone(), token(&key, &[])] {
        let request = site.request("GET", "/api/v1/jobs");
        site.ask(request.header("authorization", &format!("Bearer {good}"))).await.expect(200);
    }
    let request = site.request("GET", "/.well-known/did.json").header("authorization", "Bearer x");
    site.ask(request).await.expect(200);
}

#[tokio::test]
async fn without_public_access_everybody_shows_a_token() {
    let site = Site::with(|flags| flags.public_access = Some("off".to_owned())).await;
    for path in ["/api/v1/jobs", "/api/v1/operations", "/api/v1/assets", "/canvas/v1/health"] {
        site.get(path).await.expect_error(401, "token_missing");
    }
    // Where clients learn whom they talk to, everyone is answered, without figures.
    let status = site.get("/api/v1/status").await.expect(200).json();
    assert!(status["did"].is_string() && status["stats"].is_null(), "{status}");
    assert_eq!(status["delegation"], "scoped");
    let did = status["did"].as_str().unwrap();
    let body = json!({"operation": "test:echo"});
    site.post("/api/v1/invoke", &body).await.expect_error(401, "token_missing");
    site.get("/.well-known/did.json").await.expect(200);
    site.get("/livez").await.expect(200);
    let key = KeyPair::from_seed(&[1; 32]);
    let ask = async |token: String| {
        let request = site.request("POST", "/api/v1/invoke").json(&body);
        site.ask(request.header("authorization", &format!("Bearer {token}"))).await
    };
    let url = format!("http://{}", site.address);
    for audience in [did, &url] {
        let job = ask(token(&key, &[("aud", audience.into())])).await.expect(201).json();
        assert_eq!(job["caller"], key.did());
    }
    // A token without an audience could be replayed at any venue.
    ask(token(&key, &[])).await.expect_error(401, "token_invalid");
    let unbound = site.request("GET", "/api/v1/status");
    let unbound = unbound.header("authorization", &format!("Bearer {}", token(&key, &[])));
    assert!(site.ask(unbound).await.expect(200).json()["stats"].is_object());
}

#[tokio::test]
async fn an_admin_sees_and_controls_everything() {
    let admin = KeyPair::from_seed(&[9; 32]).did();
    let site = Site::with(|flags| flags.admins = Some(admin)).await;
    let alice = site.caller(1).await;
    let admin = site.caller(9).await;
    let id = alice.invoked("test:never", json!({}), "STARTED").await;
    let did = alice.job(&id).await["caller"].as_str().unwrap().to_owned();
    assert_eq!(admin.job(&id).await["status"], "STARTED");
    let listed = admin.get(&format!("/api/v1/jobs?owner={did}")).await.expect(200).json();
    assert_eq!(listed["total"], 1);
    assert_eq!(admin.control(&id, "cancel").await.expect(200).json()["status"], "CANCELLED");
    assert_eq!(
        alice.history(&id).await.last()["by"],
        admin.invoke("auth:whoami", json!({})).await["caller"]
    );
}

/// A venue that is an admin here forwards its callers' delegations without granting its own rights.
#[tokio::test]
async fn who_shows_delegations_is_no_admin_for_that() {
    let admin = KeyPair::from_seed(&[9; 32]).did();
    let site = Site::with(|flags| flags.admins = Some(admin)).await;
    let alice = site.caller(1).await;
    let admin = site.caller(9).await;
    let id = alice.invoked("test:never", json!({}), "STARTED").await;
    let mut look = json!({"operation": "grid:job-status", "input": {"id": id}, "wait": true});
    let seen = admin.post("/api/v1/invoke", &look).await.json();
    assert_eq!(
        (&seen["status"], &seen["output"]["status"]),
        (&json!("COMPLETE"), &json!("STARTED"))
    );
    let user = KeyPair::from_seed(&[5; 32]);
    let admin_did = KeyPair::from_seed(&[9; 32]).did();
    look["ucans"] = json!([delegation(&user, &admin_did, &[])]);
    let refused = admin.post("/api/v1/invoke", &look).await.json();
    assert_eq!(refused["status"], "FAILED", "{refused}");
    alice.control(&id, "cancel").await.expect(200);
}

#[tokio::test]
async fn a_foreign_host_is_refused_while_anybody_may_ask() {
    let site = Site::start().await;
    let port = site.address.port();
    let ask = async |host: &str| {
        site.ask(site.request("GET", "/api/v1/status").header("host", host)).await
    };
    for good in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        ask(&good).await.expect(200);
    }
    for bad in ["evil.example", &format!("evil.example:{port}"), "127.0.0.1:1"] {
        ask(bad).await.expect_error(403, "foreign_host");
    }
    site.ask(site.request("GET", "/livez").header("host", "evil.example")).await.expect(200);
    let named = Site::with(|flags| flags.hostnames = Some("venue.example".to_owned())).await;
    let request = named.request("GET", "/api/v1/status").header("host", "venue.example");
    named.ask(request).await.expect(200);
}

#[tokio::test]
async fn a_foreign_origin_is_refused_and_a_known_one_may_read() {
    let app = "https://app.example";
    let site = Site::with(|flags| flags.cors_origins = Some(app.to_owned())).await;
    let own = format!("http://{}", site.address);
    let ask = async |method: &str, origin: &str| {
        let request = site.request(method, "/api/v1/invoke").header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        site.ask(request.json(&json!({"operation": "test:echo"}))).await
    };
    for origin in [own.as_str(), app] {
        let reply = ask("POST", origin).await.expect(201);
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
        assert!(reply.header("vary").unwrap().to_lowercase().contains("origin"));
        let preflight = ask("OPTIONS", origin).await.expect(204);
        assert_eq!(preflight.header("access-control-allow-origin"), Some(origin));
        assert!(preflight.header("access-control-allow-methods").unwrap().contains("POST"));
        let headers = preflight.header("access-control-allow-headers").unwrap().to_lowercase();
        for name in ["authorization", "content-type", "idempotency-key"] {
            assert!(headers.contains(name), "{name} in {headers}");
        }
        assert_eq!(preflight.header("access-control-allow-private-network"), None);
    }
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let reply = ask("POST", origin).await;
        assert_eq!(reply.header("access-control-allow-origin"), None);
        reply.expect_error(403, "foreign_origin");
        assert_eq!(ask("OPTIONS", origin).await.header("access-control-allow-origin"), None);
    }
    assert_eq!(site.job_count().await, 2, "those that were refused made no job");
}

#[tokio::test]
async fn the_identity_of_a_venue_is_stable() {
    let site = Site::start().await;
    let status = site.get("/api/v1/status").await.expect(200).json();
    assert_eq!((&status["status"], &status["version"]), (&json!("OK"), &json!("0.9.11")));
    assert_eq!(status["url"], format!("http://{}", site.address));
    assert!(!status["catena"].is_null(), "{status}");
    let document = site.get("/.well-known/did.json").await.expect(200);
    assert_eq!(document.json()["id"], status["did"]);
    let site = site.restarted().await;
    assert_eq!(site.get("/api/v1/status").await.json()["did"], status["did"]);
}

/// Beyond loopback everyone is the same anonymous identity, so what it owned would be everyone's.
#[tokio::test]
async fn beyond_loopback_the_anonymous_identity_owns_nothing() {
    let site = Site::with(|flags| {
        flags.access = Some("anyone".to_owned());
        flags.public_url = Some("https://venue.example".to_owned());
    })
    .await;
    let alice = site.caller(1).await;
    let definition = json!({ "name": "mine", "operation": { "adapter": "test:echo" } });
    let code = json!({ "code": "print(1)" });
    let write = json!({ "path": "w/a", "value": 1 });
    let run = |operation: &str, input: serde_json::Value| {
        let body = json!({ "operation": operation, "input": input });
        ("POST", "/api/v1/run", body)
    };
    for (method, path, body) in [
        ("PUT", "/api/v1/operations/foo", definition.clone()),
        ("PUT", "/api/v1/operations/foo?share=everyone", json!(null)),
        ("DELETE", "/api/v1/operations/foo", json!(null)),
        ("PUT", "/api/v1/secrets/KEY", json!({ "value": "hidden" })),
        ("DELETE", "/api/v1/secrets/KEY", json!(null)),
        ("POST", "/api/v1/histories", json!({ "records": [] })),
        run("covia:write", write.clone()),
        run("covia:append", write.clone()),
        run("covia:delete", json!({ "path": "w/a" })),
        run("covia:copy", json!({ "from": "v/info/version", "to": "w/a" })),
        run("secret:set", json!({ "name": "KEY", "value": "hidden" })),
        run("agent:create", json!({ "agentId": "bob" })),
        run("asset:pin", json!({ "path": "v/test/ops/echo" })),
        run("exec:python", code.clone()),
    ] {
        let request = site.request(method, path).header("host", "venue.example");
        let request = if body.is_null() { request } else { request.json(&body) };
        let reply = site.ask(request).await;
        assert_eq!(reply.status(), 403, "{method} {path} {body}: {}", reply.text());
        reply.expect_error(403, "forbidden");
    }
    let named = alice.request("PUT", "/api/v1/operations/foo").header("host", "venue.example");
    alice.ask(named.json(&definition)).await.expect(200);
    let echo = site.request("POST", "/api/v1/run").header("host", "venue.example");
    let echo = echo.json(&json!({ "operation": "test:echo", "input": { "x": 1 } }));
    assert_eq!(site.ask(echo).await.expect(200).json(), json!({ "x": 1 }));
    let count = site.request("GET", "/api/v1/jobs?limit=0").header("host", "venue.example");
    assert_eq!(site.ask(count).await.expect(200).json()["total"], 1, "a refusal makes no job");
}
