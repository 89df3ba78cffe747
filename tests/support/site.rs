//! A venue in this process, on a free port, and a client of it.

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
use catena_value::{Map, Value, Vector};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::TIMEOUT;
use crate::chain::{Chain, is_terminal};
use crate::events::Events;
use crate::http::{Connection, Reply, Request};

/// The interval at which a job is polled until it has the expected status.
const POLL_EVERY: Duration = Duration::from_millis(3);

/// A running venue and its folder. It dereferences to an anonymous client.
pub struct Site {
    venue: Option<Venue>,
    folder: TempDir,
    flags: Flags,
    anonymous: Client,
}

impl Site {
    /// A venue with default settings.
    pub async fn start() -> Site {
        Site::with(|_| {}).await
    }

    /// A venue with these settings in addition to the defaults.
    pub async fn with(change: impl FnOnce(&mut Flags)) -> Site {
        Site::with_adapters(change, Vec::new()).await
    }

    /// A venue with additional adapters, which are missing after a restart.
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
        let options = Options {
            plan: config.plan(),
            default_environment: config.default_environment.value.clone(),
            agents: config.agents(),
            ..options
        };
        let mut adapters = catena_adapters::all(options);
        adapters.extend(more);
        let venue = Venue::start(config, adapters, catena_adapters::demo_assets()).await.unwrap();
        let anonymous = Client { address: venue.address(), authorization: None };
        Site { venue: Some(venue), folder, flags, anonymous }
    }

    /// Stops the venue and starts it again in the same folder.
    pub async fn restarted(self) -> Site {
        self.restarted_after(Duration::ZERO).await
    }

    /// Stops the venue and starts it again after a pause.
    pub async fn restarted_after(mut self, pause: Duration) -> Site {
        self.venue.take().unwrap().stop().await.unwrap();
        tokio::time::sleep(pause).await;
        Site::open(self.folder, self.flags, Vec::new()).await
    }

    /// The engine of the venue.
    pub fn engine(&self) -> &catena_engine::Engine {
        self.venue.as_ref().unwrap().engine()
    }

    /// The data folder.
    pub fn data(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// A client of this venue that is authenticated with the key of this seed.
    pub async fn caller(&self, seed: u8) -> Client {
        let did = self.get("/.well-known/did.json").await.json()["id"].as_str().unwrap().to_owned();
        let key = KeyPair::from_seed(&[seed; 32]);
        let token = token(&key, &[("aud", did.as_str().into())]);
        Client { address: self.address, authorization: Some(format!("Bearer {token}")) }
    }
}

impl Site {
    /// A client with a token for workers of these queues of a user.
    pub fn worker(&self, subject: &str, queues: &[&str]) -> Client {
        let token = self.worker_token(subject, queues);
        Client { address: self.address, authorization: Some(format!("Bearer {token}")) }
    }

    /// A token for workers of these queues of a user.
    pub fn worker_token(&self, subject: &str, queues: &[&str]) -> String {
        let key = catena_server::key::load(self.data()).unwrap().unwrap();
        let queues: Vec<String> = queues.iter().map(|queue| (*queue).to_owned()).collect();
        let grant = catena_auth::identity::Grant {
            subject,
            id: "worker",
            issued: now_seconds(),
            expires: None,
            is_admin: false,
            queues: Some(&queues),
        };
        let venue = catena_auth::Venue { did: key.did(), public: key.public() };
        venue.issue(&key, &grant)
    }
}

impl Deref for Site {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.anonymous
    }
}

/// A self-issued token as the SDKs create it, with additional or different claims.
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

