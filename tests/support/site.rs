//! A venue in this process, on a free port, and somebody who asks it.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use catena_adapters::Options;
use catena_auth::KeyPair;
use catena_auth::jwt::Token;
use catena_engine::Adapter;
use catena_server::Venue;
use catena_server::config::{Config, Flags};
use catena_value::{Map, Value};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::chain::{Chain, is_terminal};
use crate::events::Events;
use crate::http::{Connection, Reply, Request};

/// How often a job is read that does not stand where it must yet.
const POLL_EVERY: Duration = Duration::from_millis(3);

/// A running venue and its folder. Asked directly, it is asked by the anonymous identity.
pub struct Site {
    venue: Option<Venue>,
    folder: TempDir,
    flags: Flags,
    anyone: Client,
}

impl Site {
    /// A venue with default settings.
    pub async fn start() -> Site {
        Site::with(|_| {}).await
    }

    /// A venue with these settings beyond the defaults.
    pub async fn with(change: impl FnOnce(&mut Flags)) -> Site {
        Site::with_adapters(change, Vec::new()).await
    }

    /// The same with adapters beyond those that every venue has. A restart leaves them out.
    pub async fn with_adapters(
        change: impl FnOnce(&mut Flags),
        more: Vec<Arc<dyn Adapter>>,
    ) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let mut flags = Flags {
            listen: Some("127.0.0.1:0".to_owned()),
            data: Some(folder.path().to_str().unwrap().to_owned()),
            grace: Some("2s".to_owned()),
            ..Flags::default()
        };
        change(&mut flags);
        Site::open(folder, flags, more).await
    }

    async fn open(folder: TempDir, flags: Flags, more: Vec<Arc<dyn Adapter>>) -> Site {
        let config = Config::layered(&flags, &|_| None, None).unwrap();
        let hosts: Vec<String> = config.allow_hosts.iter().cloned().collect();
        let options = Options::parse(hosts.iter().map(String::as_str), []).unwrap();
        let mut adapters = catena_adapters::all(options);
        adapters.extend(more);
        let venue = Venue::start(config, adapters, catena_adapters::demo_assets()).await.unwrap();
        let anyone = Client { address: venue.address(), authorization: None };
        Site { venue: Some(venue), folder, flags, anyone }
    }

    /// Stops the venue and starts it again in the same folder.
    pub async fn restarted(self) -> Site {
        self.restarted_after(Duration::ZERO).await
    }

    /// The same, with a time between in which there is no venue.
    pub async fn restarted_after(mut self, pause: Duration) -> Site {
        self.venue.take().unwrap().stop().await.unwrap();
        tokio::time::sleep(pause).await;
        Site::open(self.folder, self.flags, Vec::new()).await
    }

    /// The same venue, asked by the holder of a key.
    pub async fn caller(&self, seed: u8) -> Client {
        let did = self.get("/.well-known/did.json").await.json()["id"].as_str().unwrap().to_owned();
        let key = KeyPair::from_seed(&[seed; 32]);
        let token = token(&key, &[("aud", did.as_str().into())]);
        Client { address: self.address, authorization: Some(format!("Bearer {token}")) }
    }
}

impl Deref for Site {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.anyone
    }
}

/// A token that a key issues for itself, as the SDKs do, with more or other claims.
pub fn token(key: &KeyPair, more: &[(&str, Value)]) -> String {
    let did = key.did();
    let now = now_seconds();
    let mut claims = vec![
        ("iss", Value::from(did.as_str())),
        ("sub", did.as_str().into()),
        ("iat", now.into()),
        ("exp", (now + 300).into()),
    ];
    claims.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
    claims.extend(more.iter().map(|(name, value)| (*name, value.clone())));
    Token::mint(&claims.into_iter().collect::<Map>(), key)
}

