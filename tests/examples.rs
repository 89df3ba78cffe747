//! Runs the examples of `README.md` and `docs/concepts/` against a venue of the built binary.
//!
//! The rules, which `docs/internals/testing.md` explains to authors:
//!
//! - Every `sh` block is run, one command at a time, in an empty folder with a link to `docs/`.
//!   A command must end with code 0, or with N if its comment says `# exit code N`.
//! - `catena` is the built binary, `http://127.0.0.1:8787` the venue of the page, `JOB` the newest
//!   job, and `ID` the last asset ID that a command of the page printed.
//! - A `text` or `json` block that follows a `sh` block in the same section is what that block
//!   prints. Job IDs, record IDs, DIDs and times are masked, unless `<!-- output: exact -->` precedes
//!   it.
//! - `<!-- file: NAME -->` before a block saves it under that name for later commands.
//! - `<!-- background: TEXT -->` before a block starts its command, which must print TEXT on standard
//!   error, and ends it with the page.
//! - `<!-- not run: REASON -->` before a block leaves it out.
//! - Every `json` block must parse, and an orchestration must pass `catena plan`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use catena_tests::process::Process;
use catena_tests::site::Client;
use serde_json::Value as Json;

/// Where documents say that the venue listens.
const DOCUMENTED_URL: &str = "http://127.0.0.1:8787";

/// Fewer blocks than this mean that the test looks in the wrong place.
const BLOCKS_MIN: usize = 14;

/// The same for outputs that were compared.
const OUTPUTS_MIN: usize = 7;

fn binary() -> PathBuf {
    env!("CARGO_BIN_EXE_catena").into()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// A fenced block of a page.
#[derive(Debug, Clone, PartialEq, Default)]
struct Block {
    language: String,
    text: String,
    /// The line, from 1, in which it begins.
    line: usize,
    /// What HTML comments before the block say, as `name: value`.
    notes: Vec<String>,
    /// The heading under which it is.
    section: usize,
}

impl Block {
    fn note(&self, name: &str) -> Option<&str> {
        self.notes.iter().find_map(|note| note.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }
}

/// The fenced blocks of a page, in order.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut notes = Vec::new();
    let mut section = 0;
    for (at, line) in page.lines().enumerate() {
        let fence = line.strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                let notes = std::mem::take(&mut notes);
                let language = language.trim().to_owned();
                open = Some(Block { language, text: String::new(), line: at + 1, notes, section });
            }
            (None, None) => {
                let note = line.strip_prefix("<!--").and_then(|note| note.strip_suffix("-->"));
                match note {
                    Some(note) => notes.push(note.trim().to_owned()),
                    None if line.trim().is_empty() => {}
                    None => notes.clear(),
                }
                section += usize::from(line.starts_with('#'));
            }
        }
    }
    assert!(open.is_none(), "a block is not closed: {open:?}");
    blocks
}

/// The commands of a block: lines, joined where a line ends with a backslash or opens a quote.
fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match commands.last_mut().filter(|_| is_open) {
            Some(command) => {
                command.push('\n');
                command.push_str(line);
            }
            None => commands.push(line.to_owned()),
        }
        let command = commands.last().unwrap();
        is_open = command.ends_with('\\') || command.matches('\'').count() % 2 == 1;
    }
    commands
}

/// The exit code that a command must have.
fn expected_code(command: &str) -> i32 {
    let code = command.split_once("# exit code ").map(|(_, code)| code.trim().parse().unwrap());
    code.unwrap_or(0)
}

/// Replaces a whole word.
fn replace_word(text: &str, word: &str, with: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        replaced.push_str(before);
        let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        replaced.push_str(if is_whole { with } else { word });
        rest = after;
    }
    replaced + rest
}

/// The text with IDs, DIDs and times replaced by words that say what they were.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_did = rest.starts_with("did:key:");
        let is_word = |c: char| c.is_ascii_alphanumeric() || (is_did && c == ':');
        let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
        masked.push_str(if is_did { "DID" } else { mask(&rest[..length]) });
        rest = &rest[length..];
    }
    masked
}

fn mask(word: &str) -> &str {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    match digits.len() {
        32 if is_hex => "JOB_ID",
        64 if is_hex => "VALUE_ID",
        13 if is_number => "TIME",
        _ => word,
    }
}

