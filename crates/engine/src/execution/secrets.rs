//! Decides whether a running operation receives a secret of its caller.
//!
//! A definition that somebody else registered could send a secret anywhere, and so could everything
//! that it runs: a step, a call, an operation that it names in an input. So the definitions of the job
//! and of all jobs above it are checked.

use std::sync::Arc;

use catena_auth::Delegation;
use catena_auth::capability::Capability;
use catena_job::Job;
use catena_value::Value;

use crate::error::StoreError;
use crate::execution::Execution;
use crate::jobs::{Jobs, UserSecret};
use crate::operations::{Failure, Keyring, KeyringReply, Operations, SecretPurpose, SecretRequest};
use crate::requests::Caller;

/// Returns a secret of a caller for an operation. `None` if the caller has none with this name.
async fn find_secret(
    jobs: &Jobs,
    operations: &Operations,
    request: SecretRequest,
) -> Result<Option<String>, Failure> {
    let failed = |error: StoreError| Failure::transient("store", error.to_string());
    let owner = &request.caller.did;
    let found = jobs.user_secret(owner, &request.name).await.map_err(failed)?;
    let Some(secret) = found else { return Ok(None) };
    check_host(&request, &secret)?;
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
            let failed = |error: StoreError| Failure::transient("store", error.to_string());
            operations.find_revocation(&delegation).await.map_err(failed)
        })
    }
}

fn parent_of(job: &Job) -> Option<catena_job::JobId> {
    job.parent().map(|parent| parent.job)
}

/// Fails if a secret may not be sent to the host, or shown.
fn check_host(request: &SecretRequest, secret: &UserSecret) -> Result<(), Failure> {
    let refused = |text: String| Err(Failure::new("secret_refused", text));
    let is_model = request.caller.is_model();
    let SecretPurpose::Send { host, is_default } = &request.purpose else {
        if is_model {
            return refused("a model cannot see a secret".to_owned());
        }
        return Ok(());
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
