//! Commands around a venue: verification, operations, tokens, keys and settings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::net::TcpListener;
use std::path::Path;

use catena_value::Value;
use support::{Running, catena, field, member, value, venue, venue_with};

#[test]
fn an_unreachable_venue_is_code_7_with_the_command_that_starts_one() {
    let folder = tempfile::tempdir().unwrap();
    // A port that was free a moment ago, so that nothing listens on it.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{address}");
    for args in [
        &["run", "test:echo"][..],
        &["jobs", "ls"],
        &["jobs", "watch", "019c095e8e4a70909090909090909090"],
        &["ops", "ls"],
        &["verify", "019c095e8e4a70909090909090909090"],
    ] {
        let ran = catena(folder.path(), args, &[("CATENA_VENUE", &url)], b"");
        assert_eq!((ran.code, ran.stdout.as_str()), (7, ""), "{args:?}: {}", ran.stderr);
        let expected = format!("error: could not reach the venue at {url}: connection refused\n");
        assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("`catena up --listen {address}`")), "{}", ran.stderr);
    }
    let ran = catena(folder.path(), &["jobs", "ls", "--venue", &url, "--json"], &[], b"");
    assert_eq!((ran.code, member(&ran.stderr, "code")), (7, "unreachable".into()));
    let ran = catena(folder.path(), &["jobs", "ls", "--venue", "venue"], &[], b"");
    assert_eq!(ran.code, 2);
}