/// One page, its venue and what its commands have made so far.
struct Page {
    name: String,
    folder: PathBuf,
    venue: Process,
    /// The last asset ID that a command printed.
    asset: String,
    /// Commands that run in the background.
    background: Vec<Background>,
}

/// A command that is ended when this is dropped.
struct Background(std::process::Child);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// How much was done.
#[derive(Debug, Default)]
struct Count {
    blocks: usize,
    commands: usize,
    outputs: usize,
    documents: usize,
    left_out: Vec<String>,
}

impl Page {
    async fn open(name: &str, folder: &Path) -> Page {
        let work = folder.join("work");
        let bin = folder.join("bin");
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(&bin).unwrap();
        symlink(root().join("docs"), work.join("docs")).unwrap();
        symlink(binary(), bin.join("catena")).unwrap();
        let venue = Process::start(&binary(), &folder.join("data"), &[]).await;
        Page {
            name: name.to_owned(),
            folder: folder.to_owned(),
            venue,
            asset: String::new(),
            background: Vec::new(),
        }
    }

    async fn run(&mut self, blocks: &[Block], count: &mut Count) {
        let mut printed: Option<(usize, String)> = None;
        for block in blocks {
            let place = format!("{}:{}", self.name, block.line);
            if let Some(reason) = block.note("not run") {
                assert!(!reason.is_empty(), "{place}: say why it is not run");
                count.left_out.push(format!("{place}: {reason}"));
                printed = None;
                continue;
            }
            if let Some(file) = block.note("file") {
                fs::write(self.folder.join("work").join(file), &block.text).unwrap();
            }
            if block.language == "json" {
                self.check_json(&place, block);
                count.documents += 1;
            }
            match block.language.as_str() {
                "sh" if block.note("background").is_some() => {
                    self.run_in_background(&place, block).await;
                    count.blocks += 1;
                }
                "sh" => {
                    let output = self.run_block(&place, block, count).await;
                    printed = Some((block.section, output));
                    count.blocks += 1;
                }
                "text" | "json" if block.note("file").is_none() => {
                    let before = printed.take().filter(|(section, _)| *section == block.section);
                    if let Some((_, output)) = before {
                        compare(&place, block, &output);
                        count.outputs += 1;
                    }
                }
                "text" | "json" => {}
                other => panic!("{place}: blocks in {other:?} are neither run nor checked"),
            }
        }
    }

    fn check_json(&self, place: &str, block: &Block) {
        let document: Json = serde_json::from_str(&block.text)
            .unwrap_or_else(|error| panic!("{place}: not JSON: {error}\n{}", block.text));
        if document["operation"]["adapter"] == "orchestrator" {
            fs::write(self.folder.join("work/.plan.json"), &block.text).unwrap();
            let planned = self.bash("catena plan .plan.json");
            assert!(planned.status.success(), "{place}: {}", text_of(&planned));
        }
    }

    /// Runs the commands of a block. Returns what they print on standard output.
    async fn run_block(&mut self, place: &str, block: &Block, count: &mut Count) -> String {
        let mut printed = String::new();
        for command in commands(&block.text) {
            let substituted = self.substituted(&command).await;
            let output = self.bash(&substituted);
            let code = output.status.code();
            let expected = expected_code(&command);
            assert_eq!(code, Some(expected), "{place}: {substituted}\n{}", text_of(&output));
            let stdout = String::from_utf8(output.stdout).unwrap();
            let mut words = stdout.split_whitespace();
            if let Some(id) = words.rfind(|word| mask(word) == "VALUE_ID") {
                self.asset = id.to_owned();
            }
            printed.push_str(&stdout);
            count.commands += 1;
        }
        printed
    }

