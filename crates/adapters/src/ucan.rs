//! `ucan`: delegations of the caller.
//!
//! **What it does:** issues a delegation for what belongs to the caller, checks one, and revokes one. A
//! delegation that this venue issues is signed with its key and names the caller; only this venue
//! accepts it. Callers with a key of their own can sign delegations themselves.
//!
//! **Cost:** one signature, or one check of each token; a revocation is one commit with its job.
//!
//! **Cancellation:** not needed, it completes at once.
//!
//! **Repetition:** safe.

use catena_engine::capability::{Capability, owner_of};
use catena_engine::requests::capabilities;
use catena_engine::{
    Adapter, Call, Delegation, DelegationError, ExecutionMode, Failure, Need, Operation,
    Registration, RootId, Roots, Turn, TurnFuture,
};
use catena_value::{Map, Value};

use crate::definition::{Definition, Mark, check_reference, registrations};
use crate::fields::{Fields, array, invalid_input, object};
use crate::limits::{ISSUED_CAPABILITIES_MAX, REVOCATIONS_MAX};
use crate::nested;

/// The adapter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ucan;

// Operations.

const OPERATIONS: &[Definition] = &[
    Definition {
        name: "issue",
        title: "Issue a delegation",
        description: "Lets another identity do something with what belongs to the caller, at this venue.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(
            r#"{"type":"object","required":["aud","att"],"properties":{
                "aud":{"type":"string","description":"The DID of who receives it"},
                "att":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"object","required":["with","can"],
                    "properties":{"with":{"type":"string"},"can":{"type":"string"}}}},
                "exp":{"type":["integer","null"],"description":"Unix time in seconds; null never expires"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["token"],"properties":{"token":{"type":"string"}}}"#,
        ),
    },
    Definition {
        name: "verify",
        title: "Check a delegation",
        description: "Says whether a delegation is valid and, with `with` and `can`, whether it permits that.",
        mode: ExecutionMode::Task,
        marks: &[Mark::Idempotent, Mark::ReadOnly],
        input: Some(
            r#"{"type":"object","required":["token"],"properties":{
                "token":{"type":"string","writeOnly":true},
                "with":{"type":["string","null"]},"can":{"type":["string","null"]},
                "aud":{"type":["string","null"],"description":"The expected audience"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["valid"],"properties":{
                "valid":{"type":"boolean"},"reason":{"type":"string"},
                "iss":{"type":"string"},"aud":{"type":"string"},"exp":{"type":["integer","null"]},
                "chainDepth":{"type":"integer"},"rootIssuer":{"type":"string"},
                "att":{"type":"array"},"authorises":{"type":"boolean"}}}"#,
        ),
    },
    Definition {
        name: "revoke",
        title: "Revoke a delegation",
        description: "Makes this venue refuse a delegation that the caller issued, and all that are based on it.",
        mode: ExecutionMode::Roots,
        marks: &[Mark::Idempotent],
        input: Some(
            r#"{"type":"object","required":["token"],"properties":{"token":{"type":"string","writeOnly":true}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["revoked"],"properties":{
                "revoked":{"type":"boolean"},"digest":{"type":"string","description":"SHA-256 of the token"}}}"#,
        ),
    },
];

// Input.

/// Returns the capabilities to issue. Fails if one is for something that is not the caller's.
fn issued(fields: &Fields<'_>, caller: &str) -> Result<Vec<Capability>, Failure> {
    let malformed = || invalid_input("`att` must be an array of `{with, can}`");
    let att = fields.get("att").and_then(capabilities).ok_or_else(malformed)?;
    if att.is_empty() || att.len() > ISSUED_CAPABILITIES_MAX {
        return Err(invalid_input(format!(
            "`att` must have 1 to {ISSUED_CAPABILITIES_MAX} entries"
        )));
    }
    for capability in &att {
        let resource = capability.resource(caller);
        if owner_of(&resource) != caller {
            let text = format!("`{}` does not belong to the caller", capability.with);
            return Err(Failure::new("forbidden", text));
        }
    }
    Ok(att)
}

// Output.

fn att_value(att: &[Capability]) -> Value {
    let entry = |capability: &Capability| {
        object([("with", capability.with.as_str().into()), ("can", capability.can.as_str().into())])
    };
    array(att.iter().map(entry).collect())
}

fn invalid(reason: String) -> Value {
    object([("valid", false.into()), ("reason", reason.into()), ("authorises", false.into())])
}

// Execution.

fn issue(call: &Call) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let audience = fields.text("aud")?;
    if !audience.starts_with("did:") {
        return Err(invalid_input("`aud` must be a DID"));
    }
    let att = issued(&fields, &call.caller.did)?;
    let expires = fields.integer("exp", 0, i64::MAX)?;
    let token = call.host.keyring().issue_delegation(&call.caller, &audience, &att, expires)?;
    Ok(object([("token", token.into())]))
}

