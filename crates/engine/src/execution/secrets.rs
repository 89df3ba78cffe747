//! Decides whether a running operation receives a secret of its caller.
//!
//! A definition that somebody else registered could send a secret anywhere, and so could everything
//! that it runs: a step, a call, an operation that it names in an input. So the definitions of the job
//! and of all jobs above it are checked.

use std::sync::Arc;

use catena_auth::Delegation;
use catena_auth::capability::Capability;
use catena_job::Job;
use catena_value::{NoCells, Value};

use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::{Current, Jobs, UserSecret};
use crate::operations::schema::{Place, Secret};
use crate::operations::{
    Failure, Keyring, KeyringReply, Operation, Operations, SecretPurpose, SecretRequest,
    queue_owner,
};
use crate::requests::Caller;

/// The failure code of a request that the store could not answer.
const STORE_FAILED: &str = "store";

/// Returns a secret of a caller for an operation. `None` if the caller has none with this name.
async fn find_secret(
    jobs: &Jobs,
    operations: &Operations,
    request: SecretRequest,
) -> Result<Option<String>, Failure> {
    let failed = |error: StoreError| Failure::transient(STORE_FAILED, error.to_string());
    let owner = &request.caller.did;
    let found = jobs.user_secret(owner, &request.name).await.map_err(failed)?;
    let Some(secret) = found else { return Ok(None) };
    check_purpose(&request, &secret)?;
    if let Some(definition) =
        foreign_definition(jobs, operations, &request, &secret).await.map_err(failed)?
    {
        let text = format!(
            "the secret is not available to definition {definition}, which somebody else \
             registered; its owner can grant `secret/use` with secret:grant"
        );
        return Err(Failure::new("secret_refused", text));
    }
    let value = jobs.open_user_secret(owner, &request.name, &secret);
    let locked = || {
        let text = "the secret was encrypted with a key that this venue does not have";
        Failure::new("secret_locked", text)
    };
    value.map(Some).ok_or_else(locked)
}

/// Returns the ID of a definition that somebody else registered, led to the request, and was not
/// granted the use of the secret.
async fn foreign_definition(
    jobs: &Jobs,
    operations: &Operations,
    request: &SecretRequest,
    secret: &UserSecret,
) -> Result<Option<String>, StoreError> {
    let owner = &request.caller.did;
    let mut definition = request.definition.clone();
    let mut above = match request.job {
        Some(job) => jobs.current(job).await?.and_then(|current| parent_of(&current.job)),
        None => None,
    };
    loop {
        let is_granted = secret.grants.contains(&definition);
        if !is_granted && !operations.owns_definition(owner, &definition).await? {
            return Ok(Some(definition));
        }
        let Some(id) = above else { return Ok(None) };
        let Some(current) = jobs.current(id).await? else { return Ok(None) };
        let operation = current.job.field("operation").and_then(Value::as_str);
        definition = operation.unwrap_or_default().to_owned();
        above = parent_of(&current.job);
    }
}

impl Keyring for Execution {
    fn seal_secret(&self, caller: &Caller, name: &str, value: &str) -> Result<String, Failure> {
        let sealed = self.jobs.seal_user_secret(&caller.did, name, value);
        sealed.map_err(|error| Failure::new("secret_refused", error.to_string()))
    }

    fn secret(&self, request: SecretRequest) -> KeyringReply<Option<String>> {
        let jobs = Arc::clone(&self.jobs);
        let operations = Arc::clone(&self.operations);
        Box::pin(async move { find_secret(&jobs, &operations, request).await })
    }

    fn issue_delegation(
        &self,
        caller: &Caller,
        audience: &str,
        capabilities: &[Capability],
        expires: Option<i64>,
    ) -> Result<String, Failure> {
        let missing = || Failure::new("unsupported", "this venue has no key to sign with");
        let key = self.operations.signer.as_ref().ok_or_else(missing)?;
        Ok(Delegation::issue_for(&caller.did, audience, capabilities, expires, key))
    }

    fn key_did(&self) -> &str {
        &self.operations.key_did
    }

    fn find_revocation(&self, delegation: Delegation) -> KeyringReply<bool> {
        let operations = Arc::clone(&self.operations);
        Box::pin(async move {
            let failed = |error: StoreError| Failure::transient(STORE_FAILED, error.to_string());
            operations.find_revocation(&delegation).await.map_err(failed)
        })
    }
}

