//! Secrets that flow through a plan: parts of an orchestration's input that a step passes to a field
//! which its own operation marks `writeOnly`. They are secret in the orchestration, too, whatever its
//! own schema says: otherwise its record would contain what the step's record hides.

use catena_job::plan::{Plan, Source};

use crate::limits::FLOWING_SECRETS_MAX;
use crate::operations::schema::{Place, Secret};

/// Returns the paths in the input of an orchestration from which secrets of its steps are taken.
/// `secrets_of` returns the secrets of a step's operation. If there are too many, all of the input is
/// secret.
pub(super) fn flowing_secrets<'a>(
    plan: &Plan,
    secrets_of: impl Fn(usize) -> &'a [Secret],
) -> Vec<Secret> {
    let mut found = Vec::new();
    for (index, step) in plan.steps.iter().enumerate() {
        for secret in secrets_of(index) {
            trace(&step.input, secret, &mut found);
            if found.len() > FLOWING_SECRETS_MAX {
                return vec![Secret::new()];
            }
        }
    }
    found
}

/// Adds the parts of the input that end up at this path of a source's value.
fn trace(source: &Source, secret: &[Place], found: &mut Vec<Secret>) {
    let rest = secret.get(1..).unwrap_or_default();
    let is_on_path = |name: &str| match secret.first() {
        None | Some(Place::Each) => true,
        Some(Place::At(own)) => own == name,
        Some(Place::EachExcept(harmless)) => {
            !harmless.iter().any(|other| other.eq_ignore_ascii_case(name))
        }
    };
    match source {
        Source::Const(_) | Source::Step { .. } => {}
        Source::Input(path) => {
            let mut at: Secret = path.segments().iter().cloned().map(Place::At).collect();
            at.extend_from_slice(secret);
            if !found.contains(&at) {
                found.push(at);
            }
        }
        Source::Concat(parts) => parts.iter().for_each(|part| trace(part, &[], found)),
        Source::Array(parts) => {
            for (index, part) in parts.iter().enumerate() {
                if is_on_path(&index.to_string()) {
                    trace(part, rest, found);
                }
            }
        }
        Source::Object(members) => {
            for (name, member) in members {
                if is_on_path(name) {
                    trace(member, rest, found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catena_value::json;

    fn at(names: &[&str]) -> Secret {
        names.iter().map(|name| Place::At((*name).to_owned())).collect()
    }

    #[track_caller]
    fn check(input: &str, secrets: &[Secret], expected: &[Secret]) {
        let text = format!(
            r#"{{"operation":{{"adapter":"orchestrator","steps":[{{"op":"x:y","input":{input}}}],
                "result":[0]}}}}"#
        );
        let plan = Plan::parse(&json::read(text.as_bytes()).unwrap()).unwrap();
        let mut found = flowing_secrets(&plan, |_| secrets);
        // The members of an object have no order.
        found.sort_by_key(|secret| format!("{secret:?}"));
        assert_eq!(found, expected, "{input}");
    }

    #[test]
    fn what_a_step_keeps_secret_is_secret_where_it_comes_from() {
        let header =
            [vec![Place::At("headers".into()), Place::EachExcept(vec!["accept".to_owned()])]];
        let input = r#"{"headers":{"X-Token":["input","token"],"Accept":["input","accept"]}}"#;
        check(input, &header, &[at(&["token"])]);
        let key = [at(&["key"])];
        check(
            r#"{"key":["concat",["const","Bearer "],["input","a","b"]]}"#,
            &key,
            &[at(&["a", "b"])],
        );
        check(r#"{"key":["const",1],"other":["input","x"]}"#, &key, &[]);
        check(r#"["input","all"]"#, &key, &[at(&["all", "key"])]);
        let whole = [Secret::new()];
        check(r#"{"a":["input","x"],"b":{"c":["input","y"]}}"#, &whole, &[at(&["x"]), at(&["y"])]);
    }
}
