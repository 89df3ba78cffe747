//! Ordinary cells: what people write every day must work as in any Python.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

mod support;

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use catena_sandbox::{
    Category, Cell, Config, Control, Entrypoint, Failure, Input, Profile, RunError, Verdict,
};
use support::{cell, check, run, sandbox, verdict};

fn failure(outcome: &catena_sandbox::Outcome) -> &Failure {
    match &outcome.verdict {
        Verdict::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

#[test]
fn a_cell_prints() {
    let Some(sandbox) = sandbox() else { return };
    let outcome = check(&sandbox, "print(1)", "ok");
    assert_eq!(outcome.stdout.text, "1\n");
    assert_eq!(outcome.stderr.text, "");
    assert!(outcome.artifacts.is_empty() && outcome.refused.is_empty());
    assert!(outcome.usage.cpu > Duration::ZERO && outcome.usage.cpu < Duration::from_secs(5));
    assert!(outcome.usage.memory_bytes_peak > 0);
}

#[test]
fn an_exception_names_the_innermost_line_of_the_cell() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import json\n\ndef f(x):\n    return json.loads(x)\n\nf('{')\n";
    let outcome = check(&sandbox, source, "USER_CODE_ERROR PYTHON_EXCEPTION");
    let found = failure(&outcome);
    assert_eq!(found.line, Some(4), "{found:?}");
    assert!(found.message.starts_with("JSONDecodeError: "), "{found:?}");
    let traceback = found.traceback.as_deref().unwrap();
    assert!(traceback.contains("return json.loads(x)"), "{traceback}");
    assert!(!traceback.contains("catena"), "{traceback}");
    assert_eq!(outcome.stderr.text, *traceback);

    let outcome =
        check(&sandbox, "x = 1\ny = 0\nz = x + 1 / y\n", "USER_CODE_ERROR PYTHON_EXCEPTION");
    let found = failure(&outcome);
    assert_eq!(
        (found.line, found.message.as_str()),
        (Some(3), "ZeroDivisionError: division by zero")
    );
    // Python 3.11 and later know the column.
    assert!(found.column.is_none_or(|column| column == 9), "{found:?}");
}

#[test]
fn a_syntax_error_has_line_and_column() {
    let Some(sandbox) = sandbox() else { return };
    let outcome = check(&sandbox, "a = 1\nb = = 2\n", "USER_CODE_ERROR SYNTAX_ERROR");
    let found = failure(&outcome);
    assert_eq!((found.line, found.column), (Some(2), Some(5)), "{found:?}");
    check(&sandbox, "if True:\nx = 1\n", "USER_CODE_ERROR SYNTAX_ERROR");
}

#[test]
fn parameters_and_results_pass_through_json() {
    let Some(sandbox) = sandbox() else { return };
    let mut asked =
        cell("def main(x, y=2):\n    return {'sum': x + y, 'n': 12345678901234567890123}\n");
    asked.parameters = r#"{"x": 40}"#.to_owned();
    let outcome = run(&sandbox, &asked);
    assert_eq!(outcome.result.as_deref(), Some(r#"{"sum": 42, "n": 12345678901234567890123}"#));

    asked.entrypoint = Entrypoint::Required("other".to_owned());
    assert_eq!(verdict(&run(&sandbox, &asked)), "USER_CODE_ERROR ENTRYPOINT_NOT_FOUND");
    asked.entrypoint = Entrypoint::None;
    let outcome = run(&sandbox, &asked);
    assert_eq!((verdict(&outcome).as_str(), outcome.result), ("ok", None));
    check(&sandbox, "def main(): return object()", "USER_CODE_ERROR RESULT_NOT_JSON");
    check(&sandbox, "def main(): return float('nan')", "USER_CODE_ERROR RESULT_NOT_JSON");
    check(&sandbox, "def main(): return 'x' * (2 << 20)", "RESOURCE_LIMIT RESULT_TOO_LARGE");
    let deep =
        |depth: u32| format!("x = 1\nfor n in range({depth}): x = [x]\ndef main(): return x");
    assert!(check(&sandbox, &deep(100), "ok").result.is_some());
    check(&sandbox, &deep(101), "USER_CODE_ERROR RESULT_NOT_JSON");
    check(&sandbox, &deep(100_000), "USER_CODE_ERROR RESULT_NOT_JSON");
    check(&sandbox, "main = 7", "USER_CODE_ERROR ENTRYPOINT_NOT_FOUND");
}

#[test]
fn the_interpreter_ends_as_it_always_does() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import atexit, sys, threading, time\n\
        atexit.register(print, 'bye')\n\
        threading.Thread(target=lambda: (time.sleep(0.05), print('thread'))).start()\n\
        sys.stdout.write('no newline ')\n";
    let outcome = check(&sandbox, source, "ok");
    assert_eq!(outcome.stdout.text, "no newline thread\nbye\n");
    check(&sandbox, "import sys; sys.exit(0)", "ok");
    check(&sandbox, "import sys; sys.exit()", "ok");
    let outcome = check(&sandbox, "import sys; sys.exit('sorry')", "USER_CODE_ERROR EXIT_NONZERO");
    assert_eq!(outcome.stderr.text, "sorry\n");
    check(&sandbox, "import sys; sys.exit(3)", "USER_CODE_ERROR EXIT_NONZERO");
    check(&sandbox, "raise KeyboardInterrupt", "USER_CODE_ERROR PYTHON_EXCEPTION");
    let outcome = check(&sandbox, "print(__name__, __file__)", "ok");
    assert_eq!(outcome.stdout.text, "__main__ <cell>\n");
}

#[test]
fn a_cell_says_how_far_it_is() {
    let Some(sandbox) = sandbox() else { return };
    let control = Control::new().unwrap();
    let source = "for i in range(100000):\n    progress(i, 100000)\nprogress(100000, 100000)\nprint(__name__)";
    let outcome = sandbox.run(&cell(source), &control).unwrap();
    assert_eq!((verdict(&outcome).as_str(), outcome.stdout.text.as_str()), ("ok", "__main__\n"));
    let progress = control.progress().unwrap();
    assert_eq!((progress.done, progress.total), (100_000, Some(100_000)));
    check(&sandbox, "progress(-1)", "USER_CODE_ERROR PYTHON_EXCEPTION");
    // It cannot be confused with the report, however it is forged.
    let forged = "import os\nos.write(3, b'CP1\\n' + b'x' * 11)\nos._exit(0)";
    check(&sandbox, forged, "ok");
}

#[test]
fn a_forked_process_does_not_report_for_the_cell() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import os, time\npid = os.fork()\ndef main():\n    if pid == 0: return 'child'\n    os.waitpid(pid, 0)\n    return 'parent'";
    let outcome = check(&sandbox, source, "ok");
    assert_eq!(outcome.result.as_deref(), Some("\"parent\""));
}

#[test]
fn modules_that_are_missing_are_named() {
    let Some(sandbox) = sandbox() else { return };
    let outcome = check(&sandbox, "import no_such_module", "USER_CODE_ERROR MODULE_NOT_FOUND");
    assert!(failure(&outcome).message.contains("no_such_module"));
}

#[test]
fn the_standard_library_works() {
    let Some(sandbox) = sandbox() else { return };
    let modules = "asyncio base64 collections concurrent.futures contextlib csv ctypes dataclasses datetime \
        decimal enum fractions functools hashlib heapq io itertools json logging math multiprocessing os pathlib \
        pickle queue random re secrets shutil socket sqlite3 statistics string struct subprocess sys tempfile \
        textwrap threading time traceback typing unicodedata urllib.parse uuid zlib zoneinfo";
    for name in modules.split_whitespace() {
        check(&sandbox, &format!("import {name}"), "ok");
    }
    let source = "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 5\nprint(asyncio.run(f()))";
    assert_eq!(check(&sandbox, source, "ok").stdout.text, "5\n");
    let source = "import os\npid = os.fork()\nif pid == 0:\n    os._exit(3)\nprint(os.waitpid(pid, 0)[1] >> 8)";
    assert_eq!(check(&sandbox, source, "ok").stdout.text, "3\n");
    let source = "import tempfile, shutil, os\nf = tempfile.NamedTemporaryFile()\nf.write(b'x' * 5)\nf.flush()\n\
        shutil.copy2(f.name, 'copy.txt')\nprint(os.path.getsize('copy.txt'), os.getcwd(), os.getuid())";
    assert_eq!(check(&sandbox, source, "ok").stdout.text, "5 /job/files 1000\n");
    let source = "from multiprocessing import Lock\nwith Lock(): print('locked')";
    assert_eq!(check(&sandbox, source, "ok").stdout.text, "locked\n");
    let source = "import subprocess; subprocess.run(['true'])";
    check(&sandbox, source, "SANDBOX_VIOLATION FORBIDDEN_SYSCALL");
}

#[test]
fn random_numbers_differ_and_hashes_do_not() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import random\nprint(hash('a'))\nprint(random.random())";
    let [a, b] = [0, 1].map(|_| check(&sandbox, source, "ok").stdout.text);
    let ([a_hash, a_random], [b_hash, b_random]) =
        ([0, 1].map(|n| a.lines().nth(n).unwrap()), [0, 1].map(|n| b.lines().nth(n).unwrap()));
    assert_eq!(a_hash, b_hash);
    assert_ne!(a_random, b_random);
}