/// A delegation to this DID, as the SDKs issue it, with some claims replaced.
pub fn delegation(key: &KeyPair, audience: &str, more: &[(&str, Value)]) -> String {
    let capability: Map = [("with", key.did()), ("can", "invoke".to_owned())].into_iter().collect();
    let mut claims = vec![
        ("iss", Value::from(key.did())),
        ("aud", audience.into()),
        ("ucv", "0.10.0".into()),
        ("att", Vector::from_items(vec![capability.into()]).into()),
        ("prf", Vector::from_items(Vec::new()).into()),
        ("exp", (now_seconds() + 3600).into()),
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

/// A client of a venue.
#[derive(Debug, Clone)]
pub struct Client {
    /// The address on which the venue listens.
    pub address: SocketAddr,
    authorization: Option<String>,
}

impl Client {
    /// A client that presents this token.
    pub fn with_token(address: SocketAddr, token: &str) -> Client {
        Client { address, authorization: Some(format!("Bearer {token}")) }
    }

    /// A client without a token.
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

    /// Sends a request on a new connection.
    pub async fn ask(&self, request: Request) -> Reply {
        let asking = async {
            Connection::open(self.address).await?.ask(&request.header("connection", "close")).await
        };
        tokio::time::timeout(TIMEOUT, asking).await.unwrap().unwrap()
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Reply {
        self.ask(self.request("GET", path)).await
    }

    /// Sends a PUT request without a body.
    pub async fn put(&self, path: &str) -> Reply {
        self.ask(self.request("PUT", path)).await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, path: &str, body: &Json) -> Reply {
        self.ask(self.request("POST", path).json(body)).await
    }

    /// Invokes an operation and returns the job of the response.
    pub async fn invoke(&self, operation: &str, input: Json) -> Json {
        let body = json!({"operation": operation, "input": input});
        self.post("/api/v1/invoke", &body).await.expect(201).json()
    }

    /// Invokes an operation, waits until the job has this status, and returns its ID.
    pub async fn invoked(&self, operation: &str, input: Json, status: &str) -> String {
        let id = id_of(&self.invoke(operation, input).await);
        self.until(&id, status).await;
        id
    }

    /// Reads a job.
    pub async fn job(&self, id: &str) -> Json {
        self.get(&format!("/api/v1/jobs/{id}")).await.expect(200).json()
    }

    /// Sends a message to a job.
    pub async fn send(&self, id: &str, message: &Json) -> Reply {
        self.post(&format!("/api/v1/jobs/{id}"), message).await
    }

    /// Pauses, resumes, cancels or deletes a job.
    pub async fn control(&self, id: &str, action: &str) -> Reply {
        self.put(&format!("/api/v1/jobs/{id}/{action}")).await
    }

    /// Polls the job until it has this status.
    pub async fn until(&self, id: &str, status: &str) -> Json {
        self.until_that(id, |job| job["status"] == status).await
    }

    /// Polls the job until it has ended.
    pub async fn ended(&self, id: &str) -> Json {
        self.until_that(id, |job| is_terminal(job["status"].as_str().unwrap())).await
    }

    /// Polls the job until the predicate holds.
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
        match tokio::time::timeout(TIMEOUT, reading).await {
            Ok(job) => job,
            Err(_) => panic!("waited too long for {}", self.job(id).await),
        }
    }

    /// The entity tag of a resource once two reads in a row agree on it. Changes outside the chain,
    /// such as those of a sub-job, reach the tag shortly after they can be read.
    pub async fn settled_tag(&self, path: &str) -> String {
        let reading = async {
            loop {
                let tag = self.get(path).await.header("etag").unwrap().to_owned();
                let request = self.request("GET", path).header("if-none-match", &tag);
                if self.ask(request).await.status() == 304 {
                    return tag;
                }
                tokio::time::sleep(POLL_EVERY).await;
            }
        };
        tokio::time::timeout(TIMEOUT, reading).await.expect("the entity tag keeps changing")
    }

    /// The complete history of a job, read page by page.
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

    /// Opens the event stream of a job.
    pub async fn follow(&self, id: &str) -> Events {
        Events::open(self.address, &self.request("GET", &format!("/api/v1/jobs/{id}/sse"))).await
    }

    /// Opens the event stream of a job after the record with this number.
    pub async fn follow_after(&self, id: &str, last: u64) -> Events {
        let request = self.request("GET", &format!("/api/v1/jobs/{id}/sse"));
        Events::open(self.address, &request.header("last-event-id", &last.to_string())).await
    }

    /// The number of jobs of the caller.
    pub async fn job_count(&self) -> u64 {
        self.get("/api/v1/jobs?limit=0").await.expect(200).json()["total"].as_u64().unwrap()
    }
}

/// The ID of a job.
pub fn id_of(job: &Json) -> String {
    job["id"].as_str().unwrap().to_owned()
}
