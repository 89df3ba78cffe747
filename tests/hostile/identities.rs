//! Tokens and delegations that claim what is not true, or cost much to refuse.

use catena_auth::KeyPair;
use catena_tests::http::Request;
use catena_tests::site::{delegation, id_of, token};
use serde_json::json;

use super::Victim;

fn part(json: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in json.as_bytes().chunks(3) {
        let number = chunk.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let number = number << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            text.push(char::from(DIGITS[(number >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

/// A token with this header and these claims, and a signature of zeros.
fn forged(header: &str, claims: &str) -> String {
    format!("{}.{}.{}", part(header), part(claims), "A".repeat(86))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_harms_the_venue_or_is_taken_for_another() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let key = KeyPair::from_seed(&[9; 32]);
    let own = venue.attacker.get("/.well-known/did.json").await.json()["id"].clone();
    let own = own.as_str().unwrap().to_owned();
    let claims =
        format!(r#"{{"iss":"{own}","sub":"{own}","aud":"{own}","iat":1,"exp":99999999999}}"#);
    let valid = token(&key, &[("aud", own.as_str().into())]);
    let parts: Vec<&str> = valid.split('.').collect();
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let tokens = [
        ("no algorithm", format!("{}.{}.", part(r#"{"alg":"none"}"#), part(&claims))),
        ("a shared key", forged(r#"{"alg":"HS256","typ":"JWT"}"#, &claims)),
        ("RSA", forged(r#"{"alg":"RS256","jku":"http://127.0.0.1:1/"}"#, &claims)),
        ("zeros as the venue", forged(r#"{"alg":"EdDSA","typ":"JWT"}"#, &claims)),
        (
            "a key of its own",
            forged(r#"{"alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"AAAA"}}"#, &claims),
        ),
        ("deep claims", forged(r#"{"alg":"EdDSA"}"#, &deep)),
        ("a deep header", forged(&deep, &claims)),
        ("20 kB", "a".repeat(20_000)),
        ("10,000 dots", ".".repeat(10_000)),
        ("nothing", String::new()),
        ("no base64", "!!!.???.***".to_owned()),
        ("a changed payload", format!("{}.{}.{}", parts[0], part(&claims), parts[2])),
        ("no signature", format!("{}.{}", parts[0], parts[1])),
        ("two signatures", format!("{valid}.{}", parts[2])),
        ("text times", token(&key, &[("aud", own.as_str().into()), ("exp", "tomorrow".into())])),
        (
            "a time before all",
            token(&key, &[("aud", own.as_str().into()), ("exp", i64::MIN.into())]),
        ),
        (
            "a time after all",
            token(&key, &[("aud", own.as_str().into()), ("exp", i64::MAX.into())]),
        ),
        ("another audience", token(&key, &[("aud", "did:web:evil.example".into())])),
        (
            "another subject",
            token(&key, &[("aud", own.as_str().into()), ("sub", own.as_str().into())]),
        ),
    ];
    for (name, token) in &tokens {
        let request =
            Request::new("GET", "/api/v1/jobs").header("authorization", &format!("Bearer {token}"));
        let reply = venue.under(name, venue.attacker.ask(request)).await;
        assert!([400, 401, 403, 431].contains(&reply.status()), "{name}: {}", reply.text());
    }
    for (name, value) in [
        ("basic", "Basic YWRtaW46YWRtaW4=".to_owned()),
        ("a scheme alone", "Bearer".to_owned()),
        ("two tokens", format!("Bearer {valid} {valid}")),
    ] {
        let request = Request::new("GET", "/api/v1/jobs").header("authorization", &value);
        let reply = venue.under(name, venue.attacker.ask(request)).await;
        assert!([400, 401, 403].contains(&reply.status()), "{name}: {}", reply.text());
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_delegation_harms_the_venue_or_gives_rights() {
    let mut victim = Victim::start().await;
    let venue = &victim;
    let own = venue.attacker.get("/.well-known/did.json").await.json()["id"].clone();
    let own = own.as_str().unwrap().to_owned();
    let key = KeyPair::from_seed(&[9; 32]);
    let real = delegation(&key, &own, &[]);
    let mut proof = delegation(&key, &own, &[]);
    for _ in 0..6 {
        let proofs = catena_value::Vector::from_items(vec![proof.as_str().into(); 2]);
        proof = delegation(&key, &own, &[("prf", proofs.into())]);
    }
    let claims = format!(r#"{{"iss":"{own}","aud":"{own}","att":[],"prf":[],"exp":99999999999}}"#);
    for (name, ucans) in [
        ("1,000 delegations", vec![json!(real); 1_000]),
        ("64 delegations", vec![json!(real); 64]),
        ("proofs of proofs", vec![json!(proof)]),
        ("a signature of zeros", vec![json!(forged(r#"{"alg":"EdDSA","ucv":"0.10.0"}"#, &claims))]),
        ("9 MB", vec![json!("a".repeat(9_000_000))]),
        ("no texts", vec![json!({}), json!(1), json!(null)]),
    ] {
        for path in ["/api/v1/invoke", "/api/v1/run"] {
            let body = json!({"operation": "test:echo", "input": {}, "ucans": ucans});
            let reply = venue.under(name, venue.attacker.post(path, &body)).await;
            assert!((400..500).contains(&reply.status()), "{name}: {}", reply.text());
        }
    }
    victim.restart().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_reaches_what_belongs_to_others() {
    let victim = Victim::start().await;
    let venue = &victim;
    let request = Request::new("POST", "/api/v1/invoke")
        .header("authorization", &format!("Bearer {}", venue.other_token))
        .json(&json!({"operation": "test:never", "input": {"secret": "4711"}}));
    let job = id_of(&venue.other.ask(request).await.expect(201).json());
    let bare = job.trim_start_matches("0x").to_owned();
    for (method, path) in [
        ("GET", format!("/api/v1/jobs/{job}")),
        ("GET", format!("/api/v1/jobs/{bare}/history")),
        ("GET", format!("/api/v1/jobs/{job}/sse")),
        ("GET", format!("/canvas/v1/jobs/{job}")),
        ("GET", format!("/canvas/v1/jobs/{job}/progress")),
        ("PUT", format!("/api/v1/jobs/{job}/cancel")),
        ("PUT", format!("/api/v1/jobs/{job}/delete")),
        ("PUT", format!("/api/v1/jobs/{job}/pause")),
        ("DELETE", format!("/canvas/v1/jobs/{job}")),
        ("POST", format!("/worker/v1/jobs/{job}/end")),
    ] {
        let request = venue.attacker.request(method, &path).json(&json!({"fence": 1, "output": 1}));
        let reply = venue.under(&path, venue.attacker.ask(request)).await;
        assert!([400, 401, 403, 404].contains(&reply.status()), "{path}: {}", reply.text());
        assert!(!reply.text().contains("4711"), "{path}");
    }
    for (operation, input) in [
        ("grid:job-result", json!({"id": job})),
        ("grid:job-status", json!({"id": job})),
        ("covia:read", json!({"path": format!("j/{bare}")})),
        ("jobs:select", json!({"filter": {"owner": "*"}})),
        ("scheduler:list", json!({"owner": "*"})),
    ] {
        let reply = venue.attack(operation, &input).await;
        assert!(!reply.text().contains("4711"), "{operation}: {}", reply.text());
    }
    for path in [
        "/api/v1/jobs?owner=*&limit=10&expand=true",
        "/api/v1/events?owner=*",
        "/api/v1/tombstones?owner=*",
    ] {
        let reply = venue.attacker.get(path).await;
        assert!((400..500).contains(&reply.status()) || !reply.text().contains(&bare), "{path}");
    }
}