/// A module that is preloaded is forked with its state, and is told so.
#[test]
fn random_numbers_differ_if_their_module_is_preloaded() {
    let preload = vec!["random".to_owned()];
    let profile = Profile { preload, ..support::profile() };
    let Some(sandbox) = support::start(Config { pool: 3, ..Config::new(profile) }) else { return };
    let numbers: Vec<String> = (0..5)
        .map(|_| check(&sandbox, "import random\nprint(random.random())", "ok").stdout.text)
        .collect();
    let distinct: std::collections::BTreeSet<&String> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len(), "{numbers:?}");
}

/// A cell finds its process as any program does, whatever the zygote prepared.
#[test]
fn a_cell_finds_an_ordinary_process() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import gc, os, signal, socket, sys, threading
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
assert gc.isenabled() and threading.current_thread() is threading.main_thread()
assert sys.stdout.line_buffering and os.umask(0o022) == 0o077
print(os.uname().nodename, sorted(fd for fd in range(256) if is_open(fd)))
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print('interrupted')
";
    let is_open = "import os
def is_open(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False
";
    let outcome = check(&sandbox, &format!("{is_open}{source}"), "ok");
    assert_eq!(outcome.stdout.text, "cell [0, 1, 2, 3]\ninterrupted\n");
}

#[test]
fn inputs_are_there_and_read_only() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import os\nprint(open('inputs/data.csv').read(), open('inputs/objects/1.json').read())\n\
        for path in ('inputs/data.csv', 'inputs/new', 'inputs/objects/2'):\n    \
        try:\n        open(path, 'w')\n        print('written', path)\n    except OSError as e:\n        print(e.errno)\n\
        try:\n    os.remove('inputs/data.csv')\n    print('removed')\nexcept OSError as e: print(e.errno)\n";
    let mut asked = cell(source);
    asked.inputs = vec![
        Input { name: "data.csv".to_owned(), file: file(b"a,b") },
        Input { name: "objects/1.json".to_owned(), file: file(b"{}") },
    ];
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
    assert_eq!(outcome.stdout.text, "a,b {}\n30\n30\n30\n30\n", "{outcome:?}");
    assert!(outcome.artifacts.is_empty(), "{outcome:?}");
}