#[test]
fn tokens_are_created_used_listed_and_revoked() {
    let closed = |flags: &mut catena_server::config::Flags| {
        flags.public_access = Some("off".to_owned());
    };
    let venue = venue_with(tempfile::tempdir().unwrap(), closed);
    let refused = venue.catena(&["run", "test:echo"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (4, ""));
    assert!(refused.stderr.contains("hint: Pass a token with --token"), "{}", refused.stderr);
    assert_eq!(venue.catena(&["jobs", "ls", "--token", "nonsense"]).code, 4);

    let data = venue.data();
    let made = venue.catena(&["token", "create", "--data", &data, "--json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let text = |name: &str| member(&made.stdout, name).as_str().unwrap().to_owned();
    let token = text("token");
    let id = text("id");
    let ran = venue.catena_with(&["run", "auth:whoami"], &[("CATENA_TOKEN", &token)], b"");
    assert_eq!((ran.code, member(&ran.stdout, "caller")), (0, text("subject").into()));

    let admin = ["token", "create", "--admin", "--subject", "boss", "--days", "1", "--data", &data];
    let admin = venue.catena(&admin);
    assert!(admin.stderr.contains(":u:boss, an admin, until "), "{}", admin.stderr);
    let token_of_admin = admin.stdout.trim();
    let jobs = venue.catena(&["run", "test:echo", "--no-wait", "--token", &token]);
    let seen = venue.catena(&["jobs", "get", jobs.stdout.trim(), "--token", token_of_admin]);
    assert_eq!(seen.code, 0, "{}", seen.stderr);

    let listed = value(&venue.catena(&["token", "ls", "--data", &data, "--json"]).stdout);
    assert_eq!(listed.as_vector().unwrap().len(), 2);
    assert_eq!(venue.catena(&["token", "revoke", &id, "--data", &data]).code, 0);
    let listed = venue.catena(&["token", "ls", "--data", &data]).stdout;
    assert!(listed.lines().nth(1).unwrap().starts_with(&format!("{id}  revoked")), "{listed}");
    assert_eq!(venue.catena(&["token", "revoke", "other", "--data", &data]).code, 3);
    // The list is read when the venue starts; a running venue rereads it periodically.
    let venue = venue_with(venue.stop(), closed);
    let refused = venue.catena_with(&["jobs", "ls"], &[("CATENA_TOKEN", &token)], b"");
    assert_eq!(refused.code, 4, "{}", refused.stderr);
}

#[test]
fn a_folder_without_a_venue_has_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["create"][..], &["ls"], &["revoke", "x"]] {
        let ran = catena(folder.path(), &[&["token"], command].concat(), &[], b"");
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{command:?}");
        assert!(ran.stderr.contains("there is no venue in catena-data"), "{}", ran.stderr);
    }
    assert!(!folder.path().join("catena-data").exists(), "nothing was created");
}

#[test]
fn a_key_of_ones_own_is_an_identity() {
    let venue = venue();
    let key = venue.folder.path().join("my.key");
    std::fs::write(&key, "07".repeat(32)).unwrap();
    let key = key.to_str().unwrap();
    let ran = venue.catena(&["run", "auth:whoami", "--key", key]);
    let caller = member(&ran.stdout, "caller");
    assert!(caller.as_str().is_some_and(|did| did.starts_with("did:key:z6Mk")), "{}", ran.stderr);
    // A job that belongs to a key is not visible to anonymous callers.
    let id = venue.catena(&["run", "test:echo", "--no-wait", "--key", key]).stdout;
    assert_eq!(venue.catena(&["jobs", "get", id.trim(), "--key", key]).code, 0);
    assert_eq!(venue.catena(&["jobs", "watch", id.trim(), "--key", key]).code, 0);
    assert_eq!(venue.catena(&["jobs", "get", id.trim()]).code, 3);
    std::fs::write(venue.folder.path().join("bad.key"), "short").unwrap();
    assert_eq!(venue.catena(&["jobs", "ls", "--key", "bad.key"]).code, 2);
    assert_eq!(venue.catena(&["jobs", "ls", "--key", "missing.key"]).code, 3);
}

#[test]
fn a_job_is_verified_by_id_and_by_url() {
    let venue = venue();
    let id = venue.job("test:echo", r#"{"a":1}"#);
    let ran = venue.catena(&["verify", &id]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.starts_with(&format!("valid: job {id} is COMPLETE after 3 records\n")));
    let did = ran.stdout.lines().nth(1).unwrap().strip_prefix("venue: ").unwrap().to_owned();
    for tail in ["", "/history", "/history?from=2"] {
        let url = format!("{}/api/v1/jobs/{id}{tail}", venue.url);
        let report = venue.catena_with(&["verify", &url, "--json"], &[("CATENA_VENUE", "")], b"");
        assert_eq!(report.code, 0, "{url}: {}", report.stderr);
        assert_eq!(member(&report.stdout, "records"), 3.into());
    }
    let both = ["verify", &id, "--venue", &did, "--venue", &venue.url];
    assert_eq!(catena(venue.folder.path(), &both, &[], b"").code, 0);
    assert_eq!(venue.catena(&["verify", &id, "--venue", "did:key:other"]).code, 6);
    let head = format!("0x{}", "0".repeat(64));
    assert_eq!(venue.catena(&["verify", &id, "--head", &head]).code, 6);
    let missing = "0".repeat(32);
    assert_eq!(venue.catena(&["verify", &missing]).code, 3);
    assert_eq!(venue.catena(&["verify", &id, "--job", &missing]).code, 2);
    assert_eq!(venue.catena(&["verify", &format!("{}/docs", venue.url)]).code, 2);
    assert_eq!(venue.catena(&["verify", "neither.json"]).code, 3);
}

#[test]
fn a_long_history_is_fetched_page_by_page() {
    let venue = venue();
    let id = venue.job("test:chat", "null");
    venue.until(&id, "INPUT_REQUIRED");
    let client = catena_api::HttpClient::connect(venue.url.parse().unwrap(), Default::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Each turn appends two records; a page has a thousand.
    runtime.block_on(async {
        for number in 0..520 {
            client.send_message(&id, &Value::from(number)).await.unwrap();
        }
        client.send_message(&id, &Value::from("done")).await.unwrap();
    });
    assert_eq!(venue.catena(&["jobs", "watch", &id, "--json"]).code, 0);
    let report = venue.catena(&["verify", &id, "--json"]);
    let records = member(&report.stdout, "records").as_i64().unwrap();
    assert!(records > 1_000, "{records} records: {}", report.stderr);
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&path, &target),
            kind if kind.is_file() => drop(std::fs::copy(&path, &target).unwrap()),
            _ => {}
        }
    }
}

/// Two venues that start from copies of one data folder, with a finished and a paused job.
fn twins() -> (Running, Running, String, String) {
    let venue = venue();
    let done = venue.job("test:echo", "1");
    let paused = venue.job("test:never", "null");
    venue.until(&paused, "STARTED");
    assert_eq!(venue.catena(&["jobs", "pause", &paused]).code, 0);
    let folder = venue.stop();
    let other = tempfile::tempdir().unwrap();
    copy(folder.path(), other.path());
    (venue_with(folder, |_| {}), venue_with(other, |_| {}), done, paused)
}