impl Execution {
    /// Returns the secrets that a worker gets with a job, by name: of the caller's store, or else the
    /// secret field of the input with that name. The inner error is what the job fails with.
    pub(crate) async fn worker_secrets(
        &self,
        current: &Current,
        operation: &Operation,
        input: &Value,
    ) -> Result<Result<Vec<(String, String)>, Failure>, StoreError> {
        let Some(spec) = operation.queue().filter(|spec| !spec.secrets.is_empty()) else {
            return Ok(Ok(Vec::new()));
        };
        let caller = self.jobs.caller_of(&current.job).await?;
        let purpose = match spec.url.as_deref().and_then(host_of) {
            Some(host) => SecretPurpose::send_to_default(host),
            None => {
                let to = queue_owner(&current.job).unwrap_or_default().to_owned();
                SecretPurpose::Hand { to }
            }
        };
        let mut found = Vec::with_capacity(spec.secrets.len());
        for name in &spec.secrets {
            let request = SecretRequest {
                caller: caller.clone(),
                definition: operation.id_text().to_owned(),
                job: Some(current.job.id()),
                name: name.clone(),
                purpose: purpose.clone(),
            };
            let stored = match find_secret(&self.jobs, &self.operations, request).await {
                Ok(stored) => stored,
                // Not a fact about the job: it stays on its queue.
                Err(failure) if failure.code == STORE_FAILED => return Err(StoreError::Busy),
                Err(failure) => return Ok(Err(failure)),
            };
            let Some(value) = stored.or_else(|| secret_field(operation, input, name)) else {
                let text = format!(
                    "the caller has no secret {name}, which the operation declares; store it with \
                     secret:set"
                );
                return Ok(Err(Failure::new("secret_not_found", text)));
            };
            found.push((name.clone(), value));
        }
        Ok(Ok(found))
    }
}

/// Returns the text of a field of the input that the operation marks `writeOnly`.
fn secret_field(operation: &Operation, input: &Value, name: &str) -> Option<String> {
    let is_secret = |secret: &Secret| matches!(&secret[..], [Place::At(at)] if at == name);
    operation.secrets().iter().any(is_secret).then_some(())?;
    let field = input.as_map()?.get(&name.into(), &NoCells).ok()??;
    field.to_text().map(|text| text.into_owned())
}

/// Returns the host of a URL with its port, which is that of the scheme if it names none: a secret may be bound to
/// either. The URL of a definition was written by a parser, so nothing in it stands for a separator but the
/// separators themselves.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    if host.rsplit_once(':').is_some_and(|(_, port)| is_port(port)) {
        return Some(host.to_owned());
    }
    let port = if scheme == "http" { 80 } else { 443 };
    Some(format!("{host}:{port}"))
}

fn parent_of(job: &Job) -> Option<catena_job::JobId> {
    job.parent().map(|parent| parent.job)
}

/// Fails if a secret may not be sent to the host, given to the worker, or shown.
fn check_purpose(request: &SecretRequest, secret: &UserSecret) -> Result<(), Failure> {
    let refused = |text: String| Err(Failure::new("secret_refused", text));
    let is_model = request.caller.is_model();
    let (host, is_default) = match &request.purpose {
        SecretPurpose::Send { host, is_default } => (host, is_default),
        SecretPurpose::Hand { .. } if !secret.hosts.is_empty() => {
            return refused("the secret is bound to hosts, and a worker may send it to any".into());
        }
        // Whoever registers an equal definition has its ID, too, but not the workers of the other one.
        SecretPurpose::Hand { to }
            if *to != *request.caller.did && !secret.grants.contains(&request.definition) =>
        {
            return refused(format!(
                "the secret is not available to the workers of {to}; its owner can grant \
                 `secret/use` to definition {} with secret:grant",
                request.definition
            ));
        }
        SecretPurpose::Hand { .. } => return Ok(()),
        SecretPurpose::Show if is_model => {
            return refused("a model cannot see a secret".to_owned());
        }
        SecretPurpose::Show => return Ok(()),
    };
    let is_bound = secret.hosts.iter().any(|bound| covers_host(bound, host));
    if is_bound || secret.hosts.is_empty() && (!is_model || *is_default) {
        return Ok(());
    }
    if secret.hosts.is_empty() {
        return refused(format!(
            "a model chose this call, and the secret is bound to no host; bind it with `hosts` to send \
             it to {host}"
        ));
    }
    refused(format!("the secret is bound to other hosts than {host}"))
}

/// Returns true if a bound host is a host, or the same host without a port.
fn covers_host(bound: &str, host: &str) -> bool {
    let without_port = host.rsplit_once(':').filter(|(_, port)| is_port(port));
    bound.eq_ignore_ascii_case(host)
        || without_port.is_some_and(|(name, _)| bound.eq_ignore_ascii_case(name))
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_has_a_port() {
        for (url, expected) in [
            ("https://api.example/jobs?a=b:1", "api.example:443"),
            ("http://api.example", "api.example:80"),
            ("https://api.example:8443/", "api.example:8443"),
            ("https://user:1@api.example/", "api.example:443"),
            ("https://[2001:db8::1]/", "[2001:db8::1]:443"),
        ] {
            assert_eq!(host_of(url).as_deref(), Some(expected), "{url}");
        }
        assert!(covers_host("api.example", &host_of("https://api.example/").unwrap()));
        assert!(covers_host("api.example:443", &host_of("https://api.example/").unwrap()));
        assert!(!covers_host("api.example:8443", &host_of("https://api.example/").unwrap()));
    }

    #[test]
    fn a_bound_host_covers_itself_with_any_port_unless_it_names_one() {
        assert!(covers_host("api.example", "API.example"));
        assert!(covers_host("api.example", "api.example:8443"));
        assert!(covers_host("api.example:8443", "api.example:8443"));
        assert!(!covers_host("api.example:8443", "api.example"));
        assert!(!covers_host("api.example", "api.example.evil.example"));
        assert!(!covers_host("api.example", "evil.example"));
        assert!(covers_host("[::1]", "[::1]:80"));
    }
}