#[test]
fn large_inputs_do_not_count_as_memory_of_the_cell() {
    let Some(sandbox) = sandbox() else { return };
    let mut asked = cell("import os\nprint(os.path.getsize('inputs/big'))");
    asked.inputs = vec![Input { name: "big".to_owned(), file: file(&vec![7; 80 << 20]) }];
    asked.limits.memory_mb = 64;
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
    assert_eq!(outcome.stdout.text, format!("{}\n", 80 << 20));
}

#[test]
fn output_is_cut_at_a_character_and_flagged() {
    let Some(sandbox) = sandbox() else { return };
    let mut asked = cell("print('\u{20ac}' * 1000, end='')");
    asked.limits.max_output_kb = 1;
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "ok");
    assert!(outcome.stdout.is_truncated && !outcome.stderr.is_truncated);
    assert_eq!(outcome.stdout.text, "\u{20ac}".repeat(341));
    assert_eq!(outcome.stdout.bytes_total, 3000);
}

#[test]
fn files_become_artifacts() {
    let Some(sandbox) = sandbox() else { return };
    let source = "import struct, zlib, os\n\
        def chunk(kind, data):\n    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n\
        png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 3, 2, 8, 0, 0, 0, 0))\n\
        png += chunk(b'IDAT', zlib.compress(b'\\0\\0\\0\\0' * 2)) + chunk(b'IEND', b'')\n\
        os.mkdir('plots')\nopen('plots/a.png', 'wb').write(png)\nopen('table.csv', 'w').write('a,b\\n')\n\
        open('fake.png', 'w').write('<html>')\n";
    let mut asked = cell(source);
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
    let names: Vec<_> = outcome.artifacts.iter().map(|artifact| artifact.name.as_str()).collect();
    assert_eq!(names, ["plots/a.png", "table.csv"]);
    let png = &outcome.artifacts[0];
    assert_eq!((png.width, png.height, png.content_type), (Some(3), Some(2), "image/png"));
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(outcome.refused[0].name, "fake.png");
    asked.formats = Some(vec!["csv".to_owned()]);
    let outcome = run(&sandbox, &asked);
    assert_eq!(outcome.artifacts.len(), 1);
    assert!(outcome.refused.is_empty(), "{outcome:?}");
}