async fn verify(call: &Call) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    let now = call.host.env().now().div_euclid(1_000);
    let delegation = match Delegation::verify(&fields.text("token")?, now) {
        Ok(delegation) => delegation,
        Err(error) => return Ok(invalid(error.to_string())),
    };
    let venue = call.host.keyring().key_did();
    let reason = refusal(&fields, &delegation, venue)?;
    let reason = match reason {
        None if call.host.keyring().find_revocation(delegation.clone()).await? => {
            Some("it was revoked".to_owned())
        }
        reason => reason,
    };
    let authorises = match (fields.optional_text("with")?, fields.optional_text("can")?) {
        (Some(with), Some(can)) => {
            let wanted = Capability { with, can: can.clone() };
            let resource = wanted.resource(delegation.delegator(venue));
            Some(reason.is_none() && delegation.permits(&can, &resource, venue))
        }
        _ => None,
    };
    let chain = delegation.chain();
    let deepest = chain.iter().max_by_key(|(depth, _)| *depth);
    let (depth, root) = deepest.map_or((1, &delegation), |(depth, root)| (*depth, *root));
    let mut members = vec![
        ("valid", Value::from(reason.is_none())),
        ("iss", delegation.issuer.as_str().into()),
        ("aud", delegation.audience.as_str().into()),
        ("exp", delegation.expires.map_or(Value::Nil, Value::from)),
        ("chainDepth", i64::try_from(depth).unwrap_or(0).into()),
        ("rootIssuer", root.delegator(venue).into()),
        ("att", att_value(&delegation.capabilities)),
    ];
    members.extend(reason.map(|reason| ("reason", reason.into())));
    members.extend(authorises.map(|authorises| ("authorises", authorises.into())));
    Ok(members.into_iter().collect::<Map>().into())
}

/// Returns why an authentic delegation is not valid.
fn refusal(
    fields: &Fields<'_>,
    delegation: &Delegation,
    venue: &str,
) -> Result<Option<String>, Failure> {
    let expected = fields.optional_text("aud")?;
    if expected.is_some_and(|audience| audience != delegation.audience) {
        let error = DelegationError::Audience(delegation.audience.clone());
        return Ok(Some(error.to_string()));
    }
    let uncovered = delegation.uncovered(venue);
    Ok(uncovered.map(|capability| {
        format!("{capability} is covered neither by the issuer's authority nor by a proof")
    }))
}

fn revoke(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let fields = Fields::from_value(&call.input)?;
    // One that has expired need not be revoked, and one that is not valid yet may be.
    let delegation = Delegation::verify(&fields.text("token")?, roots.now().div_euclid(1_000));
    let delegation = delegation.map_err(|error| invalid_input(format!("`token`: {error}")))?;
    let venue = call.host.keyring().key_did();
    let is_issuer =
        delegation.chain().iter().any(|(_, part)| part.delegator(venue) == &*call.caller.did);
    if !is_issuer {
        let text = "only who issued a delegation, or one on which it is based, can revoke it";
        return Err(Failure::new("forbidden", text));
    }
    let root = RootId::revocations();
    let revoked = roots.get(&root)?.and_then(Value::as_map).cloned().unwrap_or_default();
    if revoked.len() >= REVOCATIONS_MAX {
        let text = format!("a user revokes at most {REVOCATIONS_MAX} delegations");
        return Err(Failure::new("too_many_revocations", text));
    }
    let digest = delegation.digest.as_str();
    let changed = revoked.insert(digest.into(), roots.now().into(), roots.cells());
    let changed = changed.map_err(|error| Failure::new("internal", error.to_string()))?;
    roots.set(&root, Some(changed.into()))?;
    Ok(object([("revoked", true.into()), ("digest", digest.into())]))
}

impl Adapter for Ucan {
    fn name(&self) -> &'static str {
        "ucan"
    }

    fn description(&self) -> &'static str {
        "Issues, checks and revokes delegations (UCANs)."
    }

    fn operations(&self) -> Vec<Registration> {
        registrations(self.name(), OPERATIONS)
    }

    fn check(&self, operation: &Operation) -> Vec<(String, String)> {
        check_reference(operation.adapter_ref(), OPERATIONS)
    }

    fn needs(&self, operation: &Operation, _input: &Value) -> Vec<Need> {
        // Who may do only a part must not delegate everything.
        match operation.name() {
            "issue" => vec![Need::new("ucan/delegate", "")],
            "revoke" => vec![Need::new("ucan/revoke", "")],
            _ => Vec::new(),
        }
    }

    fn roots(&self, _call: &Call) -> Result<Vec<RootId>, Failure> {
        Ok(vec![RootId::revocations()])
    }

    fn run_on_roots(&self, call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        revoke(call, roots)
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move {
            match call.operation.name() {
                "issue" => issue(&call).into(),
                "verify" => verify(&call).await.into(),
                _ => Turn::Failed(nested::unsupported_operation(&call)),
            }
        })
    }
}
