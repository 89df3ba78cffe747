//! Decides how a cell ended. Facts of the kernel come before anything that the cell says.
//!
//! The first rule that applies wins. The rules that rest on the report can be fooled by a cell, but
//! all it can gain is a wrong label on its own failure.

use crate::outcome::{
    Category, Exit, Facts, Failure, Report, ReportState, ReportedError, Stop, Verdict,
};

/// Paths below these belong to the cell.
const OWN_FOLDERS: [&str; 3] = ["/job", "/tmp", "/dev/shm"];

/// What an error of a program of this binary means. A code that is not here counts as `PROGRAM_FAILED`.
pub const PROGRAM_CODES: [(&str, Category); 6] = [
    ("LATEX_ERROR", Category::UserCodeError),
    ("IMAGE_INVALID", Category::UserCodeError),
    ("PROGRAM_FAILED", Category::UserCodeError),
    ("RENDER_LIMIT", Category::ResourceLimit),
    ("RESULT_TOO_LARGE", Category::ResourceLimit),
    ("FORBIDDEN_ACCESS", Category::SandboxViolation),
];

/// The verdict over a cell that has ended.
pub(crate) fn classify(facts: &Facts, report: &ReportState) -> Verdict {
    if facts.stopped == Some(Stop::Cancelled) {
        return Verdict::Cancelled;
    }
    let report = match report {
        ReportState::Received(report) => Some(report),
        ReportState::Missing | ReportState::Malformed => None,
    };
    let error = report.and_then(|report| report.error.as_ref());
    match by_kernel(facts).or_else(|| by_report(facts, report)) {
        None => Verdict::Succeeded,
        Some((category, code, message)) => Verdict::Failed(Failure {
            category,
            code,
            message,
            line: error.and_then(|error| error.line),
            column: error.and_then(|error| error.column),
            block: error.and_then(|error| error.block.clone()),
            traceback: error.and_then(|error| error.traceback.clone()),
        }),
    }
}