#[test]
fn a_cell_that_cannot_run_is_refused_before() {
    let Some(sandbox) = sandbox() else { return };
    let refused = sandbox.run(&Cell::new("a\0b"), &Control::new().unwrap());
    assert!(matches!(refused, Err(RunError::Invalid(_))), "{refused:?}");
}

/// Runs a cell with site-packages and a module that is preloaded, or says that it is not installed.
fn runs_with(module: &str, source: &str, check: impl FnOnce(&catena_sandbox::Outcome)) {
    let is_installed = std::process::Command::new(support::interpreter().executable())
        .args(["-s", "-c", &format!("import {module}")])
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_installed {
        return support::skip(&format!("{module} is not installed"));
    }
    let preload = vec![module.to_owned()];
    let profile = Profile { has_site: true, preload, ..support::profile() };
    let Some(sandbox) = support::start(Config { pool: 1, ..Config::new(profile) }) else { return };
    let mut asked = cell(source);
    asked.limits.memory_mb = 1024;
    asked.limits.timeout_ms = 60_000;
    asked.limits.cpu_ms = 60_000;
    let outcome = run(&sandbox, &asked);
    assert_eq!(verdict(&outcome), "ok", "{outcome:?}");
    check(&outcome);
}

#[test]
fn numpy_works_where_it_is_installed() {
    let source = "import numpy\nprint(numpy.arange(4).sum(), numpy.linalg.det(numpy.eye(200)))";
    runs_with("numpy", source, |outcome| assert_eq!(outcome.stdout.text, "6 1.0\n"));
}

#[test]
fn matplotlib_works_where_it_is_installed() {
    let source = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.savefig('plot.png')\nplt.savefig('plot.svg')\nplt.savefig('plot.pdf')";
    runs_with("matplotlib.pyplot", source, |outcome| {
        let formats: Vec<_> = outcome.artifacts.iter().map(|found| found.format.as_str()).collect();
        assert_eq!(formats, ["pdf", "png", "svg"], "{outcome:?}");
        assert!(outcome.artifacts[1].width.is_some_and(|width| width > 100));
    });
}

#[test]
fn categories_have_the_names_of_the_contract() {
    let all = [
        Category::UserCodeError,
        Category::ResourceLimit,
        Category::SandboxViolation,
        Category::InternalError,
    ];
    let names = all.map(Category::as_str);
    assert_eq!(names, ["USER_CODE_ERROR", "RESOURCE_LIMIT", "SANDBOX_VIOLATION", "INTERNAL_ERROR"]);
}
