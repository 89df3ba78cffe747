//! Hashes the sources of this crate and the lock file, which names every dependency and its checksum: the version
//! of the environment `render` changes with them.

use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// FNV-1a with 128 bits: this tells sources apart, and defends against nobody.
fn hash(bytes: &[u8], mut state: u128) -> u128 {
    for byte in bytes {
        state = (state ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    state
}

fn main() {
    let mut found = Vec::new();
    files(Path::new("src"), &mut found);
    found.push(PathBuf::from("Cargo.toml"));
    found.push(PathBuf::from("../../Cargo.lock"));
    found.sort();
    let mut state = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for path in &found {
        println!("cargo::rerun-if-changed={}", path.display());
        state = hash(path.to_string_lossy().as_bytes(), state);
        state = hash(&std::fs::read(path).unwrap_or_default(), state);
    }
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-env=RENDER_SOURCES={state:032x}");
}