#[test]
fn two_venues_with_different_histories_are_reported() {
    let (one, two, done, paused) = twins();
    let same = one.catena(&["verify", &done, "--also", &two.url]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(same.stdout.ends_with(&format!("also:  the same at {}\n", two.url)), "{}", same.stdout);
    // Each history is valid by itself; together they are not.
    one.catena(&["jobs", "cancel", &paused, "--reason", "one"]);
    two.catena(&["jobs", "cancel", &paused, "--reason", "two"]);
    assert_eq!(one.catena(&["verify", &paused]).code, 0);
    assert_eq!(two.catena(&["verify", &paused]).code, 0);
    let url = format!("{}/api/v1/jobs/{paused}", two.url);
    for also in [&two.url, &url] {
        let ran = one.catena(&["verify", &paused, "--also", also]);
        assert_eq!((ran.code, ran.stdout.as_str()), (6, ""));
        assert!(ran.stderr.contains("the venues disagree: record 3 differs: it is 0x"), "{ran:?}");
    }
    let ran = one.catena(&["verify", &paused, "--also", &two.url, "--json"]);
    assert_eq!(member(&ran.stderr, "record"), 3.into());
    let document = one.catena(&["jobs", "history", &paused, "--json"]).stdout;
    let ran = one.catena_with(&["verify", "-", "--also", &two.url], &[], document.as_bytes());
    assert_eq!(ran.code, 6, "a file is compared too: {}", ran.stderr);
    two.catena(&["jobs", "rm", &done]);
    assert_eq!(one.catena(&["verify", &done, "--also", &two.url]).code, 3);
}

#[test]
fn operations_are_listed_shown_and_added() {
    let venue = venue();
    let ran = venue.catena(&["ops", "ls"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.starts_with("OPERATION"), "{}", ran.stdout);
    assert!(ran.stdout.lines().any(|line| line.starts_with("test:echo  ")), "{}", ran.stdout);
    let http = venue.catena(&["ops", "ls", "http:"]).stdout;
    assert!(http.lines().skip(1).all(|line| line.starts_with("http:")), "{http}");
    let json = value(&venue.catena(&["ops", "ls", "v/test/ops/", "--json"]).stdout);
    assert!(json.as_vector().unwrap().len() >= 9);
    let shown = venue.catena(&["ops", "show", "test:random"]);
    assert!(shown.stdout.contains("v/test/ops/random"), "{}", shown.stdout);
    assert!(shown.stdout.contains("\ninput: {"), "{}", shown.stdout);
    let shown = venue.catena(&["ops", "show", "v/test/ops/random", "--json"]);
    assert_eq!(member(&shown.stdout, "adapter"), "test:random".into());
    assert_eq!(venue.catena(&["ops", "show", "test:nothing"]).code, 3);

    let text = r#"{"name":"Mine","operation":{"adapter":"test:echo"}}"#;
    let file = venue.folder.path().join("mine.json");
    std::fs::write(&file, text).unwrap();
    let added = venue.catena(&["ops", "add", file.to_str().unwrap()]);
    assert_eq!((added.code, added.stdout.trim()), (0, &*value(text).id().to_string()));
    let again = venue.catena_with(&["ops", "add", "-", "--json"], &[], text.as_bytes());
    assert_eq!(member(&again.stdout, "id"), added.stdout.trim().into());
    let ran = venue.catena(&["run", added.stdout.trim(), "-i", "5"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "5\n"), "{}", ran.stderr);
    let bad = venue.catena_with(&["ops", "add", "-"], &[], b"[]");
    assert_eq!(bad.code, 2, "{}", bad.stderr);
}

#[test]
fn settings_are_printed_with_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("catena.toml"), "name = \"Mine\"\n").unwrap();
    let args = ["config", "show", "--listen", "127.0.0.1:1"];
    let ran = catena(folder.path(), &args, &[("CATENA_GRACE", "3s")], b"");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let row = |name: &str| {
        let line = ran.stdout.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap().split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("listen"), ["127.0.0.1:1", "--listen"]);
    assert_eq!(row("grace"), ["3s", "CATENA_GRACE"]);
    assert_eq!(row("name"), ["Mine", "catena.toml"]);
    assert_eq!(row("body_bytes"), ["10MB", "default"]);
    let all = value(&catena(folder.path(), &["config", "show", "--json"], &[], b"").stdout);
    let first = all.as_vector().unwrap().get(0, &catena_value::NoCells).unwrap().unwrap();
    assert_eq!(field(&first, "name"), "listen".into());
    assert_eq!(field(&first, "origin"), "default".into());
    let bad = catena(folder.path(), &["config", "show", "--grace", "5"], &[], b"");
    assert_eq!((bad.code, bad.stdout.as_str()), (2, ""));
}