#[expect(clippy::disallowed_methods, reason = "tokens are checked against the real clock")]
fn now_seconds() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Somebody who asks a venue.
#[derive(Debug, Clone)]
pub struct Client {
    /// Where the venue listens.
    pub address: SocketAddr,
    authorization: Option<String>,
}

impl Client {
    /// Somebody without a token.
    pub fn anonymous(address: SocketAddr) -> Client {
        Client { address, authorization: None }
    }

    /// A request with this client's token.
    pub fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(method, path);
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// Sends a request on a connection of its own.
    pub async fn ask(&self, request: Request) -> Reply {
        let asking = async {
            Connection::open(self.address).await?.ask(&request.header("connection", "close")).await
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap().unwrap()
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.ask(self.request("GET", path)).await
    }

    /// PUT without a body.
    pub async fn put(&self, path: &str) -> Reply {
        self.ask(self.request("PUT", path)).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Json) -> Reply {
        self.ask(self.request("POST", path).json(body)).await
    }

    /// Invokes an operation; the job as it was answered.
    pub async fn invoke(&self, operation: &str, input: Json) -> Json {
        let body = json!({"operation": operation, "input": input});
        self.post("/api/v1/invoke", &body).await.expect(201).json()
    }

    /// Invokes an operation and waits until the job stands there; its ID.
    pub async fn invoked(&self, operation: &str, input: Json, status: &str) -> String {
        let id = id_of(&self.invoke(operation, input).await);
        self.until(&id, status).await;
        id
    }

    /// The job.
    pub async fn job(&self, id: &str) -> Json {
        self.get(&format!("/api/v1/jobs/{id}")).await.expect(200).json()
    }

    /// Sends the job a message.
    pub async fn send(&self, id: &str, message: &Json) -> Reply {
        self.post(&format!("/api/v1/jobs/{id}"), message).await
    }

    /// Pauses, resumes, cancels or deletes a job.
    pub async fn control(&self, id: &str, action: &str) -> Reply {
        self.put(&format!("/api/v1/jobs/{id}/{action}")).await
    }

    /// Reads the job until it stands there.
    pub async fn until(&self, id: &str, status: &str) -> Json {
        self.until_that(id, |job| job["status"] == status).await
    }

    /// Reads the job until it has ended.
    pub async fn ended(&self, id: &str) -> Json {
        self.until_that(id, |job| is_terminal(job["status"].as_str().unwrap())).await
    }

    /// Reads the job until something holds of it.
    pub async fn until_that(&self, id: &str, holds: impl Fn(&Json) -> bool) -> Json {
        let reading = async {
            loop {
                let job = self.job(id).await;
                if holds(&job) {
                    return job;
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        };
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(job) => job,
            Err(_) => panic!("waited too long for {}", self.job(id).await),
        }
    }

    /// The whole history of a job, page by page.
    pub async fn history(&self, id: &str) -> Chain {
        let mut pages = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let path = format!("/api/v1/jobs/{id}/history?from={from}");
            let reply = self.get(&path).await.expect(200);
            next = reply.json()["next"].as_u64();
            pages.push(reply.body);
        }
        Chain::of_pages(pages.iter().map(Vec::as_slice))
    }

    /// Follows a job.
    pub async fn follow(&self, id: &str) -> Events {
        Events::open(self.address, &self.request("GET", &format!("/api/v1/jobs/{id}/sse"))).await
    }

    /// Follows a job from after a record.
    pub async fn follow_after(&self, id: &str, last: u64) -> Events {
        let request = self.request("GET", &format!("/api/v1/jobs/{id}/sse"));
        Events::open(self.address, &request.header("last-event-id", &last.to_string())).await
    }

    /// How many jobs the caller has.
    pub async fn job_count(&self) -> u64 {
        self.get("/api/v1/jobs?limit=0").await.expect(200).json()["total"].as_u64().unwrap()
    }
}

/// The ID of a job.
pub fn id_of(job: &Json) -> String {
    job["id"].as_str().unwrap().to_owned()
}
