//! The locations of secrets: fields that a schema marks `writeOnly`.

use std::collections::HashSet;

use super::document::{AppliesTo, Document, Index};
use crate::limits::{SECRET_DEPTH_MAX, SECRET_PATH_BYTES_MAX, SECRET_SEARCH_SCHEMAS_MAX};

/// One segment of the path to a secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// The member with this name, or the item at this index.
    At(String),
    /// Every member or item.
    Each,
    /// Every member but those with these names, which are compared without regard to case.
    EachExcept(Vec<String>),
}

/// The path to a secret. The empty path is the value itself.
pub type Secret = Vec<Place>;

/// A schema to visit, and the path of the part that it applies to.
struct Visit {
    schema: Index,
    path: Secret,
    path_bytes: usize,
}

/// Returns every path that a schema marks as secret. Fails if the schema is too large to search.
pub(super) fn find_secrets(document: &Document) -> Result<Vec<Secret>, String> {
    let leads_to_secret = leads_to_secret(document);
    let mut found: Vec<Secret> = Vec::new();
    let mut known: HashSet<Secret> = HashSet::new();
    let mut seen: HashSet<(Index, Secret)> = HashSet::new();
    let mut bytes = 0;
    let mut open = vec![Visit { schema: 0, path: Vec::new(), path_bytes: 0 }];
    while let Some(Visit { schema, path, path_bytes }) = open.pop() {
        // Most schemas lead to no secret, and most that do are reached in one way.
        if !leads_to_secret[schema as usize] || !seen.insert((schema, path.clone())) {
            continue;
        }
        bytes += path_bytes + 64;
        if seen.len() > SECRET_SEARCH_SCHEMAS_MAX || bytes > SECRET_PATH_BYTES_MAX {
            return Err("the schema is too large to search for `writeOnly` fields".to_owned());
        }
        let node = document.node(schema);
        if node.is_secret || path.len() == SECRET_DEPTH_MAX {
            if known.insert(path.clone()) {
                found.push(path);
            }
            continue;
        }
        // The first subschema is visited first, so that secrets are in the order of the schema.
        for (target, schema) in node.edges.iter().rev() {
            let schema = *schema;
            let place = match target {
                AppliesTo::SameValue => {
                    open.push(Visit { schema, path: path.clone(), path_bytes });
                    continue;
                }
                AppliesTo::Member(name) => Place::At(name.to_string()),
                AppliesTo::Item(index) => Place::At(index.to_string()),
                AppliesTo::EachMember if node.harmless.is_some() => {
                    Place::EachExcept(node.harmless.clone().unwrap_or_default())
                }
                AppliesTo::EachMember | AppliesTo::EachItem => Place::Each,
                // A name cannot be left out of a record.
                AppliesTo::EachName => continue,
            };
            if !leads_to_secret[schema as usize] {
                continue;
            }
            let path_bytes = path_bytes + place_bytes(&place);
            let mut path = path.clone();
            path.push(place);
            open.push(Visit { schema, path, path_bytes });
        }
    }
    Ok(found)
}

fn place_bytes(place: &Place) -> usize {
    match place {
        Place::At(name) => name.len() + 32,
        Place::EachExcept(names) => names.iter().map(|name| name.len() + 32).sum::<usize>() + 32,
        Place::Each => 32,
    }
}

/// Returns for each schema whether it is marked or leads to a marked one.
fn leads_to_secret(document: &Document) -> Vec<bool> {
    let mut sources: Vec<Vec<Index>> = vec![Vec::new(); document.len()];
    let mut leads = vec![false; document.len()];
    let mut open = Vec::new();
    for (source, leads) in (0..).zip(&mut leads) {
        let node = document.node(source);
        for (_, target) in &node.edges {
            sources[*target as usize].push(source);
        }
        if node.is_secret {
            *leads = true;
            open.push(source);
        }
    }
    while let Some(index) = open.pop() {
        for source in &sources[index as usize] {
            if !leads[*source as usize] {
                leads[*source as usize] = true;
                open.push(*source);
            }
        }
    }
    leads
}