#[test]
fn a_setting_that_does_not_exist_is_named_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("CATENA_GRAZE", "3s"), ("CATENA_X_NOTE", "a"), ("CATENA_TOKEN", "t")];
    let ran = catena(folder.path(), &["config", "show"], &variables, b"");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let warning = "the environment variable CATENA_GRAZE is unknown and has no effect; \
                   the nearest is CATENA_GRACE";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    assert!(!ran.stderr.contains("CATENA_X_NOTE is unknown"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("CATENA_TOKEN is unknown"), "{}", ran.stderr);
    std::fs::write(folder.path().join("catena.toml"), "grase = \"3s\"\n").unwrap();
    let bad = catena(folder.path(), &["config", "show"], &[], b"");
    assert_eq!((bad.code, bad.stdout.as_str()), (2, ""));
    assert!(bad.stderr.contains("unknown setting: grase; the nearest is grace"), "{}", bad.stderr);
}

#[test]
fn completions_exist_for_every_shell() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = catena(folder.path(), &["completions", shell], &[], b"");
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        assert!(ran.stdout.contains("watch") && ran.stdout.contains("catena"), "{shell}");
    }
    assert_eq!(catena(folder.path(), &["completions", "csh"], &[], b"").code, 2);
}

#[test]
fn operations_are_completed_with_their_names() {
    let venue = venue();
    let definition = br#"{"name":"Shout","operation":{"adapter":"test:echo"}}"#;
    assert_eq!(venue.catena_with(&["ops", "add", "shout", "-"], &[], definition).code, 0);
    let names = venue.catena(&["ops", "ls", "--names"]).stdout;
    assert!(names.lines().any(|name| name == "o/shout"), "{names}");
    assert!(names.lines().any(|name| name == "v/test/ops/echo"), "{names}");
    let script = venue.folder.path().join("completions.bash");
    std::fs::write(&script, venue.catena(&["completions", "bash"]).stdout).unwrap();
    // What bash does when somebody presses the tabulator key after these words.
    let complete = |words: &str| {
        let text = format!(
            "source {}\nCOMP_WORDS=({words} '')\nCOMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             [[ ${{COMP_WORDS[COMP_CWORD-1]}} == o/* ]] && unset 'COMP_WORDS[COMP_CWORD]' && \
             COMP_CWORD=$((COMP_CWORD - 1))\n\
             _catena_operations {} \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display(),
            env!("CARGO_BIN_EXE_catena"),
        );
        let ran = std::process::Command::new("bash")
            .args(["-c", &text])
            .env("CATENA_VENUE", &venue.url)
            .current_dir(venue.folder.path())
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    for words in ["catena run o/sh", "catena ops show o/", "catena jobs ls --op o/s"] {
        assert_eq!(complete(words), "o/shout\n", "{words}");
    }
    for (words, expected) in [("catena run", true), ("catena jobs watch", false)] {
        let has_name = complete(words).lines().any(|word| word == "o/shout");
        assert_eq!(has_name, expected, "{words}");
    }
    for shell in ["zsh", "fish"] {
        let script = venue.catena(&["completions", shell]).stdout;
        assert!(script.matches("ops ls --names").count() >= 1, "{shell}");
    }
    let zsh = venue.catena(&["completions", "zsh"]).stdout;
    assert_eq!(
        zsh.matches(":_catena_operations'").count(),
        4,
        "run, ops show, schedules add, --op"
    );
}

#[test]
fn every_problem_of_a_definition_is_reported() {
    let venue = venue();
    let metadata = br#"{"operation":{"adapter":"orchestrator","steps":[{"op":"test:echo","input":5}],"result":[3]}}"#;
    let ran = venue.catena_with(&["ops", "add", "-"], &[], metadata);
    let expected = "error: the metadata is invalid:\n  \
        /operation/steps/0/input: is not a source (write a literal as [\"const\", 5])\n  \
        /operation/result/0: the result refers to step 3, which does not exist\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    let ran = venue.catena_with(&["ops", "add", "-", "--json"], &[], metadata);
    assert_eq!(member(&ran.stderr, "code"), "asset_invalid".into());
    assert_eq!(member(&ran.stderr, "problems").as_vector().unwrap().len(), 2);
}

#[test]
fn usage_errors_are_json_if_json_is_requested() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["jobs", "get", "zz", "--json"][..],
        &["--json", "nonsense"],
        &["jobs", "ls", "--status", "gone", "--json"],
        &["id", "--json"],
    ] {
        let ran = catena(folder.path(), args, &[], b"");
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert_eq!(member(&ran.stderr, "code"), "usage".into(), "{}", ran.stderr);
        assert!(!member(&ran.stderr, "error").as_str().unwrap().is_empty());
    }
    // An argument after `--` is not a flag.
    let ran = catena(folder.path(), &["jobs", "get", "zz", "--", "--json"], &[], b"");
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    let ran = catena(folder.path(), &["--help", "--json"], &[], b"");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn a_store_with_orchestrations_checks() {
    let venue = venue();
    let metadata = br#"{"name":"Two","operation":{"adapter":"orchestrator","steps":[
        {"op":"test:echo","input":["input"]},{"op":"test:echo","input":[0]}],"result":[1]}}"#;
    let added = venue.catena_with(&["ops", "add", "-"], &[], metadata);
    assert_eq!(venue.catena(&["run", added.stdout.trim(), "-i", "5"]).code, 0);
    let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(9_000));
    assert_eq!(venue.catena(&["run", "test:error", "-i", &long]).code, 1);
    let data = venue.data();
    let folder = venue.stop();
    let checked = catena(folder.path(), &["store", "check", "--data", &data], &[], b"");
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(checked.stdout.ends_with("problems: 0\n"), "{}", checked.stdout);
}