    /// Starts the command of a block, and waits until it has printed what the note says.
    async fn run_in_background(&mut self, place: &str, block: &Block) {
        let [command] = &commands(&block.text)[..] else {
            panic!("{place}: one command at a time")
        };
        // The process of the command itself, so that it can be ended.
        let command = format!("exec {}", self.substituted(command).await);
        let mut child = self.command(&command).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        self.background.push(Background(child));
        let expected = block.note("background").unwrap();
        let mut seen = String::new();
        while !seen.contains(expected) {
            assert!(log.read_line(&mut seen).unwrap() > 0, "{place}: the command ended: {seen}");
        }
        // The log must be read, or the command would block when the pipe is full.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    }

    async fn substituted(&self, command: &str) -> String {
        let url = format!("http://{}", self.venue.address);
        let mut command = command.replace(DOCUMENTED_URL, &url);
        command = command.replace("target/release/catena", "catena");
        let client = Client::anonymous(self.venue.address);
        let last = client.job_count().await.saturating_sub(1);
        let jobs = client.get(&format!("/api/v1/jobs?limit=1&offset={last}")).await;
        let newest = jobs.expect(200).json()["items"][0].as_str().unwrap_or("JOB").to_owned();
        command = replace_word(&command, "JOB", &newest);
        replace_word(&command, "ID", &self.asset)
    }

    fn bash(&self, command: &str) -> Output {
        self.command(command).output().unwrap()
    }

    fn command(&self, command: &str) -> Command {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.folder.join("bin").display());
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", command])
            .current_dir(self.folder.join("work"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.folder)
            .env("CATENA_VENUE", format!("http://{}", self.venue.address));
        bash
    }
}

fn text_of(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    format!("{stdout}{}", String::from_utf8_lossy(&output.stderr))
}

fn compare(place: &str, block: &Block, printed: &str) {
    let is_exact = block.note("output") == Some("exact");
    let mask = |text: &str| if is_exact { text.to_owned() } else { masked(text) };
    // The order of members and the white space of JSON mean nothing.
    let normal = |text: &str| match serde_json::from_str::<Json>(text) {
        Ok(value) if block.language == "json" => value.to_string(),
        _ => text.trim().to_owned(),
    };
    let (printed, shown) = (mask(&normal(printed)), mask(&normal(&block.text)));
    assert_eq!(printed, shown, "{place}: another output than shown");
}

/// The pages whose examples are run.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let concepts = fs::read_dir(root().join("docs/concepts")).unwrap();
    let names = concepts.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    pages.extend(names.filter(|name| name.ends_with(".md")).map(|n| format!("docs/concepts/{n}")));
    pages.sort();
    pages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_in_documents_run_and_print_what_they_show() {
    let mut count = Count::default();
    for name in pages() {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        let blocks = blocks(&text);
        let folder = tempfile::tempdir().unwrap();
        let mut page = Page::open(&name, folder.path()).await;
        page.run(&blocks, &mut count).await;
        page.background.clear();
        page.venue.kill().await;
    }
    println!("{count:#?}");
    assert!(count.blocks >= BLOCKS_MIN, "only {} blocks ran: {count:?}", count.blocks);
    assert!(count.outputs >= OUTPUTS_MIN, "only {} outputs were compared", count.outputs);
}

#[test]
fn blocks_are_found_with_their_notes() {
    let page = "# One\n<!-- not run: needs a network -->\n\n```sh\ncurl x\n```\ntext\n\
        ## Two\n<!-- gone -->\nbetween\n```json\n{}\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].note("not run"), Some("needs a network"));
    assert_eq!((found[0].text.as_str(), found[0].line, found[0].section), ("curl x\n", 4, 1));
    assert_eq!((found[1].language.as_str(), found[1].section), ("json", 2));
    assert!(found[1].notes.is_empty());
}

#[test]
fn commands_are_separated_and_placeholders_replaced() {
    let text = "one 'a\nb'\ntwo \\\n  three\n\nfour   # exit code 6\n";
    assert_eq!(commands(text), ["one 'a\nb'", "two \\\n  three", "four   # exit code 6"]);
    assert_eq!(expected_code("four   # exit code 6"), 6);
    assert_eq!(expected_code("one"), 0);
    assert_eq!(replace_word("get JOB JOBS x-JOB JOB", "JOB", "7"), "get 7 JOBS x-JOB 7");
}

#[test]
fn ids_and_times_are_masked() {
    let id = "0x".to_owned() + &"a1".repeat(32);
    let job = "7f".repeat(16);
    let text = format!("head {id}, job {job} of did:key:z6Mk:public at 1769683717706: 42");
    assert_eq!(masked(&text), "head VALUE_ID, job JOB_ID of DID at TIME: 42");
    assert_eq!(masked(r#"{"created":1769683717706}"#), r#"{"created":TIME}"#);
    assert_eq!(masked("did:key:z6MkVenue\nübung 12"), "DID\nübung 12");
}