type Found = (Category, &'static str, String);

fn by_kernel(facts: &Facts) -> Option<Found> {
    use Category::{InternalError, ResourceLimit, SandboxViolation, UserCodeError};
    let limit = |code, text: &str| Some((ResourceLimit, code, text.to_owned()));
    if facts.stopped == Some(Stop::Output) {
        return limit("OUTPUT_LIMIT", "the cell wrote too much output");
    }
    if facts.oom_kills > 0 || facts.stopped == Some(Stop::Memory) {
        return limit("MEMORY_LIMIT", "the cell used more memory than it may");
    }
    if facts.stopped == Some(Stop::Cpu) {
        return limit("CPU_LIMIT", "the cell used more CPU time than it may");
    }
    if facts.stopped == Some(Stop::Time) {
        return limit("TIME_LIMIT", "the cell ran longer than it may");
    }
    if facts.stopped == Some(Stop::Pause) {
        return limit("PAUSE_LIMIT", "the cell was paused for too long");
    }
    if facts.stopped == Some(Stop::Resisted) {
        let text = "the cell went on while it was paused".to_owned();
        return Some((SandboxViolation, "PAUSE_RESISTED", text));
    }
    if let Some(first) = facts.violations.first() {
        let text = format!("forbidden system call: {}", first.name);
        return Some((SandboxViolation, "FORBIDDEN_SYSCALL", text));
    }
    match facts.exit {
        Some(Exit::Signal(libc::SIGSYS)) => {
            let text = "system call through a forbidden entry point".to_owned();
            Some((SandboxViolation, "FORBIDDEN_SYSCALL", text))
        }
        Some(Exit::Signal(libc::SIGXCPU)) => {
            limit("CPU_LIMIT", "the cell used more CPU time than it may")
        }
        Some(Exit::Signal(number)) => Some((
            UserCodeError,
            "CRASHED",
            format!("the interpreter was killed by signal {number}"),
        )),
        Some(Exit::Code(_)) => None,
        None => {
            let reason = facts.init_failure.as_deref().unwrap_or("its init process ended");
            let text = format!("the sandbox lost track of the cell: {reason}");
            Some((InternalError, "SANDBOX_FAILED", text))
        }
    }
}

fn by_report(facts: &Facts, report: Option<&Report>) -> Option<Found> {
    if let Some(error) = report.and_then(|report| report.error.as_ref()) {
        return Some(by_error(facts, error));
    }
    match facts.exit {
        Some(Exit::Code(code)) if code != 0 => {
            let text = format!("the cell ended with exit code {code}");
            Some((Category::UserCodeError, "EXIT_NONZERO", text))
        }
        _ => None,
    }
}

fn by_error(facts: &Facts, error: &ReportedError) -> Found {
    use Category::{ResourceLimit, SandboxViolation, UserCodeError};
    let text = match (error.type_name.as_str(), error.message.as_str()) {
        (name, "") => name.to_owned(),
        (_, message) if error.kind == "runner" || error.kind == "program" => message.to_owned(),
        (name, message) => format!("{name}: {message}"),
    };
    if error.kind == "program" {
        let known = |(code, _): &(&str, Category)| error.code.as_deref() == Some(*code);
        let found = PROGRAM_CODES.into_iter().find(known);
        let (code, category) = found.unwrap_or(("PROGRAM_FAILED", UserCodeError));
        return (category, code, text);
    }
    if error.is_memory {
        return (ResourceLimit, "MEMORY_LIMIT", text);
    }
    if let Some(libc::ENOSPC | libc::EFBIG | libc::EDQUOT) = error.errno {
        return (ResourceLimit, "DISK_LIMIT", text);
    }
    let is_thread = error.type_name == "RuntimeError" && error.message.contains("start new thread");
    if (error.errno == Some(libc::EAGAIN) || is_thread) && facts.process_refusals != Some(0) {
        return (ResourceLimit, "PROCESS_LIMIT", text);
    }
    if error.code.as_deref() == Some("RESULT_TOO_LARGE") {
        return (ResourceLimit, "RESULT_TOO_LARGE", text);
    }
    let is_refused = matches!(error.errno, Some(libc::EROFS | libc::EACCES | libc::EPERM));
    if is_refused && !error.path.as_deref().is_some_and(is_own) {
        return (SandboxViolation, "FORBIDDEN_ACCESS", text);
    }
    let code = match error.code.as_deref() {
        Some("RESULT_NOT_JSON") => "RESULT_NOT_JSON",
        Some("ENTRYPOINT_NOT_FOUND") => "ENTRYPOINT_NOT_FOUND",
        _ if error.is_module => "MODULE_NOT_FOUND",
        _ if error.kind == "exit" => "EXIT_NONZERO",
        _ if matches!(
            error.type_name.as_str(),
            "SyntaxError" | "IndentationError" | "TabError"
        ) =>
        {
            "SYNTAX_ERROR"
        }
        _ => "PYTHON_EXCEPTION",
    };
    (UserCodeError, code, text)
}

/// Whether a path that a cell named lies in its own folders, by its text alone.
fn is_own(path: &str) -> bool {
    let absolute =
        if path.starts_with('/') { path.to_owned() } else { format!("/job/files/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in absolute.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    let plain = format!("/{}", parts.join("/"));
    OWN_FOLDERS.iter().any(|own| plain == *own || plain.starts_with(&format!("{own}/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Violation;

    fn facts(exit: Exit) -> Facts {
        Facts { exit: Some(exit), process_refusals: Some(0), ..Facts::default() }
    }

    fn failing(error: ReportedError) -> ReportState {
        ReportState::Received(Report { error: Some(error), result: None })
    }

    fn check(facts: &Facts, report: &ReportState, expected: &str) {
        let found = match classify(facts, report) {
            Verdict::Succeeded => "ok".to_owned(),
            Verdict::Cancelled => "cancelled".to_owned(),
            Verdict::Failed(failure) => format!("{} {}", failure.category.as_str(), failure.code),
        };
        assert_eq!(found, expected, "{facts:?} {report:?}");
    }

    #[test]
    fn the_kernel_is_believed_before_the_cell() {
        let good = ReportState::Received(Report::default());
        let violation = Violation { name: "socket".to_owned(), number: 41, arguments: [0; 6] };
        let mut seen = facts(Exit::Signal(libc::SIGKILL));
        seen.violations.push(violation);
        seen.stopped = Some(Stop::Time);
        seen.oom_kills = 1;
        check(&seen, &good, "RESOURCE_LIMIT MEMORY_LIMIT");
        seen.oom_kills = 0;
        check(&seen, &good, "RESOURCE_LIMIT TIME_LIMIT");
        seen.stopped = Some(Stop::Cpu);
        check(&seen, &good, "RESOURCE_LIMIT CPU_LIMIT");
        seen.stopped = Some(Stop::Output);
        check(&seen, &good, "RESOURCE_LIMIT OUTPUT_LIMIT");
        seen.stopped = None;
        check(&seen, &good, "SANDBOX_VIOLATION FORBIDDEN_SYSCALL");
        seen.violations.clear();
        check(&seen, &good, "USER_CODE_ERROR CRASHED");
        check(&facts(Exit::Signal(libc::SIGSYS)), &good, "SANDBOX_VIOLATION FORBIDDEN_SYSCALL");
        check(&facts(Exit::Signal(libc::SIGXCPU)), &good, "RESOURCE_LIMIT CPU_LIMIT");
        check(&Facts::default(), &good, "INTERNAL_ERROR SANDBOX_FAILED");
        seen.stopped = Some(Stop::Cancelled);
        check(&seen, &good, "cancelled");
    }

    #[test]
    fn reports_decide_the_rest() {
        let one = facts(Exit::Code(1));
        let error = |errno, path: Option<&str>| {
            failing(ReportedError {
                kind: "exception".to_owned(),
                type_name: "OSError".to_owned(),
                errno: Some(errno),
                path: path.map(str::to_owned),
                ..ReportedError::default()
            })
        };
        check(&one, &error(libc::EROFS, Some("/etc/x")), "SANDBOX_VIOLATION FORBIDDEN_ACCESS");
        check(&one, &error(libc::EACCES, None), "SANDBOX_VIOLATION FORBIDDEN_ACCESS");
        check(&one, &error(libc::EACCES, Some("mine")), "USER_CODE_ERROR PYTHON_EXCEPTION");
        check(&one, &error(libc::EACCES, Some("../../etc")), "SANDBOX_VIOLATION FORBIDDEN_ACCESS");
        check(&one, &error(libc::ENOSPC, Some("mine")), "RESOURCE_LIMIT DISK_LIMIT");
        check(&one, &error(libc::EAGAIN, None), "USER_CODE_ERROR PYTHON_EXCEPTION");
        let refused = Facts { process_refusals: Some(3), ..one.clone() };
        check(&refused, &error(libc::EAGAIN, None), "RESOURCE_LIMIT PROCESS_LIMIT");
        check(&one, &ReportState::Missing, "USER_CODE_ERROR EXIT_NONZERO");
        check(&facts(Exit::Code(0)), &ReportState::Missing, "ok");
        check(&facts(Exit::Code(0)), &ReportState::Malformed, "ok");
    }
}