#[test]
fn identities_are_listed_and_blocked_by_command() {
    let listed = |flags: &mut catena_server::config::Flags| {
        flags.access = Some("listed".to_owned());
    };
    let venue = venue_with(tempfile::tempdir().unwrap(), listed);
    let data = venue.data();
    let key = Path::new(&data).join("../alice.key");
    std::fs::write(&key, [1; 32]).unwrap();
    let key = key.to_str().unwrap().to_owned();
    let did = catena_auth::KeyPair::from_seed(&[1; 32]).did();
    let refused = venue.catena(&["jobs", "ls", "--key", &key, "--json"]);
    assert_eq!((refused.code, member(&refused.stderr, "code")), (4, "not_listed".into()));
    let access = |command: &str| venue.catena(&["access", command, &did, "--data", &data]);
    assert_eq!(access("add").code, 0);
    assert_eq!(access("add").code, 0, "it is on the list already");
    let shown = venue.catena(&["access", "ls", "--data", &data, "--json"]).stdout;
    assert!(shown.contains(&did) && shown.contains("listed"), "{shown}");
    assert_eq!(access("block").code, 0);
    assert_eq!(access("rm").code, 0);
    assert_eq!(access("rm").code, 3);
    assert_eq!(access("unblock").code, 0);
    assert_eq!(venue.catena(&["access", "add", "somebody", "--data", &data]).code, 2);
    let shown = venue.catena(&["config", "show", "--access", "listed"]);
    assert!(shown.stdout.contains("access=listed anonymous=off"), "{}", shown.stdout);
    let shown = venue.catena(&["config", "show", "--public-access", "off"]);
    assert!(shown.stdout.contains("access=keys") && shown.stderr.contains("replaced by `access`"));
}

#[test]
fn a_token_is_not_sent_to_a_venue_that_it_does_not_name() {
    let (one, other) = (venue(), venue());
    let token = one.catena(&["token", "create", "--data", &one.data()]).stdout.trim().to_owned();
    let sent = one.catena(&["jobs", "ls", "--token", &token]);
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    let kept = other.catena(&["jobs", "ls", "--token", &token, "--json"]);
    assert_eq!((kept.code, member(&kept.stderr, "code")), (4, "venue_identity".into()));
}

#[test]
fn what_others_wrote_does_not_reach_the_terminal_as_control_characters() {
    let venue = venue();
    let id = venue.job("test:echo", r#"{"a":"\u001b[2J\u009b1m\u202eevil"}"#);
    for args in [&["jobs", "get", &id][..], &["jobs", "history", &id], &["verify", &id]] {
        for json in [&[][..], &["--json"]] {
            let ran = venue.catena(&[args, json].concat());
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            for text in [ran.stdout, ran.stderr] {
                let is_safe = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
                assert!(text.chars().all(is_safe), "{args:?}: {text:?}");
            }
        }
    }
}
